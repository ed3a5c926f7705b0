// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/network/decoder_parts.h"

namespace tidemark {
namespace {

constexpr std::string_view kEmbeddingBlock = "embedding";
constexpr std::string_view kEmbeddingWeight = "embedding";

/// The loss of the head block, from logits to their gradient. Sizes below are in units of tokens x local vocabulary,
/// in bytes, for bf16 logits; they were read off a running PyTorch. With fp32 or fp64 logits the casts disappear.
///
///   upcast_logits   logits 2, cast to fp32 4 (logits die), log-softmax 4 (the cast dies): saved 4, forward peak 8.
///                   Backward: NLL gradient 4 and log-softmax gradient 4 beside the saved 4: peak 12; then bf16 2.
///   upcast_returned the same; the caller holds the logits 2, here until the head's backward is done: forward peak 10,
///                   between the passes 6, backward peak 14.
///   upcast_fp32_returned  the same with the cast 4 held: forward peak 8, between the passes 8, backward peak 16.
///   low_precision   logits 2, log-softmax 2: saved 2, forward peak 4. Backward peak 6.
///   softmax_saving  logits 2 (held by the caller until the loss returns), cast 4, softmax 4: saved 4, forward peak 10.
///                   Backward turns the softmax into its gradient in place, then bf16 2. (Megatron's and nanotron's
///                   vocabulary-parallel cross-entropy.)
class LossTable {
 public:
  LossTable(DecoderParts& parts, TensorId logits, TensorId labels)
      : parts_(parts), logits_(logits), labels_(labels), wide_(logits) {}

  void Forward() {
    if (SizeOf(b().compute()) < SizeOf(DType::fp32) && kind() != Loss::low_precision) {
      wide_ = AddWide("logits_fp32");
      Pass(false, "logits.upcast", {logits_}, {wide_});
    }
    const std::int64_t rows = parts_.shape().tokens;
    row_max_ = AddRows("row_max", rows);
    row_sum_ = AddRows("row_sum", rows);
    target_ = AddRows("target_logit", rows);
    if (kind() == Loss::softmax_saving) {
      SoftmaxForward();
    } else {
      LogSoftmaxForward();
    }
  }

  /// Returns the gradient of the logits.
  TensorId Backward() {
    const TensorId wide = kind() == Loss::softmax_saving ? SoftmaxBackward() : LogSoftmaxBackward();
    if (wide_ == logits_) {
      return wide;
    }
    const TensorId d_logits =
        b().AddTensor("d_logits", b().tensor(logits_).elements, Category::logits, parts_.partition().compute);
    Pass(true, "logits.downcast", {wide}, {d_logits});
    return d_logits;
  }

  /// What a caller that was given the logits holds; invalid where nobody does.
  TensorId Held() const {
    return kind() == Loss::upcast_returned ? logits_ : kind() == Loss::upcast_fp32_returned ? wide_ : TensorId();
  }

 private:
  using Loss = Partition::Loss;

  Loss kind() const { return parts_.partition().loss; }
  BlockBuilder& b() { return parts_.builder(); }

  void SoftmaxForward() {
    RowMaximum();
    saved_ = AddWide("softmax");
    Pass(false, "softmax.shift", {wide_, row_max_}, {saved_});
    Pass(false, "softmax.target", {labels_}, {target_});
    Reduce("target_logit.reduce", target_);
    Pass(false, "softmax.exponential", {saved_}, {saved_, row_sum_});
    Reduce("row_sum.reduce", row_sum_);
    // Both forms of the logits die when the function returns, so its last pass counts as touching them.
    Calculate& last = Pass(false, "softmax.normalise", {saved_, row_sum_, target_}, {saved_, AddLoss()});
    last.reads.push_back(logits_);
    if (wide_ != logits_) {
      last.reads.push_back(wide_);
    }
  }

  TensorId SoftmaxBackward() {
    Pass(true, "softmax.backward", {saved_, labels_}, {saved_});
    return saved_;
  }

  void LogSoftmaxForward() {
    RowMaximum();
    Pass(false, "log_softmax.sum", {wide_, row_max_}, {row_sum_});
    Reduce("row_sum.reduce", row_sum_);
    saved_ = AddWide("log_softmax");
    Pass(false, "log_softmax.forward", {wide_, row_max_, row_sum_}, {saved_});
    // Gathers one element a row: the traffic is that of the rows, not of the matrix.
    Calculate& nll = Pass(false, "nll.forward", {labels_}, {target_});
    nll.reads.push_back(saved_);
    Reduce("target_logit.reduce", target_);
    Pass(false, "nll.mean", {target_}, {AddLoss()});
  }

  TensorId LogSoftmaxBackward() {
    const TensorId d_nll = AddWide("d_log_softmax");
    Pass(true, "nll.backward", {labels_}, {d_nll}).reads.push_back(saved_);
    const TensorId d_wide = AddWide("d_logits_fp32");
    Pass(true, "log_softmax.backward", {d_nll, saved_}, {d_wide});
    return d_wide;
  }

  void RowMaximum() {
    Pass(false, "row_max.forward", {wide_}, {row_max_});
    Reduce("row_max.reduce", row_max_, Reduction::max);
  }

  TensorId AddWide(std::string name) {
    const bool narrow = SizeOf(b().compute()) < SizeOf(DType::fp32);
    const DType dtype = narrow && kind() != Loss::low_precision ? DType::fp32 : b().compute();
    return b().AddTensor(std::move(name), b().tensor(logits_).elements, Category::logits, dtype);
  }
  TensorId AddRows(std::string name, std::int64_t elements) {
    return b().AddTensor(std::move(name), elements, Category::activation, DType::fp32);
  }
  TensorId AddLoss() { return AddRows("loss", 1); }

  /// A statistic of each row, summed or maximised over the ranks that share the row's vocabulary.
  void Reduce(std::string name, TensorId rows, Reduction reduction = Reduction::sum) {
    if (parts_.shape().tp > 1) {
      b().AddCollective(b().forward(), CollectiveKind::all_reduce, std::move(name), rows, rows);
      std::get<Communicate>(b().forward().back()).reduction = reduction;
    }
  }

  Calculate& Pass(bool backward, std::string name, std::vector<TensorId> reads, std::vector<TensorId> writes) {
    CrossEntropy op;
    op.rows = parts_.shape().tokens;
    op.vocabulary = parts_.shape().vocabulary;
    op.bytes_moved = b().BytesOf(reads) + b().BytesOf(writes);
    op.backward = backward;
    return b().Add(backward ? b().backward() : b().forward(), std::move(name), op, std::move(reads), std::move(writes));
  }

  DecoderParts& parts_;
  TensorId logits_, labels_, wide_;
  TensorId saved_, row_max_, row_sum_, target_;
};

void EmbeddingForward(DecoderParts& parts, ParameterId weight, ParameterId positions, TensorId& mask) {
  BlockBuilder& b = parts.builder();
  Block& block = b.block();
  const Embedding op{parts.shape().tokens, parts.shape().hidden, parts.shape().vocabulary, false, b.compute()};
  const TensorId rows = b.AddTensor("embedded", parts.shape().tokens * parts.shape().hidden);
  b.Add(b.forward(), "embedding.forward", op, {block.loaded.front()}, {rows}).parameters = {weight};
  block.output = parts.ReduceForward("embedding", rows);
  if (positions.valid()) {
    const TensorId placed = parts.AddResidual("placed");
    b.AddPointwise(b.forward(), "positions.forward", {block.output}, {placed}).parameters = {positions};
    block.output = placed;
  }
  block.output = parts.DropoutForward("embedding", block.output, mask);
}

}  // namespace

Block BuildEmbedding(const Decoder& decoder, std::span<const std::string> trainable, const Partition& partition,
                     const std::string& name) {
  DecoderParts parts(name, decoder, trainable, partition);
  BlockBuilder& b = parts.builder();
  Block& block = b.block();
  const LocalShape& shape = parts.shape();
  const ParameterId weight = b.AddParameter({.name = std::string(kEmbeddingWeight),
                                             .elements = shape.vocabulary * shape.hidden,
                                             .rows = shape.vocabulary,
                                             .elements_full = decoder.vocabulary * shape.hidden});
  ParameterId positions;
  if (decoder.positions > 0) {
    const std::int64_t elements = decoder.positions * shape.hidden;
    positions = b.AddParameter(
        {.name = "positions", .elements = elements, .rows = decoder.positions, .elements_full = elements});
  }
  block.loaded = {b.AddTensor("ids", shape.tokens, Category::input, DType::int64)};
  block.output_gradient = parts.AddResidual("d_output");
  TensorId mask;
  EmbeddingForward(parts, weight, positions, mask);

  const TensorId gradient = parts.DropoutBackward("embedding", block.output_gradient, mask);
  if (positions.valid() && b.trainable(positions)) {
    b.AddPointwise(b.backward(), "positions.backward", {gradient}, {}).gradients = {positions};
  }
  if (b.trainable(weight)) {
    const TensorId gathered = parts.GatherBackward("d_embedded", gradient);
    const Embedding op{shape.tokens, shape.hidden, shape.vocabulary, true, b.compute()};
    b.Add(b.backward(), "embedding.backward", op, {block.loaded.front(), gathered}, {}).gradients = {weight};
  }
  return std::move(b).Take();
}

Block BuildHead(const Decoder& decoder, std::span<const std::string> trainable, const Partition& partition) {
  DecoderParts parts("head", decoder, trainable, partition);
  BlockBuilder& b = parts.builder();
  Block& block = b.block();
  const LocalShape& shape = parts.shape();
  block.input = parts.AddResidual("norm_in");
  const TensorId labels = b.AddTensor("labels", shape.tokens, Category::input, DType::int64);
  block.loaded = {labels};

  ColumnPart column = parts.ColumnInput("norm", block.input, "head_in");
  LinearPart head = parts.AddColumnLinear("lm_head", shape.vocabulary, decoder.vocabulary, false);
  if (decoder.tied_embeddings) {
    Parameter& weight = block.parameters.at(head.weight.index);
    weight.tied = true;
    weight.trainable = IsTrainable(trainable, std::string(kEmbeddingBlock) + "." + std::string(kEmbeddingWeight));
  }
  const TensorId logits = b.AddTensor("logits", shape.tokens * shape.vocabulary, Category::logits);
  head.outputs = {logits};
  parts.ColumnForward(column, std::move(head));
  LossTable loss(parts, logits, labels);
  loss.Forward();

  const TensorId d_logits = loss.Backward();
  const TensorId d_norm_out = parts.ColumnBackward(column, {{d_logits}});
  block.input_gradient = parts.NormBackward(column.norm, d_norm_out, "d_norm_in");
  if (loss.Held().valid()) {
    std::get<Calculate>(b.backward().back()).reads.push_back(loss.Held());
  }
  return std::move(b).Take();
}

std::function<TensorId()> AddHeadWithLoss(DecoderParts& parts, const NormPart& norm, TensorId labels) {
  BlockBuilder& b = parts.builder();
  const LocalShape& shape = parts.shape();
  auto column = std::make_shared<ColumnPart>();
  column->norm = norm;
  column->input_name = "head_in";
  column->input = norm.output;
  LinearPart head = parts.AddColumnLinear("lm_head", shape.vocabulary, parts.decoder().vocabulary, false);
  const TensorId logits = b.AddTensor("logits", shape.tokens * shape.vocabulary, Category::logits);
  head.outputs = {logits};
  parts.ColumnForward(*column, std::move(head));
  auto loss = std::make_shared<LossTable>(parts, logits, labels);
  const std::size_t begin = b.forward().size();
  loss->Forward();
  for (std::size_t i = begin; i < b.forward().size(); ++i) {
    std::get<Calculate>(b.forward()[i]).own_loss = true;
  }
  return [&parts, column, loss] {
    const std::size_t first = parts.builder().backward().size();
    const TensorId d_logits = loss->Backward();
    std::get<Calculate>(parts.builder().backward()[first]).own_loss = true;
    return parts.ColumnBackward(*column, {{d_logits}});
  };
}

}  // namespace tidemark

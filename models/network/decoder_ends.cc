// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/network/decoder_parts.h"
#include "models/network/loss_in_chunks.h"
#include "models/network/loss_table.h"

namespace tidemark {
namespace {

constexpr std::string_view kEmbeddingBlock = "embedding";
constexpr std::string_view kEmbeddingWeight = "embedding";

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

  ColumnPart column = parts.ColumnInput("norm", shape.hidden, block.input, "head_in");
  LinearPart head = parts.AddColumnLinear("lm_head", shape.hidden, shape.vocabulary, decoder.vocabulary, false);
  if (decoder.tied_embeddings) {
    Parameter& weight = block.parameters.at(head.weight.index);
    weight.tied = true;
    weight.trainable = IsTrainable(trainable, std::string(kEmbeddingBlock) + "." + std::string(kEmbeddingWeight));
  }
  if (TakesChunks(partition.loss)) {
    LossInChunks loss(parts, std::move(head), column.input, labels);
    loss.Forward();
    const TensorId d_norm_out = parts.ReduceColumnGradient(column, loss.Backward());
    block.input_gradient = parts.NormBackward(column.norm, d_norm_out, "d_norm_in");
    return std::move(b).Take();
  }
  const TensorId logits = b.AddTensor("logits", shape.tokens * shape.vocabulary, Category::logits);
  head.outputs = {logits};
  parts.ColumnForward(column, std::move(head));
  LossTable loss(parts, {shape.tokens, ""}, logits, labels, b.forward(), b.backward());
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
  LinearPart head = parts.AddColumnLinear("lm_head", shape.hidden, shape.vocabulary, parts.decoder().vocabulary, false);
  const TensorId logits = b.AddTensor("logits", shape.tokens * shape.vocabulary, Category::logits);
  head.outputs = {logits};
  parts.ColumnForward(*column, std::move(head));
  auto loss =
      std::make_shared<LossTable>(parts, LossTable::Part{shape.tokens, ""}, logits, labels, b.forward(), b.backward());
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

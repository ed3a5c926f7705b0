// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "models/network/decoder_parts.h"
#include "models/network/families.h"

namespace tidemark {
namespace {

constexpr Tensor::Carried kBornHere{true, false, true}, kDiesHere{true, true, false}, kNeither{true, true, true};

/// One representation is fp32 in every precision but fp64: contrastive losses are computed at least in fp32.
DType RepresentationType(const Partition& partition) {
  return partition.compute == DType::fp64 ? DType::fp64 : DType::fp32;
}

/// The end of a tower: final norm, the head of a language model if there is one, first token, projection, cast. Its
/// output goes to the loss, and its gradient comes from there, past the other tower.
class PoolTable {
 public:
  PoolTable(const std::string& tower, const Decoder& encoder, const DualEncoder& network,
            std::span<const std::string> trainable, const Partition& partition)
      : parts_(tower + "pool", encoder, trainable, partition),
        tower_(tower),
        width_(network.representation),
        lm_loss_(network.lm_loss) {}

  Block Build() && {
    Block& block = b().block();
    block.input = parts_.AddResidual("norm_in");
    const NormPart norm = parts_.NormForward("norm", block.input, "norm_out");
    std::function<TensorId()> head_backward;
    if (lm_loss_) {
      block.loaded = {b().AddTensor("labels", parts_.shape().tokens, Category::input, DType::int64)};
      head_backward = AddHeadWithLoss(parts_, norm, block.loaded.front());
    }
    const TensorId rows = PoolForward(norm.output);
    const TensorId projected = ProjectForward(rows);
    const Category category = cached() ? Category::representation_cache : Category::activation;
    const TensorId representation = Carry("representation", category, kBornHere);
    const TensorId gradient = Carry("representation gradient", Category::activation, kDiesHere);
    b().AddPointwise(b().forward(), "representation.forward", {projected}, {representation});

    const TensorId d_projected = b().AddTensor("d_projected", samples() * width_);
    b().AddPointwise(b().backward(), "representation.backward", {gradient}, {d_projected});
    const TensorId d_norm_out = PoolBackward(ProjectBackward(rows, d_projected));
    if (lm_loss_) {
      b().AddPointwise(b().backward(), "norm_out.backward", {d_norm_out, head_backward()}, {d_norm_out});
    }
    block.input_gradient = parts_.NormBackward(norm, d_norm_out, "d_norm_in");
    return std::move(b()).Take();
  }

 private:
  BlockBuilder& b() { return parts_.builder(); }
  std::int64_t samples() const { return parts_.shape().batch; }
  std::int64_t hidden() const { return parts_.shape().hidden; }
  bool cached() const { return parts_.partition().cached_batch > 0; }
  bool projects() const { return width_ != hidden(); }

  TensorId Carry(const std::string& name, Category category, Tensor::Carried carried) {
    const TensorId id =
        b().AddTensor(tower_ + name, samples() * width_, category, RepresentationType(parts_.partition()));
    b().block().tensors[id.index].carried = carried;
    return id;
  }

  /// Copies one row of each sample.
  TensorId PoolForward(TensorId norm_out) {
    const TensorId rows = b().AddTensor("pooled", samples() * hidden());
    const Pointwise op{samples() * hidden(), 2 * b().BytesOf({rows}), 1};
    b().Add(b().forward(), "pool.forward", op, {norm_out}, {rows});
    return rows;
  }
  /// Zeros for all tokens but the first of each sample.
  TensorId PoolBackward(TensorId d_rows) {
    const TensorId d_norm_out = parts_.AddResidual("d_norm_out");
    b().AddPointwise(b().backward(), "pool.backward", {d_rows}, {d_norm_out});
    return d_norm_out;
  }

  Gemm Product(std::int64_t m, std::int64_t n, std::int64_t k) {
    return Gemm{.m = m, .n = n, .k = k, .dtype = b().compute(), .output = b().compute()};
  }

  TensorId ProjectForward(TensorId rows) {
    if (!projects()) {
      return rows;
    }
    projection_ = b().AddParameter(
        {.name = "projection", .elements = width_ * hidden(), .rows = width_, .elements_full = width_ * hidden()});
    const TensorId projected = b().AddTensor("projected", samples() * width_);
    b().Add(b().forward(), "projection.forward", Product(samples(), width_, hidden()), {rows}, {projected})
        .parameters = {projection_};
    return projected;
  }
  TensorId ProjectBackward(TensorId rows, TensorId d_projected) {
    if (!projects()) {
      return d_projected;
    }
    if (b().trainable(projection_)) {
      b().Add(b().backward(), "projection.weight_gradient", Product(width_, hidden(), samples()), {rows, d_projected},
              {})
          .gradients = {projection_};
    }
    const TensorId d_rows = b().AddTensor("d_pooled", samples() * hidden());
    b().Add(b().backward(), "projection.input_gradient", Product(samples(), hidden(), width_), {d_projected}, {d_rows})
        .parameters = {projection_};
    return d_rows;
  }

  DecoderParts parts_;
  std::string tower_;
  std::int64_t width_;
  bool lm_loss_;
  ParameterId projection_;
};

/// What one side of the pairs brings to the loss.
struct Side {
  std::string name;                 ///< "first."
  std::int64_t samples = 0;         ///< of this rank
  TensorId own, all, d_all, d_own;  ///< representations; over one rank `own` is `all`
};

/// InfoNCE over the representations of all ranks, or of this one (`gather` off: then nothing below about ranks):
/// softmax cross-entropy of each row of the similarities. What other ranks send is a constant; the gradients of this
/// rank's own rows are handed back. The loss is multiplied by the number of ranks, or each of them would be that much
/// too small after the average over ranks (semantics: the gradient of the loss over all pairs is the *sum* over ranks
/// of what each rank's rows contribute).
///
/// Gathered representations are counted once, as if they were gathered into one tensor. PyTorch's cross-entropy holds
/// the logits until it returns, then the log-softmax; in the backward pass that, its gradient and the logits' are alive
/// together.
class ContrastiveTable {
 public:
  ContrastiveTable(std::vector<Side> sides, const DualEncoder& network, const Partition& partition)
      : b_("loss", {}, partition.compute),
        sides_(std::move(sides)),
        ranks_(network.gather ? partition.ranks : 1),
        width_(network.representation),
        batch_(partition.cached_batch > 0 ? partition.cached_batch : partition.micro_batch_size),
        rows_(ranks_ * batch_),
        columns_(rows_ * network.targets),
        cached_(partition.cached_batch > 0),
        type_(RepresentationType(partition)) {}

  Block Build() && {
    const TensorId targets = b_.AddTensor("targets", rows_, Category::activation, DType::int64);
    std::vector<TensorId> all;
    for (Side& side : sides_) {
      Gather(side);
      all.push_back(side.all);
    }
    const TensorId logits = AddMatrix("logits");
    const TensorId log_softmax = AddMatrix("log_softmax");
    const TensorId loss = b_.AddTensor("loss", 1, Category::activation, type_);
    b_.Add(b_.forward(), "targets", Pointwise{rows_, b_.BytesOf({targets}), 1}, {}, {targets});
    b_.Add(b_.forward(), "similarity.forward", InfoNce{rows_, columns_, width_, false, type_}, all, {logits});
    Pass(b_.forward(), "log_softmax.forward", {logits}, {log_softmax});
    Pass(b_.forward(), "nll.forward", {targets}, {loss}).reads = {log_softmax, targets, logits};
    Backward(targets, log_softmax, all);
    return std::move(b_).Take();
  }

 private:
  void Backward(TensorId targets, TensorId log_softmax, const std::vector<TensorId>& all) {
    const TensorId d_log_softmax = AddMatrix("d_log_softmax");
    const TensorId d_logits = AddMatrix("d_logits");
    Pass(b_.backward(), "nll.backward", {targets}, {d_log_softmax}).reads.push_back(log_softmax);
    Pass(b_.backward(), "log_softmax.backward", {d_log_softmax, log_softmax}, {d_logits});
    std::vector<TensorId> reads = {d_logits}, writes;
    reads.insert(reads.end(), all.begin(), all.end());
    for (Side& side : sides_) {
      const Category category = cached_ ? Category::representation_cache : Category::activation;
      side.d_own = Carry(side, cached_ ? "cache" : "representation gradient", category, kBornHere);
      side.d_all = ranks_ == 1
                       ? side.d_own
                       : b_.AddTensor(side.name + "d_gathered", ranks_ * side.samples * width_, category, type_);
      writes.push_back(side.d_all);
    }
    b_.Add(b_.backward(), "similarity.backward", InfoNce{rows_, columns_, width_, true, type_}, std::move(reads),
           std::move(writes));
    for (const Side& side : sides_) {
      if (ranks_ > 1) {
        const Pointwise op{side.samples * width_, 2 * b_.BytesOf({side.d_own}), 1};
        b_.Add(b_.backward(), side.name + "own_rows.backward", op, {side.d_all}, {side.d_own});
      }
    }
  }

  void Gather(Side& side) {
    const Category category = cached_ ? Category::representation_cache : Category::activation;
    side.own = Carry(side, cached_ ? "representations" : "representation", category, cached_ ? kNeither : kDiesHere);
    side.all = side.own;
    if (ranks_ > 1) {
      side.all = b_.AddTensor(side.name + "gathered", ranks_ * side.samples * width_, category, type_);
      b_.AddCollective(b_.forward(), CollectiveKind::all_gather, side.name + "gather", side.own, side.all).among =
          Among::data_parallel;
    }
  }

  TensorId Carry(const Side& side, const std::string& name, Category category, Tensor::Carried carried) {
    const TensorId id = b_.AddTensor(side.name + name, side.samples * width_, category, type_);
    b_.block().tensors[id.index].carried = carried;
    return id;
  }
  TensorId AddMatrix(const std::string& name) { return b_.AddTensor(name, rows_ * columns_, Category::logits, type_); }
  Calculate& Pass(std::vector<Action>& pass, std::string name, std::vector<TensorId> reads,
                  std::vector<TensorId> writes) {
    const CrossEntropy op{rows_, columns_, b_.BytesOf(reads) + b_.BytesOf(writes), &pass == &b_.backward()};
    return b_.Add(pass, std::move(name), op, std::move(reads), std::move(writes));
  }

  BlockBuilder b_;
  std::vector<Side> sides_;
  std::int64_t ranks_, width_, batch_, rows_, columns_;
  bool cached_;
  DType type_;
};

Status CheckEncoders(const DualEncoder& network, const Partition& partition) {
  constexpr std::int64_t kWidest = 1 << 20, kMostTargets = 1 << 16;
  if (partition.tp > 1) {
    return BadInput(fmt::format("expected layout.tp of 1 for a dual encoder, found {}", partition.tp),
                    "tensor parallelism of two towers is not modelled");
  }
  if (network.representation < 1 || network.representation > kWidest) {
    return BadInput(
        fmt::format("expected a representation between 1 and {} wide, found {}", kWidest, network.representation));
  }
  if (network.targets < 1 || network.targets > kMostTargets) {
    return BadInput(fmt::format("expected targets between 1 and {}, found {}", kMostTargets, network.targets));
  }
  if (network.lm_loss && (network.first.tied_embeddings || network.second.tied_embeddings)) {
    return BadInput("expected tied_embeddings of false with lm_loss, found true",
                    "a tower's head has a weight of its own: one that is tied to the embedding is not modelled");
  }
  if (network.shared && network.targets > 1 && partition.cached_batch > 0) {
    return BadInput(fmt::format("a shared encoder takes chunks of one size, but {} targets make the second side's "
                                "larger",
                                network.targets),
                    "use two encoders, or one target");
  }
  const double samples = static_cast<double>(std::max(partition.cached_batch, partition.micro_batch_size)) *
                         static_cast<double>(network.targets);
  const double columns = samples * static_cast<double>(partition.ranks);
  const double passes = 4 * columns * columns * static_cast<double>(network.representation) * 8;
  if (passes >= kLargestProduct) {
    return BadInput(fmt::format("expected a batch whose similarities stay below 2^60, found {} samples on {} ranks",
                                samples, partition.ranks),
                    "make micro_batch_size, accumulation_steps or layout.dp smaller");
  }
  return Done{};
}

}  // namespace

Result<std::vector<BlockRun>> BuildDualEncoder(const DualEncoder& network, std::span<const std::string> trainable,
                                               const Partition& partition) {
  TIDEMARK_TRY(CheckEncoders(network, partition));
  const bool cached = partition.cached_batch > 0;
  std::vector<BlockRun> runs;
  std::vector<Side> sides;
  // One encoder takes both sides as one batch, unless they come in chunks.
  const std::int64_t samples = partition.micro_batch_size, targets = network.targets;
  for (std::int64_t tower = 0; tower < (network.shared ? 1 : 2); ++tower) {
    const Decoder& encoder = tower == 0 ? network.first : network.second;
    const std::string name = network.shared ? "encoder." : tower == 0 ? "first." : "second.";
    Partition part = partition;
    part.micro_batch_size = samples * (network.shared ? (cached ? 1 : 1 + targets) : tower == 0 ? 1 : targets);
    TIDEMARK_TRY(BuildDecoder(encoder, {}, part));
    runs.push_back({BuildEmbedding(encoder, trainable, part, name + "embedding"), 1});
    runs.push_back({BuildLayer(encoder, trainable, part, name + "layer"), encoder.layers});
    runs.push_back({PoolTable(name, encoder, network, trainable, part).Build(), 1});
    for (auto run = runs.end() - 3; run != runs.end(); ++run) {
      run->block.tower = tower;
    }
    if (!cached) {
      sides.push_back({name, part.micro_batch_size, {}, {}, {}, {}});
    }
  }
  if (cached) {
    sides = {{"first.", partition.cached_batch, {}, {}, {}, {}},
             {"second.", partition.cached_batch * targets, {}, {}, {}, {}}};
  }
  runs.push_back({ContrastiveTable(std::move(sides), network, partition).Build(), 1});
  return runs;
}

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <utility>

#include "kernels/cross_entropy_cuda.h"
#include "kernels/info_nce_cuda.h"
#include "kernels/pointwise_cuda.h"
#include "profiler/execute/operation.h"

namespace tidemark {
namespace {

using kernels::ConstTensor;
using kernels::Tensor;
using kernels::TensorType;
using Writes = std::span<const kernels::Tensor>;

/// One representation is fp32 in every precision but fp64.
DType RepresentationType(const OperationContext& c) {
  const DType params = c.job.axes.precision.params;
  return c.Stored(params == DType::fp64 ? params : DType::fp32);
}

/// Rows of the dual encoder's tables, by name.
class ContrastiveBinder {
 public:
  explicit ContrastiveBinder(const OperationContext& context) : c_(context), type_(RepresentationType(context)) {
    const DualEncoder& pair = *c_.model.pair();
    op_.ranks = pair.gather ? c_.job.layout.dp : 1;
    op_.batch = c_.model.samples() * (c_.job.CachesRepresentations() ? c_.job.Microbatches() : 1);
    op_.targets = pair.targets;
    op_.width = pair.representation;
    loss_.rows = op_.rows();
    loss_.columns = op_.columns();
  }

  Result<Operation> Bind(std::string_view action) const {
    struct Pass {
      std::string_view name;
      Result<Operation> (*bind)(const ContrastiveBinder&);
    };
    static constexpr std::array kPasses = {
        Pass{"pool.forward", [](const ContrastiveBinder& b) { return b.Pool(); }},
        Pass{"pool.backward", [](const ContrastiveBinder& b) { return b.PoolGradient(); }},
        Pass{"representation.forward", [](const ContrastiveBinder& b) { return b.CastTo(b.type_); }},
        Pass{"representation.backward",
             [](const ContrastiveBinder& b) { return b.CastTo(b.c_.Stored(b.c_.job.axes.precision.params)); }},
        Pass{"targets", [](const ContrastiveBinder& b) { return b.Labels(); }},
        Pass{"similarity.forward", [](const ContrastiveBinder& b) { return b.Similarity(); }},
        Pass{"similarity.backward", [](const ContrastiveBinder& b) { return b.SimilarityGradient(); }},
        Pass{"log_softmax.forward", [](const ContrastiveBinder& b) { return b.LogSoftmax(); }},
        Pass{"log_softmax.backward", [](const ContrastiveBinder& b) { return b.LogSoftmaxGradient(); }},
        Pass{"nll.forward", [](const ContrastiveBinder& b) { return b.Loss(); }},
        Pass{"nll.backward", [](const ContrastiveBinder& b) { return b.LossGradient(); }},
    };
    for (const Pass& pass : kPasses) {
      if (pass.name == action) {
        return pass.bind(*this);
      }
    }
    return action.ends_with("own_rows.backward") ? OwnRows() : NotExecuted(c_.name);
  }

 private:
  kernels::Pool PoolOf() const {
    const Block& block = c_.model.BlockOfAction(c_.name);
    return {c_.model.SequencesOf(block), c_.job.sequence_length, c_.model.DecoderOf(block).hidden};
  }
  Result<Operation> Pool() const {
    return Operation{{PoolOutput(PoolOf(), c_.Read(0).type.dtype)},
                     [op = PoolOf(), tokens = c_.Read(0)](Writes writes, const Queue& queue) {
                       on::PoolForward(queue, op, tokens, writes[0]);
                     }};
  }
  Result<Operation> PoolGradient() const {
    return Operation{{PoolGradientOutput(PoolOf(), c_.Read(0).type.dtype)},
                     [op = PoolOf(), rows = c_.Read(0)](Writes writes, const Queue& queue) {
                       on::PoolBackward(queue, op, rows, writes[0]);
                     }};
  }
  Result<Operation> CastTo(DType dtype) const {
    return Operation{{{dtype, c_.Read(0).type.elements}},
                     [from = c_.Read(0)](Writes writes, const Queue& queue) { on::Copy(queue, from, writes[0]); }};
  }

  Result<Operation> Labels() const {
    return Operation{{InfoNceLabelsOutput(op_)},
                     [op = op_](Writes writes, const Queue& queue) { on::InfoNceLabels(queue, op, writes[0]); }};
  }
  /// One encoder's representations are one tensor, both sides of it.
  Result<Operation> Similarity() const {
    const ConstTensor x = c_.Read(0), y = c_.Read(c_.reads.size() - 1);
    return Operation{{SimilarityOutput(op_, type_)}, [op = op_, x, y](Writes writes, const Queue& queue) {
                       on::SimilarityForward(queue, op, x, y, writes[0]);
                     }};
  }
  Result<Operation> SimilarityGradient() const {
    const ConstTensor d_logits = c_.Read(0), x = c_.Read(1), y = c_.Read(c_.reads.size() - 1);
    std::vector<TensorType> types = {x.type};
    if (c_.writes.size() > 1) {
      types.push_back(y.type);
    }
    return Operation{std::move(types), [op = op_, d_logits, x, y](Writes writes, const Queue& queue) {
                       on::SimilarityBackward(queue, op, d_logits, x, y, writes.front(), writes.back());
                     }};
  }

  Result<Operation> LogSoftmax() const {
    return Operation{{CrossEntropyMatrix(loss_, type_)},
                     [op = loss_, x = c_.Read(0)](Writes writes, const Queue& queue) {
                       on::LogSoftmaxForward(queue, op, x, writes[0]);
                     }};
  }
  Result<Operation> Loss() const {
    return Operation{{kernels::CrossEntropyLoss(type_)},
                     [op = loss_, log_softmax = c_.Read(0), labels = c_.Read(1)](Writes writes, const Queue& queue) {
                       on::NllLoss(queue, op, log_softmax, labels, writes[0]);
                     }};
  }
  /// A system's factor is that of the mean over one rank's microbatch or chunk, as of any other loss: of the mean over
  /// all rows it is as many times that as there are such parts in them. (1/M times M N parts: the loss times N.)
  Result<Operation> LossGradient() const {
    kernels::CrossEntropy loss = loss_;
    loss.divisor = static_cast<double>(c_.model.samples());
    loss.scale = c_.scale;
    return Operation{{CrossEntropyMatrix(loss, type_)}, [loss, labels = c_.Read(0)](Writes writes, const Queue& queue) {
                       on::NllBackward(queue, loss, labels, writes[0]);
                     }};
  }
  Result<Operation> LogSoftmaxGradient() const {
    return Operation{{CrossEntropyMatrix(loss_, type_)},
                     [op = loss_, d = c_.Read(0), log_softmax = c_.Read(1)](Writes writes, const Queue& queue) {
                       on::LogSoftmaxBackward(queue, op, d, log_softmax, writes[0], std::nullopt, std::nullopt);
                     }};
  }

  /// What other ranks sent is a constant.
  Result<Operation> OwnRows() const {
    const std::int64_t elements = c_.Read(0).type.elements / op_.ranks;
    return Operation{{{type_, elements}},
                     [from = kernels::Slice(c_.Read(0), c_.model.shard() * elements, elements)](
                         Writes writes, const Queue& queue) { on::Copy(queue, from, writes[0]); }};
  }

  const OperationContext& c_;
  DType type_;
  kernels::InfoNce op_;
  kernels::CrossEntropy loss_;
};

/// Chunks are numbered through both sides, the queries' first.
class CacheBinder {
 public:
  CacheBinder(const OperationContext& context, const Operand& chunk)
      : c_(context), chunks_(c_.job.Microbatches()), chunk_(chunk.index % chunks_) {
    const std::int64_t samples = c_.model.samples() * (chunk.index < chunks_ ? 1 : c_.model.pair()->targets);
    part_ = {RepresentationType(c_), samples * c_.model.pair()->representation};
  }

  Operation Join() const {
    return Operation{{{part_.dtype, chunks_ * part_.elements}},
                     [from = c_.Read(0), begin = begin()](Writes writes, const Queue& queue) {
                       on::Copy(queue, from, kernels::Slice(writes[0], begin, from.type.elements));
                     }};
  }
  Operation Surrogate() const {
    return Operation{{{c_.Stored(DType::fp32), 1}},
                     [representation = c_.Read(0), cache = CacheIn(1)](Writes writes, const Queue& queue) {
                       on::SurrogateForward(queue, representation, cache, writes[0]);
                     }};
  }
  Operation SurrogateGradient() const {
    return Operation{{part_},
                     [cache = CacheIn(0)](Writes writes, const Queue& queue) { on::Copy(queue, cache, writes[0]); }};
  }

 private:
  std::int64_t begin() const { return chunk_ * part_.elements; }
  ConstTensor CacheIn(std::size_t read) const { return kernels::Slice(c_.Read(read), begin(), part_.elements); }

  const OperationContext& c_;
  std::int64_t chunks_, chunk_;
  TensorType part_;
};

}  // namespace

Result<Operation> BindContrastive(const OperationContext& context, std::string_view action) {
  return context.model.pair() ? ContrastiveBinder(context).Bind(action) : NotExecuted(context.name);
}

std::optional<Result<Operation>> BindCache(const OperationContext& context) {
  if (!context.model.pair()) {
    return std::nullopt;
  }
  if (context.name == "join representations") {
    return CacheBinder(context, context.reads[0]).Join();
  }
  if (context.name == "surrogate.forward") {
    return CacheBinder(context, context.reads[0]).Surrogate();
  }
  if (context.name == "surrogate.backward") {
    return CacheBinder(context, context.writes[0]).SurrogateGradient();
  }
  return std::nullopt;
}

}  // namespace tidemark

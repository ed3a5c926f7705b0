// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "base/check.h"
#include "kernels/cross_entropy_cuda.h"
#include "kernels/linear_cuda.h"
#include "kernels/pointwise_cuda.h"
#include "models/network/loss_in_chunks.h"
#include "profiler/capture/heap.h"
#include "profiler/execute/loss_chunk.h"
#include "profiler/execute/row_operands.h"

namespace tidemark {
namespace {

/// What a loss in chunks has around the passes over logits: the head's products for the tokens of a chunk, and the
/// gradients that are gathered over all chunks.
class ChunkBinder : RowOperands {
 public:
  explicit ChunkBinder(const RowOperands& operands) : RowOperands(operands), chunk_(ChunkOf(c_)) {}

  std::optional<Result<Operation>> Bind() const {
    if (!TakesChunks(c_.job.axes.loss)) {
      return std::nullopt;
    }
    struct Action {
      std::string_view name;
      Result<Operation> (*bind)(const ChunkBinder&);
    };
    static constexpr std::array kActions = {
        Action{"lm_head.forward", [](const ChunkBinder& b) { return b.Logits(); }},
        Action{"lm_head.weight_gradient", [](const ChunkBinder& b) { return b.WeightGradient(); }},
        Action{"lm_head.cast_weight_gradient", [](const ChunkBinder& b) { return b.CastWeightGradient(); }},
        Action{"lm_head.sum_weight_gradient", [](const ChunkBinder& b) { return b.SumWeightGradient(); }},
        Action{"lm_head.input_gradient", [](const ChunkBinder& b) { return b.InputGradient(); }},
        Action{"input_gradient.zero", [](const ChunkBinder& b) { return b.ZeroInputGradient(); }},
        Action{"input_gradient.upcast", [](const ChunkBinder& b) { return b.CopyTo(DType::fp32); }},
        Action{"input_gradient.store", [](const ChunkBinder& b) { return b.StoreInputGradient(); }},
        Action{"input_gradient.downcast", [](const ChunkBinder& b) { return b.CopyTo(b.Computed()); }},
        Action{"input_gradient.scale", [](const ChunkBinder& b) { return b.ScaleInputGradient(); }},
        Action{"weight_gradient.zero", [](const ChunkBinder& b) { return b.ZeroWeightGradient(); }},
        Action{"weight_gradient.scale", [](const ChunkBinder& b) { return b.HandOnWeightGradient(); }},
        Action{"losses.sum", [](const ChunkBinder& b) { return b.SumLosses(); }},
    };
    for (const Action& action : kActions) {
      if (action.name == row_.name) {
        return action.bind(*this);
      }
    }
    return std::nullopt;
  }

 private:
  const Parameter& Head() const {
    for (const Parameter& parameter : block_.parameters) {
      if (parameter.name == "lm_head") {
        return parameter;
      }
    }
    TIDEMARK_CHECK(false && "a head without its linear layer");
  }
  kernels::Linear ChunkLinear() const {
    const Parameter& head = Head();
    return {.rows = chunk_.tokens, .in = head.elements / head.rows, .out = head.rows};
  }
  DType Computed() const { return c_.job.axes.precision.params; }
  TensorType Hidden(DType dtype) const { return {c_.Stored(dtype), shape_.tokens() * decoder_.hidden}; }

  Result<Operation> Logits() const {
    const kernels::Linear linear = ChunkLinear();
    const ConstTensor input = chunk_.RowsOf(c_.Read(0), linear.in), weight = WeightRead(0);
    return Operation{{LinearOutput(linear, input.type.dtype, linear.out)}, [=](Writes writes, const Queue& queue) {
                       on::LinearForward(queue, linear, input, weight, std::nullopt, writes);
                     }};
  }

  /// Of the first chunk, or added up by the product itself, that of the weight; else a part to be added.
  Result<Operation> WeightGradient() const {
    kernels::Linear linear = ChunkLinear();
    linear.accumulate = c_.Adds(0);
    const ConstTensor input = chunk_.RowsOf(c_.Read(0), linear.in), gradient = c_.Read(1);
    const bool part = row_.gradients.empty() && row_.partial_gradients.empty();
    const DType dtype = part ? gradient.type.dtype : GradientType(0);
    return Operation{{LinearWeightGradientOutput(linear, dtype)}, [=](Writes writes, const Queue& queue) {
                       on::LinearWeightGradient(queue, linear, input, std::span(&gradient, 1), writes[0]);
                     }};
  }
  Result<Operation> CastWeightGradient() const {
    return c_.Adds(0) ? SumWeightGradient() : CopyTo(c_.writes[0].tensor.type.dtype);
  }
  Result<Operation> SumWeightGradient() const {
    return Operation{{c_.writes[0].tensor.type}, [part = c_.Read(0)](Writes writes, const Queue& queue) {
                       on::Accumulate(queue, part, writes[0]);
                     }};
  }

  /// Into a tensor of the chunk's, or into its rows of one for all tokens.
  Result<Operation> InputGradient() const {
    const kernels::Linear linear = ChunkLinear();
    const ConstTensor gradient = c_.Read(0), weight = WeightRead(0);
    if (chunk_.Has(c_.writes[0])) {
      return Operation{{LinearInputGradientOutput(linear, gradient.type.dtype)},
                       [=](Writes writes, const Queue& queue) {
                         on::LinearInputGradient(queue, linear, std::span(&gradient, 1), weight, writes[0]);
                       }};
    }
    return Operation{{Hidden(Computed())}, [=, chunk = chunk_](Writes writes, const Queue& queue) {
                       on::LinearInputGradient(queue, linear, std::span(&gradient, 1), weight,
                                               chunk.RowsOf(writes[0], linear.in));
                     }};
  }

  Result<Operation> StoreInputGradient() const {
    const ConstTensor gradient = c_.Read(0);
    return Operation{{Hidden(gradient.type.dtype)},
                     [=, chunk = chunk_, width = decoder_.hidden](Writes writes, const Queue& queue) {
                       on::Copy(queue, gradient, chunk.RowsOf(writes[0], width));
                     }};
  }
  Result<Operation> CopyTo(DType dtype) const {
    const ConstTensor from = c_.Read(0);
    return Operation{{{c_.Stored(dtype), from.type.elements}},
                     [=](Writes writes, const Queue& queue) { on::Copy(queue, from, writes[0]); }};
  }

  static Operation Zeroed(TensorType type) {
    return {{type}, [](Writes writes, const Queue& queue) { on::Zero(queue, writes[0]); }};
  }
  Result<Operation> ZeroInputGradient() const {
    const bool gathers_wide = c_.job.axes.loss == Partition::Loss::chunked;
    return Zeroed(Hidden(gathers_wide ? kernels::StatisticsOf(Computed()) : Computed()));
  }
  Result<Operation> ZeroWeightGradient() const { return Zeroed({c_.Stored(Computed()), Head().elements}); }

  /// Where the weight's gradient becomes what is handed on, in place, this is the last to see it under its old name.
  Result<Operation> ScaleInputGradient() const {
    const bool renames = tensors() > 1;
    const ConstTensor made = c_.Read(tensors() - 1);
    return Operation{{c_.Read(0).type, {kernels::StatisticsOf(c_.Read(0).type.dtype), 1}},
                     [=, scale = c_.scale, renamed = c_.renamed, rooms = c_.rooms, stream = c_.stream](
                         Writes writes, const Queue& queue) {
                       on::Scale(queue, scale, writes[0]);
                       on::Fill(queue, scale, writes[1]);
                       if (renames) {
                         *renamed = RenamedTensor(made, *rooms, stream, queue);
                       }
                     }};
  }
  Result<Operation> HandOnWeightGradient() const {
    const bool renamed = tensors() == 1, adds = c_.Adds(0);
    return Operation{
        {{GradientType(0), Head().elements}},
        [=, d_loss = c_.Read(0), last = c_.Read(tensors() - 1), kept = c_.renamed](Writes writes, const Queue& queue) {
          const ConstTensor made = renamed ? kept->tensor() : last;
          adds ? on::AccumulateTimes(queue, made, d_loss, writes[0]) : on::CopyTimes(queue, made, d_loss, writes[0]);
          const HeapScope scope(HeapOwner::executor);  // as it was made
          *kept = {};
        }};
  }

  Result<Operation> SumLosses() const {
    const ConstTensor losses = c_.Read(0);
    return Operation{{kernels::CrossEntropyLoss(losses.type.dtype)},
                     [=](Writes writes, const Queue& queue) { on::SumLosses(queue, losses, writes[0]); }};
  }

  const LossChunk chunk_;
};

}  // namespace

std::optional<Result<Operation>> BindLossInChunks(const RowOperands& operands) { return ChunkBinder(operands).Bind(); }

}  // namespace tidemark

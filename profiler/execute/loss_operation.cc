// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <optional>
#include <utility>

#include "kernels/cross_entropy_cuda.h"
#include "kernels/pointwise_cuda.h"
#include "profiler/execute/loss_chunk.h"

namespace tidemark {
namespace {

using kernels::ConstTensor;
using kernels::TensorType;
using Writes = std::span<const kernels::Tensor>;

/// The passes over logits, by name.
class LossBinder {
 public:
  explicit LossBinder(const OperationContext& context) : c_(context), chunk_(ChunkOf(context)) {
    const std::int64_t tokens = c_.job.micro_batch_size * c_.job.TokensOnRank();
    loss_.rows = chunk_.tokens;
    loss_.columns = c_.model.decoder().vocabulary / c_.model.place().size;
    loss_.first_column = c_.model.place().rank * loss_.columns;
    loss_.scale = c_.scale;
    loss_.divisor = static_cast<double>(tokens);
    if (c_.labels != nullptr) {
      loss_.divisor = c_.labels->divisor;
      counted_ = chunk_.RowsOf(c_.labels->tensor);
    }
  }

  Result<Operation> Bind(std::string_view action) const {
    struct Pass {
      std::string_view name;
      Result<Operation> (*bind)(const LossBinder&);
    };
    static constexpr std::array kPasses = {
        Pass{"logits.upcast", [](const LossBinder& b) { return b.Upcast(); }},
        Pass{"logits.downcast", [](const LossBinder& b) { return b.Downcast(); }},
        Pass{"row_max.forward", [](const LossBinder& b) { return b.Maximum(); }},
        Pass{"log_softmax.sum", [](const LossBinder& b) { return b.Sum(); }},
        Pass{"log_softmax.forward", [](const LossBinder& b) { return b.Forward(); }},
        Pass{"nll.forward", [](const LossBinder& b) { return b.Nll(); }},
        Pass{"nll.mean", [](const LossBinder& b) { return b.Mean(); }},
        Pass{"nll.backward", [](const LossBinder& b) { return b.NllGradient(); }},
        Pass{"log_softmax.backward", [](const LossBinder& b) { return b.Backward(); }},
        Pass{"softmax.shift", [](const LossBinder& b) { return b.Shift(); }},
        Pass{"softmax.target", [](const LossBinder& b) { return b.Target(); }},
        Pass{"softmax.exponential", [](const LossBinder& b) { return b.Exponential(); }},
        Pass{"softmax.normalise", [](const LossBinder& b) { return b.Normalise(); }},
        Pass{"softmax.backward", [](const LossBinder& b) { return b.SoftmaxGradient(); }},
        Pass{"cross_entropy.in_place", [](const LossBinder& b) { return b.InPlace(); }},
    };
    for (const Pass& pass : kPasses) {
      if (pass.name == action) {
        return pass.bind(*this);
      }
    }
    return NotExecuted(c_.name);
  }

 private:
  ConstTensor Labels(std::size_t read) const { return chunk_.RowsOf(c_.Read(read)); }
  TensorType Matrix(DType dtype) const { return CrossEntropyMatrix(loss_, c_.Stored(dtype)); }
  TensorType Rows(std::size_t matrix) const { return CrossEntropyRows(loss_, c_.Read(matrix).type.dtype); }

  Result<Operation> CopyTo(DType dtype) const {
    return Operation{{Matrix(dtype)},
                     [from = c_.Read(0)](Writes writes, const Queue& queue) { on::Copy(queue, from, writes[0]); }};
  }
  Result<Operation> Upcast() const { return CopyTo(DType::fp32); }
  Result<Operation> Downcast() const { return CopyTo(c_.job.axes.precision.params); }

  Result<Operation> Maximum() const {
    return Operation{{Rows(0)}, [op = loss_, x = c_.Read(0)](Writes writes, const Queue& queue) {
                       on::RowMax(queue, op, x, writes[0]);
                     }};
  }
  Result<Operation> Sum() const {
    return Operation{{Rows(0)}, [op = loss_, x = c_.Read(0), top = c_.Read(1)](Writes writes, const Queue& queue) {
                       on::RowSumOfExponentials(queue, op, x, top, writes[0]);
                     }};
  }
  Result<Operation> Forward() const {
    return Operation{{c_.Read(0).type},
                     [op = loss_, x = c_.Read(0), top = c_.Read(1), sum = c_.Read(2)](
                         Writes writes, const Queue& queue) { on::LogSoftmax(queue, op, x, top, sum, writes[0]); }};
  }
  Result<Operation> Nll() const {
    return Operation{{Rows(1)},
                     [op = loss_, labels = Labels(0), log_softmax = c_.Read(1)](Writes writes, const Queue& queue) {
                       on::NllForward(queue, op, labels, log_softmax, writes[0]);
                     }};
  }
  Result<Operation> Mean() const {
    return Operation{{kernels::CrossEntropyLoss(c_.Read(0).type.dtype)},
                     [op = loss_, target = c_.Read(0)](Writes writes, const Queue& queue) {
                       on::NllMean(queue, op, target, writes[0]);
                     }};
  }
  Result<Operation> NllGradient() const {
    return Operation{{c_.Read(1).type}, [op = loss_, labels = Labels(0)](Writes writes, const Queue& queue) {
                       on::NllBackward(queue, op, labels, writes[0]);
                     }};
  }
  Result<Operation> Backward() const {
    const double row_gradient = -c_.loss_scale / loss_.divisor;
    return Operation{{c_.Read(1).type},
                     [=, op = loss_, d = c_.Read(0), log_softmax = c_.Read(1), labels = counted_](Writes writes,
                                                                                                  const Queue& queue) {
                       on::LogSoftmaxBackward(queue, op, d, log_softmax, writes[0], row_gradient, labels);
                     }};
  }

  Result<Operation> Shift() const {
    return Operation{{c_.Read(0).type},
                     [op = loss_, x = c_.Read(0), top = c_.Read(1)](Writes writes, const Queue& queue) {
                       on::SoftmaxShift(queue, op, x, top, writes[0]);
                     }};
  }
  Result<Operation> Target() const {
    return Operation{{Rows(1)},
                     [op = loss_, labels = Labels(0), shifted = c_.Read(1)](Writes writes, const Queue& queue) {
                       on::SoftmaxTarget(queue, op, labels, shifted, writes[0]);
                     }};
  }
  Result<Operation> Exponential() const {
    return Operation{{c_.Read(0).type, Rows(0)}, [op = loss_](Writes writes, const Queue& queue) {
                       on::SoftmaxExponential(queue, op, writes[0], writes[1]);
                     }};
  }
  Result<Operation> Normalise() const {
    return Operation{
        {c_.Read(0).type, kernels::CrossEntropyLoss(c_.Read(0).type.dtype)},
        [op = loss_, sum = c_.Read(1), target = c_.Read(2), labels = counted_](Writes writes, const Queue& queue) {
          on::SoftmaxNormalise(queue, op, sum, target, writes[0], writes[1], labels);
        }};
  }
  Result<Operation> SoftmaxGradient() const {
    return Operation{{c_.Read(0).type}, [op = loss_, labels = Labels(1)](Writes writes, const Queue& queue) {
                       on::SoftmaxBackward(queue, op, labels, writes[0]);
                     }};
  }

  /// Losses are of all tokens, in one tensor.
  Result<Operation> InPlace() const {
    kernels::CrossEntropy all = loss_;
    all.rows = c_.job.micro_batch_size * c_.job.TokensOnRank();
    return Operation{{c_.Read(0).type, CrossEntropyRows(all, c_.Read(0).type.dtype)},
                     [op = loss_, labels = Labels(1), chunk = chunk_](Writes writes, const Queue& queue) {
                       on::CrossEntropyInPlace(queue, op, labels, writes[0], chunk.RowsOf(writes[1]));
                     }};
  }

  const OperationContext& c_;
  const LossChunk chunk_;
  kernels::CrossEntropy loss_;
  std::optional<ConstTensor> counted_;  ///< of a loss that is also asked which rows have a label
};

}  // namespace

Result<Operation> BindLoss(const OperationContext& context, std::string_view action) {
  return LossBinder(context).Bind(action);
}

}  // namespace tidemark

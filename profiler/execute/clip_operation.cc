// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <map>
#include <utility>
#include <vector>

#include "kernels/gradient_clip_cuda.h"
#include "kernels/pointwise_cuda.h"
#include "profiler/execute/operation.h"

namespace tidemark {
namespace {

using kernels::ConstTensor;
using kernels::Tensor;
using Writes = std::span<const Tensor>;

/// A parameter that all ranks of the tensor-parallel group hold whole counts on the first of them only, one that two
/// stages of a pipeline hold on the first stage only, as Megatron-LM (param_is_not_tensor_parallel_duplicate,
/// param_is_not_shared) and nanotron (tied parameters) do it. Where norms are summed over the ranks of a layer's
/// experts, which have the same gradients of all else, those count once.
bool CountsHere(const OperationContext& c, const Model::Weight& weight) {
  const Parameter& parameter = *weight.parameter;
  const bool is_divided = parameter.elements_full > parameter.elements;
  if (parameter.experts > 0 && is_divided) {
    return true;
  }
  const bool repeats = c.normed.sums_over_experts() && c.model.expert_place().rank() >= c.model.place().size;
  return !weight.is_copy && !repeats && (c.model.place().rank == 0 || is_divided);
}

Result<Operation> Norms(const OperationContext& c) {
  std::map<std::int64_t, std::vector<ConstTensor>> tensors;  // by number; of one, some or all may count on another rank
  for (std::size_t r = 0; r < c.reads.size(); ++r) {
    const Operand& read = c.reads[r];
    if (read.ref == c.writes[0].ref) {
      continue;
    }
    const auto contents = ContentsOf(c.model, read);
    const auto parts = contents ? c.normed.PartsOf(*contents, c.own_part) : std::nullopt;
    if (!parts) {
      return NotExecuted(fmt::format("'{}' of '{}', whose numbers have no known place", c.name, read.buffer->name));
    }
    for (const auto& [stretch, tensor] : *parts) {
      std::vector<ConstTensor>& counted = tensors[tensor];
      if (stretch.elements > 0 && CountsHere(c, stretch.weight)) {
        counted.push_back(kernels::Slice(c.Read(r), stretch.offset, stretch.elements));
      }
    }
  }
  return Operation{{{c.Stored(DType::fp32), c.normed.count()}},
                   [tensors = std::move(tensors)](Writes writes, const Queue& queue) {
                     for (const auto& [tensor, parts] : tensors) {
                       on::GradientNorm(queue, parts, writes[0], tensor);
                     }
                   }};
}

/// Of one tensor, for the host alone.
Result<Operation> NormOfOne(const OperationContext& c) {
  const auto contents = SaidContents(c.model, c.reads[0]);
  if (!contents) {
    return NotExecuted(fmt::format("'{}' of '{}', whose numbers have no known place", c.name, c.reads[0].buffer->name));
  }
  return Operation{{}, [stretches = contents->stretches, tensor = c.Read(0)](Writes, const Queue& queue) {
                     for (const Stretch& stretch : stretches) {
                       double norm = 0;
                       void* const number = queue.number == nullptr ? &norm : queue.number;
                       const ConstTensor part = kernels::Slice(tensor, stretch.offset, stretch.elements);
                       on::GradientNorm(queue, std::span(&part, 1), {{DType::fp64, 1}, number}, 0);
                     }
                   }};
}

Result<Operation> Clip(const OperationContext& c) {
  Operation operation;
  for (const Operand& write : c.writes) {
    operation.outputs.push_back(write.tensor.type);
  }
  const double most = c.job.axes.optimizer_step.clip_norm;
  const ConstTensor norm = c.Read(c.reads.size() - 1);
  if (c.normed.host_takes_coefficient()) {
    operation.run = [=, device = c.device, stream = c.stream](Writes writes, const Queue& queue) {
      double total = 0;
      device->Read(stream, norm, &total);
      for (const Tensor& gradient : writes) {
        on::Scale(queue, kernels::ClipCoefficient(most, total), gradient);
      }
    };
    return operation;
  }
  operation.run = [=](Writes writes, const Queue& queue) {
    for (const Tensor& gradient : writes) {
      on::ClipGradient(queue, norm, gradient);
    }
  };
  return operation;
}

}  // namespace

std::optional<Result<Operation>> BindClip(const OperationContext& c) {
  const double most = c.job.axes.optimizer_step.clip_norm;
  const kernels::TensorType one{c.Stored(DType::fp32), 1};
  if (c.name == kGradientNorms) {
    return Norms(c);
  }
  if (c.name == "gradient norm") {
    return NormOfOne(c);
  }
  if (c.name == "norm of norms") {
    return Operation{
        {one}, [norms = c.Read(0)](Writes writes, const Queue& queue) { on::SumOfSquares(queue, norms, writes[0]); }};
  }
  if (c.name == kClipCoefficient) {
    return Operation{{one},
                     [most](Writes writes, const Queue& queue) { on::TakeClipCoefficient(queue, most, writes[0]); }};
  }
  if (c.name == "clip gradients") {
    return Clip(c);
  }
  return std::nullopt;
}

}  // namespace tidemark

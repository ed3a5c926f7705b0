// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <utility>

#include "kernels/gradient_clip.h"
#include "kernels/pointwise.h"
#include "profiler/execute/operation.h"

namespace tidemark {
namespace {

using kernels::ConstTensor;
using kernels::Tensor;
using Writes = std::span<const Tensor>;

/// A parameter that all ranks of the tensor-parallel group hold whole counts on the first of them only, as Megatron-LM
/// (param_is_not_tensor_parallel_duplicate) and nanotron (tied parameters) do it.
bool CountsHere(const Model& model, const Parameter& parameter) {
  return model.place().rank == 0 || parameter.elements_full > parameter.elements;
}

Result<Operation> Norms(const OperationContext& c) {
  struct Part {
    ConstTensor gradient;
    std::int64_t index = 0;
    bool counts = true;
  };
  std::vector<Part> parts;
  for (const Operand& read : c.reads) {
    if (read.ref == c.writes[0].ref) {
      continue;
    }
    const auto contents = ContentsOf(c.model, *read.buffer, read.index);
    if (!contents) {
      return NotExecuted(fmt::format("'{}' of '{}', whose numbers have no known place", c.name, read.buffer->name));
    }
    for (const Stretch& stretch : *contents) {
      parts.push_back(
          {kernels::Slice(c.Read(static_cast<std::size_t>(&read - c.reads.data())), stretch.offset, stretch.elements),
           c.model.NumberOf(stretch.weight, stretch.block), CountsHere(c.model, *stretch.weight.parameter)});
    }
  }
  return Operation{{{c.Stored(DType::fp32), c.model.trained()}}, [parts = std::move(parts)](Writes writes) {
                     for (const Part& part : parts) {
                       if (part.counts) {
                         GradientNorm(part.gradient, writes[0], part.index);
                       } else {
                         kernels::Zero(kernels::Slice(writes[0], part.index, 1));
                       }
                     }
                   }};
}

Result<Operation> Clip(const OperationContext& c) {
  Operation operation;
  for (const Operand& write : c.writes) {
    operation.outputs.push_back(write.tensor.type);
  }
  operation.run = [coefficient = c.Read(c.reads.size() - 1)](Writes writes) {
    for (const Tensor& gradient : writes) {
      ClipGradient(coefficient, gradient);
    }
  };
  return operation;
}

}  // namespace

std::optional<Result<Operation>> BindClip(const OperationContext& c) {
  const double most = c.job.axes.optimizer_step.clip_norm;
  const kernels::TensorType one{c.Stored(DType::fp32), 1};
  if (c.name == "gradient norms") {
    return Norms(c);
  }
  if (c.name == "norm of norms") {
    return Operation{{one}, [norms = c.Read(0)](Writes writes) { SumOfSquares(norms, writes[0]); }};
  }
  if (c.name == "clip coefficient") {
    return Operation{{one}, [most](Writes writes) { TakeClipCoefficient(most, writes[0]); }};
  }
  if (c.name == "clip gradients") {
    return Clip(c);
  }
  return std::nullopt;
}

}  // namespace tidemark

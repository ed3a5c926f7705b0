// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/contents.h"

namespace tidemark {
namespace {

std::int64_t MomentsOf(OptimizerKind kind) {
  return kind == OptimizerKind::adamw ? 2 : kind == OptimizerKind::sgd_momentum ? 1 : 0;
}

}  // namespace

std::optional<std::vector<Stretch>> ContentsOf(const Model& model, const Buffer& buffer, std::int64_t index) {
  std::vector<Stretch> contents;
  if (const auto weight = model.WeightOf(buffer.name)) {
    contents.push_back({*weight, index, 0, weight->parameter->elements, 0});
  } else if (const Block* block = model.BlockOf(buffer.name)) {
    std::int64_t offset = 0;
    for (const Parameter& parameter : block->parameters) {
      if (parameter.trainable && !parameter.tied) {
        contents.push_back({*model.WeightOf(block->name + "." + parameter.name), index, 0, parameter.elements, offset});
        offset += parameter.elements;
      }
    }
  } else {
    return std::nullopt;
  }
  const std::int64_t elements = ElementsOf(contents);
  if (elements == 0 || buffer.elements % elements != 0) {
    return std::nullopt;
  }
  return contents;
}

std::int64_t ElementsOf(const std::vector<Stretch>& contents) {
  std::int64_t elements = 0;
  for (const Stretch& stretch : contents) {
    elements += stretch.elements;
  }
  return elements;
}

kernels::TensorType StateType(const Job& job, const Buffer& buffer, const std::vector<Stretch>& contents) {
  const Precision& precision = job.axes.precision;
  const std::int64_t elements = ElementsOf(contents);
  switch (buffer.category) {
    case Category::parameter:
      return {precision.params, elements};
    case Category::gradient:
      return {precision.gradients, elements};
    case Category::accumulator:
      return {precision.accumulate, elements};
    case Category::optimizer:
      return buffer.name.starts_with("moments")
                 ? kernels::TensorType{precision.optimizer, elements * MomentsOf(job.optimizer)}
                 : kernels::TensorType{precision.master.value_or(precision.params), elements};
    default:
      return {buffer.dtype, elements};
  }
}

}  // namespace tidemark

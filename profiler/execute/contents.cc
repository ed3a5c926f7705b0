// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/contents.h"

namespace tidemark {

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

}  // namespace tidemark

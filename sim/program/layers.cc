// SPDX-License-Identifier: Apache-2.0
#include "sim/program/layers.h"

#include <algorithm>
#include <string>

#include "sim/program/walk.h"

namespace tidemark {
namespace {

constexpr std::string_view kLayer = "layer";

const std::string* NameOf(const Program& program, const Node& node) {
  return std::visit(
      [&](const auto& leaf) -> const std::string* {
        if constexpr (requires { leaf.name; }) {
          return &program.names[leaf.name.index];
        } else {
          return nullptr;
        }
      },
      node);
}

/// The first layer of a block; blocks that the program does not list begin with layer 0.
std::int64_t FirstOf(const Program& program, std::string_view block) {
  const auto found = std::find_if(program.layers.begin(), program.layers.end(),
                                  [block](const LayerRun& run) { return run.block == block; });
  return found == program.layers.end() ? 0 : found->first;
}

bool BelongsTo(std::string_view name, std::string_view block) {
  return name.size() > block.size() && name.starts_with(block) && name[block.size()] == '.';
}

}  // namespace

std::string_view LayerBlockOf(std::string_view name) {
  for (std::size_t at = name.find(kLayer); at != std::string_view::npos; at = name.find(kLayer, at + 1)) {
    const std::size_t end = at + kLayer.size();
    const bool begins = at == 0 || name[at - 1] == '.' || name[at - 1] == ' ';
    if (begins && (end == name.size() || name[end] == '.')) {
      return name.substr(0, end);
    }
  }
  return {};
}

std::optional<std::int64_t> LayerOf(const Program& program, const Node& node, std::span<const std::int64_t> loops) {
  std::optional<std::int64_t> layer;
  const std::string* name = NameOf(program, node);
  const std::string_view block = name == nullptr ? std::string_view() : LayerBlockOf(*name);
  if (block.empty()) {
    return layer;
  }
  // Tensors of a block have the microbatch as first index and the block's place among its equals as second one.
  ForEachAccess(node, [&](const BufferRef& ref, Access) {
    if (!layer && BelongsTo(program.buffers[ref.buffer.index].name, block)) {
      layer = FirstOf(program, block) + Resolve(ref.index[1], loops);
    }
  });
  return layer;
}

}  // namespace tidemark

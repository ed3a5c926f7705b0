// SPDX-License-Identifier: Apache-2.0
#include "sim/program/layers.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <system_error>

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

/// The first layer of the block that a text ends in; blocks that the program does not list begin with layer 0.
std::int64_t FirstOf(const Program& program, std::string_view text) {
  const LayerRun* longest = nullptr;  // "stage 1 kept layer" ends in "layer", too
  for (const LayerRun& run : program.layers) {
    const bool ends = text.ends_with(run.block) &&
                      (text.size() == run.block.size() || text[text.size() - run.block.size() - 1] == ' ');
    if (ends && (longest == nullptr || run.block.size() > longest->block.size())) {
      longest = &run;
    }
  }
  return longest == nullptr ? 0 : longest->first;
}

bool BelongsTo(std::string_view name, std::string_view block) {
  return name.size() > block.size() && name.starts_with(block) && name[block.size()] == '.';
}

/// The layer that one of a block's own tensors tells: it has the microbatch as first index and the block's place among
/// its equals as second one.
std::optional<std::int64_t> LayerBy(const Program& program, std::string_view block, const BufferRef& ref,
                                    std::span<const std::int64_t> loops) {
  if (!BelongsTo(program.buffers[ref.buffer.index].name, block)) {
    return std::nullopt;
  }
  return FirstOf(program, block) + Resolve(ref.index[1], loops);
}

/// Takes " 12" from the end of a name; 0 where there is no number.
std::int64_t TakeNumber(std::string_view& name) {
  const std::size_t digits = name.find_last_not_of("0123456789");
  std::int64_t number = 0;
  if (digits == std::string_view::npos || name[digits] != ' ' ||
      std::from_chars(name.data() + digits + 1, name.data() + name.size(), number).ec != std::errc()) {
    return 0;
  }
  name = name.substr(0, digits);
  return number;
}

/// Whether a block's own name can be what follows this start of a text.
bool IsBeforeBlock(std::string_view start) {
  if (start.starts_with(kStagePrefix)) {
    start.remove_prefix(kStagePrefix.size());
    start.remove_prefix(std::min(start.find_first_not_of("0123456789"), start.size()));
    start.remove_prefix(start.starts_with(' ') ? 1 : 0);
  }
  return start.empty() || start == kKeptPrefix;
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

std::string_view WithoutKept(std::string_view name) {
  name.remove_prefix(name.starts_with(kKeptPrefix) ? kKeptPrefix.size() : 0);
  return name;
}

std::optional<std::int64_t> LayerOf(const Program& program, const Node& node, std::span<const std::int64_t> loops) {
  std::optional<std::int64_t> layer;
  const std::string* name = NameOf(program, node);
  const std::string_view block = name == nullptr ? std::string_view() : LayerBlockOf(*name);
  if (block.empty()) {
    return layer;
  }
  ForEachAccess(node, [&](const BufferRef& ref, Access) {
    if (!layer) {
      layer = LayerBy(program, block, ref, loops);
    }
  });
  return layer;
}

std::optional<std::int64_t> LayerOf(const Program& program, const Compute& leaf, std::span<const std::int64_t> loops) {
  const std::string_view block = LayerBlockOf(program.names[leaf.name.index]);
  for (const auto* refs : {&leaf.writes, &leaf.reads}) {
    for (const BufferRef& ref : *refs) {
      if (const auto layer = block.empty() ? std::nullopt : LayerBy(program, block, ref, loops)) {
        return layer;
      }
    }
  }
  return std::nullopt;
}

FamilyLayers LayersOf(const Program& program, const Buffer& buffer) {
  std::string_view name = buffer.name;
  const std::int64_t from = TakeNumber(name);
  const std::string_view text = LayerBlockOf(name);
  if (text.empty()) {
    return {};
  }
  const std::string_view word = text.substr(text.rfind(' ') + 1);
  const bool is_of_microbatch = BelongsTo(name, text) && IsBeforeBlock(text.substr(0, text.size() - word.size()));
  return {std::string(word), static_cast<std::uint8_t>(is_of_microbatch ? 1 : 0), FirstOf(program, text) + from};
}

}  // namespace tidemark

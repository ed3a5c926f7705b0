// SPDX-License-Identifier: Apache-2.0
#include "sim/program/text.h"
#include "sim/program/walk.h"

namespace tidemark {

Program Unroll(const Program& program) {
  Program unrolled = program;
  unrolled.loops.clear();
  unrolled.nodes.clear();
  ForEachLeaf(program, [&](std::size_t at, std::span<const std::int64_t> loops) {
    const auto constant = [&](const Index& index) { return Index{.loop = {}, .offset = Resolve(index, loops)}; };
    Node& leaf = unrolled.nodes.emplace_back(program.nodes[at]);
    ForEachAccess(leaf, [&](BufferRef& ref, Access) { ref.index = {constant(ref.index[0]), constant(ref.index[1])}; });
    if (auto* begin = std::get_if<Begin>(&leaf)) {
      begin->microbatch = constant(begin->microbatch);
    }
    return true;
  });
  return unrolled;
}

}  // namespace tidemark

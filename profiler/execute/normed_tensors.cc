// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/normed_tensors.h"

#include <algorithm>
#include <span>
#include <variant>

#include "sim/program/walk.h"

namespace tidemark {

NormedTensors::NormedTensors(const Model& model, const Program& program) {
  const auto has = [&](std::string_view name) {
    return std::find(program.names.begin(), program.names.end(), name) != program.names.end();
  };
  if (!has(kGradientNorms)) {
    return;
  }
  host_takes_coefficient_ = !has(kClipCoefficient);
  ForEachLeaf(program, [&](std::size_t at, std::span<const std::int64_t> loops) {
    const auto* compute = std::get_if<Compute>(&program.nodes[at]);
    if (compute == nullptr || program.names[compute->name.index] != kGradientNorms) {
      return true;
    }
    for (const BufferRef& read : compute->reads) {
      const auto contents = ContentsOf(model, program.buffers[read.buffer.index], Resolve(read.index.front(), loops));
      for (std::size_t i = 0; contents && i < contents->stretches.size(); ++i) {
        const Stretch& stretch = contents->stretches[i];
        if (!stretch.joined) {
          numbers_.try_emplace({stretch.weight.name, stretch.block}, count());
        }
      }
    }
    return true;
  });
}

}  // namespace tidemark

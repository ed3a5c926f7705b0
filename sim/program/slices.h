// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "sim/program/program.h"

namespace tidemark {

/// By family, the slots of what are slices of it (Buffer::slices), where the members of each family stand one behind
/// the other from its `first_slot` on. They are born and die with it.
inline std::vector<std::vector<std::size_t>> SlicesByWhole(const Program& program,
                                                           const std::vector<std::size_t>& first_slot) {
  std::vector<std::vector<std::size_t>> slices(program.buffers.size());
  for (std::size_t family = 0; family < program.buffers.size(); ++family) {
    const std::vector<BufferSlice>& of = program.buffers[family].slices;
    for (std::size_t member = 0; member < of.size(); ++member) {
      slices[of[member].of.index].push_back(first_slot[family] + member);
    }
  }
  return slices;
}

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program/program.h"

namespace tidemark {

/// A buffer that is alive when a step begins: which of its family.
struct ResidentBuffer {
  BufferId buffer;
  std::int64_t index0 = 0, index1 = 0;
};

/// Those of a program in the order in which a training makes them. Families of one kind and count that are neighbours
/// in the table are parameters of equal blocks, or what goes with them: they are made block by block, as modules are.
std::vector<ResidentBuffer> ResidentsOf(const Program& program);

}  // namespace tidemark

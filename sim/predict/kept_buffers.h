// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/quantity.h"
#include "sim/lower/lower.h"
#include "sim/program/program.h"
#include "sim/strategies/strategy.h"

namespace tidemark {

/// Buffers that a step keeps after their last use (FindIdle): all that one claim names, on the role that has the most
/// bytes of them.
struct KeptBuffers {
  std::string buffers;  ///< as the claim writes them; without one the buffer's name
  std::string why;      ///< empty: nothing claims them, which is a fault of ours
  Bytes bytes;          ///< idle at once
  std::string last_used_by;
  Phase freed_in = Phase::load;
  std::string role;  ///< "stage 0"
  std::int64_t stage = 0;
};

/// Those that nothing claims, then by bytes, the most first.
std::vector<KeptBuffers> FindKept(const StepProgram& program, const Strategy& strategy);

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <variant>

#include "sim/program/program.h"

namespace tidemark {

/// Whether a buffer is freed without waiting for the streams that use it (Free::recorded).
inline bool FreesInUse(const Program& program) {
  return std::ranges::any_of(program.nodes, [](const Node& node) {
    const auto* free = std::get_if<Free>(&node);
    return free != nullptr && free->recorded;
  });
}

}  // namespace tidemark

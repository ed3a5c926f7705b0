// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "sim/program/program.h"

namespace tidemark {

/// A copy between two buffers, one of them in host memory, as what it does with their numbers: an operation of its
/// name (state_rows.h). Nothing: it brings what no buffer holds, as a microbatch's tokens.
inline std::optional<Compute> LinkCopy(const Copy& leaf) {
  if (leaf.reads.empty()) {
    return std::nullopt;
  }
  return Compute{
      leaf.name,  Pointwise{.bytes_moved = leaf.bytes.count()}, leaf.stream, Work::compute, Rational(1), leaf.reads,
      leaf.writes};
}

}  // namespace tidemark

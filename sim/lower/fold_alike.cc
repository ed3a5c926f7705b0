// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/fold_alike.h"

#include <algorithm>
#include <cstddef>

#include "sim/lower/alike_blocks.h"

namespace tidemark {
namespace {

/// `count` times the same `period` blocks.
struct Repetition {
  std::int64_t period = 1, count = 1;
};

/// Writes one period at `position` and makes it a loop.
void WriteRepetition(Role& role, std::int64_t position, const Repetition& repetition,
                     const std::function<void(std::int64_t)>& body) {
  const std::size_t start = role.builder.size();
  for (std::int64_t distance = 0; distance < repetition.period; ++distance) {
    const std::size_t begin = role.builder.size();
    role.StandAt(position + distance);
    body(position + distance);
    role.builder.Shift(begin, role.builder.size(), role.block_loop, distance);
  }
  role.LeaveBlocks();
  if (role.builder.size() == start) {
    return;
  }
  if (repetition.count == 1) {
    role.builder.Bind(start, role.builder.size(), role.block_loop, role.InRun(position));
  } else {
    role.builder.Fold(start, {role.block_loop, repetition.count, role.InRun(position), repetition.period, 0});
  }
}

}  // namespace

void EachBlockAlike(Role& role, const BlockKey& key, const std::function<void(std::int64_t)>& body) {
  for (std::size_t run = 0; run < role.stage.runs.size(); ++run) {
    const std::int64_t first = role.stage.first[run], blocks = role.stage.runs[run].count;
    std::vector<std::vector<std::int64_t>> keys;
    for (std::int64_t i = 0; i < blocks; ++i) {
      keys.push_back(key(first + i));
    }
    const AlikeBlocks alike(keys);
    for (std::int64_t at = 0; at < blocks;) {
      const std::int64_t period = std::min(alike.Period(at), alike.Left(at));
      const Repetition repetition{period, alike.Left(at) / period};
      WriteRepetition(role, first + at, repetition, body);
      at += repetition.period * repetition.count;
    }
  }
}

}  // namespace tidemark

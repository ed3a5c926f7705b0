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

/// Writes one period from `position` on, `step` by `step`, and makes it a loop.
void WriteRepetition(Role& role, std::int64_t position, std::int64_t step, const Repetition& repetition,
                     const std::function<void(std::int64_t)>& body) {
  const std::size_t start = role.builder.size();
  for (std::int64_t i = 0; i < repetition.period; ++i) {
    const std::size_t begin = role.builder.size();
    role.StandAt(position + i * step);
    body(position + i * step);
    role.builder.Shift(begin, role.builder.size(), role.block_loop, i * step);
  }
  role.LeaveBlocks();
  if (role.builder.size() == start) {
    return;
  }
  if (repetition.count == 1) {
    role.builder.Bind(start, role.builder.size(), role.block_loop, role.InRun(position));
  } else {
    role.builder.Fold(start, {role.block_loop, repetition.count, role.InRun(position), step * repetition.period, 0});
  }
}

}  // namespace

void EachBlockAlike(Role& role, const BlockKey& key, const std::function<void(std::int64_t)>& body, BlockOrder order) {
  const bool up = order == BlockOrder::first_to_last;
  const std::int64_t step = up ? 1 : -1;
  const std::size_t runs = role.stage.runs.size();
  for (std::size_t i = 0; i < runs; ++i) {
    const std::size_t run = up ? i : runs - 1 - i;
    const std::int64_t blocks = role.stage.runs[run].count;
    const std::int64_t begin = role.stage.first[run] + (up ? 0 : blocks - 1);
    std::vector<std::vector<std::int64_t>> keys;
    for (std::int64_t walked = 0; walked < blocks; ++walked) {
      keys.push_back(key(begin + walked * step));
    }
    const AlikeBlocks alike(keys);
    for (std::int64_t walked = 0; walked < blocks;) {
      const std::int64_t period = std::min(alike.Period(walked), alike.Left(walked));
      const Repetition repetition{period, alike.Left(walked) / period};
      WriteRepetition(role, begin + walked * step, step, repetition, body);
      walked += repetition.period * repetition.count;
    }
  }
}

}  // namespace tidemark

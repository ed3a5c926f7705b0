// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/colossalai/fold_alike.h"

#include <algorithm>
#include <cstddef>

namespace tidemark {
namespace {

using Keys = std::vector<std::vector<std::int64_t>>;

/// Longest period that is looked for, in blocks.
constexpr std::size_t kLongestPeriod = 64;

struct Repetition {
  std::size_t period = 1, count = 1;
};

/// How often the `period` keys from `start` on come in a row.
std::size_t CountRepetitions(const Keys& keys, std::size_t start, std::size_t period) {
  std::size_t same = start;
  while (same + period < keys.size() && keys[same] == keys[same + period]) {
    ++same;
  }
  return (same - start) / period + 1;
}

/// The period that covers most blocks from `start` on, the shortest of equals.
Repetition FindRepetition(const Keys& keys, std::size_t start) {
  Repetition best;
  for (std::size_t period = 1; period <= std::min(kLongestPeriod, (keys.size() - start) / 2); ++period) {
    const std::size_t count = CountRepetitions(keys, start, period);
    if (count > 1 && count * period > best.count * best.period) {
      best = {period, count};
    }
  }
  return best;
}

/// Writes one period at `position` and makes it a loop.
void WriteRepetition(Role& role, std::int64_t position, const Repetition& repetition,
                     const std::function<void(std::int64_t)>& body) {
  const std::size_t start = role.builder.size();
  for (std::size_t i = 0; i < repetition.period; ++i) {
    const std::size_t begin = role.builder.size();
    const auto distance = static_cast<std::int64_t>(i);
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
    role.builder.Fold(start, {role.block_loop, static_cast<std::int64_t>(repetition.count), role.InRun(position),
                              static_cast<std::int64_t>(repetition.period), 0});
  }
}

}  // namespace

void EachBlockAlike(Role& role, const BlockKey& key, const std::function<void(std::int64_t)>& body) {
  for (std::size_t run = 0; run < role.stage.runs.size(); ++run) {
    const std::int64_t first = role.stage.first[run];
    Keys keys;
    for (std::int64_t i = 0; i < role.stage.runs[run].count; ++i) {
      keys.push_back(key(first + i));
    }
    for (std::size_t at = 0; at < keys.size();) {
      const Repetition repetition = FindRepetition(keys, at);
      WriteRepetition(role, first + static_cast<std::int64_t>(at), repetition, body);
      at += repetition.period * repetition.count;
    }
  }
}

}  // namespace tidemark

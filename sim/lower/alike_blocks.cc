// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/alike_blocks.h"

#include <algorithm>
#include <map>

namespace tidemark {
namespace {

/// Longer periods than this are not looked for: such blocks stay unrolled.
constexpr std::int64_t kLongestPeriod = 64;

}  // namespace

AlikeBlocks::AlikeBlocks(const std::vector<std::vector<std::int64_t>>& described) {
  std::map<std::vector<std::int64_t>, std::int64_t> kinds;
  std::vector<std::int64_t> kind;
  for (const std::vector<std::int64_t>& block : described) {
    kind.push_back(kinds.try_emplace(block, static_cast<std::int64_t>(kinds.size())).first->second);
  }
  const auto count = static_cast<std::int64_t>(kind.size());
  const auto of = [&](std::int64_t i) { return kind[static_cast<std::size_t>(i)]; };
  for (std::int64_t begin = 0; begin < count;) {
    Stretch best{begin, begin + 1, 1};
    std::int64_t most = 0;
    for (std::int64_t period = 1; period <= std::min(kLongestPeriod, (count - begin) / 2); ++period) {
      std::int64_t end = begin + period;
      while (end < count && of(end) == of(end - period)) {
        ++end;
      }
      const std::int64_t repeated = end - begin - period;
      if (repeated >= period && repeated > most) {
        most = repeated;
        best = {begin, end, period};
      }
    }
    stretches_.push_back(best);
    begin = best.end;
  }
}

const AlikeBlocks::Stretch& AlikeBlocks::At(std::int64_t walked) const {
  return *std::find_if(stretches_.begin(), stretches_.end(),
                       [&](const Stretch& stretch) { return walked < stretch.end; });
}

std::vector<std::int64_t> AlikeBlocks::Key(std::int64_t walked) const {
  const Stretch& stretch = At(walked);
  return {stretch.begin, (walked - stretch.begin) % stretch.period};
}

std::int64_t AlikeBlocks::Left(std::int64_t walked) const { return At(walked).end - walked; }

}  // namespace tidemark

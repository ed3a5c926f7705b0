// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/watchdog.h"

#include <algorithm>

namespace tidemark {
namespace {

constexpr Nanos kPaused{2'000'000'000};     ///< between two looks
constexpr std::int64_t kPatienceOfAll = 6;  ///< a collective of gigabytes on a slow machine is no deadlock

}  // namespace

std::optional<Watchdog::Stall> Watchdog::Look(Nanos now, std::span<const std::optional<RankSample>> ranks) {
  const bool paused = now - last_look_ > kPaused;
  last_look_ = now;
  seen_.resize(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (!ranks[i]) {
      seen_[i].reset();
      continue;
    }
    if (!seen_[i] || paused) {
      seen_[i] = Seen{*ranks[i], now, now};
      continue;
    }
    Seen& seen = *seen_[i];
    seen.beat = seen.sample.beats == ranks[i]->beats ? seen.beat : now;
    seen.use = seen.beat == now || seen.sample.processor != ranks[i]->processor ? now : seen.use;
    seen.sample = *ranks[i];
    const bool busy = seen.sample.state == RankProgress::State::running;
    if ((busy || seen.sample.stopped) && now - seen.use >= timeout_) {
      return Stall{i, seen.sample.stopped, now - seen.use};
    }
  }
  return WaitForEachOther(now);
}

std::optional<Watchdog::Stall> Watchdog::WaitForEachOther(Nanos now) const {
  Nanos latest;
  for (const std::optional<Seen>& seen : seen_) {
    if (!seen || seen->sample.state != RankProgress::State::waiting) {
      return std::nullopt;
    }
    latest = std::max(latest, seen->beat);
  }
  if (seen_.empty() || now - latest < timeout_ * kPatienceOfAll) {
    return std::nullopt;
  }
  return Stall{std::nullopt, false, now - latest};
}

}  // namespace tidemark

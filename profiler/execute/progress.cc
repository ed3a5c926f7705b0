// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/progress.h"

#include <fmt/format.h>

namespace tidemark {

void RankProgress::Enter(State state) {
  state_.store(state, std::memory_order_relaxed);
  Beat();
}

void RankProgress::BeginStep() {
  step_.fetch_add(1, std::memory_order_relaxed);
  SetPhase(std::nullopt, -1);
  Enter(State::running);
}

void RankProgress::SetPhase(std::optional<Phase> phase, std::int64_t microbatch) {
  phase_.store(phase ? static_cast<std::int16_t>(*phase) : kNoPhase, std::memory_order_relaxed);
  microbatch_.store(microbatch, std::memory_order_relaxed);
  Beat();
}

RankProgress::Place RankProgress::place() const {
  const std::int16_t phase = phase_.load(std::memory_order_relaxed);
  return {state(), step_.load(std::memory_order_relaxed),
          phase == kNoPhase ? std::nullopt : std::optional(static_cast<Phase>(phase)),
          microbatch_.load(std::memory_order_relaxed)};
}

std::string RankProgress::Place::Text() const {
  if (step == 0) {
    return "before its first step";
  }
  if (state == State::ended) {
    return "after its last step";
  }
  if (!phase) {
    return fmt::format("in step {}", step);
  }
  const std::string of = microbatch < 0 ? std::string() : fmt::format(" of microbatch {}", microbatch);
  return fmt::format("in the {}{} of step {}", Name(*phase), of, step);
}

}  // namespace tidemark

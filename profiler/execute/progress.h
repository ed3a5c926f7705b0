// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "sim/program/program.h"

namespace tidemark {

/// What one rank is doing, for whoever watches it from outside: it may lie in memory that two processes share. Only the
/// rank writes it, member by member, so that a reader may see a phase and a microbatch of two instants close together.
class RankProgress {
 public:
  enum class State : std::uint8_t {
    starting,  ///< before its first step
    running,
    waiting,  ///< in a collective, for the other ranks
    ended,    ///< its steps are behind it
    failed,   ///< and has said why
  };
  /// Where it was when it was looked at. Steps count from 1; 0: before the first.
  struct Place {
    State state = State::starting;
    std::int64_t step = 0;
    std::optional<Phase> phase;
    std::int64_t microbatch = -1;  ///< of the phase; -1: of none

    /// "in the forward of microbatch 1 of step 3"; "in step 3"; "before its first step"; "after its last step".
    std::string Text() const;
  };

  void Beat() { beats_.fetch_add(1, std::memory_order_relaxed); }
  void Enter(State state);
  void BeginStep();
  void SetPhase(std::optional<Phase> phase, std::int64_t microbatch);

  /// For a signal handler: the rank of this process ends at its next operation.
  static void AskToStop() { stop_.store(true, std::memory_order_relaxed); }
  static bool asked_to_stop() { return stop_.load(std::memory_order_relaxed); }

  /// Grows whenever the rank gets on: with every operation, request and phase.
  std::uint64_t beats() const { return beats_.load(std::memory_order_relaxed); }
  State state() const { return state_.load(std::memory_order_relaxed); }
  Place place() const;

 private:
  static constexpr std::int16_t kNoPhase = -1;

  std::atomic<std::uint64_t> beats_{0};
  std::atomic<std::int64_t> step_{0}, microbatch_{-1};
  std::atomic<std::int16_t> phase_{kNoPhase};
  std::atomic<State> state_{State::starting};
  inline static std::atomic<bool> stop_{false};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "another process reads it");

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "sim/engine/simulate.h"
#include "sim/lower/lower.h"

namespace tidemark {

/// What the worked numbers of data-parallel systems count: everything but activations, logits and inputs.
inline Bytes SystemBytes(const CategoryBytes& live) {
  return live[Category::parameter] + live[Category::gradient] + live[Category::accumulator] +
         live[Category::optimizer] + live[Category::bucket];
}

/// Keeps book while a program is simulated: live bytes at named instants, and the highest SystemBytes before the
/// optimizer.
class Ledger : public Listener {
 public:
  explicit Ledger(const Program& program) : program_(program) {}

  void OnAlloc(const BufferInstance& instance, Nanos, Nanos) override { Count(instance, 1); }
  void OnFree(const BufferInstance& instance, Nanos, Nanos) override { Count(instance, -1); }
  void OnSlice(StreamId, NameId, Nanos, Nanos) override {}
  void OnBegin(const Begin& begin, std::int64_t, Nanos) override {
    if (begin.phase == Phase::optimizer) {
      at_window_end = live;
      in_window_ = false;
    }
    before_backward_ &= begin.phase != Phase::backward;
    if (begin.phase == Phase::load) {
      between_microbatches.push_back(live);
    }
  }
  void OnEnd(Phase phase, Nanos) override {
    if (phase == Phase::forward) {
      after_forward.push_back(live);
    }
    if (phase == Phase::backward) {
      after_backward.push_back(live);
    }
    if (phase == Phase::optimizer) {
      after_optimizer = live;
    }
  }

  CategoryBytes live, at_window_end, after_optimizer;
  std::vector<CategoryBytes> between_microbatches;  ///< before each microbatch
  std::vector<CategoryBytes> after_forward, after_backward;
  Bytes highest_before_backward;  ///< of the first microbatch
  Bytes highest_system;           ///< before the optimizer
  Bytes highest_in_optimizer;
  Bytes highest_logits, highest_logits_in_forward;

 private:
  void Count(const BufferInstance& instance, std::int64_t sign) {
    const Buffer& buffer = program_.buffers[instance.buffer.index];
    live[buffer.category] += buffer.bytes() * sign;
    if (before_backward_) {
      highest_before_backward = std::max(highest_before_backward, SystemBytes(live));
    }
    highest_logits = std::max(highest_logits, live[Category::logits]);
    if (before_backward_) {
      highest_logits_in_forward = highest_logits;
    }
    Bytes& highest = in_window_ ? highest_system : highest_in_optimizer;
    highest = std::max(highest, SystemBytes(live));
  }

  const Program& program_;
  bool in_window_ = true, before_backward_ = true;
};

/// Simulates the first role of a job and returns its book.
inline Ledger Audit(const StepProgram& step, const Machine& machine) {
  const std::vector<Costs> costs = PriceAll(step, machine);
  Ledger ledger(step.roles.front());
  std::vector<Listener*> listeners(step.roles.size(), nullptr);
  listeners.front() = &ledger;
  Simulate(step, costs, listeners);
  return ledger;
}

}  // namespace tidemark

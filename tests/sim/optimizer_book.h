// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/sim/audited_job.h"
#include "tests/sim/oracle_job.h"

namespace tidemark {

/// The oracle's model has 110,633,984 parameters; P is their bytes in fp32.
inline constexpr std::int64_t kElements = 110'633'984;
inline constexpr std::int64_t kP = kElements * 4;

/// The most that is alive while the optimizer runs: all of it, and temporaries alone.
class OptimizerBook : public Listener {
 public:
  explicit OptimizerBook(const Program& program) : program_(program) {}
  void OnAlloc(const BufferInstance& instance, Nanos, Nanos) override { Count(instance, 1); }
  void OnFree(const BufferInstance& instance, Nanos, Nanos) override { Count(instance, -1); }
  void OnSlice(StreamId, NameId, Nanos, Nanos) override {}
  void OnBegin(const Begin& begin, std::int64_t, Nanos) override {
    inside_ = begin.phase == Phase::optimizer;
    at_begin = inside_ ? live_ : at_begin;
    highest = inside_ ? std::max(highest, live_) : highest;
  }
  void OnEnd(Phase, Nanos) override { inside_ = false; }

  Bytes at_begin, highest, highest_temporaries;
  Bytes highest_gradients;  ///< of the whole step

 private:
  void Count(const BufferInstance& instance, std::int64_t sign) {
    const Buffer& buffer = program_.buffers[instance.buffer.index];
    live_ += buffer.bytes() * sign;
    temporaries_ += buffer.category == Category::workspace ? buffer.bytes() * sign : Bytes(0);
    gradients_ += buffer.category == Category::gradient ? buffer.bytes() * sign : Bytes(0);
    highest_gradients = std::max(highest_gradients, gradients_);
    if (inside_) {
      highest = std::max(highest, live_);
      highest_temporaries = std::max(highest_temporaries, temporaries_);
    }
  }

  const Program& program_;
  Bytes live_, temporaries_, gradients_;
  bool inside_ = false;
};

inline OptimizerBook BookOfOptimizer(const Job& job, StepKind kind = StepKind::steady) {
  const StepProgram step = Sound(job, kind);
  const std::vector<Costs> costs = PriceAll(step, job.machine);
  OptimizerBook book(step.roles.front());
  std::vector<Listener*> listeners(step.roles.size(), nullptr);
  listeners.front() = &book;
  Simulate(step, costs, listeners);
  return book;
}

inline std::int64_t Temporaries(const Job& job) { return BookOfOptimizer(job).highest_temporaries.count(); }

}  // namespace tidemark

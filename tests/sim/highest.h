// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "sim/engine/simulate.h"

namespace tidemark {

/// The most that is alive at once of what `weigh` gives a weight, over all chunks of a rank.
class Highest : public Listener {
 public:
  using Weigh = std::function<std::int64_t(const Buffer&)>;

  Highest(const Program& program, Weigh weigh) : program_(program), weigh_(std::move(weigh)) {}
  void OnAlloc(const BufferInstance& instance, Nanos, Nanos) override { Count(instance, 1); }
  void OnFree(const BufferInstance& instance, Nanos, Nanos) override { Count(instance, -1); }
  void OnSlice(StreamId, NameId, Nanos, Nanos) override {}
  void OnBegin(const Begin&, std::int64_t, Nanos) override {}
  void OnEnd(Phase, Nanos) override {}

  std::int64_t highest = 0;

 private:
  void Count(const BufferInstance& instance, std::int64_t sign) {
    now_ += sign * weigh_(program_.buffers[instance.buffer.index]);
    highest = std::max(highest, now_);
  }

  const Program& program_;
  Weigh weigh_;
  std::int64_t now_ = 0;
};

/// By rank.
inline std::vector<std::int64_t> HighestOf(const StepProgram& program, const Machine& machine,
                                           const Highest::Weigh& weigh) {
  std::vector<Highest> ranks;
  ranks.reserve(program.roles.size());
  std::vector<Listener*> listeners;
  for (const Program& role : program.roles) {
    listeners.push_back(&ranks.emplace_back(role, weigh));
  }
  Simulate(program, PriceAll(program, machine), listeners);
  std::vector<std::int64_t> highest;
  for (const Highest& rank : ranks) {
    highest.push_back(rank.highest);
  }
  return highest;
}

/// The most bytes of a category that each rank holds.
inline std::vector<std::int64_t> HighestBytes(const StepProgram& program, const Machine& machine, Category category) {
  return HighestOf(program, machine,
                   [&](const Buffer& buffer) { return buffer.category == category ? buffer.bytes().count() : 0; });
}

}  // namespace tidemark

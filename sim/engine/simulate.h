// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/quantity.h"
#include "sim/cost/cost.h"
#include "sim/engine/evaluation.h"
#include "sim/program/program.h"

namespace tidemark {

/// One buffer of a family, with its loop variables filled in.
struct BufferInstance {
  BufferId buffer;
  std::int64_t index0 = 0, index1 = 0;
  std::uint32_t slot = 0;  ///< dense over all buffers of the role
};

/// Hears what happens to one role, in issue order. Reports and allocators listen; the engine knows neither.
class Listener {
 public:
  virtual ~Listener() = default;
  /// What is alive when the step begins, in the order of the program's table and before all else.
  virtual void OnResident(const BufferInstance& instance) { OnAlloc(instance, Nanos(), Nanos()); }
  /// `issue`: when the host said so; `ready`: when the stream of birth has done all that was issued before.
  virtual void OnAlloc(const BufferInstance& instance, Nanos issue, Nanos ready) = 0;
  virtual void OnFree(const BufferInstance& instance, Nanos issue, Nanos ready) = 0;
  /// Said before such a free where it does not wait for streams that use the buffer (Free::recorded) and they are at
  /// work: they have done at `done` what they were given until then.
  virtual void OnUsedUntil(const BufferInstance& /*instance*/, Nanos /*done*/) {}
  virtual void OnSlice(StreamId stream, NameId name, Nanos start, Nanos end) = 0;
  /// `microbatch` is the value of `begin.microbatch`.
  virtual void OnBegin(const Begin& begin, std::int64_t microbatch, Nanos host) = 0;
  virtual void OnEnd(Phase phase, Nanos host) = 0;
};

/// Runs all roles of a step, event by event: the host of each role issues its leaves in order, streams run them in
/// order, events and messages tie them together. Residents are announced first; unless a listener says otherwise, they
/// are allocations at time 0.
///
/// Time rules, shared with the closed form: a device leaf starts when its host has issued it, its stream is free, and
/// all it waits for is done. `costs` and `listeners` run parallel to `step.roles`; a listener may be null. Cost: linear
/// in the unrolled program.
Evaluation Simulate(const StepProgram& step, std::span<const Costs> costs, std::span<Listener* const> listeners = {});

}  // namespace tidemark

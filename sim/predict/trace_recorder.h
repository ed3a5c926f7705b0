// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "sim/engine/simulate.h"
#include "sim/memory/allocator.h"
#include "sim/memory/capacity.h"
#include "traces/trace.h"

namespace tidemark {

/// Listens to the simulation of one role: plays its allocations into an allocator on an unlimited device, keeps the log
/// of requests, and writes a Trace.
class TraceRecorder : public Listener {
 public:
  TraceRecorder(const Program& program, const AllocatorOptions& options);

  void OnAlloc(const BufferInstance& instance, Nanos issue, Nanos ready) override;
  void OnFree(const BufferInstance& instance, Nanos issue, Nanos ready) override;
  void OnSlice(StreamId stream, NameId name, Nanos start, Nanos end) override;
  void OnBegin(Phase phase, std::int64_t microbatch, Nanos host) override;
  void OnEnd(Phase phase, Nanos host) override;

  const Allocator& allocator() const { return *allocator_; }
  const std::vector<Request>& log() const { return log_; }
  /// Name of the phase in which request `index` of the log was made; "before the step" for what is resident.
  std::string PhaseOf(std::size_t index) const;
  Trace TakeTrace(Nanos step) &&;

 private:
  void Record(bool alloc, const BufferInstance& instance, Nanos issue, Nanos ready, std::uint64_t address);

  const Program& program_;
  std::unique_ptr<Allocator> allocator_;
  std::vector<std::uint32_t> handles_;    ///< by slot
  std::vector<std::uint64_t> addresses_;  ///< by slot
  std::vector<Request> log_;
  std::vector<std::size_t> log_event_;  ///< index into Trace::memory of each request
  std::vector<std::uint16_t> open_spans_;
  Trace trace_;
};

}  // namespace tidemark

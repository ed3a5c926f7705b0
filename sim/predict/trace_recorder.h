// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/result.h"
#include "sim/engine/simulate.h"
#include "sim/memory/allocator.h"
#include "sim/memory/capacity.h"
#include "sim/predict/late_reuse.h"
#include "traces/place.h"
#include "traces/trace.h"

namespace tidemark {

/// Listens to the simulation of one role, one step or several in a row: plays its allocations into an allocator on an
/// unlimited device, keeps the log of requests, and writes a Trace. The allocator lives through all steps, and so do
/// the buffers that one step leaves to the next.
class TraceRecorder : public Listener {
 public:
  /// `late_capacity`: of the device that reserved_late() is asked of; nothing: it is not asked.
  explicit TraceRecorder(const AllocatorOptions& options, std::optional<Bytes> late_capacity = std::nullopt);

  /// What is heard from now on belongs to the next step, which runs `program` from `start` on. The program's resident
  /// buffers must be those that the step before kept, by name, index and shape: anything else is a fault of ours.
  /// `shardings`: of its buffers (ShardingsOf); empty: not known.
  Status BeginStep(const Program& program, std::string_view kind, Nanos start,
                   std::span<const std::string> shardings = {});
  void EndStep(Nanos end);

  void OnResident(const BufferInstance& instance) override;
  void OnAlloc(const BufferInstance& instance, Nanos issue, Nanos ready) override;
  void OnFree(const BufferInstance& instance, Nanos issue, Nanos ready) override;
  void OnUsedUntil(const BufferInstance& instance, Nanos done) override;
  void OnSlice(StreamId stream, NameId name, Nanos start, Nanos end) override;
  void OnBegin(const Begin& begin, std::int64_t microbatch, Nanos host) override;
  void OnEnd(Phase phase, Nanos host) override;

  const Allocator& allocator() const { return *allocator_; }
  /// The most that it would have reserved with LateReuse; nothing where the allocator hands such memory out at once, or
  /// where what lives fills the device.
  std::optional<Bytes> reserved_late() const;
  /// The most that the allocator has had reserved since the step began that is heard.
  Bytes reserved_in_step() const { return reserved_in_step_; }
  const std::vector<Request>& log() const { return log_; }
  /// Where in the steps a request of the log was made.
  PhasePlace PlaceOfRequest(std::size_t request) const { return PlaceOf(trace_, request); }
  Trace TakeTrace() &&;

 private:
  /// A live buffer: what the allocator gave, and its name in the log.
  struct Held {
    std::uint32_t handle = 0, log_id = 0;
    std::uint64_t address = 0;
  };
  using TensorKey = std::tuple<std::string, Category, DType, Bytes>;

  Result<std::vector<Held>> HandOver(const Program& next, const std::vector<std::uint32_t>& first_slot) const;
  void ReadTables(std::span<const std::string> shardings);
  void FindMarks();
  void Mark(const std::string& name);
  std::uint32_t TakeLogId();
  void Log(Request request);
  std::uint16_t OpenSpan() const;
  void Record(bool alloc, const BufferInstance& instance, Nanos issue, Nanos ready, std::uint64_t address);

  const Program* program_ = nullptr;  ///< of the step that is heard
  Nanos start_;                       ///< of that step
  Bytes reserved_in_step_;
  std::unique_ptr<Allocator> allocator_;
  std::optional<LateReuse> late_;          ///< tensors by their names in the log
  Nanos used_until_;                       ///< by other streams: what is freed next
  std::vector<std::uint32_t> first_slot_;  ///< by buffer
  std::vector<Held> held_;                 ///< by slot
  std::vector<Request> log_;
  std::vector<std::uint32_t> free_log_ids_;
  std::uint32_t log_ids_ = 0;
  bool after_sync_ = false;  ///< a step began, before which the host waited for the last one: nothing was requested yet
  std::vector<std::uint16_t> open_spans_;
  Trace trace_;

  // Where the tables of the step's program stand in those of the trace.
  std::vector<std::uint32_t> tensors_, streams_, strings_;
  std::map<NameId, std::string> marks_;  ///< instants by the name of the operation that makes them
  Bytes total_;                          ///< of the tensors that are alive
  std::map<std::string, Bytes> marked_;  ///< the total at each instant of Trace::marks
  std::map<TensorKey, std::uint32_t> known_tensors_;
  std::map<std::string, std::uint32_t> known_streams_, known_strings_;
};

}  // namespace tidemark

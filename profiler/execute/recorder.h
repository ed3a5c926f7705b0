// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/quantity.h"
#include "base/result.h"
#include "kernels/tensor.h"
#include "profiler/capture/annotations.h"
#include "profiler/device/tensor_memory.h"
#include "profiler/execute/progress.h"
#include "sim/program/program.h"
#include "traces/place.h"
#include "traces/trace.h"

namespace tidemark {

/// Writes down what one rank's device handed out and what its kernels took: a Trace. Sizes are those of the tensors
/// that kernels declared, times those of the clock.
class Recorder {
 public:
  /// Where it also writes what the rank is doing now; it must outlive the recorder.
  void ReportTo(RankProgress* progress) { progress_ = progress; }
  /// Whom it tells what the rank does, while it does it, nullptr: nobody; it must outlive the recorder.
  void AnnounceTo(Annotations* annotations) { annotations_ = annotations; }

  /// The trace begins as `blank`: what its header says.
  void Describe(Trace blank) { trace_ = std::move(blank); }
  /// Gets the trace as far as it has come: when the clock starts, and then where phases and steps end, but not more
  /// often than five times a second.
  using Keep = std::function<void(const Trace& so_far)>;
  void KeepWith(Keep keep) { keep_ = std::move(keep); }
  /// Where a run ends early.
  void KeepNow();

  /// Since StartClock; until then, while what is resident is made, it is 0.
  Nanos Now() const;
  void StartClock();
  /// When it started, by the clock of std::chrono::steady_clock.
  Nanos zero() const;

  void BeginStep(const Program& program, std::string_view kind);
  void EndStep();
  void Memory(bool alloc, const Program& program, const Buffer& buffer, std::int64_t index0, std::int64_t index1,
              const kernels::TensorType& type, const TensorMemory::Piece& piece, const Allocator& allocator);
  /// A request of so many bytes was refused: the run ends at it.
  void Refuse(Bytes requested);
  /// `span`: the phase that issued the work (open_span).
  void Busy(const std::string& stream, std::string_view kind, const std::string& name, Nanos start, Nanos end,
            std::uint16_t span);
  void Begin(Phase phase, std::int64_t microbatch, Side side);
  void End();
  /// The host is busy with an operation of the open phase until the range goes.
  AnnotatedRange Operation(std::string_view name) const;
  /// The rank waits for others from now on, until the next call or step. A step that has ended waits as well.
  void Wait(bool waits);
  /// Why the run must end here; nothing: it goes on.
  std::optional<Error> Interruption() const;

  /// Of the phase that runs: its place in the trace's spans.
  std::uint16_t open_span() const { return open_.empty() ? kNoSpan : open_.back().span; }
  /// The phase that runs, and its step, the first one too; none outside of phases.
  PhasePlace place() const;
  Trace Take() && { return std::move(trace_); }

 private:
  using TensorKey = std::tuple<std::string, Category, DType, std::int64_t>;
  struct Open {
    std::uint16_t span = 0;
    Phase phase = Phase::load;
    std::int64_t microbatch = -1;
    AnnotatedRange range;
  };

  void Beat() {
    if (progress_ != nullptr) {
      progress_->Beat();
    }
  }
  std::uint16_t StreamRow(const std::string& name, std::string_view kind);
  void ReportPhase();
  void KeepSometimes();

  std::optional<std::chrono::steady_clock::time_point> zero_;
  Trace trace_;
  std::map<TensorKey, std::uint32_t> tensors_;
  std::map<std::string, std::uint32_t> streams_, strings_;
  Annotations* annotations_ = nullptr;
  std::optional<AnnotatedRange> step_;
  std::vector<Open> open_;
  RankProgress* progress_ = nullptr;
  Keep keep_;
  Nanos kept_at_;
};

}  // namespace tidemark

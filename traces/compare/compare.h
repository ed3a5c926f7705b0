// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/category.h"
#include "base/dtype.h"
#include "base/quantity.h"
#include "base/result.h"
#include "traces/place.h"
#include "traces/trace.h"

namespace tidemark {

// Where two sets of traces of the same job differ, and why. One set is called predicted, the other measured, whoever
// made them. Every error is predicted - measured; everything is told of the measured side as against the predicted one
// ("freed later": later than predicted).

/// Why memory differs.
enum class MemoryCauseKind : std::uint8_t {
  missing,            ///< a tensor that was predicted and not measured
  extra,              ///< measured and not predicted
  workspace,          ///< scratch of a library (Category::workspace) on one side only
  size,               ///< the same tensor with other bytes
  dtype,              ///< the same tensor in another dtype
  freed_later,        ///< the same tensor lives longer
  freed_earlier,      ///< the same tensor lives shorter
  allocated_later,    ///< the same tensor is born later
  allocated_earlier,  ///< the same tensor is born earlier
  renamed,            ///< alike in place, category, dtype and bytes, under another name
  other_moment,       ///< the side that peaks lower does so at another moment, where it has more than at this one
  unexplained,        ///< the traces name no tensors, only the allocator's totals
};
std::string_view Name(MemoryCauseKind kind);

/// What happened to the tensors of one family (FamilyOf) in one way.
struct MemoryCause {
  MemoryCauseKind kind = MemoryCauseKind::missing;
  std::string tensor;     ///< the family; empty: of no tensor
  std::string tensor_as;  ///< renamed: the measured name
  Category category = Category::activation;
  Bytes at_peak;           ///< of the peak's error; signed
  std::int64_t lives = 0;  ///< how often: allocations concerned, at the peak or not
  /// The first of them. Bytes of one tensor; 0 on the side that does not have it.
  Bytes predicted_bytes, measured_bytes;
  DType predicted_dtype = DType::bf16, measured_dtype = DType::bf16;
  PhasePlace place;  ///< of its allocation
  /// freed_*, allocated_*: where it happens on each side, and behind which allocation that both have. `never`: it is
  /// not freed. other_moment: each side's own peak.
  struct Moment {
    PhasePlace place;
    std::string after;
    bool never = false;
  };
  Moment predicted, measured;
};

/// Tensors of one name that are allocated in one place on one side only.
struct UnmatchedTensor {
  bool predicted = false;  ///< whether the predicted side has it, else the measured one
  std::string name;
  Category category = Category::activation;
  PhasePlace place;
  std::int64_t count = 0;
  Bytes bytes;  ///< of all `count`
};

struct PhaseComparison {
  std::string phase;
  Bytes predicted_peak, measured_peak;  ///< the highest total in it, together with what was alive when it began
  Bytes largest_error;                  ///< of a microbatch and step that both have; signed, largest without its sign
  PhasePlace largest_at;
  Nanos predicted_time, measured_time;  ///< of all its spans; what it is says TraceComparison::times_of_work
};

/// Work of one name on streams of one kind.
struct OperatorComparison {
  std::string name, stream_kind;  ///< the name without the index of a layer
  std::int64_t predicted_count = 0, measured_count = 0;
  Nanos predicted, measured;
  Nanos contended;  ///< of `measured` - `predicted`: of kernels that were slower while a collective ran beside them
};

/// A part of the error of the step's time.
struct TimeCause {
  /// kernels: they took longer or less; contention: longer, beside a collective; operators: one side runs more of them;
  /// waiting: compute streams were idle; unexplained: a trace has no kernels.
  std::string kind;
  Nanos error;
  std::vector<std::string> operators;  ///< those that make most of it, the largest first
};

/// Steps of one kind, of those that were compared. Times are the median of each side's, of an even number the mean of
/// the middle two: a first step that loads libraries, or one that waited, does not move them.
struct StepTimes {
  std::string kind;  ///< empty: not known
  std::int64_t count = 0;
  Nanos predicted, measured;
};

/// The first event in which the two traces are not the same.
struct FirstDifference {
  PhasePlace predicted_place, measured_place;
  std::string predicted, measured;  ///< "allocates x[0][1] (512 bytes)"; empty: its events are at an end
  Nanos predicted_issue, measured_issue;
};

/// One side's totals. Peaks of the allocator need not be at the moment of the tensors' peak.
struct SideTotals {
  Bytes peak;          ///< of tensors, or the allocator's where one side names no tensors
  PhasePlace peak_at;  ///< its first instant
  CategoryBytes by_category;
  std::optional<Bytes> allocator, reserved;  ///< nothing: the trace does not tell
  Nanos step;
};

/// Two traces of one role.
struct TraceComparison {
  std::string role;
  std::size_t predicted_trace = 0, measured_trace = 0;  ///< where they stand in the sets
  bool of_tensors = true;                               ///< else peaks are the allocator's
  /// One side does not say what its tensors are: they were paired by bytes, and are what their partners are.
  bool paired_by_bytes = false;
  SideTotals predicted, measured;
  std::vector<std::string> steps;     ///< kinds of the steps that were compared; empty where the traces mark none
  std::vector<StepTimes> step_times;  ///< of these, a row for each kind, in order of their first steps
  std::vector<PhaseComparison> phases;
  /// Phases' times: how long streams were busy with what was issued in them; else, where a trace does not tell, how
  /// long the host was in them.
  bool times_of_work = false;
  std::vector<MemoryCause> memory;   ///< at_peak sums to peak_error() exactly; largest first
  Bytes rounding;                    ///< error of the allocator's peak beyond that of the tensors'; 0 where unknown
  Bytes fragmentation;               ///< error of reserved bytes beyond that of the allocator's; 0 where unknown
  std::vector<std::string> rounded;  ///< families whose blocks differ though their bytes agree
  std::vector<UnmatchedTensor> unmatched;
  std::optional<FirstDifference> first;  ///< nothing: the same events in the same order
  std::vector<OperatorComparison> operators;
  std::vector<TimeCause> time;  ///< errors sum to step_error() exactly; largest first

  Bytes peak_error() const { return predicted.peak - measured.peak; }
  Nanos step_error() const { return predicted.step - measured.step; }
};

struct Comparison {
  std::vector<TraceComparison> roles;  ///< one for each pair of traces of a role, at least one
  std::size_t worst = 0;               ///< the largest error of the peak, of equals the highest peak
  std::vector<std::string> only_predicted, only_measured;  ///< roles of one side
  std::vector<std::string> independent;  ///< what the measured side does not share with the prediction (CONTRACT)

  const TraceComparison& Worst() const { return roles.at(worst); }
  bool EqualPeaks() const;
};

/// Compares traces of the same role by phase, step, microbatch and tensor; of several of a role (one for each rank) the
/// n-th with the n-th, and a single one with each of the others. Steps are those of a kind that both have. Every trace
/// is sound (Verify). Fails with bad_input where no role, or no kind of step, is on both sides.
/// Cost: a few walks over the events, and the logarithm of those that are out of order.
Result<Comparison> CompareTraces(std::span<const Trace> predicted, std::span<const Trace> measured);

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reports/summarise/job_differences.h"
#include "reports/summarise/prediction.h"
#include "traces/formats/format.h"
#include "traces/place.h"

namespace tidemark {

// Traces beside each other: what `tidemark report` tells. Collected once, then rendered purely, as a prediction is.

/// A trace file that was read.
struct ReadTrace {
  std::string path;
  TraceFile file;  ///< at least one trace
};

/// What one role of a file peaks at.
struct RolePeak {
  std::string role;
  std::int64_t ranks = 1;
  Bytes allocated;
  std::optional<Bytes> reserved;
  std::string where;  ///< PhaseLabel()
};

/// A request for memory that a trace says was refused.
struct RefusedRequest {
  std::string role;
  Nanos at;                                  ///< of the last event before it
  PhasePlace where;                          ///< the same
  std::optional<Bytes> allocated, reserved;  ///< the allocator's, then; nothing: not told
  bool ends = false;                         ///< nothing follows in that role's trace
};

/// One file. `role` is the role that the report is about; RoleReport::device is all 0 where the trace does not tell it.
struct TraceSummary {
  std::string label;  ///< short, and different from that of every other file
  std::string path, format, origin, title, job_yaml;
  std::string note;  ///< TraceFile::note: what is missing; empty: nothing
  RoleReport role;
  std::vector<Lint> lints;      ///< of its job, as far as the trace tells them
  Bytes device_memory;          ///< 0: unknown
  Bytes usable_memory;          ///< of it, by the process; less than all: allocator.memory_fraction
  std::vector<RolePeak> roles;  ///< all of the file, `role` among them, in its order
  /// What has to fit: of the role that needs most, the process's whole use where the trace knows it, else what is
  /// reserved, else the tensors.
  Bytes needed;
  std::string needed_by;                ///< that role
  std::vector<RefusedRequest> refused;  ///< of all roles, in their order

  const Trace& trace() const { return *role.trace; }
  bool RanOut() const { return std::ranges::any_of(refused, &RefusedRequest::ends); }
  /// Whoever ran out of memory does not fit. Nothing where the device's memory is unknown, or what there is of a trace
  /// fits, but something is missing.
  std::optional<bool> Fits() const;
};

/// Tensors of one name and category at two peaks. What one system calls otherwise than the other is one tensor where
/// the category and all bytes are the same.
struct TensorDifference {
  std::string name;
  std::string name_after;  ///< at the second peak, where it differs; else empty
  Category category = Category::activation;
  Bytes before, after;

  Bytes difference() const { return after - before; }
};

/// From the first trace's peak to that of another one. The differences sum exactly to that of the peaks.
struct PeakDifference {
  std::size_t other = 1;                  ///< index into TraceReport::traces
  std::vector<TensorDifference> tensors;  ///< largest difference first, its sign aside
  Bytes before, after;                    ///< the peaks

  Bytes difference() const { return after - before; }
};

struct TraceReport {
  std::vector<TraceSummary> traces;  ///< at least one
  std::vector<PeakDifference> differences;
  std::vector<JobDifference> jobs;

  std::size_t Highest() const;  ///< the trace with the highest peak, of equals the first
};

/// What is alive at the two peaks, by family and category.
PeakDifference ComparePeaks(const Peak& before, const Peak& after);

/// A short name for each file, different from that of every other one: without folder and ending where that tells them
/// apart, else the path as given.
std::vector<std::string> TraceLabels(const std::vector<ReadTrace>& files);

/// `role` names the role to look at; empty: the one in which the first file peaks highest. A file without that role
/// shows the one that peaks highest. Every trace is sound (Verify).
TraceReport MakeTraceReport(std::vector<ReadTrace> files, const std::string& role = {});

}  // namespace tidemark

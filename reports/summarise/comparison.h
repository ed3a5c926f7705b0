// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/quantity.h"
#include "base/result.h"
#include "reports/summarise/job_differences.h"
#include "reports/summarise/trace_report.h"
#include "traces/compare/compare.h"

namespace tidemark {

// What `tidemark compare` tells. Collected once, then rendered purely.

/// Where one of the two sets of traces comes from.
struct ComparedSide {
  std::string label;  ///< as a chart's legend names it: by origin, with the file's name where both are of one origin
  std::string path, format, origin, clock, title;
  std::string note;                ///< TraceFile::note: what is missing; empty: nothing
  Trace trace;                     ///< of the worst pair, reduced to the steps that both have
  std::vector<std::size_t> steps;  ///< which of its steps these are; empty: all of them
  std::size_t all_steps = 0;       ///< how many it has
};

/// Times that were predicted of a preset of the program, and measured on a machine that nobody has calibrated.
struct UncalibratedTimes {
  std::string machine;  ///< "cpu"
  std::string device;   ///< that the measured side ran on: what `tidemark calibrate --device` takes
};

struct ComparisonReport {
  ComparedSide predicted, measured;
  Comparison comparison;
  std::vector<JobDifference> jobs;  ///< where the jobs differ; the network does not
  std::optional<UncalibratedTimes> uncalibrated;

  /// Whether the peaks are equal, and nothing is missing in which they could be others.
  bool Agrees() const { return comparison.EqualPeaks() && predicted.note.empty() && measured.note.empty(); }
};

/// Compares two files, or any two sets of traces. Fails with bad_input where nothing in them is the same: networks,
/// stages, roles or steps; names the difference.
Result<ComparisonReport> MakeComparison(ReadTrace predicted, ReadTrace measured);

/// Why something differs, in words. The causes of `allocated` sum to the error of the peak; those of `allocator` and
/// `reserved` are what comes on top of it; those of `time` sum to the error of the step.
struct WordedCause {
  std::string kind;            ///< Name(MemoryCauseKind), "rounding", "fragmentation", TimeCause::kind
  std::string_view of;         ///< allocated, allocator, reserved, time
  std::optional<Bytes> bytes;  ///< predicted - measured; nothing: of time
  std::optional<Nanos> nanos;
  std::vector<std::string> tensors;  ///< or operators; families
  std::string sentence;
};

/// Of one pair of traces: what matters at the peak first, then the allocator, time, and what differs without moving the
/// peak.
std::vector<WordedCause> CausesInWords(const TraceComparison& comparison);

/// "forward of microbatch 1"; "outside of all phases" for none.
std::string PlaceInWords(const PhasePlace& place);

/// predicted - measured as a share of measured; nothing where that is 0.
std::optional<double> ErrorPercent(std::int64_t predicted, std::int64_t measured);

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reports/summarise/job_differences.h"
#include "reports/summarise/prediction.h"

namespace tidemark {

// What `tidemark explain` tells: two predictions and where they differ. Collected once, then rendered purely.

/// One of the two predictions. What is compared is its worst role.
struct ExplainedSide {
  /// Of one step, with traces. Its instants hold the optimizer's first step, whichever step it is of.
  PredictionReport report;
  std::int64_t microbatches = 1;
  double tokens = 0;  ///< of a step, on all ranks
  std::int64_t stages = 1;

  const Peak& peak() const { return report.Worst().peak; }
};

/// A family of tensors on both sides. What one side has only is 0 on the other.
struct ExplainedTensor {
  std::string name;
  Category category = Category::activation;
  std::string dtype, sharding;    ///< "bf16 -> fp32" where they differ
  Bytes before, after;            ///< alive at each side's peak
  Bytes most_before, most_after;  ///< the most of it that is alive at once, at whatever moment
  std::string born, dies;         ///< as LiveBuffers::since_phase: of the side that has more of it, of equals after
  bool in_peak = false;           ///< bytes of it are alive at either peak

  Bytes delta() const { return after - before; }
};

/// A part of the step's time.
struct ExplainedTime {
  std::string cause;
  Nanos before, after;

  Nanos delta() const { return after - before; }
};

/// One change to the second job that lowers its peak, found by predicting it.
struct Suggestion {
  std::string change;  ///< "recompute.policy=full"
  Bytes allocated;     ///< the peak with it
  Nanos step;
};

struct Explanation {
  ExplainedSide before, after;
  std::vector<JobDifference> changes;    ///< in the resolved jobs; those that were asked for first
  std::size_t asked = 0;                 ///< how many these are; 0: two files were compared
  std::vector<ExplainedTensor> tensors;  ///< largest difference at the peak first; differences sum to peak_delta()
  std::vector<ExplainedTime> times;      ///< differences sum to step_delta()
  std::optional<Suggestion> suggestion;  ///< nothing where none was found, or none is needed

  Bytes peak_delta() const { return after.peak().allocated - before.peak().allocated; }
  Nanos step_delta() const { return after.report.time.step - before.report.time.step; }
};

/// Joins two predictions. `asked` are the keys that tell them apart on the command line; empty: two files.
Explanation Explain(ExplainedSide before, ExplainedSide after, const std::vector<std::string>& asked);

/// The category of tensors that grows most from peak to peak; nothing where none does.
std::optional<Category> GrowsMost(const Explanation& explanation);

/// What it comes to, for a reader who knows training but not this tool: what was changed, what it costs, which tensors
/// that is and how long they live, when memory is fullest, and what to try. Made of categories, dtypes, shardings,
/// lifetimes and counts alone.
std::string ExplainInWords(const Explanation& explanation);

}  // namespace tidemark

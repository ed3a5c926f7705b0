// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/category.h"
#include "base/quantity.h"
#include "models/machine/machine.h"
#include "reports/summarise/prediction.h"

namespace tidemark {

// What `tidemark sweep` tells: the combinations of a space that were priced, and what became of the others. Collected
// once, then rendered purely.

/// One combination that was priced. Sizes and times are those of PredictionReport, of its worst role and its last role.
struct SweepRow {
  std::vector<std::string> values;  ///< parallel to SweepReport::keys, as a job's YAML says them
  Bytes allocated;
  std::optional<Bytes> reserved;  ///< nothing: only the closed form ran
  Bytes host;                     ///< of host memory
  Band device;                    ///< DeviceBytes()
  Bytes usable;                   ///< of the device's memory; less than all: allocator.memory_fraction
  CategoryBytes by_category;      ///< sums to `allocated`
  std::string phase;              ///< of the peak
  TimeReport time;
  double tokens_per_s_per_gpu = 0;
  std::optional<double> mfu;          ///< nothing: the machine has no peak for the job's dtype
  bool fits = false, pareto = false;  ///< pareto: on the front of SweepReport::x and y
};

/// Combinations that were refused for one reason.
struct SweepRefusal {
  std::string reason;
  std::int64_t count = 0;
};

struct SweepReport {
  std::string title;     ///< the job that is varied, and which keys are
  std::string job_yaml;  ///< that job, resolved
  std::string version;
  std::string machine;                 ///< empty: each row has its own
  std::optional<Bytes> device_memory;  ///< of that machine
  bool shares_device = false;     ///< allocator.memory_fraction is set: each row may fill less of it (SweepRow::usable)
  std::vector<std::string> keys;  ///< that are varied, dotted
  std::string x = "allocated_bytes", y = "step_ns";     ///< metrics of the front
  std::int64_t size = 0;                                ///< evaluated + pruned + refused, once it is complete
  std::int64_t evaluated = 0, pruned = 0, refused = 0;  ///< pruned: a bound says that it cannot matter
  std::int64_t feasible = 0;                            ///< that are known to fit, pruned ones as well
  double seconds = 0;                                   ///< measured
  bool same_batch = true;                 ///< all rows' steps are of as many tokens, on all ranks together
  bool complete = true;                   ///< false: interrupted
  std::vector<SweepRow> rows;             ///< those that fit first, then by step
  std::optional<SweepRow> first, lowest;  ///< of all evaluated rows: in that order, and by peak
  std::int64_t rows_left_out = 0;         ///< evaluated rows that are not in `rows`
  std::vector<SweepRefusal> refusals;     ///< most frequent first
};

}  // namespace tidemark

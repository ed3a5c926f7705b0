// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reports/summarise/prediction.h"

namespace tidemark {

// What `tidemark audit` tells: collected once, then rendered purely, as a prediction is.

/// A value that its reader does not find, or may not find. Names are those of the program (`tidemark program`).
struct HazardReport {
  std::string kind;                        ///< clobber or race
  std::string buffer, value;               ///< the memory, and the name under which it is read
  std::string overwritten_by, read_by;     ///< operations
  std::optional<std::int64_t> microbatch;  ///< of the read; none outside the microbatches. With a side: the chunk
  std::optional<std::int64_t> layer;       ///< of the reading operator; none outside layers
  std::string role;                        ///< "stage 0"
  std::int64_t stage = 0;
  std::string message;
  std::string side;  ///< of GradCache's chunks: query or passage; else empty
};

/// Microbatches behind the last of which the optimizer steps.
struct WindowReport {
  std::vector<std::int64_t> microbatches;
  std::optional<double> factor = 1;  ///< its gradient over the true mean; none: too large to tell
  std::string exact;                 ///< the same as text: "3/4"
  bool uniform = true;               ///< each microbatch and rank counts alike
  bool right = true;
  bool lost = false;  ///< some gradient of it never reaches the optimizer
};

/// Buffers that a step keeps after their last use.
struct IdleReport {
  std::string buffers;  ///< names; `*` stands for any characters
  Bytes bytes;          ///< idle at once, on the role that has the most
  std::string last_used_by, freed_in;
  std::string why;  ///< what holds them in the real system; empty: nothing known
  std::string role;
  std::int64_t stage = 0;
};

struct AuditReport {
  std::string title;     ///< the job in one line: JobTitle()
  std::string job_yaml;  ///< the resolved job
  std::string step;      ///< first, second, steady
  std::string version;
  std::string synchronises, steps;  ///< the loop's own predicates; empty where it has none
  std::int64_t accumulation_steps = 1;
  std::int64_t evaluated_microbatches = 0;  ///< for which the predicates were asked
  bool chunks = false;  ///< windows are of GradCache's chunks, of each side, in place of microbatches
  bool several_roles = false;
  std::vector<HazardReport> hazards;
  bool hazards_left_out = false;
  bool followed = true;   ///< false: no program could be made of the job, so there was nothing to follow
  bool evaluated = true;  ///< false: a predicate could not be evaluated for all microbatches
  std::vector<Lint> lints;
  std::vector<WindowReport> windows;
  std::vector<IdleReport> idle;
  std::vector<std::int64_t> pending;  ///< microbatches behind the last optimizer step
  bool clean = true;                  ///< nothing that an exit code should tell

  std::int64_t CountOf(const std::string& kind) const;  ///< hazards of this kind
  std::int64_t Errors() const;                          ///< lints that are errors
  std::int64_t WrongWindows() const;
};

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "models/job/job.h"
#include "sim/lower/lower.h"
#include "sim/predict/kept_buffers.h"
#include "sim/predict/lints.h"
#include "sim/program/hazards.h"
#include "sim/program/program.h"
#include "sim/program/window_factor.h"

namespace tidemark {

/// The lint of a predicate that cannot be evaluated.
inline constexpr const char* kBoundaryFails = "boundary-fails";

/// Windows' worth of microbatches over which a predicate is looked at.
inline constexpr std::int64_t kAuditedSpans = 3;

/// A hazard of one role of the job.
struct RoleHazard {
  std::string role;  ///< "stage 0"
  std::int64_t stage = 0;
  std::string buffer;   ///< name of Hazard::buffer
  std::string message;  ///< the hazard in one sentence
  Hazard hazard;
};

struct HazardList {
  std::vector<RoleHazard> hazards;
  bool left_out = false;  ///< there are more
};

/// At most `limit` hazards of all roles. A program that is malformed, or computes other gradients than the mean though
/// it is not `declared_wrong`, is a fault of ours: ErrorCode::internal.
Result<HazardList> FindAllHazards(const StepProgram& program, bool declared_wrong, std::size_t limit);

/// What is wrong with a job's strategy, and what its windows really come to.
struct JobAudit {
  std::vector<RoleHazard> hazards;
  bool hazards_left_out = false;  ///< there are more than one audit lists
  bool followed = true;           ///< false: no program could be made, so there was nothing to follow
  std::vector<Lint> lints;        ///< those of LintJob, and what only an audit finds
  /// Of a step of the job; of `sync.when: custom` in a loop over `kAuditedSpans` times `accumulation_steps`
  /// microbatches.
  std::vector<WindowFactor> windows;
  std::vector<KeptBuffers> kept;  ///< no fault: what the real system keeps as well

  /// Nothing that an exit code should tell: no hazard, no lint that is an error, no window with another gradient than
  /// the mean.
  bool clean() const;
};

/// Follows every value and every gradient of `step`'s program, and evaluates the loop's own predicates. A predicate
/// that cannot be evaluated, or never lets the optimizer step, is a lint here ("boundary-fails", "never-steps"), not a
/// refusal; see WithPlainBoundary.
Result<JobAudit> AuditJob(const Job& job, StepKind step);

/// The job, or, where its own predicates parse but let no step be made of them, the same with an ordinary window: what
/// a strategy is to be asked about a job that is to be audited.
Job WithPlainBoundary(const Job& job);

}  // namespace tidemark

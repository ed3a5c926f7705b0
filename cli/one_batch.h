// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "models/job/job.h"
#include "profiler/execute/numerics.h"
#include "profiler/execute/run.h"

namespace tidemark {

/// What a job's gradients are compared with: the same samples as one batch, on one rank, without anything that shards,
/// divides, recomputes or accumulates. Refuses jobs whose step is no such sum: several windows, a loss over all
/// microbatches.
Result<Job> OneBatchOf(const Job& job);

/// Gradients of the first step against those of one batch in fp64, the farthest tensor of any rank.
struct GradientCheck {
  DType arithmetic = DType::fp64;
  double error = 0, bound = 0;
  std::string tensor;  ///< of rank 0

  bool equal() const { return error <= bound; }
};

struct RunNumerics {
  Job one_batch;
  GradientCheck exact;    ///< the job, every number in fp64
  GradientCheck working;  ///< the job as it is: as wide as its narrowest parameters or gradients
  /// Of a network with experts: tokens of the first step, one for each layer, and how many of them the job as it is
  /// sends to others than fp64 does. There the one batch in fp64 follows the job (ExpertChoices).
  std::int64_t routed_tokens = 0, routed_otherwise = 0;
};

/// Runs the job's first step again in fp64 and the one batch on every rank by itself, and compares. `outcome` is that
/// of the job as it is, with RunOptions::keep_gradients.
Result<RunNumerics> CompareWithOneBatch(const Job& job, const RunStep& first, const RunOptions& options,
                                        const RunOutcome& outcome, World& world);

}  // namespace tidemark

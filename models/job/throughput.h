// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/quantity.h"
#include "models/job/job.h"

namespace tidemark {

/// How well a step uses its devices; all per device.
struct Throughput {
  double tokens_per_s_per_gpu = 0;
  double model_tflops_per_gpu = 0;  ///< only what the mathematics needs: no recomputation
  double mfu = 0, hfu = 0;          ///< fractions of the dense peak: of the model's operations, of all executed ones
};

/// What the work of one step is, for one device.
struct StepWork {
  double tokens = 0;               ///< that reach an update, divided over all ranks
  double model = 0, hardware = 0;  ///< floating-point operations; real numbers, because a long step passes 2^63
};

/// Microbatches of the step whose gradients reach an update: throughput counts training, and tokens whose gradients are
/// thrown away (a short window that is dropped, microbatches behind the last step of a custom loop) train nothing.
/// Their operations run all the same, and stay in StepWork and with it in mfu and hfu.
std::int64_t MicrobatchesThatCount(const Job& job);

/// Tokens of one step of the job for each rank, of the microbatches that count. Tensor and pipeline parallelism divide
/// the work of a sequence, context parallelism its tokens; data parallelism alone adds sequences.
double TokensPerRank(const Job& job);

/// `peak` is that of the dtype the job computes in. All zero for a step without length.
Throughput MakeThroughput(const StepWork& work, Nanos step, FlopsPerSec peak);

}  // namespace tidemark

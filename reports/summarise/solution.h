// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/quantity.h"
#include "reports/summarise/advice.h"
#include "reports/summarise/sweep.h"

namespace tidemark {

// What `tidemark solve` tells: the fastest way to do a job's training run that fits, and the next best of other kinds.
// Collected once, then rendered purely.

/// One way that fits.
struct SolvedOption {
  std::string change;                   ///< against the job: "layout.tp=4 micro_batch_size=2"; empty: the job itself
  std::vector<std::string> differs_in;  ///< keys in which it differs from the fastest; empty: it is that
  AdvisedCost cost;
  std::optional<Bytes> saved;  ///< of the job's allocated peak; nothing: the job itself is refused
  std::optional<Nanos> lost;   ///< of the job's step; nothing: that is of another global batch, too
  double tokens_per_s_per_gpu = 0;
  std::optional<double> mfu;
  std::vector<std::string> lints;  ///< ids of warnings that the job does not have
  std::string command;             ///< the command line that predicts it
};

struct Solution {
  std::string title, job_yaml, version, machine;
  Bytes memory;                   ///< that a device has
  std::int64_t global_batch = 0;  ///< sequences of a step
  bool same_batch = true;         ///< as the job itself has
  std::int64_t ranks = 1;
  std::vector<std::string> varied;      ///< keys
  std::optional<AdvisedCost> now;       ///< of the job itself; nothing: it is refused
  bool begins = true;                   ///< where that fits: its first steps do as well
  std::string refusal;                  ///< where it is refused: why
  std::vector<SolvedOption> options;    ///< the fastest, then the next best, each of a kind of its own
  std::optional<SolvedOption> nearest;  ///< where nothing fits: what needs least, if that computes the job's numbers
  std::int64_t size = 0;                ///< ways that were looked at: fit + near + too_large + refused, once complete
  std::int64_t fit = 0;                 ///< to the high end of the device's band, by the closed form
  std::int64_t near = 0;                ///< to its low end only: these are simulated where it matters
  std::int64_t too_large = 0, refused = 0;
  std::vector<SweepRefusal> refusals;  ///< the most frequent reasons, most frequent first
  std::int64_t altering = 0;           ///< of those that fit: faster than the fastest, but they compute other numbers
  /// Ways that were simulated, and do not fit, or only once they have run for a while: their first steps do not.
  std::int64_t tight = 0;
  double seconds = 0;    ///< measured
  bool complete = true;  ///< false: interrupted
};

}  // namespace tidemark

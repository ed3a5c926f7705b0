// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "profiler/execute/executor.h"
#include "profiler/execute/model.h"

namespace tidemark {

using Tensors = std::map<ParameterKey, std::vector<double>>;

/// How far tensors are from those of a reference. Of each, the length of the difference over the length of the
/// reference, or over that of a tensor of its size whose numbers are `floor` times the root mean square of all numbers
/// where that is longer: a gradient that is zero but for roundings (a key's bias without rotation) has no length of its
/// own to be compared with. What is not finite, or not there, is infinitely far.
struct Distance {
  double highest = 0;
  std::string tensor;  ///< where
};

/// This rank's parts against the whole tensors of a reference with the same parameters.
Distance DistanceOf(const Model& model, const Tensors& own, const Tensors& reference, double floor);

/// The floor for sums of fp64 numbers, and for those of a job's own precision.
inline constexpr double kExactFloor = 1e-4, kWorkingFloor = 1.0;

/// How far a gradient may be from that of exact arithmetic. Each of `roundings` operations in a row adds an error of
/// unit roundoff u at most, of either sign: their sum is a random walk (Higham and Mary, "A new approach to
/// probabilistic rounding error analysis", 2019), so that with high probability its length is at most
/// lambda u sqrt(roundings), here with lambda = 4; where that is more than 0.2, it is 0.2, below what a lost microbatch
/// of a few comes to. In fp64 what is allowed is 1e-10, whatever the length.
double BoundOf(DType dtype, std::int64_t roundings);

/// Operations on the longest way from a microbatch's input to the sum of its gradients: all of a step's that run on one
/// microbatch, and one addition for each microbatch and rank.
std::int64_t RoundingsOf(const Program& program, std::int64_t microbatches, std::int64_t ranks);

}  // namespace tidemark

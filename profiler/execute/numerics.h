// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "profiler/execute/executor.h"
#include "profiler/execute/model.h"

namespace tidemark {

/// How far tensors are from those of a reference. Of each stretch that a rank has of one, the length of the difference
/// over the length of the reference, or over that of a tensor of its size whose numbers are `floor` times the root mean
/// square of all numbers where that is longer: a gradient that is zero but for roundings (a key's bias without
/// rotation) has no length of its own to be compared with. What is not finite is infinitely far.
struct Distance {
  double highest = 0;
  std::string tensor;  ///< where
};

/// A rank's parts against the whole tensors of a reference with the same parameters.
Distance DistanceOf(const Model& model, const ParameterParts& own, const ParameterParts& reference, double floor);

/// Which elements of the reference's tensors no rank has: a gradient that nobody keeps is no right one. `places`: what
/// each rank has, as PlacesText tells it.
std::optional<std::string> FirstMissing(const ParameterParts& reference, std::span<const std::string> places);
/// "layer.wq 0 first count" a line: stretches of the whole model's parameters that a rank has gradients of.
std::string PlacesText(const Model& model, const ParameterParts& own);

/// The floors. Roundings leave an error that is a share W (the walk below) of the numbers that a sum is made of, not of
/// what they cancel to: a tensor can be checked to a bound B only where it is W / B of their size. In a job's own
/// precision B is W itself. In fp64 B is 1e-10, and W = 4 u sqrt(roundings) is 1e-14 after 500 of them.
inline constexpr double kExactFloor = 1e-4, kWorkingFloor = 1.0;

/// How far a gradient may be from that of exact arithmetic. Each of `roundings` operations in a row adds an error of
/// unit roundoff u at most, of either sign: their sum is a random walk (Higham and Mary, "A new approach to
/// probabilistic rounding error analysis", 2019), so that with high probability its length is at most
/// lambda u sqrt(roundings), here with lambda = 4. Where that is more than a lost microbatch comes to (1/M of the
/// gradient at least) the bound says little, and the same step in fp64, whose bound is 1e-10 whatever the length, is
/// what finds it.
double BoundOf(DType dtype, std::int64_t roundings);

/// Operations on the longest way from a microbatch's input to the sum of its gradients: all of a step's that run on one
/// microbatch, and one addition for each microbatch and rank.
std::int64_t RoundingsOf(const Program& program, std::int64_t microbatches, std::int64_t ranks);

}  // namespace tidemark

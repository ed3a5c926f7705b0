// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "base/rational.h"
#include "sim/program/gradient_value.h"

namespace tidemark {

/// How much of a window's gradient the optimizer gets.
struct WindowFactor {
  std::vector<std::int64_t> microbatches;  ///< of the window, ascending
  /// The gradient over the mean of the window's microbatches and of all ranks, where their gradients are alike: the sum
  /// of the factors with which they arrive. Of the weight for which it is farthest from 1, 0 being the farthest.
  Rational factor{1};
  bool uniform = true;  ///< each of them arrives with its part of `factor`, for every weight
  bool lost = false;  ///< some gradient never arrives; then not uniform, and `factor` is 0 if all of a weight's do not
  bool steps = true;  ///< false: the step ends before the optimizer gets it

  /// What is stepped on is the mean. Of what is not stepped on nothing can be said.
  bool right() const { return !steps || (uniform && factor == Rational(1)); }
  /// Takes what `other`, the same window of another role, has worse.
  void Join(const WindowFactor& other);
};

/// The same of one role's windows after the other.
void JoinWindows(std::vector<WindowFactor>& windows, const std::vector<WindowFactor>& of_role);

/// Puts WindowFactors of one role together, from what the updates of the optimizer read.
class WindowMeter {
 public:
  WindowMeter(std::int64_t shards, std::int64_t replicas) : shards_(shards), replicas_(replicas) {}

  /// An update that contains a source's gradients: `terms` are those of one source. What they hold of microbatches
  /// that are not in `window` is left out. `whole`: the update also reads the part of the buffer that is not this
  /// rank's.
  void Read(const std::vector<GradientValue::Term>& terms, const std::set<std::int64_t>& window, bool whole);
  /// A gradient that was made and never read.
  void Lose() {
    window_.lost = true;
    window_.uniform = false;
  }
  /// Of a source of which nothing arrives the factor is 0. Both are the window's, as (source, microbatch).
  void Miss(const std::set<std::pair<std::int64_t, std::int64_t>>& made,
            const std::set<std::pair<std::int64_t, std::int64_t>>& arrived);
  /// Behind the last microbatch of a window, or of the step.
  void End(const std::set<std::int64_t>& microbatches, bool steps);

  const std::vector<WindowFactor>& windows() const { return windows_; }

 private:
  void Read(const std::vector<GradientValue::Term>& terms, Factors GradientValue::Parts::*part);
  /// Summed up over all ranks.
  Rational TotalOf(const Factors& factors) const;

  std::int64_t shards_, replicas_;
  std::vector<WindowFactor> windows_;
  WindowFactor window_;
};

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "profiler/execute/contents.h"
#include "profiler/execute/model.h"
#include "sim/program/program.h"

namespace tidemark {

/// Operations of this name write one number per tensor that the optimizer is given: each the numbers of its own ones.
inline constexpr std::string_view kGradientNorms = "gradient norms";
/// Sums the squares of all over the ranks of a group.
inline constexpr std::string_view kReduceNorm = "reduce norm";
/// Makes of the sum of their squares what gradients are multiplied by.
inline constexpr std::string_view kClipCoefficient = "clip coefficient";

/// The tensors whose norms a step takes, in the order in which it first takes them: parameters, or what is cut or
/// updated as one flat tensor (Stretch::joined). Of gradients of which only this rank's part counts (Compute::own_part:
/// Megatron's distributed optimizer, nanotron's ZeRO-1) it takes the numbers that this rank updates, by the tensors
/// of their state.
class NormedTensors {
 public:
  /// Numbers of a gradient, and the tensor that they are part of.
  struct Part {
    Stretch stretch;
    std::int64_t tensor = 0;
  };

  NormedTensors() = default;
  NormedTensors(const Model& model, const Program& program);

  /// No operation of the step makes the coefficient: the host reads the norm and does.
  bool host_takes_coefficient() const { return host_takes_coefficient_; }
  /// Norms are summed over the ranks with a layer's experts, which have the same gradients of all else.
  bool sums_over_experts() const { return sums_over_experts_; }
  std::int64_t count() const { return static_cast<std::int64_t>(numbers_.size()); }
  /// What a gradient has of each tensor; a part may have no numbers. Nothing: who updates them has no known place here.
  std::optional<std::vector<Part>> PartsOf(const Contents& contents, bool own_part) const;
  /// The numbers of a gradient that this rank updates, where only these count.
  Contents OwnPartOf(Contents gradient) const;

 private:
  using Key = std::pair<std::string, std::int64_t>;
  struct Updated {
    Stretch own;  ///< what this rank updates of a parameter
    Key tensor;   ///< the first parameter of the tensor of its state that this is in
  };

  void FindUpdated(const Model& model, const Program& program);
  void Number(const Contents& contents, bool own_part);

  std::map<Key, std::int64_t> numbers_;
  std::map<Key, Updated> updated_;
  bool host_takes_coefficient_ = false, sums_over_experts_ = false;
};

}  // namespace tidemark

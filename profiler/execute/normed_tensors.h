// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "profiler/execute/contents.h"
#include "profiler/execute/model.h"
#include "sim/program/program.h"

namespace tidemark {

/// Operations of this name write one number per tensor that the optimizer is given: each the numbers of its own ones.
inline constexpr std::string_view kGradientNorms = "gradient norms";
/// Makes of the sum of their squares what gradients are multiplied by.
inline constexpr std::string_view kClipCoefficient = "clip coefficient";

/// The tensors whose norms a step takes, in the order in which it first takes them: parameters, or what is cut or
/// updated as one flat tensor (Stretch::joined).
class NormedTensors {
 public:
  NormedTensors() = default;
  NormedTensors(const Model& model, const Program& program);

  /// No operation of the step makes the coefficient: the host reads the norm and does.
  bool host_takes_coefficient() const { return host_takes_coefficient_; }
  std::int64_t count() const { return static_cast<std::int64_t>(numbers_.size()); }
  /// Of the tensor that begins with this stretch.
  std::int64_t NumberOf(const Stretch& first) const { return numbers_.at({first.weight.name, first.block}); }

 private:
  std::map<std::pair<std::string, std::int64_t>, std::int64_t> numbers_;
  bool host_takes_coefficient_ = false;
};

}  // namespace tidemark

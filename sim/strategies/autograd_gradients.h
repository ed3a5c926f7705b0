// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "sim/strategies/parameter_table.h"
#include "sim/strategies/update_kernels.h"

namespace tidemark {

/// `.grad` as autograd leaves it: where there is none, a parameter's new gradient becomes it; else the new one is born
/// beside it, is added and dies (torch/csrc/autograd/functions/accumulate_grad.h).
class AutogradGradients {
 public:
  void Declare(Role& role, DType dtype) {
    gradients_.Declare(role, "gradient of", Category::gradient, dtype, ParameterTable::Of::trained, false);
    contributions_.Declare(role, "new gradient of", Category::gradient, dtype, ParameterTable::Of::trained, false);
  }

  const ParameterTable& table() const { return gradients_; }
  BufferRef operator()(const Role& role, const ParameterAt& at) const { return gradients_(role, at); }

  /// The buffer that a backward kernel writes. `has_gradient`: an earlier microbatch has left one.
  BufferRef Begin(Role& role, const ParameterAt& at, bool has_gradient) const {
    const BufferRef ref = has_gradient ? contributions_(role, at) : gradients_(role, at);
    role.Alloc(ref);
    return ref;
  }

  /// That kernel has run.
  void End(Role& role, const ParameterAt& at, bool has_gradient) const {
    if (has_gradient) {
      role.AddKernel("accumulate gradient", role.compute, contributions_(role, at), gradients_(role, at));
      role.Free(contributions_(role, at));
    }
  }

  /// One update of all that is trained of a block; none where nothing is. `weight` gives a parameter's weight, which is
  /// read and written beside the gradient.
  template <class Weight>
  std::vector<TensorUpdate> UpdatesOf(Role& role, std::int64_t position, Weight weight) const {
    const std::int64_t elements = TrainableElements(role.stage.BlockAt(position));
    if (elements == 0) {
      return {};
    }
    std::vector<BufferRef> gradients, weights;
    ForEachTrained(role, position, [&](const ParameterAt& at) {
      gradients.push_back(gradients_(role, at));
      weights.push_back(weight(at));
    });
    const Precision& precision = role.job.axes.precision;
    return {{0, elements, std::move(gradients), std::move(weights),
             SizeOf(precision.gradients) + SizeOf(precision.params) * 2}};
  }

  /// Sets all of the stage to None.
  void Free(Role& role) const {
    EachTrained(role, [&](const ParameterAt& at) { role.Free(gradients_(role, at)); });
  }

 private:
  ParameterTable gradients_, contributions_;
};

}  // namespace tidemark

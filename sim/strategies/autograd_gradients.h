// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/strategies/parameter_table.h"

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

  /// Sets all of the stage to None.
  void Free(Role& role) const {
    EachTrained(role, [&](const ParameterAt& at) { role.Free(gradients_(role, at)); });
  }

 private:
  ParameterTable gradients_, contributions_;
};

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "kernels/optimizer.h"

namespace tidemark::kernels {

/// The numbers of one step, in the arithmetic's dtype.
template <class C>
struct AdamNumbers {
  C keep, to_first, beta2, to_second, step_size, root_of_correction, eps;

  explicit AdamNumbers(const AdamW& op)
      : keep(static_cast<C>(1 - op.lr * op.weight_decay)),
        to_first(static_cast<C>(1 - op.beta1)),
        beta2(static_cast<C>(op.beta2)),
        to_second(static_cast<C>(1 - op.beta2)),
        step_size(static_cast<C>(op.lr / (1 - std::pow(op.beta1, static_cast<double>(op.step))))),
        root_of_correction(static_cast<C>(std::sqrt(1 - std::pow(op.beta2, static_cast<double>(op.step))))),
        eps(static_cast<C>(op.eps)) {}
};

}  // namespace tidemark::kernels

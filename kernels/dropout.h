// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "kernels/tensor.h"

namespace tidemark::kernels {

/// Philox 4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011): four random words that depend
/// on counter and key alone.
std::array<std::uint32_t, 4> Philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

/// y = x mask / (1 - p), where element i is kept (mask 1) if word i mod 4 of Philox, with the 64-bit counters
/// (i / 4, offset) and the key `seed`, is at least p 2^32. Whoever repeats seed and offset repeats the mask. `first` is
/// the number of the tensor's first element. Backward: dx = dy mask / (1 - p).
struct Dropout {
  double p = 0;
  std::uint64_t seed = 0, offset = 0;
  std::int64_t first = 0;
};

struct DropoutTypes {
  TensorType output, mask;
};
DropoutTypes DropoutOutputs(const TensorType& input);

void DropoutForward(const Dropout& op, const ConstTensor& input, const Tensor& output, const Tensor& mask);
void DropoutBackward(const Dropout& op, const ConstTensor& output_gradient, const ConstTensor& mask,
                     const Tensor& input_gradient);

}  // namespace tidemark::kernels

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/pointwise.h"
#include "kernels/queue.h"

namespace tidemark::kernels::cuda {

// kernels/pointwise.h on a GPU.

/// As many as Add takes at once.
inline constexpr std::size_t kMostAddends = 16;

void Copy(const ConstTensor& from, const Tensor& to, double factor, const Queue& queue);
void Add(std::span<const ConstTensor> addends, const Tensor& sum, const Queue& queue);
void Accumulate(const ConstTensor& addend, const Tensor& sum, double factor, const Queue& queue);
void Scale(double factor, const Tensor& tensor, const Queue& queue);
void Zero(const Tensor& tensor, const Queue& queue);

}  // namespace tidemark::kernels::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernels/tensor.h"

namespace tidemark::kernels {

// What streams through tensors of as many elements once. Each result is rounded once.

/// to = factor * from: a cast, a copy, a copy that divides. `to` may be `from`. A factor of 1 between equal dtypes, of
/// whatever kind, copies bits.
void Copy(const ConstTensor& from, const Tensor& to, double factor = 1);

/// sum = addends[0] + addends[1] + ..., from left to right. `sum` may be any of them.
void Add(std::span<const ConstTensor> addends, const Tensor& sum);

/// sum += factor * addend, rounded to the dtype of `sum`: where that is bf16 and much larger, it stalls.
void Accumulate(const ConstTensor& addend, const Tensor& sum, double factor = 1);

/// tensor *= factor.
void Scale(double factor, const Tensor& tensor);

/// All bits 0.
void Zero(const Tensor& tensor);

/// Every element is `value`.
void Fill(double value, const Tensor& tensor);

// Copy and Accumulate by a factor that kernels have made: one element.
void CopyTimes(const ConstTensor& from, const ConstTensor& factor, const Tensor& to);
void AccumulateTimes(const ConstTensor& addend, const ConstTensor& factor, const Tensor& sum);

}  // namespace tidemark::kernels

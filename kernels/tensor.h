// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace tidemark::kernels {

// The arithmetic of a step. Every operator has a header: its attributes, what each operand is, what it computes and
// where the formula comes from, and functions that say which tensors it makes. Those sizes come from here alone:
// whoever runs a program compares them with the program's.
//
// Tensors are dense and row-major. Arithmetic is fp64 where any operand is fp64, else fp32: bf16 is widened when it is
// read and rounded once, to nearest even, when it is stored. Statistics (rstd, log-sum-exp) are fp32, or fp64 where the
// tensors they belong to are. Operands of one call may have different floating dtypes. An output may be one of the
// inputs only where the header says so. Nothing here keeps memory between calls; scratch within a call is bounded by a
// few rows or tiles, in an embedding's backward pass by a number per token. The same operands give the same bits,
// wherever they lie in memory. NaN and infinity propagate.
//
// Operands that do not fit each other are a fault of the caller (TIDEMARK_CHECK).

struct TensorType {
  DType dtype = DType::fp32;
  std::int64_t elements = 0;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

struct ConstTensor {
  TensorType type;
  const void* data = nullptr;
};

struct Tensor {
  TensorType type;
  void* data = nullptr;
  operator ConstTensor() const { return {type, data}; }  // NOLINT(google-explicit-constructor): as T* to const T*
};

/// `elements` of it from `begin` on: rows of a matrix, one of several tensors in a bucket. Of one without data, too.
ConstTensor Slice(const ConstTensor& tensor, std::int64_t begin, std::int64_t elements);
Tensor Slice(const Tensor& tensor, std::int64_t begin, std::int64_t elements);

/// fp64 for fp64, else fp32.
DType StatisticsOf(DType dtype);

}  // namespace tidemark::kernels

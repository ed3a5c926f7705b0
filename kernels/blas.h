// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <memory>
#include <string>

#include "base/dtype.h"
#include "base/result.h"
#include "kernels/queue.h"

namespace tidemark::kernels::cuda {

/// Matrices as a BLAS has them: column by column, columns `leading` elements apart, the next of a batch `step` further.
struct BlasMatrix {
  DType dtype = DType::fp32;
  std::int64_t rows = 0, columns = 0, leading = 0, step = 0;
  friend auto operator<=>(const BlasMatrix&, const BlasMatrix&) = default;
};

/// D = op(A) op(B), `batch` times, plus D where `accumulate`, plus a vector of D's dtype to each of D's columns where
/// `bias`. Arithmetic is fp64 for fp64, else fp32; what is stored is rounded once, or twice where something is added:
/// the product, and the sum (seen of cuBLASLt 13.1 on an H100, of bf16 and fp16).
struct BlasProduct {
  BlasMatrix a, b, d;
  bool transpose_a = false, transpose_b = false, accumulate = false, bias = false;
  std::int64_t batch = 1;
  friend auto operator<=>(const BlasProduct&, const BlasProduct&) = default;
};

struct BlasOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* bias = nullptr;
  void* d = nullptr;
};

/// A library that multiplies. One object is for one thread, on the GPU that was current when it was opened.
class Blas {
 public:
  Blas() = default;
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;
  virtual ~Blas() = default;

  /// False where the library cannot: then nothing was done.
  virtual bool Multiply(const BlasProduct& product, const BlasOperands& operands, const Queue& queue) = 0;
  /// How many kinds of products it could not do.
  virtual std::int64_t declined() const { return 0; }
};

/// cuBLASLt, looked for when this is called: the program also starts where it is not. The same product of operands that
/// are equally aligned is always done in the same way, and adds in the same order; fp32 is fp32, not TF32. Fails with
/// machine_cannot. It takes GPU memory of its own: something when it is opened, and its code on first use.
Result<std::unique_ptr<Blas>> OpenCublasLt();

/// "13.1.0": of the library that OpenCublasLt would find. Needs no GPU. Fails with machine_cannot where there is none.
Result<std::string> CublasLtVersion();

}  // namespace tidemark::kernels::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#ifdef __CUDACC__
#include <cuda_fp16.h>
#else
#include <Eigen/Core>
#endif

#include "base/check.h"
#include "kernels/bf16.h"
#include "kernels/stretch.h"
#include "kernels/tensor.h"
#include "kernels/words.cuh"

namespace tidemark::kernels::cuda {

// A tensor's elements in the dtype of the arithmetic, C, for host and device: widened when read, rounded once, to
// nearest even, when stored (fp64 on its way to two bytes goes by fp32). The dtype is looked at for every element. All
// threads find the same, which costs less than the memory they wait for, and a kernel is compiled once for all dtypes.

#ifdef __CUDACC__
using StoredFp16 = __half;
__host__ __device__ inline float FromFp16(StoredFp16 value) { return __half2float(value); }
__host__ __device__ inline StoredFp16 ToFp16(float value) { return __float2half_rn(value); }
#else
using StoredFp16 = Eigen::half;
inline float FromFp16(StoredFp16 value) { return static_cast<float>(value); }
inline StoredFp16 ToFp16(float value) { return StoredFp16(value); }
#endif

inline bool IsFloating(DType dtype) {
  return dtype == DType::fp64 || dtype == DType::fp32 || dtype == DType::bf16 || dtype == DType::fp16;
}

template <class C>
class Input {
 public:
  Input() = default;
  Input(const ConstTensor& tensor)
      : data_(tensor.data), dtype_(tensor.type.dtype) {  // NOLINT: as Tensor to ConstTensor
    TIDEMARK_CHECK(IsFloating(dtype_));
  }
  Input(const Tensor& tensor) : Input(ConstTensor(tensor)) {}  // NOLINT(google-explicit-constructor)

  __host__ __device__ C operator[](std::int64_t i) const {
    switch (dtype_) {
      case DType::fp64:
        return static_cast<C>(static_cast<const double*>(data_)[i]);
      case DType::bf16:
        return static_cast<C>(FromBf16(static_cast<const std::uint16_t*>(data_)[i]));
      case DType::fp16:
        return static_cast<C>(FromFp16(static_cast<const StoredFp16*>(data_)[i]));
      default:
        return static_cast<C>(static_cast<const float*>(data_)[i]);
    }
  }

 private:
  const void* data_ = nullptr;
  DType dtype_ = kArithmetic<C>;
};

template <class C>
class Output {
 public:
  Output(const Tensor& tensor) : data_(tensor.data), dtype_(tensor.type.dtype), present_(tensor) {}  // NOLINT: as above

  /// What the tensor holds.
  __host__ __device__ C operator[](std::int64_t i) const { return present_[i]; }

  __host__ __device__ void Set(std::int64_t i, C value) const {
    switch (dtype_) {
      case DType::fp64:
        static_cast<double*>(data_)[i] = static_cast<double>(value);
        break;
      case DType::bf16:
        static_cast<std::uint16_t*>(data_)[i] = ToBf16(static_cast<float>(value));
        break;
      case DType::fp16:
        static_cast<StoredFp16*>(data_)[i] = ToFp16(static_cast<float>(value));
        break;
      default:
        static_cast<float*>(data_)[i] = static_cast<float>(value);
    }
  }

 private:
  void* data_;
  DType dtype_;
  Input<C> present_;
};

}  // namespace tidemark::kernels::cuda

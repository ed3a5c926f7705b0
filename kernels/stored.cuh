// SPDX-License-Identifier: Apache-2.0
#pragma once

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#else
#include <Eigen/Core>
#endif

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "kernels/bf16.h"
#include "kernels/stretch.h"
#include "kernels/words.cuh"

namespace tidemark::kernels::cuda {

// Elements as they are stored, for host and device: double, float, and these.

struct Bf16 {
  std::uint16_t bits;
};
struct Fp16 {
  std::uint16_t bits;
};

template <class T>
inline constexpr bool kIsNarrow = sizeof(T) == 2;
template <class T>
inline constexpr DType kStoredDType = std::is_same_v<T, Bf16>   ? DType::bf16
                                      : std::is_same_v<T, Fp16> ? DType::fp16
                                                                : kArithmetic<T>;
/// The arithmetic on T.
template <class T>
using WideOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
__host__ __device__ inline WideOf<T> Widened(T element) {
  if constexpr (std::is_same_v<T, Bf16>) {
    return FromBf16(element.bits);
  } else if constexpr (std::is_same_v<T, Fp16>) {
#ifdef __CUDACC__
    return __half2float(__ushort_as_half(element.bits));
#else
    return static_cast<float>(Eigen::numext::bit_cast<Eigen::half>(element.bits));
#endif
  } else {
    return element;
  }
}

/// To nearest even.
template <class T>
__host__ __device__ inline T Rounded(WideOf<T> value) {
  if constexpr (std::is_same_v<T, Bf16>) {
#ifdef __CUDA_ARCH__
    return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
#else
    return {ToBf16(value)};
#endif
  } else if constexpr (std::is_same_v<T, Fp16>) {
#ifdef __CUDACC__
    return {__half_as_ushort(__float2half_rn(value))};
#else
    return {Eigen::numext::bit_cast<std::uint16_t>(Eigen::half(value))};
#endif
  } else {
    return value;
  }
}

#ifdef __CUDA_ARCH__
/// The same of two, of two bytes each, side by side: by one instruction.
template <class T>
__device__ inline unsigned RoundedTwo(float first, float second) {
  unsigned bits = 0;
  if constexpr (std::is_same_v<T, Bf16>) {
    const __nv_bfloat162 two = __floats2bfloat162_rn(first, second);
    std::memcpy(&bits, &two, sizeof(bits));
  } else {
    const __half2 two = __floats2half2_rn(first, second);
    std::memcpy(&bits, &two, sizeof(bits));
  }
  return bits;
}
#endif

inline bool IsFloating(DType dtype) {
  return dtype == DType::fp64 || dtype == DType::fp32 || dtype == DType::bf16 || dtype == DType::fp16;
}

/// body(T{}) of what is stored as this floating dtype.
template <class Body>
__host__ __device__ inline auto AsStored(DType dtype, Body body) {
  switch (dtype) {
    case DType::fp64:
      return body(double{});
    case DType::bf16:
      return body(Bf16{});
    case DType::fp16:
      return body(Fp16{});
    default:
      return body(float{});
  }
}

}  // namespace tidemark::kernels::cuda

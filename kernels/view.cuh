// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/check.h"
#include "kernels/pack.cuh"
#include "kernels/stored.cuh"
#include "kernels/tensor.h"
#include "kernels/words.cuh"

namespace tidemark::kernels::cuda {

// A tensor's elements in the dtype of the arithmetic, C, for host and device: widened when read, rounded once, to
// nearest even, when stored (fp64 on its way to two bytes goes by fp32). The dtype is looked at for every element or
// pack. All threads find the same, which costs less than the memory they wait for, and a kernel is compiled once for
// all dtypes.

template <class C>
class Input {
 public:
  Input() = default;
  Input(const ConstTensor& tensor)
      : data_(tensor.data), dtype_(tensor.type.dtype) {  // NOLINT: as Tensor to ConstTensor
    TIDEMARK_CHECK(IsFloating(dtype_));
  }
  Input(const Tensor& tensor) : Input(ConstTensor(tensor)) {}  // NOLINT(google-explicit-constructor)

  /// A C, or a Pack<C>.
  template <class At>
  __host__ __device__ auto operator[](At at) const {
    return AsStored(dtype_, [&]<class T>(T) {
      return Map([](T element) { return static_cast<C>(Widened(element)); }, Read(static_cast<const T*>(data_), at));
    });
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
  template <class At>
  __host__ __device__ auto operator[](At at) const {
    return present_[at];
  }

  /// Of a C, or of a Pack<C>.
  template <class At, class Value>
  __host__ __device__ void Set(At at, const Value& value) const {
    AsStored(dtype_, [&]<class T>(T) {
      Write(Map([](C one) { return Rounded<T>(static_cast<WideOf<T>>(one)); }, value), static_cast<T*>(data_), at);
    });
  }

 private:
  void* data_;
  DType dtype_;
  Input<C> present_;
};

}  // namespace tidemark::kernels::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

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
    return Widen(Stored(at));
  }
  /// The same in two steps: what is to be kept, and what it says.
  template <class At>
  __host__ __device__ auto Stored(At at) const {
    return AsStored(dtype_, [&]<class T>(T) {
      return Map([](T element) { return static_cast<C>(Widened(element)); }, Read(static_cast<const T*>(data_), at));
    });
  }
  template <class Kept>
  __host__ __device__ static Kept Widen(const Kept& kept) {
    return kept;
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

// The same of tensors of a dtype that is known when a kernel is compiled, whose packs are aligned. There is nothing to
// look at between one read and the next, so that several are under way at a time, which loops over rows of few packs
// depend on.

/// Two elements by one instruction, where a GPU has one.
template <class T, class C>
__host__ __device__ inline Pack<T> RoundedPack(const Pack<C>& pack) {
#ifdef __CUDA_ARCH__
  if constexpr (kIsNarrow<T>) {
    Pack<T> rounded;
    TIDEMARK_UNROLL
    for (int lane = 0; lane < kPack; lane += 2) {
      const auto two = RoundedTwo<T>(pack.lanes[lane], pack.lanes[lane + 1]);
      std::memcpy(&rounded.lanes[lane], &two, sizeof(two));
    }
    return rounded;
  }
#endif
  return Map([](C one) { return Rounded<T>(one); }, pack);
}

template <class C, class T>
class TypedInput {
 public:
  TypedInput(const ConstTensor& tensor) : data_(static_cast<const T*>(tensor.data)) {}  // NOLINT: as Input
  TypedInput(const Tensor& tensor) : TypedInput(ConstTensor(tensor)) {}                 // NOLINT: as Input

  template <class At>
  __host__ __device__ auto operator[](At at) const {
    return Widen(Stored(at));
  }
  __host__ __device__ T Stored(std::int64_t i) const { return data_[i]; }
  __host__ __device__ Pack<T> Stored(PackAt at) const { return ReadAligned(data_, at); }
  template <class Kept>
  __host__ __device__ static auto Widen(const Kept& kept) {
    return Map([](T element) { return static_cast<C>(Widened(element)); }, kept);
  }

 private:
  const T* data_;
};

template <class C, class T>
class TypedOutput {
 public:
  TypedOutput(const Tensor& tensor) : data_(static_cast<T*>(tensor.data)) {}  // NOLINT: as Output

  __host__ __device__ void Set(std::int64_t i, C value) const { data_[i] = Rounded<T>(value); }
  __host__ __device__ void Set(PackAt at, const Pack<C>& pack) const { WriteAligned(RoundedPack<T>(pack), data_, at); }

 private:
  T* data_;
};

/// Which views a kernel has of its operands.
template <class C>
struct AnyViews {
  using In = Input<C>;
  using Out = Output<C>;
};
template <class T>
struct TypedViews {
  using In = TypedInput<float, T>;
  using Out = TypedOutput<float, T>;
};

template <class T>
bool AreAligned(std::initializer_list<ConstTensor> tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const ConstTensor& tensor) {
    return tensor.type.dtype == kStoredDType<T> &&
           reinterpret_cast<std::uintptr_t>(tensor.data) % alignof(Pack<T>) == 0;
  });
}

/// Calls `body` with the views of these operands in an arithmetic on C: typed where all are of one dtype.
template <class C, class Body>
void InViewsOf(std::initializer_list<ConstTensor> tensors, Body body) {
  if constexpr (std::is_same_v<C, float>) {
    if (AreAligned<Bf16>(tensors)) {
      return body(TypedViews<Bf16>{});
    }
    if (AreAligned<Fp16>(tensors)) {
      return body(TypedViews<Fp16>{});
    }
    if (AreAligned<float>(tensors)) {
      return body(TypedViews<float>{});
    }
  }
  body(AnyViews<C>{});
}

}  // namespace tidemark::kernels::cuda

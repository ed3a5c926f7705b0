// SPDX-License-Identifier: Apache-2.0
#include <functional>

#include "kernels/bytes_cuda.h"
#include "kernels/pointwise_cuda.h"
#include "kernels/stretch.h"
#include "kernels/team.cuh"

namespace tidemark::kernels::cuda {
namespace {

Bytes BytesOf(const TensorType& type) { return SizeOf(type.dtype) * type.elements; }

template <class C>
struct CopyElement {
  using MayWait = void;
  Input<C> from;
  Output<C> to;
  C factor;
  template <class At>
  __host__ __device__ void operator()(At at) const {
    to.Set(at, Map([&](C x) { return x * factor; }, from[at]));
  }
};

template <class C>
struct AddElement {
  Input<C> addends[kMostAddends];
  int count;
  Output<C> sum;
  template <class At>
  __host__ __device__ void operator()(At at) const {
    auto total = addends[0][at];
    for (int k = 1; k < count; ++k) {
      total = Map(std::plus<>(), total, addends[k][at]);
    }
    sum.Set(at, total);
  }
};

template <class C>
struct AccumulateElement {
  using MayWait = void;
  Input<C> addend;
  Output<C> sum;
  C factor;
  template <class At>
  __host__ __device__ void operator()(At at) const {
    sum.Set(at, Map([&](C a, C b) { return a + b * factor; }, sum[at], addend[at]));
  }
};

template <class C>
struct FillElement {
  Output<C> to;
  C value;
  template <class At>
  __host__ __device__ void operator()(At at) const {
    to.Set(at, Everywhere(at, value));
  }
};

template <class C>
struct CopyTimesElement {
  Input<C> from, factor;
  Output<C> to;
  template <class At>
  __host__ __device__ void operator()(At at) const {
    const C times = factor[0];
    to.Set(at, Map([&](C x) { return x * times; }, from[at]));
  }
};

template <class C>
struct AccumulateTimesElement {
  Input<C> addend, factor;
  Output<C> sum;
  template <class At>
  __host__ __device__ void operator()(At at) const {
    const C times = factor[0];
    sum.Set(at, Map([&](C a, C b) { return a + b * times; }, sum[at], addend[at]));
  }
};

}  // namespace

void Copy(const ConstTensor& from, const Tensor& to, double factor, const Queue& queue) {
  TIDEMARK_CHECK(from.type.elements == to.type.elements);
  if (from.type.dtype == to.type.dtype && factor == 1) {
    if (from.data != to.data) {
      MoveBytes(queue, from.data, to.data, BytesOf(to.type));
    }
    return;
  }
  InArithmeticOf({from.type, to.type}, [&]<class C>(C) {
    EachElement(queue, to.type.elements, CopyElement<C>{from, to, static_cast<C>(factor)});
  });
}

void Add(std::span<const ConstTensor> addends, const Tensor& sum, const Queue& queue) {
  TIDEMARK_CHECK(!addends.empty() && addends.size() <= kMostAddends);
  bool wide = sum.type.dtype == DType::fp64;
  for (const ConstTensor& addend : addends) {
    TIDEMARK_CHECK(addend.type.elements == sum.type.elements && IsFloating(addend.type.dtype));
    wide = wide || addend.type.dtype == DType::fp64;
  }
  const auto add = [&]<class C>(C) {
    AddElement<C> body{{}, static_cast<int>(addends.size()), sum};
    std::copy(addends.begin(), addends.end(), body.addends);
    EachElement(queue, sum.type.elements, body);
  };
  if (wide) {
    add(double{});
  } else {
    add(float{});
  }
}

void Accumulate(const ConstTensor& addend, const Tensor& sum, double factor, const Queue& queue) {
  TIDEMARK_CHECK(addend.type.elements == sum.type.elements);
  InArithmeticOf({addend.type, sum.type}, [&]<class C>(C) {
    EachElement(queue, sum.type.elements, AccumulateElement<C>{addend, sum, static_cast<C>(factor)});
  });
}

void Scale(double factor, const Tensor& tensor, const Queue& queue) { Copy(tensor, tensor, factor, queue); }

void Zero(const Tensor& tensor, const Queue& queue) { SetBytes(queue, 0, tensor.data, BytesOf(tensor.type)); }

void Fill(double value, const Tensor& tensor, const Queue& queue) {
  InArithmeticOf({tensor.type, tensor.type}, [&]<class C>(C) {
    EachElement(queue, tensor.type.elements, FillElement<C>{tensor, static_cast<C>(value)});
  });
}

void CopyTimes(const ConstTensor& from, const ConstTensor& factor, const Tensor& to, const Queue& queue) {
  TIDEMARK_CHECK(from.type.elements == to.type.elements && factor.type.elements == 1);
  InArithmeticOf({from.type, to.type}, [&]<class C>(C) {
    EachElement(queue, to.type.elements, CopyTimesElement<C>{from, factor, to});
  });
}

void AccumulateTimes(const ConstTensor& addend, const ConstTensor& factor, const Tensor& sum, const Queue& queue) {
  TIDEMARK_CHECK(addend.type.elements == sum.type.elements && factor.type.elements == 1);
  InArithmeticOf({addend.type, sum.type}, [&]<class C>(C) {
    EachElement(queue, sum.type.elements, AccumulateTimesElement<C>{addend, factor, sum});
  });
}

}  // namespace tidemark::kernels::cuda

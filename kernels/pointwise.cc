// SPDX-License-Identifier: Apache-2.0
#include "kernels/pointwise.h"

#include <cstring>
#include <vector>

#include "kernels/stretch.h"

namespace tidemark::kernels {
namespace {

std::size_t BytesOf(const TensorType& type) {
  return static_cast<std::size_t>((SizeOf(type.dtype) * type.elements).count());
}

bool AnyWide(std::span<const ConstTensor> tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const ConstTensor& tensor) { return tensor.type.dtype == DType::fp64; });
}

double NumberOf(const ConstTensor& one) {
  double number = 0;
  Copy(one, {{DType::fp64, 1}, &number});
  return number;
}

template <class C>
void AddAll(std::span<const ConstTensor> addends, const Tensor& sum) {
  std::vector<Reader<C>> readers;
  for (const ConstTensor& addend : addends) {
    readers.emplace_back(addend, kStretch);
  }
  Writer<C> sums(sum, kStretch);
  C total[kStretch];
  EachStretch(sum.type.elements, [&](std::int64_t begin, std::int64_t count) {
    std::copy_n(readers.front().At(begin, count), count, total);
    for (std::size_t i = 1; i < readers.size(); ++i) {
      Each(count, [to = &total[0], x = readers[i].At(begin, count)](std::int64_t j) { to[j] += x[j]; });
    }
    std::copy_n(total, count, sums.At(begin, count));
    sums.Done(begin, count);
  });
}

}  // namespace

void Copy(const ConstTensor& from, const Tensor& to, double factor) {
  TIDEMARK_CHECK(from.type.elements == to.type.elements);
  if (from.type.dtype == to.type.dtype && factor == 1) {
    if (from.data != to.data && to.type.elements > 0) {
      std::memmove(to.data, from.data, BytesOf(to.type));
    }
    return;
  }
  InArithmeticOf({from.type, to.type}, [&]<class C>(C) {
    Reader<C> reader(from, kStretch);
    Writer<C> writer(to, kStretch);
    EachStretch(to.type.elements, [&](std::int64_t begin, std::int64_t count) {
      Each(count, [y = writer.At(begin, count), x = reader.At(begin, count),
                   scale = static_cast<C>(factor)](std::int64_t i) { y[i] = x[i] * scale; });
      writer.Done(begin, count);
    });
  });
}

void Add(std::span<const ConstTensor> addends, const Tensor& sum) {
  TIDEMARK_CHECK(!addends.empty());
  for (const ConstTensor& addend : addends) {
    TIDEMARK_CHECK(addend.type.elements == sum.type.elements);
  }
  if (AnyWide(addends) || sum.type.dtype == DType::fp64) {
    AddAll<double>(addends, sum);
  } else {
    AddAll<float>(addends, sum);
  }
}

void Accumulate(const ConstTensor& addend, const Tensor& sum, double factor) {
  TIDEMARK_CHECK(addend.type.elements == sum.type.elements);
  InArithmeticOf({addend.type, sum.type}, [&]<class C>(C) {
    Reader<C> addends(addend, kStretch);
    Writer<C> sums(sum, kStretch);
    EachStretch(sum.type.elements, [&](std::int64_t begin, std::int64_t count) {
      Each(count, [s = sums.Present(begin, count), x = addends.At(begin, count),
                   scale = static_cast<C>(factor)](std::int64_t i) { s[i] += x[i] * scale; });
      sums.Done(begin, count);
    });
  });
}

void Scale(double factor, const Tensor& tensor) { Copy(tensor, tensor, factor); }

void Zero(const Tensor& tensor) {
  if (tensor.type.elements > 0) {
    std::memset(tensor.data, 0, BytesOf(tensor.type));
  }
}

void Fill(double value, const Tensor& tensor) {
  InArithmeticOf({tensor.type, tensor.type}, [&]<class C>(C) {
    Writer<C> writer(tensor, kStretch);
    EachStretch(tensor.type.elements, [&](std::int64_t begin, std::int64_t count) {
      std::fill_n(writer.At(begin, count), count, static_cast<C>(value));
      writer.Done(begin, count);
    });
  });
}

void CopyTimes(const ConstTensor& from, const ConstTensor& factor, const Tensor& to) {
  Copy(from, to, NumberOf(factor));
}

void AccumulateTimes(const ConstTensor& addend, const ConstTensor& factor, const Tensor& sum) {
  Accumulate(addend, sum, NumberOf(factor));
}

}  // namespace tidemark::kernels

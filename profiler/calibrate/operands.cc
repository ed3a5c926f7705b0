// SPDX-License-Identifier: Apache-2.0
#include "profiler/calibrate/operands.h"

#include <algorithm>
#include <new>
#include <vector>

#include "kernels/pointwise.h"
#include "profiler/calibrate/stopwatch.h"

namespace tidemark {
namespace {

constexpr std::int64_t kPattern = std::int64_t{1} << 20;  ///< elements

}  // namespace

Operands::Operands(Device& device, Bytes memory)
    : device_(device), memory_(MakeAllocator({}, device.MemoryOf(memory)), device) {}

Operands::~Operands() { device_.Synchronize(); }

kernels::Tensor Operands::Make(const kernels::TensorType& type) {
  const kernels::Tensor tensor = Take(type);
  std::vector<float> numbers(static_cast<std::size_t>(std::min(kPattern, type.elements)));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = 0.01F * (static_cast<float>(i * 7919 % 199) - 98.5F) / 99;
  }
  const auto elements = static_cast<std::int64_t>(numbers.size());
  std::vector<std::uint8_t> rounded(static_cast<std::size_t>((SizeOf(type.dtype) * elements).count()));
  const kernels::Tensor pattern{{type.dtype, elements}, rounded.data()};
  kernels::Copy({{DType::fp32, elements}, numbers.data()}, pattern);
  Fill(tensor, pattern);
  return tensor;
}

kernels::Tensor Operands::MakeIds(std::int64_t elements, std::int64_t below) {
  const kernels::Tensor tensor = Take({DType::int64, elements});
  std::vector<std::int64_t> ids(static_cast<std::size_t>(elements));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<std::int64_t>(i) * 7919 % below;
  }
  Fill(tensor, {tensor.type, ids.data()});
  return tensor;
}

kernels::Tensor Operands::Take(const kernels::TensorType& type) {
  const auto piece = memory_.Allocate(SizeOf(type.dtype) * type.elements, Stopwatch::kStream);
  if (!piece) {
    throw std::bad_alloc();
  }
  return {type, piece->data};
}

void Operands::Fill(const kernels::Tensor& tensor, const kernels::ConstTensor& pattern) {
  for (std::int64_t begin = 0; begin < tensor.type.elements; begin += pattern.type.elements) {
    const std::int64_t count = std::min(pattern.type.elements, tensor.type.elements - begin);
    device_.Put(Stopwatch::kStream, pattern.data, kernels::Slice(tensor, begin, count).data,
                SizeOf(tensor.type.dtype) * count);
  }
}

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/device.h"

#include <cstddef>
#include <vector>

#include "kernels/pointwise.h"

namespace tidemark {
namespace {

Bytes BytesOf(const kernels::TensorType& type) { return SizeOf(type.dtype) * type.elements; }

std::vector<std::byte> Staging(const kernels::TensorType& type) {
  return std::vector<std::byte>(static_cast<std::size_t>(BytesOf(type).count()));
}

}  // namespace

Result<std::unique_ptr<Allocator>> Device::OwnAllocator(const AllocatorOptions&, Bytes) {
  return std::unique_ptr<Allocator>();
}

void Device::Read(std::uint32_t stream, const kernels::ConstTensor& from, double* to) {
  std::vector<std::byte> numbers = Staging(from.type);
  Fetch(stream, from.data, numbers.data(), BytesOf(from.type));
  kernels::Copy({from.type, numbers.data()}, {{DType::fp64, from.type.elements}, to});
}

void Device::Write(std::uint32_t stream, const double* from, const kernels::Tensor& to) {
  std::vector<std::byte> numbers = Staging(to.type);
  kernels::Copy({{DType::fp64, to.type.elements}, from}, {to.type, numbers.data()});
  Put(stream, numbers.data(), to.data, BytesOf(to.type));
}

}  // namespace tidemark

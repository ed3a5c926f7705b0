// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/device.h"

#include <cstddef>
#include <vector>

#include "kernels/bytes_cuda.h"
#include "kernels/pointwise.h"

namespace tidemark {
namespace {

Bytes BytesOf(const kernels::TensorType& type) { return SizeOf(type.dtype) * type.elements; }

}  // namespace

Result<std::unique_ptr<Allocator>> Device::OwnAllocator(const AllocatorOptions&, Bytes) {
  return std::unique_ptr<Allocator>();
}

void Device::Set(std::uint32_t stream, int byte, void* at, Bytes bytes) {
  Give(stream, [=](const kernels::Queue& queue) { kernels::SetBytes(queue, byte, at, bytes); });
}

void Device::Read(std::uint32_t stream, const kernels::ConstTensor& from, double* to) {
  std::vector<std::byte> numbers(static_cast<std::size_t>(BytesOf(from.type).count()));
  Fetch(stream, from.data, numbers.data(), BytesOf(from.type));
  kernels::Copy({from.type, numbers.data()}, {{DType::fp64, from.type.elements}, to});
}

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/tensor_memory.h"

#include <cstring>

namespace tidemark {
namespace {

constexpr int kPoison = 0xff;

void Poison(const TensorMemory::Piece& piece) {
  if (piece.bytes > Bytes(0)) {
    std::memset(piece.data, kPoison, static_cast<std::size_t>(piece.bytes.count()));
  }
}

}  // namespace

std::optional<TensorMemory::Piece> TensorMemory::Allocate(Bytes bytes, std::uint32_t stream) {
  const std::optional<Allocation> allocation = allocator_->Allocate(bytes, stream);
  if (!allocation) {
    return std::nullopt;
  }
  void* data = reinterpret_cast<void*>(allocation->address);  // NOLINT(performance-no-int-to-ptr): that is what it is
  const Piece piece{data, bytes, allocation->handle};
  Poison(piece);
  return piece;
}

void TensorMemory::Free(const Piece& piece) {
  Poison(piece);
  allocator_->Free(piece.handle);
}

}  // namespace tidemark

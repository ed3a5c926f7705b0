// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "base/quantity.h"
#include "models/job/allocator_options.h"
#include "sim/memory/allocator.h"

namespace tidemark {

/// The only source of memory for tensors: an allocator over memory that can be read and written. Every byte that it
/// hands out and every byte that it takes back is 0xff, which as a floating number of any width is a NaN: what was
/// never written, or was freed too early, shows in the numbers.
class TensorMemory {
 public:
  /// `allocator` lies over real memory.
  explicit TensorMemory(std::unique_ptr<Allocator> allocator) : allocator_(std::move(allocator)) {}

  struct Piece {
    void* data = nullptr;
    Bytes bytes;  ///< as requested
    std::uint32_t handle = 0;
  };

  /// Memory for a tensor born on `stream`; empty when the device has no more.
  std::optional<Piece> Allocate(Bytes bytes, std::uint32_t stream);
  void Free(const Piece& piece);
  /// Everything that ran has ended: a step is done.
  void Synchronize() { allocator_->Synchronize(); }

  const Allocator& allocator() const { return *allocator_; }

 private:
  std::unique_ptr<Allocator> allocator_;
};

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/pool_allocator.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"

namespace tidemark {
namespace {

class PoolAllocator final : public Allocator {
 public:
  PoolAllocator(std::unique_ptr<GpuPool> pool, Device& device) : pool_(std::move(pool)), device_(device) {}
  PoolAllocator(const PoolAllocator&) = delete;
  PoolAllocator& operator=(const PoolAllocator&) = delete;
  ~PoolAllocator() override {
    for (const Piece& piece : pieces_) {
      if (piece.live && piece.bytes > Bytes()) {
        pool_->Free(piece.address, device_.StreamOf(piece.stream));
      }
    }
    device_.Synchronize();  // a pool goes when every free has come to pass
  }

  std::optional<Allocation> Allocate(Bytes request, std::uint32_t stream) override {
    TIDEMARK_CHECK(request >= Bytes());
    Piece piece{0, request, stream, true};
    if (request > Bytes()) {
      const auto address = AddressFor(request, device_.StreamOf(stream));
      if (!address) {
        return std::nullopt;
      }
      piece.address = *address;
    }
    allocated_ += request;
    ++live_;
    if (unused_.empty()) {
      unused_.push_back(static_cast<std::uint32_t>(pieces_.size()));
      pieces_.emplace_back();
    }
    const std::uint32_t handle = unused_.back();
    unused_.pop_back();
    pieces_[handle] = piece;
    return Allocation{handle, piece.address, request};
  }

  void Free(std::uint32_t handle) override { FreeOn(handle, pieces_.at(handle).stream); }
  bool frees_in_stream_order() const override { return true; }
  void FreeOn(std::uint32_t handle, std::uint32_t stream) override {
    Piece& piece = pieces_.at(handle);
    TIDEMARK_CHECK(piece.live);
    if (piece.bytes > Bytes()) {
      pool_->Free(piece.address, device_.StreamOf(stream));
    }
    piece.live = false;
    allocated_ -= piece.bytes;
    --live_;
    unused_.push_back(handle);
  }

  void Synchronize() override {
    Allocator::Synchronize();
    ++syncs_;
    pool_->Follow();
  }

  std::unique_ptr<Allocator> CopyOn(Bytes) const override {
    Fail("memory that tensors lie in cannot be copied", __FILE__, __LINE__);
  }

  Bytes allocated() const override { return allocated_; }
  Bytes allocated_peak() const override { return pool_->use().used_peak; }
  const DeviceMemory& device() const override { return *pool_; }
  std::int64_t cache_flushes() const override { return flushes_; }
  AllocatorStatistics Statistics() const override {
    AllocatorStatistics all;
    all.allocations = all.active = live_;
    all.allocated = all.active_bytes = all.requested = allocated_;
    all.reserved = reserved();
    all.alloc_retries = flushes_;
    all.ooms = ooms_;
    all.device_allocs = pool_->times_taken();
    all.device_frees = pool_->times_given();
    all.syncs = syncs_;
    return all;
  }

 private:
  struct Piece {
    std::uint64_t address = 0;
    Bytes bytes;
    std::uint32_t stream = 0;
    bool live = false;
  };

  /// What other streams have freed can be had when they have come to it. The driver may round a pool's largest size up
  /// to its pages: tensors never have more than the capacity all the same.
  std::optional<std::uint64_t> AddressFor(Bytes bytes, void* stream) {
    const bool fits = allocated_ + bytes <= pool_->capacity();
    auto address = fits ? pool_->Allocate(bytes, stream) : std::nullopt;
    if (!address) {
      ++flushes_;
      device_.Synchronize();
      pool_->Trim();
      address = fits ? pool_->Allocate(bytes, stream) : std::nullopt;
    }
    ooms_ += address ? 0 : 1;
    return address;
  }

  std::unique_ptr<GpuPool> pool_;
  Device& device_;
  std::vector<Piece> pieces_;          ///< by handle
  std::vector<std::uint32_t> unused_;  ///< handles
  Bytes allocated_;
  std::int64_t live_ = 0, flushes_ = 0, syncs_ = 0, ooms_ = 0;
};

}  // namespace

std::unique_ptr<Allocator> MakePoolAllocator(std::unique_ptr<GpuPool> pool, Device& device) {
  return std::make_unique<PoolAllocator>(std::move(pool), device);
}

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "sim/memory/allocator.h"
#include "sim/memory/chunk_heap.h"

namespace tidemark {
namespace {

constexpr std::int64_t kAlignment = 512;
constexpr Bytes kPage = Bytes(32 << 20);

/// A memory pool of cudaMallocAsync, as far as it is known.
///
/// Public: the pool counts what was asked for as used, and holds what it reserved in whole pieces of 32 MiB
/// (rapidsai/rmm#1245: used 53,514,136,688, which is what the caller counted, and reserved 84,490,059,776 = 2,518 x
/// 32 MiB). All streams share it: by default freed memory is reused across streams wherever an order is known or can be
/// made (the cudaMemPoolReuse* attributes). At a synchronisation it gives unused memory back that it holds beyond
/// cudaMemPoolAttrReleaseThreshold, by default 0 (CUDA programming guide); PyTorch's backend cudaMallocAsync sets the
/// threshold to the largest number. Rather than fail it uses unused memory elsewhere by mapping it anew (NVIDIA's blog
/// on the stream-ordered allocator), though users have seen it fail with memory left (rmm#1245, pytorch#110194).
///
/// Assumed, and confirmed on no device: blocks at multiples of 512 bytes; the smallest free block that fits, the lowest
/// of these, else the lowest place where free and unmapped room is large enough; what goes back are whole pages inside
/// free blocks, from the highest address down; mapping anew counts as a flush.
class CudaAsyncAllocator final : public Allocator {
 public:
  CudaAsyncAllocator(const AllocatorOptions& options, std::unique_ptr<DeviceMemory> device)
      : threshold_(options.release_threshold), heap_(std::move(device)) {}
  CudaAsyncAllocator(const CudaAsyncAllocator& other, Bytes capacity)
      : Allocator(other),
        threshold_(other.threshold_),
        heap_(other.heap_, capacity),
        used_(other.used_),
        used_peak_(other.used_peak_),
        flushes_(other.flushes_),
        syncs_(other.syncs_),
        ooms_(other.ooms_) {}

  std::optional<Allocation> Allocate(Bytes request, std::uint32_t) override {
    TIDEMARK_CHECK(request >= Bytes(0));
    ChunkPools& chunks = heap_.chunks;
    if (request == Bytes(0)) {
      return Allocation{chunks.CreateEmpty(kPool).index, 0, request};
    }
    const Bytes bytes = Bytes(RoundUp(request.count(), kAlignment));
    const auto found = chunks.free(kPool).lower_bound({bytes, 0, ChunkId{0}});
    ChunkId chunk = found == chunks.free(kPool).end() ? heap_.Expand(kPool, kPage, bytes) : found->chunk;
    if (!chunk.valid()) {
      ++flushes_;
      Release(Bytes(0));
      chunk = heap_.Expand(kPool, kPage, bytes);
    }
    if (!chunk.valid()) {
      ++ooms_;
      return std::nullopt;
    }
    chunks.Take(chunk);
    if (chunks[chunk].bytes > bytes) {
      chunks.Settle(chunks.Cut(chunk, bytes), Chunk::State::free);
    }
    chunks.SetRequested(chunk, request);
    used_ += request;
    used_peak_ = std::max(used_peak_, used_);
    return Allocation{chunk.index, chunks[chunk].device_address(), request};
  }

  void Free(std::uint32_t handle) override {
    TIDEMARK_CHECK(heap_.chunks.IsLive(handle));
    const ChunkId chunk{handle};
    if (heap_.chunks.DestroyIfEmpty(chunk)) {
      return;
    }
    used_ -= heap_.chunks[chunk].requested;
    heap_.chunks.Settle(chunk, Chunk::State::free);
  }

  void Synchronize() override {
    Allocator::Synchronize();
    ++syncs_;
    Release(threshold_);
  }

  std::unique_ptr<Allocator> CopyOn(Bytes capacity) const override {
    return std::make_unique<CudaAsyncAllocator>(*this, capacity);
  }

  Bytes allocated() const override { return used_; }
  Bytes allocated_peak() const override { return used_peak_; }
  const DeviceMemory& device() const override { return heap_.device(); }
  std::int64_t cache_flushes() const override { return flushes_; }
  std::vector<DeviceSegment> Segments() const override { return heap_.Segments(); }
  AllocatorStatistics Statistics() const override {
    AllocatorStatistics all = heap_.Statistics();
    all.allocated = used_;
    all.alloc_retries = flushes_;
    all.syncs = syncs_;
    all.ooms = ooms_;
    return all;
  }

 private:
  static constexpr PoolId kPool{0};

  /// Gives unused pages back until no more than `kept` is held.
  void Release(Bytes kept) {
    std::vector<ChunkId> free;
    for (const ChunkPools::Key& key : heap_.chunks.free(kPool)) {
      free.push_back(key.chunk);
    }
    const auto address = [&](ChunkId id) { return heap_.chunks[id].address; };
    std::sort(free.begin(), free.end(), [&](ChunkId a, ChunkId b) { return address(a) > address(b); });
    for (const ChunkId id : free) {
      const Bytes excess = heap_.device().taken() - kept;
      if (excess <= Bytes(0)) {
        return;
      }
      heap_.UnmapPages(id, kPage, Bytes(RoundUp(excess.count(), kPage.count())));
    }
  }

  Bytes threshold_;
  ChunkHeap heap_;
  Bytes used_, used_peak_;
  std::int64_t flushes_ = 0, syncs_ = 0, ooms_ = 0;
};

}  // namespace

std::unique_ptr<Allocator> MakeCudaAsyncAllocator(const AllocatorOptions& options,
                                                  std::unique_ptr<DeviceMemory> device) {
  return std::make_unique<CudaAsyncAllocator>(options, std::move(device));
}

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/quantity.h"

namespace tidemark {

// The heap seen from below: this program brings its own malloc and free, which ask the C library's and count. Whatever
// is linked into the process, Open MPI and the C++ library too, comes through here. (The GNU C Library Reference
// Manual, "Replacing malloc", says which functions that takes.)

/// Who asked for memory. What nobody claims is no part of a budget: it shows in the residual.
enum class HeapOwner : std::uint8_t {
  nobody,
  step_program,
  data,
  executor,
  host_tensors,
  workspace,  ///< of the kernels and Eigen
  communication,
  trace,
  verification,
  profiler,
};
inline constexpr std::size_t kHeapOwners = 10;

/// Live bytes of the heap by owner, the C library's headers of blocks included. A block counts for whoever is at work
/// when it comes and when it goes.
using HeapUse = std::array<Bytes, kHeapOwners>;

/// Whether malloc is ours: not with another C library than glibc's, nor under a sanitizer, which brings its own.
bool HeapIsCounted();
/// From now on blocks are counted, from 0.
void CountHeap();
HeapUse LiveHeap();
/// Bytes of blocks that were freed and that glibc keeps, by its own books.
Bytes HeapKept();

/// While one lives, the calling thread allocates for `owner`.
class HeapScope {
 public:
  explicit HeapScope(HeapOwner owner);
  ~HeapScope();
  HeapScope(const HeapScope&) = delete;
  HeapScope& operator=(const HeapScope&) = delete;

 private:
  HeapOwner before_;
};

/// Calls `look(context)` before the thread that began to count frees a block large enough to go back to the system:
/// memory is at its highest just before some of it goes. No function: nobody looks any more.
void BeforeLargeFrees(void (*look)(void*), void* context);

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/heap.h"

#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <utility>

namespace tidemark {
namespace {

// malloc has no argument to pass these through.
constinit std::atomic<bool> counting = false;
constinit std::array<std::atomic<std::int64_t>, kHeapOwners> live_bytes{};
constinit thread_local HeapOwner owner_now = HeapOwner::nobody;
constinit thread_local bool looks = false;
void (*look_function)(void*) = nullptr;
void* look_context = nullptr;

}  // namespace

void CountHeap() {
  for (std::atomic<std::int64_t>& bytes : live_bytes) {
    bytes = 0;
  }
  looks = true;
  counting = HeapIsCounted();
}

HeapUse LiveHeap() {
  HeapUse use;
  for (std::size_t i = 0; i < kHeapOwners; ++i) {
    use[i] = Bytes(live_bytes[i].load(std::memory_order_relaxed));
  }
  return use;
}

HeapScope::HeapScope(HeapOwner owner) : before_(std::exchange(owner_now, owner)) {}
HeapScope::~HeapScope() { owner_now = before_; }

void BeforeLargeFrees(void (*look)(void*), void* context) {
  look_function = look;
  look_context = context;
}

}  // namespace tidemark

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TIDEMARK_FOREIGN_MALLOC
#elif defined(__has_feature)  // clang's way to say the same
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define TIDEMARK_FOREIGN_MALLOC
#endif
#endif

#if defined(__GLIBC__) && !defined(TIDEMARK_FOREIGN_MALLOC)

namespace tidemark {
namespace {

constexpr std::size_t kHeader = sizeof(std::size_t);     // before each block: its size
constexpr std::size_t kLarge = std::size_t{128} * 1024;  // glibc's least M_MMAP_THRESHOLD, see mallopt(3)

void Count(void* block, int sign) {
  if (block != nullptr && counting.load(std::memory_order_relaxed)) {
    const auto bytes = static_cast<std::int64_t>(malloc_usable_size(block) + kHeader);
    live_bytes[static_cast<std::size_t>(owner_now)].fetch_add(sign * bytes, std::memory_order_relaxed);
  }
}

void* Counted(void* block) {
  Count(block, 1);
  return block;
}

void LookBefore(void* block) {
  if (look_function == nullptr || !looks || block == nullptr || malloc_usable_size(block) < kLarge) {
    return;
  }
  looks = false;  // whoever looks may free something as well
  look_function(look_context);
  looks = true;
}

}  // namespace

bool HeapIsCounted() { return true; }
Bytes HeapKept() { return Bytes(static_cast<std::int64_t>(mallinfo2().fordblks)); }

}  // namespace tidemark

// NOLINTBEGIN(bugprone-reserved-identifier): these are glibc's names
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* block, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
void __libc_free(void* block);

void* malloc(std::size_t bytes) noexcept { return tidemark::Counted(__libc_malloc(bytes)); }
void* calloc(std::size_t count, std::size_t bytes) noexcept { return tidemark::Counted(__libc_calloc(count, bytes)); }
void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
  return tidemark::Counted(__libc_memalign(alignment, bytes));
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept { return memalign(alignment, bytes); }

int posix_memalign(void** block, std::size_t alignment, std::size_t bytes) noexcept {
  if (alignment % sizeof(void*) != 0 || (alignment & (alignment - 1)) != 0 || alignment == 0) {
    return EINVAL;
  }
  void* const made = memalign(alignment, bytes);
  if (made == nullptr) {
    return ENOMEM;
  }
  *block = made;
  return 0;
}

void* realloc(void* block, std::size_t bytes) noexcept {
  tidemark::LookBefore(block);
  tidemark::Count(block, -1);
  void* const moved = __libc_realloc(block, bytes);
  tidemark::Count(moved == nullptr && bytes > 0 ? block : moved, 1);
  return moved;
}

void free(void* block) noexcept {
  tidemark::LookBefore(block);
  tidemark::Count(block, -1);
  __libc_free(block);
}
}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)

#else

namespace tidemark {

bool HeapIsCounted() { return false; }
Bytes HeapKept() { return {}; }

}  // namespace tidemark

#endif

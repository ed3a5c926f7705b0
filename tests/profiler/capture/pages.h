// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <optional>

#include "base/quantity.h"

namespace tidemark::process_memory_test {

inline constexpr std::int64_t kMiB = 1 << 20;
inline const std::int64_t kPage = sysconf(_SC_PAGESIZE);

/// Pages of its own, none of which has been touched; small ones, whatever the system would like to give.
class Pages {
 public:
  explicit Pages(std::int64_t count) : bytes_(static_cast<std::size_t>(count * kPage)) {
    data_ = static_cast<char*>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    madvise(data_, bytes_, MADV_NOHUGEPAGE);
  }
  ~Pages() { munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  char* at(std::int64_t byte) const { return data_ + byte; }
  std::uint64_t address(std::int64_t byte) const { return reinterpret_cast<std::uint64_t>(data_ + byte); }

 private:
  std::size_t bytes_;
  char* data_;
};

/// A reading of counters that the kernel keeps for each processor may be a little behind.
inline void ExpectNear(std::optional<Bytes> found, Bytes expected) {
  ASSERT_TRUE(found.has_value());
  EXPECT_NEAR(static_cast<double>(found->count()), static_cast<double>(expected.count()), kMiB);
}

}  // namespace tidemark::process_memory_test

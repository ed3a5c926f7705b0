// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/process_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "profiler/capture/heap.h"
#include "profiler/device/host_memory.h"
#include "profiler/device/tensor_memory.h"

namespace tidemark {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
const std::int64_t kPage = sysconf(_SC_PAGESIZE);

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

TEST(ProcessMemory, TellsWhichPagesAreResidentToTheByte) {
  const Pages pages(10'000);  // more than are asked for at once
  EXPECT_EQ(ResidentIn(pages.address(0), pages.address(10'000 * kPage)), Bytes(0));
  for (const std::int64_t touched : {0, 1, 5000, 9999}) {
    *pages.at(touched * kPage + 17) = 1;
  }
  EXPECT_EQ(ResidentIn(pages.address(0), pages.address(10'000 * kPage)), Bytes(4 * kPage));
  EXPECT_EQ(ResidentIn(pages.address(100), pages.address(3 * kPage)), Bytes(2 * kPage - 100));
  EXPECT_EQ(ResidentIn(pages.address(kPage + 7), pages.address(kPage + 9)), Bytes(2));
  EXPECT_EQ(ResidentIn(pages.address(2 * kPage), pages.address(5000 * kPage)), Bytes(0));
  EXPECT_EQ(ResidentIn(pages.address(7), pages.address(7)), Bytes(0));
}

// A reading of counters that the kernel keeps for each processor may be a little behind.
void ExpectNear(std::optional<Bytes> found, Bytes expected) {
  ASSERT_TRUE(found.has_value());
  EXPECT_NEAR(static_cast<double>(found->count()), static_cast<double>(expected.count()), kMiB);
}

/// What a test touches is not all: a sanitizer keeps notes on every byte.
#define SKIP_UNDER_A_SANITIZER() \
  if (!HeapIsCounted()) {        \
    GTEST_SKIP();                \
  }

TEST(ProcessMemory, IsAsMuchAsWasTouched) {
  SKIP_UNDER_A_SANITIZER();
  const Bytes now = *ResidentNow(), exactly = *ResidentExactly();
  ExpectNear(exactly, now);
  const Pages pages(64 * kMiB / kPage);
  ExpectNear(ResidentNow(), now);
  std::memset(pages.at(0), 1, 64 * kMiB);
  ExpectNear(ResidentNow(), now + Bytes(64 * kMiB));
  ExpectNear(ResidentExactly(), exactly + Bytes(64 * kMiB));
}

TEST(ProcessMemory, HasAPeakThatCanBeForgotten) {
  SKIP_UNDER_A_SANITIZER();
  const Bytes now = *ResidentNow();
  if (!ForgetResidentPeak()) {
    GTEST_SKIP() << "this kernel keeps its peaks";
  }
  ExpectNear(ReadProcessStatus()->resident_peak, now);
  std::memset(Pages(64 * kMiB / kPage).at(0), 1, 64 * kMiB);
  ExpectNear(ResidentNow(), now);
  ExpectNear(ReadProcessStatus()->resident_peak, now + Bytes(64 * kMiB));
  ForgetResidentPeak();
  ExpectNear(ReadProcessStatus()->resident_peak, now);
}

TEST(ProcessMemory, KnowsMappingsThatTellWhoseTheyAre) {
  const Mappings before = *ReadMappings();
  EXPECT_GT(before.code, Bytes(kMiB)) << "this program and the C++ library";
  EXPECT_GT(before.stack, Bytes(0));
  void* const shared = mmap(nullptr, 8 * kMiB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  std::memset(shared, 1, 3 * kMiB);
  const Pages private_pages(kMiB / kPage);
  std::memset(private_pages.at(0), 1, kMiB);
  const Mappings after = *ReadMappings();
  EXPECT_EQ(after.shared - before.shared, Bytes(3 * kMiB));
  ExpectNear(after.code, before.code);
  munmap(shared, 8 * kMiB);
}

TEST(TensorMemory, IsResidentOnceItIsHandedOutAndNotBefore) {
  SKIP_UNDER_A_SANITIZER();
  for (const AllocatorKind kind : {AllocatorKind::exact, AllocatorKind::torch_caching}) {
    AllocatorOptions options;
    options.kind = kind;
    auto device = std::make_unique<HostMemory>(Bytes(1024 * kMiB));
    HostMemory& host = *device;
    TensorMemory memory(MakeAllocator(options, std::move(device)));
    const auto resident = [&] {
      Bytes sum;
      host.ForEachMapped([&](std::uint64_t begin, std::uint64_t end) { sum += ResidentIn(begin, end); });
      return sum;
    };
    const auto untouched = host.Take(Bytes(64 * kMiB));
    EXPECT_EQ(resident(), Bytes(0));
    const Bytes now = *ResidentNow();
    const auto tensor = memory.Allocate(Bytes(64 * kMiB), 0);
    EXPECT_EQ(resident(), Bytes(64 * kMiB));
    ExpectNear(ResidentNow(), now + Bytes(64 * kMiB));
    EXPECT_EQ(memory.live_bytes(), Bytes(64 * kMiB));
    memory.Free(*tensor);
    const bool kept = kind == AllocatorKind::torch_caching;
    EXPECT_EQ(resident(), Bytes(kept ? 64 * kMiB : 0));
    EXPECT_EQ(memory.live_bytes(), Bytes(0));
    host.Give(*untouched, Bytes(64 * kMiB));
  }
}

}  // namespace
}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/process_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "tests/profiler/capture/pages.h"

namespace tidemark::process_memory_test {
namespace {

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

}  // namespace
}  // namespace tidemark::process_memory_test

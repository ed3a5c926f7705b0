// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/process_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "profiler/device/host_device.h"
#include "profiler/device/host_memory.h"
#include "profiler/device/tensor_memory.h"
#include "tests/profiler/capture/pages.h"

namespace tidemark::process_memory_test {
namespace {

TEST(ProcessMemory, IsAsMuchAsWasTouched) {
  const Bytes now = *ResidentNow(), exactly = *ResidentExactly();
  ExpectNear(exactly, now);
  const Pages pages(64 * kMiB / kPage);
  ExpectNear(ResidentNow(), now);
  std::memset(pages.at(0), 1, 64 * kMiB);
  ExpectNear(ResidentNow(), now + Bytes(64 * kMiB));
  ExpectNear(ResidentExactly(), exactly + Bytes(64 * kMiB));
}

TEST(ProcessMemory, HasAPeakThatCanBeForgotten) {
  const Bytes now = *ResidentNow();
  const bool forgets = ForgetResidentPeak();  // not every kernel does
  const Bytes before = forgets ? now : ReadProcessStatus()->resident_peak;
  ExpectNear(ReadProcessStatus()->resident_peak, before);
  std::memset(Pages(64 * kMiB / kPage).at(0), 1, 64 * kMiB);
  ExpectNear(ResidentNow(), now);
  const Bytes peak = std::max(before, now + Bytes(64 * kMiB));
  ExpectNear(ReadProcessStatus()->resident_peak, peak);
  EXPECT_EQ(ForgetResidentPeak(), forgets);
  ExpectNear(ReadProcessStatus()->resident_peak, forgets ? now : peak);
}

TEST(TensorMemory, IsResidentOnceItIsHandedOutAndNotBefore) {
  for (const AllocatorKind kind : {AllocatorKind::exact, AllocatorKind::torch_caching}) {
    AllocatorOptions options;
    options.kind = kind;
    auto device = std::make_unique<HostMemory>(Bytes(1024 * kMiB));
    HostMemory& host = *device;
    HostDevice processor;
    TensorMemory memory(MakeAllocator(options, std::move(device)), processor);
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
}  // namespace tidemark::process_memory_test

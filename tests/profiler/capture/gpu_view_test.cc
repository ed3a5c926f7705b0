// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/gpu_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "profiler/capture/gpu_records.h"
#include "profiler/device/gpu_management.h"
#include "profiler/device/tensor_memory.h"
#include "sim/memory/allocator.h"
#include "tests/profiler/capture/built_capture.h"
#include "tests/profiler/device/fake_gpu_device.h"

namespace tidemark::gpu_view_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Bytes kMiB(1 << 20);
constexpr Nanos kContextMade(1'000), kLater(2'000), kInAnAge(INT64_MAX);

int Fine() { return 0; }
int Find(const char*, void**) { return 0; }
int Memory(void*, ManagementCalls::Memory*) { return 0; }
template <unsigned kCount>
int Processes(void*, unsigned* count, void*) {
  *count = kCount;
  return 0;
}

GpuMemoryRecord Came(Bytes bytes, Nanos at, const std::string& source) {
  static std::uint64_t next = 1;  // far below what the driver hands out
  GpuMemoryRecord record;
  record.address = next += 0x1000;
  record.bytes = bytes;
  record.at = at;
  record.source = source;
  return record;
}

/// One rank on a GPU of 4 GiB: 100 MiB are used by nobody of ours, and 300 MiB by the context.
class Rank {
 public:
  explicit Rank(AllocatorOptions options = {}) : options_(std::move(options)) {
    Take(kMiB * 400);
    gpu.own_books() = {kMiB * 100, kMiB * 300, kContextMade, {}, {}, {}};
    gpu.Manage(*GpuManagement::Over({Fine, Find, Memory, Processes<1>}, ""));
    watch.capture = &capture;
  }

  void Watch() {
    std::unique_ptr<Allocator> own = *gpu.OwnAllocator(options_, kMiB * 4096);
    memory = std::make_unique<TensorMemory>(
        own == nullptr ? MakeAllocator(options_, gpu.MemoryOf(kMiB * 4096)) : std::move(own), gpu);
    view = WatchGpu(gpu, watch)(*memory);
  }
  /// As a library does, behind the allocator.
  void Take(Bytes bytes) { ASSERT_TRUE(gpu.fake().Allocate(bytes).has_value()); }
  TensorMemory::Piece Tensor(Bytes bytes) { return *memory->Allocate(bytes, 0); }

  FakeGpuDevice gpu{kMiB * 4096};
  BuiltCapture capture;
  GpuWatch watch;
  std::unique_ptr<TensorMemory> memory;
  std::unique_ptr<OutsideView> view;

 private:
  AllocatorOptions options_;
};

/// Everybody takes something.
void Fill(Rank& rank) {
  rank.Watch();
  rank.Take(kMiB * 34);
  rank.gpu.own_books().workspace = kMiB * 34;
  rank.Take(kMiB * 8);
  rank.gpu.own_books().rooms = kMiB * 8;
  rank.Take(kMiB * (64 + 4 + 6 + 2 + 12));
  rank.capture.records.memory = {
      Came(kMiB * 50, kContextMade, "/usr/lib/libnccl.so.2"),  // is the context's
      Came(kMiB * 60, kLater, "/usr/lib/libnccl.so.2"),       Came(kMiB * 4, kLater, "/usr/lib/libcublasLt.so.13"),
      Came(kMiB * 6, kLater, "/usr/lib/libcudnn.so.9"),       Came(kMiB * 2, kLater, "/usr/lib/libcupti.so.13"),
      Came(kMiB * 70, kInAnAge, "/usr/lib/libnccl.so.2")};
  rank.capture.records.virtual_memory = {
      {GpuVirtualMemoryRecord::Call::create, 7, 0, kMiB * 4, kLater, "/usr/lib/libnccl.so.2"}};
  rank.gpu.own_books().code = {{kLater - Nanos(1), kLater - Nanos(1), kMiB * 8},
                               {kLater + Nanos(1), kLater + Nanos(2), kMiB * 4},
                               {kLater, kInAnAge, kMiB * 100}};  // after the budget
  rank.Tensor(Bytes(3'000'000));                                 // 5,860 times 512 bytes, in a segment of 20 MiB
  rank.Tensor(kMiB * 24 + Bytes(1));                             // 512 bytes more than 24 MiB, in one of 26 MiB
}

TEST(GpuView, ClosesABudgetWhosePartsAddUp) {
  Rank rank;
  Fill(rank);
  const Budget budget = rank.view->Close(3);
  EXPECT_EQ(budget.rank, 3);
  EXPECT_THAT(budget.reasons, IsEmpty());
  const Bytes tensors = Bytes(3'000'000) + kMiB * 24 + Bytes(1), rounding(5'860 * 512 - 3'000'000 + 511);
  EXPECT_EQ(budget[BudgetPart::tensors], tensors);
  EXPECT_EQ(budget[BudgetPart::rounding], rounding);
  EXPECT_EQ(budget[BudgetPart::cached], kMiB * (20 + 26) - tensors - rounding);
  EXPECT_EQ(budget[BudgetPart::communication], kMiB * 64);
  EXPECT_EQ(budget[BudgetPart::workspace], kMiB * (34 + 4 + 6));
  EXPECT_EQ(budget[BudgetPart::executor], kMiB * 8);
  EXPECT_EQ(budget[BudgetPart::context], kMiB * 300);
  EXPECT_EQ(budget[BudgetPart::modules], kMiB * 12);
  EXPECT_EQ(budget[BudgetPart::profiler], kMiB * 2);
  EXPECT_EQ(budget.parts.size(), 9U);
  EXPECT_EQ(budget.used, kMiB * (20 + 26 + 64 + 34 + 4 + 6 + 8 + 300 + 12 + 2)) << "without the 100 MiB of others";
  EXPECT_EQ(budget.residual(), Bytes());
}

TEST(GpuView, CountsTensorsInExpandableSegments) {
  Rank rank({.expandable_segments = true});
  Fill(rank);
  const Budget budget = rank.view->Close(0);
  EXPECT_THAT(budget.reasons, IsEmpty());
  EXPECT_EQ(budget[BudgetPart::tensors], Bytes(3'000'000) + kMiB * 24 + Bytes(1));
  EXPECT_EQ(budget.residual(), Bytes());
}

// A pool says how much it has and how much of that is used; where, it does not say.
TEST(GpuView, CountsThePoolOfCudaMallocAsync) {
  Rank rank({.kind = AllocatorKind::cuda_async});
  Fill(rank);
  rank.memory->Free(rank.Tensor(kMiB * 40));
  rank.Tensor(kMiB * 2);
  const Budget budget = rank.view->Close(0);
  EXPECT_THAT(budget.reasons, IsEmpty());
  const Bytes tensors = Bytes(3'000'000) + kMiB * (24 + 2) + Bytes(1);  // with 40 MiB more at most: 3 pages of 32 MiB
  EXPECT_EQ(budget[BudgetPart::tensors], tensors);
  EXPECT_EQ(budget[BudgetPart::rounding], Bytes());
  EXPECT_EQ(budget[BudgetPart::cached], kMiB * 96 - tensors);
  EXPECT_EQ(budget.residual(), Bytes());
}

// What was freed before the budget is closed is still the pool's: its records are nobody else's memory.
TEST(GpuView, KnowsThePoolsRecords) {
  Rank rank({.kind = AllocatorKind::cuda_async});
  rank.Watch();
  const TensorMemory::Piece piece = rank.Tensor(kMiB * 10);
  rank.memory->Free(piece);
  GpuMemoryRecord record = Came(kMiB * 10, kLater, "/usr/lib/libnccl.so.2");
  record.address = reinterpret_cast<std::uint64_t>(piece.data);
  record.from_pool = true;
  record.pool_bytes = kMiB * 32;
  rank.capture.records.memory = {record};
  const Budget budget = rank.view->Close(0);
  EXPECT_EQ(budget[BudgetPart::communication], Bytes());
  EXPECT_EQ(budget.residual(), Bytes());
}

// A library that allocates when it first multiplies: its records tell how much of what the driver took that was.
TEST(GpuView, CountsALibrarysMemoryOnce) {
  Rank rank;
  Fill(rank);
  rank.Take(kMiB * 32);
  rank.capture.records.memory.push_back(Came(kMiB * 30, kLater + Nanos(20), "/usr/lib/libcublasLt.so.13"));
  // A room that the executor makes in the same call is a room, and no library's.
  rank.capture.records.memory.push_back(Came(kMiB * 5, kLater + Nanos(21), "/opt/tidemark"));
  rank.gpu.own_books().rooms += kMiB * 5;
  rank.Take(kMiB * 5);
  rank.gpu.own_books().code.push_back({kLater + Nanos(10), kLater + Nanos(30), kMiB * 32});
  const Budget budget = rank.view->Close(0);
  EXPECT_EQ(budget[BudgetPart::workspace], kMiB * (34 + 4 + 6 + 30));
  EXPECT_EQ(budget[BudgetPart::modules], kMiB * (12 + 2));
  EXPECT_EQ(budget.residual(), Bytes());
}

TEST(GpuView, FindsWhatIsHiddenBehindTheAllocator) {
  Rank rank;
  Fill(rank);
  rank.Take(kMiB * 64);
  const Budget budget = rank.view->Close(0);
  EXPECT_EQ(budget.residual(), kMiB * 64);
  EXPECT_THAT(budget.reasons, ElementsAre(HasSubstr("64.0 MiB of what is used of the GPU have no known source")));
}

// It is our own call that takes it, of which records do not say for whom.
TEST(GpuView, CountsMessagesOnTheirWayAsCommunication) {
  Rank rank;
  rank.watch.staging = [] { return kMiB * 24; };
  Fill(rank);
  rank.Take(kMiB * 24);
  const Budget budget = rank.view->Close(0);
  EXPECT_EQ(budget[BudgetPart::communication], kMiB * (64 + 24));
  EXPECT_EQ(budget.residual(), Bytes());
}

// What is counted and not used shows as well.
TEST(GpuView, FindsPartsThatAreNotThere) {
  Rank rank;
  Fill(rank);
  rank.gpu.own_books().rooms += kMiB * 64;
  const Budget budget = rank.view->Close(0);
  EXPECT_EQ(budget.residual(), kMiB * -64);
  EXPECT_THAT(budget.reasons, ElementsAre(HasSubstr("the parts count 64.0 MiB more than is used of the GPU")));
}

TEST(GpuView, TakesTheBudgetWhenMostIsUsed) {
  Rank rank({.kind = AllocatorKind::exact});
  rank.Watch();
  const TensorMemory::Piece large = rank.Tensor(kMiB * 100);
  rank.memory->Free(large);
  rank.Tensor(kMiB * 10);
  const Budget budget = rank.view->Close(0);
  EXPECT_EQ(budget[BudgetPart::tensors], kMiB * 100);
  EXPECT_EQ(budget.used, kMiB * 400);
  EXPECT_THAT(budget.reasons, IsEmpty());
}

TEST(GpuView, AsksTheDriverOnlyWhereMoreIsTakenThanEver) {
  Rank rank;
  rank.Watch();
  for (int i = 0; i < 100; ++i) {
    rank.memory->Free(rank.Tensor(kMiB * 40));
  }
  EXPECT_EQ(rank.gpu.fake().times_asked(), 1);
  rank.Tensor(kMiB * 40);
  rank.Tensor(kMiB * 40);
  EXPECT_EQ(rank.gpu.fake().times_asked(), 2);
  rank.view->Close(0);
  EXPECT_EQ(rank.gpu.fake().times_asked(), 3);
}

TEST(GpuView, DoubtsRecordsThatAreNotWhole) {
  Rank rank;
  Fill(rank);
  rank.capture.records.dropped = 3;
  rank.capture.records.without_times = 2;
  EXPECT_THAT(rank.view->Close(0).reasons,
              ElementsAre(HasSubstr("CUPTI dropped 3 records"), HasSubstr("2 records have no times")));
}

// What libraries took is then in the residual, and their parts are not known instead of 0.
TEST(GpuView, SaysWhatItDoesNotKnowBesideAnotherProfiler) {
  Rank rank;
  rank.capture.other_profiler = "another profiler is attached";
  Fill(rank);
  const Budget budget = rank.view->Close(0);
  for (const BudgetPart part : {BudgetPart::communication, BudgetPart::profiler}) {
    EXPECT_EQ(budget.parts.at(part), std::nullopt) << Key(part);
  }
  EXPECT_EQ(budget[BudgetPart::workspace], kMiB * 34) << "what we gave is known";
  EXPECT_EQ(budget[BudgetPart::modules], kMiB * 12) << "the driver counts it";
  EXPECT_EQ(budget.residual(), kMiB * (64 + 4 + 6 + 2));
  EXPECT_THAT(budget.reasons,
              ElementsAre(HasSubstr("another profiler is attached: the budget rests on the allocator's"),
                          HasSubstr("no known source")));
}

TEST(GpuView, SaysWhatItDoesNotKnowWithoutCupti) {
  Rank rank;
  rank.watch.capture = nullptr;
  rank.watch.without_capture = "CUPTI is not installed";
  rank.Watch();
  const Budget budget = rank.view->Close(0);
  EXPECT_EQ(budget.parts.at(BudgetPart::communication), std::nullopt);
  EXPECT_EQ(budget.residual(), Bytes());
  EXPECT_THAT(budget.reasons, ElementsAre(HasSubstr("CUPTI is not installed: the budget rests on")));
}

TEST(GpuView, LeavesOutAContextThatNobodyMeasured) {
  Rank rank;
  rank.gpu.own_books() = {kMiB * 400, std::nullopt, kContextMade, {}, {}, {}};
  rank.Watch();
  rank.Tensor(kMiB * 40);
  const Budget budget = rank.view->Close(0);
  EXPECT_EQ(budget.parts.at(BudgetPart::context), std::nullopt);
  EXPECT_EQ(budget.used, kMiB * 40);
  EXPECT_THAT(budget.reasons, ElementsAre(HasSubstr("does not tell what the context takes")));
}

TEST(GpuView, DoubtsAGpuThatItsRankDoesNotHaveAlone) {
  Rank rank;
  rank.gpu.Manage(*GpuManagement::Over({Fine, Find, Memory, Processes<2>}, ""));
  rank.Watch();
  EXPECT_THAT(rank.view->Close(0).reasons,
              ElementsAre(HasSubstr("2 processes use the GPU, and 1 of them is of this run")));
  Rank two;
  two.gpu.Manage(*GpuManagement::Over({Fine, Find, Memory, Processes<2>}, ""));
  two.watch.ranks_on_gpu = 2;
  two.Watch();
  EXPECT_THAT(two.view->Close(0).reasons, ElementsAre(HasSubstr("2 ranks share the GPU")));
}

}  // namespace
}  // namespace tidemark::gpu_view_test

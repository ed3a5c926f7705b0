// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/process_view.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "profiler/capture/heap.h"
#include "profiler/device/host_device.h"
#include "tests/profiler/execute/executed_job.h"

namespace tidemark::process_view_test {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

/// Logits of 2048 tokens in 16384 words are 64 MiB in bf16 and 128 MiB in fp32, and so is their gradient: 384 MiB at
/// least, with little arithmetic.
Job WideJob() {
  Job job = SmallJob("ddp-last");
  auto& decoder = std::get<Decoder>(job.network.shape);
  decoder.layers = 1;
  decoder.vocabulary = 16384;
  job.sequence_length = 1024;
  job.accumulation_steps = 1;
  return job;
}

/// One rank, at whose beginning somebody takes memory behind the allocator.
class SlyWorld final : public World {
 public:
  enum class Hides : std::uint8_t { nothing, pages, heap };
  explicit SlyWorld(Hides hides) : hides_(hides) {}
  ~SlyWorld() override {
    if (pages_ != nullptr) {
      munmap(pages_, kHidden);
    }
  }

  std::int64_t rank() const override { return 0; }
  std::int64_t size() const override { return 1; }
  std::int64_t ranks_here() const override { return 1; }
  Result<std::unique_ptr<Communicator>> Split(std::int64_t colour) override {
    if (hides_ == Hides::pages && pages_ == nullptr) {
      pages_ = mmap(nullptr, kHidden, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      std::memset(pages_, 1, kHidden);
    } else if (hides_ == Hides::heap) {
      heap_.assign(kHidden, 1);
    }
    return alone_->Split(colour);
  }
  double Highest(double value) override { return value; }
  double Sum(double value) override { return value; }
  std::vector<std::string> GatherTexts(const std::string& text) override { return {text}; }
  void Abort(int exit_code) override { alone_->Abort(exit_code); }

 private:
  static constexpr std::size_t kHidden = 64 * kMiB;

  Hides hides_;
  std::unique_ptr<World> alone_ = MakeSingleWorld();
  void* pages_ = nullptr;
  std::vector<char> heap_;
};

RunOutcome Watched(const Job& job, SlyWorld::Hides hides) {
  CountHeap();
  const auto lowered = [&] {
    const HeapScope scope(HeapOwner::step_program);
    return LoweredSteps(job, 1);
  }();
  SlyWorld world(hides);
  HostDevice processor;
  auto run = RunSteps(job, lowered.steps(), {.device = &processor, .watch = WatchProcess(processor)}, world);
  EXPECT_TRUE(run.ok());
  return std::move(*run);
}

TEST(ProcessView, ClosesTheBudgetOfALargeJobWithinTwoPercent) {
  const RunOutcome run = Watched(WideJob(), SlyWorld::Hides::nothing);
  const Budget& budget = *run.budget;
  EXPECT_EQ(budget.reasons, std::vector<std::string>{});
  EXPECT_GT(budget.used, Bytes(384 * kMiB));
  EXPECT_LT(std::abs(static_cast<double>(budget.residual().count())), 0.02 * static_cast<double>(budget.used.count()));
  // The largest part is counted by its own source: it is what the trace says at some event.
  std::int64_t live = 0;
  bool found = false;
  for (const MemoryEvent& event : run.trace.memory) {
    const std::int64_t bytes = run.trace.tensors[event.tensor.index].bytes.count();
    live += event.alloc ? bytes : -bytes;
    found = found || Bytes(live) == budget[BudgetPart::tensors];
  }
  EXPECT_TRUE(found);
  const Bytes device = budget[BudgetPart::tensors] + budget[BudgetPart::rounding] + budget[BudgetPart::cached];
  EXPECT_LE(device, run.mapped_peak);
  EXPECT_GT(device, Bytes(384 * kMiB));
}

TEST(ProcessView, FindsWhatIsHiddenBehindTheAllocator) {
  const Bytes usual = Watched(SmallJob("ddp-last"), SlyWorld::Hides::nothing).budget->residual();
  for (const auto hides : {SlyWorld::Hides::pages, SlyWorld::Hides::heap}) {
    const Budget budget = *Watched(SmallJob("ddp-last"), hides).budget;
    const Bytes found = budget.residual() - usual;
    EXPECT_NEAR(static_cast<double>(found.count()), 64 * kMiB, 2 * kMiB);
    ASSERT_FALSE(budget.reasons.empty());
    EXPECT_NE(budget.reasons.front().find("no known source"), std::string::npos) << budget.reasons.front();
  }
}

TEST(ProcessView, ClosesTheBudgetUnderEveryAllocator) {
  for (const AllocatorKind kind :
       {AllocatorKind::exact, AllocatorKind::torch_caching, AllocatorKind::arena, AllocatorKind::cuda_async}) {
    Job job = SmallJob("ddp-last");
    job.allocator.kind = kind;
    const Budget budget = *Watched(job, SlyWorld::Hides::nothing).budget;
    EXPECT_EQ(budget.reasons, std::vector<std::string>{});
    if (kind == AllocatorKind::exact) {
      EXPECT_EQ(budget[BudgetPart::cached], Bytes(0)) << "it keeps nothing";
    }
  }
}

}  // namespace
}  // namespace tidemark::process_view_test

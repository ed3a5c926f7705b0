// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/annotations.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/profiler/capture/announced.h"
#include "tests/profiler/capture/expect_announced.h"
#include "tests/profiler/execute/executed_job.h"

namespace tidemark::annotations_test {
namespace {

class ToldAnnotations final : public Annotations {
 public:
  void Begin(const Annotation& what) override {
    Announced& one = Add(Announced::Kind::push);
    one.name = what.name;
    one.category = what.phase ? Name(*what.phase) : "step";
    one.payload = what.microbatch;
  }
  void End() override { Add(Announced::Kind::pop); }
  void HeapComes(std::uint64_t address, Bytes bytes) override { Add(Announced::Kind::heap, address, bytes); }
  void HeapGoes(std::uint64_t address) override { Add(Announced::Kind::heap_gone, address); }
  void RegionComes(std::uint64_t address, Bytes bytes) override { Add(Announced::Kind::region, address, bytes); }
  void RegionGoes(std::uint64_t address) override { Add(Announced::Kind::region_gone, address); }
  void NameRegion(std::uint64_t address, std::string_view name) override {
    Add(Announced::Kind::region_name, address).name = name;
  }

  std::vector<Announced> all;

 private:
  Announced& Add(Announced::Kind kind, std::uint64_t address = 0, Bytes bytes = {}) {
    Announced& one = all.emplace_back();
    one.kind = kind;
    one.address = address;
    one.bytes = bytes.count();
    return one;
  }
};

TEST(Annotations, tellWhatTheTraceTells) {
  ToldAnnotations told;
  const RunOutcome run = Executed(SmallJob("fsdp2-scatter-each"), 2, {.annotations = &told});
  ExpectRangesOf(run.trace, told.all);
  ExpectRegionsOf(run.trace, told.all);
}

/// There a heap is addresses, of which pages come and go.
TEST(Annotations, takeARangeOfAddressesForAHeap) {
  Job job = SmallJob("ddp-last");
  job.allocator.expandable_segments = true;
  ToldAnnotations told;
  const RunOutcome run = Executed(job, 1, {.annotations = &told});
  ExpectRegionsOf(run.trace, told.all);
}

TEST(Annotations, areClosedWhereMemoryRunsOut) {
  const Job job = SmallJob("ddp-last");
  const Bytes enough = Executed(job, 1).reserved_peak;
  ToldAnnotations told;
  const LoweredSteps lowered(job, 1);
  const auto run = RunAlone(job, lowered.steps(), {.capacity = enough - Bytes(1), .annotations = &told});
  ASSERT_TRUE(run.ok());
  ASSERT_TRUE(run->ran_out);
  std::int64_t depth = 0;
  for (const Announced& one : told.all) {
    depth += one.kind == Announced::Kind::push ? 1 : one.kind == Announced::Kind::pop ? -1 : 0;
    EXPECT_GE(depth, 0);
  }
  EXPECT_EQ(depth, 0);
}

}  // namespace
}  // namespace tidemark::annotations_test

// SPDX-License-Identifier: Apache-2.0
#include "sim/program/idle_buffers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "models/job/read.h"
#include "sim/matrix/features.h"
#include "sim/predict/kept_buffers.h"
#include "sim/program/text.h"
#include "sim/program/walk.h"
#include "sim/strategies/strategy.h"
#include "tests/base/sanitizer.h"
#include "tests/sim/oracle_job.h"
#include "tests/sim/sound_program.h"

namespace tidemark::idle_buffers_test {
namespace {

/// A role with buffers of 8 bytes each: of the model `act[2]` and `next`, besides `grad` and `bucket`.
Program Step(std::string_view lines) {
  constexpr std::string_view kHeader = R"(role 0 "stage 0", 1 ranks
streams:
  host host
  main compute
buffers:
  act[2] activation 8 u8 born on main
  next activation 8 u8 born on main
  grad gradient 8 u8 born on main
  bucket bucket 8 u8 born on main
  slot bucket 4 u8 view of bucket
program:
)";
  Result<Program> program = ParseProgram(std::string(kHeader) + std::string(lines));
  EXPECT_TRUE(program.ok()) << program.error().Text();
  return program ? *program : Program{};
}

TEST(IdleBuffers, WhatIsFreedRightBehindItsLastUseIsNotIdle) {
  EXPECT_TRUE(FindIdle(Step(R"(  alloc act[0]
  compute make pointwise() on main writes act[0]
  compute use pointwise() on main reads act[0]
  free act[0]
)"))
                  .empty());
}

TEST(IdleBuffers, OneKernelLaterItIsFound) {
  const std::vector<IdleBuffers> found = FindIdle(Step(R"(  alloc next
  begin backward
  alloc act[0]
  compute use pointwise() on main reads act[0]
  compute later pointwise() on main writes next
  free act[0]
  free next
  end backward
)"));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found.front().families, (std::vector<BufferId>{{0}}));
  EXPECT_EQ(found.front().buffers, 1);
  EXPECT_EQ(found.front().most, Bytes(8));
  EXPECT_EQ(found.front().operations, 1);
  EXPECT_EQ(found.front().last_used_by, "use");
  EXPECT_EQ(found.front().freed_in, Phase::backward);
}

TEST(IdleBuffers, AnActivationMayWaitForTheHooksOfAGradientAndABucketMayNot) {
  const std::vector<IdleBuffers> found = FindIdle(Step(R"(  alloc act[0]
  alloc grad
  alloc bucket
  compute use pointwise() on main reads act[0], bucket writes grad
  compute hook pointwise() on main reads grad writes grad
  free act[0]
  free bucket
  free grad
)"));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found.front().families, (std::vector<BufferId>{{3}}));
}

TEST(IdleBuffers, AViewIsAUseOfWhatItViews) {
  const std::string make = "  alloc bucket\n  compute make pointwise() on main writes bucket\n  alloc grad\n";
  const std::string look = "  compute look pointwise() on main reads slot\n";
  const std::string other = "  compute other pointwise() on main writes grad\n";
  EXPECT_TRUE(FindIdle(Step(make + other + look + "  free bucket\n")).empty());
  const std::vector<IdleBuffers> found = FindIdle(Step(make + look + other + "  free bucket\n"));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found.front().families, (std::vector<BufferId>{{3}}));
  EXPECT_EQ(found.front().last_used_by, "look");
}

TEST(IdleBuffers, BytesCountThatAreIdleAtOnce) {
  const std::string use0 = "  alloc act[0]\n  compute first pointwise() on main reads act[0]\n";
  const std::string use1 = "  alloc act[1]\n  compute second pointwise() on main reads act[1]\n";
  const std::string other = "  compute other pointwise() on main reads next\n";
  const std::string free0 = "  free act[0]\n", free1 = "  free act[1]\n", next = "  alloc next\n";
  const auto overlapping = FindIdle(Step(next + use0 + use1 + other + free0 + free1));
  ASSERT_EQ(overlapping.size(), 1U);
  EXPECT_EQ(overlapping.front().most, Bytes(16));
  EXPECT_EQ(overlapping.front().buffers, 2);
  EXPECT_EQ(overlapping.front().operations, 2);
  const auto disjoint = FindIdle(Step(next + use0 + other + free0 + use1 + other + free1));
  ASSERT_EQ(disjoint.size(), 1U);
  EXPECT_EQ(disjoint.front().most, Bytes(8));
  EXPECT_EQ(disjoint.front().buffers, 2);
}

TEST(IdleBuffers, FamiliesOfAGroupAreToldAsOne) {
  const Program step = Step(R"(  alloc act[0]
  alloc grad
  compute use pointwise() on main reads act[0], grad
  alloc next
  compute other pointwise() on main writes next
  free act[0]
  free grad
)");
  EXPECT_EQ(FindIdle(step).size(), 2U);
  const auto grouped = FindIdle(step, [](BufferId) { return std::size_t{7}; });
  ASSERT_EQ(grouped.size(), 1U);
  EXPECT_EQ(grouped.front().families, (std::vector<BufferId>{{0}, {2}}));
  EXPECT_EQ(grouped.front().most, Bytes(16));
}

TEST(IdleBuffers, WhatOutlivesTheStepIsNotLookedAt) {
  EXPECT_TRUE(FindIdle(Step(R"(  alloc grad
  compute use pointwise() on main writes grad
  compute other pointwise() on main
)"))
                  .empty());
}

TEST(IdleClaims, AClaimIsOfWholeNames) {
  const IdleClaim claim{{"gradient of *", "*.norm gradient", "bucket"}, "held"};
  for (const char* name : {"gradient of layer.wq", "stage 3 gradient of layer.wq", "head.norm gradient", "bucket"}) {
    EXPECT_TRUE(claim.Names(name)) << name;
  }
  for (const char* name : {"flat gradient of layer.wq", "gradient", "second bucket", "bucket slot", "stage bucket"}) {
    EXPECT_FALSE(claim.Names(name)) << name;
  }
}

/// The step unrolled, with the first free of an activation in a backward pass moved to the pass's end.
struct LateFree {
  Program step;
  std::string buffer;
};

LateFree MakeLateFree(const Program& program) {
  LateFree late{Unroll(program), {}};
  std::vector<Node>& nodes = late.step.nodes;
  std::optional<std::size_t> moved;
  Phase phase = Phase::load;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (const auto* begin = std::get_if<Begin>(&nodes[i])) {
      phase = begin->phase;
    }
    const auto* free = std::get_if<Free>(&nodes[i]);
    const Buffer* buffer = free == nullptr ? nullptr : &late.step.buffers[free->buffer.buffer.index];
    if (!moved && phase == Phase::backward && buffer != nullptr && buffer->category == Category::activation) {
      moved = i;
      late.buffer = buffer->name;
    }
    if (moved && std::holds_alternative<End>(nodes[i])) {
      const auto at = nodes.begin() + static_cast<std::ptrdiff_t>(*moved);
      std::rotate(at, at + 1, nodes.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    }
  }
  return late;
}

TEST(IdleClaims, AFreeThatIsMovedToTheEndOfItsPhaseIsFoundAndNotClaimed) {
  for (const char* name : {"ddp-last", "fsdp2-defer"}) {
    const StepProgram step = Sound(OracleJob(name, 2));
    const Strategy strategy = *FindStrategy(name);
    const std::vector<KeptBuffers> before = FindKept(step, strategy);
    ASSERT_FALSE(before.empty()) << name;
    EXPECT_FALSE(before.front().why.empty()) << name << ": " << before.front().buffers;
    const LateFree late = MakeLateFree(step.roles.front());
    const std::vector<KeptBuffers> kept = FindKept({{late.step}}, strategy);
    ASSERT_EQ(kept.size(), before.size() + 1) << name;
    EXPECT_EQ(kept.front().buffers, late.buffer) << name;
    EXPECT_EQ(kept.front().why, "") << name;
    EXPECT_EQ(kept.front().freed_in, Phase::backward) << name;
    EXPECT_GT(kept.front().bytes, Bytes()) << name;
  }
}

Result<Job> SmallJob(const std::string& text, const Strategy& strategy, std::vector<std::string> set,
                     const std::vector<StrategyDefaults>& known) {
  set.insert(set.begin(), "strategy=" + strategy.defaults.name);
  return ParseJob(text, "matrix", {set, "tidemark"}, known);
}

/// The first of the matrix's small jobs that the strategy accepts, as it is and with each way of each feature.
std::vector<Job> SmallJobs(const Strategy& strategy, const std::vector<StrategyDefaults>& known) {
  const std::vector<std::string>& texts = ReadMatrixData().jobs;
  const auto accepted = std::find_if(texts.begin(), texts.end(),
                                     [&](const std::string& text) { return SmallJob(text, strategy, {}, known).ok(); });
  // What takes two features at once is added.
  std::vector<std::vector<std::string>> ways = {
      {},
      {"layout.tp=2", "layout.sp=true", "recompute.policy=full"},
      {"layout.tp=2", "layout.sp=true", "layout.pp=2", "layout.vpp=2", "schedule=interleaved"},
      {"precision.params=fp16", "precision.gradients=fp16", "precision.accumulate=bf16", "precision.reduce=bf16"},
      {"network.experts.count=8", "network.experts.ffn=1408", "network.experts.shared_ffn=256",
       "network.experts.router_fp32=true", "layout.ep=2", "layout.tp=2", "layout.sp=true"},
      {"network.experts.count=8", "network.experts.ffn=1408", "network.experts.dispatcher=all-gather",
       "network.experts.router_fp32=true", "layout.ep=2"},
      {"layout.dp=3"},
      {"layout.dp=1", "layout.tp=2"},
      {"layout.dp=3", "loss=chunked", "sync.overlap_gather=true"},
      {"layout.dp=3", "loss=fused", "precision.params=fp32"},
      {"layout.dp=3", "loss=chunked", "precision.params=fp32"},
      {"layout.dp=1", "optimizer_step.offload=true", "precision.params=fp32", "precision.gradients=fp32"}};
  for (const Feature& feature : ReadMatrixData().features) {
    ways.insert(ways.end(), feature.ways.begin(), feature.ways.end());
  }
  std::vector<Job> jobs;
  for (std::size_t way = 0; way < ways.size(); way += kSanitized ? 10 : 1) {
    if (const Result<Job> job = SmallJob(*accepted, strategy, ways[way], known)) {
      jobs.push_back(*job);
    }
  }
  return jobs;
}

using Pattern = std::pair<std::string_view, std::string_view>;  ///< and why

std::set<Pattern> AllPatterns() {
  std::set<Pattern> patterns;
  for (const Strategy& strategy : AllStrategies()) {
    for (const IdleClaim& claim : strategy.IdleClaims()) {
      for (const std::string_view buffers : claim.buffers) {
        patterns.emplace(buffers, claim.why);
      }
    }
  }
  return patterns;
}

/// Takes the pattern that names the buffer from `unused`. False where nothing does.
bool Claimed(const std::vector<IdleClaim>& claims, std::string_view buffer, std::set<Pattern>& unused) {
  for (const IdleClaim& claim : claims) {
    for (const std::string_view pattern : claim.buffers) {
      if (IdleClaim{{pattern}, {}}.Names(buffer)) {
        unused.erase({pattern, claim.why});
        return true;
      }
    }
  }
  return false;
}

TEST(IdleClaims, EveryIdleBufferIsClaimedAndEveryClaimIsNeeded) {
  const std::vector<StrategyDefaults> known = KnownStrategies();
  std::set<Pattern> unused = AllPatterns();
  for (const Strategy& strategy : AllStrategies()) {
    const std::vector<IdleClaim> claims = strategy.IdleClaims();
    for (const Job& job : SmallJobs(strategy, known)) {
      for (const StepKind kind : {StepKind::first, StepKind::steady}) {
        const Result<StepProgram> step = Lower(job, kind);
        ASSERT_TRUE(step.ok()) << step.error().Text();
        for (const Program& role : step->roles) {
          for (const IdleBuffers& idle : FindIdle(role)) {
            const std::string& name = role.buffers[idle.families.front().index].name;
            EXPECT_TRUE(Claimed(claims, name, unused)) << strategy.defaults.name << ": " << name;
          }
        }
      }
    }
  }
  for (const Pattern& pattern : kSanitized ? std::set<Pattern>() : unused) {
    ADD_FAILURE() << "no small job keeps " << pattern.first << ": " << pattern.second;
  }
}

}  // namespace
}  // namespace tidemark::idle_buffers_test

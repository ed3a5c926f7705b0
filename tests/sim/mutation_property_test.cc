// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/lower/lower.h"
#include "sim/program/text.h"
#include "sim/program/verify.h"
#include "sim/program/walk.h"
#include "tests/sim/dice.h"
#include "tests/sim/oracle_job.h"
#include "tests/sim/sound_program.h"
#include "tests/sim/symbol_machine.h"

// Correct programs are broken in one place, and what they then compute is found out by running them: symbols for
// numbers, streams that proceed in any order that the waits allow. Whatever changes a value must be a finding.

namespace tidemark::mutation_property_test {
namespace {

void Erase(Flat& flat, std::size_t at) {
  flat.program.nodes.erase(flat.program.nodes.begin() + static_cast<std::ptrdiff_t>(at));
  flat.ids.erase(flat.ids.begin() + static_cast<std::ptrdiff_t>(at));
}

void Swap(Flat& flat, std::size_t a, std::size_t b) {
  std::swap(flat.program.nodes[a], flat.program.nodes[b]);
  std::swap(flat.ids[a], flat.ids[b]);
}

/// The nodes for which `is` holds, one of them; nothing where there is none.
template <class Is>
std::optional<std::size_t> Pick(const Flat& flat, Dice& dice, Is is) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < flat.program.nodes.size(); ++i) {
    if (is(flat.program.nodes[i])) {
      found.push_back(i);
    }
  }
  return found.empty() ? std::nullopt : std::optional(found[dice.Roll(static_cast<std::uint32_t>(found.size()))]);
}

bool DropWait(Flat& flat, Dice& dice) {
  const auto at = Pick(flat, dice, [](const Node& node) {
    return std::holds_alternative<Wait>(node) || std::holds_alternative<HostSync>(node);
  });
  if (at) {
    Erase(flat, *at);
  }
  return at.has_value();
}

bool FreeEarly(Flat& flat, Dice& dice) {
  const auto at = Pick(flat, dice, [](const Node& node) { return std::holds_alternative<Free>(node); });
  if (!at) {
    return false;
  }
  const std::size_t by = std::min<std::size_t>(*at, 1 + dice.Roll(30));
  for (std::size_t i = *at; i > *at - by; --i) {
    Swap(flat, i, i - 1);
  }
  return true;
}

/// Makes one buffer another name for the memory of a second one that is at least as large.
bool Alias(Flat& flat, Dice& dice) {
  std::vector<Buffer>& buffers = flat.program.buffers;
  const std::uint32_t alias = dice.Roll(static_cast<std::uint32_t>(buffers.size()));
  const std::uint32_t base = dice.Roll(static_cast<std::uint32_t>(buffers.size()));
  const Buffer& of = buffers[base];
  Buffer& buffer = buffers[alias];
  const bool is_base = std::any_of(buffers.begin(), buffers.end(), [&](const Buffer& view) {
    return view.base.index == alias ||
           std::ranges::any_of(view.slices, [&](const BufferSlice& slice) { return slice.of.index == alias; });
  });
  if (alias == base || is_base || buffer.is_view() || of.is_view() || buffer.count() != 1 || of.count() != 1 ||
      buffer.resident || buffer.kept || buffer.bytes() > of.bytes()) {
    return false;
  }
  for (std::size_t i = flat.program.nodes.size(); i-- > 0;) {
    const auto* born = std::get_if<Alloc>(&flat.program.nodes[i]);
    const auto* dead = std::get_if<Free>(&flat.program.nodes[i]);
    if ((born != nullptr && born->buffer.buffer.index == alias) ||
        (dead != nullptr && dead->buffer.buffer.index == alias)) {
      Erase(flat, i);
    }
  }
  buffer.base = BufferId{base};
  buffer.stream = of.stream;
  return true;
}

/// What a node does. What flies beside it changes no value.
std::string TextOf(const Program& program, Node node) {
  if (auto* compute = std::get_if<Compute>(&node)) {
    compute->beside = {};
  } else if (auto* collective = std::get_if<Collective>(&node)) {
    collective->flight = {};
  }
  return Print(program, node);
}

/// Two different operations that write to one pool change places.
bool SwapWrites(Flat& flat, Dice& dice) {
  const auto writes_view = [&](const Node& node) {
    bool found = false;
    ForEachAccess(node, [&](const BufferRef& ref, Access access) {
      found |= access == Access::write && flat.program.buffers[ref.buffer.index].is_view();
    });
    return found;
  };
  const auto a = Pick(flat, dice, writes_view), b = Pick(flat, dice, writes_view);
  if (!a || !b || TextOf(flat.program, flat.program.nodes[*a]) == TextOf(flat.program, flat.program.nodes[*b])) {
    return false;
  }
  Swap(flat, *a, *b);
  return true;
}

Job SmallJob(const char* strategy) {
  Job job = OracleJob(strategy, 2);
  if (auto* decoder = std::get_if<Decoder>(&job.network.shape)) {
    decoder->layers = 1;
  } else {
    auto& towers = std::get<DualEncoder>(job.network.shape);
    towers.first.layers = towers.second.layers = 1;
  }
  return job;
}

/// The same on two tensor-parallel ranks.
Job Gathering(const char* strategy, Buffers::TpGather gather) {
  Job job = SmallJob(strategy);
  job.layout.tp = 2;
  job.layout.sp = true;
  job.axes.buffers.tp_gather = gather;
  return job;
}

/// Of every family of strategies and every mechanism, at least one.
std::vector<Job> Jobs() {
  using TpGather = Buffers::TpGather;
  std::vector<Job> jobs = {Gathering("nanotron", TpGather::pooled), Gathering("nanotron", TpGather::async),
                           Gathering("megatron", TpGather::pooled), Gathering("megatron-dist-opt", TpGather::pooled)};
  for (const char* strategy : {"fsdp2-scatter-each", "fsdp2-defer", "ddp-last", "deepspeed-zero2", "fsdp1",
                               "colossalai-zero2", "alpa", "alpa-style1", "jax-scan", "jax-multisteps", "gradcache",
                               "single-backward", "deepspeed-zero0", "deepspeed-zero1", "deepspeed-bf16",
                               "deepspeed-coalesce", "deepspeed-zero3", "colossalai-zero1", "colossalai-gemini"}) {
    jobs.push_back(SmallJob(strategy));
  }
  jobs.push_back(SmallJob("hsdp"));
  jobs.back().axes.shard.replicas = 2;
  jobs.push_back(SmallJob("megatron-dist-opt"));
  jobs.back().axes.precision.accumulate = jobs.back().axes.precision.reduce = DType::bf16;
  jobs.back().axes.sync.fp32_accumulation = true;
  return jobs;
}

class Mutation : public testing::Test {
 protected:
  /// Breaks one place of a job's program, again and again, until `enough` of the breaks changed a value.
  template <class Mutate>
  void Break(const Job& job, int enough, Mutate mutate) {
    constexpr int kMostRounds = 1500;
    const Flat right = Flatten(Sound(job).roles.front());
    Dice dice(11);
    const SymbolMachine::Log log = SymbolMachine(right, dice, true).Run();
    EXPECT_FALSE(Changes(right, log, dice)) << job.strategy << " is not the same in every order";
    int changed = 0;
    for (int round = 0; round < kMostRounds && changed < enough; ++round) {
      Flat flat = right;
      if (!mutate(flat, dice) || !Changes(flat, log, dice)) {
        continue;
      }
      ++changed;
      EXPECT_FALSE(Verify({{flat.program}}).empty()) << job.strategy << ", round " << round;
    }
    EXPECT_EQ(changed, enough) << job.strategy << ": too few mutations changed a value";
  }

  template <class Mutate>
  void BreakEach(int enough, Mutate mutate) {
    for (const Job& job : Jobs()) {
      Break(job, enough, mutate);
    }
  }
};

TEST_F(Mutation, ProgramsOfEveryFamilyOfStrategiesAreBroken) {
  std::set<std::string> broken;
  for (const Job& job : Jobs()) {
    broken.insert(job.strategy);
  }
  for (const std::vector<Strategy>& family : StrategyFamilies()) {
    EXPECT_TRUE(std::any_of(family.begin(), family.end(), [&](const Strategy& one) {
      return broken.contains(one.defaults.name);
    })) << family.front().defaults.name;
  }
}

TEST_F(Mutation, AWaitThatIsMissedIsFound) { BreakEach(Rounds(15), DropWait); }

TEST_F(Mutation, AFreeThatComesTooEarlyIsFound) { BreakEach(Rounds(40), FreeEarly); }

TEST_F(Mutation, TwoLiveBuffersInOneMemoryAreFound) { BreakEach(Rounds(15), Alias); }

TEST_F(Mutation, WritesToOnePoolThatChangePlacesAreFound) {
  for (const char* strategy : {"nanotron", "megatron", "megatron-dist-opt"}) {
    Break(Gathering(strategy, Buffers::TpGather::pooled), Rounds(30), SwapWrites);
  }
}

}  // namespace
}  // namespace tidemark::mutation_property_test

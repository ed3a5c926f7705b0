// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "sim/program/text.h"
#include "sim/program/verify.h"
#include "tests/sim/offloaded_job.h"
#include "tests/sim/sound_program.h"

// What Verify says of host memory, by programs of FSDP2's CPUOffloadPolicy that something is left out of.

namespace tidemark::host_memory_rules_test {
namespace {

std::vector<std::string> RulesBroken(const StepProgram& step) {
  std::vector<std::string> rules;
  for (const Finding& finding : Verify(step)) {
    rules.emplace_back(Name(finding.rule));
  }
  return rules;
}

/// Of one role, written out: `changed` the way that `change` does it to its nodes.
template <class Change>
std::vector<std::string> RulesBrokenBy(const Job& job, Change change) {
  Program program = Unroll(Sound(job).roles.front());
  change(program);
  return RulesBroken({{program}});
}

/// Leaves out what writes a buffer of this name under this name.
auto Without(const std::string& name, const std::string& buffer) {
  return [=](Program& program) {
    const auto goes = [&](const auto& leaf) {
      if constexpr (requires { leaf.name, leaf.writes; }) {
        return program.names[leaf.name.index] == name && !leaf.writes.empty() &&
               program.buffers[leaf.writes.front().buffer.index].name == buffer;
      }
      return false;
    };
    EXPECT_EQ(std::erase_if(program.nodes, [&](const Node& node) { return std::visit(goes, node); }), 1U) << buffer;
  };
}

// What of a unit's gradients is one parameter's is in that parameter's buffer, and in no other.
TEST(HostMemoryRules, EachGradientReachesItsParameter) {
  using Rules = std::vector<std::string>;
  const std::string head = "sharded gradient of head.lm_head";
  EXPECT_EQ(RulesBrokenBy(Offloaded("fsdp2-scatter-each", 2), [](Program&) {}), Rules());
  EXPECT_EQ(RulesBrokenBy(Offloaded("fsdp2-scatter-each", 1), Without("sharded gradient to host", head)),
            Rules{"read_before_write"});
  EXPECT_EQ(RulesBrokenBy(Offloaded("fsdp2-scatter-each", 2), Without("add sharded gradient", head)),
            Rules{"lost_gradient"});
}

// A pooler's block is called "encoder.pool".
TEST(HostMemoryRules, ABlockWhoseNameHasADotIsNoParameter) {
  for (const char* strategy : {"deepspeed-zero3", "fsdp2-scatter-each"}) {
    Job job = Offloaded(strategy, 1);
    Decoder encoder = std::get<Decoder>(job.network.shape);
    encoder.causal = false;
    job.network.shape = DualEncoder{encoder, encoder, true, encoder.hidden, 1};
    EXPECT_EQ(RulesBroken(Sound(job)), std::vector<std::string>()) << strategy;
  }
}

TEST(HostMemoryRules, TheHostKnowsOfCopiesOnlyWhatItWaitedFor) {
  for (const std::int64_t microbatches : {1, 2}) {
    const std::vector<std::string> rules =
        RulesBrokenBy(Offloaded("fsdp2-scatter-each", microbatches), [](Program& program) {
          std::erase_if(program.nodes, [](const Node& node) { return std::holds_alternative<HostSync>(node); });
        });
    EXPECT_EQ(std::count(rules.begin(), rules.end(), "unordered_access"), std::ssize(rules));
    EXPECT_FALSE(rules.empty());
  }
}

/// A step of a host that updates a shard of two parameters, of which it brings `brought` to the device before.
std::vector<std::string> RulesOfAHost(const std::string& brought, const std::string& kept = ", resident, kept") {
  std::string text = "role 0 \"only\", 1 ranks\nstreams:\n  host host\n  main compute\nbuffers:\n";
  for (const char* name : {"a.w", "b.w"}) {
    text += fmt::format("  \"shard of {}\" parameter 4 fp32 born on host, host memory{}\n", name, kept);
    text += fmt::format("  \"brought {}\" bucket 4 fp32 born on main\n", name);
  }
  text += "program:\n";
  for (const char name : brought) {
    text += fmt::format(
        "  alloc \"brought {0}.w\"\n  copy \"to device\" 16 bytes on main reads \"shard of {0}.w\" "
        "writes \"brought {0}.w\"\n  free \"brought {0}.w\"\n",
        name);
  }
  text +=
      "  sync device\n  optimizer \"optimizer update\" optimizer_update(elements=8, bytes_moved=8) on host reads "
      "\"shard of a.w\", \"shard of b.w\" writes \"shard of a.w\", \"shard of b.w\"\n";
  const Result<Program> program = ParseProgram(text);
  EXPECT_TRUE(program.ok()) << program.error().Text();
  return program.ok() ? RulesBroken({{*program}}) : std::vector<std::string>();
}

// Of an update that writes shards each must be copied to the device, by the next step at the latest.
TEST(HostMemoryRules, WhatTheNextStepDoesNotBringIsLost) {
  EXPECT_EQ(RulesOfAHost("ab"), std::vector<std::string>());
  EXPECT_EQ(RulesOfAHost("a"), std::vector<std::string>{"lost_update"});
  EXPECT_EQ(RulesOfAHost(""), std::vector<std::string>{"lost_update"});
}

TEST(HostMemoryRules, ACollectiveOfTheHostsMemoryTouchesNoOther) {
  Job job = Offloaded("fsdp2-scatter-each", 1);
  job.axes.optimizer_step.clip_norm = 1;
  StepProgram step = Sound(job);
  Program& program = step.roles.front();
  const auto device = std::find_if(program.buffers.begin(), program.buffers.end(), [](const Buffer& buffer) {
    return buffer.place == Place::device && buffer.count() == 1;
  });
  for (Node& node : program.nodes) {
    auto* collective = std::get_if<Collective>(&node);
    if (collective != nullptr && program.names[collective->name.index] == "reduce norm") {
      collective->reads = {{BufferId{static_cast<std::uint32_t>(device - program.buffers.begin())}, {}}};
    }
  }
  const std::vector<std::string> rules = RulesBroken(step);
  EXPECT_EQ(std::count(rules.begin(), rules.end(), "wrong_place"), 1);
}

}  // namespace
}  // namespace tidemark::host_memory_rules_test

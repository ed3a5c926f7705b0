// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "sim/program/text.h"
#include "tests/sim/oracle_job.h"
#include "tests/sim/sound_program.h"

// Verify follows products of factors, so it accepts 1/N in the wrong place. Where each system puts it, for N = 4:
// before the sum, while gradients are copied or in the bucket; behind it; or inside the collective.

namespace tidemark::division_by_ranks_test {
namespace {

/// The factor that a node multiplies gradients by.
std::optional<Rational> FactorOf(const Node& node) {
  if (const auto* compute = std::get_if<Compute>(&node)) {
    return compute->scale;
  }
  const auto* scale = std::get_if<Scale>(&node);
  return scale == nullptr ? std::nullopt : std::optional(scale->factor);
}

/// In issue order: "/N" for a multiplication by 1/4, "sum" and "avg" for collectives that reduce; each once where it
/// repeats.
std::string DivisionsAndSums(const std::string& strategy, std::int64_t replicas) {
  Job job = OracleJob(strategy, 1);
  job.axes.shard.replicas = replicas;
  std::vector<std::string> words;
  const auto add = [&](const char* word) {
    if (words.empty() || words.back() != word) {
      words.emplace_back(word);
    }
  };
  for (const Node& node : Unroll(Sound(job).roles.front()).nodes) {
    const auto* collective = std::get_if<Collective>(&node);
    if (FactorOf(node) == Rational(1, 4)) {
      add("/N");
    } else if (collective != nullptr && collective->reduction != Reduction::none) {
      EXPECT_EQ(collective->scale, Rational(1)) << strategy;
      add(collective->reduction == Reduction::avg ? "avg" : "sum");
    }
  }
  return words.size() < 2 ? words.at(0) : words.at(0) + " " + words.at(1);
}

TEST(DivisionByRanks, StandsWhereEachSystemPutsIt) {
  const auto expect = [](const char* places, const std::vector<std::string>& strategies) {
    for (const std::string& strategy : strategies) {
      EXPECT_EQ(DivisionsAndSums(strategy, 1), places) << strategy;
    }
  };
  expect("/N sum", {"ddp-last", "ddp-every", "colossalai-ddp", "colossalai-zero1", "colossalai-zero2",
                    "deepspeed-zero1", "deepspeed-zero2", "deepspeed-coalesce", "deepspeed-zero3"});
  expect("sum /N", {"deepspeed-zero0", "deepspeed-bf16", "colossalai-gemini"});
  expect("avg", {"fsdp2-scatter-each", "fsdp2-defer", "nanotron"});
}

}  // namespace
}  // namespace tidemark::division_by_ranks_test

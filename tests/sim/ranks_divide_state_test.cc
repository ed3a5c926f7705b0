// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "sim/lower/lower.h"
#include "sim/program/verify.h"
#include "tests/sim/oracle_job.h"

namespace tidemark::ranks_divide_state_test {
namespace {

constexpr std::int64_t kParameters = 110'633'984;  // of the worked model

std::int64_t MomentBytes(const Program& program) {
  Bytes sum;
  for (const Buffer& buffer : program.buffers) {
    const bool is_moment = buffer.category == Category::optimizer && buffer.name.find("moment") != std::string::npos;
    sum += is_moment ? buffer.bytes() * buffer.count() : Bytes();
  }
  return sum.count();
}

Program ProgramOf(const Job& job, std::int64_t rank) {
  Result<StepProgram> step = Lower(job, StepKind::steady, {}, rank);
  EXPECT_TRUE(step.ok()) << step.error().Text();
  for (const Finding& finding : Verify(*step)) {
    // A rank whose part of a chunk is padding alone updates nothing there, and has no moments of it.
    EXPECT_TRUE(rank > 0 && finding.rule == Finding::Rule::lost_gradient) << rank << ": " << finding.message;
    EXPECT_LT(MomentBytes(step->roles.front()), MomentBytes(Lower(job, StepKind::steady)->roles.front()));
  }
  return std::move(step->roles.front());
}

/// Of all collectives, in order: ranks that do not agree on them hang.
std::vector<std::tuple<CollectiveKind, std::int64_t>> ExchangesOf(const Program& program) {
  std::vector<std::tuple<CollectiveKind, std::int64_t>> exchanges;
  for (const Node& node : program.nodes) {
    if (const auto* leaf = std::get_if<Collective>(&node)) {
      exchanges.emplace_back(leaf->kind, leaf->payload_elements);
    }
  }
  return exchanges;
}

class PaddedState : public testing::TestWithParam<std::string> {};

// Each number of the model has two fp32 moments, on one rank; the padding at the end of what is divided has none, so
// that the last rank keeps less than the first.
TEST_P(PaddedState, IsDividedSoThatEveryNumberIsUpdatedOnOneRank) {
  Job job = OracleJob(GetParam(), 2);
  job.layout.dp = 3;
  std::int64_t sum = 0;
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    sum += MomentBytes(ProgramOf(job, rank));
  }
  EXPECT_EQ(sum, 8 * kParameters);
  EXPECT_LT(MomentBytes(ProgramOf(job, 2)), MomentBytes(ProgramOf(job, 0)));
}

TEST_P(PaddedState, IsExchangedAlikeByAllRanks) {
  const Job job = OracleJob(GetParam(), 2);
  EXPECT_EQ(ExchangesOf(ProgramOf(job, 0)), ExchangesOf(ProgramOf(job, 3)));
}

INSTANTIATE_TEST_SUITE_P(Sim, PaddedState, testing::Values("megatron-dist-opt", "colossalai-gemini"),
                         [](const auto& strategy) {
                           return strategy.param.starts_with("megatron") ? std::string("megatron") : "gemini";
                         });

}  // namespace
}  // namespace tidemark::ranks_divide_state_test

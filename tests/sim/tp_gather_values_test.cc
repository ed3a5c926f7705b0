// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "sim/predict/lints.h"
#include "tests/sim/oracle_job.h"

namespace tidemark::tp_gather_values_test {
namespace {

using TpGather = Buffers::TpGather;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr TpGather kAll[] = {TpGather::fresh, TpGather::pooled, TpGather::cached, TpGather::async,
                             TpGather::pooled_unsafe};

Job Gathering(const std::string& strategy, TpGather gather, std::int64_t tp = 2, bool scattered = true) {
  Job job = OracleJob(strategy, 2);
  job.layout.tp = tp;
  job.layout.sp = scattered;
  job.axes.shard.replicas = strategy == "hsdp" ? 2 : job.axes.shard.replicas;
  job.axes.buffers.tp_gather = gather;
  return job;
}

std::vector<TpGather> Accepted(const std::string& strategy) {
  std::vector<TpGather> values;
  for (const TpGather gather : kAll) {
    if (FindStrategy(strategy)->Accept(Gathering(strategy, gather)).ok()) {
      values.push_back(gather);
    }
  }
  return values;
}

// nanotron: tp_recompute_allgather, its absence before, tp_linear_async_communication and the first pool. Megatron-LM:
// the global memory buffer. DTensor: a tensor of its own for every gather, which autograd keeps.
TEST(TpGather, ValuesAreThoseOfTheSystem) {
  EXPECT_THAT(Accepted("nanotron"), testing::ElementsAreArray(kAll));
  for (const char* name : {"megatron", "megatron-dist-opt"}) {
    EXPECT_THAT(Accepted(name), ElementsAre(TpGather::pooled)) << name;
  }
  for (const char* name :
       {"fsdp2-scatter-each", "fsdp2-defer", "fsdp2-keep-after-backward", "fsdp2-keep-all", "hsdp"}) {
    EXPECT_THAT(Accepted(name), ElementsAre(TpGather::fresh, TpGather::cached)) << name;
  }
  EXPECT_THAT(Accepted("ddp-last"), ElementsAre(TpGather::fresh));
}

TEST(TpGather, AsynchronousLinearsNeedScatteredRows) {
  const Strategy nanotron = *FindStrategy("nanotron");
  EXPECT_FALSE(nanotron.Accept(Gathering("nanotron", TpGather::async, 2, false)).ok());
  EXPECT_TRUE(nanotron.Accept(Gathering("nanotron", TpGather::async, 1, false)).ok());
}

std::string Remark(const Job& job) {
  for (const Lint& lint : LintJob(job)) {
    if (lint.id == "gather-without-effect") {
      return lint.message;
    }
  }
  return {};
}

TEST(TpGather, WhatIsSetWithoutEffectIsPointedOut) {
  for (const TpGather gather : {TpGather::fresh, TpGather::cached, TpGather::async, TpGather::pooled_unsafe}) {
    EXPECT_THAT(Remark(Gathering("nanotron", gather, 1, false)), HasSubstr("one tensor-parallel rank"));
    EXPECT_EQ(Remark(Gathering("nanotron", gather)), "");
  }
  EXPECT_THAT(Remark(Gathering("nanotron", TpGather::cached, 2, false)), HasSubstr("without sequence parallelism"));
  EXPECT_THAT(Remark(Gathering("fsdp2-defer", TpGather::cached, 1, false)), HasSubstr("one tensor-parallel rank"));
  EXPECT_EQ(Remark(Gathering("nanotron", TpGather::pooled, 1, false)), "");  // as it is by itself
  EXPECT_EQ(Remark(Gathering("megatron", TpGather::pooled, 2, false)), "");
}

}  // namespace
}  // namespace tidemark::tp_gather_values_test

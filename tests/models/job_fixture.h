// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "models/job/read.h"

namespace tidemark {

/// Two strategies of no real system: `plain` with the defaults of the axes, `pooled` whose defaults differ from them.
inline std::vector<StrategyDefaults> TestStrategies() {
  StrategyDefaults plain;
  plain.name = "plain";
  plain.keys = {"sync.first_bucket_bytes"};
  StrategyDefaults pooled;
  pooled.name = "nanotron";
  pooled.axes.sync.when = Sync::When::last;
  pooled.axes.buffers.tp_gather = Buffers::TpGather::pooled;
  pooled.axes.packing = {true, true};
  pooled.axes.precision.master = DType::fp32;
  pooled.sp_with_tp = true;
  pooled.refuse = [](const Job& job) -> Status {
    if (job.axes.sync.when == Sync::When::every) {
      return Error{ErrorCode::bad_input, "sync.when", "nanotron synchronises last", {}};
    }
    return Done{};
  };
  return {plain, pooled};
}

/// A small job that is right; `extra` lines follow from line 12 on.
inline std::string SmallJob(const std::string& extra = {}) {
  return "network:\n"
         "  layers: 4\n"
         "  hidden: 1024\n"
         "  ffn: 2816\n"
         "  heads: 16\n"
         "  kv_heads: 4\n"
         "  vocabulary: 32000\n"
         "machine: h100-sxm-80gb\n"
         "strategy: plain\n"
         "sequence_length: 2048\n"
         "micro_batch_size: 2\n" +
         extra;
}

inline Result<Job> Parse(const std::string& text, const std::vector<std::string>& set = {}) {
  const std::vector<StrategyDefaults> strategies = TestStrategies();
  return ParseJob(text, "runs/job.yaml", {set, std::nullopt}, strategies);
}

/// The error of a text that must be refused.
inline std::string Refusal(const std::string& text, const std::vector<std::string>& set = {}) {
  const Result<Job> job = Parse(text, set);
  EXPECT_FALSE(job.ok()) << text;
  if (job.ok()) {
    return {};
  }
  EXPECT_EQ(job.error().code, ErrorCode::bad_input);
  return job.error().Text();
}

inline Job MustParse(const std::string& text, const std::vector<std::string>& set = {}) {
  Result<Job> job = Parse(text, set);
  EXPECT_TRUE(job.ok()) << job.error().Text();
  return job.ok() ? *std::move(job) : Job{};
}

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
// Windows of attention: which layers have one, and that ranks that share layers have the gradients of one that has all.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/profiler/execute/own_programs.h"

namespace tidemark::sliding_window_test {
namespace {

Decoder& DecoderOf(Job& job) { return std::get<Decoder>(job.network.shape); }

struct Windowed {
  std::string name;
  std::string strategy = "ddp-last";
  std::function<void(Job&)> change = [](Job&) {};

  friend std::ostream& operator<<(std::ostream& out, const Windowed& w) { return out << w.name; }
};

/// Of four layers that see three tokens, but for the third.
Job JobOf(const Windowed& windowed) {
  Job job = SmallJob(windowed.strategy);
  Decoder& decoder = DecoderOf(job);
  decoder.layers = 4;
  decoder.sliding_window = 3;
  decoder.full_attention_every = 3;
  windowed.change(job);
  return job;
}

const std::vector<Windowed> kWindowed = {
    {"one_rank"},
    {"single_operations", "ddp-last",
     [](Job& job) { DecoderOf(job).attention_kernel = Decoder::AttentionKernel::eager; }},
    {"latent", "ddp-last",
     [](Job& job) {
       Decoder& d = DecoderOf(job);
       d.kv_heads = d.heads;
       d.latent = {.kv_lora_rank = 20, .q_lora_rank = 24, .rope_head_size = 4, .value_head_size = 10};
     }},
    {"again", "ddp-last", [](Job& job) { job.axes.recompute.policy = Recompute::Policy::full; }},
    {"tensor_parallel", "megatron", [](Job& job) { job.layout.tp = 2; }},
    {"stages", "megatron", [](Job& job) { job.layout.pp = 2; }},
    {"chunks_of_stages", "megatron",
     [](Job& job) {
       job.layout.pp = 2;
       job.layout.vpp = 2;
       job.schedule = Schedule::interleaved;
     }},
    {"ring_in_which_it_hides_nothing", "ddp-last",
     [](Job& job) {
       DecoderOf(job).sliding_window = job.sequence_length;
       job.layout.cp = 2;
     }},
    {"sharded_but_for_the_last", "fsdp2-defer",
     [](Job& job) {
       job.layout.dp = 2;
       job.axes.shard.gathered_layers = 1;
     }},
};

class SlidingWindow : public testing::TestWithParam<Windowed> {};

TEST_P(SlidingWindow, GradientsAreThoseOfOneRank) {
  const Job job = JobOf(GetParam());
  ExpectGradientsByEveryKernel(Reference(OneBatch(job), 1, Exact()), job);
}

TEST_P(SlidingWindow, AllocatesWhatWasPredictedEventByEvent) { ExpectPredictedEvents(JobOf(GetParam())); }

INSTANTIATE_TEST_SUITE_P(Layouts, SlidingWindow, testing::ValuesIn(kWindowed),
                         [](const auto& tested) { return tested.param.name; });

constexpr double kRounding = 1e-14;  // of sums of products of about 1

/// Layers whose queries learn something.
std::vector<std::int64_t> LearningQueries(const Job& job) {
  std::vector<std::int64_t> layers;
  for (const auto& [parameter, parts] : Reference(OneBatch(job), 1, Exact()).gradients) {
    const bool moves = std::any_of(parts.begin(), parts.end(), [](const auto& part) {
      return std::any_of(part.second.begin(), part.second.end(),
                         [](double value) { return std::abs(value) > kRounding; });
    });
    if (parameter.first.ends_with("layer.wq") && moves) {
      layers.push_back(parameter.second);
    }
  }
  std::sort(layers.begin(), layers.end());
  return layers;
}

// A token that sees itself alone weighs its own value by 1, whatever its query and key are.
TEST(SlidingWindow, OfOneTokenLeavesQueriesNothingToLearn) {
  for (const auto kernel : {Decoder::AttentionKernel::flash, Decoder::AttentionKernel::eager}) {
    Job job = JobOf({"", "ddp-last", [kernel](Job& one) {
                       DecoderOf(one).sliding_window = 1;
                       DecoderOf(one).attention_kernel = kernel;
                     }});
    EXPECT_EQ(LearningQueries(job), std::vector<std::int64_t>{2});
    DecoderOf(job).full_attention_every = 0;
    EXPECT_EQ(LearningQueries(job), std::vector<std::int64_t>());
    DecoderOf(job).sliding_window = 0;
    EXPECT_EQ(LearningQueries(job), (std::vector<std::int64_t>{0, 1, 2, 3}));
  }
}

TEST(SlidingWindow, IsCountedThroughLayersOfAllKinds) {
  Job job = JobOf({"", "ddp-last", [](Job& one) {
                     DecoderOf(one).sliding_window = 1;
                     DecoderOf(one).experts = {.count = 4, .per_token = 2, .ffn = 48, .dense_layers = 2};
                   }});
  EXPECT_EQ(LearningQueries(job), std::vector<std::int64_t>{2});
  DecoderOf(job).full_attention_every = 2;
  EXPECT_EQ(LearningQueries(job), (std::vector<std::int64_t>{1, 3}));
}

}  // namespace
}  // namespace tidemark::sliding_window_test

// SPDX-License-Identifier: Apache-2.0
// Norms of what attention and the feed-forward part make: what they do to a step, and that ranks that share a layer
// have the gradients of one that has it all.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ostream>
#include <vector>

#include "tests/profiler/execute/own_programs.h"

namespace tidemark::norm_placement_test {
namespace {

using Placement = Decoder::NormPlacement;

struct Placed {
  Placement placement = Placement::both;
  const char* strategy = "ddp-last";
  std::int64_t dp = 1, tp = 1, cp = 1;
  bool sp = false;
  bool eager = false;
  bool over_all_heads = false;
  bool experts = false;
  Recompute::Policy recompute = Recompute::Policy::none;
  bool feed_forward_again = false;
  bool biases = false;  ///< and LayerNorm

  friend std::ostream& operator<<(std::ostream& out, const Placed& p) {
    return out << fmt::format("{} {} dp {} tp {} cp {} sp {} eager {} all heads {} experts {} again {} {} biases {}",
                              static_cast<int>(p.placement), p.strategy, p.dp, p.tp, p.cp, p.sp, p.eager,
                              p.over_all_heads, p.experts, static_cast<int>(p.recompute), p.feed_forward_again,
                              p.biases);
  }
};

Decoder& DecoderOf(Job& job) { return std::get<Decoder>(job.network.shape); }

Job JobOf(const Placed& p) {
  Job job = SmallJob(p.strategy);
  Decoder& decoder = DecoderOf(job);
  decoder.norm_placement = p.placement;
  decoder.norm_kernel = p.eager ? Decoder::NormKernel::eager_fp32_weight : Decoder::NormKernel::fused;
  if (p.over_all_heads) {
    decoder.qk_norm = true;
    decoder.qk_norm_over = Decoder::QkNormOver::all_heads;
  }
  if (p.biases) {
    decoder.norm = Decoder::Norm::layer;
    decoder.qkv_bias = decoder.linear_bias = true;
  }
  if (p.experts) {
    decoder.experts = {.count = 4, .per_token = 2, .ffn = 48};
  }
  job.axes.recompute.policy = p.recompute;
  job.axes.recompute.feed_forward = p.feed_forward_again;
  job.layout.dp = p.dp;
  job.layout.tp = p.tp;
  job.layout.cp = p.cp;
  job.layout.sp = p.sp;
  return job;
}

const std::vector<Placed> kPlaced = {
    {},
    {.placement = Placement::outputs},
    {.placement = Placement::outputs, .eager = true, .over_all_heads = true},
    {.placement = Placement::outputs, .cp = 2},
    {.experts = true},
    {.placement = Placement::outputs, .recompute = Recompute::Policy::full},
    {.strategy = "megatron", .recompute = Recompute::Policy::selective, .feed_forward_again = true},
    {.placement = Placement::outputs, .strategy = "megatron", .tp = 2, .sp = true},
    {.strategy = "megatron", .tp = 2, .recompute = Recompute::Policy::per_op},
    {.placement = Placement::outputs, .strategy = "nanotron", .tp = 2, .sp = true},
    {.strategy = "megatron", .tp = 2, .biases = true},
    {.placement = Placement::outputs, .strategy = "nanotron", .tp = 2},
    {.placement = Placement::outputs, .strategy = "fsdp2-defer", .dp = 2, .eager = true, .over_all_heads = true},
    {.placement = Placement::outputs, .strategy = "deepspeed-zero3", .dp = 2},
};

class NormPlacement : public testing::TestWithParam<Placed> {};

TEST_P(NormPlacement, GradientsAreThoseOfOneRank) {
  const Job job = JobOf(GetParam());
  Job fused = OneBatch(job);
  DecoderOf(fused).norm_kernel = Decoder::NormKernel::fused;
  ExpectGradientsByEveryKernel(Reference(fused, 1, Exact()), job);
}

TEST_P(NormPlacement, AllocatesWhatWasPredictedEventByEvent) { ExpectPredictedEvents(JobOf(GetParam())); }

INSTANTIATE_TEST_SUITE_P(Layouts, NormPlacement, testing::ValuesIn(kPlaced));

}  // namespace
}  // namespace tidemark::norm_placement_test

// SPDX-License-Identifier: Apache-2.0
// Multi-latent attention: that ranks with some of the heads have the gradients of one that has all, and that a head's
// key has what it should in its parts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "tests/profiler/execute/own_programs.h"

namespace tidemark::latent_attention_test {
namespace {

Decoder& DecoderOf(Job& job) { return std::get<Decoder>(job.network.shape); }

struct Latent {
  const char* strategy = "ddp-last";
  std::int64_t dp = 1, tp = 1, cp = 1;
  bool sp = false;
  bool query_rank = true, fused_rope = true, views = false;
  bool eager_norms = false, heads_again = false;
  Recompute::Policy recompute = Recompute::Policy::none;

  friend std::ostream& operator<<(std::ostream& out, const Latent& l) {
    return out << fmt::format("{} dp {} tp {} cp {} sp {} q {} rope {} views {} eager {} heads {} again {}", l.strategy,
                              l.dp, l.tp, l.cp, l.sp, l.query_rank, l.fused_rope, l.views, l.eager_norms, l.heads_again,
                              static_cast<int>(l.recompute));
  }
};

Job JobOf(const Latent& l) {
  Job job = SmallJob(l.strategy);
  Decoder& d = DecoderOf(job);
  d.kv_heads = d.heads;
  d.head_size = 12;
  d.latent = {.kv_lora_rank = 20, .q_lora_rank = l.query_rank ? 24 : 0, .rope_head_size = 4, .value_head_size = 10};
  d.norm_kernel = l.eager_norms ? Decoder::NormKernel::eager : Decoder::NormKernel::fused;
  job.axes.buffers.fused_rope = l.fused_rope;
  job.axes.buffers.latent_value_views = l.views;
  job.axes.recompute.policy = l.recompute;
  if (l.heads_again) {
    job.axes.recompute = {.policy = Recompute::Policy::selective, .attention = l.eager_norms, .latent_heads = true};
  }
  job.layout.dp = l.dp;
  job.layout.tp = l.tp;
  job.layout.cp = l.cp;
  job.layout.sp = l.sp;
  return job;
}

const std::vector<Latent> kLatent = {
    {},
    {.query_rank = false, .fused_rope = false},
    {.fused_rope = false, .views = true, .eager_norms = true},
    {.cp = 2},
    {.tp = 2, .cp = 2, .fused_rope = false, .views = true},
    {.tp = 2, .recompute = Recompute::Policy::full},
    {.tp = 2},
    {.dp = 2, .tp = 2, .query_rank = false, .fused_rope = false},
    {.strategy = "nanotron", .tp = 2, .sp = true},
    {.strategy = "nanotron", .tp = 2, .sp = true, .query_rank = false},
    {.strategy = "nanotron", .tp = 2},
    {.strategy = "megatron", .dp = 2, .tp = 2},
    {.strategy = "megatron", .tp = 2, .sp = true, .recompute = Recompute::Policy::selective},
    {.strategy = "megatron", .tp = 2, .recompute = Recompute::Policy::per_op},
    {.heads_again = true},
    {.tp = 2, .query_rank = false, .fused_rope = false, .views = true, .heads_again = true},
    {.strategy = "megatron", .tp = 2, .sp = true, .eager_norms = true, .heads_again = true},
    {.strategy = "nanotron", .tp = 2, .sp = true, .fused_rope = false, .heads_again = true},
    {.strategy = "megatron-dist-opt", .dp = 2, .tp = 2, .sp = true},
    {.strategy = "fsdp2-scatter-each", .dp = 2, .tp = 2, .fused_rope = false, .views = true},
    {.strategy = "fsdp2-defer", .dp = 2, .tp = 2, .sp = true, .fused_rope = false, .views = true},
    {.strategy = "fsdp1", .dp = 2, .tp = 2},
    {.strategy = "deepspeed-zero2", .dp = 2, .tp = 2},
    {.strategy = "deepspeed-zero3", .dp = 2, .tp = 2, .sp = true},
    {.strategy = "colossalai-zero1", .dp = 2, .tp = 2},
    {.strategy = "jax-scan", .tp = 2},
    {.strategy = "alpa", .tp = 2, .query_rank = false},
};

class LatentAttentionOfRanks : public testing::TestWithParam<Latent> {};

TEST_P(LatentAttentionOfRanks, GradientsAreThoseOfOneRankThatHasAllHeads) {
  const Job job = JobOf(GetParam());
  Job plain = OneBatch(job);
  DecoderOf(plain).norm_kernel = Decoder::NormKernel::fused;
  ExpectGradientsByEveryKernel(Reference(plain, 1, Exact()), job);
}

TEST_P(LatentAttentionOfRanks, AllocatesWhatWasPredictedEventByEvent) { ExpectPredictedEvents(JobOf(GetParam())); }

INSTANTIATE_TEST_SUITE_P(Layouts, LatentAttentionOfRanks, testing::ValuesIn(kLatent));

/// The weight of one layer, and its gradient.
struct Weighted {
  std::vector<double> values, gradient;
};

Weighted WeightOf(const Job& job, const std::string& name) {
  const Model model = *Model::Of(job, {0, 1});
  const Model::Weight weight = *model.WeightOf("weight of layer." + name);
  Weighted found;
  found.values.resize(static_cast<std::size_t>(weight.parameter->elements));
  model.Initialise(weight, 0, 7, 0, {{DType::fp64, std::ssize(found.values)}, found.values.data()},
                   {.kind = kernels::Queue::Kind::cpu});
  found.gradient = Executed(job, 1, Exact()).gradients.at({"layer." + name, 0}).at(0);
  return found;
}

/// The sum over rows [begin, end) of a matrix of `columns` of each weight times its gradient.
double AlongRows(const Weighted& of, std::int64_t columns, std::int64_t begin, std::int64_t end) {
  double sum = 0;
  for (auto i = static_cast<std::size_t>(begin * columns); i < static_cast<std::size_t>(end * columns); ++i) {
    sum += of.values[i] * of.gradient[i];
  }
  return sum;
}

// A score is the product of a query and a key, part by part: a loss changes as much when a head's own part of its
// queries is stretched as when that part of its keys is, and so for what is rotated, which all keys share. That holds
// for the exact gradients of any network, and ties what wkv_a's last rows and each head's first rows of wkv_b are
// multiplied with to the rows of the queries' projection.
void ExpectStretchesAlike(const Latent& l) {
  Job job = JobOf(l);
  job.accumulation_steps = 1;
  const LatentAttention latent = DecoderOf(job).latent;
  const std::int64_t heads = DecoderOf(job).heads, size = DecoderOf(job).head_size, hidden = DecoderOf(job).hidden;
  const std::int64_t own = size - latent.rope_head_size, q_columns = l.query_rank ? latent.q_lora_rank : hidden;
  const Weighted q = WeightOf(job, l.query_rank ? "wq_b" : "wq");
  const Weighted kv = WeightOf(job, "wkv_b"), down = WeightOf(job, "wkv_a");
  double rotated_queries = 0;
  for (std::int64_t head = 0; head < heads; ++head) {
    const std::int64_t of_q = head * size, of_kv = head * (own + latent.value_head_size);
    const double query = AlongRows(q, q_columns, of_q, of_q + own);
    EXPECT_NEAR(query, AlongRows(kv, latent.kv_lora_rank, of_kv, of_kv + own), 1e-12 + 1e-9 * std::abs(query)) << head;
    EXPECT_GT(std::abs(query), 1e-9) << head;
    rotated_queries += AlongRows(q, q_columns, of_q + own, of_q + size);
  }
  const double keys = AlongRows(down, hidden, latent.kv_lora_rank, latent.kv_lora_rank + latent.rope_head_size);
  EXPECT_NEAR(rotated_queries, keys, 1e-12 + 1e-9 * std::abs(keys));
  EXPECT_GT(std::abs(keys), 1e-9);
}

TEST(LatentAttentionParts, QueriesAndKeysStretchAScoreAlike) {
  for (const Latent& l : {Latent{}, Latent{.query_rank = false}, Latent{.fused_rope = false}, Latent{.views = true},
                          Latent{.fused_rope = false, .views = true}}) {
    SCOPED_TRACE(testing::PrintToString(l));
    ExpectStretchesAlike(l);
  }
}

}  // namespace
}  // namespace tidemark::latent_attention_test

// SPDX-License-Identifier: Apache-2.0
// Norms of queries and keys: what they do to a step, and that ranks with some of the heads have the gradients of one
// that has all.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "tests/profiler/execute/own_programs.h"

namespace tidemark::qk_norm_test {
namespace {

using NormKernel = Decoder::NormKernel;

Decoder& DecoderOf(Job& job) { return std::get<Decoder>(job.network.shape); }

struct Normalised {
  const char* strategy = "ddp-last";
  std::int64_t dp = 1, tp = 1, cp = 1;
  bool sp = false;
  NormKernel kernel = NormKernel::fused;
  bool fused_rope = true;
  bool layer_norm = false;
  Recompute::Policy recompute = Recompute::Policy::none;

  friend std::ostream& operator<<(std::ostream& out, const Normalised& n) {
    return out << fmt::format("{} dp {} tp {} cp {} sp {} kernel {} rope {} layer {} again {}", n.strategy, n.dp, n.tp,
                              n.cp, n.sp, static_cast<int>(n.kernel), n.fused_rope, n.layer_norm,
                              static_cast<int>(n.recompute));
  }
};

Job JobOf(const Normalised& n) {
  Job job = SmallJob(n.strategy);
  DecoderOf(job).qk_norm = true;
  DecoderOf(job).norm_kernel = n.kernel;
  DecoderOf(job).norm = n.layer_norm ? Decoder::Norm::layer : Decoder::Norm::rms;
  job.axes.buffers.fused_rope = n.fused_rope;
  job.axes.recompute.policy = n.recompute;
  job.layout.dp = n.dp;
  job.layout.tp = n.tp;
  job.layout.cp = n.cp;
  job.layout.sp = n.sp;
  return job;
}

const std::vector<Normalised> kNormalised = {
    {},
    {.fused_rope = false},
    {.layer_norm = true},
    {.kernel = NormKernel::eager, .fused_rope = false},
    {.kernel = NormKernel::eager_fp32_weight},
    {.kernel = NormKernel::eager_low_precision},
    {.cp = 2},
    {.tp = 2, .cp = 2, .kernel = NormKernel::eager},
    {.tp = 2, .recompute = Recompute::Policy::full},
    {.strategy = "megatron", .tp = 2, .recompute = Recompute::Policy::per_op},
    {.tp = 2},
    {.dp = 2, .tp = 2, .kernel = NormKernel::eager, .fused_rope = false},
    {.strategy = "nanotron", .tp = 2, .sp = true},
    {.strategy = "nanotron", .tp = 2},
    {.strategy = "megatron", .dp = 2, .tp = 2},
    {.strategy = "megatron", .tp = 2, .sp = true, .layer_norm = true},
    {.strategy = "megatron-dist-opt", .dp = 2, .tp = 2},
    {.strategy = "fsdp2-scatter-each", .dp = 2, .tp = 2, .fused_rope = false},
    {.strategy = "fsdp2-defer", .dp = 2, .tp = 2, .sp = true},
    {.strategy = "fsdp1", .dp = 2, .tp = 2},
    {.strategy = "deepspeed-zero2", .dp = 2, .tp = 2},
    {.strategy = "deepspeed-zero3", .dp = 2, .tp = 2, .sp = true},
    {.strategy = "colossalai-zero1", .dp = 2, .tp = 2},
    {.strategy = "jax-scan", .tp = 2},
    {.strategy = "alpa", .tp = 2},
};

class QkNorm : public testing::TestWithParam<Normalised> {};

TEST_P(QkNorm, GradientsAreThoseOfOneRankThatHasAllHeads) {
  const Job job = JobOf(GetParam());
  Job fused = OneBatch(job);
  DecoderOf(fused).norm_kernel = NormKernel::fused;
  ExpectGradientsByEveryKernel(Reference(fused, 1, Exact()), job);
}

TEST_P(QkNorm, AllocatesWhatWasPredictedEventByEvent) { ExpectPredictedEvents(JobOf(GetParam())); }

/// AdamW hardly sees how long a gradient is.
Job Clipped(const Normalised& n) {
  Job job = JobOf(n);
  job.axes.optimizer_step.clip_norm = 0.1;
  Job simple = job;
  simple.optimizer = OptimizerKind::sgd;
  return FindStrategy(job.strategy)->Accept(simple).ok() ? simple : job;
}

/// Those whose systems clip.
std::vector<Normalised> AllClipped() {
  std::vector<Normalised> clipped = kNormalised;
  std::erase_if(clipped, [](const Normalised& n) { return !FindStrategy(n.strategy)->Accept(Clipped(n)).ok(); });
  return clipped;
}

class ClippedQkNorm : public testing::TestWithParam<Normalised> {};

// Gradients are clipped to a tenth, so that a norm that counts a shared weight once for each rank shows in the next
// loss.
TEST_P(ClippedQkNorm, LossesBehindClippedStepsAreThoseOfOneRank) {
  const Job job = Clipped(GetParam());
  Job one = OneBatch(job);
  one.optimizer = job.optimizer;
  one.axes.optimizer_step.clip_norm = 0.1;
  const RunOptions options{.seed = 7, .exact = true};
  const RunOutcome run = RanOwnPrograms(job, 4, options).front();
  const RunOutcome& whole = Reference(one, 4, options);
  for (std::size_t step = 0; step < 4; ++step) {
    EXPECT_NEAR(*run.steps[step].loss, *whole.steps[step].loss, 1e-11) << "step " << step;
  }
  one.axes.optimizer_step.clip_norm = 0.11;
  EXPECT_GT(std::abs(*Reference(one, 4, options).steps[3].loss - *whole.steps[3].loss), 1e-9) << "clipping is nothing";
}

INSTANTIATE_TEST_SUITE_P(Layouts, QkNorm, testing::ValuesIn(kNormalised));
INSTANTIATE_TEST_SUITE_P(Layouts, ClippedQkNorm, testing::ValuesIn(AllClipped()));

/// The cosine between a projection's weight and its gradient, of each head.
std::vector<double> CosinesOf(const Job& job, const std::string& projection) {
  const Model model = *Model::Of(job, {0, 1});
  const Model::Weight weight = *model.WeightOf("weight of layer." + projection);
  std::vector<double> values(static_cast<std::size_t>(weight.parameter->elements));
  model.Initialise(weight, 0, 7, 0, {{DType::fp64, std::ssize(values)}, values.data()},
                   {.kind = kernels::Queue::Kind::cpu});
  const RunOutcome run = Executed(job, 1, Exact());
  const std::vector<double>& gradient = run.gradients.at({"layer." + projection, 0}).at(0);
  const auto& decoder = std::get<Decoder>(job.network.shape);
  const auto of_head = static_cast<std::size_t>(decoder.head_size * decoder.hidden);
  std::vector<double> cosines;
  for (std::size_t at = 0; at < values.size(); at += of_head) {
    double product = 0, values_square = 0, gradient_square = 0;
    for (std::size_t i = at; i < at + of_head; ++i) {
      product += values[i] * gradient[i];
      values_square += values[i] * values[i];
      gradient_square += gradient[i] * gradient[i];
    }
    cosines.push_back(std::abs(product) / std::sqrt(values_square * gradient_square));
  }
  return cosines;
}

// Queries and keys that are normalised head by head do not tell by how much a head's projection was multiplied, so that
// the loss does not change along it: gradients of each head's rows are perpendicular to these rows, up to the norm's
// epsilon (1e-5, where squares are 0.03 in the mean: 64 inputs times a weight's 0.02 squared). Without the norms they
// are not; over the width of all heads only the sum over the heads would be.
TEST(QkNormOfEachHead, ForgetsTheLengthOfItsProjection) {
  for (const char* projection : {"wq", "wk"}) {
    Job job = JobOf({});
    job.accumulation_steps = 1;
    const std::vector<double> with = CosinesOf(job, projection);
    EXPECT_EQ(with.size(), projection == std::string("wq") ? 4U : 2U);
    EXPECT_LT(*std::max_element(with.begin(), with.end()), 1e-4) << projection;
    DecoderOf(job).qk_norm = false;
    const std::vector<double> without = CosinesOf(job, projection);
    EXPECT_GT(*std::min_element(without.begin(), without.end()), 1e-3) << projection;
  }
}

}  // namespace
}  // namespace tidemark::qk_norm_test

// SPDX-License-Identifier: Apache-2.0
// Values, and queries and keys that nothing rotates, that are parts of the product of all three: ranks with some of the
// heads have the gradients of one that has all, each in a tensor of its own.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ostream>
#include <vector>

#include "tests/profiler/execute/own_programs.h"

namespace tidemark::qkv_views_test {
namespace {

Decoder& DecoderOf(Job& job) { return std::get<Decoder>(job.network.shape); }

struct Views {
  const char* strategy = "ddp-last";
  std::int64_t dp = 1, tp = 1;
  bool rope = true, biases = false, parallel_residual = false;
  Recompute::Policy recompute = Recompute::Policy::none;

  friend std::ostream& operator<<(std::ostream& out, const Views& v) {
    return out << fmt::format("{} dp {} tp {} rope {} biases {} parallel {} again {}", v.strategy, v.dp, v.tp, v.rope,
                              v.biases, v.parallel_residual, static_cast<int>(v.recompute));
  }
};

Job JobOf(const Views& v) {
  Job job = SmallJob(v.strategy);
  DecoderOf(job).qkv_views = job.axes.packing.qkv = true;
  DecoderOf(job).rope = v.rope;
  DecoderOf(job).qkv_bias = DecoderOf(job).linear_bias = v.biases;
  DecoderOf(job).parallel_residual = v.parallel_residual;
  job.axes.recompute.policy = v.recompute;
  job.layout.dp = v.dp;
  job.layout.tp = v.tp;
  return job;
}

const std::vector<Views> kViews = {
    {},
    {.rope = false},
    {.biases = true, .parallel_residual = true},  // GPT-NeoX's layers, but for their norms and activation
    {.recompute = Recompute::Policy::full},
    {.rope = false, .recompute = Recompute::Policy::per_op},
    {.tp = 2},
    {.strategy = "megatron", .dp = 2, .tp = 2, .recompute = Recompute::Policy::selective},
    {.strategy = "nanotron", .tp = 2, .rope = false},
    {.strategy = "fsdp2-scatter-each", .dp = 2, .biases = true},
    {.strategy = "deepspeed-zero3", .dp = 2},
    {.strategy = "jax-scan", .dp = 2},
};

class QkvViews : public testing::TestWithParam<Views> {};

TEST_P(QkvViews, GradientsAreThoseOfTensorsOfTheirOwn) {
  const Job job = JobOf(GetParam());
  Job apart = OneBatch(job);
  DecoderOf(apart).qkv_views = false;
  ExpectGradientsByEveryKernel(Reference(apart, 1, Exact()), job);
}

TEST_P(QkvViews, AllocatesWhatWasPredictedEventByEvent) { ExpectPredictedEvents(JobOf(GetParam())); }

INSTANTIATE_TEST_SUITE_P(Layouts, QkvViews, testing::ValuesIn(kViews));

}  // namespace
}  // namespace tidemark::qkv_views_test

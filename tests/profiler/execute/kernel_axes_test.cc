// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "profiler/execute/numerics.h"
#include "tests/profiler/execute/memory_events.h"
#include "tests/profiler/execute/thread_ranks.h"

namespace tidemark::kernel_axes_test {
namespace {

/// Other kernels for the same mathematics: a job that takes them has the gradients of one that does not.
struct OtherKernels {
  const char* name;
  void (*choose)(Job&);
};

Decoder& DecoderOf(Job& job) { return std::get<Decoder>(job.network.shape); }

const std::vector<OtherKernels> kOthers = {
    {"eager_attention", [](Job& job) { DecoderOf(job).attention_kernel = Decoder::AttentionKernel::eager; }},
    {"eager_attention_with_a_wide_softmax",
     [](Job& job) { DecoderOf(job).attention_kernel = Decoder::AttentionKernel::eager_fp32_softmax; }},
    {"eager_norms", [](Job& job) { DecoderOf(job).norm_kernel = Decoder::NormKernel::eager; }},
    {"eager_norms_with_a_wide_weight",
     [](Job& job) { DecoderOf(job).norm_kernel = Decoder::NormKernel::eager_fp32_weight; }},
    {"eager_norms_in_low_precision",
     [](Job& job) { DecoderOf(job).norm_kernel = Decoder::NormKernel::eager_low_precision; }},
    {"eager_glu", [](Job& job) { job.axes.buffers.fused_glu = false; }},
    {"eager_rope", [](Job& job) { job.axes.buffers.fused_rope = false; }},
    {"eager_rope_of_packed_projections",
     [](Job& job) {
       job.axes.buffers.fused_rope = false;
       job.axes.packing.qkv = !job.axes.packing.qkv;
     }},
    {"updates_over_lists", [](Job& job) { job.axes.optimizer_step.kernel = OptimizerStep::Kernel::foreach_; }},
};

using Case = std::tuple<std::string, OtherKernels>;

class EveryKernel : public testing::TestWithParam<Case> {
 protected:
  static Job Plain() {
    Job job = SmallJob(std::get<0>(GetParam()));
    if (job.strategy == "nanotron") {
      job.layout.tp = 2;
      job.layout.sp = true;
    }
    return job;
  }
  static Job Chosen() {
    Job job = Plain();
    std::get<1>(GetParam()).choose(job);
    return job;
  }
};

TEST_P(EveryKernel, HasTheGradientsOfTheOthersInOneBigBatch) {
  const Job job = Chosen();
  Job one = SmallJob("ddp-every");
  one.network = Plain().network;
  one.axes.packing = job.axes.packing;
  one.micro_batch_size = 2 * job.micro_batch_size;
  one.accumulation_steps = 1;
  const RunOptions options{.seed = 7, .exact = true, .keep_gradients = true};
  const ParameterParts reference = Executed(one, 1, options).gradients;
  const std::vector<RunOutcome> runs = ExecutedTogether(job, 1, options);
  for (std::size_t rank = 0; rank < runs.size(); ++rank) {
    const Model model = *Model::Of(job, TensorParallelPlaceOf(job, static_cast<std::int64_t>(rank)));
    EXPECT_FALSE(runs[rank].gradients.empty());
    EXPECT_LT(DistanceOf(model, runs[rank].gradients, reference, kExactFloor).highest, BoundOf(DType::fp64, 0));
  }
}

TEST_P(EveryKernel, AllocatesWhatWasPredictedEventByEvent) {
  const Job job = Chosen();
  PredictOptions options;
  options.steps = FirstSteps(2);
  const Prediction prediction = *Predict(job, options);
  for (const RunOutcome& run : ExecutedTogether(job, 2)) {
    EXPECT_EQ(MemoryEventsOf(run.trace), MemoryEventsOf(*prediction.roles.front().trace));
  }
}

// Updates in single operations round more often than a fused one: in fp64 the losses that follow from them are the same
// to well within a step's effect.
TEST_P(EveryKernel, LearnsAlike) {
  const RunOptions exact{.seed = 7, .exact = true};
  Job packed_alike = Plain();
  packed_alike.axes.packing = Chosen().axes.packing;
  const std::vector<RunOutcome> chosen = ExecutedTogether(Chosen(), 3, exact),
                                plain = ExecutedTogether(packed_alike, 3, exact);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(chosen.front().steps[i].loss.value(), plain.front().steps[i].loss.value(), 1e-9);
  }
}

INSTANTIATE_TEST_SUITE_P(Execute, EveryKernel,
                         testing::Combine(testing::Values("ddp-last", "nanotron", "megatron"),
                                          testing::ValuesIn(kOthers)),
                         [](const auto& chosen) {
                           std::string name = std::get<0>(chosen.param) + "_" + std::get<1>(chosen.param).name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace tidemark::kernel_axes_test

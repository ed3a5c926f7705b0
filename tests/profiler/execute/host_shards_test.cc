// SPDX-License-Identifier: Apache-2.0
// Shards, their gradients and moments in host memory: what is executed is what was predicted, and what is learned is
// what is learned without.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/profiler/execute/own_programs.h"

namespace tidemark::host_shards_test {
namespace {

struct Offloaded {
  std::string name;
  std::string strategy = "fsdp2-scatter-each";
  std::function<void(Job&)> change = [](Job&) {};

  friend std::ostream& operator<<(std::ostream& out, const Offloaded& o) { return out << o.name; }
};

/// On two ranks, of which each microbatch but the first finds gradients where they are scattered one by one.
Job JobOf(const Offloaded& offloaded) {
  Job job = SmallJob(offloaded.strategy);
  job.layout.dp = 2;
  job.axes.optimizer_step.offload = true;
  offloaded.change(job);
  return job;
}

const std::vector<Offloaded> kOffloaded = {
    {"scattered_each"},
    {"deferred", "fsdp2-defer"},
    {"kept_after_backward", "fsdp2-keep-after-backward"},
    {"kept", "fsdp2-keep-all"},
    {"replicas", "hsdp",
     [](Job& job) {
       job.layout.dp = 4;
       job.axes.shard.replicas = 2;
     }},
    {"one_rank", "fsdp2-scatter-each", [](Job& job) { job.layout.dp = 1; }},
    {"uneven_rows", "fsdp2-scatter-each", [](Job& job) { job.layout.dp = 3; }},
    {"tied", "fsdp2-scatter-each", [](Job& job) { std::get<Decoder>(job.network.shape).tied_embeddings = true; }},
    {"zeroed_gradients", "fsdp2-scatter-each", [](Job& job) { job.axes.buffers.set_to_none = false; }},
    {"wide", "fsdp2-scatter-each",
     [](Job& job) { job.axes.precision.params = job.axes.precision.gradients = DType::fp32; }},
    {"narrow_sums", "fsdp2-scatter-each",
     [](Job& job) { job.axes.precision.reduce = job.axes.precision.accumulate = DType::bf16; }},
    {"one_kernel_each", "fsdp2-scatter-each",
     [](Job& job) { job.axes.optimizer_step.kernel = OptimizerStep::Kernel::for_loop; }},
    {"lists_of_kernels", "fsdp2-scatter-each",
     [](Job& job) { job.axes.optimizer_step.kernel = OptimizerStep::Kernel::foreach_; }},
    {"chunked_loss", "fsdp2-scatter-each",
     [](Job& job) {
       job.axes.loss = Partition::Loss::chunked;
       job.axes.loss_chunk_tokens = 8;
     }},
    {"stages", "fsdp2-keep-all", [](Job& job) { job.layout.pp = 2; }},
    {"experts", "fsdp2-scatter-each",
     [](Job& job) {
       Experts& experts = std::get<Decoder>(job.network.shape).experts;
       experts = {.count = 4, .per_token = 2, .ffn = 48};
       experts.layer = Experts::Layer::torchtitan;
       experts.router_fp32 = true;
     }},
};

class HostShards : public testing::TestWithParam<Offloaded> {};

TEST_P(HostShards, GradientsAreThoseOfOneRank) {
  const Job job = JobOf(GetParam());
  ExpectGradientsByEveryKernel(Reference(OneBatch(job), 1, Exact()), job);
}

TEST_P(HostShards, AllocatesWhatWasPredictedEventByEvent) { ExpectPredictedEvents(JobOf(GetParam())); }

// The same numbers are added and updated in the same order, wherever they lie.
TEST_P(HostShards, LearnsWhatIsLearnedWithout) {
  const Job job = JobOf(GetParam());
  Job on_device = job;
  on_device.axes.optimizer_step.offload = false;
  const RunOutcome with = RanOwnPrograms(job, 4, {}).back(), without = RanOwnPrograms(on_device, 4, {}).back();
  for (std::size_t step = 0; step < 4; ++step) {
    EXPECT_EQ(with.steps[step].loss, without.steps[step].loss) << step;
  }
  EXPECT_NE(with.steps[0].loss, with.steps[3].loss);
}

INSTANTIATE_TEST_SUITE_P(Settings, HostShards, testing::ValuesIn(kOffloaded),
                         [](const auto& tested) { return tested.param.name; });

// Norms of parameters one by one are summed in another order than those of units. SGD moves by the gradient itself.
TEST(HostShards, AreClippedOnTheHost) {
  Job job = JobOf({});
  job.optimizer = OptimizerKind::sgd;
  job.axes.optimizer_step.clip_norm = 1e-3;
  Job on_device = job;
  on_device.axes.optimizer_step.offload = false;
  Job unclipped = job;
  unclipped.axes.optimizer_step.clip_norm = 0;
  const auto loss = [](const Job& each) { return *RanOwnPrograms(each, 4, {}).back().steps[3].loss; };
  const double clipped = loss(job), away = std::abs(clipped - loss(unclipped));
  EXPECT_GT(away, 0);
  EXPECT_NEAR(clipped, loss(on_device), away / 1000);
}

}  // namespace
}  // namespace tidemark::host_shards_test

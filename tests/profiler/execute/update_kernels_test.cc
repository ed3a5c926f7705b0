// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sim/program/text.h"
#include "tests/profiler/execute/farthest.h"
#include "tests/profiler/execute/thread_ranks.h"

namespace tidemark::update_kernels_test {
namespace {

// An update in torch's single operations is the fused one's: its gradients, which depend on all parameters that the
// updates before have made, and its losses are the same but for roundings.

using Kernel = OptimizerStep::Kernel;

/// In fp64: roundings of 1e-16, times what steps make of a difference.
constexpr double kBound = 1e-10;
constexpr std::int64_t kUpdates = 3;

struct Case {
  const char* name;
  const char* strategy;
  void (*change)(Job&) = [](Job&) {};
  bool loops = true, momentum = true;  ///< the system passes `foreach: false` on, and takes SGD
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

void WithMasters(Job& job) { job.axes.precision.master = DType::fp32; }
void WithoutMasters(Job& job) { job.axes.precision.master.reset(); }
void Tied(Job& job) { std::get<Decoder>(job.network.shape).tied_embeddings = true; }

const std::vector<Case> kCases = {
    {"ddp", "ddp-last"},
    {"ddp_with_masters", "ddp-last", WithMasters},
    {"ddp_without_masters", "ddp-last", WithoutMasters},
    {"ddp_clipped", "ddp-every", [](Job& job) { job.axes.optimizer_step.clip_norm = 0.01; }},
    {"ddp_with_two_updates_a_step", "ddp-last",
     [](Job& job) {
       job.accumulation_steps = 4;
       job.axes.sync.when = Sync::When::custom;
       job.axes.sync.expression = "(i + 1) % 2 == 0";
     }},
    {"fsdp2_on_two_ranks", "fsdp2-defer", [](Job& job) { job.layout.dp = 2; }},
    // Of three ranks the last has less of most parameters: 64, 32, 96 and 128 rows.
    {"fsdp2_of_unlike_parts", "fsdp2-scatter-each", [](Job& job) { job.layout.dp = 3; }},
    {"fsdp2_tied_and_clipped", "fsdp2-defer",
     [](Job& job) {
       job.layout.dp = 2;
       job.axes.optimizer_step.clip_norm = 0.01;
       Tied(job);
     }},
    {"fsdp1", "fsdp1", [](Job& job) { job.layout.dp = 3; }},
    {"zero1", "deepspeed-zero1", [](Job& job) { job.layout.dp = 2; }},
    {"zero2", "deepspeed-zero2", [](Job& job) { job.layout.dp = 3; }},
    {"zero3", "deepspeed-zero3", [](Job& job) { job.layout.dp = 3; }},
    {"deepspeed_bf16", "deepspeed-bf16", [](Job& job) { job.layout.dp = 2; }},
    {"colossalai_zero2", "colossalai-zero2", [](Job& job) { job.layout.dp = 3; }},
    {"colossalai_zero1_without_masters", "colossalai-zero1",
     [](Job& job) {
       job.layout.dp = 3;
       WithoutMasters(job);
       job.axes.precision.optimizer = DType::bf16;
     }},
    {"megatron", "megatron", [](Job& job) { job.layout.tp = 2; }, false},
    {"megatron_distributed", "megatron-dist-opt",
     [](Job& job) {
       auto& decoder = std::get<Decoder>(job.network.shape);
       decoder.hidden = 128;  // an even number of aligned parts: both ranks run one program
       decoder.head_size = 32;
       job.layout.dp = 2;
     },
     false, false},
    {"megatron_in_a_pipeline", "megatron",
     [](Job& job) {
       job.layout.pp = 2;
       Tied(job);
     },
     false},
    {"nanotron", "nanotron", [](Job& job) { job.layout.dp = 2; }, false},
};

Job JobOf(const Case& one, OptimizerKind optimizer, Kernel kernel) {
  Job job = SmallJob(one.strategy);
  one.change(job);
  job.optimizer = optimizer;
  job.axes.optimizer_step.kernel = kernel;
  return job;
}

RunOptions Exact() { return {.seed = 7, .exact = true, .keep_gradients = true, .kept_update = kUpdates}; }

/// How far runs are from each other: of the last update's gradients and of all losses the farthest.
double Departure(const std::vector<RunOutcome>& found, const std::vector<RunOutcome>& expected) {
  double highest = 0;
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    const ParameterParts& gradients = expected[rank].gradients;
    EXPECT_EQ(found[rank].gradients.size(), gradients.size());
    const auto same = [&](const ParameterKey& key, std::int64_t begin, std::size_t i) {
      return gradients.at(key).at(begin).at(i);
    };
    highest = std::max(highest, FarthestFrom(found[rank].gradients, same));
    for (std::size_t step = 0; step <= kUpdates; ++step) {
      highest = std::max(highest, Apart(found[rank].steps[step].loss.value(), expected[rank].steps[step].loss.value()));
    }
  }
  return highest;
}

class UpdateKernels : public testing::TestWithParam<Case> {
 protected:
  static std::vector<Kernel> Kernels() {
    return GetParam().loops ? std::vector{Kernel::foreach_, Kernel::for_loop} : std::vector{Kernel::foreach_};
  }
  static std::vector<OptimizerKind> Optimizers() {
    using enum OptimizerKind;
    return GetParam().momentum ? std::vector{adamw, sgd_momentum} : std::vector{adamw};
  }
};

TEST_P(UpdateKernels, TrainAsTheFusedOne) {
  for (const OptimizerKind optimizer : Optimizers()) {
    const Job fused = JobOf(GetParam(), optimizer, Kernel::fused);
    const std::vector<RunOutcome> expected = ExecutedTogether(fused, kUpdates + 1, Exact());
    for (const Kernel kernel : Kernels()) {
      const Job job = JobOf(GetParam(), optimizer, kernel);
      const std::vector<RunOutcome> found = ExecutedTogether(job, kUpdates + 1, Exact());
      EXPECT_LT(Departure(found, expected), kBound);
      for (std::size_t step = 0; step <= kUpdates; ++step) {
        EXPECT_EQ(found.front().steps[step].parameters_changed_at, expected.front().steps[step].parameters_changed_at);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Execute, UpdateKernels, testing::ValuesIn(kCases),
                         [](const auto& chosen) { return std::string(chosen.param.name); });

// Controls: what happens without one of the operations, in the first of the steps.

LoweredSteps Without(const Job& job, std::string_view name) {
  LoweredSteps lowered(job, kUpdates + 1);
  Program& program = lowered.first();
  program = Unroll(program);
  std::erase_if(program.nodes, [&](const Node& node) {
    const auto* leaf = std::get_if<Compute>(&node);
    return leaf != nullptr && program.names[leaf->name.index] == name;
  });
  return lowered;
}

double DepartureWithout(Kernel kernel, OptimizerKind optimizer, std::string_view name) {
  const Case one{"ddp", "ddp-last"};
  const Job job = JobOf(one, optimizer, kernel);
  const LoweredSteps lowered = Without(job, name);
  return Departure(RunTogether(job, lowered.steps(), Exact()),
                   ExecutedTogether(JobOf(one, optimizer, Kernel::fused), kUpdates + 1, Exact()));
}

TEST(UpdateKernelsWithout, NothingAreTheFusedOne) {
  EXPECT_LT(DepartureWithout(Kernel::foreach_, OptimizerKind::adamw, ""), kBound);
}

TEST(UpdateKernelsWithout, TheBiasCorrectionTrainOtherwise) {
  EXPECT_GT(DepartureWithout(Kernel::foreach_, OptimizerKind::adamw, "correct bias"), 1e-3);
}

// Embeddings of letters that have not occurred have no gradient: nothing is divided by nothing.
TEST(UpdateKernelsWithout, EpsilonMakeNumbersThatAreNone) {
  for (const Kernel kernel : {Kernel::foreach_, Kernel::for_loop}) {
    EXPECT_TRUE(std::isinf(DepartureWithout(kernel, OptimizerKind::adamw, "add epsilon")));
  }
}

TEST(UpdateKernelsWithout, TheLastOneTrainOtherwise) {
  for (const OptimizerKind optimizer : {OptimizerKind::adamw, OptimizerKind::sgd_momentum}) {
    EXPECT_GT(DepartureWithout(Kernel::foreach_, optimizer, "apply update"), 1e-6);
  }
}

// The for-loop's quotient is a tensor of its own.
TEST(UpdateKernelsWithout, AQuotientAreRefused) {
  const Job job = JobOf({"ddp", "ddp-last"}, OptimizerKind::adamw, Kernel::for_loop);
  EXPECT_FALSE(RunAlone(job, Without(job, "correct bias").steps()).ok());
}

// A tensor of another size than the one of the block that it is the root of.
TEST(UpdateKernelsWithout, TheRightRootAreRefused) {
  const Job job = JobOf({"ddp", "ddp-last"}, OptimizerKind::adamw, Kernel::for_loop);
  LoweredSteps lowered(job, 1);
  const auto root = std::find_if(lowered.first().buffers.begin(), lowered.first().buffers.end(),
                                 [](const Buffer& buffer) { return buffer.name == "root 1 for moments of layer"; });
  ASSERT_NE(root, lowered.first().buffers.end());
  EXPECT_TRUE(RunAlone(job, lowered.steps()).ok());
  root->elements += 64;
  EXPECT_FALSE(RunAlone(job, lowered.steps()).ok());
  root->elements -= 64;
  root->name = "root 0 for moments of layer";
  EXPECT_FALSE(RunAlone(job, lowered.steps()).ok());
}

// Each parameter as soon as its gradient is complete and its weights are read no more.
TEST(UpdatesInTheBackwardPass, LearnAsUpdatesBehindIt) {
  for (const char* strategy : {"ddp-last", "fsdp2-scatter-each"}) {
    for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::sgd, OptimizerKind::sgd_momentum}) {
      SCOPED_TRACE(testing::Message() << strategy << ", optimizer " << static_cast<int>(kind));
      Job job = SmallJob(strategy);
      job.accumulation_steps = 1;
      job.optimizer = kind;
      const RunOutcome behind = Executed(job, kUpdates, {.seed = 7, .exact = true});
      job.axes.optimizer_step.in_backward = true;
      const RunOutcome within = Executed(job, kUpdates, {.seed = 7, .exact = true});
      for (std::size_t step = 0; step < behind.steps.size(); ++step) {
        EXPECT_NEAR(*within.steps[step].loss, *behind.steps[step].loss, kBound);
      }
      EXPECT_GT(std::abs(*behind.steps.front().loss - *behind.steps.back().loss), 1e-6);  // the weights change
    }
  }
}

}  // namespace
}  // namespace tidemark::update_kernels_test

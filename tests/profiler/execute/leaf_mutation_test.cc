// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "profiler/execute/numerics.h"
#include "sim/program/text.h"
#include "tests/profiler/execute/thread_ranks.h"

namespace tidemark::leaf_mutation_test {
namespace {

// A program that is wrong must not go unnoticed when it is executed: for each kind of leaf one mutation of a right
// program, which is refused, makes wrong numbers, or changes what is measured. Sizes, dtypes, frees at another time and
// kernels that lose something are in executor_test.cc.

Job TwoRanks() {
  Job job = SmallJob("ddp-last");
  job.layout.dp = 2;
  return job;
}

template <class Leaf>
using Wanted = std::function<bool(const Program&, const Leaf&)>;

template <class Leaf>
std::vector<Node>::iterator Find(Program& program, const Wanted<Leaf>& wanted) {
  const auto found = std::find_if(program.nodes.begin(), program.nodes.end(), [&](const Node& node) {
    const auto* leaf = std::get_if<Leaf>(&node);
    return leaf != nullptr && wanted(program, *leaf);
  });
  EXPECT_NE(found, program.nodes.end());
  return found;
}

template <class Leaf>
bool Any(const Program&, const Leaf&) {
  return true;
}

using Mutation = std::function<void(Program&)>;

std::vector<RunStep> Mutated(LoweredSteps& lowered, const Mutation& mutate) {
  lowered.first() = Unroll(lowered.first());
  mutate(lowered.first());
  return lowered.steps();
}

/// How far the gradients of several ranks are from those of the right program.
double Departure(const Mutation& mutate, const Job& job = TwoRanks()) {
  const RunOptions options{.seed = 7, .exact = true, .keep_gradients = true};
  LoweredSteps right(job, 1), wrong(job, 1);
  const auto expected = RunTogether(job, right.steps(), options);
  const auto found = RunTogether(job, Mutated(wrong, mutate), options);
  return DistanceOf(*Model::Of(job, {0, 1}), found.front().gradients, expected.front().gradients, kExactFloor).highest;
}

std::string Refusal(const Mutation& mutate) {
  Job job = SmallJob("ddp-last");
  LoweredSteps lowered(job, 1);
  const auto run = RunAlone(job, Mutated(lowered, mutate));
  return run.ok() ? "" : run.error().message;
}

TEST(LeafMutation, NothingChangesWithoutOne) {
  EXPECT_EQ(Departure([](Program&) {}), 0);
  EXPECT_EQ(Refusal([](Program&) {}), "");
}

TEST(LeafMutation, AMissingAllocIsRefused) {
  EXPECT_NE(Refusal([](Program& program) {
              const auto alloc = Find<Alloc>(program, [](const Program& of, const Alloc& leaf) {
                return of.buffers[leaf.buffer.buffer.index].name == "layer.q";
              });
              program.nodes.erase(alloc);
            }),
            "");
}

TEST(LeafMutation, AMissingKernelIsRefused) {
  EXPECT_NE(Refusal([](Program& program) {
              program.nodes.erase(Find<Compute>(program, [](const Program& of, const Compute& leaf) {
                return of.names[leaf.name.index] == "layer.glu.forward";
              }));
            }),
            "");
}

TEST(LeafMutation, AMissingCopyIsRefused) {
  EXPECT_NE(Refusal([](Program& program) { program.nodes.erase(Find<Copy>(program, Any<Copy>)); }), "");
}

// Without it each rank keeps the gradient of its own samples.
TEST(LeafMutation, AMissingCollectiveMakesOtherNumbers) {
  EXPECT_GT(Departure([](Program& program) { program.nodes.erase(Find<Collective>(program, Any<Collective>)); }), 0.01);
}

// The ranks' gradients come halved, to be summed; a mean of them is half of what it should be.
TEST(LeafMutation, ACollectiveThatAveragesInPlaceOfSummingHalvesTheGradient) {
  const double departure = Departure([](Program& program) {
    for (Node& node : program.nodes) {
      if (auto* collective = std::get_if<Collective>(&node)) {
        EXPECT_EQ(collective->reduction, Reduction::sum);
        collective->reduction = Reduction::avg;
      }
    }
  });
  EXPECT_NEAR(departure, 0.5, 1e-9);
}

/// Three ranks that share each sequence. With two, up and down are the same.
Job RingOfThree() {
  Job job = SmallJob("ddp-last");
  job.layout.cp = 3;
  job.sequence_length = 12;
  return job;
}

TEST(LeafMutation, AShiftInTheOtherDirectionMakesOtherNumbers) {
  EXPECT_EQ(Departure([](Program&) {}, RingOfThree()), 0);
  for (const auto& [right, wrong] : {std::pair(CollectiveKind::shift_up, CollectiveKind::shift_down),
                                     std::pair(CollectiveKind::shift_down, CollectiveKind::shift_up)}) {
    const auto turn_round = [right = right, wrong = wrong](Program& program) {
      std::get<Collective>(*Find<Collective>(program, [right](const Program&, const Collective& leaf) {
        return leaf.kind == right;
      })).kind = wrong;
    };
    EXPECT_GT(Departure(turn_round, RingOfThree()), 0.001);
  }
}

TEST(LeafMutation, AMissingShiftIsRefused) {
  const Job job = RingOfThree();
  const Model model = *Model::Of(job, {0, 1});
  LoweredSteps lowered(job, 1);
  lowered.first() = Unroll(lowered.first());
  EXPECT_TRUE(DeclareTypes(job, model, lowered.first(), false).ok());
  lowered.first().nodes.erase(
      Find<Collective>(lowered.first(), [](const Program&, const Collective& leaf) { return IsShift(leaf.kind); }));
  EXPECT_FALSE(DeclareTypes(job, model, lowered.first(), false).ok());
}

TEST(LeafMutation, ACollectiveOfAnotherDtypeOrSizeIsRefused) {
  const Job job = TwoRanks();
  const Model model = *Model::Of(job, {0, 1});
  const auto declared = [&](const std::function<void(Collective&)>& mutate) {
    LoweredSteps lowered(job, 1);
    mutate(std::get<Collective>(*Find<Collective>(lowered.first(), Any<Collective>)));
    return DeclareTypes(job, model, lowered.first(), false).ok();
  };
  EXPECT_TRUE(declared([](Collective&) {}));
  EXPECT_FALSE(declared([](Collective& leaf) { leaf.dtype = DType::fp32; }));
  EXPECT_FALSE(declared([](Collective& leaf) { leaf.payload_elements += 1; }));
}

// A factor of a half that nobody wanted: half the gradient is missing.
TEST(LeafMutation, AScaleTooManyMakesOtherNumbers) {
  const double departure = Departure([](Program& program) {
    const auto update = Find<Compute>(
        program, [](const Program&, const Compute& leaf) { return std::holds_alternative<OptimizerUpdate>(leaf.op); });
    const Compute leaf = std::get<Compute>(*update);
    program.nodes.insert(update, Scale{leaf.name, Rational(1, 2), leaf.stream, leaf.reads.front()});
  });
  EXPECT_NEAR(departure, 0.5, 1e-9);
}

// What a kernel does with the loss it begins with: a mean over one microbatch in place of two.
TEST(LeafMutation, AMissingFactorOfTheLossDoublesTheGradient) {
  const double departure = Departure([](Program& program) {
    for (Node& node : program.nodes) {
      auto* compute = std::get_if<Compute>(&node);
      if (compute != nullptr && std::holds_alternative<CrossEntropy>(compute->op)) {
        compute->scale = Rational(1);
      }
    }
  });
  EXPECT_NEAR(departure, 1, 1e-9);
}

// A collective is finished where somebody waits for it.
TEST(LeafMutation, AMissingWaitMakesOtherNumbers) {
  EXPECT_GT(Departure([](Program& program) {
              std::erase_if(program.nodes, [](const Node& node) { return std::holds_alternative<Wait>(node); });
            }),
            0.01);
}

TEST(LeafMutation, AMissingRecordMakesOtherNumbers) {
  EXPECT_GT(Departure([](Program& program) {
              std::erase_if(program.nodes, [](const Node& node) { return std::holds_alternative<Record>(node); });
            }),
            0.01);
}

TEST(LeafMutation, AMissingPhaseIsMissingInTheTrace) {
  const Job job = SmallJob("ddp-last");
  LoweredSteps right(job, 1), wrong(job, 1);
  const auto steps = Mutated(wrong, [](Program& program) {
    program.nodes.erase(
        Find<Begin>(program, [](const Program&, const Begin& leaf) { return leaf.phase == Phase::optimizer; }));
    program.nodes.erase(
        Find<End>(program, [](const Program&, const End& leaf) { return leaf.phase == Phase::optimizer; }));
  });
  const auto expected = RunAlone(job, right.steps()), found = RunAlone(job, steps);
  ASSERT_TRUE(expected.ok() && found.ok());
  EXPECT_EQ(found->trace.spans.size() + 1, expected->trace.spans.size());
}

TEST(LeafMutation, AShorterRepeatIsRefused) {
  Job job = SmallJob("ddp-last");
  std::get<Decoder>(job.network.shape).layers = 6;
  LoweredSteps lowered(job, 1);
  auto& repeat = std::get<Repeat>(*Find<Repeat>(lowered.first(), Any<Repeat>));
  ASSERT_GT(repeat.count, 1);
  repeat.count -= 1;
  EXPECT_FALSE(RunAlone(job, lowered.steps()).ok());
}

}  // namespace
}  // namespace tidemark::leaf_mutation_test

// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "profiler/execute/numerics.h"
#include "tests/profiler/execute/different_parameters.h"
#include "tests/profiler/execute/thread_ranks.h"

namespace tidemark::tp_gather_test {
namespace {

using TpGather = Buffers::TpGather;
using testing::UnorderedElementsAre;

constexpr std::int64_t kRanks = 2, kLayers = 2;

Job GatherJob(TpGather gather, std::int64_t microbatches) {
  Job job = SmallJob("nanotron");
  job.accumulation_steps = microbatches;
  job.layout.tp = kRanks;
  job.layout.sp = true;
  job.axes.packing = {true, true};  // nanotron's own
  job.axes.buffers.tp_gather = gather;
  return job;
}

using Gradients = std::vector<ParameterParts>;  // by rank

Gradients GradientsOf(const Job& job, const std::vector<RunStep>& steps, bool exact) {
  Gradients gradients;
  for (RunOutcome& run : RunTogether(job, steps, {.seed = 7, .exact = exact, .keep_gradients = true})) {
    gradients.push_back(std::move(run.gradients));
  }
  return gradients;
}

Gradients GradientsOf(const Job& job, bool exact) { return GradientsOf(job, LoweredSteps(job, 1).steps(), exact); }

/// On any rank.
std::set<std::string> Different(const Gradients& some, const Gradients& others) {
  std::set<std::string> names;
  for (std::size_t rank = 0; rank < some.size(); ++rank) {
    names.merge(DifferentParameters(some[rank], others[rank]));
  }
  return names;
}

TEST(TpGather, EveryRightWayHasTheGradientsOfOneBigBatch) {
  const Job job = GatherJob(TpGather::cached, 2);
  Job one = SmallJob("ddp-every");
  one.axes.packing = job.axes.packing;
  one.micro_batch_size = 4;
  one.accumulation_steps = 1;
  const ParameterParts reference = Executed(one, 1, {.seed = 7, .exact = true, .keep_gradients = true}).gradients;
  for (const TpGather gather : {TpGather::fresh, TpGather::cached, TpGather::pooled, TpGather::async}) {
    const Gradients found = GradientsOf(GatherJob(gather, 2), true);
    for (std::int64_t rank = 0; rank < kRanks; ++rank) {
      const Model model = *Model::Of(job, {rank, kRanks});
      EXPECT_LT(DistanceOf(model, found[static_cast<std::size_t>(rank)], reference, kExactFloor).highest,
                BoundOf(DType::fp64, 0))
          << static_cast<int>(gather);
    }
  }
}

// Where a gathered tensor lies and whether it is gathered again changes no product: the same bits in bf16 too. Rows
// that are multiplied beside the gather are the same dot products.
TEST(TpGather, EveryRightWayHasTheSameGradientsBitForBit) {
  const Gradients kept = GradientsOf(GatherJob(TpGather::cached, 2), false);
  for (const TpGather gather : {TpGather::fresh, TpGather::pooled, TpGather::async}) {
    EXPECT_TRUE(GradientsOf(GatherJob(gather, 2), false) == kept) << static_cast<int>(gather);
  }
}

TEST(TpGather, MultipliesOwnRowsBeforeTheOthersOnFourRanksToo) {
  Job job = GatherJob(TpGather::async, 1);
  std::get<Decoder>(job.network.shape).kv_heads = 4;
  job.layout.tp = 4;
  Job kept = job;
  kept.axes.buffers.tp_gather = TpGather::cached;
  EXPECT_TRUE(GradientsOf(job, false) == GradientsOf(kept, false));
}

// nanotron's first version (commit bcf405d9 of its pull request 203) pools the results of gathers
// and scatters in one block. In a first step's first microbatch everything forward is right, since the block is
// replaced where the first larger tensor is asked for, and so is what is handed back from layer to layer. Wrong are the
// weight gradients of the layers' column-parallel products: the gather of the row-parallel output's gradient has just
// overwritten their saved input. That of the head is right: its gather was the block's last use.
TEST(TpGather, AnUnsafePoolSpoilsTheColumnWeightGradientsOfLayersAndNoOtherInItsFirstMicrobatch) {
  const Gradients right = GradientsOf(GatherJob(TpGather::cached, 1), true);
  const Gradients wrong = GradientsOf(GatherJob(TpGather::pooled_unsafe, 1), true);
  EXPECT_THAT(Different(wrong, right), UnorderedElementsAre("layer.qkv", "layer.gate_up"));
}

/// A program that does on purpose, with tensors of their own, what the pool does to values of a program that is right.
class Clobbered {
 public:
  explicit Clobbered(Program& program) : program_(program) {}

  /// dW = dY^T X of every layer, with another tensor of all rows as X.
  void ReplaceSavedInputs() {
    for (const auto& [product, gathered] : {std::pair("layer.gate_up.weight_gradient", "layer.d_down_out"),
                                            std::pair("layer.qkv.weight_gradient", "layer.d_wo_out")}) {
      std::size_t at = 0;
      while ((at = Find(product, at)) < program_.nodes.size()) {
        std::get<Compute>(program_.nodes[at]).reads[0] = FreeAfter(gathered, at);
        ++at;
      }
    }
  }

  /// The embedding's rows, which layer 0 adds its attention to and normalises, in the second microbatch: the
  /// attention's output lies in their place, and in the backward pass the gradient of the norm's output.
  void ReplaceEmbedding() {
    auto& sum = std::get<Compute>(program_.nodes.at(Find("layer.residual1.forward", 0, kLayers)));
    sum.reads[0] = sum.reads[1];
    auto& norm = std::get<Compute>(program_.nodes.at(Find("layer.norm1.backward", 0, 2 * kLayers - 1)));
    norm.reads[1] = norm.reads[0];
  }

 private:
  const std::string& NameOf(const BufferRef& ref) const { return program_.buffers[ref.buffer.index].name; }

  /// From node `from` on, after `skipped` others.
  std::size_t Find(const std::string& name, std::size_t from, std::int64_t skipped = 0) const {
    for (; from < program_.nodes.size(); ++from) {
      const auto* compute = std::get_if<Compute>(&program_.nodes[from]);
      if (compute != nullptr && program_.names[compute->name.index] == name && skipped-- == 0) {
        break;
      }
    }
    return from;
  }

  /// Frees the last buffer of a family that is freed before node `at` after it instead. Node `at` then is at - 1.
  BufferRef FreeAfter(const std::string& family, std::size_t& at) {
    for (std::size_t i = at; i-- > 0;) {
      const auto* free = std::get_if<Free>(&program_.nodes[i]);
      if (free != nullptr && NameOf(free->buffer) == family) {
        const Free moved = *free;
        program_.nodes.insert(program_.nodes.begin() + static_cast<std::ptrdiff_t>(at) + 1, moved);
        program_.nodes.erase(program_.nodes.begin() + static_cast<std::ptrdiff_t>(i));
        --at;
        return moved.buffer;
      }
    }
    ADD_FAILURE() << "nothing frees " << family;
    return {};
  }

  Program& program_;
};

TEST(TpGather, AnUnsafePoolTakesTheOutputGradientForTheInputBitForBit) {
  const Job job = GatherJob(TpGather::cached, 1);
  LoweredSteps clobbered(job, 1);
  Clobbered(clobbered.first()).ReplaceSavedInputs();
  for (const bool exact : {true, false}) {
    EXPECT_TRUE(GradientsOf(GatherJob(TpGather::pooled_unsafe, 1), exact) ==
                GradientsOf(job, clobbered.steps(), exact));
  }
}

// From the second microbatch on the embedding's rows, a view of the block, are overwritten before layer 0 adds them to
// its attention's output, which makes twice the latter; backward its norm reads what was scattered last.
TEST(TpGather, AnUnsafePoolLosesTheEmbeddingFromTheSecondMicrobatchOnBitForBit) {
  const Job job = GatherJob(TpGather::cached, 2);
  LoweredSteps clobbered(job, 1);
  Clobbered(clobbered.first()).ReplaceSavedInputs();
  Clobbered(clobbered.first()).ReplaceEmbedding();
  EXPECT_TRUE(GradientsOf(GatherJob(TpGather::pooled_unsafe, 2), false) == GradientsOf(job, clobbered.steps(), false));
  const Gradients right = GradientsOf(job, true);
  std::set<std::string> all;
  for (const auto& [key, parts] : right.front()) {
    all.insert(key.first);
  }
  EXPECT_EQ(Different(GradientsOf(GatherJob(TpGather::pooled_unsafe, 2), true), right), all);
}

}  // namespace
}  // namespace tidemark::tp_gather_test

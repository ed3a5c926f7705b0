// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "sim/program/text.h"
#include "tests/sim/audited_job.h"
#include "tests/sim/oracle_experts.h"

// FSDP2 with experts on several ranks, as torchtitan shards them (apply_fsdp_to_decoder): a layer has two groups of
// parameters then, of which that of the experts is sharded over the ranks that have the same ones. The order of
// messages is that of torch/distributed/fsdp/_fully_shard/_fsdp_state.py and _fsdp_param_group.py.

namespace tidemark::strategy_fsdp2_experts_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Job WithExperts(std::int64_t ep, const std::string& strategy = "fsdp2-scatter-each") {
  Job job = OracleExperts(strategy, ep);
  Experts& experts = std::get<Decoder>(job.network.shape).experts;
  experts.router_fp32 = true;
  experts.layer = Experts::Layer::torchtitan;
  job.axes.loss_scale = LossScale::global_tokens;
  return job;
}

/// Calls `visit(collective)` for the collectives of this name in a step, in order.
template <class Visit>
void ForEachCollective(const Program& program, std::string_view name, Visit visit) {
  for (const Node& node : Unroll(program).nodes) {
    const auto* collective = std::get_if<Collective>(&node);
    if (collective != nullptr && program.names[collective->name.index] == name) {
      visit(*collective);
    }
  }
}

/// Of the first rank, by group.
std::map<std::string, std::int64_t> Sent(const Job& job, std::string_view name) {
  const StepProgram step = Sound(job);
  const Program& program = step.roles.front();
  std::map<std::string, std::int64_t> elements;
  ForEachCollective(program, name, [&](const Collective& collective) {
    elements[program.groups[collective.group.index].name] += collective.payload_elements;
  });
  return elements;
}

/// "d" for a message among all ranks, "e" for one among those with the same experts.
std::string OrderIn(const Program& program, std::string_view name) {
  std::string order;
  ForEachCollective(program, name, [&](const Collective& collective) {
    order += program.groups[collective.group.index].name == "edp" ? "e" : "d";
  });
  return order;
}
std::string Order(const Job& job, std::string_view name) { return OrderIn(Sound(job).roles.front(), name); }

/// How many buffers whose names begin so are there at a time, at most.
std::int64_t MostOf(const Job& job, std::string_view prefix) {
  const StepProgram step = Sound(job);
  const Program& program = step.roles.front();
  const auto is_one = [&](const BufferRef& ref) { return program.buffers[ref.buffer.index].name.starts_with(prefix); };
  std::int64_t live = 0, most = 0;
  for (const Node& node : Unroll(program).nodes) {
    if (const auto* alloc = std::get_if<Alloc>(&node); alloc != nullptr && is_one(alloc->buffer)) {
      most = std::max(most, ++live);
    } else if (const auto* free = std::get_if<Free>(&node); free != nullptr && is_one(free->buffer)) {
      --live;
    }
  }
  return most;
}

TEST(Fsdp2WithExpertsOnSeveralRanks, ScattersTheirGradientsOverThoseThatHaveThem) {
  using Elements = std::map<std::string, std::int64_t>;
  const std::int64_t microbatches = 2;
  EXPECT_EQ(Sent(WithExperts(1), "scatter gradients"),
            (Elements{{"dp", microbatches * (kOthers + kLayers * 8 * kExpert)}}));
  EXPECT_EQ(Sent(WithExperts(2), "scatter gradients"),
            (Elements{{"dp", microbatches * kOthers}, {"edp", microbatches * kLayers * 4 * kExpert}}));
  EXPECT_EQ(Sent(WithExperts(8), "scatter gradients"), (Elements{{"dp", microbatches * kOthers}}))
      << "every rank has an expert of its own";
  EXPECT_EQ(Sent(WithExperts(4, "fsdp2-defer"), "scatter gradients"),
            (Elements{{"dp", kOthers}, {"edp", kLayers * 2 * kExpert}}));
}

// Shards of everything over all ranks together, however experts are divided: fp32 weights, two moments.
TEST(Fsdp2WithExpertsOnSeveralRanks, KeepsAnEighthOfAllState) {
  for (const std::int64_t ep : {1, 2, 4, 8}) {
    const CategoryBytes kept = BookOf(WithExperts(ep)).between_microbatches.front();
    EXPECT_EQ(kept[Category::parameter].count(), 4 * (kOthers + kLayers * 8 * kExpert) / 8) << ep;
    EXPECT_EQ(kept[Category::optimizer].count(), 8 * (kOthers + kLayers * 8 * kExpert) / 8) << ep;
  }
}

// Forward: embedding, layers, head. Backward: a layer is prefetched in the order in which its hooks will run, the
// experts first; head and norm are still there.
TEST(Fsdp2WithExpertsOnSeveralRanks, TakesTheGroupsOfALayerInTheOrderOfThePass) {
  Job job = WithExperts(2);
  const std::string microbatch =
      "d"
      "de"
      "de"
      "de"
      "de"
      "d"
      "ed"
      "ed"
      "ed"
      "ed"
      "d";
  EXPECT_EQ(Order(job, "gather parameters"), microbatch + microbatch);
  EXPECT_EQ(Order(job, "scatter gradients"),
            "d"
            "ed"
            "ed"
            "ed"
            "ed"
            "d"
            "d"
            "ed"
            "ed"
            "ed"
            "ed"
            "d");
  job.axes.shard.prefetch_forward = 1;
  EXPECT_EQ(Order(job, "gather parameters"), microbatch + microbatch);
}

// FSDPState.finalize_backward: the last unit first, as behind a backward pass.
TEST(Fsdp2WithExpertsOnSeveralRanks, ReducesTheUnitsOfAStageInReverse) {
  Job job = WithExperts(2, "fsdp2-keep-all");
  job.layout.pp = 2;
  const StepProgram step = Sound(job);
  EXPECT_EQ(OrderIn(step.roles.front(), "scatter gradients"), "ededd") << "layers, embedding";
  EXPECT_EQ(OrderIn(step.roles.back(), "scatter gradients"), "deded") << "head, layers";
}

// comm_ctx.reduce_scatter_states is only waited for by a layer's last group, which comes first.
TEST(Fsdp2WithExpertsOnSeveralRanks, HoldsTheInputsOfALayersReduceScattersTogether) {
  EXPECT_EQ(MostOf(WithExperts(1), "scatter input of"), 1);
  EXPECT_EQ(MostOf(WithExperts(2), "scatter input of"), 2);
  EXPECT_EQ(MostOf(WithExperts(8), "scatter input of"), 2) << "one rank's are packed as well";
}

// In forward the last group's output stays until the next has been copied out; a prefetched layer has two more.
TEST(Fsdp2WithExpertsOnSeveralRanks, GathersALayersGroupsBesideEachOther) {
  Job job = WithExperts(2);
  EXPECT_EQ(MostOf(job, "gathered"), 2);
  job.axes.shard.prefetch_forward = 1;
  EXPECT_EQ(MostOf(job, "gathered"), 3);
  job.layout.ep = 8;
  EXPECT_EQ(MostOf(job, "gathered"), 2) << "experts that no other rank has are copied alone";
}

// Each unit's copy-out is waited for by the gathers behind it, and a copy without a gather as well.
TEST(Fsdp2WithExpertsOnSeveralRanks, GathersWaitForEveryCopy) {
  for (const std::int64_t ep : {1, 2, 8}) {
    const StepProgram step = Sound(WithExperts(ep));
    const Program& program = step.roles.front();
    std::int64_t copied = 0, waited = 0;
    for (const Node& node : Unroll(program).nodes) {
      if (const auto* record = std::get_if<Record>(&node)) {
        copied += program.events[record->event.index] == "unpacked" ? 1 : 0;
      } else if (const auto* wait = std::get_if<Wait>(&node)) {
        waited +=
            program.events[wait->event.index] == "unpacked" && program.streams[wait->stream.index].name == "all_gather";
      }
    }
    EXPECT_GT(copied, 0);
    EXPECT_EQ(waited, copied) << ep;
  }
}

// foreach_reduce with a group of one rank and a divide factor of 1: no quotient.
TEST(Fsdp2WithExpertsOnSeveralRanks, CopiesGradientsOfExpertsThatNoOtherRankHas) {
  const StepProgram step = Sound(WithExperts(8));
  const Program& program = step.roles.front();
  std::int64_t copies = 0;
  for (const Node& node : Unroll(program).nodes) {
    const auto* kernel = std::get_if<Compute>(&node);
    if (kernel != nullptr && program.names[kernel->name.index] == "copy gradients") {
      EXPECT_EQ(program.buffers[kernel->reads.front().buffer.index].name, "scatter input of experts of layer");
      ++copies;
    }
  }
  EXPECT_EQ(copies, 2 * kLayers);
}

// Of 8 experts 2 on each of 4 ranks, and four times as many ranks: rows of each are sharded, and nothing is padded.
TEST(Fsdp2WithExpertsOnSeveralRanks, ShardsRowsWhereRanksAreMoreThanExperts) {
  Job job = WithExperts(4);
  job.layout.tp = 2;
  job.layout.etp = 1;
  job.layout.sp = true;
  const StepProgram step = Sound(job);
  for (const Buffer& buffer : step.roles.front().buffers) {
    if (buffer.name == "gathered experts of layer") {
      EXPECT_EQ(buffer.elements, 2 * kExpert);
    }
  }
  EXPECT_EQ(MostOf(job, "gathered experts of layer"), 1);
}

TEST(Fsdp2WithExpertsOnSeveralRanks, ExpertsGradientsNeedTheirReduceScatter) {
  StepProgram step = Sound(WithExperts(2));
  EXPECT_TRUE(Verify(step).empty());
  for (Program& program : step.roles) {
    for (Node& node : program.nodes) {
      auto* collective = std::get_if<Collective>(&node);
      if (collective != nullptr && program.groups[collective->group.index].name == "edp" &&
          collective->reduction == Reduction::sum) {
        collective->reduction = Reduction::none;
      }
    }
  }
  const std::vector<Finding> findings = Verify(step);
  ASSERT_FALSE(findings.empty());
  EXPECT_THAT(findings.front().message, AllOf(HasSubstr("experts_"), HasSubstr("0 of another")));
}

TEST(Fsdp2WithExpertsOnSeveralRanks, AreRefusedWhatWouldNotBeTheirMean) {
  const auto refused = [](const auto& change) {
    Job job = WithExperts(2);
    change(job);
    const Status accepted = FindStrategy(job.strategy)->Accept(job);
    return accepted.ok() ? std::string() : accepted.error().Text();
  };
  EXPECT_EQ(refused([](Job&) {}), "");
  EXPECT_THAT(refused([](Job& job) { job.axes.loss_scale = LossScale::microbatches; }),
              HasSubstr("loss_scale: fully_shard averages a gradient over the ranks that it is sharded over"));
  EXPECT_THAT(refused([](Job& job) { job.axes.shard.replicas = 2; }), HasSubstr("shard.replicas: replicas of shards"));
  EXPECT_THAT(refused([](Job& job) {
                job.accumulation_steps = 1;
                job.axes.optimizer_step.in_backward = true;
              }),
              HasSubstr("optimizer_step.in_backward: a step within the backward pass is not modelled for units"));
}

}  // namespace
}  // namespace tidemark::strategy_fsdp2_experts_test

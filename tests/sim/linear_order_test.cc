// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "sim/engine/closed_form.h"
#include "sim/engine/simulate.h"
#include "sim/lower/lifetime.h"
#include "sim/program/text.h"
#include "tests/sim/ledger.h"
#include "tests/sim/oracle_job.h"
#include "tests/sim/sound_program.h"

// The order in which linear layers multiply and communicate, by system: nanotron takes dW, then dX, and waits for every
// collective; Megatron-LM gathers X again beside dX and reduces dX beside dW; nanotron's asynchronous linears do so
// too, and gather beside products with the own rows. On the oracle model over two tensor-parallel ranks: n = 4096
// tokens, h = 1024, so each gather and scatter of 2nh bytes carries 8,388,608.

namespace tidemark::linear_order_test {
namespace {

using TpGather = Buffers::TpGather;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::int64_t kWhole = 8'388'608, kOwnRows = 4'194'304;

/// One data-parallel rank, so that only tensor-parallel collectives run.
Job LinearJob(const char* strategy, bool scattered, std::int64_t layers = 2) {
  Job job = OracleJob(strategy, 1);
  std::get<Decoder>(job.network.shape).layers = layers;
  job.layout.dp = 1;
  job.layout.tp = 2;
  job.layout.sp = scattered;
  job.axes.packing = {true, true};
  return job;
}

Job AsyncJob(std::int64_t layers = 2) {
  Job job = LinearJob("nanotron", true, layers);
  job.axes.buffers.tp_gather = TpGather::async;
  return job;
}

/// The kernels that run beside a collective. What is done to a gradient once it is made is not: autograd's hooks run
/// when the linear's backward pass has returned, and it waits before.
std::set<std::string> Beside(const Job& job) {
  std::set<std::string> names;
  const Program program = Sound(job).roles.front();
  for (const Node& node : Unroll(program).nodes) {
    const auto* compute = std::get_if<Compute>(&node);
    if (compute != nullptr && compute->beside.valid()) {
      names.insert(program.names[compute->name.index]);
    }
  }
  return names;
}

/// Bytes of those of `tensors` that are alive at the first kernel of this name.
std::int64_t LiveAt(const Job& job, const std::string& kernel, const std::set<std::string>& tensors) {
  const Program program = Sound(job).roles.front();
  std::int64_t bytes = 0;
  for (const Node& node : Unroll(program).nodes) {
    const auto count = [&](const BufferRef& ref, std::int64_t sign) {
      const Buffer& buffer = program.buffers[ref.buffer.index];
      bytes += tensors.contains(buffer.name) ? sign * buffer.bytes().count() : 0;
    };
    if (const auto* alloc = std::get_if<Alloc>(&node)) {
      count(alloc->buffer, 1);
    } else if (const auto* free = std::get_if<Free>(&node)) {
      count(free->buffer, -1);
    } else if (const auto* compute = std::get_if<Compute>(&node);
               compute != nullptr && program.names[compute->name.index] == kernel) {
      return bytes;
    }
  }
  ADD_FAILURE() << "no kernel " << kernel;
  return 0;
}

/// The network's kernels and collectives, and waits of the compute stream, from the first whose name begins with `from`
/// to the first that is called `to`.
std::vector<std::string> Between(const Job& job, const std::string& from, const std::string& to) {
  const Program program = Unroll(Sound(job).roles.front());
  std::vector<std::string> names;
  for (const Node& node : program.nodes) {
    std::string name;
    if (const auto* compute = std::get_if<Compute>(&node)) {
      name = program.names[compute->name.index];
    } else if (const auto* collective = std::get_if<Collective>(&node)) {
      name = program.names[collective->name.index];
    } else if (const auto* wait = std::get_if<Wait>(&node); wait != nullptr && !names.empty()) {
      name = program.streams[wait->stream.index].kind == StreamKind::compute ? "wait" : "";
    }
    const bool of_the_network = name.find('.') != std::string::npos || name == "wait";
    if (of_the_network && (!names.empty() || name.starts_with(from))) {
      names.push_back(name);
    }
    if (name == to) {
      break;
    }
  }
  return names;
}

TEST(LinearOrder, NanotronTakesTheWeightGradientFirstAndWaitsForEachCollective) {
  EXPECT_THAT(Between(LinearJob("nanotron", true), "layer.qkv_in.gather_again", "layer.norm1.backward"),
              ElementsAre("layer.qkv_in.gather_again", "wait", "layer.qkv.weight_gradient", "layer.qkv.input_gradient",
                          "layer.qkv_in.scatter_gradient", "wait", "layer.norm1.backward"));
  EXPECT_THAT(Between(LinearJob("nanotron", false), "layer.qkv.weight_gradient", "layer.norm1.backward"),
              ElementsAre("layer.qkv.weight_gradient", "layer.qkv.input_gradient", "layer.qkv_in.reduce_gradient",
                          "wait", "layer.norm1.backward"));
}

TEST(LinearOrder, MegatronGathersBesideTheInputGradientAndReducesItBesideTheWeightGradient) {
  EXPECT_THAT(
      Between(LinearJob("megatron", true), "layer.qkv_in.gather_again", "layer.norm1.backward"),
      ElementsAre("layer.qkv_in.gather_again", "layer.qkv.input_gradient", "wait", "layer.qkv_in.scatter_gradient",
                  "layer.qkv.weight_gradient", "wait", "layer.norm1.backward"));
  EXPECT_THAT(Between(LinearJob("megatron", false), "layer.qkv.input_gradient", "layer.norm1.backward"),
              ElementsAre("layer.qkv.input_gradient", "layer.qkv_in.reduce_gradient", "layer.qkv.weight_gradient",
                          "wait", "layer.norm1.backward"));
  EXPECT_THAT(Between(LinearJob("megatron", true), "layer.qkv_in.gather", "layer.qkv.forward"),
              ElementsAre("layer.qkv_in.gather", "wait", "layer.qkv.forward"));
}

TEST(LinearOrder, NanotronRunsNothingBesideACollective) {
  for (const bool scattered : {false, true}) {
    EXPECT_THAT(Beside(LinearJob("nanotron", scattered)), IsEmpty());
  }
}

TEST(LinearOrder, MegatronRunsTheProductsOfColumnsBesideCollectivesAndNoneOfRows) {
  EXPECT_THAT(Beside(LinearJob("megatron", true)),
              ElementsAre("head.lm_head.input_gradient", "head.lm_head.weight_gradient", "layer.gate_up.input_gradient",
                          "layer.gate_up.weight_gradient", "layer.qkv.input_gradient", "layer.qkv.weight_gradient"));
}

TEST(LinearOrder, MegatronAddsGradientsToItsBufferWhenTheCollectiveIsDone) {
  Job job = LinearJob("megatron", true);
  job.axes.buffers.fused_accumulation = false;
  EXPECT_EQ(Beside(job), Beside(LinearJob("megatron", true)));
}

TEST(LinearOrder, MegatronWithoutSequenceParallelismAllReducesBesideWeightGradientsOnly) {
  EXPECT_THAT(
      Beside(LinearJob("megatron", false)),
      ElementsAre("head.lm_head.weight_gradient", "layer.gate_up.weight_gradient", "layer.qkv.weight_gradient"));
}

TEST(LinearOrder, AsynchronousNanotronAddsTheProductsWithTheOwnRows) {
  EXPECT_THAT(Beside(AsyncJob()),
              ElementsAre("head.lm_head.forward_own_rows", "head.lm_head.input_gradient",
                          "head.lm_head.weight_gradient", "layer.down.input_gradient", "layer.gate_up.forward_own_rows",
                          "layer.gate_up.input_gradient", "layer.gate_up.weight_gradient", "layer.qkv.forward_own_rows",
                          "layer.qkv.input_gradient", "layer.qkv.weight_gradient", "layer.wo.input_gradient"));
}

// While dW of a column runs, Megatron holds dX before and after its scatter; nanotron has neither yet.
TEST(LinearOrder, MegatronHoldsTheInputGradientWhileItTakesTheWeightGradient) {
  const std::set<std::string> gradients = {"layer.d_gu_in", "layer.d_norm2_out"};
  const char* const kernel = "layer.gate_up.weight_gradient";
  EXPECT_EQ(LiveAt(LinearJob("megatron", true), kernel, gradients), kWhole + kOwnRows);
  EXPECT_EQ(LiveAt(AsyncJob(), kernel, gradients), kWhole + kOwnRows);
  EXPECT_EQ(LiveAt(LinearJob("megatron", false), kernel, gradients), kWhole);
  EXPECT_EQ(LiveAt(LinearJob("nanotron", true), kernel, gradients), 0);
  EXPECT_EQ(LiveAt(LinearJob("nanotron", false), kernel, gradients), 0);
}

// A row's input (2nf/t = 11,534,336) is not done with until dW; its gradient has come by then.
TEST(LinearOrder, MegatronTakesInputGradientsFirstInRowsToo) {
  const std::set<std::string> input = {"layer.down_in", "layer.d_down_in"};
  EXPECT_EQ(LiveAt(LinearJob("megatron", true, 1), "layer.down.weight_gradient", input), 2 * 11'534'336);
  EXPECT_EQ(LiveAt(LinearJob("nanotron", true, 1), "layer.down.weight_gradient", input), 11'534'336);
}

// n/t (12h + 4hk/a + 6f + 8 + 4a) bytes a layer; without sequence parallelism its undivided terms are whole.
TEST(LinearOrder, MegatronSavesTheOwnRowsAndKeepsOneGlobalBuffer) {
  for (const auto& [scattered, saved, pool] :
       std::vector<std::tuple<bool, std::int64_t, std::int64_t>>{{true, 62'013'440, kWhole}, {false, 78'807'040, 0}}) {
    const Job job = LinearJob("megatron", scattered);
    const Result<std::vector<Stage>> stages = CutIntoStages(job);
    ASSERT_TRUE(stages.ok());
    EXPECT_EQ(SavedBytes(stages->front().BlockAt(1)).count(), saved);
    EXPECT_EQ(Audit(Sound(job), job.machine).live[Category::tp_gather].count(), pool);
  }
}

/// Kernels last longer than collectives, overlap costs nothing, and the host is never late.
Machine QuickLinks() {
  Machine machine = TestMachine();
  machine.peak = {{DType::bf16, FlopsPerSec(1e14)}, {DType::fp32, FlopsPerSec(1e14)}};
  machine.intra_node = {Nanos(2000), BytesPerSec(4e11)};
  machine.host_issue = Nanos(0);
  machine.overlap_slowdown = 1;
  return machine;
}

std::int64_t Exposed(Job job) {
  job.machine = QuickLinks();
  const StepProgram step = Sound(job);
  const std::vector<Costs> costs = PriceAll(step, job.machine);
  const Evaluation evaluation = Simulate(step, costs);
  EXPECT_EQ(evaluation, EvaluateClosedForm(step, costs));
  return evaluation.time.exposed_communication.count();
}

// A gather or scatter of 8,388,608 bytes over two ranks: 2,000 ns and half of it at 4e11 bytes/s, 10,485.76 ns.
// Megatron hides, in each layer, two gathers of X and two scatters of dX; in the head one of each.
TEST(LinearOrder, MegatronExposesFourCollectivesALayerLess) {
  constexpr std::int64_t kCollective = 12'486;
  for (const std::int64_t layers : {1, 2, 7}) {
    EXPECT_EQ(Exposed(LinearJob("nanotron", true, layers)) - Exposed(LinearJob("megatron", true, layers)),
              (4 * layers + 2) * kCollective);
  }
}

// Two all-reduces of dX a layer and the head's, of twice as many rounds and bytes: 4,000 + 20,971.52 ns.
TEST(LinearOrder, MegatronWithoutSequenceParallelismExposesTwoAllReducesALayerLess) {
  constexpr std::int64_t kAllReduce = 24'972;
  for (const std::int64_t layers : {1, 2, 7}) {
    EXPECT_EQ(Exposed(LinearJob("nanotron", false, layers)) - Exposed(LinearJob("megatron", false, layers)),
              (2 * layers + 1) * kAllReduce);
  }
}

// The gather of X in the forward pass and that of dY in the backward pass, beside products with half of the rows.
TEST(LinearOrder, AsynchronousNanotronExposesFourCollectivesALayerLessThanMegatron) {
  constexpr std::int64_t kCollective = 12'486;
  for (const std::int64_t layers : {1, 2, 7}) {
    EXPECT_EQ(Exposed(LinearJob("megatron", true, layers)) - Exposed(AsyncJob(layers)), (4 * layers + 1) * kCollective);
  }
}

}  // namespace
}  // namespace tidemark::linear_order_test

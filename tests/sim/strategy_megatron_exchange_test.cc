// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/closed_form.h"
#include "sim/predict/communication.h"
#include "sim/program/text.h"
#include "sim/program/verify.h"
#include "tests/sim/audited_job.h"
#include "tests/sim/oracle_job.h"

// Megatron's distributed optimizer with --grad-reduce-in-bf16, without and with reduce_scatter_with_fp32_accumulation.
// Of the oracle model's P = 110,633,984 parameters buckets of B1 = 41,419,776 and B2 = 69,214,208 elements are reduced
// over N = 4 ranks. Rules: megatron/core/distributed/reduce_scatter_with_fp32_accumulation.py and
// param_and_grad_buffer.py (start_grad_sync, finish_grad_sync), megatron/core/optimizer/distrib_optimizer.py.

namespace tidemark::strategy_megatron_exchange_test {
namespace {

constexpr std::int64_t kP = 110'633'984, kB2 = 69'214'208;
constexpr StepKind kSteps[] = {StepKind::first, StepKind::second, StepKind::steady};

Job NarrowJob(bool exchanges, std::int64_t microbatches = 2) {
  Job job = OracleJob("megatron-dist-opt", microbatches);
  job.axes.precision.accumulate = job.axes.precision.reduce = DType::bf16;
  job.axes.sync.fp32_accumulation = exchanges;
  return job;
}

/// What happens to communication buffers, in issue order, and where gradients are added to Megatron's buffer by a hook.
std::vector<std::string> EventsOf(const Program& program) {
  std::vector<std::string> events;
  const Program unrolled = Unroll(program);
  const auto is_bucket = [&](const BufferRef& ref) {
    return unrolled.buffers[ref.buffer.index].category == Category::bucket;
  };
  for (const Node& node : unrolled.nodes) {
    if (const auto* alloc = std::get_if<Alloc>(&node); alloc != nullptr && is_bucket(alloc->buffer)) {
      events.push_back("alloc " + unrolled.buffers[alloc->buffer.buffer.index].name);
    } else if (const auto* release = std::get_if<Free>(&node); release != nullptr && is_bucket(release->buffer)) {
      events.push_back("free " + unrolled.buffers[release->buffer.buffer.index].name);
    } else if (const auto* collective = std::get_if<Collective>(&node);
               collective != nullptr && collective->kind == CollectiveKind::all_to_all) {
      events.push_back("exchange " + std::to_string(collective->payload_elements));
    } else if (const auto* compute = std::get_if<Compute>(&node)) {
      const std::string name(unrolled.names[compute->name.index]);
      if (name == "sum parts in fp32" || name == "store sum" || name == "accumulate gradient") {
        events.push_back(name);
      }
    }
  }
  return events;
}

/// Payloads of the collectives of one kind, in issue order.
std::vector<std::int64_t> PayloadsOf(const Program& program, CollectiveKind kind) {
  std::vector<std::int64_t> payloads;
  for (const Node& node : Unroll(program).nodes) {
    const auto* collective = std::get_if<Collective>(&node);
    if (collective != nullptr && collective->kind == kind) {
      payloads.push_back(collective->payload_elements);
    }
  }
  return payloads;
}

std::string Refusal(const Job& job) {
  const Status status = FindStrategy(job.strategy)->Accept(job);
  return status.ok() ? std::string() : status.error().where + ": " + status.error().message;
}

TEST(MegatronExchange, TheWireIsABf16AllToAllAndTheGather) {
  for (const bool exchanges : {false, true}) {
    const StepProgram step = Sound(NarrowJob(exchanges));
    const std::vector<CommunicationRow> rows = CountCommunication(step.roles.front());
    ASSERT_EQ(rows.size(), 2U);
    for (const CommunicationRow& row : rows) {
      EXPECT_EQ(row.kind, row.kind == "all_gather" ? "all_gather" : exchanges ? "all_to_all" : "reduce_scatter");
      EXPECT_EQ(row.dtype, DType::bf16);
      EXPECT_EQ(row.count, 2);
      // 2 B1 * 3/4 + 2 B2 * 3/4
      EXPECT_EQ(row.wire.count(), 62'129'664 + 103'821'312);
    }
  }
}

TEST(MegatronExchange, AnOutputLivesUntilTheNextBucketIsLaunched) {
  // The first bucket leaves in the first layer's backward pass, before norm1's and the embedding's gradients; it is
  // drained when the embedding's gradient makes the second complete.
  std::vector<std::string> events = EventsOf(Sound(NarrowJob(true, 1)).roles.front());
  const auto first = std::find(events.begin(), events.end(), "alloc all-to-all output 1");
  ASSERT_NE(first, events.end());
  const std::vector<std::string> since(first, events.end());
  std::vector<std::string> expected{"alloc all-to-all output 1", "exchange 41419776"};
  // Norms that no GEMM makes: those left of the bucket's last layer, of the layers below it, and the embedding.
  const auto hooks = static_cast<std::size_t>(std::count(since.begin(), since.end(), "accumulate gradient"));
  EXPECT_GE(hooks, 2U);
  expected.insert(expected.end(), hooks, "accumulate gradient");
  for (const char* event :
       {"alloc fp32 sum 1", "sum parts in fp32", "store sum", "free fp32 sum 1", "free all-to-all output 1",
        "alloc all-to-all output 2", "exchange 69214208", "alloc fp32 sum 2", "sum parts in fp32", "store sum",
        "free fp32 sum 2", "free all-to-all output 2"}) {
    expected.emplace_back(event);
  }
  EXPECT_EQ(since, expected);
}

TEST(MegatronExchange, MemoryRisesByTheLargestOutputAndItsSum) {
  // Weights 2P, buffer 2P, masters and moments 12P / 4: 7P; then an output of 2 B2 beside a sum of 4 B2 / 4.
  const Ledger exchanged = BookOf(NarrowJob(true));
  EXPECT_EQ(exchanged.highest_system.count(), 7 * kP + 3 * kB2);
  // With a reduce-scatter the highest is where the window before has left its fp32 gradients of 4P / 4.
  EXPECT_EQ(BookOf(NarrowJob(false)).highest_system.count(), 8 * kP);
}

TEST(MegatronExchange, WithoutOverlapTheOneOutputIsAsLargeAsTheBuffer) {
  Job job = NarrowJob(true);
  job.axes.sync.overlap = false;
  EXPECT_EQ(BookOf(job).highest_system.count(), 7 * kP + 3 * kP);
  EXPECT_EQ(PayloadsOf(Sound(job).roles.front(), CollectiveKind::all_to_all), (std::vector<std::int64_t>{kP}));
}

TEST(MegatronExchange, InTheFirstStepOneExchangeFollowsTheOther) {
  const std::vector<std::string> events = EventsOf(Sound(NarrowJob(true, 1), StepKind::first).roles.front());
  const auto exchange = std::find(events.begin(), events.end(), "exchange 41419776");
  EXPECT_EQ(std::find(exchange, events.end(), "accumulate gradient"), events.end());
  EXPECT_EQ(BookOf(NarrowJob(true, 1), StepKind::first).highest_system.count(),
            4 * kP + 4 * kP / 4 + 3 * kB2);  // no moments yet
}

TEST(MegatronExchange, GradientsOfA16BitBufferAreCopiedForFp32MastersUntilTheNextWindow) {
  const Ledger ledger = BookOf(NarrowJob(false));
  EXPECT_EQ(ledger.between_microbatches.at(0)[Category::gradient].count(), 4 * kP / 4);  // of the window before
  EXPECT_EQ(ledger.between_microbatches.at(1)[Category::gradient].count(), 0);
  EXPECT_EQ(ledger.after_optimizer[Category::gradient].count(), 4 * kP / 4);
  EXPECT_EQ(SystemBytes(ledger.after_optimizer).count(), 8 * kP);
  // The precision-aware optimizer reads the buffer; its moments are 2 P * 2 bytes / 4.
  Job aware = NarrowJob(false);
  aware.axes.precision.optimizer = DType::bf16;
  EXPECT_EQ(SystemBytes(BookOf(aware).after_optimizer).count(), 4 * kP + (4 + 4) * kP / 4);
}

TEST(MegatronExchange, WithoutTheSumOrItsStoreTheNumbersAreWrong) {
  const auto damaged = [](auto damage) {
    StepProgram step = Sound(NarrowJob(true));
    for (Node& node : step.roles.front().nodes) {
      damage(node, step.roles.front());
    }
    return !Verify(step).empty();
  };
  EXPECT_FALSE(damaged([](Node&, const Program&) {}));
  EXPECT_TRUE(damaged([](Node& node, const Program&) {
    auto* collective = std::get_if<Collective>(&node);
    if (collective != nullptr && collective->kind == CollectiveKind::all_to_all) {
      collective->reduction = Reduction::none;
    }
  }));
  EXPECT_TRUE(damaged([](Node& node, const Program& program) {
    auto* compute = std::get_if<Compute>(&node);
    if (compute != nullptr && program.names[compute->name.index] == "store sum") {
      compute->reads.clear();
    }
  }));
}

TEST(MegatronExchange, ManyLayersFoldAndExchangeTheBucketsThatAReduceScatterHas) {
  for (const std::int64_t limit : {40'000'000, 11'000'000, 100'000'000}) {
    for (const StepKind kind : kSteps) {
      Job scattered = NarrowJob(false), exchanged = NarrowJob(true);
      for (Job* job : {&scattered, &exchanged}) {
        std::get<Decoder>(job->network.shape).layers = 160;
        job->axes.sync.bucket_elements = limit;
      }
      const StepProgram step = Sound(exchanged, kind);
      const StepProgram with_reduce_scatter = Sound(scattered, kind);
      EXPECT_EQ(PayloadsOf(step.roles.front(), CollectiveKind::all_to_all),
                PayloadsOf(with_reduce_scatter.roles.front(), CollectiveKind::reduce_scatter));
      // One period of blocks is written out once more, and each exchange takes more nodes.
      EXPECT_LT(step.roles.front().nodes.size(), 2 * with_reduce_scatter.roles.front().nodes.size()) << limit;
      const std::vector<Costs> costs = PriceAll(step, exchanged.machine);
      EXPECT_EQ(Simulate(step, costs), EvaluateClosedForm(step, costs)) << limit;
    }
  }
}

TEST(MegatronExchange, OneRankExchangesNothing) {
  Job job = NarrowJob(true);
  job.layout.dp = 1;
  EXPECT_TRUE(CountCommunication(Sound(job).roles.front()).empty());
}

TEST(MegatronExchange, WhatTheSystemDoesNotHaveIsRefused) {
  EXPECT_EQ(Refusal(NarrowJob(true)), "");
  Job wide = OracleJob("megatron-dist-opt", 2);
  wide.axes.sync.fp32_accumulation = true;
  EXPECT_NE(Refusal(wide).find("reduced in fp32 already"), std::string::npos);
  Job averaged = NarrowJob(true);
  averaged.axes.sync.average_in_collective = true;
  EXPECT_NE(Refusal(averaged).find("op == ReduceOp.SUM"), std::string::npos);
  Job plain = OracleJob("megatron", 2);
  plain.axes.sync.fp32_accumulation = true;
  EXPECT_NE(Refusal(plain).find("only the distributed optimizer does"), std::string::npos);
}

}  // namespace
}  // namespace tidemark::strategy_megatron_exchange_test

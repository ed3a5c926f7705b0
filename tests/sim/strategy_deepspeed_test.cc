// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/deepspeed_job.h"

// What DeepSpeed does is read from its source (edaa7221); worked numbers are for the oracle model with N = 4, M = 4:
// P = 110,633,984 parameters, 2P = 221,267,968 bytes of bf16, of which a rank owns a quarter. A ring all-reduce of S
// bytes costs a rank 2 S 3/4, an all-gather S 3/4.

namespace tidemark::deepspeed::strategy_deepspeed_test {
namespace {

TEST(DeepSpeed, WithoutZeroCommunicatesOnceAStep) { EXPECT_EQ(WireOf(OracleJob("deepspeed-zero0", 4)), 331'901'952); }

TEST(DeepSpeed, ZeroOneAndCoalescedZeroTwoReduceAndGatherOnce) {
  EXPECT_EQ(WireOf(OracleJob("deepspeed-zero1", 4)), 497'852'928);
  EXPECT_EQ(WireOf(OracleJob("deepspeed-coalesce", 4)), 497'852'928);
  Job job = OracleJob("deepspeed-zero1", 4);
  job.axes.sync.coalesce = true;
  EXPECT_EQ(WireOf(job), 497'852'928);
}

TEST(DeepSpeed, ZeroTwoAllReducesInEveryMicrobatchByDefault) {
  const Job job = OracleJob("deepspeed-zero2", 4);
  EXPECT_EQ(WireOf(job), 1'493'558'784);
  EXPECT_EQ(RowOf(job, "all_reduce").count, 4);
}

TEST(DeepSpeed, Bf16OptimizerPutsFourBytesPerParameterOnTheWire) {
  const Job job = OracleJob("deepspeed-bf16", 4);
  EXPECT_EQ(WireOf(job), 829'754'880);
  EXPECT_EQ(PayloadsOf(job, CollectiveKind::all_reduce), (std::vector<std::int64_t>{kP}));
}

// engine.communication_data_type is bf16 where bf16 is enabled and the config sets none, and allreduce_bucket casts a
// tensor of another dtype: all-reduce 2P and all-gather 2P.
TEST(DeepSpeed, Bf16OptimizersWireIsBf16WhereTheConfigDoesNotSayFp32) {
  Job job = OracleJob("deepspeed-bf16", 4);
  job.axes.precision.reduce = DType::bf16;
  EXPECT_EQ(WireOf(job), 497'852'928);
  EXPECT_EQ(RowOf(job, "all_reduce").payload.count(), 2 * kP);
}

TEST(DeepSpeed, WithoutMultiRankBucketsEveryRankIsReducedToByItself) {
  Job job = OracleJob("deepspeed-zero2", 4);
  job.axes.sync.multi_rank_bucket = false;
  const CommunicationRow row = RowOf(job, "reduce");
  EXPECT_EQ(row.count, 4 * 4);  // one bucket per microbatch, four ranks
  EXPECT_EQ(row.payload.count(), 4 * 2 * kP);
  EXPECT_EQ(RowOf(job, "all_reduce").count, 0);
}

TEST(DeepSpeed, WithoutReduceScatterTheBucketItselfIsReduced) {
  Job job = OracleJob("deepspeed-zero2", 1);
  const Ledger flattened = LedgerOf(job);
  job.axes.sync.collective = CollectiveKind::all_reduce;
  const Ledger whole = LedgerOf(job);
  EXPECT_EQ(WireOf(job), 331'901'952 + 165'950'976);
  // The default's highest point has the flattened copy of the bucket on top. Without it the highest point is where the
  // head's gradient stands beside the bucket.
  EXPECT_EQ((flattened.highest_system - whole.highest_system).count(), 2 * kP - 2 * kHead);
}

TEST(DeepSpeed, SteadyBytesOfBf16OptimizerBetweenMicrobatches) {
  const Ledger ledger = LedgerOf(OracleJob("deepspeed-bf16", 4));
  const CategoryBytes& live = ledger.between_microbatches.at(2);
  EXPECT_EQ(live[Category::parameter].count(), 221'267'968);
  EXPECT_EQ(live[Category::optimizer].count(), 110'633'984 + 221'267'968);
  EXPECT_EQ(Gradients(live), 663'803'904);  // fp32 flat and bf16 .grad
  EXPECT_EQ(SystemBytes(live).count(), 1'216'973'824);
  // The fp32 gradient is there before the first backward pass.
  EXPECT_EQ(Gradients(ledger.between_microbatches.at(0)), 4 * kP);
}

TEST(DeepSpeed, SteadyBytesOfOverlappingZeroTwoDuringALaterBackwardPass) {
  Job job = OracleJob("deepspeed-zero2", 4);
  job.axes.sync.overlap = true;
  const Ledger ledger = LedgerOf(job);
  // Where the epilogue adds the new part to the first microbatch's: parameters, states, two buffers, two parts.
  const CategoryBytes& live = ledger.between_microbatches.at(2);
  EXPECT_EQ(live[Category::parameter].count(), 221'267'968);
  EXPECT_EQ(live[Category::optimizer].count(), 331'901'952);
  EXPECT_EQ(live[Category::bucket].count(), 0);
  EXPECT_EQ(Gradients(live), 2 * kPart);
  class Watch : public Listener {
   public:
    explicit Watch(const Program& program) : program_(program) {}
    void OnAlloc(const BufferInstance& instance, Nanos, Nanos) override { Count(instance, 1); }
    void OnFree(const BufferInstance& instance, Nanos, Nanos) override {
      // The first buffer goes: the epilogue of a later microbatch is over its addition.
      if (program_.buffers[instance.buffer.index].name == "reduction bucket") {
        closing.push_back(live);
      }
      Count(instance, -1);
    }
    void OnSlice(StreamId, NameId, Nanos, Nanos) override {}
    void OnBegin(const Begin&, std::int64_t, Nanos) override {}
    void OnEnd(Phase, Nanos) override {}
    CategoryBytes live;
    std::vector<CategoryBytes> closing;

   private:
    void Count(const BufferInstance& instance, std::int64_t sign) {
      const Buffer& buffer = program_.buffers[instance.buffer.index];
      live[buffer.category] += buffer.bytes() * sign;
    }
    const Program& program_;
  };
  const StepProgram step = Sound(job);
  Watch watch(step.roles.front());
  const std::vector<Costs> costs = PriceAll(step, job.machine);
  const std::vector<Listener*> listeners{&watch};
  Simulate(step, costs, listeners);
  ASSERT_EQ(watch.closing.size(), 4U);
  EXPECT_EQ(watch.closing[2][Category::bucket].count(), 2'000'000'000);
  EXPECT_EQ(Gradients(watch.closing[2]), 110'633'984);
  EXPECT_EQ(SystemBytes(watch.closing[2]).count(), 2'663'803'904);
  EXPECT_EQ(Gradients(watch.closing[0]), 55'316'992);  // the first microbatch has one part
}

TEST(DeepSpeed, ABucketIsFlushedBeforeItOverflowsAndALargerParameterGoesByItself) {
  Job job = OracleJob("deepspeed-zero2", 1);
  job.axes.sync.bucket_elements = 20'000'000;
  // Printed by the worked example's script: head | norm and most of two layers | ... | embedding.
  EXPECT_EQ(FlushesOf(job), (std::vector<std::int64_t>{32'768'000, 19'927'040, 16'780'288, 8'390'656, 32'768'000}));
}

TEST(DeepSpeed, ZeroOneFlushesInDefinitionOrderUnlessItOverlaps) {
  Job job = OracleJob("deepspeed-zero1", 2);
  job.axes.sync.bucket_elements = 20'000'000;
  // A layer: norm 1,024, q 1,048,576, k and v 262,144, o 1,048,576, norm 1,024, gate-up 5,767,168, down 2,883,584.
  // Embedding | layer 0, layer 1 to its second norm: 11,274,240 + 2,623,488 + 5,767,168 | down of 1, layer 2, ...
  const std::vector<std::int64_t> flushes = FlushesOf(job);
  ASSERT_EQ(flushes.size(), 5U);
  EXPECT_EQ(flushes[0], kHead);
  EXPECT_EQ(flushes[1], 11'274'240 + 2'623'488 + 5'767'168);
  EXPECT_EQ(flushes[2], 2'883'584 + 11'274'240 + 2'623'488);
  EXPECT_EQ(flushes[3], 5'767'168 + 2'883'584 + 1'024);
  EXPECT_EQ(flushes[4], kHead);
  job.axes.sync.overlap = true;
  EXPECT_EQ(FlushesOf(job), (std::vector<std::int64_t>{32'768'000, 19'927'040, 16'780'288, 8'390'656, 32'768'000}));
}

TEST(DeepSpeed, ABucketBiggerThanTheModelIsFlushedOnceAndKeepsItsSize) {
  for (const char* name : {"deepspeed-zero1", "deepspeed-zero2", "deepspeed-coalesce"}) {
    Job job = OracleJob(name, 1);
    EXPECT_EQ(FlushesOf(job), (std::vector<std::int64_t>{kP})) << name;
    // 500,000,000 elements of bf16, whatever the model's size, and the flattened copy of what is in it.
    const auto bucket_bytes = [&](const Job& of) {
      std::int64_t bytes = 0;
      const StepProgram step = Sound(of);
      for (const Buffer& buffer : step.roles.front().buffers) {
        bytes += buffer.name.ends_with("reduction bucket") ? buffer.bytes().count() : 0;
      }
      return bytes;
    };
    EXPECT_EQ(bucket_bytes(job), 1'000'000'000) << name;
    job.axes.sync.overlap = true;
    EXPECT_EQ(bucket_bytes(job), 2'000'000'000) << name;
  }
}

TEST(DeepSpeed, ZeroOnesBucketStaysFromTheFirstBackwardToTheReduction) {
  const Ledger ledger = LedgerOf(OracleJob("deepspeed-zero1", 3));
  EXPECT_EQ(ledger.between_microbatches.at(0)[Category::bucket].count(), 0);
  EXPECT_EQ(ledger.between_microbatches.at(1)[Category::bucket].count(), 1'000'000'000);
  EXPECT_EQ(Gradients(ledger.between_microbatches.at(1)), 2 * kP);
  EXPECT_EQ(ledger.at_window_end[Category::bucket].count(), 0);
  EXPECT_EQ(Gradients(ledger.at_window_end), 2 * kPart);
  // Inside coalesce_grad_reduction it appears on leaving the block only, and gradients stay whole in ZeRO-2 too.
  const Ledger coalesced = LedgerOf(OracleJob("deepspeed-coalesce", 3));
  EXPECT_EQ(coalesced.between_microbatches.at(2)[Category::bucket].count(), 0);
  EXPECT_EQ(Gradients(coalesced.between_microbatches.at(2)), 2 * kP);
}

TEST(DeepSpeed, ZeroStepHoldsAFlatCopyAndThenAnFp32OneOfItsPart) {
  const Ledger ledger = LedgerOf(OracleJob("deepspeed-zero2", 2));
  // Averaged bf16 part, its flat copy, and the fp32 cast: 2 + 2 + 4 bytes per element of the part.
  EXPECT_EQ((ledger.highest_in_optimizer - SystemBytes(ledger.at_window_end)).count(), (2 + 4) * kPart);
}

TEST(DeepSpeed, StageZerosBucketOvershootsByOneParameter) {
  Job job = OracleJob("deepspeed-zero0", 1);
  job.axes.sync.bucket_elements = 20'000'000;
  // Closed once beyond 20,000,000: embedding | 11,274,240 + 2,623,488 + 5,767,168 + 2,883,584 | the same | norm, head.
  EXPECT_EQ(FlushesOf(job), (std::vector<std::int64_t>{kHead, 22'548'480, 22'548'480, kHead + 1024}));
}

TEST(DeepSpeed, StageZeroFlattensABucketBesideItsGradients) {
  const Ledger ledger = LedgerOf(OracleJob("deepspeed-zero0", 2));
  // bf16 weights and gradients, masters and moments, and the flattened copy of the one bucket.
  EXPECT_EQ(ledger.highest_system.count(), 2 * kP + 2 * kP + 12 * kP + 2 * kP);
  // In the step: casts one by one and the flat tensor, both fp32, beside the gradients.
  EXPECT_EQ(ledger.highest_in_optimizer.count(), 16 * kP + 4 * kP + 4 * kP);
}

TEST(DeepSpeed, MomentsAppearWithTheFirstUpdateExceptUnderFp16Optimizer) {
  const auto states = [](const char* name) {
    return LedgerOf(OracleJob(name, 2), StepKind::first).at_window_end[Category::optimizer].count();
  };
  EXPECT_EQ(states("deepspeed-zero0"), 12 * kP);
  EXPECT_EQ(states("deepspeed-zero1"), 4 * kPart);
  EXPECT_EQ(states("deepspeed-bf16"), 4 * kPart);
}

TEST(DeepSpeed, WhatTheRealSystemRefusesIsRefusedInItsWords) {
  const auto refused = [](const char* name, auto change) {
    Job job = OracleJob(name, 4);
    change(job);
    return Refusal(job);
  };
  const auto last = [](Job& job) { job.axes.sync.when = Sync::When::last; };
  const auto every = [](Job& job) { job.axes.sync.when = Sync::When::every; };
  const auto pipeline = [](Job& job) { job.layout.pp = 2; };
  const auto coalesce = [](Job& job) { job.axes.sync.coalesce = true; };
  const auto step_anywhere = [](Job& job) {
    job.axes.sync.when = Sync::When::custom;
    job.axes.sync.expression = "i == 0";
    job.axes.sync.step_expression = "i == 1";
  };
  EXPECT_EQ(refused("deepspeed-zero2", last),
            "sync.when: no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage 2");
  EXPECT_EQ(refused("deepspeed-zero2", pipeline),
            "layout.pp: ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism");
  EXPECT_EQ(refused("deepspeed-coalesce", pipeline),
            "layout.pp: coalesce_grad_reduction is not supported under pipeline parallelism");
  EXPECT_EQ(refused("deepspeed-zero0", coalesce),
            "sync.coalesce: coalesce_grad_reduction requires ZeRO stage 1/2/3, got stage 0");
  EXPECT_EQ(refused("deepspeed-bf16", coalesce),
            "sync.coalesce: coalesce_grad_reduction does not yet support optimizer wrapper BF16_Optimizer");
  for (const char* name : {"deepspeed-zero0", "deepspeed-zero1", "deepspeed-bf16"}) {
    EXPECT_EQ(refused(name, every),
              "sync.when: ZeRO stages 0 and 1 communicate only at gradient accumulation boundaries");
    EXPECT_EQ(refused(name, step_anywhere),
              "sync.step_expression: It is illegal to call Engine.step() inside no_sync context manager");
  }
  for (const std::string& name : kAll) {
    EXPECT_EQ(refused(name.c_str(), [](Job& job) { job.axes.sync.bucket_elements = 0; }),
              "sync.bucket_elements: a reduction bucket of no elements holds nothing");
  }
  EXPECT_NE(refused("deepspeed-coalesce", every).find("one optimizer step"), std::string::npos);
  EXPECT_NE(refused("deepspeed-zero0", pipeline).find("BF16_Optimizer"), std::string::npos);
  EXPECT_NE(
      refused("deepspeed-zero1", [](Job& job) { job.axes.precision.accumulate = DType::fp32; }).find("BF16_Optimizer"),
      std::string::npos);
  EXPECT_NE(refused("deepspeed-zero1",
                    [](Job& job) {
                      job.axes.sync.when = Sync::When::custom;
                      job.axes.sync.expression = "i % 2 == 1";
                      job.axes.sync.step_expression = "i == 3";
                    })
                .find("averaged_gradients"),
            std::string::npos);
  EXPECT_NE(
      refused("deepspeed-zero2", [](Job& job) { job.axes.buffers.contiguous_gradients = false; }).find("contiguous"),
      std::string::npos);
  EXPECT_NE(refused("deepspeed-zero2", [](Job& job) { job.axes.shard.replicas = 2; }).find("shard.replicas"),
            std::string::npos);
}

TEST(DeepSpeed, BoundariesSetByHandStepAndReduceWhereTheyAreSet) {
  for (const char* name : {"deepspeed-zero0", "deepspeed-zero1", "deepspeed-bf16"}) {
    Job job = OracleJob(name, 4);
    job.axes.sync.when = Sync::When::custom;
    job.axes.sync.expression = "(i + 1) % steps == 0";
    EXPECT_EQ(Refusal(job), "") << name;
    EXPECT_EQ(RowOf(job, "all_reduce").count, 1) << name;
  }
}

TEST(DeepSpeed, PipelinesRunWithAndWithoutZeroOne) {
  for (const char* name : {"deepspeed-bf16", "deepspeed-zero1"}) {
    Job job = OracleJob(name, 4);
    job.layout.pp = 2;
    EXPECT_EQ(Refusal(job), "") << name;
    Sound(job);
  }
  Job job = OracleJob("deepspeed-zero1", 4);
  job.layout.pp = 2;
  // reduce_gradients(pipeline_parallel=True) makes a second buffer beside the one of the hooks.
  const Ledger ledger = LedgerOf(job);
  EXPECT_GT(ledger.highest_system.count(), 2'000'000'000);
}

}  // namespace
}  // namespace tidemark::deepspeed::strategy_deepspeed_test

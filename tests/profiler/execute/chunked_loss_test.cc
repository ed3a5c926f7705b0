// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "models/job/validate.h"
#include "sim/program/text.h"
#include "tests/profiler/execute/farthest.h"
#include "tests/profiler/execute/memory_events.h"
#include "tests/profiler/execute/thread_ranks.h"

namespace tidemark::chunked_loss_test {
namespace {

// A loss in chunks is the same mathematics as one of all tokens: whatever the chunks, gradients and loss are those of
// the same job with upcast logits.

using Loss = Partition::Loss;
using testing::HasSubstr;

constexpr double kBound = 1e-10;

Job WithLoss(Job job, Loss loss, std::int64_t chunk_tokens) {
  job.axes.loss = loss;
  job.axes.loss_chunk_tokens = chunk_tokens;
  return job;
}

/// The same job with a loss of all tokens at once. Under Megatron no GEMM adds to its gradient buffer, which of tied
/// embeddings is not executed.
Job Dense(Job job) {
  job.axes.buffers.fused_accumulation = false;
  return WithLoss(job, Loss::upcast_logits, 0);
}

auto Of(const ParameterParts& all) {
  return [&all](const ParameterKey& key, std::int64_t begin, std::size_t i) { return all.at(key).at(begin)[i]; };
}

std::vector<RunOutcome> RunOn(const Job& job) {
  return job.Ranks() == 1 ? std::vector{Executed(job, 1, Exact())} : ExecutedTogether(job, 1, Exact());
}

/// On every rank: gradients of the same tensors, equal up to the roundings of fp64, and the same loss.
void ExpectAsDense(const Job& job) {
  const std::vector<RunOutcome> found = RunOn(job), expected = RunOn(Dense(job));
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    ASSERT_EQ(found[rank].gradients.size(), expected[rank].gradients.size());
    EXPECT_LT(FarthestFrom(found[rank].gradients, Of(expected[rank].gradients)), kBound) << rank;
    const auto &loss = found[rank].steps.front().loss, &dense = expected[rank].steps.front().loss;
    ASSERT_EQ(loss.has_value(), dense.has_value());
    EXPECT_NEAR(loss.value_or(0), dense.value_or(0), 1e-12);
  }
}

/// Each memory event of two steps, on every rank: tensor, bytes, birth or death, and what is reserved then.
void ExpectPredictedMemory(const Job& job) {
  PredictOptions options;
  options.steps = FirstSteps(2);
  const Prediction prediction = *Predict(job, options);
  const std::vector<RunOutcome> ranks = ExecutedTogether(job, 2);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::size_t role = RoleOf(job, static_cast<std::int64_t>(rank));
    EXPECT_EQ(MemoryEventsOf(ranks[rank].trace), MemoryEventsOf(*prediction.roles[role].trace)) << rank;
  }
}

Decoder& DecoderOf(Job& job) { return std::get<Decoder>(job.network.shape); }

struct Setting {
  const char* name;
  const char* strategy;
  std::function<void(Job&)> change = [](Job&) {};
};

void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name; }

const std::vector<Setting> kSettings = {
    {"one_rank", "ddp-last"},
    {"tied_embeddings", "ddp-last", [](Job& job) { DecoderOf(job).tied_embeddings = true; }},
    {"frozen_head", "ddp-last",
     [](Job& job) {
       job.network.trainable = {"layer.*", "embedding.*", "head.norm*"};
     }},
    {"frozen_embedding_that_is_the_head", "ddp-last",
     [](Job& job) {
       DecoderOf(job).tied_embeddings = true;
       job.network.trainable = {"layer.*"};
     }},
    {"recomputed_layers", "ddp-last", [](Job& job) { job.axes.recompute.policy = Recompute::Policy::full; }},
    {"two_ranks", "ddp-last", [](Job& job) { job.layout.dp = 2; }},
    {"two_shards", "fsdp2-defer", [](Job& job) { job.layout.dp = 2; }},
    {"two_shards_zeroed_in_place", "fsdp2-scatter-each",
     [](Job& job) {
       job.layout.dp = 2;
       job.axes.buffers.set_to_none = false;
     }},
    {"two_shards_summed_as_they_come", "fsdp2-defer",
     [](Job& job) {
       job.layout.dp = 2;
       job.axes.buffers.wide_chunk_sum = false;
     }},
    {"two_shards_of_tied_embeddings", "fsdp2-scatter-each",
     [](Job& job) {
       job.layout.dp = 2;
       DecoderOf(job).tied_embeddings = true;
     }},
    {"wide_logits", "ddp-last",
     [](Job& job) {
       job.axes.precision = {DType::fp32, DType::fp32, DType::fp32, DType::fp32, std::nullopt, DType::fp32};
     }},
    {"sums_in_fp32", "megatron", [](Job& job) { job.layout.dp = 2; }},
    {"sums_of_tied_embeddings_in_fp32", "megatron",
     [](Job& job) {
       job.layout.dp = 2;
       DecoderOf(job).tied_embeddings = true;
     }},
    {"two_stages", "ddp-last", [](Job& job) { job.layout.pp = 2; }},
    {"interleaved_stages_of_tied_embeddings", "megatron",
     [](Job& job) {
       job.layout.pp = 2;
       job.layout.vpp = 2;
       job.schedule = Schedule::interleaved;
       DecoderOf(job).layers = 4;
       DecoderOf(job).tied_embeddings = true;
     }},
    {"sequences_of_different_lengths", "ddp-last", [](Job& job) { job.mean_sequence_length = 9; }},
    {"tokens_counted_over_the_window", "fsdp2-defer",
     [](Job& job) {
       job.layout.dp = 2;
       job.mean_sequence_length = 9;
       job.axes.loss_scale = LossScale::global_tokens;
     }},
};

/// Liger-Kernel wants the whole vocabulary.
const std::vector<Setting> kDividedVocabularies = {
    {"divided_vocabulary", "ddp-last", [](Job& job) { job.layout.tp = 2; }},
    {"divided_vocabulary_and_scattered_rows", "fsdp2-scatter-each",
     [](Job& job) {
       job.layout.tp = 2;
       job.layout.sp = true;
     }},
    {"divided_vocabulary_of_different_lengths", "ddp-last",
     [](Job& job) {
       job.layout.tp = 2;
       job.mean_sequence_length = 9;
     }},
};

using Case = std::tuple<Setting, Loss, std::int64_t>;

class LossInChunksOf : public testing::TestWithParam<Case> {
 protected:
  static const Setting& setting() { return std::get<0>(GetParam()); }
  static Loss loss() { return std::get<1>(GetParam()); }
  static Job ChosenJob() {
    Job job = SmallJob(setting().strategy);
    setting().change(job);
    return WithLoss(job, loss(), std::get<2>(GetParam()));
  }
};

TEST_P(LossInChunksOf, HasTheGradientsOfAllTokensAtOnce) { ExpectAsDense(ChosenJob()); }

TEST_P(LossInChunksOf, AllocatesWhatWasPredictedEventByEvent) {
  Job job = ChosenJob();
  job.mean_sequence_length = 0;  // which is padded, and what memory is of
  job.axes.loss_scale = FindStrategy(job.strategy)->defaults.axes.loss_scale;
  ExpectPredictedMemory(job);
}

std::string NameOf(const testing::TestParamInfo<Case>& info) {
  const auto& [setting, loss, tokens] = info.param;
  return std::string(setting.name) + (loss == Loss::fused ? "_fused" : "_chunked") + "_by_" + std::to_string(tokens);
}

// Of the 32 tokens of a microbatch: four chunks of 10, 10, 10 and 2.
INSTANTIATE_TEST_SUITE_P(Execute, LossInChunksOf,
                         testing::Combine(testing::ValuesIn(kSettings), testing::Values(Loss::chunked, Loss::fused),
                                          testing::Values(10)),
                         NameOf);

INSTANTIATE_TEST_SUITE_P(Divided, LossInChunksOf,
                         testing::Combine(testing::ValuesIn(kDividedVocabularies), testing::Values(Loss::chunked),
                                          testing::Values(10)),
                         NameOf);

// As many as the real code takes; one; two, equal and not; a loop of one turn; a last chunk of one token; a token each.
INSTANTIATE_TEST_SUITE_P(Sizes, LossInChunksOf,
                         testing::Combine(testing::Values(kSettings.front()),
                                          testing::Values(Loss::chunked, Loss::fused),
                                          testing::Values(0, 32, 100, 16, 20, 12, 31, 1)),
                         NameOf);

TEST(LossInChunks, IsExecutedUnderEveryStrategyThatTakesIt) {
  std::size_t tried = 0;
  for (const Strategy& strategy : AllStrategies()) {
    if (!std::holds_alternative<Decoder>(OracleJob(strategy.defaults.name, 2).network.shape)) {
      continue;
    }
    for (const Loss loss : {Loss::chunked, Loss::fused}) {
      const Job job = WithLoss(SmallJob(strategy.defaults.name), loss, 12);
      if (!Validate(job).ok() || !strategy.Accept(job).ok() || strategy.DeclaredWrong(job)) {
        continue;
      }
      const Job dense = Dense(job);
      if (!CheckExecutable(dense, LoweredSteps(dense, 1).steps(), {}).ok()) {
        continue;
      }
      SCOPED_TRACE(job.strategy);
      ExpectAsDense(job);
      ++tried;
    }
  }
  EXPECT_GT(tried, 40U);
}

/// How far the gradients of a job of one rank are from the dense ones where its first step is changed.
double Departure(const Job& job, const std::function<void(Program&)>& change) {
  LoweredSteps steps(job, 1);
  change(steps.first());
  const auto run = RunAlone(job, steps.steps(), Exact());
  EXPECT_TRUE(run.ok()) << run.error().Text();
  return FarthestFrom(run->gradients, Of(Executed(Dense(job), 1, Exact()).gradients));
}

/// The last kernel of this name.
std::vector<Node>::iterator LastOf(Program& program, const std::string& name) {
  const auto found = std::find_if(program.nodes.rbegin(), program.nodes.rend(), [&](const Node& node) {
    const auto* kernel = std::get_if<Compute>(&node);
    return kernel != nullptr && program.names[kernel->name.index] == name;
  });
  EXPECT_NE(found, program.nodes.rend());
  return std::next(found).base();
}

// The last chunk has 2 of 32 tokens.
TEST(LossInChunks, WithoutTheLastChunkIsFound) {
  const auto without = [](const char* name) {
    return [name](Program& program) { program.nodes.erase(LastOf(program, name)); };
  };
  const Job chunked = WithLoss(SmallJob("ddp-last"), Loss::chunked, 10);
  const Job fused = WithLoss(SmallJob("ddp-last"), Loss::fused, 10);
  const auto nothing = [](Program&) {};
  EXPECT_LT(Departure(chunked, nothing), kBound);
  EXPECT_LT(Departure(fused, nothing), kBound);
  EXPECT_GT(Departure(chunked, without("head.lm_head.sum_weight_gradient")), 1e-2);
  EXPECT_GT(Departure(chunked, without("head.input_gradient.store")), 1e-2);
  EXPECT_GT(Departure(fused, without("head.lm_head.weight_gradient")), 1e-2);
  EXPECT_GT(Departure(fused, without("head.lm_head.input_gradient")), 1e-2);
}

// The executor tells chunks in the middle by the turn of their loop: 10 of 32 tokens are 4 chunks, 16 are 2.
TEST(LossInChunks, WithoutTheirLoopManyChunksAreRefused) {
  for (const Loss loss : {Loss::chunked, Loss::fused}) {
    const auto unrolled = [loss](std::int64_t chunk_tokens) {
      const Job job = WithLoss(SmallJob("ddp-last"), loss, chunk_tokens);
      LoweredSteps lowered(job, 1);
      lowered.first() = Unroll(lowered.first());
      const auto run = RunAlone(job, lowered.steps(), Exact());
      return run.ok() ? std::string() : run.error().message;
    };
    EXPECT_THAT(unrolled(10), HasSubstr("more than three chunks of a loss without their loop (loss_chunk_tokens)"));
    EXPECT_EQ(unrolled(16), "");
  }
}

TEST(LossInChunks, DividedByTheTokensOfAChunkIsFound) {
  const auto divide = [](Program& program) {
    auto& kernel = std::get<Compute>(*LastOf(program, "head.nll.backward"));
    kernel.scale = kernel.scale * Rational(32, 2);
  };
  EXPECT_GT(Departure(WithLoss(SmallJob("ddp-last"), Loss::chunked, 10), divide), 1e-1);
}

}  // namespace
}  // namespace tidemark::chunked_loss_test

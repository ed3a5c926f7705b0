// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "tests/models/job_fixture.h"
#include "tests/models/sample.h"

namespace tidemark::config_nanotron_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kSample = "nanotron-tinystories-tp4.yaml";

std::string Sample() { return SampleText(kSample); }

std::string SampleWith(const std::string& line, const std::string& instead) {
  return SampleText(kSample, line, instead);
}

/// The file says all of this; the line numbers are those of the file.
TEST(ConfigNanotron, ReadsThePublishedSample) {
  const Job job = MustParse(Sample());
  const auto& network = std::get<Decoder>(job.network.shape);
  EXPECT_EQ(network.layers, 12);
  EXPECT_EQ(network.hidden, 768);
  EXPECT_EQ(network.ffn, 3072);
  EXPECT_EQ(network.heads, 16);
  EXPECT_EQ(network.kv_heads, 16);
  EXPECT_EQ(network.vocabulary, 50272);
  EXPECT_TRUE(network.tied_embeddings);
  EXPECT_EQ(job.sequence_length, 512);
  EXPECT_EQ(job.micro_batch_size, 64);
  EXPECT_EQ(job.accumulation_steps, 2);
  EXPECT_EQ(job.layout.tp, 4);
  EXPECT_TRUE(job.layout.sp);
  EXPECT_EQ(job.schedule, Schedule::one_f_one_b);
  EXPECT_EQ(job.strategy, "nanotron");
  EXPECT_EQ(job.axes.buffers.tp_gather, Buffers::TpGather::pooled);  // tp_recompute_allgather is true unless given
  EXPECT_EQ(job.axes.precision.accumulate, DType::fp32);
  EXPECT_FALSE(job.axes.shard.optimizer);
  EXPECT_EQ(job.axes.sync.bucket_bytes, Bytes(25 * 1024 * 1024));
  EXPECT_EQ(job.SourceOf("micro_batch_size"), "job.yaml:104");
}

TEST(ConfigNanotron, AFieldThatIsNearlyOneOfThoseThatMatterIsAMistake) {
  const std::string refusal = Refusal(SampleWith("hidden_size: 768", "hidden_sizee: 768"));
  EXPECT_THAT(refusal, HasSubstr("model.model_config.hidden_sizee: there is no such field"));
  EXPECT_THAT(refusal, HasSubstr("did you mean model.model_config.hidden_size?"));
  EXPECT_THAT(Refusal(SampleWith("tp_mode: REDUCE_SCATTER", "tp_mod: REDUCE_SCATTER")),
              HasSubstr("did you mean parallelism.tp_mode?"));
}

TEST(ConfigNanotron, AssumesAMachineAndSaysSo) {
  const Job job = MustParse(Sample());
  EXPECT_EQ(job.machine.name, "h100-sxm-80gb");
  EXPECT_EQ(job.SourceOf("machine"), "assumed");
  EXPECT_EQ(MustParse(Sample(), {"machine=a100-sxm-80gb"}).SourceOf("machine"), "--set");
}

TEST(ConfigNanotron, AnAbsentPipelineEngineIsAllForwardAllBackward) {
  EXPECT_EQ(MustParse(SampleWith("pp_engine: 1f1b", "pp_engine: null")).schedule, Schedule::gpipe);
}

TEST(ConfigNanotron, AnAbsentTensorParallelModeIsAllReduce) {
  EXPECT_FALSE(MustParse(SampleWith("tp_mode: REDUCE_SCATTER", "tp_mode: null")).layout.sp);
}

TEST(ConfigNanotron, WithoutRecomputationGathersAreFresh) {
  const Job job =
      MustParse(SampleWith("tp_mode: REDUCE_SCATTER", "tp_mode: REDUCE_SCATTER\n  tp_recompute_allgather: false"));
  EXPECT_EQ(job.axes.buffers.tp_gather, Buffers::TpGather::fresh);
  EXPECT_FALSE(job.axes.buffers.gathers_again());
}

TEST(ConfigNanotron, EveryZeroStageAboveNoneMeansShardedOptimizerStates) {
  for (const char* stage : {"1", "2", "3"}) {
    EXPECT_TRUE(MustParse(SampleWith("zero_stage: 0", std::string("zero_stage: ") + stage)).axes.shard.optimizer);
  }
}

TEST(ConfigNanotron, NoZeroStageLeavesShardingToTheStrategy) {
  const Job job = MustParse(Sample());
  EXPECT_FALSE(job.axes.shard.optimizer);
  EXPECT_FALSE(job.sources.contains("shard.optimizer"));
}

TEST(ConfigNanotron, WithoutFp32AccumulationThereAreNoMasters) {
  const Job job = MustParse(SampleWith("accumulate_grad_in_fp32: true", "accumulate_grad_in_fp32: false"));
  EXPECT_EQ(job.axes.precision.accumulate, DType::bf16);
  EXPECT_FALSE(job.axes.precision.master.has_value());
}

TEST(ConfigNanotron, PadsTheVocabularyToTheDivisorTimesTheRanks) {
  // 50272 up to a multiple of 128 * 4 = 512: 99 * 512.
  const Job job = MustParse(SampleWith("make_vocab_size_divisible_by: 1", "make_vocab_size_divisible_by: 128"));
  EXPECT_EQ(std::get<Decoder>(job.network.shape).vocabulary, 50688);
}

TEST(ConfigNanotron, AsynchronousGathersAreThoseOfTheTensorParallelGroup) {
  const Job job = MustParse(SampleWith("tp_linear_async_communication: false", "tp_linear_async_communication: true"));
  EXPECT_EQ(job.axes.buffers.tp_gather, Buffers::TpGather::async);
}

TEST(ConfigNanotron, RecomputedLayersAreWholeLayers) {
  EXPECT_EQ(MustParse(SampleWith("", "")).axes.recompute.policy, Recompute::Policy::none);
  const Job job = MustParse(SampleWith("  tp: 4", "  tp: 4\n  recompute_layer: true"));
  EXPECT_EQ(job.axes.recompute.policy, Recompute::Policy::full);
}

// clip_grad is Optional without a default, which dacite fills with None: the trainer then does not clip.
TEST(ConfigNanotron, GradientsAreClippedToTheFilesNorm) {
  const Job job = MustParse(Sample());
  EXPECT_EQ(job.axes.optimizer_step.clip_norm, 1.0);
  EXPECT_EQ(job.SourceOf("optimizer_step.clip_norm"), "job.yaml:67");
  EXPECT_EQ(MustParse(SampleWith("clip_grad: 1.0", "clip_grad: 0.5")).axes.optimizer_step.clip_norm, 0.5);
  EXPECT_EQ(MustParse(SampleWith("clip_grad: 1.0", "clip_grad: null")).axes.optimizer_step.clip_norm, 0);
  EXPECT_EQ(MustParse(SampleWith("  clip_grad: 1.0\n", "")).axes.optimizer_step.clip_norm, 0);
  EXPECT_THAT(Refusal(SampleWith("clip_grad: 1.0", "clip_gradd: 1.0")), HasSubstr("did you mean optimizer.clip_grad?"));
}

// torch.optim: fused where it is told so, else lists of tensors where all are plain ones, which the fp32 copies are and
// nanotron's own parameters are not.
TEST(ConfigNanotron, TheOptimizersKernelsAreThoseThatTorchTakes) {
  using Kernel = OptimizerStep::Kernel;
  EXPECT_EQ(MustParse(Sample()).axes.optimizer_step.kernel, Kernel::fused);
  const std::string unfused = SampleWith("torch_adam_is_fused: true", "torch_adam_is_fused: false");
  EXPECT_EQ(MustParse(unfused).axes.optimizer_step.kernel, Kernel::foreach_);
  // SGD without momentum is one operation: the field is not looked at.
  EXPECT_EQ(MustParse(SampleWith("name: adamW\n    torch_adam_is_fused: true", "name: sgd")).axes.optimizer_step.kernel,
            Kernel::fused);
  std::string bf16 = unfused;
  const std::string line = "accumulate_grad_in_fp32: true";
  bf16.replace(bf16.find(line), line.size(), "accumulate_grad_in_fp32: false");
  EXPECT_EQ(MustParse(bf16).axes.optimizer_step.kernel, Kernel::for_loop);
  EXPECT_THAT(Refusal(SampleWith("    torch_adam_is_fused: true\n", "")), HasSubstr("torch_adam_is_fused: is missing"));
}

TEST(ConfigNanotron, RefusesWhatItCannotSayInstead) {
  EXPECT_THAT(Refusal(SampleWith("expert_parallel_size: 1", "expert_parallel_size: 2")), HasSubstr("has no experts"));
  EXPECT_THAT(Refusal(SampleWith("  tp: 4", "  tp: 4\n  context_parallel_size: 2")), HasSubstr("context parallelism"));
  EXPECT_THAT(Refusal(SampleWith("is_llama_config: true", "is_qwen2_config: true")), HasSubstr("is not a Llama"));
  EXPECT_THAT(Refusal(SampleWith("name: adamW", "name: lion")), HasSubstr("expected one of adamw, sgd, found 'lion'"));
}

TEST(ConfigNanotron, NamesALineForWrongAndMissingValues) {
  EXPECT_THAT(Refusal(SampleWith("micro_batch_size: 64", "micro_batch_size: lots")),
              StartsWith("runs/job.yaml:104: micro_batch_size: "));
  EXPECT_THAT(
      Refusal(SampleWith("  micro_batch_size: 64\n", "")),
      AllOf(StartsWith("runs/job.yaml:100: tokens.micro_batch_size: is missing"), Not(HasSubstr("did you mean"))));
}

TEST(ConfigNanotron, NamesWhatStandsInThePlaceOfWhatIsMissing) {
  const auto refusal = [](const std::string& line, const std::string& instead) {
    return Refusal(SampleWith(line, instead));
  };
  EXPECT_THAT(refusal("\noptimizer:", "\noptimiser:"),
              AllOf(StartsWith("runs/job.yaml:65: optimizer: is missing"),
                    HasSubstr("there is 'optimiser': did you mean 'optimizer'?")));
  EXPECT_THAT(refusal("\nparallelism:", "\nparalelism:"), HasSubstr("did you mean 'parallelism'?"));
  EXPECT_THAT(refusal("\ntokens:", "\nTokens:"), HasSubstr("did you mean 'tokens'?"));
  EXPECT_THAT(refusal("\nmodel:", "\nmodle:"), AllOf(StartsWith("runs/job.yaml:"), HasSubstr("did you mean 'model'?")));
  EXPECT_THAT(refusal("  model_config:", "  model_conf:"), HasSubstr("did you mean 'model_config'?"));
  EXPECT_THAT(refusal("    is_llama_config:", "    is_llama_conf:"), HasSubstr("did you mean"));
  EXPECT_THAT(refusal("  optimizer_factory:", "  optimizer_factories:"),
              AllOf(StartsWith("runs/job.yaml:76: optimizer.optimizer_factory: is missing"),
                    HasSubstr("did you mean 'optimizer_factory'?")));
  EXPECT_THAT(refusal("  batch_accumulation_per_replica:", "  batch_accumulation_per_rank:"),
              AllOf(StartsWith("runs/job.yaml:101: tokens.batch_accumulation_per_replica: is missing"),
                    HasSubstr("did you mean 'batch_accumulation_per_replica'?")));
  EXPECT_THAT(refusal("  tp: 4", "  TP: 4"), HasSubstr("did you mean 'tp'?"));
}

TEST(ConfigNanotron, GuessesNothingThatIsNotNear) {
  // What has a use of its own, and short names, which are near to each other by nature.
  EXPECT_THAT(Refusal(SampleWith("  tp: 4\n", "")),
              AllOf(HasSubstr("parallelism.tp: is missing"), Not(HasSubstr("mean"))));
  EXPECT_THAT(Refusal(SampleWith("  pp: 1\n", "  cp: 1\n")),
              AllOf(HasSubstr("parallelism.pp: is missing"), Not(HasSubstr("mean"))));
  EXPECT_THAT(Refusal(SampleWith("\noptimizer:", "\noptimizer: 5\nother:")),
              HasSubstr("optimizer: expected a section, found '5'"));
}

TEST(ConfigNanotron, RefusesSwappedLettersOfShortNames) {
  EXPECT_THAT(Refusal(SampleWith("  dtype: bfloat16", "  dytpe: bfloat16")), HasSubstr("did you mean model.dtype?"));
  EXPECT_THAT(Refusal(SampleWith("    name: adamW", "    naem: adamW")),
              HasSubstr("did you mean optimizer.optimizer_factory.name?"));
}

}  // namespace
}  // namespace tidemark::config_nanotron_test

// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "models/job/fields.h"
#include "tests/models/job_fixture.h"

namespace tidemark::job_read_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(JobRead, RefusesASectionThatTakesBackAKeySetBefore) {
  EXPECT_THAT(Refusal(SmallJob(), {"machine.device_memory=1GiB", "machine=a100-sxm-40gb"}),
              HasSubstr("--set machine=a100-sxm-40gb takes back the --set machine.device_memory before it"));
  EXPECT_THAT(Refusal(SmallJob(), {"network.layers=3", "network=gpt2"}), HasSubstr("set network first"));
  const Job job = MustParse(SmallJob(), {"machine=a100-sxm-40gb", "machine.device_memory=1GiB", "layout.dp=2",
                                         "layout={tp: 4}", "layout.dp=4"});
  EXPECT_EQ(job.machine.device_memory, Bytes(std::int64_t{1} << 30));
  EXPECT_EQ(job.layout.dp, 4);
}

TEST(JobRead, TakesValuesFromTheStrategyThenTheFileThenTheCommandLine) {
  const Job job = MustParse(SmallJob("layout: {dp: 4, tp: 2}\nsync: {bucket_bytes: 4 MiB}\n"), {"layout.tp=4"});
  EXPECT_EQ(job.axes.sync.first_bucket_bytes, Bytes(1048576));
  EXPECT_EQ(job.SourceOf("sync.first_bucket_bytes"), "default of plain");
  EXPECT_EQ(job.axes.sync.bucket_bytes, Bytes(4 * 1024 * 1024));
  EXPECT_EQ(job.SourceOf("sync.bucket_bytes"), "job.yaml:13");
  EXPECT_EQ(job.layout.tp, 4);
  EXPECT_EQ(job.SourceOf("layout.tp"), "--set");
  EXPECT_EQ(job.SourceOf("allocator.kind"), "default");
}

TEST(JobRead, AnAxisThatTheStrategyDoesNotLookAtHasNoSourceAndIsNotPrinted) {
  const Job job = MustParse(SmallJob());
  EXPECT_EQ(job.SourceOf("sync.bucket_bytes"), "");
  EXPECT_EQ(JobYaml(job).find("bucket_bytes: 26214400"), std::string::npos);
  EXPECT_NE(JobYaml(job).find("first_bucket_bytes"), std::string::npos);
}

TEST(JobRead, ExpressionsBelongToCustomSynchronisation) {
  EXPECT_THAT(Refusal(SmallJob("sync: {when: custom}\n")), HasSubstr("custom needs sync.expression"));
  EXPECT_THAT(Refusal(SmallJob("sync: {expression: i == 1}\n")), HasSubstr("only looked at with sync.when: custom"));
  EXPECT_THAT(Refusal(SmallJob("layout: {pp: 2}\nsync: {when: custom, expression: i == 1}\n")),
              HasSubstr("a pipeline flush is one window"));
  EXPECT_EQ(MustParse(SmallJob("sync: {when: custom, expression: i == 1}\n")).axes.sync.expression, "i == 1");
}

TEST(JobRead, ALastWindowIsShorterThanTheOthers) {
  EXPECT_THAT(Refusal(SmallJob("accumulation_steps: 4\nlast_window: {microbatches: 4}\n")),
              HasSubstr("4 microbatches fill a window of 4"));
  const std::string three = "accumulation_steps: 4\nlast_window: {microbatches: 3, policy: ";
  EXPECT_EQ(MustParse(SmallJob(three + "rescaled}\n")).Microbatches(), 3);
  EXPECT_EQ(MustParse(SmallJob(three + "drop}\n")).Microbatches(), 3);
  EXPECT_EQ(MustParse(SmallJob(three + "carry-over}\n")).Microbatches(), 4);
}

TEST(JobRead, LaterSetsWin) {
  EXPECT_EQ(MustParse(SmallJob(), {"accumulation_steps=2", "accumulation_steps=6"}).accumulation_steps, 6);
}

TEST(JobRead, NullMeansNoneWhereThatIsAValueAndIsRefusedElsewhere) {
  const Job job = MustParse(SmallJob("layout: {pp: 2, layers_per_stage: [1, 3]}\npipeline_microbatches: null\n"),
                            {"layout.layers_per_stage=null"});
  EXPECT_TRUE(job.layout.layers_per_stage.empty());
  MustParse(SmallJob("sync: {expression: null, step_expression: null}\n"));
  for (const char* set :
       {"micro_batch_size=", "layout.dp=null", "layout.dp=~", "precision.master=null", "sync.when="}) {
    EXPECT_THAT(Refusal(SmallJob(), {set}), AllOf(HasSubstr("found nothing"), HasSubstr("or leave the key out")))
        << set;
  }
  EXPECT_THAT(Refusal(SmallJob("accumulation_steps:\n")),
              AllOf(StartsWith("runs/job.yaml:12: accumulation_steps: expected a whole number, found nothing"),
                    HasSubstr("hint: write a value, for example accumulation_steps: 8")));
  EXPECT_THAT(Refusal(SmallJob(), {"network="}), HasSubstr("network: expected a word, found nothing"));
  EXPECT_THAT(Refusal(SmallJob(), {"machine.name="}), HasSubstr("name: expected a word, found nothing"));
}

TEST(JobRead, ASectionOnTheCommandLineIsReadAsInAFile) {
  const Job job = MustParse(SmallJob("layout: {dp: 4}\n"), {"layout={tp: 2, sp: false}"});
  EXPECT_EQ(job.layout.dp, 4);  // a section adds to what is there
  EXPECT_EQ(job.layout.tp, 2);
  EXPECT_EQ(job.SourceOf("layout.tp"), "--set");
  const Job other =
      MustParse(SmallJob(), {"network={name: x, layers: 2, hidden: 64, ffn: 128, heads: 4, vocabulary: 256}"});
  EXPECT_EQ(std::get<Decoder>(other.network.shape).kv_heads, 4);  // a network replaces it: the file's kv_heads is gone
  EXPECT_THAT(Refusal(SmallJob(), {"network={name: x, layers: 4}"}),
              AllOf(StartsWith("--set network={name: x, layers: 4}: network: lacks 'hidden'"), HasSubstr("hint: ")));
  EXPECT_THAT(Refusal(SmallJob(), {"layout={dq: 4}"}),
              AllOf(StartsWith("--set layout={dq: 4}: layout.dq: there is no such key"), HasSubstr("layout.dp?")));
  EXPECT_THAT(Refusal(SmallJob(), {"layout.dp={a: 4}"}),
              HasSubstr("layout.dp: expected a whole number, found a section"));
}

TEST(JobRead, ARefusalOfASectionNamesWhereItsValueWasGiven) {
  std::vector<StrategyDefaults> strategies = TestStrategies();
  strategies.front().refuse = [](const Job& job) {
    return job.axes.shard.params ? Status(BadKey("shard", "shards nothing")) : Status(Done{});
  };
  const auto refusal = [&](const std::string& extra, const std::vector<std::string>& set) {
    return ParseJob(SmallJob(extra), "runs/job.yaml", {set, std::nullopt}, strategies).error().Text();
  };
  EXPECT_THAT(refusal("", {"shard.params=true"}), StartsWith("--set shard.params=true: shard: shards nothing"));
  EXPECT_THAT(refusal("shard:\n  replicas: 1\n  params: true\n", {}), StartsWith("runs/job.yaml:14: shard: "));
}

TEST(JobRead, EveryWrongValueIsShownARightOne) {
  for (const Field<Job>& field : JobFields()) {
    for (const char* wrong : {"{a: b}", "-1", "far-from-anything"}) {
      const std::string set = field.key + "=" + wrong;
      const Result<Job> job = Parse(SmallJob(), {set});
      if (!job.ok()) {
        EXPECT_FALSE(job.error().hint.empty()) << job.error().Text();
      }
    }
    if (field.example.empty()) {
      continue;  // no value is supported yet
    }
    const Result<ConfigValue> example = ParseConfig(field.example, "example");
    Job job;
    ASSERT_TRUE(example.ok()) << field.example;
    EXPECT_TRUE(field.read(job, *example).ok()) << field.key << ": " << field.example;
  }
  EXPECT_THAT(Refusal(SmallJob(), {"network.layers=0"}), HasSubstr("hint: for example network.layers: 8"));
  EXPECT_THAT(Refusal(SmallJob(), {"packing.qkv=0"}), HasSubstr("hint: for example packing.qkv: packed"));
  EXPECT_THAT(Refusal(SmallJob(), {"layout.dp=abc"}), HasSubstr("hint: for example layout.dp: 8"));
}

TEST(JobRead, ASizeIsAWholeNumberOfBytes) {
  for (const char* size : {"0.5", "0.5 B", "1.25", "0"}) {
    EXPECT_THAT(Refusal(SmallJob(), {std::string("sync.first_bucket_bytes=") + size}),
                AllOf(HasSubstr("sync.first_bucket_bytes: expected a "), HasSubstr("hint: ")))
        << size;
  }
  EXPECT_EQ(MustParse(SmallJob(), {"sync.first_bucket_bytes=1.5 KiB"}).axes.sync.first_bucket_bytes, Bytes(1536));
  EXPECT_EQ(MustParse(SmallJob(), {"sync.first_bucket_bytes=1e6"}).axes.sync.first_bucket_bytes, Bytes(1000000));
}

/// The bounds of a key are those of what is built from it: its message is never corrected by a later one.
TEST(JobRead, ANetworkMayBeAsLargeAsItsKeysSay) {
  EXPECT_EQ(std::get<Decoder>(MustParse(SmallJob(), {"network.layers=16384"}).network.shape).layers, 16384);
  EXPECT_THAT(Refusal(SmallJob(), {"network.layers=16385"}), HasSubstr("expected a whole number from 1 to 16384"));
  for (const char* set :
       {"network.hidden=1048577", "network.ffn=4194305", "network.vocabulary=16777217", "network.positions=16777217"}) {
    EXPECT_THAT(Refusal(SmallJob(), {set}), HasSubstr("expected a whole number from ")) << set;
  }
}

TEST(JobRead, NamingANetworkOnTheCommandLineReplacesTheInlineOne) {
  const Job job = MustParse(SmallJob(), {"network=gpt2", "network.layers=3", "sequence_length=1024"});
  EXPECT_EQ(job.network.name, "gpt2");
  EXPECT_EQ(std::get<Decoder>(job.network.shape).layers, 3);
  EXPECT_EQ(std::get<Decoder>(job.network.shape).hidden, 768);  // GPT-2's published width
}

TEST(JobRead, SequenceParallelismFollowsTheStrategyWhereRanksShareTensors) {
  const std::string text = "network: llama-3-8b\nmachine: cpu\nsequence_length: 2048\nmicro_batch_size: 1\n";
  EXPECT_FALSE(MustParse(text + "strategy: nanotron\n").layout.sp);
  EXPECT_TRUE(MustParse(text + "strategy: nanotron\nlayout: {tp: 2}\n").layout.sp);
  EXPECT_FALSE(MustParse(text + "strategy: nanotron\nlayout: {tp: 2, sp: false}\n").layout.sp);
  EXPECT_FALSE(MustParse(text + "strategy: plain\nlayout: {tp: 2}\n").layout.sp);
}

TEST(JobRead, TheTensorParallelBufferAloneDecidesWhetherGathersAreDoneAgain) {
  for (const auto& [gather, again] : {std::pair("fresh", "false"),
                                      {"pooled", "true"},
                                      {"cached", "false"},
                                      {"async", "true"},
                                      {"pooled-unsafe", "false"}}) {
    const std::string text = SmallJob(fmt::format("buffers: {{tp_gather: {}}}\n", gather));
    EXPECT_THAT(JobYaml(MustParse(text)), HasSubstr(fmt::format("tp_gather: {}  # follows", again)));
    EXPECT_THAT(JobYaml(MustParse(text, {fmt::format("recompute.tp_gather={}", again)})),
                HasSubstr(fmt::format("tp_gather: {}  # --set", again)));
    EXPECT_THAT(Refusal(text, {fmt::format("recompute.tp_gather={}", again == std::string("true") ? "false" : "true")}),
                HasSubstr("contradicts buffers.tp_gather"));
  }
  EXPECT_THAT(Refusal(SmallJob(), {"recompute.tp_gather=perhaps"}), HasSubstr("expected true or false"));
  EXPECT_THAT(Refusal(SmallJob("buffers: {tp_gather: pooled}\nrecompute: {tp_gather: false}\n")),
              AllOf(StartsWith("runs/job.yaml:13: recompute.tp_gather: "), HasSubstr("contradicts buffers.tp_gather")));
}

TEST(JobRead, UnevenStagesMustAddUpToTheNetwork) {
  EXPECT_THAT(
      Refusal(SmallJob("layout: {pp: 3}\n")),
      AllOf(StartsWith("runs/job.yaml:12: layout.pp: 4 layers do not divide"), HasSubstr("layout.layers_per_stage")));
  const Job job = MustParse(SmallJob("layout: {pp: 3, layers_per_stage: [2, 1, 1]}\naccumulation_steps: 3\n"));
  EXPECT_EQ(job.layout.layers_per_stage, (std::vector<std::int64_t>{2, 1, 1}));
  EXPECT_THAT(Refusal(SmallJob("layout: {pp: 3, layers_per_stage: [2, 2, 1]}\n")), HasSubstr("adds up to 5 layers"));
  EXPECT_THAT(Refusal(SmallJob("layout: {pp: 2, layers_per_stage: [4]}\n")),
              HasSubstr("names 1 stages, but there are 2 (layout.pp * layout.vpp)"));
}

TEST(JobRead, UnknownKeysAreRefusedWithTheNearest) {
  EXPECT_THAT(Refusal(SmallJob("acumulation_steps: 4\n")),
              AllOf(StartsWith("runs/job.yaml:12: acumulation_steps: there is no such key"),
                    HasSubstr("did you mean accumulation_steps?")));
  EXPECT_THAT(Refusal(SmallJob("layout:\n  dpp: 4\n")),
              AllOf(StartsWith("runs/job.yaml:13: layout.dpp: "), HasSubstr("did you mean layout.dp?")));
  EXPECT_THAT(Refusal(SmallJob("tp: 4\n")), HasSubstr("did you mean layout.tp?"));
  EXPECT_THAT(Refusal(SmallJob("layot: {dp: 4}\n")), HasSubstr("did you mean layout?"));
  EXPECT_THAT(Refusal(SmallJob(), {"layout.pt=4"}),
              AllOf(StartsWith("--set layout.pt=4: "), HasSubstr("did you mean layout.")));
}

TEST(JobRead, WrongTypesNameWhatWasExpected) {
  EXPECT_THAT(Refusal(SmallJob("accumulation_steps: four\n")),
              StartsWith("runs/job.yaml:12: accumulation_steps: expected a whole number, found 'four'"));
  EXPECT_THAT(Refusal(SmallJob("accumulation_steps: 1.5\n")), HasSubstr("expected a whole number, found '1.5'"));
  EXPECT_THAT(Refusal(SmallJob("accumulation_steps: [4]\n")), HasSubstr("expected a whole number, found a list"));
  EXPECT_THAT(Refusal(SmallJob("layout: 8\n")), HasSubstr("layout: expected a section, found '8'"));
  EXPECT_THAT(Refusal(SmallJob("sync: {overlap: perhaps}\n")), HasSubstr("expected true or false, found 'perhaps'"));
  EXPECT_THAT(Refusal(SmallJob("sync: {bucket_bytes: 4 parsecs}\n")), HasSubstr("'4 parsecs' is not a size"));
  EXPECT_THAT(Refusal(SmallJob("precision: {params: bf17}\n")), HasSubstr("did you mean bf16?"));
  EXPECT_THAT(Refusal(SmallJob(), {"accumulation_steps"}), HasSubstr("expected key=value"));
}

TEST(JobRead, NumbersThatAreZeroNegativeOrTooLargeAreRefused) {
  for (const char* value : {"0", "-4", "99999999999999999999999", "16777217"}) {
    EXPECT_THAT(Refusal(SmallJob(), {std::string("accumulation_steps=") + value}),
                HasSubstr("expected a whole number from 1 to"));
  }
  // 2^24 microbatches of 2^24 sequences of 2^24 tokens: 2^72 tokens.
  EXPECT_THAT(
      Refusal(SmallJob(), {"accumulation_steps=16777216", "micro_batch_size=16777216", "sequence_length=16777216"}),
      StartsWith("runs/job.yaml"));
  EXPECT_THAT(Refusal(SmallJob("layout: {dp: 1000000, tp: 16, pp: 1048576}\n"), {"network.layers=1048576"}),
              HasSubstr("network.layers"));
}

TEST(JobRead, ALayoutThatDoesNotDivideTheNetworkIsRefused) {
  EXPECT_THAT(Refusal(SmallJob("layout: {tp: 3}\n")),
              StartsWith("runs/job.yaml:12: layout.tp: 16 attention heads do not divide"));
  EXPECT_THAT(Refusal(SmallJob("layout: {dp: 6}\nshard: {replicas: 4}\n")),
              StartsWith("runs/job.yaml:13: shard.replicas: 4 replicas do not divide the 6 data-parallel ranks"));
  EXPECT_THAT(Refusal(SmallJob("layout: {tp: 4, sp: true}\n"), {"sequence_length=2046"}),
              HasSubstr("2046 tokens do not divide"));
}

TEST(JobRead, AStrategyRefusesInItsOwnWordsAtThePlaceOfTheKey) {
  EXPECT_THAT(Refusal(SmallJob("sync: {when: every}\n"), {"strategy=nanotron"}),
              StartsWith("runs/job.yaml:12: sync.when: nanotron synchronises last"));
  EXPECT_THAT(Refusal(SmallJob(), {"strategy=nanotorn"}), HasSubstr("did you mean nanotron?"));
}

TEST(JobRead, ExpertParallelRanksNeedExpertsAndWholeGroups) {
  MustParse(SmallJob("accumulation_steps: 4\npipeline_microbatches: 4\nlayout: {cp: 1, vpp: 1, ep: 1}\n"));
  EXPECT_THAT(Refusal(SmallJob("accumulation_steps: 4\n"), {"layout.ep=2"}), HasSubstr("has no experts"));
  const std::vector<std::string> experts = {"network.experts.count=8", "network.experts.ffn=512", "layout.dp=8"};
  const auto refusal = [&](std::vector<std::string> others) {
    others.insert(others.begin(), experts.begin(), experts.end());
    return Refusal(SmallJob(), others);
  };
  EXPECT_THAT(refusal({"layout.ep=8", "layout.dp=12"}), HasSubstr("do not divide the 12 ranks"));
  EXPECT_THAT(refusal({"layout.ep=2", "layout.tp=4", "layout.sp=false"}), HasSubstr("layout.sp"));
  EXPECT_THAT(refusal({"layout.ep=2", "layout.tp=4", "layout.sp=true", "layout.etp=3"}),
              HasSubstr("layout.etp to a divisor of 4"));
  EXPECT_THAT(refusal({"layout.ep=2", "layout.tp=4", "layout.sp=true", "layout.etp=1"}), HasSubstr("multiple of 4"));
}

TEST(JobRead, RanksThatShareLayersWithExpertsHaveRowsOfTheirOwnByDefault) {
  const auto with = [](const char* tp) {
    return MustParse(SmallJob(), {"network.experts.count=8", "network.experts.ffn=512", tp});
  };
  EXPECT_TRUE(with("layout.tp=4").layout.sp);
  EXPECT_EQ(with("layout.tp=4").SourceOf("layout.sp"), "default of layers with experts");
  EXPECT_FALSE(with("layout.tp=1").layout.sp);
}

TEST(JobRead, WhatIsDoneAgainIsReadAndPrinted) {
  EXPECT_THAT(JobYaml(MustParse(SmallJob(), {"recompute.policy=every_n", "recompute.every=3"})),
              AllOf(HasSubstr("policy: every_n"), HasSubstr("every: 3")));
  EXPECT_THAT(JobYaml(MustParse(SmallJob("recompute: {policy: selective, norm: true, attention: false}\n"))),
              AllOf(HasSubstr("policy: selective"), HasSubstr("attention: false"), HasSubstr("norm: true"),
                    HasSubstr("activation: false"), HasSubstr("feed_forward: false")));
  EXPECT_THAT(Refusal(SmallJob(), {"recompute.every=0"}), HasSubstr("recompute.every: expected"));
}

TEST(JobRead, ChunksAndFlushesNeedAPipelineThatTheyDivide) {
  EXPECT_THAT(Refusal(SmallJob(), {"layout.vpp=2"}), HasSubstr("dealt out to the ranks of a pipeline"));
  EXPECT_THAT(Refusal(SmallJob("accumulation_steps: 4\n"), {"pipeline_microbatches=2"}),
              HasSubstr("no pipeline to flush"));
  EXPECT_THAT(Refusal(SmallJob("accumulation_steps: 4\nlayout: {pp: 2}\n"), {"pipeline_microbatches=3"}),
              HasSubstr("flushes of 3 microbatches do not divide the 4 of a step"));
  const Job job =
      MustParse(SmallJob("accumulation_steps: 4\nlayout: {pp: 2, vpp: 2}\npipeline_microbatches: 2\n"
                         "schedule: interleaved\n"));
  EXPECT_EQ(job.Flushes(), 2);
  EXPECT_EQ(job.layout.Stages(), 4);
}

TEST(JobRead, FilesThatAreNoJobsAreRefused) {
  EXPECT_THAT(Refusal(""), HasSubstr("an empty file"));
  EXPECT_THAT(Refusal("just words"), HasSubstr("expected a config, found 'just words'"));
  EXPECT_THAT(Refusal("layout: {dp: 8, tp"),
              AllOf(StartsWith("runs/job.yaml:1: is not valid YAML"), HasSubstr("complete")));
  EXPECT_THAT(Refusal("a: 1\nb: 2\n"), HasSubstr("is not a config that tidemark knows"));
  EXPECT_THAT(Refusal(SmallJob("layout: {dp: 1}\nlayout: {dp: 2}\n")), HasSubstr("layout: is given twice"));
  EXPECT_THAT(Refusal(SmallJob("layout: {dp: 1, tp: 2, dp: 2}\n")), HasSubstr("dp: is given twice"));
  EXPECT_EQ(MustParse(SmallJob("layout: {dp: 2, tp: 2, dp: 2}\n")).layout.dp, 2);
  EXPECT_THAT(Refusal(SmallJob() + "---\n" + SmallJob()), HasSubstr("several YAML documents"));
  EXPECT_THAT(Refusal("[a], true\n"), HasSubstr("several YAML documents"));  // where YAML::LoadAll never ends
}

TEST(JobRead, ASettingThatIsNoYamlIsNamedWhole) {
  EXPECT_THAT(Refusal(SmallJob(), {"layout={tp: 2"}),
              AllOf(StartsWith("--set layout={tp: 2: is not valid YAML"), HasSubstr("quoted for the shell")));
  EXPECT_THAT(Refusal(SmallJob(), {"layout.tp=: :"}), StartsWith("--set layout.tp=: :: a key must be a word"));
}

TEST(JobRead, AKeyThatCanBeSwitchedOffSaysHow) {
  EXPECT_THAT(Refusal(SmallJob(), {"optimizer_step.clip_norm=0"}),
              HasSubstr("for example optimizer_step.clip_norm: 1.0, or null for none"));
  EXPECT_THAT(Refusal(SmallJob(), {"accumulation_steps=0"}), Not(HasSubstr("null")));
  EXPECT_EQ(MustParse(SmallJob("optimizer_step: {clip_norm: 1}\n"), {"optimizer_step.clip_norm=null"})
                .axes.optimizer_step.clip_norm,
            0);
}

TEST(JobRead, AliasesThatExpandWithoutEndAreRefused) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before;
    for (int j = 0; j < 9; ++j) {
      bomb += ", " + before;
    }
    bomb += "]\n";
  }
  EXPECT_THAT(Refusal(bomb), HasSubstr("more values than a config"));
}

TEST(JobRead, MissingPartsAreNamed) {
  EXPECT_THAT(Refusal("network: gpt2\nmachine: cpu\nsequence_length: 1\n"), HasSubstr("the job has no strategy"));
  EXPECT_THAT(Refusal("network: gpt2\nstrategy: plain\nsequence_length: 1\n"), HasSubstr("the job has no machine"));
  EXPECT_THAT(Refusal("network: gpt2\nstrategy: plain\nmachine: cpu\n"), HasSubstr("the job has no sequence_length"));
  EXPECT_THAT(Refusal("network: {layers: 2}\nstrategy: plain\nmachine: cpu\nsequence_length: 1\n"),
              HasSubstr("lacks 'hidden'"));
  EXPECT_THAT(Refusal("network: gpt-2\nstrategy: plain\nmachine: cpu\nsequence_length: 1\n"),
              HasSubstr("did you mean gpt2?"));
  EXPECT_THAT(Refusal(SmallJob(), {"machine=h100"}), HasSubstr("neither a known machine nor a file"));
  EXPECT_THAT(Refusal(SmallJob(), {"machine=fast/mine.yaml"}), HasSubstr("there is no /"));
  EXPECT_THAT(Refusal(SmallJob(), {"machine=fast/mine.yaml"}), HasSubstr("/fast/mine.yaml"));
  EXPECT_THAT(Refusal("network: gpt2\nstrategy: plain\nmachine: [cpu]\nsequence_length: 1\n"),
              HasSubstr("machine: expected a word, found a list"));
}

TEST(JobRead, TheResidualNetworkHasItsPublishedParameters) {
  // 11,173,962: He et al.'s ResNet-18 for CIFAR-10, as every PyTorch implementation of it counts.
  const std::string path = std::string(TIDEMARK_TESTS) + "/jobs/resnet18-cifar10.yaml";
  const std::vector<StrategyDefaults> strategies = TestStrategies();
  const Result<Job> job = ReadJob(path, {{"strategy=plain"}, std::nullopt}, strategies);
  ASSERT_TRUE(job.ok()) << job.error().Text();
  EXPECT_EQ(ParameterCount(job->network), 11173962);
}

TEST(JobRead, APathInTheJobIsRelativeToTheJob) {
  const std::string folder = ::testing::TempDir();
  std::ofstream(folder + "/mine.json") << R"({"model_type": "gpt2", "n_layer": 2})";
  std::ofstream(folder + "/mine.yaml") << "network: mine.json\nmachine: cpu\nstrategy: plain\nsequence_length: 8\n";
  const std::vector<StrategyDefaults> strategies = TestStrategies();
  const Result<Job> job = ReadJob(folder + "/mine.yaml", {}, strategies);
  ASSERT_TRUE(job.ok()) << job.error().Text();
  EXPECT_EQ(std::get<Decoder>(job->network.shape).layers, 2);
}

TEST(JobRead, AModelOfTheHubIsTheZoosAndAFolderOfItsNameComesFirst) {
  EXPECT_EQ(MustParse(SmallJob(), {"network=Qwen/Qwen3-8B"}).network,
            MustParse(SmallJob(), {"network=qwen3-8b"}).network);
  EXPECT_THAT(Refusal(SmallJob(), {"network=Mine/Other-9000B"}),
              HasSubstr("any other is described by its config.json"));
  EXPECT_THAT(Refusal(SmallJob(), {"network=Qwen/Qwen3-8BB"}), HasSubstr("did you mean qwen/qwen3-8b?"));
  EXPECT_THAT(Refusal(SmallJob(), {"network=google/gemma-3-4b-it"}), HasSubstr("did you mean gemma-3-4b?"));
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "folder_of_a_model";
  std::filesystem::create_directories(folder / "Qwen/Qwen3-8B");
  std::ofstream(folder / "Qwen/Qwen3-8B/config.json") << R"({"model_type": "qwen3", "num_hidden_layers": 2})";
  std::ofstream(folder / "job.yaml") << "network: Qwen/Qwen3-8B\nmachine: cpu\nstrategy: plain\nsequence_length: 8\n";
  const std::vector<StrategyDefaults> strategies = TestStrategies();
  const Result<Job> job = ReadJob((folder / "job.yaml").string(), {}, strategies);
  ASSERT_TRUE(job.ok()) << job.error().Text();
  EXPECT_EQ(std::get<Decoder>(job->network.shape).layers, 2);
  EXPECT_EQ(job->network.name, "Qwen3-8B");

  std::filesystem::create_directories(folder / "Qwen/Qwen3-4B");
  EXPECT_THAT(Refusal("network: " + (folder / "Qwen/Qwen3-4B").string() + "\nmachine: cpu\nstrategy: plain\n"),
              HasSubstr("has no config.json"));
}

TEST(JobRead, AGroupOfKeysGivenAValueIsToldApartFromAMistypedKey) {
  const std::string refusal = Refusal(SmallJob(), {"layout=8"});
  EXPECT_THAT(refusal, ::testing::HasSubstr("layout=8: is a group of keys, not a value"));
  EXPECT_THAT(refusal, ::testing::HasSubstr("its keys are cp, dp, ep"));
}

}  // namespace
}  // namespace tidemark::job_read_test

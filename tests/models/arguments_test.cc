// SPDX-License-Identifier: Apache-2.0
#include "models/configs/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "models/configs/config.h"
#include "models/configs/parse.h"
#include "tests/models/foreign_config.h"

namespace tidemark::arguments_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ConfigValue Parsed(const std::string& text) {
  const Result<ConfigValue> options = ParseArguments(text, "runs/job.args");
  EXPECT_TRUE(options.ok()) << text;
  return options.ok() ? *options : ConfigValue();
}

std::string TextAt(const ConfigValue& options, const std::string& name) {
  const ConfigValue* value = options.Find(name);
  return value == nullptr ? "absent" : value->text;
}

std::string RefusalOfText(const std::string& text) {
  const Result<ConfigValue> options = ParseAnyConfig(text, "job.args");
  EXPECT_FALSE(options.ok()) << text;
  return options.ok() ? std::string() : options.error().Text();
}

TEST(Arguments, OptionsHaveOneValueSeveralOrNone) {
  const ConfigValue options =
      Parsed("torchrun --nproc_per_node 8 train.py --bf16 --lr=3e-4 --split 99,1,0 --tail a b -1");
  EXPECT_EQ(TextAt(options, "bf16"), "true");
  EXPECT_EQ(TextAt(options, "lr"), "3e-4");
  EXPECT_EQ(TextAt(options, "split"), "99,1,0");
  std::vector<std::string> tail;
  for (const ConfigValue& item : options.Find("tail")->items) {
    tail.push_back(item.text);
  }
  EXPECT_THAT(tail, ElementsAre("a", "b", "-1"));  // a number below zero is no option
  EXPECT_EQ(options.Find("nproc_per_node")->items.size(), 2);
}

TEST(Arguments, TheLastOfTheSameCounts) { EXPECT_EQ(TextAt(Parsed("--lr 1 --seed 2 --lr 3"), "lr"), "3"); }

TEST(Arguments, QuotesCommentsAndContinuedLinesAreAShells) {
  const ConfigValue options =
      Parsed("--save '/a b/$c' \\\n  --load \"/d \\\"e\\\" \\x\"  # --not this\n--name f\\ g --n=\"\"\n");
  EXPECT_EQ(TextAt(options, "save"), "/a b/$c");
  EXPECT_EQ(TextAt(options, "load"), "/d \"e\" \\x");
  EXPECT_EQ(TextAt(options, "name"), "f g");
  EXPECT_EQ(TextAt(options, "n"), "");
  EXPECT_EQ(TextAt(options, "not"), "absent");
  EXPECT_EQ(options.Find("load")->where, "runs/job.args:2");
  EXPECT_EQ(options.Find("name")->source, "job.args:3");
}

TEST(Arguments, WhatAShellWouldDoBehindThemIsNotTheirs) {
  EXPECT_EQ(TextAt(Parsed("train.py --lr 1 2>&1 | tee log"), "lr"), "1");
  EXPECT_THAT(RefusalOfText("a --lr 1 && b --lr 2"), HasSubstr("more than one command"));
  EXPECT_EQ(TextAt(Parsed("torchrun train.py --lr 1"), "lr"), "1");
  EXPECT_EQ(Parsed("torchrun train.py --lr 1").Find("")->items.size(), 2);
}

TEST(Arguments, OpenQuotesAreRefusedWithTheirLine) {
  EXPECT_THAT(RefusalOfText("--num-layers 2\n--save 'a b\n"), HasSubstr("quote ' is not closed"));
  EXPECT_THAT(RefusalOfText("--num-layers 2 --save \"a b\n"), HasSubstr("quote \" is not closed"));
}

TEST(Arguments, AScriptIsForItsShell) {
  const std::string refusal = RefusalOfText("#!/bin/bash\nTP=2\ntorchrun pretrain_gpt.py --num-layers 2 --tp $TP\n");
  EXPECT_THAT(refusal, HasSubstr("what it runs is for its shell to say"));
  EXPECT_THAT(refusal, HasSubstr("echo torchrun"));
}

/// What other syntaxes read is theirs, and dashes within a word begin no option.
TEST(Arguments, OnlyTextWithOptionsIsACommandLine) {
  EXPECT_TRUE(HasOptions("a --b"));
  EXPECT_TRUE(HasOptions("a\n--b"));
  EXPECT_FALSE(HasOptions("---\na: b--c -- d\n"));
  const Result<ConfigValue> yaml = ParseAnyConfig("MODEL_ARGS:\n  --num-layers: 2\n", "model_config.yaml");
  ASSERT_TRUE(yaml.ok());
  EXPECT_NE(yaml->FindPath("MODEL_ARGS.--num-layers"), nullptr);
  EXPECT_THAT(RefusalOfText("just words"), HasSubstr("expected a config"));
}

/// Which syntax a text has is told by the file's ending, or by its first word.
TEST(Arguments, AreNotWhatOtherSyntaxesFailToRead) {
  const auto refusal = [](const std::string& text, const std::string& path) {
    const Result<ConfigValue> options = ParseAnyConfig(text, path);
    return options.ok() ? std::string() : options.error().Text();
  };
  EXPECT_THAT(refusal("network: [a  # with --set b\n", "job.yaml"), HasSubstr("job.yaml:"));
  EXPECT_THAT(refusal("# with --set b\nnetwork: [a\n", "job"), HasSubstr("not valid YAML"));
  EXPECT_THAT(refusal("{\"a\": --b", "job"), HasSubstr("not valid YAML"));
  EXPECT_THAT(refusal("a = --b", "job.toml"), HasSubstr("not valid TOML"));
  // Quotes with a colon make YAML of a command line.
  const Result<ConfigValue> line =
      ParseAnyConfig("train.py --lr 1 --kwargs '{\"use_reentrant\": false}' --bf16", "job.txt");
  ASSERT_TRUE(line.ok());
  EXPECT_EQ(TextAt(*line, "kwargs"), "{\"use_reentrant\": false}");
}

/// As HfArgumentParser takes them.
TEST(Arguments, OfATrainerAreItsConfig) {
  const Result<ConfigValue> root = ParseAnyConfig(
      "accelerate launch train.py --model_name_or_path meta-llama/Meta-Llama-3-8B --bf16 True \\\n"
      "  --per_device_train_batch_size 2 --gradient_accumulation_steps 8 --torch_dtype bfloat16 --model_max_length "
      "2048 \\\n"
      "  --gradient_checkpointing --max_grad_norm 0.3 --output_dir out\n",
      "job.args");
  ASSERT_TRUE(root.ok());
  const std::vector<ConfigFormat> formats = ConfigFormats();
  const auto format = std::ranges::find_if(formats, [&](const ConfigFormat& one) { return one.recognises(*root); });
  ASSERT_NE(format, formats.end());
  EXPECT_EQ(format->name, "transformers");
  const Result<Settings> settings = format->read(*root, {{"layout.dp", MakeScalar("8", std::string(kCommandLine))}});
  ASSERT_TRUE(settings.ok()) << settings.error().Text();
  EXPECT_EQ(TextOf(*settings, "network"), "llama-3-8b");
  EXPECT_EQ(TextOf(*settings, "sequence_length"), "2048");
  EXPECT_EQ(TextOf(*settings, "accumulation_steps"), "8");
  EXPECT_EQ(TextOf(*settings, "recompute.policy"), "full");
  EXPECT_EQ(TextOf(*settings, "optimizer_step.clip_norm"), "0.3");
  EXPECT_EQ(settings->at("micro_batch_size").source, "job.args:2");
}

}  // namespace
}  // namespace tidemark::arguments_test

// SPDX-License-Identifier: Apache-2.0
// Which kernels a recipe of transformers asks for.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/models/foreign_config.h"
#include "tests/models/sample.h"

namespace tidemark::config_transformers_kernels_test {
namespace {

constexpr const char* kFormat = "transformers";
constexpr const char* kSample = "transformers-sft.yaml";

/// No such file says how many ranks there are.
const std::vector<std::string> kSet = {"layout.dp=8"};
const std::vector<std::string> kBf16 = {"layout.dp=8", "precision.params=bf16"};

/// Liger's kernels for Llama's relatives (monkey_patch.py): rope, swiglu, rms_norm and fused_linear_cross_entropy are
/// on by themselves. Without them LlamaRMSNorm casts up and, before its weight, down again.
TEST(ConfigTransformersKernels, AreTransformersOrLigers) {
  const Settings eager = MustRead(kFormat, SampleText(kSample), kSet);
  EXPECT_EQ(TextOf(eager, "network.norm_kernel"), "eager");
  EXPECT_EQ(TextOf(eager, "buffers.fused_glu"), "false");
  EXPECT_EQ(TextOf(eager, "buffers.fused_rope"), "false");
  EXPECT_EQ(TextOf(eager, "loss"), "(nothing)");
  const Settings liger = MustRead(kFormat, SampleText(kSample) + "use_liger_kernel: true\n", kSet);
  EXPECT_EQ(TextOf(liger, "network.norm_kernel"), "fused");
  EXPECT_EQ(TextOf(liger, "buffers.fused_glu"), "true");
  EXPECT_EQ(TextOf(liger, "buffers.fused_rope"), "true");
  EXPECT_EQ(TextOf(liger, "loss"), "fused");
  const Settings some =
      MustRead(kFormat, SampleText(kSample) + "use_liger_kernel: true\nliger_kernel_config: {rms_norm: false}\n", kSet);
  EXPECT_EQ(TextOf(some, "network.norm_kernel"), "eager");
  // GPT-2 has LayerNorm, and Liger no kernels for it.
  const std::string gpt2_with_it =
      "model_name_or_path: gpt2\nper_device_train_batch_size: 4\noutput_dir: out\nmodel_max_length: 1024\n"
      "use_liger_kernel: true\n";
  const Settings gpt2 = MustRead(kFormat, gpt2_with_it, kBf16);
  EXPECT_EQ(TextOf(gpt2, "loss"), "(nothing)");
  EXPECT_EQ(TextOf(gpt2, "network.norm_kernel"), "(nothing)");
}

TEST(ConfigTransformersKernels, WindowsCountWhereTheKernelLeavesOutWhatTheyHide) {
  const auto window_of = [](const std::string& lines) {
    const std::string text =
        "model_name_or_path: mistralai/Mistral-7B-v0.1\nper_device_train_batch_size: 1\n"
        "max_length: 8192\n" +
        lines;
    return TextOf(MustRead(kFormat, text, kBf16), "network.sliding_window");
  };
  EXPECT_EQ(window_of("output_dir: out\n"), "0");  // a mask for PyTorch's
  EXPECT_EQ(window_of("output_dir: out\nattn_implementation: sdpa\n"), "0");
  EXPECT_EQ(window_of("output_dir: out\nattn_implementation: flash_attention_2\n"), "(nothing)");
  EXPECT_EQ(window_of("output_dir: out\nattn_implementation: kernels-community/flash-attn3\n"), "(nothing)");
  const std::string within = "output_dir: out\nmodel_init_kwargs: {attn_implementation: ";
  EXPECT_EQ(window_of(within + "flash_attention_2}\n"), "(nothing)");
  EXPECT_EQ(window_of(within + "sdpa_flash}\n"), "0");
  EXPECT_THAT(
      RefusalOf(kFormat,
                "model_name_or_path: gpt2\nper_device_train_batch_size: 1\nmax_length: 1024\n" + within + "eager}\n",
                kBf16),
      ::testing::HasSubstr("keeps all attention scores"));
  EXPECT_EQ(window_of("use_slow_tokenizer: true\n"), "(nothing)");  // open-instruct's use_flash_attn
  EXPECT_EQ(window_of("use_slow_tokenizer: true\nuse_flash_attn: False\n"), "0");
  EXPECT_EQ(window_of("use_slow_tokenizer: true\nattn_implementation: sdpa\n"), "0");
  const std::string factory = "stage: sft\nfinetuning_type: full\ntemplate: mistral\ncutoff_len: 8192\n";
  EXPECT_EQ(window_of(factory + "flash_attn: fa2\n"), "(nothing)");
  for (const std::string kernel : {"auto", "sdpa", "false"}) {
    EXPECT_EQ(window_of(factory + "flash_attn: " + kernel + "\n"), "0") << kernel;
  }
  const Settings without = MustRead(kFormat, SampleText(kSample), kSet);
  EXPECT_EQ(TextOf(without, "network.sliding_window"), "(nothing)");
}

}  // namespace
}  // namespace tidemark::config_transformers_kernels_test

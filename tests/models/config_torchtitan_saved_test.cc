// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/models/foreign_config.h"
#include "tests/models/sample.h"

namespace tidemark::config_torchtitan_saved_test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kFormat = "torchtitan-saved";
constexpr const char* kSample = "torchtitan-saved-llama3-8b.json";
const std::vector<std::string> kEight = {"layout.dp=8"};

std::string With(const std::string& from, const std::string& to) { return SampleText(kSample, from, to); }

Settings Read(const std::string& from, const std::string& to, const std::vector<std::string>& set = kEight) {
  return MustRead(kFormat, With(from, to), set);
}
std::string Refusal(const std::string& from, const std::string& to, const std::vector<std::string>& set = kEight) {
  return RefusalOf(kFormat, With(from, to), set);
}

/// torchtitan/models/llama3: config_registry.py, llama3_8b; __init__.py, _8b.
TEST(ConfigTorchtitanSaved, ReadsTheNetworkFromItsModules) {
  const Settings settings = MustRead(kFormat, SampleText(kSample), kEight);
  EXPECT_EQ(TextOf(settings, "network.name"), "llama3 8B");
  EXPECT_EQ(TextOf(settings, "network.layers"), "32");
  EXPECT_EQ(TextOf(settings, "network.hidden"), "4096");
  EXPECT_EQ(TextOf(settings, "network.ffn"), "14336");
  EXPECT_EQ(TextOf(settings, "network.heads"), "32");
  EXPECT_EQ(TextOf(settings, "network.kv_heads"), "8");
  EXPECT_EQ(TextOf(settings, "network.head_size"), "128");
  EXPECT_EQ(TextOf(settings, "network.vocabulary"), "128256");
  EXPECT_EQ(TextOf(settings, "network.qk_norm"), "false");
  EXPECT_EQ(TextOf(settings, "network.tied_embeddings"), "false");
  EXPECT_EQ(TextOf(settings, "packing.qkv"), "packed");  // wqkv
  EXPECT_EQ(TextOf(MustRead(kFormat, SampleText(kSample), {"layout.dp=8", "network=qwen2-7b"}), "network.layers"),
            "(nothing)");
}

TEST(ConfigTorchtitanSaved, ReadsTheRest) {
  const Settings settings = MustRead(kFormat, SampleText(kSample), kEight);
  EXPECT_EQ(TextOf(settings, "strategy"), "fsdp2-scatter-each");
  EXPECT_EQ(TextOf(settings, "sequence_length"), "8192");
  EXPECT_EQ(TextOf(settings, "micro_batch_size"), "1");
  EXPECT_EQ(TextOf(settings, "accumulation_steps"), "1");
  EXPECT_EQ(TextOf(settings, "recompute.policy"), "per_op");
  EXPECT_EQ(TextOf(settings, "loss"), "chunked");
  EXPECT_EQ(TextOf(settings, "loss_chunk_tokens"), "1024");  // 8192 / 8
  EXPECT_EQ(TextOf(settings, "loss_scale"), "global-tokens");
  EXPECT_EQ(TextOf(settings, "precision.params"), "bf16");
  EXPECT_EQ(TextOf(settings, "precision.master"), "fp32");
  EXPECT_EQ(TextOf(settings, "optimizer_step.kernel"), "fused");
  EXPECT_EQ(TextOf(settings, "optimizer_step.clip_norm"), "1.0");
  EXPECT_EQ(TextOf(settings, "buffers.fused_glu"), "false");
  EXPECT_EQ(TextOf(settings, "layout.sp"), "(nothing)");
}

// A microbatch is a row of tokens. 16,384 of them are two sequences of 8,192, in eight chunks of 2,048.
TEST(ConfigTorchtitanSaved, TokensMakeTheBatch) {
  const std::string tokens = "\"num_tokens_per_microbatch_per_dp_rank\": 8192";
  const Settings two = Read(tokens, "\"num_tokens_per_microbatch_per_dp_rank\": 16384");
  EXPECT_EQ(TextOf(two, "micro_batch_size"), "2");
  EXPECT_EQ(TextOf(two, "loss_chunk_tokens"), "2048");
  EXPECT_THAT(Refusal(tokens, "\"num_tokens_per_microbatch_per_dp_rank\": 12288"),
              HasSubstr("no whole number of sequences of 8192\nhint: price the row as one sequence: --set "
                        "sequence_length=12288"));
  EXPECT_EQ(
      TextOf(Read(tokens, "\"num_tokens_per_microbatch_per_dp_rank\": 12288", {"layout.dp=8", "sequence_length=12288"}),
             "micro_batch_size"),
      "1");
  const std::string all = "\"num_tokens_per_train_step\": -1";
  EXPECT_EQ(TextOf(Read(all, "\"num_tokens_per_train_step\": 262144"), "accumulation_steps"), "4");  // / (8 * 8192)
  EXPECT_THAT(Refusal(all, "\"num_tokens_per_train_step\": 100000"), HasSubstr("(65536)"));
  EXPECT_EQ(TextOf(Read(all, "\"num_tokens_per_train_step\": 262144", {"layout.dp=8", "micro_batch_size=2"}),
                   "accumulation_steps"),
            "2");
}

// What is saved of a policy are its fields, by which it is told from others.
TEST(ConfigTorchtitanSaved, RecomputationIsToldByItsFields) {
  const std::string forced = ",\n    \"force_recompute_mm_shapes_by_fqns\": [\n      \"moe.router.gate\"\n    ]";
  EXPECT_EQ(TextOf(Read(forced, ""), "recompute.policy"), "full");
  EXPECT_THAT(Refusal("\"moe.router.gate\"", "\"attention.wo\""), HasSubstr("by their shapes"));
  EXPECT_THAT(Refusal(forced, ",\n    \"memory_budget\": 0.5"), HasSubstr("what a compiler chooses to recompute"));
  const std::string text = SampleText(kSample);
  const std::size_t begin = text.find("\"activation_checkpoint\": {"), end = text.find("\"compile\": {");
  const std::string none = text.substr(0, begin) + "\"activation_checkpoint\": null,\n  " + text.substr(end);
  EXPECT_EQ(TextOf(MustRead(kFormat, none, kEight), "recompute.policy"), "none");
}

TEST(ConfigTorchtitanSaved, ALossWithoutChunksIsADenseOne) {
  const std::string chunks = "\"num_chunks\": 8,\n    \"loss_fn\": {\n      \"global_vocab_size\": 128256\n    }";
  EXPECT_EQ(TextOf(Read(chunks, "\"global_vocab_size\": 128256"), "loss"), "upcast-logits");
  EXPECT_EQ(TextOf(Read("\"num_chunks\": 8", "\"num_chunks\": 16"), "loss_chunk_tokens"), "512");
  EXPECT_THAT(Refusal("\"num_chunks\": 8", "\"num_chunks\": 7"),
              HasSubstr("8192 tokens are not divisible by 7 chunks"));
  EXPECT_THAT(Refusal("\"num_chunks\": 8", "\"mtp_scale\": 0.3, \"num_chunks\": 8"),
              HasSubstr("multi-token prediction"));
}

// trainer.py, train_step: zero_grad(set_to_none=config.training.disable_cuda_graphs).
TEST(ConfigTorchtitanSaved, GraphsKeepGradients) {
  EXPECT_EQ(TextOf(MustRead(kFormat, SampleText(kSample), kEight), "buffers.set_to_none"), "false");
  EXPECT_EQ(TextOf(Read("\"disable_cuda_graphs\": false", "\"disable_cuda_graphs\": true"), "buffers.set_to_none"),
            "true");
}

TEST(ConfigTorchtitanSaved, APipelineHasItsOwnMicrobatches) {
  std::string text = With("\"pipeline_parallel_degree\": 1", "\"pipeline_parallel_degree\": 4");
  EXPECT_THAT(RefusalOf(kFormat, text, kEight), HasSubstr("CUDA graphs do not support pipeline parallelism yet"));
  const auto change = [&](const std::string& from, const std::string& to) {
    text.replace(text.find(from), from.size(), to);
  };
  change("\"disable_cuda_graphs\": false", "\"disable_cuda_graphs\": true");
  change("\"num_pp_microbatches\": 1", "\"num_pp_microbatches\": 8");
  const Settings settings = MustRead(kFormat, text, kEight);
  EXPECT_EQ(TextOf(settings, "strategy"), "fsdp2-keep-all");
  EXPECT_EQ(TextOf(settings, "accumulation_steps"), "8");
  EXPECT_EQ(TextOf(settings, "pipeline_microbatches"), "8");
  EXPECT_EQ(settings.at("layout.layers_per_stage").items.size(), 4);
  change("\"num_tokens_per_train_step\": -1", "\"num_tokens_per_train_step\": 1048576");  // two flushes
  EXPECT_THAT(RefusalOf(kFormat, text, kEight), HasSubstr("--set accumulation_steps=8"));
}

TEST(ConfigTorchtitanSaved, TensorParallelRanksScatterTheResidualStreamUnlessTold) {
  const std::string degree = "\"tensor_parallel_degree\": 1";
  const Settings four = Read(degree, "\"tensor_parallel_degree\": 4");
  EXPECT_EQ(TextOf(four, "layout.sp"), "true");
  EXPECT_EQ(TextOf(four, "recompute.reduce_scatter"), "true");  // by spmd_types
  std::string text = With(degree, "\"tensor_parallel_degree\": 4");
  const std::string scattered = "\"enable_sequence_parallel\": true";
  text.replace(text.find(scattered), scattered.size(), "\"enable_sequence_parallel\": false");
  EXPECT_EQ(TextOf(MustRead(kFormat, text, kEight), "layout.sp"), "false");
}

TEST(ConfigTorchtitanSaved, TheOptimizersStateMayBeNarrow) {
  const Settings settings = Read("\"implementation\": \"fused\"", "\"implementation\": \"fused_opt_states_bf16\"");
  EXPECT_EQ(TextOf(settings, "optimizer_step.kernel"), "fused");
  EXPECT_EQ(TextOf(settings, "precision.optimizer"), "bf16");
  EXPECT_THAT(Refusal("\"optimizer_name\": \"AdamW\"", "\"optimizer_name\": \"DistMuon\""),
              HasSubstr("DistMuon is not supported"));
  EXPECT_THAT(Refusal("\"eps\": 1e-08,\n          \"weight_decay\": 0.1", "\"fused\": false"),
              HasSubstr("a kernel of their own"));
}

// Modules of other kinds are told by their fields: quantized products, experts, latent attention, windows.
TEST(ConfigTorchtitanSaved, OtherModulesAreRefusedByName) {
  EXPECT_THAT(
      Refusal("\"in_features\": 4096, \"out_features\": 6144", "\"recipe\": \"rowwise\", \"in_features\": 4096"),
      HasSubstr("model_spec.model.layers[0].attention.qkv_linear.wqkv.recipe: belongs to a kind of module"));
  EXPECT_THAT(Refusal("\"moe\": null", "\"moe\": {\"num_experts\": 8}"), HasSubstr("layers with experts"));
  EXPECT_THAT(Refusal("\"qk_norm\": null", "\"kv_lora_rank\": 512"), HasSubstr("multi-latent attention"));
  EXPECT_THAT(Refusal("\"block_size\": 128, \"kernel_options\": {}", "\"window_size\": [512, 0]"),
              HasSubstr("sliding windows"));
  EXPECT_THAT(Refusal("\"out_features\": 6144", "\"out_features\": 6000"), HasSubstr("6000 is no output of 32 heads"));
  EXPECT_THAT(Refusal("\"enable_weight_tying\": false", "\"vision_encoder\": {}"), HasSubstr("vision_encoder"));
  EXPECT_THAT(Refusal("\"imports\": []", "\"imports\": [\"fused_swiglu\"]"),
              HasSubstr("fused_swiglu replaces modules"));
  EXPECT_THAT(Refusal("\"qk_norm\": null", "\"qk_norm\": {\"normalized_shape\": 128}"),
              HasSubstr("layer 1 is another than layer 0"));
}

TEST(ConfigTorchtitanSaved, OtherFieldsAreRefusedByName) {
  EXPECT_THAT(RefusalOf(kFormat, SampleText(kSample)), HasSubstr("takes all ranks there are"));
  EXPECT_THAT(Refusal("\"enable_cpu_offload\": false", "\"enable_cpu_offload\": true"),
              HasSubstr("training.enable_cpu_offload: 'true' is not supported"));
  EXPECT_THAT(Refusal("\"max_norm\": 1.0", "\"seq_len\": 8192"),
              HasSubstr("training.seq_len: is not known to this version"));
  EXPECT_THAT(Refusal("\"dump_folder\"", "\"parallel\""), HasSubstr("parallel: is no section"));
}

}  // namespace
}  // namespace tidemark::config_torchtitan_saved_test

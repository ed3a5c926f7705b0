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
  EXPECT_EQ(TextOf(settings, "network.rotary_table"), "pairs");
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
  Read(forced, ",\n    \"memory_budget\": 0.5", {"layout.dp=8", "recompute.policy=per_op"});  // as the hint says
  EXPECT_EQ(TextOf(Read("\"activation_checkpoint\": {", "\"fault_tolerance\": {"), "recompute.policy"),
            "per_op");  // SelectiveAC is the default
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
  constexpr const char* kTooFew = "layout.pp: 34 layers, embedding and head included, are too few for 100 stages";
  EXPECT_THAT(RefusalOf(kFormat, text, {"layout.dp=8", "layout.pp=100"}),
              AllOf(HasSubstr(kTooFew), HasSubstr("--set layout.pp=100")));
  change("\"pipeline_parallel_degree\": 4", "\"pipeline_parallel_degree\": 100");
  EXPECT_THAT(RefusalOf(kFormat, text, kEight), HasSubstr(std::string("job.json:153: ") + kTooFew));
  change("\"pipeline_parallel_degree\": 100", "\"pipeline_parallel_degree\": 4");
  change("\"num_tokens_per_train_step\": -1", "\"num_tokens_per_train_step\": 1048576");  // two flushes
  EXPECT_THAT(RefusalOf(kFormat, text, kEight), HasSubstr("--set accumulation_steps=8"));
}

TEST(ConfigTorchtitanSaved, TensorParallelRanksScatterTheResidualStreamUnlessTold) {
  const std::string degree = "\"tensor_parallel_degree\": 1";
  const Settings four = Read(degree, "\"tensor_parallel_degree\": 4");
  EXPECT_EQ(TextOf(four, "layout.sp"), "true");
  EXPECT_EQ(TextOf(four, "recompute.collectives"), "true");  // by spmd_types
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
  const std::string numbers = "\"eps\": 1e-08";
  EXPECT_THAT(Refusal(numbers, "\"fused\": true"), HasSubstr("say one kernel for all"));
  EXPECT_THAT(Refusal(numbers, "\"fused\": false"), HasSubstr("say one kernel for all"));
  Read(numbers, "\"fused\": true", {"layout.dp=8", "optimizer_step.kernel=fused"});  // as the hint says
  EXPECT_THAT(Refusal(numbers, "\"amsgrad\": true"), HasSubstr("optimizer_kwargs.amsgrad"));
}

// Modules of other kinds are told by their fields: quantized products, latent attention, windows.
TEST(ConfigTorchtitanSaved, OtherModulesAreRefusedByName) {
  EXPECT_THAT(
      Refusal("\"in_features\": 4096, \"out_features\": 6144", "\"recipe\": \"rowwise\", \"in_features\": 4096"),
      HasSubstr("model_spec.model.layers[0].attention.qkv_linear.wqkv.recipe: belongs to a kind of module"));
  EXPECT_THAT(Refusal("\"moe\": null", "\"moe\": {\"num_experts\": 8}"), HasSubstr("feed_forward: stands beside moe"));
  EXPECT_THAT(Refusal("\"qk_norm\": null", "\"kv_lora_rank\": 512"),
              HasSubstr("attention.qkv_linear: belongs to a kind of module"));
  EXPECT_THAT(Refusal("\"block_size\": 128, \"kernel_options\": {}", "\"window_size\": [512, 0]"),
              HasSubstr("sliding windows"));
  const std::string text = SampleText(kSample);
  const std::size_t begin = text.find("\"rope\": {"), end = text.find('}', begin);
  EXPECT_THAT(RefusalOf(kFormat, text.substr(0, begin) + "\"rope\": null" + text.substr(end + 1), kEight),
              HasSubstr("a rotation of queries and keys"));
  EXPECT_THAT(Refusal("\"enable_weight_tying\": false", "\"vision_encoder\": {}"), HasSubstr("vision_encoder"));
  EXPECT_THAT(Refusal("\"imports\": []", "\"imports\": [\"fused_swiglu\"]"),
              HasSubstr("'fused_swiglu' replaces modules"));
  EXPECT_THAT(Refusal("\"qk_norm\": null", "\"qk_norm\": {\"normalized_shape\": 128}"),
              HasSubstr("layer 1 is another than layer 0 in its attention"));
}

// Every size stands in the file several times.
TEST(ConfigTorchtitanSaved, SizesThatContradictEachOtherAreRefused) {
  EXPECT_THAT(
      Refusal("\"out_features\": 6144", "\"out_features\": 6000"),
      HasSubstr("wqkv: expected 4096 inputs and 6144 outputs, as the rest of the network has it, found 4096 and "
                "6000"));
  EXPECT_THAT(Refusal("\"in_features\": 4096, \"out_features\": 4096", "\"in_features\": 4096, \"out_features\": 77"),
              HasSubstr("wo: expected 4096 inputs and 4096 outputs"));
  EXPECT_THAT(Refusal("\"in_features\": 14336", "\"in_features\": 1"), HasSubstr("w2: expected 14336 inputs"));
  EXPECT_THAT(Refusal("\"num_embeddings\": 128256", "\"num_embeddings\": 1000"), HasSubstr("found 1000 of 4096"));
  EXPECT_THAT(Refusal("\"in_features\": 4096,\n        \"out_features\": 128256",
                      "\"in_features\": 4096,\n        \"out_features\": 1000"),
              HasSubstr("lm_head: expected 4096 inputs and 128256 outputs"));
  EXPECT_THAT(Refusal("\"normalized_shape\": 4096, \"eps\": 1e-05, \"elementwise_affine\": true",
                      "\"normalized_shape\": 4096, \"eps\": 1e-05, \"elementwise_affine\": false"),
              HasSubstr("a norm of 4096 numbers with a weight"));
}

// What is said twice is said once, and what follows from a file's field follows from the command line's.
TEST(ConfigTorchtitanSaved, TheCommandLineSaysWhatTheFileWouldSay) {
  const std::string degree = "\"tensor_parallel_degree\": 1";
  const Settings file = Read(degree, "\"tensor_parallel_degree\": 2");
  const Settings said = MustRead(kFormat, SampleText(kSample), {"layout.dp=8", "layout.tp=2"});
  const Settings again = Read(degree, "\"tensor_parallel_degree\": 2", {"layout.dp=8", "recompute.policy=per_op"});
  for (const Settings* each : {&file, &said, &again}) {
    EXPECT_EQ(TextOf(*each, "layout.sp"), "true");
    EXPECT_EQ(TextOf(*each, "recompute.collectives"), "true");
    EXPECT_EQ(TextOf(*each, "buffers.fused_rope"), "(nothing)");
  }
  EXPECT_EQ(
      TextOf(Read("\"num_chunks\": 8", "\"num_chunks\": 16", {"layout.dp=8", "loss=chunked"}), "loss_chunk_tokens"),
      "512");
  EXPECT_EQ(TextOf(MustRead(kFormat, SampleText(kSample), {"layout.dp=8", "layout.cp=2"}), "loss_chunk_tokens"), "512");
  const std::vector<std::string> pipeline = {"layout.dp=8", "layout.pp=2", "buffers.set_to_none=true"};
  EXPECT_EQ(TextOf(MustRead(kFormat, SampleText(kSample), pipeline), "strategy"), "fsdp2-keep-all");
}

TEST(ConfigTorchtitanSaved, ListsAreLists) {
  EXPECT_THAT(Refusal("\"imports\": []", "\"imports\": \"fused_swiglu\""), HasSubstr("override.imports"));
  EXPECT_THAT(Refusal("\"components\": [\n      \"model\",\n      \"loss\"\n    ]", "\"components\": \"model\""),
              HasSubstr("compile.components: expected a list"));
  EXPECT_THAT(Refusal("\"spmd_backend\": \"spmd_types\"", "\"spmd_backend\": \"partial\""), HasSubstr("spmd_backend"));
  EXPECT_THAT(Refusal("\"loss_fn\": {\n      \"global_vocab_size\": 128256\n    }", "\"loss_fn\": \"x\""),
              HasSubstr("loss.loss_fn: expected a loss"));
}

// Products of what each field allows do not fit into 64 bits.
TEST(ConfigTorchtitanSaved, MoreTokensThanThereAreAreRefused) {
  EXPECT_THAT(Refusal("\"num_tokens_per_train_step\": -1", "\"num_tokens_per_train_step\": 128",
                      {"layout.dp=16384", "micro_batch_size=1048576", "sequence_length=1073741824"}),
              HasSubstr("more than any step has"));
}

// A graph's capture has no waiting host in it, and FSDP2's waits for gradients (finalize_backward).
TEST(ConfigTorchtitanSaved, ShardsInHostMemoryWantNoCudaGraphs) {
  const std::string graphs = Refusal("\"enable_cpu_offload\": false", "\"enable_cpu_offload\": true");
  EXPECT_THAT(graphs, HasSubstr("training.disable_cuda_graphs: CUDA graphs cannot capture "
                                "training.enable_cpu_offload"));
  const Settings settings = MustRead(kFormat, With("\"enable_cpu_offload\": false", "\"enable_cpu_offload\": true"),
                                     {"layout.dp=8", "buffers.set_to_none=true"});
  EXPECT_EQ(TextOf(settings, "optimizer_step.offload"), "true");
  EXPECT_EQ(TextOf(settings, "strategy"), "fsdp2-scatter-each");
}

TEST(ConfigTorchtitanSaved, OtherFieldsAreRefusedByName) {
  EXPECT_THAT(RefusalOf(kFormat, SampleText(kSample)), HasSubstr("takes all ranks there are"));
  EXPECT_THAT(Refusal("\"max_norm\": 1.0", "\"seq_len\": 8192"),
              HasSubstr("training.seq_len: is not known to this version"));
  EXPECT_THAT(Refusal("\"dump_folder\"", "\"parallel\""), HasSubstr("parallel: is no section"));
}

}  // namespace
}  // namespace tidemark::config_torchtitan_saved_test

// SPDX-License-Identifier: Apache-2.0
#include "models/configs/megatron_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "models/configs/translation.h"

namespace tidemark {
namespace {

constexpr std::string_view kWithout = "leave it out to price the job without";
constexpr std::string_view kOtherNetworks = "networks other than GPT and Llama";
constexpr std::string_view kOffloading = "activations or parameters in host memory";
constexpr std::string_view kGraphs = "CUDA graphs and their static buffers";
constexpr std::string_view kFsdp = "FSDP inside Megatron-LM";
constexpr std::string_view kFsdpHint = "leave it out, and add --set strategy=fsdp2-scatter-each for FSDP2 elsewhere";

/// What is not modelled. An option without a value is "true".
constexpr std::array kNotModelled = {
    OneValue{"qk-l2-norm", "", "norms of queries and keys without weights", kWithout},
    OneValue{"moe-expert-capacity-factor", "", "experts that drop tokens", kWithout},
    OneValue{"moe-pad-expert-input-to-capacity", "", "experts that drop tokens", kWithout},
    OneValue{"moe-router-padding-for-quantization", "", "experts' inputs that are padded", kWithout},
    OneValue{"moe-shared-expert-overlap", "", "shared experts beside messages",
             "leave it out to price them one behind the other: memory is nearly the same"},
    OneValue{"moe-latent-size", "0", "experts of another width than the network's", kWithout},
    OneValue{"moe-apply-probs-on-input", "", "experts whose inputs are weighted", kWithout},
    OneValue{"moe-input-jitter-eps", "0", "noise on the router's input", kWithout},
    OneValue{"moe-extended-tp", "", "experts divided in a way that Megatron-LM has given up", kWithout},
    OneValue{"moe-layer-recompute", "", "an option that Megatron-LM has given up",
             "use --recompute-granularity selective --recompute-modules moe"},
    OneValue{"expert-tensor-parallel-num-weight-shards", "", "weights that are divided further", kWithout},
    OneValue{"overlap-dispatch-backward-with-experts-wgrad", "", "weight gradients that wait", kWithout},
    OneValue{"moe-expert-rank-capacity-factor", "", "experts that drop tokens", kWithout},
    OneValue{"moe-paged-stash", "", "experts' activations in pages", kWithout},
    OneValue{"moe-dispatch-fwd-dtype", "", "messages to experts in other dtypes", kWithout},
    OneValue{"moe-dispatch-bwd-dtype", "", "messages to experts in other dtypes", kWithout},
    OneValue{"moe-use-grouped-tensor", "", "experts' inputs that are padded", kWithout},
    OneValue{"moe-single-grouped-weight", "", "experts whose weights are one tensor", kWithout},
    OneValue{"moe-enable-deepep", "", "DeepEP's messages", kWithout},
    OneValue{"overlap-moe-expert-parallel-comm", "", "messages to experts beside another microbatch's layers",
             "leave it out: times are those without, and a second microbatch's tensors are not counted"},
    OneValue{"mla-down-proj-fusion", "", "latent vectors that one product makes", kWithout},
    OneValue{"cache-mla-latents", "", "latent vectors that are cached, which is inference's", kWithout},
    OneValue{"mtp-num-layers", "0", "multi-token prediction", kWithout},
    OneValue{"hybrid-layer-pattern", "", kOtherNetworks, kWithout},
    OneValue{"hybrid-override-pattern", "", kOtherNetworks, kWithout},
    OneValue{"experimental-attention-variant", "", kOtherNetworks, kWithout},
    OneValue{"heterogeneous-layers-config-path", "", "layers that differ", kWithout},
    OneValue{"heterogeneous-layers-config-encoded-json", "", "layers that differ", kWithout},
    OneValue{"spec", "", "layers of one's own", kWithout},
    OneValue{"use-checkpoint-args", "", "options that are in a checkpoint", "write the options of the checkpoint here"},
    OneValue{"use-transformer-engine-op-fuser", "", "Transformer Engine's fused operations", kWithout},
    OneValue{"logits-load-dir", "", "a second network that teaches", kWithout},
    OneValue{"batch-size", "", "it is no longer valid in Megatron-LM", "use micro-batch-size"},
    OneValue{"model-parallel-size", "", "it is no longer valid in Megatron-LM", "use tensor-model-parallel-size"},
    OneValue{"checkpoint-activations", "", "it is no longer valid in Megatron-LM", "use recompute-activations"},
    OneValue{"encoder-num-layers", "", kOtherNetworks, kWithout},
    OneValue{"decoder-num-layers", "", kOtherNetworks, "name layers by num-layers"},
    OneValue{"bert-no-binary-head", "", kOtherNetworks, kWithout},
    OneValue{"img-h", "", kOtherNetworks, kWithout},
    OneValue{"attention-output-gate", "", "gates behind attention", kWithout},
    OneValue{"squared-relu", "", "feed-forward parts other than GELU's and SwiGLU's", kWithout},
    OneValue{"quick-geglu", "", "feed-forward parts other than GELU's and SwiGLU's", kWithout},
    OneValue{"no-bias-dropout-fusion", "", "a bias that is added by a kernel of its own", kWithout},
    OneValue{"fp32-residual-connection", "", "a residual stream in fp32", kWithout},
    OneValue{"hybrid-context-parallel", "", "sequences that some ranks share and others do not", kWithout},
    OneValue{"dynamic-context-parallel", "", "sequences that some ranks share and others do not", kWithout},
    OneValue{"fp8-format", "", "fp8", kWithout},
    OneValue{"fp8", "", "fp8", kWithout},
    OneValue{"fp4-format", "", "fp4", kWithout},
    OneValue{"use-megatron-fsdp", "", kFsdp, kFsdpHint},
    OneValue{"use-torch-fsdp2", "", kFsdp, kFsdpHint},
    OneValue{"num-distributed-optimizer-instances", "1", "an optimizer that is divided within groups of ranks",
             kWithout},
    OneValue{"ddp-num-buckets", "", "buckets by their number",
             "say how large they are: --set sync.bucket_elements=..."},
    OneValue{"ddp-pad-buckets-for-high-nccl-busbw", "", "buckets that end at multiples of 2^16 elements", kWithout},
    OneValue{"overlap-param-gather-with-optimizer-step", "", "gathers beside the optimizer's step", kWithout},
    OneValue{"optimizer-cpu-offload", "", "the optimizer in host memory", kWithout},
    OneValue{"use-precision-aware-optimizer", "", "masters as what bf16 weights leave over",
             "leave it out; --set precision.optimizer=bf16 prices moments in bf16 beside fp32 masters"},
    OneValue{"cpu-offloading", "", kOffloading, kWithout},
    OneValue{"cpu-offloading-num-layers", "0", kOffloading, kWithout},
    OneValue{"fine-grained-activation-offloading", "", kOffloading, kWithout},
    OneValue{"cuda-graph-impl", "none", kGraphs, kWithout},
    OneValue{"enable-cuda-graph", "", kGraphs, kWithout},
    OneValue{"external-cuda-graph", "", kGraphs, kWithout},
    OneValue{"tp-comm-overlap", "", "gathers that are fused with products",
             "leave it out: times are those without, and userbuffers are not counted"},
    OneValue{"defer-embedding-wgrad-compute", "", "weight gradients that wait for the end of a flush", kWithout},
    OneValue{"delay-wgrad-compute", "", "weight gradients that wait", kWithout},
    OneValue{"distribute-saved-activations", "", "a layer's input, divided over tensor-parallel ranks", kWithout},
    OneValue{"pipeline-model-parallel-layout", "", "a layout in Megatron-LM's letters",
             "leave it out, and say how many layers each stage has: --set layout.layers_per_stage=[...]"},
    OneValue{"tensor-parallel-num-weight-shards", "", "weights that are divided further", kWithout},
    OneValue{"fp16-lm-cross-entropy", "", "a loss in fp16", kWithout},
    OneValue{"output-logit-dtype", "bf16", "logits that are wider than what they are computed with", kWithout},
    OneValue{"freeze-all-layers", "", "networks that are not trained", kWithout},
    OneValue{"yaml-cfg", "", "options from another file", "write its options here"},
    OneValue{"ddp-param-name-patterns-for-fp32-local-accumulation", "", "gradients that are summed twice", kWithout},
    OneValue{"no-overlap-p2p-communication", "", "stages that wait for what they send", kWithout},
    OneValue{"optimizer-cuda-graph", "", kGraphs, kWithout},
    OneValue{"use-nccl-ub", "", "buffers that NCCL registers", kWithout},
    OneValue{"nccl-ub", "", "buffers that NCCL registers", kWithout},
    OneValue{"empty-unused-memory-level", "0", "memory that is given back between steps",
             "leave it out: tensors stay as they are, and less is reserved with it, in more time"},
    OneValue{"step-batch-size-schedule", "", "a batch that grows",
             "leave it out: global-batch-size is the batch to price"},
    OneValue{"export-kd-teacher-load", "", "a second network that teaches", kWithout},
    OneValue{"perform-rl-step", "", "reinforcement learning", kWithout},
};

/// Options that are read by name.
constexpr std::string_view kRead[] = {"num-layers",
                                      "hidden-size",
                                      "ffn-hidden-size",
                                      "num-attention-heads",
                                      "kv-channels",
                                      "group-query-attention",
                                      "num-query-groups",
                                      "max-position-embeddings",
                                      "position-embedding-type",
                                      "use-rotary-position-embeddings",
                                      "no-rope-fusion",
                                      "no-bias-gelu-fusion",
                                      "no-masked-softmax-fusion",
                                      "normalization",
                                      "swiglu",
                                      "no-bias-swiglu-fusion",
                                      "disable-bias-linear",
                                      "add-qkv-bias",
                                      "qk-layernorm",
                                      "multi-latent-attention",
                                      "q-lora-rank",
                                      "kv-lora-rank",
                                      "qk-head-dim",
                                      "qk-pos-emb-head-dim",
                                      "v-head-dim",
                                      "rope-type",
                                      "rotary-interleaved",
                                      "untie-embeddings-and-output-weights",
                                      "num-experts",
                                      "moe-router-topk",
                                      "moe-ffn-hidden-size",
                                      "moe-shared-expert-intermediate-size",
                                      "moe-shared-expert-gate",
                                      "moe-layer-freq",
                                      "moe-router-load-balancing-type",
                                      "moe-aux-loss-coeff",
                                      "moe-router-dtype",
                                      "moe-token-dispatcher-type",
                                      "moe-grouped-gemm",
                                      "expert-model-parallel-size",
                                      "expert-tensor-parallel-size",
                                      "hidden-dropout",
                                      "attention-dropout",
                                      "vocab-size",
                                      "padded-vocab-size",
                                      "make-vocab-size-divisible-by",
                                      "tokenizer-type",
                                      "transformer-impl",
                                      "window-size",
                                      "window-attn-skip-freq",
                                      "attention-backend",
                                      "seq-length",
                                      "micro-batch-size",
                                      "global-batch-size",
                                      "tensor-model-parallel-size",
                                      "pipeline-model-parallel-size",
                                      "context-parallel-size",
                                      "cp-comm-type",
                                      "sequence-parallel",
                                      "num-layers-per-virtual-pipeline-stage",
                                      "num-virtual-stages-per-pipeline-rank",
                                      "microbatch-group-size-per-virtual-pipeline-stage",
                                      "decoder-first-pipeline-num-layers",
                                      "decoder-last-pipeline-num-layers",
                                      "account-for-embedding-in-pipeline-split",
                                      "account-for-loss-in-pipeline-split",
                                      "nproc-per-node",
                                      "nproc_per_node",
                                      "nnodes",
                                      "bf16",
                                      "fp16",
                                      "accumulate-allreduce-grads-in-fp32",
                                      "grad-reduce-in-bf16",
                                      "no-gradient-accumulation-fusion",
                                      "use-distributed-optimizer",
                                      "overlap-grad-reduce",
                                      "overlap-param-gather",
                                      "no-align-param-gather",
                                      "no-create-attention-mask-in-dataloader",
                                      "dataloader-inter-document-masking",
                                      "ddp-bucket-size",
                                      "ddp-average-in-collective",
                                      "ddp-reduce-scatter-with-fp32-accumulation",
                                      "optimizer",
                                      "sgd-momentum",
                                      "clip-grad",
                                      "calculate-per-token-loss",
                                      "cross-entropy-loss-fusion",
                                      "cross-entropy-fusion-impl",
                                      "recompute-activations",
                                      "recompute-granularity",
                                      "recompute-method",
                                      "recompute-num-layers",
                                      "recompute-modules"};

constexpr std::string_view kNear[] = {"vocab-file"};  ///< harmless ones that are no misspelt others

constexpr std::string_view kTopLevel[] = {""};

/// Whether a word is a program of Megatron-LM's that trains other networks than GPT: "pretrain_bert.py".
bool IsOtherProgram(const ConfigValue& word) {
  const std::string name = std::filesystem::path(word.text).filename().string();
  return name.starts_with("pretrain_") && name.ends_with(".py") && name != "pretrain_gpt.py";
}

Status RefuseOtherPrograms(const ConfigValue& root, const ConfigValue& options) {
  const ConfigValue* mode = root.Find("MODE");
  if (mode != nullptr && mode->text != "pretraining") {
    return ErrorAt(*mode, "MODE", fmt::format("{} is not training", Describe(*mode)),
                   "a test case without MODE trains");
  }
  for (const ConfigValue::Entry& option : options.fields) {
    std::vector<ConfigValue> words = option.value.items;
    words.push_back(option.value);
    const auto other = std::ranges::find_if(words, IsOtherProgram);
    if (other != words.end()) {
      return ErrorAt(*other, {}, fmt::format("{} trains other networks than GPT", Describe(*other)),
                     "networks are those of pretrain_gpt.py");
    }
  }
  return Done{};
}

}  // namespace

ConfigValue MegatronOptions(const ConfigValue& root) {
  const ConfigValue* under = root.Find("MODEL_ARGS");
  ConfigValue options = under == nullptr ? root : *under;
  std::erase_if(options.fields, [](const ConfigValue::Entry& field) {
    return field.value.is_null() || LowerCase(field.value.text) == "false";
  });
  for (ConfigValue::Entry& field : options.fields) {
    field.key.erase(0, field.key.find_first_not_of('-'));
  }
  return options;
}

Status CheckMegatronOptions(const ConfigValue& root, const ConfigValue& options) {
  TIDEMARK_TRY(RefuseOtherPrograms(root, options));
  std::vector<std::string_view> known(std::begin(kRead), std::end(kRead));
  known.insert(known.end(), std::begin(kNear), std::end(kNear));
  TIDEMARK_TRY(CheckFields(options, {kTopLevel, {}, kNotModelled, {}, known}));
  for (const std::string_view name : kRead) {
    const ConfigValue* value = Given(options, name);
    if (value != nullptr && value->text.find_first_of("$`") != std::string::npos) {
      return ErrorAt(*value, name, fmt::format("{} is for a shell to fill in", Describe(*value)),
                     "write the value, or put echo before the command that trains and pass what it prints");
    }
  }
  return Done{};
}

}  // namespace tidemark

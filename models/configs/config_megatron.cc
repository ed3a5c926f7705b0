// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "models/configs/config.h"
#include "models/configs/field.h"
#include "models/configs/megatron_experts.h"
#include "models/configs/megatron_fields.h"
#include "models/configs/megatron_network.h"
#include "models/configs/megatron_pipeline.h"
#include "models/configs/tool_fields.h"
#include "models/configs/translation.h"
#include "models/job/read_network.h"

namespace tidemark {
namespace {

// Megatron-LM at d98e8a64 (August 2026): megatron/training/arguments.py (options, defaults, validate_args). What is not
// named here or in megatron_*.cc touches neither memory nor time.

/// One command line with what Tidemark's says behind it.
class Megatron {
 public:
  Megatron(const ConfigValue& options, const Settings& given) : fields_(options, "Megatron-LM"), given_(given) {}

  Result<Settings> Read() {
    TIDEMARK_TRY(ReadRanks());
    TIDEMARK_TRY(ReadNetwork());
    for (const auto& [key, option] :
         {std::pair("sequence_length", "seq-length"), {"micro_batch_size", "micro-batch-size"}}) {
      if (fields_.Has(option)) {
        settings_[key] = *fields_.Given(option);
      }
    }
    TIDEMARK_TRY(RefuseUnsaid(fields_.root(), "Megatron-LM", kUnsaid, settings_, given_));
    TIDEMARK_TRY(ReadBatch());
    TIDEMARK_ASSIGN(longest_stage_, ReadMegatronPipeline(fields_, pipeline_, layers_, given_, settings_));
    TIDEMARK_TRY(ReadPrecision());
    TIDEMARK_TRY(ReadStrategy());
    TIDEMARK_TRY(ReadRecomputation());
    TIDEMARK_TRY(ReadOptimizer());
    settings_["machine"] = AssumedMachine();
    return std::move(settings_);
  }

 private:
  static constexpr std::array kUnsaid = {
      Unsaid{"network", "the network (num-layers, hidden-size, num-attention-heads)", "llama-3-8b"},
      Unsaid{"sequence_length", "the length of sequences (seq-length)", "4096"},
      Unsaid{"layout.dp", "the number of data-parallel ranks", "8"},
      Unsaid{"micro_batch_size", "the size of a micro batch (micro-batch-size)", "1"},
  };

  /// `text` where the option is there, `else_text` where it is not.
  void PutWhere(const std::string& key, std::string_view option, const char* text, const char* else_text) {
    settings_[key] = fields_.Retold(option, "", fields_.Has(option) ? text : else_text);
  }

  /// What the command line says about a key, else this.
  Result<std::int64_t> Said(const std::string& key, std::int64_t read) const {
    const ConfigValue* value = Find(given_, key);
    return value == nullptr ? Result<std::int64_t>(read) : WholeNumber{1, 1 << 20}.Read(*value).At(key);
  }

  Status ReadRanks() {
    TIDEMARK_ASSIGN(const std::int64_t tensor, fields_.Whole("tensor-model-parallel-size", 1));
    TIDEMARK_ASSIGN(const std::int64_t pipeline, fields_.Whole("pipeline-model-parallel-size", 1));
    settings_["layout.tp"] = fields_.Value("tensor-model-parallel-size", "1");
    settings_["layout.pp"] = fields_.Value("pipeline-model-parallel-size", "1");
    TIDEMARK_ASSIGN(const std::int64_t of_file, fields_.Whole("context-parallel-size", 1));
    settings_["layout.cp"] = fields_.Value("context-parallel-size", "1");
    TIDEMARK_ASSIGN(const std::int64_t context, Said("layout.cp", of_file));
    TIDEMARK_TRY(context > 1 ? RefuseOtherExchanges() : Status(Done{}));
    TIDEMARK_ASSIGN(tensor_, Said("layout.tp", tensor));
    TIDEMARK_ASSIGN(pipeline_, Said("layout.pp", pipeline));
    PutWhere("layout.sp", "sequence-parallel", tensor_ > 1 ? "true" : "false", "false");
    const std::string_view processes = fields_.Has("nproc_per_node") ? "nproc_per_node" : "nproc-per-node";
    if (!fields_.Has(processes)) {
      return Done{};
    }
    TIDEMARK_ASSIGN(const std::int64_t per_node, FirstOf(processes));
    TIDEMARK_ASSIGN(const std::int64_t nodes, fields_.Has("nnodes") ? FirstOf("nnodes") : Result<std::int64_t>(1));
    const std::int64_t world = per_node * nodes, model = tensor_ * pipeline_ * context;
    if (world % model != 0 && !Speaks(given_, "layout.dp")) {
      return fields_.Refuse(processes, "1",
                            fmt::format("world size ({}) is not divisible by total_model_size ({})", world, model),
                            "change nproc_per_node and nnodes, or the tensor, pipeline or context parallel size");
    }
    launched_ = std::max<std::int64_t>(world / model, 1);
    settings_["layout.dp"] = fields_.Retold(processes, "1", std::to_string(launched_));
    return Done{};
  }

  /// One way for all layers, or one for each, in which context-parallel ranks exchange keys.
  Status RefuseOtherExchanges() const {
    constexpr std::string_view kOption = "cp-comm-type";
    if (!fields_.Has(kOption)) {
      return Done{};
    }
    const ConfigValue& value = *fields_.Given(kOption);
    const std::vector<ConfigValue> ways = value.items.empty() ? std::vector{value} : value.items;
    const auto other = std::ranges::find_if(ways, [](const ConfigValue& way) { return way.text != "p2p"; });
    return other == ways.end() ? Status(Done{})
                               : fields_.Refuse(kOption, "p2p",
                                                fmt::format("{} is not supported by this version: keys and values "
                                                            "that do not go round a ring",
                                                            Describe(*other)),
                                                "leave it out to price the ring");
  }

  /// A launcher's option, behind which the name of the script may stand.
  Result<std::int64_t> FirstOf(std::string_view option) const {
    const ConfigValue& value = *fields_.Given(option);
    const ConfigValue& first = value.items.empty() ? value : value.items.front();
    return WholeNumber{1, 1 << 20}.Read(first).At(fmt::format("{}: {}", value.where, option));
  }

  Status ReadNetwork() {
    PutWhere("buffers.fused_rope", "no-rope-fusion", "false", "true");
    PutWhere("buffers.fused_glu", "no-bias-swiglu-fusion", "false", "true");
    if (NamesNetwork(given_)) {
      std::map<std::string, std::string> sources;
      TIDEMARK_ASSIGN(const Network network, tidemark::ReadNetwork(given_, {}, sources));
      const auto* decoder = std::get_if<Decoder>(&network.shape);
      layers_ = decoder == nullptr ? 0 : decoder->layers;
      return Done{};
    }
    if (!fields_.Has("num-layers") || !fields_.Has("hidden-size") || !fields_.Has("num-attention-heads")) {
      return Done{};
    }
    TIDEMARK_ASSIGN(const std::int64_t layers, fields_.Whole("num-layers", 1));
    TIDEMARK_ASSIGN(layers_, Said("network.layers", layers));
    return ReadMegatronNetwork(fields_, tensor_, given_, settings_);
  }

  Status ReadBatch() {
    constexpr std::string_view kMicro = "micro-batch-size", kGlobal = "global-batch-size";
    TIDEMARK_ASSIGN(const std::int64_t of_file, fields_.Whole(kMicro, 1));
    TIDEMARK_ASSIGN(const std::int64_t micro, Said("micro_batch_size", of_file));
    TIDEMARK_ASSIGN(const std::int64_t replicas, Said("layout.dp", launched_));
    TIDEMARK_ASSIGN(const std::int64_t global,
                    fields_.Has(kGlobal) ? fields_.Whole(kGlobal, 1) : Result<std::int64_t>(micro * replicas));
    if (global % (micro * replicas) != 0 && !Speaks(given_, "accumulation_steps")) {
      return fields_.Refuse(
          kGlobal, "1",
          fmt::format("global batch size ({}) is not divisible by micro batch size ({}) times data parallel size ({})",
                      global, micro, replicas),
          "change one of them: --set micro_batch_size, --set layout.dp");
    }
    settings_["accumulation_steps"] =
        fields_.Retold(kGlobal, "1", std::to_string(std::max<std::int64_t>(global / (micro * replicas), 1)));
    return Done{};
  }

  /// What the command line says about one dtype holds for those that follow from it.
  Status ReadPrecision() {
    if (fields_.Has("bf16") && fields_.Has("fp16")) {
      return fields_.Refuse("fp16", "", "and bf16 are both there", "leave one of them out");
    }
    const bool half = fields_.Has("fp16");
    const std::string_view narrow = half ? "fp16" : "bf16";
    const std::string computed = TextOf("precision.params", fields_.Has(narrow) ? std::string(narrow) : "fp32");
    // bf16 gradients are added up in fp32 unless that is switched off; fp16 ones where that is asked for.
    const std::string_view from = half ? "accumulate-allreduce-grads-in-fp32" : "grad-reduce-in-bf16";
    const std::string summed = TextOf("precision.accumulate", fields_.Has(from) == half ? "fp32" : computed);
    for (const char* key : {"precision.params", "precision.gradients"}) {
      settings_[key] = fields_.Retold(narrow, "", computed);
    }
    for (const char* key : {"precision.accumulate", "precision.reduce"}) {
      settings_[key] = fields_.Retold(from, "", summed);
    }
    settings_["precision.master"] = fields_.Retold(narrow, "", computed == "fp32" ? "none" : "fp32");
    return Done{};
  }

  /// What the command line says about a key, else this.
  std::string TextOf(const std::string& key, std::string read) const {
    if (const ConfigValue* value = Find(given_, key)) {
      return value->text;
    }
    return read;
  }

  Status ReadStrategy() {
    constexpr std::string_view kByLengths = "dataloader-inter-document-masking";
    const bool by_lengths = fields_.Has(kByLengths);
    PutWhere("buffers.attention_mask", by_lengths ? kByLengths : "no-create-attention-mask-in-dataloader", "false",
             "true");
    PutWhere("strategy", "use-distributed-optimizer", "megatron-dist-opt", "megatron");
    PutWhere("sync.overlap", "overlap-grad-reduce", "true", "false");
    PutWhere("sync.average_in_collective", "ddp-average-in-collective", "true", "false");
    PutWhere("loss_scale", "calculate-per-token-loss", "summed-tokens", "microbatches");
    PutWhere("buffers.fused_accumulation", "no-gradient-accumulation-fusion", "false", "true");
    if (fields_.Has("ddp-bucket-size")) {
      settings_["sync.bucket_elements"] = *fields_.Given("ddp-bucket-size");
    }
    TIDEMARK_TRY(ReadGathers());
    // Switched off by validate_args where gradients are in fp32 anyway.
    if (fields_.Has("ddp-reduce-scatter-with-fp32-accumulation") && fields_.Has("use-distributed-optimizer") &&
        settings_.at("precision.reduce").text != "fp32") {
      PutWhere("sync.fp32_accumulation", "ddp-reduce-scatter-with-fp32-accumulation", "true", "false");
    }
    constexpr std::string_view kFusion = "cross-entropy-loss-fusion", kImplementation = "cross-entropy-fusion-impl";
    if (fields_.Has(kFusion) && !Speaks(given_, "loss")) {
      // Compiled parts of it cannot write over what they are given: Megatron-LM's own tests measure 4 nV more.
      const Choice<std::string> losses{{{"native", "softmax-saving"}}, {"te"}};
      TIDEMARK_ASSIGN(std::string loss, fields_.OneOf(losses, kImplementation, "native"));
      settings_["loss"] = fields_.Retold(kFusion, "", std::move(loss));
    }
    return Done{};
  }

  Status ReadGathers() {
    constexpr std::string_view kOverlap = "overlap-param-gather", kAlone = "no-align-param-gather";
    if (!fields_.Has(kOverlap)) {
      return Done{};
    }
    for (const std::string_view needed : {"use-distributed-optimizer", "overlap-grad-reduce"}) {
      if (!fields_.Has(needed)) {
        return fields_.Refuse(kOverlap, "", fmt::format("Megatron-LM takes it with {} only", needed),
                              fmt::format("add --{}, or leave it out", needed));
      }
    }
    const auto chunks = settings_.find("layout.vpp");
    if (fields_.Has(kAlone) && chunks != settings_.end() && chunks->second.text != "1") {
      return fields_.Refuse(kAlone, "", "chunks that gather for themselves are not supported by this version",
                            "leave it out: memory stays as it is");
    }
    PutWhere("sync.overlap_gather", kOverlap, "true", "false");
    return Done{};
  }

  Status ReadRecomputation() {
    constexpr std::string_view kHow = "recompute-granularity", kMethod = "recompute-method",
                               kLayers = "recompute-num-layers", kModules = "recompute-modules";
    if (Speaks(given_, "recompute.policy")) {
      return Done{};
    }
    const Choice<std::string> ways{{{"selective", "selective"}, {"full", "full"}}};
    const bool shorthand = fields_.Has("recompute-activations");  // it counts where both are there
    if (!fields_.Has(kHow) && !shorthand) {
      return Done{};
    }
    TIDEMARK_ASSIGN(const std::string said, fields_.OneOf(ways, kHow, "selective"));
    const std::string way = shorthand ? "selective" : said;
    settings_["recompute.policy"] = fields_.Retold(shorthand ? "recompute-activations" : kHow, "", way);
    if (way == "selective") {
      return ReadModules(kModules);
    }
    if (!fields_.Has(kMethod) || !fields_.Has(kLayers)) {
      return fields_.Refuse(kHow, "", "full needs recompute-method, and recompute-num-layers",
                            "add --recompute-method uniform --recompute-num-layers 1");
    }
    const Choice<std::string> methods{{{"uniform", "uniform"}, {"block", "block"}}};
    TIDEMARK_ASSIGN(const std::string method, fields_.OneOf(methods, kMethod, "uniform"));
    TIDEMARK_ASSIGN(const std::int64_t layers, fields_.Whole(kLayers, 1));
    const bool uniform = method == "uniform";
    if (uniform ? layers == 1 : longest_stage_ > 0 && layers >= longest_stage_) {
      return Done{};
    }
    return fields_.Refuse(kLayers, "1",
                          uniform ? "layers that are done again several at a time are not supported by this version"
                                  : "recomputation of some layers of a stage is not supported by this version",
                          "set it to 1 with recompute-method uniform to price all layers, each by itself");
  }

  /// What is done again is done again in all layers.
  Status ReadModules(std::string_view option) {
    // Of layers with experts "mlp" has nothing to say, and of others the modules of experts.
    const bool experts = HasMegatronExperts(fields_);
    const auto dense = settings_.find("network.experts.dense_layers");
    const bool both = experts && dense != settings_.end() && dense->second.text != "0";
    const Choice<std::string> modules{{{"core_attn", "recompute.attention"},
                                       {"layernorm", "recompute.norm"},
                                       {"mlp", experts ? "" : "recompute.feed_forward"},
                                       {"moe", experts ? "recompute.feed_forward" : ""},
                                       {"moe_act", experts ? "recompute.activation" : ""},
                                       {"mla_up_proj", "recompute.latent_heads"}},
                                      {"shared_experts"}};
    for (const char* key : {"recompute.attention", "recompute.norm", "recompute.feed_forward"}) {
      settings_[key] = fields_.Retold(option, "core_attn", "false");
    }
    const ConfigValue value = fields_.Value(option, "core_attn");
    std::set<std::string> said;
    for (const ConfigValue& module : value.items.empty() ? std::vector<ConfigValue>{value} : value.items) {
      TIDEMARK_ASSIGN(const std::string key, modules.Read(module).At(fmt::format("{}: {}", value.where, option)));
      if (key == "recompute.activation" && !fields_.Has("moe-grouped-gemm")) {
        return fields_.Refuse(option, "core_attn", "moe_act needs moe-grouped-gemm",
                              "add moe-grouped-gemm, or leave out moe_act");
      }
      if (key == "recompute.latent_heads" && !fields_.Has("multi-latent-attention")) {
        return fields_.Refuse(option, "core_attn", "mla_up_proj needs multi-latent-attention",
                              "add multi-latent-attention, or leave out mla_up_proj");
      }
      said.insert(module.text);
      if (!key.empty()) {
        settings_[key] = Retold(module, "true");
      }
    }
    if (both && (said.contains("mlp") != said.contains("moe") || said.contains("moe_act"))) {
      return fields_.Refuse(
          option, "core_attn",
          "moe and moe_act are of layers with experts, mlp of those without (moe-layer-freq): work that is "
          "done again in some layers only is not supported by this version",
          "give moe and mlp together, or none of the three");
    }
    return Done{};
  }

  Status ReadOptimizer() {
    constexpr std::string_view kName = "optimizer", kClip = "clip-grad";
    if (!Speaks(given_, kName)) {
      const Choice<std::string> names{{{"adam", "adamw"}, {"sgd", "sgd"}}, {"muon", "dist_muon", "lion", "soap"}};
      TIDEMARK_ASSIGN(std::string name, fields_.OneOf(names, kName, "adam"));
      TIDEMARK_ASSIGN(const double momentum, fields_.Read(RealNumber{0, 1}, "sgd-momentum", "0.9"));
      name += name == "sgd" && momentum > 0 ? "-momentum" : "";
      settings_["optimizer"] = fields_.Retold(kName, "adam", std::move(name));
    }
    TIDEMARK_ASSIGN(const double norm, fields_.Read(RealNumber{-1e9, 1e9}, kClip, "1.0"));
    if (norm > 0) {
      settings_["optimizer_step.clip_norm"] = fields_.Value(kClip, "1.0");
    }
    return Done{};
  }

  ToolFields fields_;
  const Settings& given_;
  Settings settings_;
  std::int64_t tensor_ = 1, pipeline_ = 1, layers_ = 0, longest_stage_ = 0;
  std::int64_t launched_ = 1;  ///< data-parallel ranks
};

bool Recognises(const ConfigValue& root) {
  const ConfigValue options = MegatronOptions(root);
  const bool model = options.Find("num-layers") != nullptr || options.Find("num-attention-heads") != nullptr;
  const auto others = {"micro-batch-size", "seq-length", "hidden-size", "tensor-model-parallel-size"};
  return model && std::ranges::any_of(others, [&](const char* name) { return options.Find(name) != nullptr; });
}

Result<Settings> Read(const ConfigValue& root, const Settings& given) {
  const ConfigValue options = MegatronOptions(root);
  TIDEMARK_TRY(CheckMegatronOptions(root, options));
  return Megatron(options, given).Read();
}

}  // namespace

ConfigFormat ConfigMegatron() {
  return {"megatron",
          "Megatron-LM's command line (pretrain_gpt.py with its options, or a test case's MODEL_ARGS); layout.dp comes "
          "from --set where torchrun's --nproc_per_node is not in it",
          &Recognises, &Read};
}

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#include "models/configs/config_transformers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "models/configs/config.h"
#include "models/configs/field.h"
#include "models/configs/hub_networks.h"
#include "models/configs/transformers_command.h"
#include "models/configs/transformers_engine.h"
#include "models/configs/transformers_fields.h"
#include "models/configs/translation.h"
#include "models/job/read_network.h"

namespace tidemark {
namespace {

// transformers at 00349ae8 (2026): training_args.py, trainer.py, trainer_optimizer.py; TRL at f2cd5771 (July 2026):
// sft_config.py, model_config.py; LLaMA-Factory at ff6d4d12 (August 2026): hparams/, model/adapter.py,
// model/model_utils/checkpointing.py; open-instruct at e6c3044a (August 2026): finetune.py. What is not named here, in
// transformers_engine.cc or in transformers_fields.cc touches neither memory nor time.

constexpr std::string_view kMicro = "per_device_train_batch_size";
constexpr std::string_view kSteps = "gradient_accumulation_steps";

/// What an optimizer has that this version has not, by a part of its name; the first that fits counts.
struct OtherOptimizer {
  std::string_view part, what;
};

constexpr std::array kOtherOptimizers = {
    OtherOptimizer{"galore", "projected gradients"},
    OtherOptimizer{"apollo", "projected gradients"},
    OtherOptimizer{"8bit", "moments of 8 bits"},
    OtherOptimizer{"4bit", "moments of 4 bits"},
    OtherOptimizer{"fp8", "moments in fp8"},
    OtherOptimizer{"paged", "moments that are paged to host memory"},
    OtherOptimizer{"lomo", "weights that change within the backward pass"},
    OtherOptimizer{"adafactor", "moments of rows and columns"},
    OtherOptimizer{"apex", "apex's kernels"},
    OtherOptimizer{"adamw_hf", "an optimizer that transformers no longer has"},
    OtherOptimizer{"xla", "XLA"},
    OtherOptimizer{"npu", "NPUs"},
    OtherOptimizer{"", "another optimizer than AdamW and SGD"},
};

class Arguments {
 public:
  Arguments(const ConfigValue& root, Recipe recipe, const Settings& given)
      : root_(root), given_(given), recipe_(recipe), fields_(root, recipe) {}

  Result<Settings> Read() {
    TIDEMARK_TRY(CheckTransformersFields(root_, recipe_, given_));
    TIDEMARK_TRY(ReadBatch());
    TIDEMARK_TRY(ReadLength());
    if (const ConfigValue ranks = LaunchedRanks(root_); !ranks.is_null()) {
      settings_["layout.dp"] = ranks;
    }
    ReadNetworkName();
    TIDEMARK_TRY(ReadMixed());
    TIDEMARK_TRY(ReadLoaded());
    TIDEMARK_ASSIGN(const Engine engine, EngineOf(fields_, given_));
    TIDEMARK_TRY(RefuseWhatIsUnsaid(engine));
    TIDEMARK_TRY(ReadRecomputation());
    TIDEMARK_ASSIGN(Settings wrapped,
                    ReadEngine(engine, {fields_, given_, Known(), mixed_, mixed_place_, loaded_, recomputes_}));
    if (engine != Engine::deepspeed || !fields_.Has("deepspeed")) {  // whose own config says how it clips
      TIDEMARK_TRY(ReadClipping());
    }
    wrapped.merge(settings_);  // FSDP may recompute by itself
    settings_ = std::move(wrapped);
    TIDEMARK_TRY(ReadOptimizer());
    TIDEMARK_TRY(ReadKernels());
    settings_["machine"] = AssumedMachine();
    return settings_;
  }

 private:
  /// The command line, and behind it what was read so far.
  Settings Known() const {
    Settings known = given_;
    known.insert(settings_.begin(), settings_.end());
    return known;
  }

  Status ReadBatch() {
    const std::pair<std::string_view, const char*> counts[] = {{kMicro, "micro_batch_size"},
                                                               {kSteps, "accumulation_steps"}};
    for (const auto& [path, key] : counts) {
      const std::string_view absent = path == kMicro ? "8" : "1";
      TIDEMARK_TRY(fields_.Read(WholeNumber{1, 1 << 20}, path, absent));
      settings_[key] = fields_.Value(path, absent);
    }
    return Done{};
  }

  /// All sequences are taken to be as long as the file allows, which is what packing makes of them.
  Status ReadLength() {
    const ConfigValue* length = nullptr;
    for (const char* path : {"max_length", "max_seq_length", "cutoff_len", "model_max_length", "block_size"}) {
      const ConfigValue* value = fields_.Given(path);
      if (value == nullptr) {
        continue;
      }
      TIDEMARK_TRY(fields_.Read(WholeNumber{1, 1 << 26}, path, "1"));
      if (length != nullptr && length->text != value->text && !Speaks(given_, "sequence_length")) {
        return ErrorAt(*value, path, fmt::format("is {}, and {} says {}", value->text, length->source, length->text),
                       fmt::format("add the one that counts: --set sequence_length={}", length->text));
      }
      length = length == nullptr ? value : length;
    }
    if (length != nullptr) {
      settings_["sequence_length"] = *length;
    }
    return Done{};
  }

  /// The config.json in a folder of that name, or the zoo's network of a model of the hub.
  void ReadNetworkName() {
    const ConfigValue* name = fields_.Given("model_name_or_path");
    if (name == nullptr || NamesNetwork(given_)) {
      return;
    }
    std::error_code code;
    const std::filesystem::path local = std::filesystem::path(name->text) / "config.json";
    if (std::filesystem::is_regular_file(local, code)) {  // which comes first, as in transformers
      settings_["network"] = Retold(*name, std::filesystem::absolute(local, code).string());
    } else if (const std::string_view network = NetworkOfHub(name->text); !network.empty()) {
      settings_["network"] = Retold(*name, std::string(network));
    } else {
      unknown_model_ = fmt::format("the sizes of {} (its config.json does)", Describe(*name));
    }
  }

  /// The autocast that the Trainer asks for.
  Status ReadMixed() {
    TIDEMARK_ASSIGN(const bool fp16, fields_.IsTrue("fp16"));
    const bool by_itself = IsInBf16ByItself(recipe_);
    TIDEMARK_ASSIGN(const bool bf16, fields_.IsTrue("bf16", by_itself && !fp16));
    if (fp16 && bf16) {
      return ErrorAt(*fields_.Given("fp16"), "fp16", "at most one of fp16 and bf16 can be true", "set one to false");
    }
    mixed_place_ = fp16 ? *fields_.Given("fp16") : fields_.Value("bf16", by_itself ? "true" : "false");
    mixed_ = fp16 ? "fp16" : bf16 ? "bf16" : "no";
    return Done{};
  }

  /// The dtype of the weights that are trained, where somebody says it.
  Status ReadLoaded() {
    if (const ConfigValue* params = Find(given_, "precision.params")) {
      loaded_ = *params;
    } else if (recipe_ == Recipe::open_instruct) {
      loaded_ = fields_.Default("bf16");
    } else if (recipe_ == Recipe::llama_factory) {  // casts them up, but for pure_bf16
      TIDEMARK_ASSIGN(const bool pure, fields_.IsTrue("pure_bf16"));
      loaded_ = pure ? Retold(*fields_.Given("pure_bf16"), "bf16") : fields_.Default("fp32");
    } else {
      return ReadLoadedAs();
    }
    return Done{};
  }

  Status ReadLoadedAs() {
    const Choice<std::string> types{
        {{"bfloat16", "bf16"}, {"float16", "fp16"}, {"float32", "fp32"}, {"auto", ""}, {"None", ""}}};
    const ConfigValue* first = nullptr;
    bool null = false;
    for (const char* path : {"torch_dtype", "dtype", "model_init_kwargs.torch_dtype", "model_init_kwargs.dtype"}) {
      null = null || fields_.IsNull(path);
      const ConfigValue* value = fields_.Given(path);
      if (value == nullptr) {
        continue;
      }
      const bool prefixed = value->text.starts_with("torch.");
      const ConfigValue plain = prefixed ? Retold(*value, value->text.substr(6)) : *value;
      TIDEMARK_ASSIGN(const std::string type, types.Read(plain).At(fmt::format("{}: {}", value->where, path)));
      if (first != nullptr && type != loaded_.text) {
        return ErrorAt(*value, path,
                       fmt::format("is {}, and {} says {}: one of them counts, and which depends on the version",
                                   Describe(*value), first->source, Describe(*first)),
                       "remove one of them");
      }
      if (first == nullptr) {
        first = value;
        loaded_ = Retold(*value, type);
      }
    }
    if (first == nullptr && !null && recipe_ == Recipe::trl) {  // null and auto are the checkpoint's own
      loaded_ = fields_.Default("fp32");
    }
    return Done{};
  }

  Status RefuseWhatIsUnsaid(Engine engine) const {
    std::vector<Unsaid> unsaid = {
        unknown_model_.empty() ? Unsaid{"network", "the network", "llama-3-8b"}
                               : Unsaid{"network", unknown_model_, "config.json"},
        {"sequence_length", "the length of sequences", "4096"},
        {"layout.dp", "the number of data-parallel ranks", "8"},
    };
    if (loaded_.text.empty() && (engine == Engine::ddp || (engine == Engine::fsdp && mixed_ == "no"))) {
      unsaid.push_back({"precision.params",
                        recipe_ == Recipe::axolotl
                            ? "one dtype for all weights (norms and embeddings stay in fp32 under DDP)"
                            : "the dtype that the model is loaded in",
                        "bf16"});
    }
    if (engine == Engine::fsdp && ShardsWithinMachines(fields_)) {
      unsaid.push_back({"shard.replicas", "the number of machines, each of which holds all shards", "2"});
    }
    return RefuseUnsaid(root_, recipe_ == Recipe::transformers ? std::string_view("Hugging Face") : NameOf(recipe_),
                        unsaid, settings_, given_);
  }

  Status ReadRecomputation() {
    std::string_view path = "gradient_checkpointing";
    TIDEMARK_ASSIGN(recomputes_, fields_.IsTrue(path, recipe_ == Recipe::trl));
    if (recipe_ == Recipe::llama_factory) {  // looks at this one alone
      path = "disable_gradient_checkpointing";
      TIDEMARK_ASSIGN(const bool disabled, fields_.IsTrue(path));
      recomputes_ = !disabled;
    }
    settings_["recompute.policy"] = Retold(fields_.Value(path, ""), recomputes_ ? "full" : "none");
    return Done{};
  }

  Status ReadClipping() {
    const bool own = recipe_ == Recipe::open_instruct;
    const std::string_view path = own ? "clip_grad_norm" : "max_grad_norm";
    TIDEMARK_ASSIGN(const double norm, fields_.Read(RealNumber{-1, 1e9}, path, own ? "-1" : "1.0"));
    if (norm > 0 && !fields_.IsNull(path)) {
      settings_["optimizer_step.clip_norm"] = fields_.Value(path, "1.0");
    }
    return Done{};
  }

  /// torch.optim takes foreach kernels on a GPU where it is not asked for fused ones, and the for-loop on a CPU.
  Status ReadOptimizer() {
    if (settings_.contains("optimizer") || Speaks(given_, "optimizer")) {
      return Done{};
    }
    TIDEMARK_ASSIGN(const bool fused, fields_.IsTrue("fused_optimizer", true));
    const ConfigValue optimizer = recipe_ == Recipe::open_instruct
                                      ? fields_.Default(fused ? "adamw_torch_fused" : "adamw_torch")
                                      : fields_.Value("optim", "adamw_torch_fused");
    const std::vector<std::string> known = {"adamw_torch_fused", "adamw_torch", "sgd"};
    if (std::ranges::find(known, optimizer.text) == known.end()) {
      const auto other = std::ranges::find_if(kOtherOptimizers, [&](const OtherOptimizer& one) {
        return optimizer.text.find(one.part) != std::string::npos;
      });
      return ErrorAt(optimizer, "optim",
                     fmt::format("{} is not supported by this version: {}", Describe(optimizer), other->what),
                     fmt::format("set it to one of {} to price that", fmt::join(known, ", ")));
    }
    settings_["optimizer"] = Retold(optimizer, optimizer.text == "sgd" ? "sgd" : "adamw");
    const Settings known_now = Known();
    const ConfigValue* offload = Find(known_now, "optimizer_step.offload");
    const char* unfused = offload != nullptr && IsSameValue(offload->text, "true") ? "for-loop" : "foreach";
    settings_["optimizer_step.kernel"] = Retold(optimizer, optimizer.text == known.front() ? "fused" : unfused);
    return Done{};
  }

  /// Windows count where a kernel is asked for that leaves out what they hide. transformers' models are eager code,
  /// norms included; Liger puts kernels of its own in their place (Llama's relatives, which have RMSNorm). Their losses
  /// free the logits before the backward pass: upcast-logits.
  Status ReadKernels() {
    std::map<std::string, std::string> sources;
    TIDEMARK_ASSIGN(const Network network, ReadNetwork(Known(), {}, sources));
    const auto* decoder = std::get_if<Decoder>(&network.shape);
    if (decoder == nullptr) {
      return Done{};
    }
    TIDEMARK_ASSIGN(const bool leaves_out, LeavesOutWhatWindowsHide(fields_, recipe_));
    if (decoder->sliding_window > 0 && !leaves_out) {
      settings_["network.sliding_window"] = Retold(fields_.Value("attn_implementation", ""), "0");
    }
    const bool rms = decoder->norm == Decoder::Norm::rms;
    const char* path = recipe_ == Recipe::llama_factory ? "enable_liger_kernel" : "use_liger_kernel";
    TIDEMARK_ASSIGN(bool liger, fields_.IsTrue(path));
    liger = liger && rms;
    const ConfigValue place = fields_.Value(path, "");
    const auto is_kernel = [&](std::string_view kernel) -> Result<bool> {
      TIDEMARK_ASSIGN(const bool on, fields_.IsTrue(fmt::format("liger_kernel_config.{}", kernel), true));
      return liger && on;
    };
    TIDEMARK_ASSIGN(const bool glu, is_kernel("swiglu"));
    TIDEMARK_ASSIGN(const bool rope, is_kernel("rope"));
    TIDEMARK_ASSIGN(const bool norm, is_kernel("rms_norm"));
    TIDEMARK_ASSIGN(const bool loss, is_kernel("fused_linear_cross_entropy"));
    settings_["buffers.fused_glu"] = Retold(place, glu ? "true" : "false");
    settings_["buffers.fused_rope"] = Retold(place, rope ? "true" : "false");
    if (rms) {
      const bool wide = network.eager_norms == Decoder::NormKernel::eager_fp32_weight;
      settings_["network.norm_kernel"] = Retold(place, norm ? "fused" : wide ? "eager-fp32-weight" : "eager");
    }
    if (loss) {
      settings_["loss"] = Retold(place, "fused");
    }
    return Done{};
  }

  const ConfigValue& root_;
  const Settings& given_;
  Settings settings_;
  Recipe recipe_;
  TransformersFields fields_;
  std::string unknown_model_;
  std::string mixed_;
  ConfigValue mixed_place_, loaded_;
  bool recomputes_ = false;
};

/// Also a file that says "model_type" beside these. "dist_config" is of LLaMA-Factory's next version, "base_model" of
/// axolotl: other schemas.
bool Recognises(const ConfigValue& file) {
  const ConfigValue root = WithFieldNames(file);
  const auto has = [&](const char* key) { return root.Find(key) != nullptr; };
  const auto others = {"network",          "machine",          "zero_optimization", "train_micro_batch_size_per_gpu",
                       "train_batch_size", "distributed_type", "base_model",        "dist_config"};
  const auto usual = {"model_name_or_path",     "output_dir",       "learning_rate",
                      "lr_scheduler_type",      "num_train_epochs", "logging_steps",
                      "gradient_checkpointing", "max_grad_norm",    "save_strategy",
                      "finetuning_type",        "cutoff_len",       "gradient_accumulation_steps"};
  return std::ranges::none_of(others, has) &&
         (has("per_device_train_batch_size") || (!has("model_type") && std::ranges::count_if(usual, has) >= 3));
}

Result<Settings> Read(const ConfigValue& file, const Settings& given) {
  TIDEMARK_ASSIGN(const ConfigValue root, WithSections(WithFieldNames(file)));
  return ReadTrainingArguments(root, RecipeOf(root), given);
}

}  // namespace

Result<Settings> ReadTrainingArguments(const ConfigValue& root, Recipe recipe, const Settings& given) {
  return Arguments(root, recipe, given).Read();
}

std::vector<std::string> KeysOfTransformersCode() { return {"network.norm_kernel", "network.sliding_window"}; }

ConfigFormat ConfigTransformers() {
  return {"transformers",
          "Hugging Face's TrainingArguments (YAML, JSON, command lines), also of TRL, LLaMA-Factory and open-instruct: "
          "batch, dtypes, "
          "recomputation, optimizer, FSDP, DDP or DeepSpeed; layout.dp and models that the zoo has not come from --set",
          &Recognises,
          &Read,
          false,
          KeysOfTransformersCode()};
}

}  // namespace tidemark

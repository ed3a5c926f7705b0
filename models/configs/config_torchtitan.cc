// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "base/text.h"
#include "models/configs/config.h"
#include "models/configs/field.h"
#include "models/configs/torchtitan_fields.h"
#include "models/configs/torchtitan_job.h"
#include "models/configs/translation.h"

namespace tidemark {
namespace {

// torchtitan before 9810191b (2026-02-23), which was the last to read TOML: torchtitan/config/job_config.py (fields and
// defaults), train.py, distributed/parallel_dims.py, distributed/pipeline_parallel.py, models/llama3, models/qwen3.
// What is not named here touches neither memory nor time.

/// A flavor of models/<model>/__init__.py and its name in the zoo.
struct Flavor {
  std::string_view model, name, network;
};

constexpr std::array kFlavors = {
    Flavor{"llama3", "8B", "llama-3-8b"},       Flavor{"llama3", "70B", "llama-3-70b"},
    Flavor{"llama3", "405B", "llama-3.1-405b"}, Flavor{"qwen3", "0.6B", "qwen3-0.6b"},
    Flavor{"qwen3", "1.7B", "qwen3-1.7b"},      Flavor{"qwen3", "4B", "qwen3-4b"},
    Flavor{"qwen3", "8B", "qwen3-8b"},          Flavor{"qwen3", "14B", "qwen3-14b"},
    Flavor{"qwen3", "32B", "qwen3-32b"},
};

/// Flavor debugmodel, which no zoo has.
constexpr std::array kDebugModel = {
    std::pair<std::string_view, std::string_view>{"name", "llama3 debugmodel"},
    std::pair<std::string_view, std::string_view>{"layers", "6"},
    std::pair<std::string_view, std::string_view>{"hidden", "256"},
    std::pair<std::string_view, std::string_view>{"ffn", "768"},  // 2/3 * 4 * 256, up to a multiple of 256
    std::pair<std::string_view, std::string_view>{"heads", "16"},
    std::pair<std::string_view, std::string_view>{"kv_heads", "16"},
    std::pair<std::string_view, std::string_view>{"vocabulary", "2048"},
};

/// One config with what the command line says behind it.
class Titan : TorchtitanJob {
 public:
  Titan(const ConfigValue& root, const Settings& given) : TorchtitanJob(root, given) {}

  Result<Settings> Read() {
    TIDEMARK_TRY(ReadFlavor());
    settings_["sequence_length"] = fields_.Value("training.seq_len", "2048");
    TIDEMARK_TRY(ReadExpertRanks());
    TIDEMARK_TRY(ReadLayout());
    TIDEMARK_TRY(ReadBatch());
    TIDEMARK_TRY(RefuseWholeWeights());
    TIDEMARK_TRY(ReadSharding());
    TIDEMARK_TRY(ReadStages());
    TIDEMARK_TRY(ReadPrecision());
    TIDEMARK_TRY(ReadRecomputation());
    TIDEMARK_TRY(ReadOptimizer());
    TIDEMARK_TRY(ReadCompiling());
    TIDEMARK_TRY(RefuseConverters());
    return Finish();
  }

 private:
  Status ReadFlavor() {
    if (NamesNetwork(given_)) {
      return Done{};
    }
    const ConfigValue name = fields_.Value("model.name", "llama3");
    const ConfigValue flavor = fields_.Value("model.flavor", "debugmodel");
    if (name.text == "llama3" && flavor.text == "debugmodel") {
      for (const auto& [key, text] : kDebugModel) {
        settings_[fmt::format("network.{}", key)] = Retold(flavor, std::string(text));
      }
      return Done{};
    }
    for (const Flavor& known : kFlavors) {
      if (name.text == known.model && flavor.text == known.name) {
        settings_["network"] = Retold(flavor, std::string(known.network));
        return Done{};
      }
    }
    return ErrorAt(
        flavor, "model.flavor",
        fmt::format("torchtitan's {} {} is code, and this version knows llama3 in the flavors debugmodel, 8B, 70B and "
                    "405B, and qwen3 in 0.6B, 1.7B, 4B, 8B, 14B and 32B",
                    name.text, flavor.text),
        "name the network: --set network=NAME (`tidemark list networks`), or the path of its config.json");
  }

  /// global batch = local batch * accumulation * ranks; a pipeline cuts a local batch into microbatches (train.py).
  Status ReadBatch() {
    TIDEMARK_ASSIGN(std::int64_t local, fields_.Whole("training.local_batch_size", 8));
    if (const ConfigValue* given = Find(given_, "micro_batch_size"); given != nullptr && !IsPipeline()) {
      TIDEMARK_ASSIGN(local, (WholeNumber{1, 1 << 20}.Read(*given).At("micro_batch_size")));
    }
    TIDEMARK_ASSIGN(const std::int64_t global, fields_.Whole("training.global_batch_size", -1, -1));
    std::int64_t steps = 1;
    if (global >= 0) {
      steps = global / (local * ranks_);
      if (!Speaks(given_, "accumulation_steps") && (steps < 1 || steps * local * ranks_ != global)) {
        return fields_.Refuse(
            "training.global_batch_size", "-1",
            fmt::format("must be a multiple of local batch size times data-parallel degree: {} is none of {} * {}",
                        global, local, ranks_),
            "set another layout.dp, or the batch in the file");
      }
    }
    std::int64_t micro = local;
    if (IsPipeline()) {
      TIDEMARK_TRY(CutLocalBatch(local, micro, steps));
    }
    Put("micro_batch_size", "training.local_batch_size", "8", std::to_string(micro));
    Put("accumulation_steps", "training.global_batch_size", "-1", std::to_string(steps));
    return Done{};
  }

  /// A pipeline's microbatches: `micro` samples of the `local` ones each, `steps` flushes of them before, of
  /// microbatches behind.
  Status CutLocalBatch(std::int64_t local, std::int64_t& micro, std::int64_t& steps) {
    TIDEMARK_ASSIGN(micro, fields_.Whole("parallelism.pipeline_parallel_microbatch_size", 1));
    if (const ConfigValue* given = Find(given_, "micro_batch_size")) {
      TIDEMARK_ASSIGN(micro, (WholeNumber{1, 1 << 20}.Read(*given).At("micro_batch_size")));
    }
    if (local % micro != 0) {
      return fields_.Refuse("training.local_batch_size", "8",
                            fmt::format("{} must be divisible by pipeline_parallel_microbatch_size {}", local, micro),
                            "change one of the two");
    }
    TIDEMARK_TRY(RefuseFlushes("training.global_batch_size", steps, local / micro));
    Put("pipeline_microbatches", "training.local_batch_size", "8", std::to_string(local / micro));
    steps *= local / micro;
    return Done{};
  }

  Status RefuseWholeWeights() const {
    const ConfigValue* shared = Find(given_, "layout.cp");  // over whose ranks is sharded as well
    if (ranks_ == replicas_ && (shared == nullptr || shared->text == "1") && !Speaks(given_, "strategy")) {
      return fields_.Refuse("parallelism.data_parallel_shard_degree", "-1",
                            "nothing is sharded: torchtitan then computes under autocast over fp32 weights, or in a "
                            "pipeline or with tensor parallelism all in fp32, which this version does not model",
                            "shard over two ranks or more, or name what you want priced: --set strategy=ddp-every");
    }
    return Done{};
  }

  Status ReadRecomputation() {
    constexpr std::string_view kMode = "activation_checkpoint.mode",
                               kOption = "activation_checkpoint.selective_ac_option";
    if (Speaks(given_, "recompute.policy")) {
      return Done{};
    }
    const Choice<std::string> modes{{{"none", "none"}, {"full", "full"}, {"selective", "every_n"}}, {"memory_budget"}};
    TIDEMARK_ASSIGN(std::string policy, fields_.OneOf(modes, kMode, "selective"));
    const ConfigValue option = fields_.Value(kOption, "2");
    if (policy == "every_n" && option.text == "op") {
      TIDEMARK_TRY(RefuseForcedShapes("activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns"));
      settings_["recompute.policy"] = Retold(option, "per_op");
      return Done{};
    }
    if (policy == "every_n" && option.text.find_first_not_of("0123456789") != std::string::npos) {
      return ErrorAt(option, kOption, fmt::format("expected a whole number or op, found {}", Describe(option)),
                     "\"2\" recomputes every second layer, \"op\" operation by operation");
    }
    if (policy == "every_n") {
      TIDEMARK_ASSIGN(const std::int64_t every,
                      (WholeNumber{1, 1 << 20}.Read(option).At(fmt::format("{}: {}", option.where, kOption))));
      policy = every == 1 ? "full" : policy;
      Put("recompute.every", kOption, "2", std::to_string(std::max<std::int64_t>(every, 2)));
    }
    Put("recompute.policy", kMode, "selective", policy);
    return Done{};
  }

  Status ReadOptimizer() {
    constexpr std::string_view kName = "optimizer.name", kEarly = "optimizer.early_step_in_backward";
    if (!Speaks(given_, "optimizer")) {
      const Choice<std::string> names{{{"AdamW", "adamw"}, {"Adam", "adamw"}}};
      TIDEMARK_ASSIGN(std::string name, fields_.OneOf(names, kName, "AdamW"));
      Put("optimizer", kName, "AdamW", std::move(name));
    }
    settings_["optimizer_step.kernel"] = fields_.Value("optimizer.implementation", "fused");
    TIDEMARK_ASSIGN(const bool early, fields_.IsTrue(kEarly));
    if (early) {
      settings_["optimizer_step.in_backward"] = fields_.Value(kEarly, "false");
    } else {
      settings_["optimizer_step.clip_norm"] = fields_.Value("training.max_norm", "1.0");
    }
    return Done{};
  }

  Status RefuseConverters() const {
    const ConfigValue* converters = fields_.Given("model.converters");
    if (converters != nullptr && (converters->kind != ConfigValue::Kind::list || !converters->items.empty())) {
      return ErrorAt(*converters, "model.converters",
                     fmt::format("{} is not supported by this version: it has no fp8",
                                 Describe(converters->items.empty() ? *converters : converters->items.front())),
                     "set it to [] to price bf16");
    }
    return Done{};
  }
};

/// Two of the sections that nobody else's config has.
bool Recognises(const ConfigValue& root) {
  const auto is_section = [&](const char* name) {
    const ConfigValue* found = root.Find(name);
    return found != nullptr && found->is_map();
  };
  return root.Find("model_spec") == nullptr && is_section("training") &&
         (is_section("parallelism") || is_section("activation_checkpoint")) &&
         root.FindPath("model.model_config") == nullptr;
}

Result<Settings> Read(const ConfigValue& root, const Settings& given) {
  TIDEMARK_TRY(CheckTorchtitanFields(root));
  return Titan(root, given).Read();
}

}  // namespace

ConfigFormat ConfigTorchtitan() {
  return {
      "torchtitan",
      "torchtitan's job config (TOML, until February 2026), Llama 3; layout.dp comes from --set where ranks are not "
      "counted, and it names no machine: h100-sxm-80gb is assumed",
      &Recognises, &Read};
}

}  // namespace tidemark

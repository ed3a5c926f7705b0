// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/configs/config.h"
#include "models/configs/field.h"
#include "models/configs/torchtitan_job.h"
#include "models/configs/torchtitan_network.h"
#include "models/configs/torchtitan_saved_fields.h"
#include "models/configs/translation.h"

namespace tidemark {
namespace {

// torchtitan at b5bcd76c (2026-08-21), whose configs are Python code: what it saves of one as JSON
// (debug.save_config_file; Trainer.Config.to_dict). torchtitan/trainer.py, config/configs.py, components/loss.py,
// components/optimizer, distributed/activation_checkpoint.py, distributed/fsdp.py. Policies of recomputation and losses
// are classes there; what is saved of one are its fields alone, by which they are told apart.

/// One config with what the command line says behind it.
class Saved : TorchtitanJob {
 public:
  Saved(const ConfigValue& root, const Settings& given) : TorchtitanJob(root, given) {}

  Result<Settings> Read() {
    if (!NamesNetwork(given_)) {
      TIDEMARK_TRY(ReadTorchtitanNetwork(*fields_.Given("model_spec"), settings_));
    }
    TIDEMARK_TRY(ReadLayout());
    if (Said("layout.tp") != "1") {
      settings_["layout.sp"] = fields_.Value("parallelism.enable_sequence_parallel", "true");
    }
    TIDEMARK_TRY(ReadExperts());
    TIDEMARK_TRY(ReadBatch());
    TIDEMARK_TRY(ReadSharding());
    TIDEMARK_TRY(ReadStages());
    TIDEMARK_TRY(ReadPrecision());
    TIDEMARK_TRY(ReadRecomputation());
    TIDEMARK_TRY(ReadOptimizer());
    TIDEMARK_TRY(ReadLoss());
    TIDEMARK_TRY(ReadCompiling());
    TIDEMARK_TRY(ReadGraphs());
    return Finish();
  }

 private:
  /// A microbatch is a row of tokens, packed from documents of up to max_context_length.
  Status ReadBatch() {
    constexpr std::string_view kLength = "training.max_context_length";
    settings_["sequence_length"] = fields_.Value(kLength, "2048");
    TIDEMARK_ASSIGN(const std::int64_t length, Tokens(kLength, 2048));
    const ConfigValue* given = Find(given_, "sequence_length");
    std::int64_t sequence = length;
    if (given != nullptr) {
      TIDEMARK_ASSIGN(sequence, (WholeNumber{1, 1 << 30}.Read(*given).At("sequence_length")));
    }
    TIDEMARK_ASSIGN(std::int64_t tokens, Tokens("training.num_tokens_per_microbatch_per_dp_rank", 16384));
    if (const ConfigValue* micro = Find(given_, "micro_batch_size")) {
      TIDEMARK_ASSIGN(const std::int64_t samples, (WholeNumber{1, 1 << 20}.Read(*micro).At("micro_batch_size")));
      tokens = samples * sequence;
    } else if (tokens % sequence != 0) {
      return fields_.Refuse("training.num_tokens_per_microbatch_per_dp_rank", "16384",
                            fmt::format("{} tokens are no whole number of sequences of {}", tokens, sequence),
                            fmt::format("price the row as one sequence: --set sequence_length={}", tokens));
    }
    Put("micro_batch_size", "training.num_tokens_per_microbatch_per_dp_rank", "16384",
        std::to_string(tokens / sequence));
    tokens_ = tokens;
    return ReadSteps();
  }

  /// Tokens of a step = those of a microbatch * a pipeline's microbatches * flushes * ranks (Trainer.__init__).
  Status ReadSteps() {
    constexpr std::string_view kAll = "training.num_tokens_per_train_step", kCut = "parallelism.num_pp_microbatches";
    TIDEMARK_ASSIGN(const std::int64_t all, Tokens(kAll, -1));
    std::int64_t cut = 1;
    if (IsPipeline()) {
      TIDEMARK_ASSIGN(cut, fields_.Whole(kCut, 1));
      Put("pipeline_microbatches", kCut, "1", std::to_string(cut));
    }
    constexpr std::int64_t kMost = std::int64_t{1} << 60;
    if (tokens_ > kMost / cut / ranks_) {
      return fields_.Refuse(
          "training.num_tokens_per_microbatch_per_dp_rank", "16384",
          fmt::format("{} tokens * {} microbatches * {} ranks are more than any step has", tokens_, cut, ranks_),
          "use fewer of one of them");
    }
    const std::int64_t once = tokens_ * cut * ranks_;
    const std::int64_t flushes = all < 0 ? 1 : all / once;
    if (all >= 0 && !Speaks(given_, "accumulation_steps") && (flushes < 1 || flushes * once != all)) {
      return fields_.Refuse(kAll, "-1",
                            fmt::format("{} must be divisible by the number of tokens processed globally in one "
                                        "gradient accumulation iteration ({})",
                                        all, once),
                            "set another layout.dp, or the batch in the file");
    }
    if (IsPipeline()) {
      TIDEMARK_TRY(RefuseFlushes(kAll, flushes, cut));
    }
    Put("accumulation_steps", kAll, "-1", std::to_string(std::max<std::int64_t>(flushes, 1) * cut));
    return Done{};
  }

  Result<std::int64_t> Tokens(std::string_view path, std::int64_t absent) const {
    const std::int64_t least = absent < 0 ? -1 : 1;
    return fields_.Read(WholeNumber{least, std::int64_t{1} << 40}, path, std::to_string(absent));
  }

  /// Of the file's own network: experts, and what else is not modelled beside tensor-parallel ranks.
  Status ReadExperts() {
    constexpr std::string_view kTp = "parallelism.tensor_parallel_degree";
    const bool experts = settings_.contains("network.experts.count");
    if (!experts && !settings_.contains("network.latent_attention.kv_lora_rank")) {
      return Done{};
    }
    const std::string beside = fmt::format("{} beside tensor-parallel ranks {} not supported by this version",
                                           experts ? "experts" : "multi-latent attention", experts ? "are" : "is");
    const char* hint = "price it without them: --set layout.tp=1";
    if (const ConfigValue* given = Find(given_, "layout.tp")) {
      return given->text == "1" ? Status(Done{}) : ErrorAt(*given, "layout.tp", beside, hint);
    }
    TIDEMARK_ASSIGN(const std::int64_t tp, fields_.Whole(kTp, 1));
    if (tp > 1) {
      return fields_.Refuse(kTp, "1", beside, hint);
    }
    return experts ? ReadExpertRanks() : Done{};
  }

  ConfigValue Policy() const {
    const ConfigValue* policy = fields_.root().Find("activation_checkpoint");
    if (policy == nullptr) {
      return fields_.Default("per_op");
    }
    if (policy->is_null()) {
      return Retold(*policy, "none");
    }
    return Retold(*policy, policy->Find("force_recompute_mm_shapes_by_fqns") == nullptr ? "full" : "per_op");
  }

  Status ReadRecomputation() {
    constexpr const char* kForced = "activation_checkpoint.force_recompute_mm_shapes_by_fqns";
    constexpr const char* kBudget = "activation_checkpoint.memory_budget";
    if (!Speaks(given_, "recompute.policy")) {
      if (fields_.Has(kBudget)) {
        return fields_.Refuse(kBudget, "", "what a compiler chooses to recompute is not supported by this version",
                              "say what is: --set recompute.policy=per_op");
      }
      TIDEMARK_TRY(RefuseForcedShapes(kForced));
      settings_["recompute.policy"] = Policy();
    }
    // spmd_types calls torch.distributed itself, whose collectives are not on the list of what is kept.
    constexpr std::string_view kBackend = "parallelism.spmd_backend";
    const Choice<std::string> again{{{"spmd_types", "true"}, {"partial_dtensor", "false"}}};
    TIDEMARK_ASSIGN(std::string communicate_again, fields_.OneOf(again, kBackend, "spmd_types"));
    if (Said("recompute.policy") == "per_op" && (Said("layout.sp") == "true" || DividesExperts())) {
      Put("recompute.collectives", kBackend, "spmd_types", std::move(communicate_again));
    }
    return Done{};
  }

  Status ReadOptimizer() {
    constexpr std::string_view kGroups = "optimizer.param_groups", kKernel = "optimizer.implementation";
    const ConfigValue* groups = fields_.Given(kGroups);
    if (groups == nullptr || groups->items.empty()) {
      return fields_.Refuse(kGroups, "", "expected a list of parameter groups, found none", "save the config anew");
    }
    for (const ConfigValue& group : groups->items) {
      const ConfigValue* name = group.Find("optimizer_name");
      if (!Speaks(given_, "optimizer") && (name == nullptr || (name->text != "AdamW" && name->text != "Adam"))) {
        return ErrorAt(group, kGroups,
                       fmt::format("{} is not supported by this version", name == nullptr ? "nothing" : name->text),
                       "say what to price instead: --set optimizer=adamw");
      }
      TIDEMARK_TRY(CheckArguments(group));
    }
    settings_["optimizer"] = Retold(*groups, "adamw");
    const ConfigValue kernel = fields_.Value(kKernel, "fused");
    const bool narrow = kernel.text == "fused_opt_states_bf16";
    settings_["optimizer_step.kernel"] = narrow ? Retold(kernel, "fused") : kernel;
    if (narrow) {
      settings_["precision.optimizer"] = Retold(kernel, "bf16");
    }
    settings_["optimizer_step.clip_norm"] = fields_.Value("training.max_norm", "1.0");
    return Done{};
  }

  Status CheckArguments(const ConfigValue& group) const {
    constexpr std::string_view kNumbers[] = {"lr", "betas", "eps", "weight_decay"};
    const ConfigValue* arguments = group.Find("optimizer_kwargs");
    for (const ConfigValue::Entry& field :
         arguments == nullptr ? std::vector<ConfigValue::Entry>() : arguments->fields) {
      const bool kernel = field.key == "fused" || field.key == "foreach";
      const bool off = field.value.is_null() || IsSameValue(field.value.text, "false");
      const bool known = std::ranges::find(kNumbers, field.key) != std::end(kNumbers);
      if (kernel ? !Speaks(given_, "optimizer_step.kernel") : !known && !off) {
        return ErrorAt(
            field.value, fmt::format("optimizer.param_groups.optimizer_kwargs.{}", field.key),
            fmt::format("{} is not supported by this version", Describe(field.value)),
            kernel ? "say one kernel for all: --set optimizer_step.kernel=fused" : "remove it to price Adam without");
      }
    }
    return Done{};
  }

  Status ReadLoss() {
    constexpr std::string_view kChunks = "loss.num_chunks";
    const ConfigValue* inner = fields_.Given("loss.loss_fn");
    const bool chunked = inner != nullptr;
    for (const ConfigValue::Entry& field : chunked ? inner->fields : std::vector<ConfigValue::Entry>()) {
      if (field.key != "global_vocab_size") {
        return ErrorAt(field.value, "loss.loss_fn." + field.key, "is not known to this version: another loss",
                       "say what to price: save a config with cross-entropy");
      }
    }
    if (chunked && !inner->is_map()) {
      return ErrorAt(*inner, "loss.loss_fn", fmt::format("expected a loss, found {}", Describe(*inner)),
                     "save the config anew");
    }
    Put("loss", chunked ? kChunks : "loss", "", chunked ? "chunked" : "upcast-logits");
    if (!chunked || Said("loss") != "chunked") {
      return Done{};
    }
    std::int64_t sharing = 1;
    if (const ConfigValue* cp = Find(given_, "layout.cp")) {
      TIDEMARK_ASSIGN(sharing, (WholeNumber{1, 1 << 20}.Read(*cp).At("layout.cp")));
    }
    const std::int64_t own = tokens_ / sharing;  // rows of this rank
    TIDEMARK_ASSIGN(const std::int64_t chunks, fields_.Whole(kChunks, 8));
    if (own % chunks != 0) {
      return fields_.Refuse(kChunks, "8", fmt::format("{} tokens are not divisible by {} chunks", own, chunks),
                            "change one of the two");
    }
    if (!Speaks(given_, "loss_chunk_tokens")) {
      Put("loss_chunk_tokens", kChunks, "8", std::to_string(own / chunks));
    }
    return Done{};
  }

  /// A graph holds the addresses of what it adds gradients to, so zero_grad leaves them where they are (train_step).
  Status ReadGraphs() {
    constexpr std::string_view kOff = "training.disable_cuda_graphs";
    TIDEMARK_ASSIGN(const bool off, fields_.IsTrue(kOff));
    if (!off && IsPipeline() && !Speaks(given_, "buffers.set_to_none")) {
      return fields_.Refuse(kOff, "false", "CUDA graphs do not support pipeline parallelism yet",
                            "price it without: --set buffers.set_to_none=true");
    }
    if (!off && Said("optimizer_step.offload") == "true" && !Speaks(given_, "buffers.set_to_none")) {
      return fields_.Refuse(kOff, "false",
                            fmt::format("CUDA graphs cannot capture {}, under which the host waits within the backward "
                                        "pass",
                                        kOffload),
                            "price it without: --set buffers.set_to_none=true");
    }
    Put("buffers.set_to_none", kOff, "false", off ? "true" : "false");
    return Done{};
  }

  std::int64_t tokens_ = 0;  ///< of a microbatch, on one rank
};

bool Recognises(const ConfigValue& root) {
  const ConfigValue* spec = root.Find("model_spec");
  return spec != nullptr && spec->is_map() && spec->Find("model") != nullptr && root.Find("training") != nullptr;
}

Result<Settings> Read(const ConfigValue& root, const Settings& given) {
  if (const ConfigValue* spec = root.Find("model_spec"); spec == nullptr || !spec->is_map()) {
    return ErrorAt(root, "model_spec", "expected torchtitan's network, found none",
                   "save the config with --debug.save_config_file, or name another format with --job-format");
  }
  TIDEMARK_TRY(CheckTorchtitanSavedFields(root));
  const ConfigValue* overrides = root.FindPath("override.imports");
  if (overrides != nullptr && !(overrides->kind == ConfigValue::Kind::list && overrides->items.empty())) {
    const ConfigValue& first = overrides->items.empty() ? *overrides : overrides->items.front();
    return ErrorAt(*overrides, "override.imports",
                   fmt::format("{} replaces modules, which this version does not know", Describe(first)),
                   "set it to [] to price the job without");
  }
  return Saved(root, given).Read();
}

}  // namespace

ConfigFormat ConfigTorchtitanSaved() {
  return {"torchtitan-saved",
          "what torchtitan saves of its config (JSON, debug.save_config_file, since February 2026): Llama 3, Qwen3, "
          "DeepSeek V3; layout.dp comes from --set where ranks are not counted, and it names no machine: h100-sxm-80gb "
          "is assumed",
          &Recognises, &Read};
}

}  // namespace tidemark

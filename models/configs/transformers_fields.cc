// SPDX-License-Identifier: Apache-2.0
#include "models/configs/transformers_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "models/configs/field.h"
#include "models/configs/transformers_command.h"
#include "models/configs/translation.h"

namespace tidemark {
namespace {

constexpr std::string_view kAdapters = "adapters beside frozen weights (LoRA and its kin)";
constexpr std::string_view kQuantized = "quantized weights";
constexpr std::string_view kCompiled = "kernels that torch.compile fuses";
constexpr std::string_view kCompiledHint =
    "remove it to price eager code; compiling changes buffers.fused_glu, buffers.fused_rope and recompute.needed_only "
    "here";
constexpr std::string_view kUnsloth = "Unsloth's kernels and its checkpoints in host memory";
constexpr std::string_view kRemoveIt = "remove it to price the job without";
constexpr std::string_view kOtherLoss = "another loss than cross entropy";

constexpr std::array kOneValue = {
    OneValue{"use_cpu", "false", "training on a CPU"},
    OneValue{"no_cuda", "false", "training on a CPU"},
    OneValue{"ddp_backend", "nccl", "collectives of another library than NCCL"},
    OneValue{"torch_compile", "false", kCompiled, kCompiledHint},
    OneValue{"torch_compile_backend", "", kCompiled, kCompiledHint},
    OneValue{"torch_compile_mode", "", kCompiled, kCompiledHint},
    OneValue{"label_smoothing_factor", "0", "a loss of smoothed labels"},
    OneValue{"parallelism_config", "", "ranks by axis in TrainingArguments",
             "remove it and say --set layout.dp, or pass accelerate's config"},
    OneValue{"tp_size", "0", "tensor parallelism of transformers", "set it to 0; --set layout.tp prices Megatron's"},
    OneValue{"tensor_model_parallel_size", "1", "training by Megatron's core"},
    OneValue{"pipeline_model_parallel_size", "1", "training by Megatron's core"},
    OneValue{"expert_model_parallel_size", "1", "training by Megatron's core"},
    OneValue{"fsdp_min_num_params", "0", "FSDP units that are no layers"},
    OneValue{"sequence_parallel_size", "1", "Ulysses sequence parallelism"},
    OneValue{"accelerator_config.split_batches", "false", "a batch that is divided among ranks",
             "set it to false, and per_device_train_batch_size to a rank's part"},
    OneValue{"liger_kernel_config.cross_entropy", "false", "Liger's loss over whole logits"},
    OneValue{"activation_offloading", "false", "activations in host memory"},
    OneValue{"optim_target_modules", "", "an optimizer of some modules", kRemoveIt},
    OneValue{"torch_empty_cache_steps", "", "memory that is given back every few steps",
             "leave it out to price the job without"},
    OneValue{"use_peft", "false", kAdapters},
    OneValue{"use_dora", "false", kAdapters},
    OneValue{"use_lora", "false", kAdapters},
    OneValue{"use_qlora", "false", kQuantized},
    OneValue{"load_in_4bit", "false", kQuantized},
    OneValue{"load_in_8bit", "false", kQuantized},
    OneValue{"quantization_bit", "", kQuantized, kRemoveIt},
    OneValue{"use_8bit_optimizer", "false", "moments of 8 bits"},
    OneValue{"fp8", "false", "products in fp8"},
    OneValue{"shift_attn", "false", "attention within groups"},
    OneValue{"mixture_of_depths", "", "layers that tokens pass by", kRemoveIt},
    OneValue{"upcast_layernorm", "false", "norms in fp32"},
    OneValue{"upcast_lmhead_output", "false", "logits that are returned in fp32"},
    OneValue{"use_unsloth", "false", kUnsloth},
    OneValue{"use_unsloth_gc", "false", kUnsloth},
    OneValue{"use_galore", "false", "projected gradients (GaLore)"},
    OneValue{"use_apollo", "false", "projected gradients (APOLLO)"},
    OneValue{"use_badam", "false", "an optimizer of one block at a time (BAdam)"},
    OneValue{"use_adam_mini", "false", "moments of whole blocks (Adam-mini)"},
    OneValue{"use_muon", "false", "Muon"},
    OneValue{"use_llama_pro", "false", "training of some layers"},
    OneValue{"use_dft_loss", "false", kOtherLoss},
    OneValue{"use_asft_loss", "false", kOtherLoss},
    OneValue{"use_eaft_loss", "false", kOtherLoss},
    OneValue{"use_kt", "false", "experts in host memory (KTransformers)"},
    OneValue{"use_mca", "false", "training by Megatron's core"},
    OneValue{"use_megatron_bridge", "false", "training by Megatron's core"},
    OneValue{"use_hyper_parallel", "false", "training by HyperParallel"},
};

/// A field of which one value is modelled, unless the command line says the key in its place.
struct Elsewhere {
  OneValue field;
  std::string_view key;
};

constexpr std::string_view kBatchHint =
    "--set micro_batch_size asks about one; `tidemark solve` looks for those that fit";
constexpr std::string_view kLossHint =
    "--set loss=chunked --set loss_chunk_tokens=256 is near to TRL's; --set loss=upcast-logits is loss_type: nll";

constexpr std::array kElsewhere = {
    Elsewhere{{"auto_find_batch_size", "false", "a batch that the run itself looks for", kBatchHint},
              "micro_batch_size"},
    Elsewhere{{"loss_type", "nll", kOtherLoss, kLossHint}, "loss"},
};

/// Fields that are read by name, and harmless ones that are a letter or two away from others of these tables.
constexpr std::string_view kOther[] = {"per_device_train_batch_size",
                                       "gradient_accumulation_steps",
                                       "max_grad_norm",
                                       "clip_grad_norm",
                                       "bf16",
                                       "fp16",
                                       "pure_bf16",
                                       "gradient_checkpointing",
                                       "gradient_checkpointing_kwargs",
                                       "disable_gradient_checkpointing",
                                       "optim",
                                       "fused_optimizer",
                                       "torch_dtype",
                                       "dtype",
                                       "max_length",
                                       "max_seq_length",
                                       "cutoff_len",
                                       "model_max_length",
                                       "block_size",
                                       "model_name_or_path",
                                       "attn_implementation",
                                       "flash_attn",
                                       "fsdp",
                                       "fsdp_config",
                                       "deepspeed",
                                       "accelerator_config",
                                       "accelerator_config.gradient_accumulation_kwargs.sync_each_batch",
                                       "sync_each_batch",
                                       "ddp_bucket_cap_mb",
                                       "ddp_find_unused_parameters",
                                       "ddp_static_graph",
                                       "use_liger_kernel",
                                       "enable_liger_kernel",
                                       "stage",
                                       "finetuning_type",
                                       "do_train",
                                       "do_predict",
                                       "use_rslora",
                                       "min_length",
                                       "min_seq_length"};

constexpr std::string_view kAccumulation = "accelerator_config.gradient_accumulation_kwargs";
constexpr std::string_view kSections[] = {"", "accelerator_config", kAccumulation};

constexpr std::string_view kOfAccelerator[] = {"dispatch_batches", "even_batches", "use_seedable_sampler",
                                               "non_blocking", "use_configured_state"};
constexpr std::string_view kOfAccumulation[] = {"adjust_scheduler", "sync_with_dataloader"};
constexpr std::array kClosed = {ClosedSection{"accelerator_config", kOfAccelerator},
                                ClosedSection{kAccumulation, kOfAccumulation}};

/// What shows whose file it is.
struct Sign {
  std::string_view field;
  Recipe recipe;
};

constexpr std::array kSigns = {
    Sign{"finetuning_type", Recipe::llama_factory},
    Sign{"stage", Recipe::llama_factory},
    Sign{"cutoff_len", Recipe::llama_factory},
    Sign{"dataset_mixer_list", Recipe::open_instruct},
    Sign{"use_slow_tokenizer", Recipe::open_instruct},
    Sign{"with_tracking", Recipe::open_instruct},
    Sign{"max_length", Recipe::trl},
    Sign{"max_seq_length", Recipe::trl},
    Sign{"packing", Recipe::trl},
    Sign{"dataset_text_field", Recipe::trl},
    Sign{"assistant_only_loss", Recipe::trl},
    Sign{"completion_only_loss", Recipe::trl},
    Sign{"padding_free", Recipe::trl},
    Sign{"dataset_mixture", Recipe::trl},
    Sign{"dataset_mixer", Recipe::trl},
    Sign{"use_peft", Recipe::trl},
};

/// What only trainers of other kinds have: several models, or passes that generate.
struct OtherTrainer {
  std::string_view field, what;
};

constexpr std::string_view kPreferences = "training on preferences (DPO and its kin)";
constexpr std::string_view kReinforced = "training on answers that the model generates (GRPO, PPO)";
constexpr std::string_view kRewarded = "training of a reward model";

constexpr std::array kOtherTrainers = {
    OtherTrainer{"num_generations", kReinforced},
    OtherTrainer{"reward_funcs", kReinforced},
    OtherTrainer{"max_completion_length", kReinforced},
    OtherTrainer{"num_ppo_epochs", kReinforced},
    OtherTrainer{"reward_model_path", kReinforced},
    OtherTrainer{"center_rewards_coefficient", kRewarded},
    OtherTrainer{"beta", kPreferences},
    OtherTrainer{"dpo_beta", kPreferences},
    OtherTrainer{"dpo_loss_type", kPreferences},
    OtherTrainer{"ref_model", kPreferences},
    OtherTrainer{"ref_model_name_or_path", kPreferences},
    OtherTrainer{"precompute_ref_log_probs", kPreferences},
    OtherTrainer{"max_prompt_length", kPreferences},
    OtherTrainer{"desirable_weight", kPreferences},
    OtherTrainer{"teacher_model_name_or_path", "distillation from another model"},
};

Status RefuseOtherTrainers(const ConfigValue& root) {
  for (const OtherTrainer& trainer : kOtherTrainers) {
    if (const ConfigValue* value = Given(root, trainer.field)) {
      return ErrorAt(*value, trainer.field, fmt::format("belongs to {}: not supported by this version", trainer.what),
                     "training on given texts is modelled (SFT, pretraining): a file without such fields");
    }
  }
  return Done{};
}

/// LLaMA-Factory's kinds of training; both have a default (hparams/finetuning_args.py).
Status CheckKind(const TransformersFields& fields) {
  const Choice<bool> stages{{{"sft", true}, {"pt", true}}, {"rm", "ppo", "dpo", "kto"}};
  if (const Result<bool> stage = fields.Read(stages, "stage", "sft"); !stage) {
    return stage.error();
  }
  constexpr std::string_view kType = "finetuning_type";
  const ConfigValue type = fields.Value(kType, "lora");
  if (type.text != "full") {
    const bool known = type.text == "lora" || type.text == "oft" || type.text == "freeze";
    return ErrorAt(type, kType,
                   fmt::format("{}{} is not supported by this version: {}", Describe(type),
                               fields.Given(kType) == nullptr ? ", LLaMA-Factory's default," : "",
                               type.text == "freeze" ? "training of some layers"
                               : known               ? kAdapters
                                                     : "it prices training of all weights"),
                   type.text == "freeze" ? "set it to full; --set network.trainable says which weights are trained"
                                         : "set it to full to price training of all weights");
  }
  return Done{};
}

/// Scripts that train and evaluate do what they are told; a Trainer's own dump says false of all three.
Status CheckThatItTrains(const TransformersFields& fields) {
  TIDEMARK_ASSIGN(const bool train, fields.IsTrue("do_train"));
  TIDEMARK_ASSIGN(const bool predict, fields.IsTrue("do_predict"));
  if (predict && !train) {
    return ErrorAt(*fields.Given("do_predict"), "do_predict", "this run does not train, and only training is priced",
                   "set do_train to true");
  }
  return Done{};
}

/// Attention in single operations keeps all scores; the file's word does not say in which dtype its softmax is.
Status CheckAttention(const ConfigValue& root, const Settings& given) {
  for (const auto& [path, word] :
       {std::pair("attn_implementation", "eager"), std::pair("model_init_kwargs.attn_implementation", "eager"),
        std::pair("flash_attn", "disabled")}) {
    const ConfigValue* value = Given(root, path);
    if (value != nullptr && value->text == word && !Speaks(given, "network.attention_kernel")) {
      return ErrorAt(*value, path,
                     fmt::format("{} keeps all attention scores, which a network here has by itself", Describe(*value)),
                     "add --set network.attention_kernel=eager-fp32-softmax, as Llama's code is (or eager, or flash)");
    }
  }
  return Done{};
}

}  // namespace

Recipe RecipeOf(const ConfigValue& root) {
  const auto found = std::ranges::find_if(kSigns, [&](const Sign& sign) { return root.Find(sign.field) != nullptr; });
  return found == kSigns.end() ? Recipe::transformers : found->recipe;
}

std::string_view NameOf(Recipe recipe) {
  switch (recipe) {
    case Recipe::transformers:
      return "transformers";
    case Recipe::trl:
      return "TRL";
    case Recipe::llama_factory:
      return "LLaMA-Factory";
    case Recipe::open_instruct:
      return "open-instruct";
    case Recipe::axolotl:
      return "axolotl";
  }
  return {};
}

bool IsInBf16ByItself(Recipe recipe) { return recipe == Recipe::trl || recipe == Recipe::open_instruct; }

Result<bool> LeavesOutWhatWindowsHide(const TransformersFields& fields, Recipe recipe) {
  for (const char* const path : {"attn_implementation", "model_init_kwargs.attn_implementation"}) {
    if (const ConfigValue* kernel = fields.Given(path)) {  // one's name, or the hub's "kernels-community/flash-attn3"
      const std::string& name = kernel->text;
      return name.starts_with("flash_attention") || name.starts_with("flex_attention") ||
             name.find("/flash-attn") != std::string::npos;
    }
  }
  if (const ConfigValue* kernel = fields.Given("flash_attn")) {
    return kernel->text == "fa2" || kernel->text == "fa3";
  }
  return recipe == Recipe::open_instruct ? fields.IsTrue("use_flash_attn", true) : Result<bool>(false);
}

Status CheckTransformersFields(const ConfigValue& root, Recipe recipe, const Settings& given) {
  const TransformersFields fields(root, recipe);
  TIDEMARK_TRY(CheckThatItTrains(fields));
  std::vector<OneValue> elsewhere;
  std::ranges::transform(kElsewhere, std::back_inserter(elsewhere), &Elsewhere::field);
  std::vector<std::string_view> known(std::begin(kOther), std::end(kOther));
  std::ranges::transform(kOtherTrainers, std::back_inserter(known), &OtherTrainer::field);
  std::ranges::copy(LauncherFields(), std::back_inserter(known));
  TIDEMARK_TRY(recipe == Recipe::llama_factory ? CheckKind(fields) : RefuseOtherTrainers(root));
  TIDEMARK_TRY(CheckFields(root, {kSections, kClosed, kOneValue, elsewhere, known}));
  for (const Elsewhere& one : kElsewhere) {
    if (!Speaks(given, one.key)) {
      TIDEMARK_TRY(RefuseOthers(root, std::span(&one.field, 1)));
    }
  }
  TIDEMARK_TRY(CheckLauncher(root, recipe, given));
  return CheckAttention(root, given);
}

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#include "models/configs/torchtitan_saved_fields.h"

#include <array>
#include <string_view>

#include "models/configs/translation.h"

namespace tidemark {
namespace {

constexpr std::array kOneValue = {
    OneValue{"training.mixed_precision_reduce", "float32", "gradients that are reduced in another dtype"},
    OneValue{"parallelism.enable_fsdp_symm_mem", "false", "FSDP's collectives through symmetric memory"},
    OneValue{"parallelism.pipeline_parallel_schedule_csv", "", "schedules from a file"},
    OneValue{"parallelism.context_parallel_degree", "1", kOtherContext, kOtherContextHint},
    OneValue{"compile.enable_async_tensor_parallel", "false", "gathers that are fused with products",
             "set it to false: memory stays as it is, and times are those without"},
    OneValue{"validator.enable", "false", "validation between steps, with a batch of its own"},
    OneValue{"fault_tolerance.enable", "false", "replicas that come and go"},
    OneValue{"loss.mtp_scale", "", "multi-token prediction", "save a config without it"},
};

/// Fields that are read by name, beside those of the table.
constexpr std::string_view kRead[] = {"training.num_tokens_per_microbatch_per_dp_rank",
                                      "training.num_tokens_per_train_step",
                                      "training.max_context_length",
                                      "training.max_norm",
                                      "training.enable_cpu_offload",
                                      "training.disable_cuda_graphs",
                                      "training.dtype",
                                      "training.mixed_precision_param",
                                      "parallelism.data_parallel_replicate_degree",
                                      "parallelism.data_parallel_shard_degree",
                                      "parallelism.fsdp_reshard_after_forward",
                                      "parallelism.tensor_parallel_degree",
                                      "parallelism.enable_sequence_parallel",
                                      "parallelism.expert_parallel_degree",
                                      "parallelism.pipeline_parallel_degree",
                                      "parallelism.pipeline_parallel_schedule",
                                      "parallelism.pipeline_parallel_layers_per_stage",
                                      "parallelism.pipeline_parallel_first_stage_less_layers",
                                      "parallelism.pipeline_parallel_last_stage_less_layers",
                                      "parallelism.module_fqns_per_model_part",
                                      "parallelism.num_pp_microbatches",
                                      "parallelism.spmd_backend",
                                      "activation_checkpoint.force_recompute_mm_shapes_by_fqns",
                                      "activation_checkpoint.memory_budget",
                                      "optimizer.param_groups",
                                      "optimizer.implementation",
                                      "loss.num_chunks",
                                      "loss.loss_fn",
                                      "loss.global_vocab_size",
                                      "override.imports",
                                      "compile.enable",
                                      "compile.components"};

constexpr std::string_view kSections[] = {"training",  "parallelism", "activation_checkpoint",
                                          "optimizer", "loss",        "compile"};

constexpr std::string_view kOfTraining[] = {"steps", "gc_freq", "gc_debug"};
constexpr std::string_view kOfParallelism[] = {"context_parallel_load_balancer", "context_parallel_ptrr_mask_key"};
constexpr std::string_view kOfCheckpointing[] = {"preserve_rng_state", "determinism_check", "debug",
                                                 "visualize_memory_budget_pareto"};
constexpr std::string_view kOfOptimizer[] = {"optimizer_factory_kwargs_by_name"};
constexpr std::string_view kOfCompile[] = {"backend"};

constexpr std::array kClosed = {
    ClosedSection{"training", kOfTraining},
    ClosedSection{"parallelism", kOfParallelism},
    ClosedSection{"activation_checkpoint", kOfCheckpointing},
    ClosedSection{"optimizer", kOfOptimizer},
    ClosedSection{"loss", {}},
    ClosedSection{"override", {}},
    ClosedSection{"compile", kOfCompile},
};

/// Top-level fields that touch neither memory nor time, beside those sections.
constexpr std::string_view kOther[] = {"model_spec", "hf_assets_path", "dump_folder",    "profiler",     "metrics",
                                       "tokenizer",  "dataloader",     "comm",           "lr_scheduler", "checkpoint",
                                       "debug",      "validator",      "fault_tolerance"};

}  // namespace

Status CheckTorchtitanSavedFields(const ConfigValue& root) {
  return CheckFields(root,
                     {kSections, kClosed, kOneValue, {}, kRead, kOther, "torchtitan's Trainer.Config in August 2026"});
}

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#include "models/configs/torchtitan_fields.h"

#include <array>
#include <string_view>

#include "models/configs/translation.h"

namespace tidemark {
namespace {

constexpr std::array kOneValue = {
    OneValue{"parallelism.disable_loss_parallel", "false", "whole logits on every tensor-parallel rank"},
    OneValue{"parallelism.enable_async_tensor_parallel", "false", "gathers that are fused with products",
             "set it to false: memory stays as it is, and times are those without"},
    OneValue{"parallelism.pipeline_parallel_schedule_csv", "", "schedules from a file"},
    OneValue{"parallelism.context_parallel_degree", "1", kOtherContext, kOtherContextHint},
    OneValue{"parallelism.expert_tensor_parallel_degree", "1", "mixtures of experts"},
    OneValue{"fault_tolerance.enable", "false", "replicas that come and go"},
    OneValue{"validation.enable", "false", "validation between steps, with a batch of its own"},
    OneValue{"training.mixed_precision_reduce", "float32", "gradients that are reduced in another dtype"},
    OneValue{"activation_checkpoint.early_stop", "false", "recomputation that stops at the last tensor that is needed"},
};

/// Fields that are read by name, beside those of the table.
constexpr std::string_view kOther[] = {"model.name",
                                       "model.flavor",
                                       "model.converters",
                                       "optimizer.name",
                                       "optimizer.implementation",
                                       "optimizer.early_step_in_backward",
                                       "training.local_batch_size",
                                       "training.global_batch_size",
                                       "training.seq_len",
                                       "training.max_norm",
                                       "training.enable_cpu_offload",
                                       "training.dtype",
                                       "training.mixed_precision_param",
                                       "parallelism.data_parallel_replicate_degree",
                                       "parallelism.data_parallel_shard_degree",
                                       "parallelism.fsdp_reshard_after_forward",
                                       "parallelism.tensor_parallel_degree",
                                       "parallelism.pipeline_parallel_degree",
                                       "parallelism.pipeline_parallel_schedule",
                                       "parallelism.pipeline_parallel_microbatch_size",
                                       "parallelism.pipeline_parallel_layers_per_stage",
                                       "parallelism.pipeline_parallel_first_stage_less_layers",
                                       "parallelism.pipeline_parallel_last_stage_less_layers",
                                       "parallelism.module_fqns_per_model_part",
                                       "parallelism.context_parallel_degree",
                                       "parallelism.expert_parallel_degree",
                                       "activation_checkpoint.mode",
                                       "activation_checkpoint.selective_ac_option",
                                       "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns",
                                       "compile.enable",
                                       "compile.components"};

constexpr std::string_view kSections[] = {"model",  "optimizer", "training", "parallelism", "activation_checkpoint",
                                          "compile"};

constexpr std::string_view kOfModel[] = {"hf_assets_path", "tokenizer_path", "print_after_conversion"};
constexpr std::string_view kOfOptimizer[] = {"lr", "beta1", "beta2", "eps", "weight_decay"};
constexpr std::string_view kOfTraining[] = {"dataset", "dataset_path", "steps", "gc_freq", "gc_debug", "dataloader"};
constexpr std::string_view kOfParallelism[] = {"context_parallel_load_balancer", "context_parallel_rotate_method",
                                               "expert_parallel_comm_backend",
                                               "pipeline_parallel_expert_parallel_overlap"};
constexpr std::string_view kOfCheckpointing[] = {"preserve_rng_state", "determinism_check", "debug", "memory_budget",
                                                 "visualize_memory_budget_pareto"};
constexpr std::string_view kOfCompile[] = {"backend"};
constexpr std::string_view kOfExperiments[] = {"custom_import", "custom_args_module"};

/// Fields have come, gone and moved: those of another version would leave everything at its default.
constexpr std::array kClosed = {
    ClosedSection{"model", kOfModel},
    ClosedSection{"optimizer", kOfOptimizer},
    ClosedSection{"training", kOfTraining},
    ClosedSection{"parallelism", kOfParallelism},
    ClosedSection{"activation_checkpoint", kOfCheckpointing},
    ClosedSection{"compile", kOfCompile},
    ClosedSection{"experimental", kOfExperiments},
};

/// Top-level sections that touch neither memory nor time, beside those above; those of converters do nothing without
/// one (model.converters).
constexpr std::string_view kOtherSections[] = {
    "job",          "float8",          "mx",        "profiling", "metrics",
    "lr_scheduler", "checkpoint",      "quantize",  "comm",      "memory_estimation",
    "debug",        "fault_tolerance", "validation"};

}  // namespace

Status CheckTorchtitanFields(const ConfigValue& root) {
  return CheckFields(
      root,
      {kSections, kClosed, kOneValue, {}, kOther, kOtherSections, "torchtitan in February 2026, its last with TOML"});
}

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#include "models/configs/deepspeed_fields.h"

#include <array>
#include <string_view>

#include "models/configs/translation.h"

namespace tidemark {
namespace {

constexpr std::string_view kNoParts = "ranks that hold parts of parts (ZeRO++, MiCS)";
constexpr std::string_view kChangingSequences = "the length of sequences changes while it trains";
constexpr std::string_view kCheckpointing = "how activations are kept by deepspeed.checkpointing";
constexpr std::string_view kCheckpointingHint =
    "remove the field; recompute.policy says what is computed again (--set recompute.policy=full)";

constexpr std::array kOneValue = {
    OneValue{"zero_optimization.offload_optimizer.ratio", "1", "a part of the optimizer in host memory"},
    OneValue{"zero_optimization.offload_optimizer.super_offload", "false", "SuperOffload"},
    OneValue{"zero_optimization.zero_quantized_gradients", "false", "quantized communication (ZeRO++)"},
    OneValue{"zero_optimization.allgather_partitions", "true", "broadcasts in place of all-gathers"},
    OneValue{"optimizer.params.fp32_optimizer_states", "true", "moments in bf16"},
    OneValue{"bf16.bf16_master_weights_and_grads", "false", "masters in bf16"},
    OneValue{"bf16.bf16_optimizer_states", "false", "moments in bf16"},
    OneValue{"fp16.fp16_master_weights_and_grads", "false", "masters in fp16"},
    OneValue{"amp.enabled", "false", "apex.amp"},
    OneValue{"torch_autocast.enabled", "false", "autocast over fp32 parameters"},
    OneValue{"managed_gradient_accumulation", "true", "boundaries that the caller marks",
             "remove the field, and say where it steps: --set sync.when=custom --set sync.expression=..."},
    OneValue{"sparse_gradients", "false", "sparse gradients"},
    OneValue{"sequence_parallel_size", "1", "Ulysses sequence parallelism"},
    OneValue{"tensor_parallel.tp_overlap_comm", "false", "tensor-parallel communication beside the backward pass"},
    OneValue{"pipeline.activation_checkpoint_interval", "0", kCheckpointing, kCheckpointingHint},
    OneValue{"activation_checkpointing.partition_activations", "false", kCheckpointing, kCheckpointingHint},
    OneValue{"activation_checkpointing.cpu_checkpointing", "false", kCheckpointing, kCheckpointingHint},
    OneValue{"activation_checkpointing.contiguous_memory_optimization", "false", kCheckpointing, kCheckpointingHint},
    OneValue{"compile.deepcompile", "false", "DeepCompile"},
    OneValue{"elasticity.enabled", "false", "batch sizes that follow the number of ranks"},
    OneValue{"autotuning.enabled", "false", "batch sizes and stages that DeepSpeed looks for itself",
             "turn it off; `tidemark solve` looks for them"},
    OneValue{"curriculum_learning.enabled", "false", kChangingSequences},
    OneValue{"progressive_layer_drop.enabled", "false", "layers that are left out"},
    OneValue{"hybrid_engine.enabled", "false", "inference between steps"},
    OneValue{"expert_parallel.enabled", "false", "mixtures of experts"},
    OneValue{"graph_harvesting", "false", "CUDA graphs"},
    OneValue{"sparse_attention", "false", "sparse attention", "remove the section to price the job without"},
    OneValue{"compression_training", "false", "compression", "remove the section to price the job without"},
    OneValue{"data_efficiency.enabled", "false", kChangingSequences},
    OneValue{"optimizer.params.amsgrad", "false", "a third moment"},
    OneValue{"optimizer.params.momentum", "0", "SGD with momentum"},
};

/// The same of fields that stage 3 alone looks at.
constexpr std::array kOfStage3 = {
    OneValue{"zero_optimization.offload_param.device", "none", "parameters in host memory"},
    OneValue{"zero_optimization.cpu_offload_param", "false", "parameters in host memory"},
    OneValue{"zero_optimization.stage3_module_granularity_threshold", "0", "modules that are gathered as a whole"},
    OneValue{"zero_optimization.stage3_use_all_reduce_for_fetch_params", "false", "all-reduces that gather"},
    OneValue{"zero_optimization.stage3_allgather_sequential", "false", "gathers one by one"},
    OneValue{"zero_optimization.stage3_model_persistence_threshold", "9223372036854775807",
             "a cap of the parameters that stay whole", "remove the field to price the default, which is no cap"},
    OneValue{"zero_optimization.memory_efficient_linear", "true", "linear layers that keep gathered weights"},
    OneValue{"zero_optimization.zero_hpz_partition_size", "1", kNoParts},
    OneValue{"zero_optimization.mics_shard_size", "-1", kNoParts},
    OneValue{"zero_optimization.mics_hierarchical_params_gather", "false", kNoParts},
    OneValue{"zero_optimization.zero_quantized_weights", "false", "quantized communication (ZeRO++)"},
    OneValue{"zero_optimization.zero_quantized_nontrainable_weights", "false", "quantized communication (ZeRO++)"},
};

/// Fields that are read by name, beside those of the tables.
constexpr std::string_view kOther[] = {"train_batch_size",
                                       "train_micro_batch_size_per_gpu",
                                       "gradient_accumulation_steps",
                                       "gradient_clipping",
                                       "communication_data_type",
                                       "data_types",
                                       "data_types.grad_accum_dtype",
                                       "fp16",
                                       "fp16.enabled",
                                       "bf16",
                                       "bf16.enabled",
                                       "bf16.immediate_grad_update",
                                       "zero_optimization",
                                       "zero_optimization.stage",
                                       "zero_optimization.sub_group_size",
                                       "zero_optimization.cpu_offload",
                                       "zero_optimization.offload_optimizer",
                                       "zero_optimization.offload_optimizer.device",
                                       "optimizer",
                                       "optimizer.type",
                                       "optimizer.params.torch_adam",
                                       "zero_optimization.reduce_bucket_size",
                                       "zero_optimization.stage3_prefetch_bucket_size",
                                       "zero_optimization.stage3_param_persistence_threshold",
                                       "zero_optimization.stage3_max_live_parameters",
                                       "zero_optimization.stage3_max_reuse_distance",
                                       "zero_optimization.overlap_comm",
                                       "zero_optimization.contiguous_gradients",
                                       "zero_optimization.reduce_scatter",
                                       "zero_optimization.use_multi_rank_bucket_allreduce",
                                       "tensor_parallel.autotp_size"};

constexpr std::string_view kSections[] = {"",          "data_types",     "fp16", "bf16", "zero_optimization",
                                          "optimizer", "tensor_parallel"};

constexpr std::string_view kOfZero[] = {"allgather_bucket_size",
                                        "load_from_fp32_weights",
                                        "elastic_checkpoint",
                                        "ignore_unused_parameters",
                                        "legacy_stage1",
                                        "round_robin_gradients",
                                        "pipeline_loading_checkpoint",
                                        "override_module_apply",
                                        "log_trace_cache_warnings",
                                        "enable_sanity_checks",
                                        "stage3_gather_16bit_weights_on_model_save",
                                        "stage3_gather_fp16_weights_on_model_save",
                                        "gather_16bit_weights_on_model_save",
                                        "cpu_offload_use_pin_memory",
                                        "save_muon_momentum_buffer_in_memory"};
constexpr std::string_view kOfOffload[] = {"pin_memory",     "buffer_count",      "buffer_size", "max_in_cpu",
                                           "nvme_path",      "fast_init",         "pipeline",    "pipeline_read",
                                           "pipeline_write", "cpuadam_cores_perc"};
constexpr std::string_view kOfHalf[] = {
    "auto_cast",      "loss_scale",         "initial_scale_power",    "loss_scale_window",
    "hysteresis",     "min_loss_scale",     "consecutive_hysteresis", "opt_level",
    "check_overflow", "check_grad_overflow"};  // bf16's often has fp16's

constexpr std::string_view kOfDataTypes[] = {"param_dtype", "buffer_dtype"};
constexpr std::string_view kOfTensorParallel[] = {"preset_model",        "partition_config", "dtype",
                                                  "keep_module_on_host", "tp_grain_size",    "tp"};
constexpr std::string_view kOfOptimizer[] = {"params", "legacy_fusion"};
constexpr std::string_view kOfCheckpointing[] = {"number_checkpoints", "synchronize_checkpoint_boundary", "profile"};

constexpr std::array kClosed = {
    ClosedSection{"zero_optimization", kOfZero},
    ClosedSection{"zero_optimization.offload_optimizer", kOfOffload},
    ClosedSection{"zero_optimization.offload_param", kOfOffload},
    ClosedSection{"bf16", kOfHalf},
    ClosedSection{"fp16", kOfHalf},
    ClosedSection{"data_types", kOfDataTypes},
    ClosedSection{"tensor_parallel", kOfTensorParallel},
    ClosedSection{"optimizer", kOfOptimizer},
    ClosedSection{"activation_checkpointing", kOfCheckpointing},
};

}  // namespace

Status CheckDeepSpeedFields(const ConfigValue& root) {
  TIDEMARK_TRY(CheckFields(root, {kSections, kClosed, kOneValue, kOfStage3, kOther}));
  const ConfigValue* stage = Given(root, "zero_optimization.stage");
  return stage != nullptr && stage->text == "3" ? RefuseOthers(root, kOfStage3) : Status(Done{});
}

}  // namespace tidemark

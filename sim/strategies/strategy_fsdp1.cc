// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "models/job/validate.h"
#include "models/network/network.h"
#include "sim/lower/window_steps.h"
#include "sim/strategies/fsdp1/flat_sharded.h"
#include "sim/strategies/fsdp1/flat_sharded_units.h"
#include "sim/strategies/requirement.h"
#include "sim/strategies/strategy.h"

namespace tidemark {
namespace {

/// A flat parameter is trained or frozen as a whole. A network that cannot be built is somebody else's error.
bool UnitsAreUniform(const Job& job) {
  Result<std::vector<BlockRun>> built = BuildBlocks(job.network, PartitionOf(job));
  if (!built || built->empty()) {
    return true;
  }
  std::vector<StageRun> runs;
  for (BlockRun& run : *built) {
    runs.emplace_back(std::make_shared<const Block>(std::move(run.block)), run.count);
  }
  const FlatUnits units = MeasureFlatUnits(runs, 1);
  return std::none_of(units.sizes.begin(), units.sizes.end(), [](const FlatUnit& unit) { return unit.mixed; });
}

Status RefuseDtypes(const Job& job) {
  const Precision& precision = job.axes.precision;
  const bool whole = job.layout.GradientRanks() == job.axes.shard.replicas;
  const bool reduces_in_master = precision.reduce == precision.master.value_or(precision.params);
  const Requirement requirements[] = {
      GradientsLikeParameters(precision),
      {precision.accumulate == precision.gradients || job.axes.sync.when != Sync::When::every, "precision.accumulate",
       "FSDP adds reduced shards up in the dtype of the sharded parameters, which is precision.master",
       "give precision.accumulate the dtype of precision.gradients, and precision.master the dtype to add up in"},
      {precision.accumulate == precision.gradients, "precision.accumulate",
       "in no_sync FSDP adds up the flat gradient as autograd makes it, in the dtype of the parameters computed with",
       "give precision.accumulate the dtype of precision.gradients, or set sync.when to every to add up shards in "
       "precision.master"},
      {!whole || reduces_in_master || job.accumulation_steps == 1, "precision.reduce",
       "with one rank FSDP casts the whole summed gradient to the reduce dtype and back in every microbatch, which is "
       "not modelled",
       "give precision.reduce the dtype of precision.master"},
  };
  return Check(requirements);
}

Status Refuse(const Job& job) {
  const Axes& axes = job.axes;
  const bool hybrid = axes.shard.replicas > 1;
  const Requirement requirements[] = {
      KeepsOptimizer(job.axes.optimizer_step,
                     "FSDP1 takes parameters and gradients to the host as well (CPUOffload), not the optimizer alone; "
                     "it is not modelled"),
      {job.layout.pp == 1, "layout.pp", "FSDP1 inside a pipeline is not modelled",
       "set layout.pp to 1, or use ddp-last, nanotron, megatron or alpa"},
      ShardsAll(axes.shard, "FullyShardedDataParallel shards parameters, gradients and optimizer states",
                "set shard.params to true, and to keep parameters unsharded between forward and backward "
                "shard.reshard_after_forward to false (SHARD_GRAD_OP)"),
      {axes.sync.collective == CollectiveKind::reduce_scatter, "sync.collective",
       "FullyShardedDataParallel reduces gradients by reduce-scatter", "set sync.collective to reduce_scatter"},
      {!hybrid || job.layout.GradientRanks() > axes.shard.replicas, "shard.replicas",
       "FSDP is switching to use `NO_SHARD` instead of ShardingStrategy.HYBRID_SHARD since the world size is 1: the "
       "shard group has one rank, and gradients would never be reduced over the replicas",
       "use ddp-last or ddp-every for replicas without shards, or set shard.replicas below layout.dp"},
      // In no_sync the gradient is the whole flat one, the parameter a shard: no optimizer can put them together.
      {StepsAreSynchronised(job), "sync.expression",
       "the optimizer would step inside no_sync, where the gradient of a sharded parameter is not sharded",
       "synchronise the microbatch behind which the optimizer steps"},
      {UnitsAreUniform(job), "network.trainable",
       "Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`",
       "train or freeze each layer as a whole, and the embedding, final norm and head together; or shard parameter by "
       "parameter: strategy=fsdp2-defer"},
  };
  TIDEMARK_TRY(Check(requirements));
  return RefuseDtypes(job);
}

/// torch.distributed.fsdp.FullyShardedDataParallel with MixedPrecision(param_dtype=bf16, reduce_dtype=fp32) over fp32
/// parameters, transformer blocks wrapped, and its own defaults otherwise.
Strategy Fsdp1(std::string name, std::string summary, Sync::When when) {
  Strategy strategy;
  strategy.defaults.name = std::move(name);
  strategy.defaults.summary = std::move(summary);
  Axes& axes = strategy.defaults.axes;
  axes.sync.when = when;
  axes.sync.collective = CollectiveKind::reduce_scatter;
  axes.shard.params = axes.shard.gradients = axes.shard.optimizer = true;
  axes.shard.backward_prefetch = Shard::BackwardPrefetch::pre;
  axes.shard.limit_all_gathers = true;
  axes.precision.master = DType::fp32;
  axes.precision.reduce = DType::fp32;
  axes.precision.optimizer = DType::fp32;
  strategy.defaults.keys = {"sync.when",
                            "sync.expression",
                            "sync.step_expression",
                            "shard.reshard_after_forward",
                            "shard.replicas",
                            "shard.backward_prefetch",
                            "shard.limit_all_gathers",
                            "optimizer_step.kernel",
                            "optimizer_step.clip_norm"};
  strategy.refuse = Refuse;
  strategy.data_parallel = MakeFlatSharded;
  strategy.keeps = {
      {{"unsharded *"},
       "a layer is resharded by its post-forward and post-backward hooks, the root when all its gradients are there, "
       "the embedding's last (_runtime_utils.py)"},
      {{"flat gradient of *", "cast gradient of *", "padded gradient of *"},
       "variables of the post-backward hook, which returns when the reduction and what follows it are issued "
       "(_runtime_utils.py, _reduce_grad)"},
      {{"sharded gradient of *"}, "`.grad` stays until optimizer.zero_grad(set_to_none=True), behind all updates"},
  };
  strategy.running_sum = SumInMasterWhereScattered;
  return strategy;
}

}  // namespace

std::vector<Strategy> StrategyFsdp1() {
  return {
      Fsdp1("fsdp1",
            "PyTorch FSDP1 (FullyShardedDataParallel): flat gradients are reduce-scattered in every microbatch",
            Sync::When::every),
      Fsdp1("fsdp1-no-sync", "FSDP1 with no_sync: whole flat gradients add up, reduce-scattered once",
            Sync::When::last),
  };
}

}  // namespace tidemark

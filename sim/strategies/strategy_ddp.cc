// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/replicated.h"
#include "sim/strategies/strategy.h"

namespace tidemark {
namespace {

/// torch.nn.parallel.DistributedDataParallel under a user's loop, everything in bf16, no master weights.
Strategy Ddp(std::string name, std::string summary, Sync::When when) {
  Strategy strategy;
  strategy.defaults.name = std::move(name);
  strategy.defaults.summary = std::move(summary);
  Axes& axes = strategy.defaults.axes;
  axes.sync.when = when;
  axes.sync.collective = CollectiveKind::all_reduce;
  axes.sync.bucket_bytes = Bytes(25 << 20);       // bucket_cap_mb = 25
  axes.sync.first_bucket_bytes = Bytes(1 << 20);  // dist._DEFAULT_FIRST_BUCKET_BYTES
  strategy.refuse = [](const Job& job) -> Status {
    if (job.axes.shard.params || job.axes.shard.gradients || job.axes.shard.optimizer) {
      return BadKey("shard",
                    "DistributedDataParallel keeps whole parameters, gradients and optimizer states on every rank",
                    "use an fsdp2-* strategy to shard them, or nanotron for a sharded optimizer");
    }
    return Done{};
  };
  strategy.data_parallel = MakeReplicated;
  return strategy;
}

}  // namespace

std::vector<Strategy> StrategyDdp() {
  return {
      Ddp("ddp-every", "PyTorch DDP without no_sync: gradients are all-reduced in every microbatch", Sync::When::every),
      Ddp("ddp-last", "PyTorch DDP with no_sync: gradients are all-reduced in the last microbatch only",
          Sync::When::last),
  };
}

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/ddp/ddp_preset.h"

namespace tidemark {

std::vector<Strategy> StrategyDdp() {
  Strategy outside = DdpPreset("ddp-forward-outside",
                               "PyTorch DDP with only the backward passes inside no_sync: a published mistake that "
                               "all-reduces in every microbatch; it costs communication and nothing else",
                               Sync::When::last);
  outside.defaults.axes.sync.forward_in_no_sync = false;
  return {
      DdpPreset("ddp-every", "PyTorch DDP without no_sync: gradients are all-reduced in every microbatch",
                Sync::When::every),
      DdpPreset("ddp-last", "PyTorch DDP with no_sync: gradients are all-reduced in the last microbatch only",
                Sync::When::last),
      outside,
  };
}

}  // namespace tidemark

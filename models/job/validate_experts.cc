// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "models/job/validate_parts.h"

namespace tidemark {

Status CheckExpertParallel(const Job& job) {
  const Layout& layout = job.layout;
  const std::int64_t etp = layout.ExpertTp(), ranks = layout.GradientRanks() * layout.tp;
  if (ExpertsOf(job.network) == nullptr) {
    if (layout.ep > 1 || layout.etp > 0) {
      return BadKey(layout.ep > 1 ? "layout.ep" : "layout.etp", "the network has no experts",
                    "leave it out, or give the network experts (network.experts.count)");
    }
    return Done{};
  }
  if (layout.tp > 1 && !layout.sp) {
    return BadKey("layout.sp",
                  "tensor-parallel ranks that all have the same tokens would all send them to the experts: layers with "
                  "experts want each to have its own rows",
                  "set layout.sp to true (of a Megatron-LM command line: --sequence-parallel)");
  }
  if (layout.tp % etp != 0) {
    return BadKey("layout.etp",
                  fmt::format("{} ranks with parts of the same experts, which do not divide the {} with parts of the "
                              "same attention (layout.tp), are not modelled",
                              etp, layout.tp),
                  fmt::format("set layout.etp to a divisor of {}, or leave it out", layout.tp));
  }
  if (ranks % layout.ExpertRanks() != 0) {
    return BadKey(
        "layout.ep",
        fmt::format("{} x {} ranks with a layer's experts (layout.ep x layout.etp, which is layout.tp where it "
                    "is left out) do not divide the {} ranks of a stage (layout.dp x layout.cp x layout.tp)",
                    layout.ep, etp, ranks),
        etp > 1 ? "choose a layout.ep whose product with layout.etp divides them, or whole experts: layout.etp 1"
                : "choose a layout.ep that divides them");
  }
  if (layout.ExpertRanks() % layout.tp != 0) {
    return BadKey(
        "layout.ep",
        fmt::format("{} ranks with the experts of a layer, which are no multiple of the {} with parts of its "
                    "attention (layout.tp), are not modelled",
                    layout.ExpertRanks(), layout.tp),
        fmt::format("leave out layout.etp, or, where the strategy divides experts, set layout.ep to a multiple "
                    "of {}",
                    layout.tp / etp));
  }
  return Done{};
}

}  // namespace tidemark

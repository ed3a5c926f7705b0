// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/job/job.h"
#include "tests/sim/dice.h"

namespace tidemark {

/// Lets the layers of a network normalise what they make, and all heads of a token at once, where they can.
inline void PutNorms(Job& job, Dice& dice) {
  const auto put = [&](Decoder& decoder) {
    const bool needs_inputs = decoder.IsLatent() || decoder.experts.count > 0;
    if (dice.OneIn(3)) {
      decoder.norm_placement =
          needs_inputs || dice.OneIn(2) ? Decoder::NormPlacement::both : Decoder::NormPlacement::outputs;
    }
    if (decoder.qk_norm && job.layout.tp == 1 && dice.OneIn(2)) {
      decoder.qk_norm_over = Decoder::QkNormOver::all_heads;
    }
  };
  if (auto* decoder = std::get_if<Decoder>(&job.network.shape)) {
    put(*decoder);
  } else if (auto* pair = std::get_if<DualEncoder>(&job.network.shape)) {
    put(pair->first);
    pair->second = pair->shared ? pair->first : pair->second;
  }
}

}  // namespace tidemark

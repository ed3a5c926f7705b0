// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/job/job.h"
#include "tests/sim/dice.h"

namespace tidemark {

/// Lets some or all layers of a network see a few tokens only, where they can.
inline void PutSlidingWindow(Job& job, Dice& dice) {
  auto* decoder = std::get_if<Decoder>(&job.network.shape);
  if (decoder != nullptr && decoder->causal && job.layout.cp == 1 && dice.OneIn(3)) {
    decoder->sliding_window = dice.Number(1, job.sequence_length);
    decoder->full_attention_every = dice.OneIn(3) ? 0 : dice.Number(2, 4);
  }
}

}  // namespace tidemark

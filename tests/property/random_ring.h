// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/job/job.h"
#include "tests/sim/dice.h"

namespace tidemark {

/// Lets ranks share sequences where they can, with dice of their own, so that all else stays as it would be without.
inline void PutRing(Job& job, Dice& dice) {
  const auto* decoder = std::get_if<Decoder>(&job.network.shape);
  if (decoder != nullptr && decoder->attention_kernel == Decoder::AttentionKernel::flash && dice.OneIn(4)) {
    job.layout.cp = dice.Number(2, 4);
    job.sequence_length = 2 * job.layout.cp * job.layout.tp * dice.Number(1, 4);
  }
}

}  // namespace tidemark

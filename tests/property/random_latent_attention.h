// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/job/job.h"
#include "tests/sim/dice.h"

namespace tidemark {

/// Gives a decoder multi-latent attention where it can have it, with dice of their own, so that all else stays as it
/// would be without.
inline void PutLatentAttention(Job& job, Dice& dice) {
  auto* decoder = std::get_if<Decoder>(&job.network.shape);
  if (decoder == nullptr || !decoder->rope || decoder->qk_norm ||
      decoder->attention_kernel != Decoder::AttentionKernel::flash || !dice.OneIn(4)) {
    return;
  }
  decoder->kv_heads = decoder->heads;
  decoder->latent.kv_lora_rank = dice.Number(4, 40);
  decoder->latent.q_lora_rank = dice.OneIn(2) ? 0 : dice.Number(4, 40);
  decoder->latent.rope_head_size = 2 * dice.Number(1, 3);
  decoder->latent.value_head_size = dice.Number(1, 12);
}

}  // namespace tidemark

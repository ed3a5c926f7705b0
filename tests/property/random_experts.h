// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <numeric>

#include "models/job/job.h"
#include "models/job/validate.h"
#include "tests/sim/dice.h"

namespace tidemark {

/// Gives a decoder experts, with dice of their own, so that all else stays as it would be without; and divides them
/// over ranks where that is possible.
inline void PutExperts(Job& job, Dice& dice) {
  auto* decoder = std::get_if<Decoder>(&job.network.shape);
  if (decoder == nullptr || decoder->linear_bias || !dice.OneIn(4)) {
    return;
  }
  Experts& experts = decoder->experts;
  experts.count = std::int64_t{2} << dice.Number(0, 2);
  experts.per_token = dice.Number(1, 2);
  experts.ffn = 2 * dice.Number(4, 20);
  experts.shared_ffn = dice.OneIn(3) ? 2 * dice.Number(4, 20) : 0;
  experts.shared_gate = experts.shared_ffn > 0 && dice.OneIn(2);
  experts.router_fp32 = dice.OneIn(2);
  experts.balancing_loss = dice.OneIn(2);
  experts.dispatcher = static_cast<Experts::Dispatcher>(dice.Roll(2));
  experts.kernel = static_cast<Experts::Kernel>(dice.Roll(2));
  experts.dense_layers = decoder->layers > 1 && dice.OneIn(2) ? dice.Number(1, decoder->layers - 1) : 0;
  if (decoder->ffn_kind == Decoder::Ffn::glu && job.layout.tp == 1 && job.axes.precision.params == DType::bf16 &&
      dice.OneIn(3)) {
    experts.layer = Experts::Layer::torchtitan;
    experts.router_fp32 = true;
    experts.shared_gate = experts.balancing_loss = false;
    experts.dispatcher = Experts::Dispatcher::all_to_all;
    experts.kernel = Experts::Kernel::grouped;
  }
  Job divided = job;
  divided.layout.sp = divided.layout.tp > 1;
  divided.layout.ep = std::gcd(experts.count, divided.layout.GradientRanks());
  divided.layout.etp = dice.OneIn(2) ? 0 : 1;
  std::get<Decoder>(divided.network.shape).experts.imbalance = dice.OneIn(2) ? 1 : 1.3;
  job = dice.OneIn(2) && Validate(divided).ok() ? divided : job;
}

}  // namespace tidemark

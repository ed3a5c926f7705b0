// SPDX-License-Identifier: Apache-2.0
#include "models/network/expert_layer.h"

#include "models/network/megatron_experts.h"
#include "models/network/torchtitan_experts.h"

namespace tidemark {

std::unique_ptr<ExpertLayer> MakeExpertLayer(DecoderParts& parts) {
  switch (parts.decoder().experts.layer) {
    case Experts::Layer::megatron:
      return std::make_unique<MegatronExperts>(parts);
    case Experts::Layer::torchtitan:
      return std::make_unique<TorchtitanExperts>(parts);
  }
  TIDEMARK_CHECK(false && "unknown layer of experts");
}

}  // namespace tidemark

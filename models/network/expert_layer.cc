// SPDX-License-Identifier: Apache-2.0
#include "models/network/expert_layer.h"

#include "models/network/indexed_experts.h"
#include "models/network/masked_experts.h"

namespace tidemark {

std::unique_ptr<ExpertLayer> MakeExpertLayer(DecoderParts& parts) {
  switch (parts.decoder().experts.layer) {
    case Experts::Layer::masked:
      return std::make_unique<MaskedExperts>(parts);
    case Experts::Layer::indexed:
      return std::make_unique<IndexedExperts>(parts);
  }
  TIDEMARK_CHECK(false && "unknown layer of experts");
}

}  // namespace tidemark

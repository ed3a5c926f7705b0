// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "models/network/decoder_parts.h"

namespace tidemark {

/// A layer's experts (Experts) in the place of its feed-forward network, with the norm in front of them.
class ExpertLayer {
 public:
  virtual ~ExpertLayer() = default;
  /// From the residual stream to what is added to it.
  virtual TensorId Forward(TensorId input) = 0;
  /// From the gradient of that to the norm's input gradient.
  virtual TensorId Backward(TensorId output_gradient, std::string input_gradient_name) = 0;
};

/// The one that the network names; `parts` outlives it.
std::unique_ptr<ExpertLayer> MakeExpertLayer(DecoderParts& parts);

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "models/network/decoder_parts.h"

namespace tidemark {

/// RMSNorm in a framework's single operations (Decoder::NormKernel). With n rows of h on this rank, what is kept for
/// the backward pass beside the linear's own input was read off a running PyTorch:
///   eager                x in fp32 4nh, rstd 4n, x / rms in two bytes 2nh; x itself is not kept
///   eager_fp32_weight    x in fp32 4nh, rstd 4n, x / rms in fp32 4nh, the weight in fp32 4h
///   eager_low_precision  x 2nh, rstd 2n, x / rms 2nh
/// Activations that are fp32 already need no casts, and are kept themselves.
class EagerNorm {
 public:
  explicit EagerNorm(DecoderParts& parts) : parts_(parts) {}

  NormPart Forward(const std::string& name, TensorId input, std::string output_name);
  TensorId Backward(const NormPart& part, TensorId output_gradient, std::string input_gradient_name);

 private:
  BlockBuilder& b() { return parts_.builder(); }
  DType dtype() const;  ///< what statistics are taken in
  bool Casts() const { return dtype() != parts_.partition().compute; }
  TensorId AddWide(std::string name);
  TensorId AddRstd(std::string name);
  /// The tensor itself where statistics are taken in its own dtype.
  TensorId Cast(std::vector<Action>& pass, const std::string& name, TensorId from, bool widen, std::string to);
  /// Times the weight in fp32, then cast down.
  void ScaleWide(NormPart& part, std::string output_name);
  void WeightGradient(const NormPart& part, TensorId gradient);
  /// From the gradient of x / rms to that of x in its statistics' dtype, into `sum`.
  void NormaliseBackward(const NormPart& part, TensorId d_normalised, TensorId sum);

  DecoderParts& parts_;
};

}  // namespace tidemark

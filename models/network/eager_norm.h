// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "models/network/decoder_parts.h"

namespace tidemark {

/// RMSNorm in a framework's single operations (Decoder::NormKernel). With n rows of h, what is kept for the backward
/// pass beside the linear's own input was read off a running PyTorch:
///   eager                x in fp32 4nh, rstd 4n, x / rms in two bytes 2nh; x itself is not kept
///   eager_fp32_weight    x in fp32 4nh, rstd 4n, x / rms in fp32 4nh, the weight in fp32 4h
///   eager_low_precision  x 2nh, rstd 2n, x / rms 2nh
/// Activations that are fp32 already need no casts, and are kept themselves.
class EagerNorm {
 public:
  EagerNorm(DecoderParts& parts, NormShape shape) : parts_(parts), shape_(shape) {}

  /// `part` has its input, output and weight; the input of what is returned is what the backward pass reads.
  NormPart Forward(NormPart part);
  void Backward(const NormPart& part, TensorId output_gradient, TensorId input_gradient);

 private:
  BlockBuilder& b() { return parts_.builder(); }
  DType dtype() const;  ///< what statistics are taken in
  bool Casts() const { return dtype() != parts_.partition().compute; }
  TensorId AddRows(std::string name);  ///< in the activations' dtype
  TensorId AddWide(std::string name);
  TensorId AddRstd(std::string name);
  /// The tensor itself where statistics are taken in its own dtype.
  TensorId Cast(std::vector<Action>& pass, const std::string& name, TensorId from, bool widen, std::string to);
  /// Times the weight in fp32, then cast down.
  void ScaleWide(NormPart& part);
  void WeightGradient(const NormPart& part, TensorId gradient);
  /// From the gradient of x / rms to that of x in its statistics' dtype, into `sum`.
  void NormaliseBackward(const NormPart& part, TensorId d_normalised, TensorId sum);

  DecoderParts& parts_;
  const NormShape shape_;
};

}  // namespace tidemark

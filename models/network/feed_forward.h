// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/network/decoder_parts.h"

namespace tidemark {

/// Two linear layers with an activation between them, or three with a gated one, behind a norm: from the norm's output
/// to a sum over tensor-parallel ranks.
class FeedForward {
 public:
  /// `width`: of the whole layer. `prefix` goes before the names of what it adds.
  FeedForward(DecoderParts& parts, std::string prefix, std::int64_t width)
      : parts_(parts), prefix_(std::move(prefix)), width_(width), own_width_(width / parts.shape().tp) {}

  TensorId Forward(ColumnPart input);
  /// From the gradient of that to the one of the norm's output.
  TensorId Backward(TensorId output_gradient);
  /// The forward actions between the linear layers.
  const LayerPart& activation() const { return activation_; }
  const NormPart& norm() const { return input_.norm; }

 private:
  BlockBuilder& b() { return parts_.builder(); }
  std::int64_t Elements() const { return parts_.shape().tokens * own_width_; }
  bool IsGlu() const { return parts_.decoder().ffn_kind == Decoder::Ffn::glu; }
  TensorId Add(const char* name, std::int64_t halves = 1) { return b().AddTensor(prefix_ + name, halves * Elements()); }
  void AddLinear(const std::string& name, std::int64_t halves, TensorId output);
  void GluForward();
  std::vector<std::vector<TensorId>> GluBackward(TensorId d_down_in);
  std::vector<std::vector<TensorId>> EagerGluBackward(TensorId d_down_in);
  void AddGlu(std::vector<Action>& pass, const char* name, std::vector<TensorId> reads, std::vector<TensorId> writes,
              std::int64_t passes, std::int64_t flops);

  DecoderParts& parts_;
  std::string prefix_;
  std::int64_t width_ = 0, own_width_ = 0;
  LayerPart activation_;
  ColumnPart input_;
  RowPart down_;
  TensorId gate_, up_, silu_, down_in_;  // gate_ and up_ are one tensor when packed; two_layer has gate_ only
};

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "models/network/decoder_parts.h"
#include "models/network/eager_norm.h"

namespace tidemark {

NormPart DecoderParts::NormForward(const std::string& name, TensorId input, std::string output_name) {
  return NormForward(name, shape_.hidden, input, std::move(output_name));
}

NormPart DecoderParts::NormForward(const std::string& name, std::int64_t width, TensorId input,
                                   std::string output_name) {
  NormPart part;
  part.name = name;
  part.shape = {shape_.residual_tokens, width};
  part.input = input;
  part.output = AddRows(std::move(output_name), width);
  part.weight = AddReplicated(name, part.shape.width);
  return NormRows(std::move(part));
}

NormPart DecoderParts::QkNormForward(const std::string& name, std::int64_t heads, TensorId input, TensorId output) {
  const bool each = decoder_.qk_norm_over == Decoder::QkNormOver::head;
  NormPart part;
  part.name = name;
  part.shape =
      each ? NormShape{shape_.tokens * heads, shape_.head_size} : NormShape{shape_.tokens, heads * shape_.head_size};
  part.input = input;
  part.output = output;
  part.weight = AddReplicated(name, part.shape.width);
  part = NormRows(std::move(part));
  for (const ParameterId parameter : {part.weight, part.bias}) {
    if (parameter.valid()) {
      builder_.block().parameters[parameter.index].shared_by_heads = each;
    }
  }
  return part;
}

NormPart DecoderParts::NormRows(NormPart part) {
  if (decoder_.norm_kernel != Decoder::NormKernel::fused) {
    EagerNorm eager(*this, part.shape);
    return eager.Forward(std::move(part));
  }
  const bool layer_norm = decoder_.norm == Decoder::Norm::layer;
  const std::string suffix = part.name.substr(std::string("norm").size());
  part.rstd = builder_.AddTensor("rstd" + suffix, part.shape.rows, Category::activation, DType::fp32);
  std::vector<TensorId> writes = {part.output, part.rstd};
  std::vector<ParameterId> parameters = {part.weight};
  if (layer_norm) {
    part.bias = AddReplicated(part.name + "_bias", part.shape.width);
    part.mean = builder_.AddTensor("mean" + suffix, part.shape.rows, Category::activation, DType::fp32);
    writes.push_back(part.mean);
    parameters.push_back(part.bias);
  }
  const Norm op{part.shape.rows, part.shape.width, layer_norm, false, partition_.compute};
  builder_.Add(builder_.forward(), part.name + ".forward", op, {part.input}, std::move(writes)).parameters = parameters;
  return part;
}

TensorId DecoderParts::NormBackward(const NormPart& part, TensorId output_gradient, std::string input_gradient_name) {
  const TensorId input_gradient =
      builder_.AddTensor(std::move(input_gradient_name), part.shape.rows * part.shape.width);
  if (decoder_.norm_kernel != Decoder::NormKernel::fused) {
    EagerNorm(*this, part.shape).Backward(part, output_gradient, input_gradient);
    return input_gradient;
  }
  std::vector<TensorId> reads = {output_gradient, part.input, part.rstd};
  if (part.mean.valid()) {
    reads.push_back(part.mean);
  }
  const Norm op{part.shape.rows, part.shape.width, part.mean.valid(), true, partition_.compute};
  Calculate& norm = builder_.Add(builder_.backward(), part.name + ".backward", op, std::move(reads), {input_gradient});
  norm.parameters = {part.weight};
  norm.own_heads = builder_.parameter(part.weight).shared_by_heads;
  for (const ParameterId parameter : {part.weight, part.bias}) {
    if (parameter.valid() && builder_.trainable(parameter)) {
      norm.gradients.push_back(parameter);
    }
  }
  return input_gradient;
}

}  // namespace tidemark

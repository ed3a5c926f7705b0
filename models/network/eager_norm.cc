// SPDX-License-Identifier: Apache-2.0
#include "models/network/eager_norm.h"

#include <string_view>
#include <utility>

namespace tidemark {

DType EagerNorm::dtype() const {
  const DType compute = parts_.partition().compute;
  const bool narrow = SizeOf(compute) < SizeOf(DType::fp32);
  return narrow && parts_.decoder().norm_kernel != Decoder::NormKernel::eager_low_precision ? DType::fp32 : compute;
}

TensorId EagerNorm::AddRows(std::string name) { return b().AddTensor(std::move(name), shape_.rows * shape_.width); }

TensorId EagerNorm::AddWide(std::string name) {
  return b().AddTensor(std::move(name), shape_.rows * shape_.width, Category::activation, dtype());
}

TensorId EagerNorm::AddRstd(std::string name) {
  return b().AddTensor(std::move(name), shape_.rows, Category::activation, dtype());
}

TensorId EagerNorm::Cast(std::vector<Action>& pass, const std::string& name, TensorId from, bool widen,
                         std::string to) {
  if (!Casts()) {
    return from;
  }
  const TensorId cast = widen ? AddWide(std::move(to)) : AddRows(std::move(to));
  b().AddPointwise(pass, name, {from}, {cast}, 0);
  return cast;
}

NormPart EagerNorm::Forward(NormPart part) {
  constexpr std::string_view kPrefix = "norm";
  auto& forward = b().forward();
  const std::string name = part.name;
  part.input = Cast(forward, name + ".upcast", part.input, true, name + "_wide");
  const TensorId squares = AddWide(name + "_squares");
  b().AddPointwise(forward, name + ".square", {part.input}, {squares});
  part.rstd = AddRstd("rstd" + name.substr(kPrefix.size()));
  b().AddPointwise(forward, name + ".mean_square", {squares}, {part.rstd}, shape_.width);
  part.normalised = AddWide(name + (Casts() ? "_normalised_wide" : "_normalised"));
  b().AddPointwise(forward, name + ".normalise", {part.input, part.rstd}, {part.normalised});
  if (Casts() && parts_.decoder().norm_kernel == Decoder::NormKernel::eager_fp32_weight) {
    ScaleWide(part);
    return part;
  }
  part.normalised = Cast(forward, name + ".downcast", part.normalised, false, name + "_normalised");
  b().AddPointwise(forward, name + ".scale", {part.normalised}, {part.output}).parameters = {part.weight};
  return part;
}

void EagerNorm::ScaleWide(NormPart& part) {
  auto& forward = b().forward();
  const std::int64_t width = shape_.width;
  part.wide_weight = b().AddTensor(part.name + "_weight_wide", width, Category::activation, DType::fp32);
  const Pointwise cast{width, ((SizeOf(b().compute()) + SizeOf(DType::fp32)) * width).count(), 0};
  b().Add(forward, part.name + ".upcast_weight", cast, {}, {part.wide_weight}).parameters = {part.weight};
  const TensorId product = AddWide(part.name + "_out_wide");
  b().AddPointwise(forward, part.name + ".scale", {part.normalised, part.wide_weight}, {product});
  b().AddPointwise(forward, part.name + ".downcast", {product}, {part.output}, 0);
}

void EagerNorm::Backward(const NormPart& part, TensorId output_gradient, TensorId input_gradient) {
  auto& backward = b().backward();
  const std::string d = "d_" + part.name;
  const bool wide_weight = part.wide_weight.valid();
  TensorId gradient = output_gradient;
  if (wide_weight) {
    gradient = Cast(backward, part.name + ".upcast_gradient", gradient, true, d + "_out_wide");
  }
  WeightGradient(part, gradient);
  TensorId d_normalised = wide_weight ? AddWide(d + "_normalised") : AddRows(d + "_normalised");
  Calculate& scale = b().AddPointwise(backward, part.name + ".scale_backward", {gradient}, {d_normalised});
  if (wide_weight) {
    scale.reads.push_back(part.wide_weight);
  } else {
    scale.parameters = {part.weight};
    d_normalised = Cast(backward, part.name + ".upcast_gradient", d_normalised, true, d + "_normalised_wide");
  }
  const TensorId sum = Casts() ? AddWide(d + "_in_wide") : input_gradient;
  NormaliseBackward(part, d_normalised, sum);
  if (Casts()) {
    b().AddPointwise(backward, part.name + ".downcast_gradient", {sum}, {input_gradient}, 0);
  }
}

void EagerNorm::WeightGradient(const NormPart& part, TensorId gradient) {
  if (!b().trainable(part.weight)) {
    return;
  }
  const TensorId rows = b().AddTensor("d_" + part.name + "_weight_rows", b().tensor(gradient).elements,
                                      Category::activation, b().tensor(gradient).dtype);
  b().AddPointwise(b().backward(), part.name + ".weight_rows", {gradient, part.normalised}, {rows});
  b().AddColumnSum(b().backward(), part.name + ".weight_gradient", {rows}, part.weight).own_heads =
      b().parameter(part.weight).shared_by_heads;
}

void EagerNorm::NormaliseBackward(const NormPart& part, TensorId d_normalised, TensorId sum) {
  auto& backward = b().backward();
  const std::string d = "d_" + part.name;
  b().AddPointwise(backward, part.name + ".normalise_backward", {d_normalised, part.rstd}, {sum});
  const TensorId products = AddWide(d + "_products");
  b().AddPointwise(backward, part.name + ".rstd_products", {d_normalised, part.input}, {products});
  const TensorId d_rstd = AddRstd(d + "_rstd");
  b().AddPointwise(backward, part.name + ".rstd_gradient", {products, part.rstd}, {d_rstd}, shape_.width);
  const TensorId from_squares = AddWide(d + "_from_squares");
  b().AddPointwise(backward, part.name + ".square_backward", {part.input, d_rstd}, {from_squares}, 2);
  b().AddPointwise(backward, part.name + ".sum_backward", {sum, from_squares}, {sum});
}

}  // namespace tidemark

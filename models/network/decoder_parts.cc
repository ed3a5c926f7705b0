// SPDX-License-Identifier: Apache-2.0
#include "models/network/decoder_parts.h"

#include <algorithm>
#include <utility>

namespace tidemark {
namespace {

/// The pool of gathered inputs that are gathered again in the backward pass.
constexpr std::string_view kGatherPool = "tp_gather";
/// The pool of the first version, for the results of gathers and scatters alike: its name there.
constexpr std::string_view kUnsafePool = "dist";

}  // namespace

LocalShape::LocalShape(const Decoder& decoder, const Partition& partition)
    : tp(partition.tp),
      batch(partition.micro_batch_size),
      sequence(partition.sequence_length),
      scattered(partition.sequence_parallel && partition.tp > 1),
      tokens(batch * sequence),
      residual_tokens(scattered ? tokens / tp : tokens),
      hidden(decoder.hidden),
      heads(decoder.heads / tp),
      kv_heads(std::max<std::int64_t>(decoder.kv_heads / tp, 1)),  // fewer than ranks: replicated
      head_size(decoder.head_size),
      value_head_size(decoder.value_head_size()),
      vocabulary(decoder.vocabulary / tp) {}

DecoderParts::DecoderParts(std::string block_name, const Decoder& decoder, std::span<const std::string> trainable,
                           const Partition& partition)
    : decoder_(decoder),
      partition_(partition),
      shape_(decoder, partition),
      builder_(std::move(block_name), trainable, partition.compute) {}

TensorId DecoderParts::AddResidual(std::string name) { return AddRows(std::move(name), shape_.hidden); }

TensorId DecoderParts::AddRows(std::string name, std::int64_t width) {
  return builder_.AddTensor(std::move(name), shape_.residual_tokens * width);
}

ParameterId DecoderParts::AddReplicated(std::string name, std::int64_t elements) {
  return builder_.AddParameter(
      {.name = std::move(name), .elements = elements, .rows = elements, .elements_full = elements});
}

ParameterId DecoderParts::AddReplicatedMatrix(std::string name, std::int64_t rows, std::int64_t columns) {
  const std::int64_t elements = rows * columns;
  return builder_.AddParameter(
      {.name = std::move(name), .elements = elements, .rows = rows, .elements_full = elements});
}

LinearPart DecoderParts::AddColumnLinear(const std::string& name, std::int64_t in, std::int64_t out, std::int64_t full,
                                         bool bias) {
  LinearPart linear;
  linear.name = name;
  linear.in = in;
  linear.out = out;
  linear.weight = builder_.AddParameter(
      {.name = name, .elements = out * linear.in, .rows = out, .elements_full = full * linear.in});
  if (bias) {
    linear.bias = builder_.AddParameter({.name = name + "_bias", .elements = out, .rows = out, .elements_full = full});
  }
  return linear;
}

Gemm DecoderParts::MakeGemm(std::int64_t m, std::int64_t n, std::int64_t k) const {
  Gemm gemm;
  gemm.m = m;
  gemm.n = n;
  gemm.k = k;
  gemm.dtype = gemm.output = partition_.compute;
  return gemm;
}

TensorId DecoderParts::AddCollected(std::string name, std::int64_t elements, Category category) {
  return partition_.gathered == Gathered::pool_unsafe
             ? builder_.AddPooled(std::move(name), elements, category, std::string(kUnsafePool))
             : builder_.AddTensor(std::move(name), elements, category);
}

ColumnPart DecoderParts::ColumnInput(const std::string& norm_name, std::int64_t width, TensorId input,
                                     const std::string& input_name) {
  const bool keeps_gathered = shape_.scattered && !GathersAgain();
  return ColumnOver(NormForward(norm_name, width, input, keeps_gathered ? norm_name + "_out" : input_name), input_name);
}

ColumnPart DecoderParts::ColumnOver(NormPart norm, const std::string& input_name) {
  ColumnPart part;
  part.rows = norm.output;
  part.width = norm.shape.width;
  part.rows_gradient_name = "d_" + norm.name + "_out";
  part.input_name = input_name;
  part.norm = std::move(norm);
  return GatherRows(std::move(part));
}

ColumnPart DecoderParts::ColumnOverResidual(TensorId rows, std::string rows_gradient_name,
                                            const std::string& input_name) {
  ColumnPart part;
  part.rows = rows;
  part.width = shape_.hidden;
  part.rows_gradient_name = std::move(rows_gradient_name);
  part.input_name = input_name;
  return GatherRows(std::move(part));
}

ColumnPart DecoderParts::GatherRows(ColumnPart part) {
  part.gather_again = shape_.scattered && GathersAgain();
  part.input = part.rows;
  if (!shape_.scattered) {
    return part;
  }
  part.in_flight = GathersBesideOwnRows();
  part.input = AddGathered(part, false);
  AddCollective(builder_.forward(), part.in_flight, CollectiveKind::all_gather, part.input_name + ".gather", part.rows,
                part.input);
  return part;
}

/// What the rows are gathered into, in the forward pass or again in the backward pass.
TensorId DecoderParts::AddGathered(const ColumnPart& part, bool again) {
  const std::int64_t elements = shape_.tokens * part.width;
  return GathersAgain() ? AddPassing(part.input_name + (again ? "_again" : "_gathered"), elements)
                        : AddCollected(part.input_name, elements, Category::tp_gather);
}

TensorId DecoderParts::AddPassing(std::string name, std::int64_t elements) {
  return partition_.gathered == Gathered::again_pooled
             ? builder_.AddPooled(std::move(name), elements, Category::tp_gather, std::string(kGatherPool))
             : builder_.AddTensor(std::move(name), elements, Category::tp_gather);
}

void DecoderParts::ColumnForward(ColumnPart& part, LinearPart linear) {
  std::int64_t rows = shape_.tokens;
  if (part.in_flight) {
    Calculate& own = builder_.Add(builder_.forward(), linear.name + ".forward_own_rows",
                                  MakeGemm(shape_.residual_tokens, linear.out, linear.in), {part.rows}, linear.outputs);
    own.parameters = {linear.weight};
    if (linear.bias.valid()) {
      own.parameters.push_back(linear.bias);
    }
    builder_.AddAwait(builder_.forward(), part.input_name + ".gather", part.rows, part.input);
    part.in_flight = false;
    rows -= shape_.residual_tokens;
  }
  Calculate& gemm = builder_.Add(builder_.forward(), linear.name + ".forward", MakeGemm(rows, linear.out, linear.in),
                                 {part.input}, linear.outputs);
  gemm.parameters = {linear.weight};
  if (linear.bias.valid()) {
    gemm.parameters.push_back(linear.bias);
  }
  part.linears.push_back(std::move(linear));
}

// In the order of autograd: the linear that ran last first. Their input gradients are summed as they arrive, in place
// in the first, which is what autograd's accumulation does; each later one is a transient of the full size.
TensorId DecoderParts::ColumnBackward(const ColumnPart& part, std::vector<std::vector<TensorId>> gradients) {
  auto& backward = builder_.backward();
  const std::string gather = part.input_name + ".gather_again";
  const bool any_trainable = std::any_of(part.linears.begin(), part.linears.end(),
                                         [&](const LinearPart& linear) { return builder_.trainable(linear.weight); });
  const bool gathers = part.gather_again && any_trainable;
  TensorId input = part.input;
  if (gathers) {
    input = AddGathered(part, true);
    AddCollective(backward, InputGradientFirst(), CollectiveKind::all_gather, gather, part.rows, input, true);
  }
  if (!InputGradientFirst()) {
    return ReduceInputGradient(part, ColumnInputGradient(part, gradients, input));
  }
  const TensorId partial = ColumnInputGradient(part, gradients, std::nullopt);
  if (gathers) {
    builder_.AddAwait(backward, gather, part.rows, input);
  }
  const TensorId reduced = ReduceInputGradient(part, partial);
  for (std::size_t i = part.linears.size(); i-- > 0;) {
    WeightGradient(part.linears[i], input, gradients.at(i), shape_.tokens);
    BiasGradient(part.linears[i], gradients.at(i));
  }
  AwaitInputGradient(part, partial, reduced);
  return reduced;
}

TensorId DecoderParts::ReduceColumnGradient(const ColumnPart& part, TensorId partial) {
  const TensorId reduced = ReduceInputGradient(part, partial);
  AwaitInputGradient(part, partial, reduced);
  return reduced;
}

void DecoderParts::AwaitInputGradient(const ColumnPart& part, TensorId partial, TensorId reduced) {
  if (shape_.tp > 1 && InputGradientFirst()) {
    builder_.AddAwait(builder_.backward(),
                      part.input_name + (shape_.scattered ? ".scatter_gradient" : ".reduce_gradient"), partial,
                      reduced);
  }
}

TensorId DecoderParts::ReduceInputGradient(const ColumnPart& part, TensorId partial) {
  return SumOverRanks(builder_.backward(), InputGradientFirst(), part.input_name, "_gradient", partial,
                      part.rows_gradient_name);
}

TensorId DecoderParts::SumOverRanks(std::vector<Action>& pass, bool asynchronous, const std::string& name,
                                    const std::string& suffix, TensorId partial, std::string scattered_name) {
  if (!shape_.scattered) {
    if (shape_.tp > 1) {
      AddCollective(pass, asynchronous, CollectiveKind::all_reduce, name + ".reduce" + suffix, partial, partial);
    }
    return partial;
  }
  const TensorId scattered =
      AddCollected(std::move(scattered_name), builder_.tensor(partial).elements / shape_.tp, Category::activation);
  AddCollective(pass, asynchronous, CollectiveKind::reduce_scatter, name + ".scatter" + suffix, partial, scattered);
  return scattered;
}

void DecoderParts::AddCollective(std::vector<Action>& pass, bool asynchronous, CollectiveKind kind,
                                 const std::string& name, TensorId from, TensorId to, bool recompute) {
  if (asynchronous) {
    builder_.AddAsynchronous(pass, kind, name, from, to, recompute);
  } else {
    builder_.AddCollective(pass, kind, name, from, to, recompute);
  }
}

/// With `weights_input`, each linear's weight gradient is taken just before its input gradient. `gradients` become
/// those of the linears' own outputs.
TensorId DecoderParts::ColumnInputGradient(const ColumnPart& part, std::vector<std::vector<TensorId>>& gradients,
                                           const std::optional<TensorId>& weights_input) {
  const std::int64_t elements = shape_.tokens * part.width;
  TensorId sum;
  for (std::size_t i = part.linears.size(); i-- > 0;) {
    const LinearPart& linear = part.linears[i];
    if (linear.turn_back) {
      gradients.at(i) = linear.turn_back(std::move(gradients.at(i)));
    }
    if (weights_input) {
      BiasGradient(linear, gradients.at(i));
      WeightGradient(linear, *weights_input, gradients.at(i), shape_.tokens);
    }
    if (!sum.valid()) {
      sum = builder_.AddTensor("d_" + part.input_name, elements);
      InputGradient(linear, gradients.at(i), shape_.tokens, sum);
      continue;
    }
    const TensorId addend = builder_.AddTensor("d_" + part.input_name + "_" + linear.name, elements);
    InputGradient(linear, gradients.at(i), shape_.tokens, addend);
    builder_.AddPointwise(builder_.backward(), linear.name + ".sum_input_gradient", {sum, addend}, {sum});
  }
  return sum;
}

TensorId DecoderParts::RowForward(RowPart& part, const std::string& name, TensorId input, std::int64_t in,
                                  std::int64_t full_in, bool bias) {
  part.input = input;
  part.linear.name = name;
  part.linear.in = in;
  part.linear.out = shape_.hidden;
  part.linear.weight = builder_.AddParameter(
      {.name = name, .elements = in * shape_.hidden, .rows = shape_.hidden, .elements_full = full_in * shape_.hidden});
  const TensorId partial = builder_.AddTensor(name + "_out", shape_.tokens * shape_.hidden);
  Calculate& gemm = builder_.Add(builder_.forward(), name + ".forward", MakeGemm(shape_.tokens, shape_.hidden, in),
                                 {input}, {partial});
  gemm.parameters = {part.linear.weight};
  if (bias) {
    part.linear.bias = AddReplicated(name + "_bias", shape_.hidden);
    if (shape_.tp == 1) {
      gemm.parameters.push_back(part.linear.bias);
    }
  }
  const TensorId reduced = ReduceForward(name, partial);
  if (bias && shape_.tp > 1) {  // added once, after the sum over ranks
    builder_.AddPointwise(builder_.forward(), name + "_bias.forward", {reduced}, {reduced}).parameters = {
        part.linear.bias};
  }
  return reduced;
}

TensorId DecoderParts::RowBackward(const RowPart& part, TensorId output_gradient, std::string input_gradient_name) {
  BiasGradient(part.linear, {output_gradient});
  const std::string name = "d_" + part.linear.name + "_out";
  const std::int64_t elements = shape_.tokens * part.linear.in;
  if (GathersBesideOwnRows()) {
    const TensorId gathered = AddCollected(name, shape_.tokens * shape_.hidden, Category::tp_gather);
    builder_.AddAsynchronous(builder_.backward(), CollectiveKind::all_gather, name + ".gather", output_gradient,
                             gathered);
    const TensorId input_gradient = builder_.AddTensor(std::move(input_gradient_name), elements);
    InputGradient(part.linear, {output_gradient}, shape_.residual_tokens, input_gradient);
    builder_.AddAwait(builder_.backward(), name + ".gather", output_gradient, gathered);
    InputGradient(part.linear, {gathered}, shape_.tokens - shape_.residual_tokens, input_gradient);
    WeightGradient(part.linear, part.input, {gathered}, shape_.tokens);
    return input_gradient;
  }
  return BothGradients(part.linear, part.input, {GatherBackward(name, output_gradient)}, shape_.tokens,
                       std::move(input_gradient_name));
}

TensorId DecoderParts::BothGradients(const LinearPart& linear, TensorId input, const std::vector<TensorId>& gradients,
                                     std::int64_t rows, std::string input_gradient_name) {
  if (!InputGradientFirst()) {
    WeightGradient(linear, input, gradients, rows);
  }
  const TensorId input_gradient = builder_.AddTensor(std::move(input_gradient_name), rows * linear.in);
  InputGradient(linear, gradients, rows, input_gradient);
  if (InputGradientFirst()) {
    WeightGradient(linear, input, gradients, rows);
  }
  return input_gradient;
}

TensorId DecoderParts::ReduceForward(const std::string& name, TensorId partial) {
  return SumOverRanks(builder_.forward(), false, name, "", partial, name + "_scattered");
}

TensorId DecoderParts::GatherBackward(const std::string& name, TensorId gradient) {
  if (!shape_.scattered) {
    return gradient;
  }
  const TensorId gathered = AddCollected(name, shape_.tokens * shape_.hidden, Category::tp_gather);
  builder_.AddCollective(builder_.backward(), CollectiveKind::all_gather, name + ".gather", gradient, gathered);
  return gathered;
}

TensorId DecoderParts::DropoutForward(const std::string& name, TensorId input, TensorId& mask) {
  if (decoder_.dropout <= 0) {
    return input;
  }
  mask = builder_.AddTensor(name + "_mask", builder_.tensor(input).elements, Category::activation, DType::u8);
  const TensorId dropped = AddResidual(name + "_dropped");
  builder_.AddDropout(builder_.forward(), name + "_dropout.forward", input, {dropped, mask});
  return dropped;
}

TensorId DecoderParts::DropoutBackward(const std::string& name, TensorId gradient, TensorId mask) {
  if (!mask.valid()) {
    return gradient;
  }
  const TensorId dropped = AddResidual("d_" + name + "_dropped");
  builder_.AddPointwise(builder_.backward(), name + "_dropout.backward", {gradient, mask}, {dropped}, 2);
  return dropped;
}

void DecoderParts::BiasGradient(const LinearPart& linear, const std::vector<TensorId>& gradients) {
  if (linear.bias.valid() && builder_.trainable(linear.bias)) {
    builder_.AddColumnSum(builder_.backward(), linear.name + "_bias.gradient", gradients, linear.bias);
  }
}

void DecoderParts::WeightGradient(const LinearPart& linear, TensorId input, const std::vector<TensorId>& gradients,
                                  std::int64_t rows) {
  if (!builder_.trainable(linear.weight)) {
    return;
  }
  std::vector<TensorId> reads = {input};
  reads.insert(reads.end(), gradients.begin(), gradients.end());
  builder_
      .Add(builder_.backward(), linear.name + ".weight_gradient", MakeGemm(linear.out, linear.in, rows),
           std::move(reads), {})
      .gradients = {linear.weight};
}

void DecoderParts::InputGradient(const LinearPart& linear, const std::vector<TensorId>& gradients, std::int64_t rows,
                                 TensorId to) {
  builder_
      .Add(builder_.backward(), linear.name + ".input_gradient", MakeGemm(rows, linear.in, linear.out), gradients, {to})
      .parameters = {linear.weight};
}

}  // namespace tidemark

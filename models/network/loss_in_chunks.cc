// SPDX-License-Identifier: Apache-2.0
#include "models/network/loss_in_chunks.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/network/loss_table.h"

namespace tidemark {
namespace {

/// torchtitan's default, ChunkedLossWrapper.Config.num_chunks.
constexpr std::int64_t kUsualChunks = 8;

/// Tokens of a chunk of the longest sequences.
std::int64_t ChunkTokens(const LocalShape& shape, const Partition& partition, std::int64_t longest) {
  if (partition.loss_chunk_tokens > 0) {
    return std::min(partition.loss_chunk_tokens, longest);
  }
  if (partition.loss == Partition::Loss::chunked) {
    return CeilDiv(longest, kUsualChunks);
  }
  const std::int64_t least = CeilDiv(longest, CeilDiv(shape.vocabulary, shape.hidden));
  return std::min(static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(least))), longest);
}

/// floor(tokens * part / whole), at least 1. Tokens of two lengths of sequence have the number of sequences in common;
/// without it both are below 2^24, so that no product here needs more than 64 bits, although tokens * part may.
std::int64_t InProportion(std::int64_t tokens, std::int64_t part, std::int64_t whole) {
  const std::int64_t common = std::gcd(tokens, whole);
  const std::int64_t mean = tokens / common, longest = whole / common;
  return std::max<std::int64_t>(1, part / longest * mean + part % longest * mean / longest);
}

}  // namespace

bool TakesChunks(Partition::Loss loss) { return loss == Partition::Loss::chunked || loss == Partition::Loss::fused; }

ChunkPlan PlanChunks(const LocalShape& shape, const Partition& partition) {
  const std::int64_t longest = partition.longest_sequence > 0 ? shape.batch * partition.longest_sequence : shape.tokens;
  const std::int64_t chunk = ChunkTokens(shape, partition, longest);
  const std::int64_t chunks = CeilDiv(longest, chunk);
  if (chunks == 1) {
    return {.first = shape.tokens};
  }
  ChunkPlan plan{.first = chunk, .middle = chunk, .turns = chunks - 2, .last = longest - (chunks - 1) * chunk};
  if (shape.tokens != longest) {
    plan.middle = InProportion(shape.tokens, chunk, longest);
    plan.last = InProportion(shape.tokens, plan.last, longest);
    plan.first = shape.tokens - plan.turns * plan.middle - plan.last;
  }
  TIDEMARK_CHECK(plan.first > 0);
  return plan;
}

std::vector<ChunkStretch> ChunkPlan::Stretches() const {
  std::vector<ChunkStretch> stretches = {{"_first", 0, first, 1, true, last == 0}};
  if (turns > 0) {
    stretches.push_back({"_next", first, middle, turns, false, false});
  }
  if (last > 0) {
    stretches.push_back({"_last", first + turns * middle, last, 1, false, true});
  }
  return stretches;
}

LossInChunks::LossInChunks(DecoderParts& parts, LinearPart linear, TensorId input, TensorId labels)
    : parts_(parts), linear_(std::move(linear)), input_(input), labels_(labels) {}

template <class Write>
void LossInChunks::EachStretch(std::vector<Action>& pass, std::vector<ActionLoop>& loops, Write write) {
  for (const ChunkStretch& stretch : PlanChunks(parts_.shape(), parts_.partition()).Stretches()) {
    const std::size_t begin = pass.size();
    write(stretch);
    if (!stretch.is_first && !stretch.is_last) {
      loops.push_back({begin, pass.size(), stretch.turns});
    }
  }
}

TensorId LossInChunks::Logits(std::vector<Action>& pass, const ChunkStretch& stretch) {
  BlockBuilder& b = parts_.builder();
  const TensorId logits =
      b.AddTensor(std::string("logits") + stretch.suffix, stretch.tokens * linear_.out, Category::logits);
  b.Add(pass, linear_.name + ".forward", parts_.MakeGemm(stretch.tokens, linear_.out, linear_.in), {input_}, {logits})
      .parameters = {linear_.weight};
  return logits;
}

void LossInChunks::Forward() {
  if (!fused()) {
    return;
  }
  BlockBuilder& b = parts_.builder();
  const std::int64_t tokens = parts_.shape().tokens;
  sum_ = b.AddTensor("d_head_in", hidden_elements(tokens));
  b.Add(b.forward(), "input_gradient.zero",
        Pointwise{.elements = hidden_elements(tokens), .bytes_moved = b.BytesOf({sum_})}, {}, {sum_});
  if (trains()) {
    const std::int64_t elements = b.parameter(linear_.weight).elements;
    weight_ = b.AddTensor("gradient made with the loss", elements, Category::gradient);
    b.Add(b.forward(), "weight_gradient.zero", Pointwise{.elements = elements, .bytes_moved = b.BytesOf({weight_})}, {},
          {weight_});
  }
  losses_ = b.AddTensor("losses", tokens, Category::activation, DType::fp32);
  EachStretch(b.forward(), b.block().forward_loops, [&](const ChunkStretch& stretch) { WriteFusedChunk(stretch); });
  const TensorId loss = b.AddTensor("loss", 1, Category::activation, DType::fp32);
  // Its caller holds what the function was given until it returns.
  Calculate& last = b.AddPointwise(b.forward(), "losses.sum", {losses_}, {loss});
  last.reads.insert(last.reads.end(), {input_, labels_, sum_});
}

/// The kernel reads the logits twice, for the row's statistics and for the gradient, and writes them once.
void LossInChunks::WriteFusedChunk(const ChunkStretch& stretch) {
  BlockBuilder& b = parts_.builder();
  const TensorId logits = Logits(b.forward(), stretch);
  const CrossEntropy op{stretch.tokens, linear_.out, 3 * b.BytesOf({logits}), false};
  b.Add(b.forward(), "cross_entropy.in_place", op, {logits, labels_}, {logits, losses_});
  b.Add(b.forward(), linear_.name + ".input_gradient", parts_.MakeGemm(stretch.tokens, linear_.in, linear_.out),
        {logits}, {sum_})
      .parameters = {linear_.weight};
  if (trains()) {
    Gemm gemm = parts_.MakeGemm(linear_.out, linear_.in, stretch.tokens);
    gemm.accumulate = true;
    b.Add(b.forward(), linear_.name + ".weight_gradient", gemm, {input_, logits, weight_}, {weight_});
  }
}

TensorId LossInChunks::Backward() {
  if (fused()) {
    return FusedBackward();
  }
  BlockBuilder& b = parts_.builder();
  const std::int64_t elements = hidden_elements(parts_.shape().tokens);
  const bool narrow = SizeOf(b.compute()) < SizeOf(DType::fp32);
  sum_ = b.AddTensor("d_head_in_sum", elements, Category::activation, narrow ? DType::fp32 : b.compute());
  b.Add(b.backward(), "input_gradient.zero", Pointwise{.elements = elements, .bytes_moved = b.BytesOf({sum_})}, {},
        {sum_});
  EachStretch(b.backward(), b.block().backward_loops, [&](const ChunkStretch& stretch) { WriteChunk(stretch); });
  TensorId gradient = sum_;
  if (narrow) {
    gradient = b.AddTensor("d_head_in", elements);
    // Its caller holds what the function was given until it returns.
    Calculate& cast = b.AddPointwise(b.backward(), "input_gradient.downcast", {sum_}, {gradient});
    cast.reads.insert(cast.reads.end(), {input_, labels_});
  }
  b.block().chunks_end = b.backward().size();
  return gradient;
}

void LossInChunks::WriteChunk(const ChunkStretch& stretch) {
  BlockBuilder& b = parts_.builder();
  const std::string suffix = stretch.suffix;
  const TensorId logits = Logits(b.backward(), stretch);
  LossTable loss(parts_, {stretch.tokens, suffix}, logits, labels_, b.backward(), b.backward());
  loss.Forward();
  const std::size_t begin = b.backward().size();
  const TensorId d_logits = loss.Backward();
  std::get<Calculate>(b.backward()[begin]).own_loss = true;
  const std::optional<TensorId> part = trains() ? AddWeightGradient(stretch, d_logits) : std::nullopt;
  TensorId gradient = b.AddTensor("d_head_in_chunk" + suffix, hidden_elements(stretch.tokens));
  b.Add(b.backward(), linear_.name + ".input_gradient", parts_.MakeGemm(stretch.tokens, linear_.in, linear_.out),
        {d_logits}, {gradient})
      .parameters = {linear_.weight};
  if (part) {
    SumWide(stretch, *part);
  }
  if (b.tensor(sum_).dtype != b.compute()) {
    const TensorId wide = b.AddTensor("d_head_in_chunk_fp32" + suffix, hidden_elements(stretch.tokens),
                                      Category::activation, DType::fp32);
    b.AddPointwise(b.backward(), "input_gradient.upcast", {gradient}, {wide}).reads.push_back(logits);
    gradient = wide;
  }
  const Pointwise store{.elements = hidden_elements(stretch.tokens), .bytes_moved = 2 * b.BytesOf({gradient})};
  b.Add(b.backward(), "input_gradient.store", store, {gradient, loss.Held()}, {sum_});
}

/// The first chunk's becomes the gradient; each later one is born beside it, added, and dies. Returns a part that is
/// still to be added, to a wider sum.
std::optional<TensorId> LossInChunks::AddWeightGradient(const ChunkStretch& stretch, TensorId d_logits) {
  BlockBuilder& b = parts_.builder();
  const std::string name = linear_.name + ".weight_gradient";
  const Gemm gemm = parts_.MakeGemm(linear_.out, linear_.in, stretch.tokens);
  if (stretch.is_first && !SumsWide()) {
    Calculate& made = b.Add(b.backward(), name, gemm, {input_, d_logits}, {});
    (stretch.is_last ? made.gradients : made.partial_gradients) = {linear_.weight};
    return std::nullopt;
  }
  const std::int64_t elements = b.parameter(linear_.weight).elements;
  const TensorId part = b.AddTensor(std::string("weight_gradient") + stretch.suffix, elements, Category::gradient);
  b.Add(b.backward(), name, gemm, {input_, d_logits}, {part});
  if (SumsWide()) {
    return part;
  }
  AddToWeightGradient(stretch, part, ".sum_weight_gradient");
  return std::nullopt;
}

/// Autograd accumulates behind the product's other gradient. It casts what it adds: the first into the sum, each later
/// one into a tensor that dies with the addition.
void LossInChunks::SumWide(const ChunkStretch& stretch, TensorId part) {
  BlockBuilder& b = parts_.builder();
  if (stretch.is_first) {
    b.parameter(linear_.weight).summed_wide = true;
    AddToWeightGradient(stretch, part, ".cast_weight_gradient");
    return;
  }
  const TensorId cast = b.AddTensor(std::string("weight_gradient_cast") + stretch.suffix, b.tensor(part).elements,
                                    Category::gradient, parts_.partition().chunk_sum);
  b.AddPointwise(b.backward(), linear_.name + ".cast_weight_gradient", {part}, {cast});
  AddToWeightGradient(stretch, cast, ".sum_weight_gradient");
}

void LossInChunks::AddToWeightGradient(const ChunkStretch& stretch, TensorId part, const char* name) {
  BlockBuilder& b = parts_.builder();
  const std::int64_t elements = b.tensor(part).elements, touches = stretch.is_first ? 1 : 2;
  const DType sum = parts_.partition().chunk_sum.value_or(parts_.partition().gradients);
  const std::int64_t bytes = b.BytesOf({part}) + (SizeOf(sum) * (touches * elements)).count();
  Calculate& added = b.Add(b.backward(), linear_.name + name, Pointwise{elements, bytes, 1}, {part}, {});
  (stretch.is_last ? added.gradients : added.partial_gradients) = {linear_.weight};
}

/// Scaling is in place: the weight's gradient becomes what is handed on, so that it goes under its old name just before
/// it comes under its new one, unless that is of another dtype.
TensorId LossInChunks::FusedBackward() {
  BlockBuilder& b = parts_.builder();
  const TensorId d_loss = b.AddTensor("d_loss", 1, Category::activation, DType::fp32);
  const CrossEntropy scale{parts_.shape().tokens, 1, 2 * b.BytesOf({sum_}), true};
  Calculate& first = b.Add(b.backward(), "input_gradient.scale", scale, {sum_}, {sum_, d_loss});
  if (!trains()) {
    return sum_;
  }
  const bool in_place = parts_.partition().gradients == b.compute();
  const std::int64_t elements = b.parameter(linear_.weight).elements;
  const std::int64_t bytes = b.BytesOf({weight_}) + (SizeOf(parts_.partition().gradients) * elements).count();
  if (in_place) {
    first.reads.push_back(weight_);
  }
  Calculate& handed = b.Add(b.backward(), "weight_gradient.scale", Pointwise{elements, bytes, 1}, {d_loss}, {});
  handed.gradients = {linear_.weight};
  if (!in_place) {
    handed.reads.push_back(weight_);
  }
  return sum_;
}

}  // namespace tidemark

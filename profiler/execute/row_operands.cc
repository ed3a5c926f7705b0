// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/row_operands.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "models/job/validate.h"
#include "profiler/execute/rotary_tables.h"

namespace tidemark {
namespace {

using kernels::ConstTensor;

/// Where a weight lies in a buffer that holds others beside it.
Result<ConstTensor> FindWeight(const OperationContext& c, const Operand& operand, const Model::Weight& weight) {
  const auto contents = SaidContents(c.model, operand);
  if (!contents) {
    return static_cast<ConstTensor>(operand.tensor);
  }
  std::vector<const Stretch*> found;
  for (const Stretch& stretch : contents->stretches) {
    if (stretch.weight.name == weight.name && stretch.IsWhole()) {
      found.push_back(&stretch);
    }
  }
  for (const Stretch* stretch : found) {
    if (found.size() == 1 || stretch->block == c.block) {
      return kernels::Slice(static_cast<ConstTensor>(operand.tensor), stretch->offset, stretch->elements);
    }
  }
  return NotExecuted(fmt::format("'{}', which reads '{}' from '{}'", c.name, weight.name, operand.buffer->name));
}

}  // namespace

Result<RowOperands> RowOperands::Of(const OperationContext& context, const Calculate& row) {
  const Block& block = context.model.BlockOfAction(context.name);
  std::vector<ConstTensor> weights;
  for (std::size_t i = 0; i < row.parameters.size(); ++i) {
    const Model::Weight& stored = context.model.Stored(block, block.parameters[row.parameters[i].index]);
    TIDEMARK_ASSIGN(const ConstTensor weight, FindWeight(context, context.reads[row.reads.size() + i], stored));
    weights.push_back(weight);
  }
  return RowOperands(context, row, std::move(weights));
}

RowOperands::RowOperands(const OperationContext& context, const Calculate& row, std::vector<ConstTensor> weights)
    : c_(context),
      row_(row),
      weights_(std::move(weights)),
      block_(c_.model.BlockOfAction(c_.name)),
      decoder_(c_.model.DecoderOf(block_)) {
  shape_.batch = c_.model.SequencesOf(block_);
  shape_.sequence = c_.job.TokensOnRank();
  const std::int64_t tp = c_.model.place().size;
  shape_.heads = decoder_.heads / tp;
  shape_.kv_heads = std::max<std::int64_t>(decoder_.kv_heads / tp, 1);
  shape_.head_size = decoder_.head_size;
  shape_.value_head_size = decoder_.latent.value_head_size;
  shape_.before_value = decoder_.IsLatent() ? decoder_.head_size - decoder_.latent.rope_head_size : 0;
}

DType RowOperands::GradientType(std::size_t i) const {
  constexpr std::string_view kAside = " gradient";  // "layer.norm1 gradient"
  std::string_view name = c_.writes[i].buffer->name;
  name.remove_suffix(std::min(kAside.size(), name.size()));
  if (c_.writes[i].buffer->name.ends_with(kAside) && c_.model.WeightOf(name)) {
    return c_.Read(0).type.dtype;
  }
  return c_.Adds(i) ? c_.writes[i].tensor.type.dtype : c_.Stored(c_.job.axes.precision.gradients);
}

std::vector<kernels::ConstTensor> RowOperands::Reads(std::size_t begin) const {
  std::vector<ConstTensor> reads;
  for (std::size_t i = begin; i < tensors(); ++i) {
    reads.push_back(c_.Read(i));
  }
  return reads;
}

kernels::Rope RowOperands::MakeRope() const {
  using AnglesFrom = kernels::Rope::AnglesFrom;
  kernels::Rope rope{.shape = shape_, .places = c_.share.places()};
  if (decoder_.rotary_table != Decoder::RotaryTable::none) {
    rope.angles_from = row_.constants.empty() ? AnglesFrom::rows : AnglesFrom::table;
    rope.layout = LayersTable(c_.job, decoder_).layout;
  }
  return rope;
}

kernels::ConstTensor RowOperands::Angles(const kernels::Rope& rope) const {
  switch (rope.angles_from) {
    case kernels::Rope::AnglesFrom::computed:
      return {};
    case kernels::Rope::AnglesFrom::rows:
      return c_.Read(tensors() - 1);
    case kernels::Rope::AnglesFrom::table:
      return c_.Read(tensors() + weights_.size());
  }
  TIDEMARK_CHECK(false && "angles from elsewhere");
}

bool RowOperands::RoutesWide() const {
  return decoder_.experts.router_fp32 && SizeOf(PartitionOf(c_.job).compute) < SizeOf(DType::fp32);
}

std::int64_t RowOperands::Elements(const std::vector<ConstTensor>& parts) {
  std::int64_t elements = 0;
  for (const ConstTensor& part : parts) {
    elements += part.type.elements;
  }
  return elements;
}

}  // namespace tidemark

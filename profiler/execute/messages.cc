// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/messages.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "kernels/pointwise_cuda.h"
#include "profiler/execute/contents.h"

namespace tidemark {
namespace {

using kernels::ConstTensor;
using kernels::TensorType;
using Writes = std::span<const kernels::Tensor>;

TensorType ResidualType(const Job& job, const Model& model) {
  const std::int64_t tokens = job.micro_batch_size * job.TokensOnRank();
  const std::int64_t rows = job.layout.sp ? tokens / model.place().size : tokens;
  return {job.axes.precision.params, rows * model.decoder().hidden};
}

/// The first read that is not written.
ConstTensor AddendOf(const OperationContext& c) {
  return c.Read(c.reads[0].ref == c.writes[0].ref && c.reads.size() > 1 ? 1 : 0);
}

Operation Add(const OperationContext& c) {
  return {{c.writes[0].tensor.type}, [addend = AddendOf(c), scale = c.scale](Writes writes, const Queue& queue) {
            on::Accumulate(queue, addend, writes[0], scale);
          }};
}

}  // namespace

Result<TensorType> MessageType(const MessageContext& c) {
  std::optional<TensorType> type;
  const std::string_view what = c.name.substr(c.name.find(' ') + 1);
  if (what == "activation" || what == "gradient") {
    type = ResidualType(c.job, c.model);
  } else if (what == "tied gradient" && c.buffer.holds.empty()) {
    if (const auto tied = c.model.tied()) {
      type = StateType(c.job, c.buffer, {{}, tied->parameter->elements});
    }
  } else if (what == "tied gradient" || what == "mirrored gradient") {
    if (const auto contents = ContentsOf(c.model, c.buffer, c.index)) {
      type = StateType(c.job, c.buffer, *contents);
    }
  }
  if (!type) {
    return NotExecuted(fmt::format("'{}' of '{}', a message between pipeline stages", c.name, c.buffer.name));
  }
  return TensorType{Stored(type->dtype, c.exact), type->elements};
}

Status CheckSendable(std::string_view name, const TensorType& type) {
  if (type.elements > INT32_MAX) {
    return NotExecuted(fmt::format("'{}', which sends {} x {}: ranks send fewer than 2^31 numbers at once", name,
                                   type.elements, Name(type.dtype)));
  }
  return Done{};
}

std::int64_t TagOf(const Program& program, ChannelId channel) {
  const Channel& own = program.channels[channel.index];
  std::int64_t tag = 0;
  for (const Channel& other : program.channels) {
    tag += other.from_role == own.from_role && other.to_role == own.to_role && other.name < own.name ? 1 : 0;
  }
  return tag;
}

std::optional<Result<Operation>> BindPipeline(const OperationContext& c) {
  if (c.name == "add tied gradient" || c.name == "add mirrored gradient") {
    return Add(c);
  }
  if (!c.name.ends_with(".hand_over")) {
    return std::nullopt;
  }
  if (c.Adds(0)) {
    return Add(c);
  }
  const TensorType made{c.Stored(c.job.axes.precision.gradients), c.Read(0).type.elements};
  return Operation{{made}, [from = c.Read(0)](Writes writes, const Queue& queue) { on::Copy(queue, from, writes[0]); }};
}

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/stage_links.h"

#include <fmt/format.h>

namespace tidemark {

StageLinks::StageLinks(Role& role, const BlockWriter& blocks) : role_(role), blocks_(blocks) {
  const Stage& stage = role.stage;
  if (stage.count == 1) {
    return;
  }
  send_ = role.builder.AddStream("send", StreamKind::peer);
  receive_ = role.builder.AddStream("receive", StreamKind::peer);
  if (!stage.is_first()) {
    activations_in_ = AddChannel("activations", stage.index - 1, stage.index);
    gradients_out_ = AddChannel("gradients", stage.index, stage.index - 1);
  }
  if (!stage.is_last()) {
    activations_out_ = AddChannel("activations", stage.index, stage.index + 1);
    gradients_in_ = AddChannel("gradients", stage.index + 1, stage.index);
  }
}

/// Ranks are numbered tensor parallel first, then data parallel, then pipeline: neighbouring stages are dp * cp * tp
/// ranks apart.
ChannelId StageLinks::AddChannel(const char* name, std::int64_t from, std::int64_t to) {
  const Layout& layout = role_.job.layout;
  const std::int64_t stage_ranks = layout.dp * layout.cp * layout.tp;
  const std::int64_t per_node = role_.job.machine.devices_per_node;
  const bool crosses = from * stage_ranks / per_node != to * stage_ranks / per_node;
  return role_.builder.AddChannel({fmt::format("{} {} to {}", name, from, to), from, to, crosses});
}

void StageLinks::Push(const char* name, ChannelId channel, const BufferRef& buffer) {
  role_.builder.Order(send_, role_.compute, "to send");
  role_.builder.Emit(Send{role_.builder.Named(name), channel, send_, buffer});
  role_.builder.Order(role_.compute, send_, "sent");
}

void StageLinks::Pull(const char* name, ChannelId channel, const BufferRef& buffer) {
  role_.Alloc(buffer);
  role_.builder.Order(receive_, role_.compute, "to receive");
  role_.builder.Emit(Recv{role_.builder.Named(name), channel, receive_, buffer});
  role_.builder.Order(role_.compute, receive_, "received");
}

void StageLinks::ReceiveActivation(const Microbatch& microbatch) {
  if (activations_in_.valid()) {
    Pull("receive activation", activations_in_, blocks_.Boundary(microbatch, 0));
  }
}

void StageLinks::SendActivation(const Microbatch& microbatch) {
  if (activations_out_.valid()) {
    Push("send activation", activations_out_, blocks_.Boundary(microbatch, role_.stage.blocks));
  }
}

void StageLinks::ReceiveGradient(const Microbatch& microbatch) {
  if (gradients_in_.valid()) {
    Pull("receive gradient", gradients_in_, blocks_.BoundaryGradient(microbatch, role_.stage.blocks));
    role_.Free(blocks_.Boundary(microbatch, role_.stage.blocks));
  }
}

void StageLinks::SendGradient(const Microbatch& microbatch) {
  if (gradients_out_.valid()) {
    const BufferRef gradient = blocks_.BoundaryGradient(microbatch, 0);
    Push("send gradient", gradients_out_, gradient);
    role_.Free(gradient);
  }
}

/// An all-reduce of two ranks is an exchange: each sends its gradient (the wire bytes of a ring all-reduce of two) and
/// adds what it receives.
void StageLinks::ExchangeTiedGradient(DataParallel& data_parallel) {
  const Stage& stage = role_.stage;
  if (!stage.exchanges_tied_gradient) {
    return;
  }
  const std::int64_t peer = stage.is_first() ? stage.count - 1 : 0;
  const ChannelId out = AddChannel("tied gradient", stage.index, peer);
  const ChannelId in = AddChannel("tied gradient", peer, stage.index);
  const BufferRef own = data_parallel.FinalGradient(stage.tied_copy);
  Buffer theirs = role_.builder.buffer(own.buffer);
  theirs.name = "other copy's tied gradient";
  theirs.extents = {1, 1};
  theirs.resident = theirs.kept = false;
  const BufferRef other{role_.builder.AddBuffer(theirs), {}};
  role_.builder.Emit(Begin{Phase::reduce, {LoopId{}, -1, 0}});
  Push("send tied gradient", out, own);
  Pull("receive tied gradient", in, other);
  role_.MemoryKernel("add tied gradient", role_.compute, Work::compute, {own, other}, {own}, theirs.elements,
                     theirs.bytes() * 3);
  role_.Free(other);
  role_.builder.Emit(End{Phase::reduce});
}

}  // namespace tidemark

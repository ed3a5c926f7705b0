// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/stage_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "sim/strategies/parameter_table.h"

namespace tidemark {

StageLinks::StageLinks(Role& role, const BlockWriter& blocks) : role_(role), blocks_(blocks) {
  const Stage& stage = role.stage;
  if (stage.count == 1) {
    return;
  }
  send_ = role.builder.AddStream("send", StreamKind::peer);
  receive_ = role.builder.AddStream("receive", StreamKind::peer);
  const PipelinePlace& place = stage.place;
  if (!stage.is_first()) {
    activations_in_ = AddChannel("activations", {stage.index - 1, place.previous}, {stage.index, place.rank});
    gradients_out_ = AddChannel("gradients", {stage.index, place.rank}, {stage.index - 1, place.previous});
  }
  if (!stage.is_last()) {
    activations_out_ = AddChannel("activations", {stage.index, place.rank}, {stage.index + 1, place.next});
    gradients_in_ = AddChannel("gradients", {stage.index + 1, place.next}, {stage.index, place.rank});
  }
}

/// Neighbouring stages are dp * cp * tp ranks apart (Role::AddGroup).
ChannelId StageLinks::AddChannel(const std::string& name, std::int64_t from, std::int64_t to) {
  const Layout& layout = role_.job.layout;
  const std::int64_t stage_ranks = layout.GradientRanks() * layout.tp;
  const std::int64_t per_node = role_.job.machine.devices_per_node;
  const bool crosses = from * stage_ranks / per_node != to * stage_ranks / per_node;
  return role_.builder.AddChannel({name, from, to, crosses});
}

ChannelId StageLinks::AddChannel(const char* name, const Holder& from, const Holder& to) {
  const char* const direction = role_.stage.place.direction > 0 ? " upwards" : "";
  return AddChannel(fmt::format("{} {} to {}{}", name, from.stage, to.stage, direction), from.rank, to.rank);
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
    if (FreesOutputs()) {
      role_.Free(blocks_.Boundary(microbatch, role_.stage.blocks));
    }
  }
}

void StageLinks::ReceiveGradient(const Microbatch& microbatch) {
  if (gradients_in_.valid()) {
    Pull("receive gradient", gradients_in_, blocks_.BoundaryGradient(microbatch, role_.stage.blocks));
    if (!FreesOutputs()) {
      role_.Free(blocks_.Boundary(microbatch, role_.stage.blocks));
    }
  }
}

void StageLinks::SendGradient(const Microbatch& microbatch) {
  if (gradients_out_.valid()) {
    const BufferRef gradient = blocks_.BoundaryGradient(microbatch, 0);
    Push("send gradient", gradients_out_, gradient);
    role_.Free(gradient);
  }
}

void StageLinks::Exchange(const char* what, ChannelId out, ChannelId in, const BufferRef& own, const BufferRef& other) {
  const Buffer& buffer = role_.builder.buffer(own.buffer);
  Push(fmt::format("send {}", what).c_str(), out, own);
  Pull(fmt::format("receive {}", what).c_str(), in, other);
  role_.MemoryKernel(fmt::format("add {}", what), role_.compute, Work::compute, {own, other}, {own}, buffer.elements,
                     buffer.bytes() * 3);
  role_.Free(other);
}

BufferRef StageLinks::DeclareOther(const BufferRef& own, ProgramBuilder builder, const std::string& name) const {
  Buffer other = builder.buffer(own.buffer);
  other.name = name;
  other.extents = {1, 1};
  other.stream = role_.compute;
  other.resident = other.kept = false;
  other.slices.clear();
  return {builder.AddBuffer(std::move(other)), {}};
}

void StageLinks::ExchangeTiedGradient(DataParallel& data_parallel) {
  const Stage& stage = role_.stage;
  if (!stage.exchanges_tied_gradient) {
    return;
  }
  // One copy is on the first rank, the other on the last.
  const Holder here{stage.index, stage.place.rank};
  const Holder there{stage.is_first() ? stage.count - 1 : 0, role_.job.layout.pp - 1 - here.rank};
  const BufferRef own = data_parallel.FinalGradient(stage.tied_copy);
  const BufferRef other = DeclareOther(own, role_.builder, "other copy's tied gradient");
  role_.builder.Emit(Begin{Phase::reduce, {LoopId{}, -1, 0}});
  Exchange("tied gradient", AddChannel("tied gradient", here, there), AddChannel("tied gradient", there, here), own,
           other);
  role_.builder.Emit(End{Phase::reduce});
}

void StageLinks::ExchangeMirrored(DataParallel& data_parallel) {
  const Stage& stage = role_.stage;
  const std::int64_t here = stage.place.rank, there = role_.job.layout.pp - 1 - here;
  const auto channel = [&](std::int64_t from, std::int64_t to) {
    return AddChannel(fmt::format("gradients of stage {}, rank {} to {}", stage.index, from, to), from, to);
  };
  const ChannelId out = channel(here, there), in = channel(there, here);
  std::vector<BufferRef> done;
  const auto of_block = [&](std::int64_t position) {
    std::vector<BufferRef> gradients;
    ForEachTrained(role_, position, [&](const ParameterAt& at) {
      const BufferRef gradient = data_parallel.FinalGradient(at);
      if (std::find(gradients.begin(), gradients.end(), gradient) == gradients.end() &&
          std::find(done.begin(), done.end(), gradient) == done.end()) {
        gradients.push_back(gradient);
      }
    });
    return gradients;
  };
  role_.builder.Emit(Begin{Phase::reduce, {LoopId{}, -1, 0}});
  for (std::size_t run = 0; run < stage.runs.size(); ++run) {
    const std::int64_t first = stage.first[run], count = stage.runs[run].count;
    const std::vector<BufferRef> absolute = of_block(first);
    // Blocks whose gradients lie in the same buffer are exchanged with it.
    const bool each_has_own = count > 1 && of_block(first + 1) != absolute;
    const std::size_t start = role_.builder.size();
    role_.StandAt(each_has_own ? first : -1);
    for (const BufferRef& gradient : of_block(first)) {
      // Its name says already which stage it belongs to.
      const std::string name = "mirrored " + role_.builder.buffer(gradient.buffer).name;
      Exchange("mirrored gradient", out, in, gradient, DeclareOther(gradient, role_.program.builder, name));
    }
    role_.LeaveBlocks();
    if (each_has_own && role_.builder.size() > start) {
      role_.builder.Fold(start, {role_.block_loop, count, 0, 1, 0});
    }
    done.insert(done.end(), absolute.begin(), absolute.end());
  }
  role_.builder.Emit(End{Phase::reduce});
}

}  // namespace tidemark

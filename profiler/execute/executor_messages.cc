// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/executor.h"
#include "profiler/execute/messages.h"
#include "sim/program/stages.h"
#include "sim/program/walk.h"

namespace tidemark {
namespace {

constexpr std::string_view kPipeline = "pp";  // a rank's number in it is its role

}  // namespace

Message Executor::MessageOf(ChannelId channel, std::int64_t peer, const kernels::TensorType& type) const {
  return {peer, TagOf(*program_, channel), type.dtype, type.elements};
}

Status Executor::Do(const Send& leaf, Loops loops) {
  TIDEMARK_TRY(FinishStream(leaf.stream));
  const std::string& name = program_->names[leaf.name.index];
  const Channel& channel = program_->channels[leaf.channel.index];
  const Held& held = held_[SlotOf(leaf.buffer, loops)];
  const Nanos start = recorder_.Now();
  Communicator& pipeline = *groups_.find(kPipeline)->second;
  TIDEMARK_TRY(pipeline.Send(MessageOf(leaf.channel, channel.to_role, held.type), DataAt(leaf.buffer, loops)));
  const Stream& stream = program_->streams[leaf.stream.index];
  recorder_.Busy(stream.name, Name(stream.kind), name, start, recorder_.Now());
  return Done{};
}

Status Executor::Do(const Recv& leaf, Loops loops) {
  TIDEMARK_TRY(FinishStream(leaf.stream));
  const std::string& name = program_->names[leaf.name.index];
  const Channel& channel = program_->channels[leaf.channel.index];
  TIDEMARK_ASSIGN(const kernels::TensorType type, MessageType({job_, model_, WithoutStage(name), BufferOf(leaf.buffer),
                                                               Resolve(leaf.buffer.index[0], loops), options_.exact}));
  held_[SlotOf(leaf.buffer, loops)].type = type;
  Communicator& pipeline = *groups_.find(kPipeline)->second;
  Pending& pending = pending_.emplace_back(PendingOf(leaf.stream, leaf.name, pipeline));
  TIDEMARK_ASSIGN(const Communicator::Ticket ticket,
                  pipeline.Receive(MessageOf(leaf.channel, channel.from_role, type), DataAt(leaf.buffer, loops)));
  pending.tickets.push_back(ticket);
  return Done{};
}

}  // namespace tidemark

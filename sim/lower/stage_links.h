// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "sim/lower/block_writer.h"
#include "sim/lower/data_parallel.h"
#include "sim/lower/role.h"

namespace tidemark {

/// What a pipeline stage exchanges with others: activations forward, gradients back, and at the end of the window the
/// gradient of an embedding that the first and the last stage both hold, or of a whole stage that two ranks hold. As in
/// nanotron, the compute stream waits for each message. An output stays until its backward, because it is the root of
/// the stage's graph, unless `buffers.deallocate_pipeline_outputs`: Megatron (schedules.py: deallocate_output_tensor)
/// and Alpa (runtime_emitter.py: _compile_free) let go of it when it was sent.
class StageLinks {
 public:
  StageLinks(Role& role, const BlockWriter& blocks);

  void ReceiveActivation(const Microbatch& microbatch);
  void SendActivation(const Microbatch& microbatch);
  void ReceiveGradient(const Microbatch& microbatch);
  void SendGradient(const Microbatch& microbatch);
  void ExchangeTiedGradient(DataParallel& data_parallel);
  /// Adds up the gradients of a stage that the mirrored rank holds as well.
  void ExchangeMirrored(DataParallel& data_parallel);

 private:
  /// A stage, and the rank that holds it.
  struct Holder {
    std::int64_t stage, rank;
  };
  ChannelId AddChannel(const char* name, const Holder& from, const Holder& to);
  ChannelId AddChannel(const std::string& name, std::int64_t from, std::int64_t to);
  /// An all-reduce of two ranks is an exchange: each sends its gradient (the wire bytes of a ring all-reduce of two)
  /// and adds what it receives.
  void Exchange(const char* what, ChannelId out, ChannelId in, const BufferRef& own, const BufferRef& other);
  /// A buffer for what the other rank holds of a gradient, under `builder`'s prefix.
  BufferRef DeclareOther(const BufferRef& own, ProgramBuilder builder, const std::string& name) const;
  bool FreesOutputs() const { return role_.job.axes.buffers.deallocate_pipeline_outputs; }
  void Push(const char* name, ChannelId channel, const BufferRef& buffer);
  void Pull(const char* name, ChannelId channel, const BufferRef& buffer);

  Role& role_;
  const BlockWriter& blocks_;
  StreamId send_, receive_;
  ChannelId activations_in_, activations_out_, gradients_in_, gradients_out_;
};

}  // namespace tidemark

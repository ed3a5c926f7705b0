// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/lower/block_writer.h"
#include "sim/lower/data_parallel.h"
#include "sim/lower/role.h"

namespace tidemark {

/// What a pipeline stage exchanges with its neighbours: activations forward, gradients back, and at the end of the
/// window the gradient of an embedding that the first and the last stage both hold. As in nanotron, the compute stream
/// waits for each message; an output stays until its backward, because it is the root of the stage's graph.
class StageLinks {
 public:
  StageLinks(Role& role, const BlockWriter& blocks);

  void ReceiveActivation(const Microbatch& microbatch);
  void SendActivation(const Microbatch& microbatch);
  void ReceiveGradient(const Microbatch& microbatch);
  void SendGradient(const Microbatch& microbatch);
  void ExchangeTiedGradient(DataParallel& data_parallel);

 private:
  ChannelId AddChannel(const char* name, std::int64_t from, std::int64_t to);
  void Push(const char* name, ChannelId channel, const BufferRef& buffer);
  void Pull(const char* name, ChannelId channel, const BufferRef& buffer);

  Role& role_;
  const BlockWriter& blocks_;
  StreamId send_, receive_;
  ChannelId activations_in_, activations_out_, gradients_in_, gradients_out_;
};

}  // namespace tidemark

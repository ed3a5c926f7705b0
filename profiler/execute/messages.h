// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "kernels/tensor.h"
#include "models/job/job.h"
#include "profiler/execute/model.h"
#include "profiler/execute/operation.h"
#include "sim/program/program.h"

namespace tidemark {

/// A message between pipeline stages: its operation ("send activation") without the stage, and the buffer that is sent
/// or written.
struct MessageContext {
  const Job& job;
  const Model& model;
  std::string_view name;
  const Buffer& buffer;
  std::int64_t index = 0;  ///< of the buffer, by its first coordinate
  bool exact = false;
};

/// What a message holds, as both ends know it without asking each other: activations and their gradients are the
/// residual stream as embedding and layers make it, [tokens, hidden] or this rank's rows of it; gradients of weights
/// are StateType. Refuses others.
Result<kernels::TensorType> MessageType(const MessageContext& context);

/// Refuses to send more numbers at once than MPI counts in an int.
Status CheckSendable(std::string_view name, const kernels::TensorType& type);

/// Tells the channels between two ranks apart: the number of a channel among those with its ends, by name. Both ends
/// say the same.
std::int64_t TagOf(const Program& program, ChannelId channel);

/// What only pipelines do: sums of gradients that two ranks hold, gradients that a backward pass in two parts has put
/// aside. Nothing: the operation is no such thing.
std::optional<Result<Operation>> BindPipeline(const OperationContext& context);

}  // namespace tidemark

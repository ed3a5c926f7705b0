// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/bytes_cuda.h"
#include "profiler/capture/heap.h"
#include "profiler/execute/loss_chunk.h"
#include "profiler/execute/messages.h"
#include "sim/program/layers.h"
#include "sim/program/walk.h"

namespace tidemark {

DType Stored(DType dtype, bool exact) {
  const bool floating = dtype == DType::bf16 || dtype == DType::fp16 || dtype == DType::fp32;
  return exact && floating ? DType::fp64 : dtype;
}

std::shared_ptr<const Contents> SaidContents(const Model& model, const Operand& operand) {
  TIDEMARK_CHECK(operand.table != nullptr);
  return operand.table->Of(model, *operand.buffer, operand.index);
}

std::shared_ptr<const Contents> ContentsOf(const Model& model, const Operand& operand) {
  return operand.packed ? operand.packed : SaidContents(model, operand);
}

bool OperationContext::Adds(std::size_t i) const {
  for (const Operand& read : reads) {
    if (read.ref == writes[i].ref) {
      return true;
    }
  }
  return false;
}

RenamedTensor::RenamedTensor(const kernels::ConstTensor& tensor, LentRooms& rooms, std::uint32_t stream,
                             const Queue& queue)
    : type_(tensor.type) {
  const HeapScope scope(HeapOwner::executor);  // the real system has no such copy, and no kernel asked for it
  const Bytes bytes = SizeOf(type_.dtype) * type_.elements;
  room_ = rooms.Lend(bytes, stream);
  kernels::MoveBytes(queue, tensor.data, room_->data(), bytes);
}

Result<std::shared_ptr<const Contents>> KnownContents(const OperationContext& c, const Operand& operand) {
  if (auto contents = ContentsOf(c.model, operand)) {
    return contents;
  }
  return NotExecuted(fmt::format("'{}', whose numbers in '{}' have no known place", c.name, operand.buffer->name));
}

Result<std::vector<kernels::TensorType>> StateTypes(const OperationContext& c) {
  std::vector<kernels::TensorType> types;
  for (const Operand& write : c.writes) {
    TIDEMARK_ASSIGN(const auto contents, KnownContents(c, write));
    const kernels::TensorType type = StateType(c.job, *write.buffer, *contents);
    types.push_back({c.Stored(type.dtype), type.elements});
  }
  return types;
}

Contents UpdatedPart(const Model& model, Contents gradient, std::span<const Operand> writes) {
  if (writes.empty()) {
    return gradient;
  }
  std::vector<std::shared_ptr<const Contents>> states, weights;
  for (const Operand& write : writes) {
    if (auto contents = SaidContents(model, write)) {
      (write.buffer->category == Category::optimizer ? states : weights).push_back(std::move(contents));
    }
  }
  // A rank's part may be empty: its state has a stretch of the parameter all the same, without a number.
  const auto has = [](const Contents& contents, const Stretch& wanted) {
    return std::any_of(contents.stretches.begin(), contents.stretches.end(), [&](const Stretch& stretch) {
      return stretch.weight.name == wanted.weight.name && stretch.block == wanted.block;
    });
  };
  std::vector<Stretch> updated;
  for (const Stretch& stretch : gradient.stretches) {
    const bool has_state =
        std::any_of(states.begin(), states.end(), [&](const auto& one) { return has(*one, stretch); });
    Contents part;
    bool known = false;
    part.stretches = {stretch};
    for (const auto& written : has_state ? states : weights) {
      if (has(*written, stretch)) {
        known = true;
        std::vector<Stretch> narrowed;
        for (const Shared& shared : SharedBy(part, *written)) {
          narrowed.push_back(shared.stretch);
        }
        part.stretches = std::move(narrowed);
      }
    }
    if (known) {
      updated.insert(updated.end(), part.stretches.begin(), part.stretches.end());
    }
  }
  gradient.stretches = std::move(updated);
  return gradient;
}

Result<Operation> Bind(const OperationContext& context) {
  if (!KnowsChunk(context)) {
    return NotExecuted(
        fmt::format("'{}' of more than three chunks of a loss without their loop (loss_chunk_tokens)", context.name));
  }
  // What is done again is the same row of the tables, with other tensors.
  constexpr std::string_view kAgain = "_recomputed";
  std::string_view action = context.name;
  if (action.ends_with(kAgain)) {
    action.remove_suffix(kAgain.size());
  }
  if (const Calculate* row = context.model.ActionOf(action, ChunkOf(context).suffix)) {
    return BindNetworkOperation(context, *row);
  }
  if (std::optional<Result<Operation>> pipeline = BindPipeline(context)) {
    return std::move(*pipeline);
  }
  if (std::optional<Result<Operation>> cache = BindCache(context)) {
    return std::move(*cache);
  }
  if (std::optional<Result<Operation>> clip = BindClip(context)) {
    return std::move(*clip);
  }
  if (std::optional<Result<Operation>> denominator = BindDenominator(context)) {
    return std::move(*denominator);
  }
  return BindStateOperation(context);
}

std::int64_t BlockOf(const Program& program, const Compute& leaf, const Model& model,
                     std::span<const std::int64_t> loops) {
  if (const auto layer = LayerOf(program, leaf, loops)) {
    return *layer;
  }
  return model.FirstOf(program.names[leaf.name.index]) +
         (leaf.writes.empty() ? 0 : Resolve(leaf.writes.front().index[1], loops));
}

Error NotExecuted(std::string_view what) {
  return {ErrorCode::machine_cannot, "", fmt::format("the executor has no arithmetic for {} yet", what),
          "tidemark predict prices this job; docs/run.md (\"What runs\") says what run executes so far"};
}

}  // namespace tidemark

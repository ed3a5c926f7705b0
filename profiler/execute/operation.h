// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/pointwise_cuda.h"
#include "kernels/tensor.h"
#include "models/job/job.h"
#include "profiler/device/device.h"
#include "profiler/device/lent_rooms.h"
#include "profiler/execute/contents.h"
#include "profiler/execute/expert_choices.h"
#include "profiler/execute/expert_counts.h"
#include "profiler/execute/model.h"
#include "profiler/execute/normed_tensors.h"
#include "profiler/execute/sequence_share.h"
#include "sim/program/program.h"

namespace tidemark {

namespace on = kernels::on;  // operators, by the queue that they are put into
using kernels::Queue;

/// A buffer that an operation names.
struct Operand {
  kernels::Tensor tensor;  ///< without data where only types are asked for; no elements yet where nothing has written
  const Buffer* buffer = nullptr;
  std::int64_t index = 0;  ///< which of the family's, by its first coordinate
  BufferRef ref;
  /// What operations have put into it, where the buffer itself does not say.
  std::shared_ptr<const Contents> packed{};
  ContentsTable* table = nullptr;  ///< of the program's buffers
};

/// What the buffer says that it holds; nullptr: it does not say.
std::shared_ptr<const Contents> SaidContents(const Model& model, const Operand& operand);
/// The same, or what was put into it.
std::shared_ptr<const Contents> ContentsOf(const Model& model, const Operand& operand);

/// How a dtype is stored: floating ones as fp64 where the run is exact.
DType Stored(DType dtype, bool exact);

/// The labels of one microbatch whose sequences are of different lengths.
struct CountedLabels {
  std::vector<std::int64_t> labels;  ///< row by row; negative: counts nothing
  /// What the sum over its tokens is divided by: their number, or the mean number of all microbatches that the
  /// strategy's loss is one mean of (LossScale).
  double divisor = 0;
  kernels::ConstTensor tensor{};  ///< the labels on the device, by then
};

/// A tensor whose buffer goes under its old name before it comes under its new one, in place as real kernels do. The
/// memory here is given out anew in between, so that its numbers wait outside of it.
class RenamedTensor {
 public:
  RenamedTensor() = default;
  /// `stream` is that of the queue.
  RenamedTensor(const kernels::ConstTensor& tensor, LentRooms& rooms, std::uint32_t stream, const Queue& queue);
  kernels::ConstTensor tensor() const { return {type_, room_->data()}; }

 private:
  kernels::TensorType type_;
  std::shared_ptr<DeviceRoom> room_;
};

/// What surrounds one operation.
struct OperationContext {
  const Job& job;
  const Model& model;
  const NormedTensors& normed;
  std::string_view name;  ///< "layer.wq.forward", "gradient to bucket", whatever the stage
  const Operator& op;
  double scale = 1;                       ///< Compute::scale
  double loss_scale = 1;                  ///< that of the operation that began this backward pass
  const CountedLabels* labels = nullptr;  ///< of a loss; none: all count
  RenamedTensor* renamed = nullptr;       ///< of the operation before this one and for the next
  LentRooms* rooms = nullptr;             ///< for it; none where only types are asked for
  Device* device = nullptr;               ///< none where only types are asked for
  std::uint32_t stream = 0;               ///< of the device, whose queue the operation gets
  std::span<const Operand> reads, writes;
  bool exact = false;             ///< every floating dtype is fp64
  bool own_part = false;          ///< Compute::own_part
  std::int64_t update = 1;        ///< which update of the training this one is, from 1
  std::uint64_t seed = 0;         ///< of this operation's random numbers in this step, the same for all samples
  std::int64_t first_sample = 0;  ///< of the training, in this microbatch
  SequenceShare share{};          ///< of each sample
  std::int64_t block = 0;         ///< which of equal blocks, of an operation of the network
  const ExpertChoices* choices = nullptr;  ///< that a router follows; none: it chooses itself
  ExpertChoices* kept_choices = nullptr;   ///< where it says what it has chosen; none: nowhere
  ExpertCounts* expert_counts = nullptr;   ///< none where only types are asked for
  std::optional<std::int64_t> turn{};      ///< TurnOf

  DType Stored(DType dtype) const { return tidemark::Stored(dtype, exact); }
  /// Whether write number `i` adds to what is there: it is read as well.
  bool Adds(std::size_t i) const;
  kernels::ConstTensor Read(std::size_t i) const { return reads[i].tensor; }
};

/// ContentsOf, of an operand whose numbers must have a known place.
Result<std::shared_ptr<const Contents>> KnownContents(const OperationContext& context, const Operand& operand);
/// Types of all writes, as the job has them (StateType).
Result<std::vector<kernels::TensorType>> StateTypes(const OperationContext& context);

/// What of a gradient all that an update writes has: this rank's part of it where the state is of that only.
Contents UpdatedPart(const Model& model, Contents gradient, std::span<const Operand> writes);

/// What an operation makes, as its kernel declares it, and the kernel. `run` gets one tensor per write, and puts its
/// work into a queue.
struct Operation {
  std::vector<kernels::TensorType> outputs;
  std::function<void(std::span<const kernels::Tensor> writes, const Queue& queue)> run;
  std::shared_ptr<const Contents> packed{};  ///< what the first write holds from now on (Operand::packed)
};

/// An operation of the network's tables: `row` is its row.
Result<Operation> BindNetworkOperation(const OperationContext& context, const Calculate& row);
/// The passes of a loss (models/network/loss_table.h).
Result<Operation> BindLoss(const OperationContext& context, std::string_view action);
/// What a dual encoder has beyond its towers: pooling, representations and the contrastive loss over them.
Result<Operation> BindContrastive(const OperationContext& context, std::string_view action);
/// What GradCache does with cached representations between its passes; nothing: the operation is no part of it.
std::optional<Result<Operation>> BindCache(const OperationContext& context);
/// What a system does with weights, gradients and optimizer state: copies, sums, zeros, updates.
Result<Operation> BindStateOperation(const OperationContext& context);
/// Its optimizer's update of weights or masters, or of moments alone, or of what has changed moments already.
Result<Operation> BindUpdate(const OperationContext& context);
inline constexpr std::string_view kApplyUpdate = "apply update";
/// What AdamW divides by, where that is a tensor of its own; nothing: the operation is no part of it.
std::optional<Result<Operation>> BindDenominator(const OperationContext& context);
/// Clipping by the norm of all gradients; nothing: the operation is no part of it.
std::optional<Result<Operation>> BindClip(const OperationContext& context);
/// Any of these.
Result<Operation> Bind(const OperationContext& context);

/// "no kernel for ...", with exit code 3.
Error NotExecuted(std::string_view what);

/// OperationContext::block of an operation: the layer that its block's own tensors tell, as what it writes may be
/// counted through blocks of all kinds; of one that is no block's, what it writes.
std::int64_t BlockOf(const Program& program, const Compute& leaf, const Model& model,
                     std::span<const std::int64_t> loops);

}  // namespace tidemark

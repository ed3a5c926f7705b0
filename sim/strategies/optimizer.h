// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/lower/fold_alike.h"
#include "sim/strategies/gradient_clip.h"
#include "sim/strategies/part_table.h"
#include "sim/strategies/update_kernels.h"

namespace tidemark {

/// The updates of one optimizer step, block by block.
struct Updates {
  /// Those of one block, by slot; it may have none.
  std::function<std::vector<TensorUpdate>(std::int64_t position)> at;
  /// What `at` depends on beside the block's own shape.
  BlockKey key = [](std::int64_t) { return std::vector<std::int64_t>(); };
  BlockOrder order = BlockOrder::first_to_last;
  bool host_reads_norm = false;  ///< before gradients are clipped
};

/// Elements of each tensor of a block, in the order in which the optimizer is given them.
using TensorSizes = std::vector<std::int64_t>;
/// Of what a rank updates of each trained parameter of a block: the whole parameter.
TensorSizes TrainedSizes(const Role& role, std::int64_t position);

/// The optimizer's state per block, and its step. AdamW keeps two moments per element, SGD with momentum one, SGD none.
/// Each tensor has moments of its own, each of them in memory of its own (torch.optim: exp_avg, exp_avg_sq). They are
/// one buffer per block where other operations than a fused kernel read them.
/// The state is made lazily: the first step makes that of all blocks before the first update, and it is there ever
/// after, also for the updates of later windows of that step (torch.optim: _init_group).
///
/// The kernels are those of optimizer_step.kernel (UpdateKernels). `fused` updates a block with one. `foreach` keeps
/// the second moments' roots of everything that it updates at once. The for-loop takes tensor after tensor: one needs
/// its root and the quotient beside it, while the denominator of the one before is still bound to the loop's variable.
class OptimizerState {
 public:
  /// What sizes are of.
  enum class Tensors : std::uint8_t {
    parameters,  ///< those that a block trains, in order, or a rank's part of each
    flat,        ///< tensors that several parameters lie in, or a part of one
    joined       ///< pieces of one tensor, which is all that one Step updates, whichever blocks they are of
  };
  using SizesAt = std::function<TensorSizes(std::int64_t position)>;
  /// What a block has beside others: with a name as in PartTable.
  struct Slot {
    std::string name;
    std::vector<TensorSizes> sizes;  ///< by position
    PartTable::HoldsAt holds{};      ///< nothing: what the block trains, whole
    Tensors tensors = Tensors::flat;
  };

  /// One state per block.
  /// `gradients`: where those lie that are to be clipped.
  void Declare(Role& role, const SizesAt& sizes, Tensors tensors = Tensors::parameters,
               const PartTable::HoldsAt& holds = {}, Place gradients = Place::device);
  /// For blocks with several states.
  void Declare(Role& role, const std::vector<Slot>& slots, Place gradients = Place::device);
  /// As PartTable::FamilyOf.
  std::int64_t FamilyOf(std::size_t slot, std::int64_t position) const {
    return states_[slot].front().FamilyOf(position);
  }

  /// Clips the gradients, then updates with them.
  void Step(Role& role, const Updates& updates);
  /// One update by itself, of a gradient that has just been made, on the stream that made it; of jobs with
  /// optimizer_step.in_backward, whose step has one microbatch and whose kernel is one.
  void UpdateInBackward(Role& role, std::int64_t position, TensorUpdate update, StreamId stream);
  /// Of what takes the norm of more than a Step's gradients, a system or a rank with several chunks: those that it has
  /// before. ForgetNorm ends what the norm is for (of chunks their Step does); both do nothing in jobs that do not
  /// clip.
  void MeasureNorm(Role& role, const Updates& updates);
  void ForgetNorm() { clip_->Forget(); }
  /// For gradients that leave the device before the step.
  GradientClip& clip() { return *clip_; }

 private:
  /// One that the for-loop takes: the `index`th of a slot's tensors.
  struct Tensor {
    std::int64_t position = 0;
    std::size_t slot = 0, index = 0;
  };

  bool TakesOneByOne(const Job& job) const;
  void DeclareStates(Role& role, const Slot& slot, std::vector<PartTable>& states);
  void DeclareTemporaries(Role& role, const std::vector<Slot>& slots);
  EachPiece Pieces(Role& role, const Updates& updates) const;
  UpdatePiece PieceOf(const Role& role, std::int64_t position, TensorUpdate update) const;
  void MakeStates(const Role& role, const EachPiece& each, const UpdateKernels& write);
  void UpdateOneByOne(Role& role, const Updates& updates);
  void UpdateTensor(Role& role, const UpdatePiece& piece, const Tensor& tensor,
                    const std::optional<Tensor>& before) const;
  BufferRef DenominatorOf(const Role& role, const Tensor& tensor) const {
    return denominators_[tensor.slot][tensor.index](role, tensor.position);
  }
  std::vector<std::optional<Tensor>> TensorsBefore(BlockOrder order) const;

  std::vector<std::vector<PartTable>> states_;                ///< by slot; tensor after tensor, of each its moments
  std::vector<std::vector<PartTable>> roots_, denominators_;  ///< by slot and tensor
  std::vector<std::vector<TensorSizes>> sizes_;               ///< by slot and position
  std::optional<GradientClip> clip_;
  std::int64_t moments_ = 0;
  bool joined_ = false;
  std::set<std::pair<std::size_t, std::int64_t>> made_;  ///< slots and positions whose state the first step has made
};

}  // namespace tidemark

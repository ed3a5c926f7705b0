// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/strategies/optimizer.h"
#include "sim/strategies/parameter_table.h"

namespace tidemark {

/// Updates of single parameters in the backward pass (optimizer_step.in_backward): each has an optimizer of its own,
/// which a hook behind the accumulation of its gradient steps (Tensor.register_post_accumulate_grad_hook). Autograd
/// accumulates when the operation's backward node has returned, and with it the gradient of the operation's input:
/// nobody reads the weight any more in this pass. Blocks are whole: such a job has no pipeline, whose schedules may
/// split them.
class BackwardUpdates {
 public:
  explicit BackwardUpdates(const Role& role) : role_(role) {}

  /// The moments of each parameter, by its number in its block.
  std::vector<OptimizerState::Slot> Slots() const;

  /// A gradient is complete.
  void Add(const ParameterAt& at) { complete_.push_back(at); }
  /// Takes those whose weights no later action of the block reads, in the order in which they came: behind the block's
  /// last action all of them. `position` and `action` as in DataParallel::AfterAction.
  std::vector<ParameterAt> TakeUnread(std::int64_t position, std::size_t action);

 private:
  std::vector<Holding> HoldsParameter(std::int64_t position, std::size_t parameter) const;
  bool IsReadAfter(const ParameterAt& at, std::size_t action) const;

  const Role& role_;
  std::vector<ParameterAt> complete_;
};

}  // namespace tidemark

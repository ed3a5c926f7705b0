// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/quantity.h"
#include "sim/program/program.h"

namespace tidemark {

/// Buffers that stay allocated after their last use in a step, while other work is issued: memory that nobody needs any
/// more. An execution frees where the program says, so that it cannot find a free that comes too late.
///
/// What counts as other work: of a tensor of the model (activations, logits, ids), operations that touch such tensors.
/// A node of autograd's graph holds its tensors until its gradients have been handed on, so kernels that only take
/// gradients do not count. Of gradients, buckets, parameters and optimizer state, every kernel and every exchange.
/// What is alive when the step ends is not looked at.
struct IdleBuffers {
  std::vector<BufferId> families;  ///< in their order
  std::int64_t buffers = 0;        ///< how many times one of them was idle
  Bytes most;                      ///< idle at once
  std::int64_t operations = 0;     ///< issued between the last use and the free, at most
  std::string last_used_by;        ///< the operation, of the first that was idle
  Phase freed_in = Phase::load;
};

/// Families with equal numbers are told as one.
using IdleGroups = std::function<std::size_t(BufferId family)>;

/// Of one role, in the order of the groups; without `groups` each family by itself. The program must be well-formed.
/// Cost: the unrolled program.
std::vector<IdleBuffers> FindIdle(const Program& program, const IdleGroups& groups = {});

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/strategies/idle_claims.h"
#include "sim/strategies/parameter_table.h"

namespace tidemark {

/// What a compiled training step takes and returns: parameters and the optimizer's state. Both exist before the first
/// step (optimizer.init), so first and steady steps are alike.
///
/// With `buffers.donate` outputs take the place of inputs. Without, there are two of each from the launch of the
/// executable that returns the state to its end, when the inputs go. Which of the two goes makes no difference to
/// bytes: here it is the second one, so that a step ends with the buffers that the next one begins with. With
/// `shard.optimizer` each rank keeps the moments of its part of every block and updates that part.
class TrainState {
 public:
  explicit TrainState(Role& role);

  BufferRef Weight(const ParameterAt& at) const;

  /// Around an executable that returns the state; both do nothing where inputs are donated.
  void BeginReturning();
  void EndReturning();

  /// One fused update per block. With `updates` it writes them instead of the parameters.
  void Update(std::int64_t position, const std::vector<BufferRef>& gradients,
              const std::vector<BufferRef>& updates = {});
  /// The same kernel in a step whose result is thrown away: it writes back what was there.
  void MaskedUpdate(std::int64_t position, const std::vector<BufferRef>& gradients);

 private:
  /// The moments of a block, if the optimizer has any.
  std::vector<BufferRef> StateOf(std::int64_t position, const RunBuffers& moments) const;
  std::vector<BufferRef> SecondOnesOf(std::int64_t position) const;
  Bytes TrafficOf(std::int64_t elements, const std::vector<BufferRef>& gradients) const;

  Role& role_;
  bool donates_;
  std::int64_t moments_;
  ParameterTable weights_, second_weights_;
  RunBuffers state_, second_state_;
};

/// What stays without `buffers.donate`.
IdleClaim KeepsInputs();

/// The host starts a compiled program. It costs what issuing one operation costs (`host_issue` of the machine): a
/// kernel without work, which takes no device time.
void Launch(Role& role, std::string_view executable);

}  // namespace tidemark

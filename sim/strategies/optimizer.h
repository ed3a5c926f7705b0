// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "sim/lower/role.h"

namespace tidemark {

/// Numbers that an optimizer keeps per element.
std::int64_t MomentsOf(OptimizerKind kind);
/// Multiply-adds of one element: AdamW's two moments, bias corrections, root and quotient; SGD's one or two.
std::int64_t UpdateFlopsPerElement(OptimizerKind kind);

/// The optimizer's state per block and its fused update. AdamW keeps two moments per element, SGD with momentum one,
/// SGD none. The state is made lazily: in the first step it appears with the first update and is there ever after, also
/// for the updates of later windows of that step.
class OptimizerState {
 public:
  /// `elements` per run: what one rank updates of one block.
  void Declare(Role& role, const std::vector<std::int64_t>& elements);
  /// One fused kernel: reads `gradient`, reads and writes the state and `updated`. `moved_per_element` counts the bytes
  /// of all but the state.
  void Update(Role& role, std::int64_t position, std::int64_t elements, const std::vector<BufferRef>& gradients,
              const std::vector<BufferRef>& updated, Bytes moved_per_element);

 private:
  RunBuffers state_;
  std::int64_t moments_ = 0;
  std::set<std::int64_t> made_;  ///< positions whose state the first step has made
};

}  // namespace tidemark

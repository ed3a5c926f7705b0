// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "sim/lower/role.h"
#include "sim/strategies/part_table.h"

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
  /// `elements` by position; `name` as in PartTable. For parts of which a block has several, or that differ in size.
  void Declare(Role& role, const std::string& name, const std::vector<std::int64_t>& elements);
  /// As PartTable::FamilyOf.
  std::int64_t FamilyOf(std::int64_t position) const { return state_.FamilyOf(position); }
  /// One fused kernel: reads `gradient`, reads and writes the state and `updated`. `moved_per_element` counts the bytes
  /// of all but the state. `own_part`: as Compute::own_part, for gradients of which the rest was not reduced.
  void Update(Role& role, std::int64_t position, std::int64_t elements, const std::vector<BufferRef>& gradients,
              const std::vector<BufferRef>& updated, Bytes moved_per_element, bool own_part = false);

 private:
  PartTable state_;
  std::int64_t moments_ = 0;
  std::set<std::int64_t> made_;  ///< positions whose state the first step has made
};

}  // namespace tidemark

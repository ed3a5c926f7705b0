// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sim/lower/role.h"

namespace tidemark {

/// One buffer per block of a stage, where blocks of a run may differ in size: a family per stretch of neighbours of one
/// run that are equally large. A block of no elements has none.
class PartTable {
 public:
  /// What the block's buffer holds (program.h), where its family starts there.
  using HoldsAt = std::function<std::vector<Holding>(std::int64_t position)>;
  /// What follows the name of a run's block; nothing: its name alone.
  using PartOf = std::function<std::string(const Block& block)>;

  /// `elements` by position. Names are "<what> <block>", with the position within its run where that has several
  /// families.
  void Declare(Role& role, const std::string& what, Category category, DType dtype,
               const std::vector<std::int64_t>& elements, bool resident, bool kept, Place place = Place::device,
               const HoldsAt& holds = {}, const PartOf& part = {});

  bool Has(std::int64_t position) const { return FamilyOf(position) >= 0; }
  BufferRef operator()(const Role& role, std::int64_t position) const;
  /// Equal for blocks of one family and for no others: loops over blocks that refer to this table end where it changes.
  std::int64_t FamilyOf(std::int64_t position) const { return family_of_[static_cast<std::size_t>(position)]; }

 private:
  struct Family {
    BufferId buffer;
    std::int64_t base = 0, count = 1;  ///< positions [base, base + count)
  };

  std::vector<Family> families_;
  std::vector<std::int64_t> family_of_;  ///< by position; -1: no elements
};

/// The elements of each run's blocks, by position.
std::vector<std::int64_t> ByPosition(const Role& role, const std::vector<std::int64_t>& by_run);

}  // namespace tidemark

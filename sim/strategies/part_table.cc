// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/part_table.h"

#include <fmt/format.h>

#include "sim/strategies/host_optimizer.h"

namespace tidemark {
namespace {

/// Whether a block's buffer can be the family's, whose first holds `first` and is `blocks` before it.
bool HoldsAlike(std::vector<Holding> first, const std::vector<Holding>& holds, std::int64_t blocks) {
  if (first == holds) {
    return true;  // both relative to their block
  }
  for (Holding& holding : first) {
    for (HeldRun& run : holding.of) {
      run.first += blocks;
    }
  }
  return first == holds;
}

}  // namespace

void PartTable::Declare(Role& role, const std::string& what, Category category, DType dtype,
                        const std::vector<std::int64_t>& elements, bool resident, bool kept, Place place,
                        const HoldsAt& holds, const PartOf& part) {
  TIDEMARK_CHECK(static_cast<std::int64_t>(elements.size()) == role.stage.blocks);
  const auto size = [&](std::int64_t position) { return elements[static_cast<std::size_t>(position)]; };
  for (std::size_t run = 0; run < role.stage.runs.size(); ++run) {
    const std::int64_t first = role.stage.first[run], count = role.stage.runs[run].count;
    for (std::int64_t base = first, end = first; base < first + count; base = end) {
      const bool says = holds && size(base) > 0;
      const std::vector<Holding> held = says ? holds(base) : std::vector<Holding>();
      const auto belongs = [&](std::int64_t position) {
        return size(position) == size(base) && (!says || HoldsAlike(held, holds(position), position - base));
      };
      while (end < first + count && belongs(end)) {
        ++end;
      }
      const bool whole_run = end - base == count;
      family_of_.resize(static_cast<std::size_t>(end),
                        size(base) == 0 ? -1 : static_cast<std::int64_t>(families_.size()));
      if (size(base) > 0) {
        const Block& block = role.stage.runs[run].block();
        const std::string name = fmt::format("{} {}{}", what, block.name, part ? part(block) : std::string());
        families_.push_back({role.builder.AddBuffer({whole_run ? name : fmt::format("{} {}", name, base - first),
                                                     category,
                                                     dtype,
                                                     size(base),
                                                     {end - base, 1},
                                                     place == Place::host ? kHostStream : role.compute,
                                                     place,
                                                     resident,
                                                     kept,
                                                     {},
                                                     held}),
                             base, end - base});
      }
    }
  }
}

BufferRef PartTable::operator()(const Role& role, std::int64_t position) const {
  TIDEMARK_CHECK(Has(position));
  const Family& family = families_[static_cast<std::size_t>(FamilyOf(position))];
  if (family.count == 1) {
    return {family.buffer, {}};
  }
  const bool looping = role.current() >= 0 && role.stage.RunOf(role.current()) == role.stage.RunOf(position);
  const Index index = looping ? role.AtStage(position, family.base) : Index{LoopId{}, position - family.base, 0};
  return {family.buffer, {index, Index{}}};
}

std::vector<std::int64_t> ByPosition(const Role& role, const std::vector<std::int64_t>& by_run) {
  std::vector<std::int64_t> elements;
  for (std::size_t run = 0; run < role.stage.runs.size(); ++run) {
    elements.insert(elements.end(), static_cast<std::size_t>(role.stage.runs[run].count), by_run[run]);
  }
  return elements;
}

}  // namespace tidemark

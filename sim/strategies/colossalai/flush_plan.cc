// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/colossalai/flush_plan.h"

#include <algorithm>

namespace tidemark {

FlushPlan::FlushPlan(const Role& role, const FlushMembers& order, const Counted& counted, const Counted& compared,
                     std::int64_t limit)
    : role_(role) {
  FlushMembers pending;
  std::int64_t held = 0;
  for (const ParameterAt& at : order) {
    const Parameter& parameter = ParameterOf(role, at);
    if (held > 0 && held + compared(parameter) > limit) {
      Enter(std::exchange(pending, {}), counted);
      held = 0;
    }
    pending.push_back(at);
    held += counted(parameter);
  }
  if (!pending.empty()) {
    Enter(pending, counted);
  }
}

/// The members relative to the last one; those of other runs as they are.
std::vector<std::int64_t> FlushPlan::MakeUp(const FlushMembers& members) const {
  const std::int64_t anchor = members.back().position;
  std::vector<std::int64_t> make_up{static_cast<std::int64_t>(role_.stage.RunOf(anchor))};
  for (const ParameterAt& member : members) {
    make_up.push_back(role_.KeyOf(member.position, anchor));
    make_up.push_back(member.parameter);
  }
  return make_up;
}

void FlushPlan::Enter(const FlushMembers& members, const Counted& counted) {
  const auto [found, added] = by_make_up_.try_emplace(MakeUp(members), shapes_.size());
  if (added) {
    const std::int64_t anchor = members.back().position;
    Shape shape{0, role_.stage.RunOf(anchor), {}};
    for (const ParameterAt& member : members) {
      const Parameter& parameter = ParameterOf(role_, member);
      shape.elements += counted(parameter);
      shape.members.push_back({role_.stage.BlockAt(member.position).name + "." + parameter.name,
                               role_.InRun(member.position) - role_.InRun(anchor)});
    }
    shapes_.push_back(shape);
  }
  for (const ParameterAt& member : members) {
    of_parameter_[{member.position, member.parameter}] = {found->second, members.back()};
  }
  flushes_.push_back(members);
}

FlushPlace FlushPlan::PlaceOf(const FlushMembers& members) const {
  const auto found = by_make_up_.find(MakeUp(members));
  TIDEMARK_CHECK(found != by_make_up_.end());
  return {found->second, members.back()};
}

std::optional<FlushPlace> FlushPlan::FlushOf(const ParameterAt& at) const {
  const auto found = of_parameter_.find({at.position, at.parameter});
  return found == of_parameter_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<FlushPlace> FlushPlan::FlushesOf(std::int64_t position) const {
  std::vector<FlushPlace> places;
  ForEachTrained(role_, position, [&](const ParameterAt& at) {
    const std::optional<FlushPlace> place = FlushOf(at);
    if (place && std::find(places.begin(), places.end(), *place) == places.end()) {
      places.push_back(*place);
    }
  });
  return places;
}

std::vector<FlushMembers> FlushPlan::FlushesThatEndIn(std::int64_t position) const {
  std::vector<FlushMembers> ending;
  std::copy_if(flushes_.begin(), flushes_.end(), std::back_inserter(ending),
               [&](const FlushMembers& members) { return members.back().position == position; });
  return ending;
}

void FlushPlan::AppendKey(const FlushPlace& place, std::int64_t position, std::vector<std::int64_t>& key) const {
  key.push_back(static_cast<std::int64_t>(place.shape));
  key.push_back(role_.KeyOf(place.anchor.position, position));
}

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/ddp/backward_updates.h"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "base/check.h"
#include "sim/lower/lifetime.h"

namespace tidemark {

std::vector<OptimizerState::Slot> BackwardUpdates::Slots() const {
  std::vector<OptimizerState::Slot> slots;
  for (std::int64_t position = 0; position < role_.stage.blocks; ++position) {
    ForEachTrained(role_, position, [&](const ParameterAt& at) {
      while (slots.size() <= at.parameter) {
        const std::size_t parameter = slots.size();
        slots.push_back({fmt::format("moments of parameter {} of", parameter),
                         std::vector<TensorSizes>(static_cast<std::size_t>(role_.stage.blocks)),
                         [this, parameter](std::int64_t of) { return HoldsParameter(of, parameter); }});
      }
      slots[at.parameter].sizes[static_cast<std::size_t>(position)] = {ParameterOf(role_, at).elements};
    });
  }
  return slots;
}

std::vector<Holding> BackwardUpdates::HoldsParameter(std::int64_t position, std::size_t parameter) const {
  const Block& block = role_.stage.BlockAt(position);
  return {{.of = {{block.name + "." + block.parameters[parameter].name, role_.InRun(position)}}}};
}

std::vector<ParameterAt> BackwardUpdates::TakeUnread(std::int64_t position, std::size_t action) {
  std::vector<ParameterAt> unread, read;
  for (const ParameterAt& at : complete_) {
    TIDEMARK_CHECK(at.position == position);
    (IsReadAfter(at, action) ? read : unread).push_back(at);
  }
  complete_ = std::move(read);
  return unread;
}

bool BackwardUpdates::IsReadAfter(const ParameterAt& at, std::size_t action) const {
  const Block& block = role_.stage.BlockAt(at.position);
  for (std::size_t later = action + 1; later < block.forward.size() + block.backward.size(); ++later) {
    const auto* calculate = std::get_if<Calculate>(&ActionAt(block, later));
    if (calculate != nullptr && std::any_of(calculate->parameters.begin(), calculate->parameters.end(),
                                            [&](ParameterId read) { return read.index == at.parameter; })) {
      return true;
    }
  }
  return false;
}

}  // namespace tidemark

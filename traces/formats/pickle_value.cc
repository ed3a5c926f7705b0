// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/pickle_value.h"

namespace tidemark {

PickleValue PickleValue::Integer(std::int64_t value) {
  PickleValue made;
  made.kind = Kind::integer;
  made.number = value;
  return made;
}

PickleValue PickleValue::Record(std::uint32_t kind, std::size_t index) {
  PickleValue made = Integer(static_cast<std::int64_t>(index));
  made.kind = Kind::record;
  made.size = kind;
  return made;
}

std::span<const PickleValue> PickleHeap::Items(PickleValue container) const {
  if (!container.is_container()) {
    return {};
  }
  const PickleValue& slot = slots_[static_cast<std::size_t>(container.number)];
  if (!slot.is_container() || slot.number < 0) {
    return {};
  }
  return bodies_[static_cast<std::size_t>(slot.number)];
}

PickleValue PickleHeap::NewContainer(PickleValue::Kind kind) {
  PickleValue value = PickleValue::Integer(static_cast<std::int64_t>(slots_.size()));
  PickleValue slot = PickleValue::Integer(-1);
  value.kind = slot.kind = kind;
  slots_.push_back(slot);
  return value;
}

std::vector<PickleValue>* PickleHeap::ItemsToAddTo(PickleValue container) {
  PickleValue& slot = slots_[static_cast<std::size_t>(container.number)];
  if (!slot.is_container()) {
    return nullptr;
  }
  if (slot.number < 0) {
    if (free_bodies_.empty()) {
      slot.number = static_cast<std::int64_t>(bodies_.size());
      bodies_.emplace_back();
    } else {
      slot.number = static_cast<std::int64_t>(free_bodies_.back());
      free_bodies_.pop_back();
    }
  }
  return &bodies_[static_cast<std::size_t>(slot.number)];
}

PickleValue PickleHeap::Resolve(PickleValue value) const {
  if (value.is_container()) {
    const PickleValue& slot = slots_[static_cast<std::size_t>(value.number)];
    return slot.is_container() ? value : slot;
  }
  return value;
}

void PickleHeap::Replace(PickleValue container, PickleValue by) {
  constexpr std::size_t kKeptItems = 64;  // most containers are small, and the next one takes the memory of this one
  PickleValue& slot = slots_[static_cast<std::size_t>(container.number)];
  if (slot.number >= 0) {
    const auto body = static_cast<std::size_t>(slot.number);
    bodies_[body].clear();
    if (bodies_[body].capacity() > kKeptItems) {
      bodies_[body].shrink_to_fit();
    }
    free_bodies_.push_back(body);
  }
  slot = by;
}

bool PickleHeap::FirstTime(PickleValue container) {
  PickleValue& slot = slots_[static_cast<std::size_t>(container.number)];
  const bool first = slot.is_container() && slot.size == 0;
  slot.size = first ? 1 : slot.size;
  return first;
}

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#include "traces/compare/history.h"

#include <unordered_map>

#include "traces/trace.h"

namespace tidemark {
namespace {

/// A family's member as one number; the map below looks at all of it through the life that it finds.
struct Member {
  std::uint32_t tensor = 0;
  std::int32_t index0 = 0, index1 = 0;
  friend bool operator==(const Member&, const Member&) = default;
};

struct MemberHash {
  std::size_t operator()(const Member& member) const {
    std::uint64_t hash = member.tensor;
    hash = hash * 0x9e3779b97f4a7c15ULL + static_cast<std::uint32_t>(member.index0);
    hash = hash * 0x9e3779b97f4a7c15ULL + static_cast<std::uint32_t>(member.index1);
    return static_cast<std::size_t>(hash ^ (hash >> 29));
  }
};

std::size_t CountResident(const Trace& trace) {
  std::size_t count = 0;
  while (count < trace.memory.size() && trace.memory[count].alloc && trace.memory[count].span == kNoSpan) {
    ++count;
  }
  return count;
}

}  // namespace

History MakeHistory(const Trace& trace, bool of_tensors) {
  History history;
  history.trace = &trace;
  history.resident = CountResident(trace);
  std::unordered_map<Member, std::uint32_t, MemberHash> alive;
  Bytes total, highest;
  for (std::size_t i = 0; i < trace.memory.size(); ++i) {
    const MemoryEvent& event = trace.memory[i];
    const Bytes bytes = trace.tensors[event.tensor.index].bytes;
    const Member member{event.tensor.index, event.index0, event.index1};
    if (event.alloc) {
      alive[member] = static_cast<std::uint32_t>(history.lives.size());
      history.life_of.push_back(alive[member]);
      history.lives.push_back({event.tensor.index, event.index0, event.index1, i, Life::kNever});
    } else {
      const auto found = alive.find(member);
      history.life_of.push_back(found->second);
      history.lives[found->second].died = i;
      alive.erase(found);
    }
    total = event.alloc ? total + bytes : total - bytes;
    history.total.push_back(of_tensors ? total : event.allocator_bytes);
    if (history.total.back() > highest) {
      highest = history.total.back();
      history.peak = static_cast<std::ptrdiff_t>(i);
    }
  }
  return history;
}

}  // namespace tidemark

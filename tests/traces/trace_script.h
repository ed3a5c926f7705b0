// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "traces/trace.h"

namespace tidemark {

/// A trace as a list of what happens, which a test writes, changes, and plays.
struct Happening {
  enum class Kind { alloc, free, begin, end } kind = Kind::alloc;
  std::string name;  ///< of a tensor or a phase
  std::int64_t bytes = 0;
  std::int32_t member = 0;  ///< of a phase: the microbatch
  Category category = Category::activation;
  DType dtype = DType::bf16;

  bool is_memory() const { return kind == Kind::alloc || kind == Kind::free; }
};

inline Happening Allocated(std::string name, std::int64_t bytes, std::int32_t member = 0,
                           Category category = Category::activation) {
  return {Happening::Kind::alloc, std::move(name), bytes, member, category, DType::bf16};
}
inline Happening Freed(std::string name, std::int32_t member = 0) {
  return {Happening::Kind::free, std::move(name), 0, member, Category::activation, DType::bf16};
}
inline Happening Begun(std::string phase, std::int32_t microbatch = -1) {
  return {Happening::Kind::begin, std::move(phase), 0, microbatch, Category::activation, DType::bf16};
}
inline Happening Ended() { return {Happening::Kind::end, "", 0, 0, Category::activation, DType::bf16}; }

/// Every happening takes 10 ns. Blocks are rounded up to `rounding` bytes; `spare` is reserved beyond the highest.
inline Trace Play(const std::vector<Happening>& script, std::int64_t rounding = 1, std::int64_t spare = 0) {
  Trace trace;
  trace.origin = "predicted";
  trace.role = "stage 0";
  std::map<std::tuple<std::string, std::int64_t, Category, DType>, std::uint32_t> tensors;
  std::map<std::pair<std::string, std::int32_t>, std::uint32_t> alive;
  std::int64_t total = 0, highest = 0;
  std::uint16_t span = kNoSpan;
  Nanos now;
  for (const Happening& happening : script) {
    now += Nanos(10);
    if (happening.kind == Happening::Kind::begin) {
      span = static_cast<std::uint16_t>(trace.spans.size());
      trace.spans.push_back({happening.name, happening.member, now, now});
    } else if (happening.kind == Happening::Kind::end) {
      trace.spans[span].end = now;
      span = kNoSpan;
    } else {
      MemoryEvent event;
      event.alloc = happening.kind == Happening::Kind::alloc;
      if (event.alloc) {
        const auto [found, is_new] =
            tensors.try_emplace({happening.name, happening.bytes, happening.category, happening.dtype},
                                static_cast<std::uint32_t>(trace.tensors.size()));
        if (is_new) {
          trace.tensors.push_back({happening.name, happening.category, happening.dtype, Bytes(happening.bytes)});
        }
        alive[{happening.name, happening.member}] = found->second;
      }
      event.tensor = TensorNameId{alive.at({happening.name, happening.member})};
      const std::int64_t bytes = trace.tensors[event.tensor.index].bytes.count();
      const std::int64_t block = (bytes + rounding - 1) / rounding * rounding;
      total += event.alloc ? block : -block;
      highest = std::max(highest, total);
      event.index0 = happening.member;
      event.issue = event.ready = now;
      event.span = span;
      event.allocator_bytes = Bytes(total);
      event.reserved_bytes = Bytes(highest + spare);
      trace.memory.push_back(event);
    }
  }
  trace.step = now;
  return trace;
}

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/profiler/capture/announced.h"
#include "traces/trace.h"

namespace tidemark {

/// Phases in the order of their beginning, each inside a step; operations inside phases, in any order (a trace has them
/// as they end); everything that begins ends.
inline void ExpectRangesOf(const Trace& trace, const std::vector<Announced>& all) {
  using Phases = std::vector<std::pair<std::string, std::int64_t>>;
  const auto is_step = [](const Announced& one) { return one.category == "step" && one.name.ends_with(" step"); };
  std::vector<std::string> steps, expected_steps;
  Phases phases, expected_phases;
  std::multiset<std::tuple<std::string, std::string, std::int64_t>> operations, expected_operations;
  std::vector<Announced> open;
  for (const Announced& one : all) {
    if (one.kind == Announced::Kind::pop) {
      ASSERT_FALSE(open.empty());
      open.pop_back();
    } else if (one.kind == Announced::Kind::push) {
      if (is_step(one)) {
        EXPECT_TRUE(open.empty());
        EXPECT_EQ(one.payload, -1);
        steps.push_back(one.name);
      } else if (one.name == one.category && open.size() == 1) {
        phases.emplace_back(one.name, one.payload);
      } else {
        ASSERT_FALSE(open.empty());
        EXPECT_EQ(one.category, open.back().category) << one.name;  // an operation's is its phase's
        EXPECT_EQ(one.payload, open.back().payload) << one.name;
        operations.emplace(one.name, open.size() > 1 ? one.category : "", one.payload);
      }
      open.push_back(one);
    }
  }
  EXPECT_TRUE(open.empty());
  for (const StepMark& step : trace.steps) {
    expected_steps.push_back(step.kind + " step");
  }
  for (const Span& span : trace.spans) {
    expected_phases.emplace_back(span.phase, span.microbatch);
  }
  for (const Slice& slice : trace.slices) {
    const bool outside = slice.span == kNoSpan;
    expected_operations.emplace(trace.strings[slice.name.index], outside ? "" : trace.spans[slice.span].phase,
                                outside ? -1 : trace.spans[slice.span].microbatch);
  }
  EXPECT_EQ(steps, expected_steps);
  EXPECT_EQ(phases, expected_phases);
  EXPECT_EQ(operations, expected_operations);
  EXPECT_FALSE(operations.empty());
}

/// Regions come, by name, and go as the trace's tensors do, and what the trace does not tell goes at the end; each lies
/// in a heap that is there.
inline void ExpectRegionsOf(const Trace& trace, const std::vector<Announced>& all) {
  using Kind = Announced::Kind;
  std::vector<std::tuple<bool, std::uint64_t, std::int64_t, std::string>> regions, expected;
  std::map<std::uint64_t, std::int64_t> heaps, live;
  for (const Announced& one : all) {
    if (one.kind == Kind::heap) {
      EXPECT_TRUE(heaps.emplace(one.address, one.bytes).second);
    } else if (one.kind == Kind::heap_gone) {
      EXPECT_EQ(heaps.erase(one.address), 1U);
    } else if (one.kind == Kind::region) {
      auto heap = heaps.upper_bound(one.address);
      ASSERT_NE(heap, heaps.begin());
      --heap;
      EXPECT_LE(one.address + static_cast<std::uint64_t>(one.bytes),
                heap->first + static_cast<std::uint64_t>(heap->second));
      EXPECT_TRUE(one.heap_base == 0 || one.heap_base == heap->first);
      EXPECT_TRUE(live.emplace(one.address, one.bytes).second);
      regions.emplace_back(true, one.address, one.bytes, "");
    } else if (one.kind == Kind::region_name) {
      ASSERT_FALSE(regions.empty());
      EXPECT_EQ(std::get<1>(regions.back()), one.address);
      std::get<3>(regions.back()) = one.name;
    } else if (one.kind == Kind::region_gone) {
      const auto gone = live.find(one.address);
      ASSERT_NE(gone, live.end());
      regions.emplace_back(false, one.address, gone->second, "");
      live.erase(gone);
    }
  }
  EXPECT_TRUE(live.empty());
  EXPECT_TRUE(heaps.empty());
  std::int64_t kept = 0;
  for (const MemoryEvent& event : trace.memory) {
    const TraceTensor& tensor = trace.tensors[event.tensor.index];
    if (tensor.bytes > Bytes(0)) {
      expected.emplace_back(event.alloc, event.address, tensor.bytes.count(), event.alloc ? tensor.name : "");
      kept += event.alloc ? 1 : -1;
    }
  }
  ASSERT_EQ(std::ssize(regions), std::ssize(expected) + kept);
  for (auto rest = regions.begin() + std::ssize(expected); rest != regions.end(); ++rest) {
    EXPECT_FALSE(std::get<0>(*rest));
  }
  regions.resize(expected.size());
  EXPECT_TRUE(regions == expected);
}

}  // namespace tidemark

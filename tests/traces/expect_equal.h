// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "traces/trace.h"

namespace tidemark {

inline void ExpectEqual(const Trace& a, const Trace& b) {
  EXPECT_EQ(a.origin, b.origin);
  EXPECT_EQ(a.clock, b.clock);
  EXPECT_EQ(a.tool_version, b.tool_version);
  EXPECT_EQ(a.title, b.title);
  EXPECT_EQ(a.job_yaml, b.job_yaml);
  EXPECT_EQ(a.allocator, b.allocator);
  EXPECT_EQ(a.role, b.role);
  EXPECT_EQ(a.ranks, b.ranks);
  EXPECT_EQ(a.device_memory, b.device_memory);
  EXPECT_EQ(a.usable_memory, b.usable_memory);
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.strings, b.strings);
  EXPECT_EQ(a.missing, b.missing);
  EXPECT_EQ(a.assumed, b.assumed);
  EXPECT_EQ(a.not_modelled, b.not_modelled);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    EXPECT_EQ(a.tensors[i].name, b.tensors[i].name);
    EXPECT_EQ(a.tensors[i].category, b.tensors[i].category);
    EXPECT_EQ(a.tensors[i].dtype, b.tensors[i].dtype);
    EXPECT_EQ(a.tensors[i].bytes, b.tensors[i].bytes);
    EXPECT_EQ(a.tensors[i].sharding, b.tensors[i].sharding);
    EXPECT_EQ(a.tensors[i].layers, b.tensors[i].layers);
  }
  ASSERT_EQ(a.streams.size(), b.streams.size());
  for (std::size_t i = 0; i < a.streams.size(); ++i) {
    EXPECT_EQ(a.streams[i].name, b.streams[i].name);
    EXPECT_EQ(a.streams[i].kind, b.streams[i].kind);
  }
  ASSERT_EQ(a.marks.size(), b.marks.size());
  for (std::size_t i = 0; i < a.marks.size(); ++i) {
    EXPECT_EQ(a.marks[i].name, b.marks[i].name);
    EXPECT_EQ(a.marks[i].events, b.marks[i].events);
  }
  ASSERT_EQ(a.spans.size(), b.spans.size());
  for (std::size_t i = 0; i < a.spans.size(); ++i) {
    EXPECT_EQ(a.spans[i].phase, b.spans[i].phase);
    EXPECT_EQ(a.spans[i].microbatch, b.spans[i].microbatch);
    EXPECT_EQ(a.spans[i].side, b.spans[i].side);
    EXPECT_EQ(a.spans[i].begin, b.spans[i].begin);
    EXPECT_EQ(a.spans[i].end, b.spans[i].end);
  }
  ASSERT_EQ(a.memory.size(), b.memory.size());
  for (std::size_t i = 0; i < a.memory.size(); ++i) {
    const MemoryEvent& left = a.memory[i];
    const MemoryEvent& right = b.memory[i];
    EXPECT_EQ(left.alloc, right.alloc);
    EXPECT_EQ(left.tensor, right.tensor);
    EXPECT_EQ(left.index0, right.index0);
    EXPECT_EQ(left.index1, right.index1);
    EXPECT_EQ(left.issue, right.issue);
    EXPECT_EQ(left.ready, right.ready);
    EXPECT_EQ(left.address, right.address);
    EXPECT_EQ(left.span, right.span);
    EXPECT_EQ(left.stream, right.stream);
    EXPECT_EQ(left.waits, right.waits);
    EXPECT_EQ(left.allocator_bytes, right.allocator_bytes);
    EXPECT_EQ(left.reserved_bytes, right.reserved_bytes);
  }
  EXPECT_EQ(a.device_low, b.device_low);
  EXPECT_EQ(a.lints, b.lints);
  EXPECT_EQ(a.device_expected, b.device_expected);
  EXPECT_EQ(a.device_high, b.device_high);
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].kind, b.steps[i].kind);
    EXPECT_EQ(a.steps[i].begin, b.steps[i].begin);
    EXPECT_EQ(a.steps[i].end, b.steps[i].end);
    EXPECT_EQ(a.steps[i].memory_begin, b.steps[i].memory_begin);
  }
  ASSERT_EQ(a.slices.size(), b.slices.size());
  for (std::size_t i = 0; i < a.slices.size(); ++i) {
    EXPECT_EQ(a.slices[i].stream, b.slices[i].stream);
    EXPECT_EQ(a.slices[i].name, b.slices[i].name);
    EXPECT_EQ(a.slices[i].start, b.slices[i].start);
    EXPECT_EQ(a.slices[i].end, b.slices[i].end);
    EXPECT_EQ(a.slices[i].span, b.slices[i].span);
  }
}

}  // namespace tidemark

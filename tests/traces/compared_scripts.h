// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/traces/trace_script.h"
#include "traces/compare/compare.h"

namespace tidemark {

/// 100 bytes stay; each of two microbatches saves 40 and has 30 for a moment. Peak: 170 in forward.
inline std::vector<Happening> TwoMicrobatches() {
  std::vector<Happening> script = {Allocated("weights", 100, 0, Category::parameter)};
  for (const std::int32_t microbatch : {0, 1}) {
    for (const Happening& happening :
         {Begun("forward", microbatch), Allocated("saved", 40), Allocated("scratch", 30), Freed("scratch"), Ended(),
          Begun("backward", microbatch), Allocated("gradient", 20, microbatch, Category::gradient), Freed("saved"),
          Ended()}) {
      script.push_back(happening);
    }
  }
  return script;
}

inline TraceComparison Compare(const Trace& predicted, const Trace& measured) {
  const Result<Comparison> comparison = CompareTraces(std::vector{predicted}, std::vector{measured});
  EXPECT_TRUE(comparison) << comparison.error().Text();
  Bytes sum;
  for (const MemoryCause& cause : comparison->Worst().memory) {
    sum += cause.at_peak;
  }
  EXPECT_EQ(sum, comparison->Worst().peak_error());
  Nanos time;
  for (const TimeCause& cause : comparison->Worst().time) {
    time += cause.error;
  }
  EXPECT_EQ(time, comparison->Worst().step_error());
  return comparison->Worst();
}

inline TraceComparison Compare(const std::vector<Happening>& predicted, const std::vector<Happening>& measured) {
  return Compare(Play(predicted), Play(measured));
}

inline std::size_t Find(const std::vector<Happening>& script, Happening::Kind kind, const std::string& name,
                        std::size_t from = 0) {
  while (script[from].kind != kind || script[from].name != name) {
    ++from;
  }
  return from;
}

}  // namespace tidemark

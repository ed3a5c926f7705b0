// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "sim/predict/predict.h"
#include "sim/strategies/strategy.h"
#include "tests/sim/oracle_job.h"
#include "tests/traces/expect_equal.h"
#include "traces/formats/format.h"

// Every strategy's first steps through every format that is written and read.

namespace tidemark {
namespace {

/// What a format keeps besides the order of allocations and frees, their bytes, what is reserved, and the steps.
struct Promise {
  bool everything = false;  ///< the trace is equal
  bool names = false;       ///< tensors' names, without their indices
  bool categories = false;
  bool roles = false;
  bool allocator = false;  ///< rounded totals
  std::int64_t nanos = 0;  ///< the finest difference between times; 0: they are not the same
};

const std::map<std::string, Promise, std::less<>> kPromises = {
    {"tidemark", {.everything = true}},
    {"chrome", {.names = true, .categories = true, .roles = true, .allocator = true, .nanos = 1}},
    {"torch-snapshot", {.names = true, .categories = true, .nanos = 1000}},  // sizes as requested, time in us
};

/// An allocation or a free as any reader sees it. Requests of no bytes are in no file of PyTorch's.
struct Seen {
  bool alloc = true;
  std::int64_t n_bytes = 0, n_reserved = 0, n_allocator = 0, issue = 0;
  std::string name;
  Category category = Category::unknown;
};

std::vector<Seen> EventsOf(const Trace& trace) {
  std::vector<Seen> events;
  for (const MemoryEvent& event : trace.memory) {
    const TraceTensor& tensor = trace.tensors[event.tensor.index];
    if (tensor.bytes > Bytes(0)) {
      events.push_back({event.alloc, tensor.bytes.count(), event.reserved_bytes.count(), event.allocator_bytes.count(),
                        event.issue.count(), tensor.name, tensor.category});
    }
  }
  return events;
}

void ExpectKept(const Trace& was, const Trace& is, const Promise& promise) {
  if (promise.everything) {
    ExpectEqual(was, is);
    return;
  }
  const std::vector<Seen> before = EventsOf(was), after = EventsOf(is);
  ASSERT_EQ(after.size(), before.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    const Seen &a = before[i], &b = after[i];
    ASSERT_EQ(std::tuple(b.alloc, b.n_bytes, b.n_reserved), std::tuple(a.alloc, a.n_bytes, a.n_reserved))
        << "event " << i << ", " << a.name;
    if (promise.allocator) {
      ASSERT_EQ(b.n_allocator, a.n_allocator) << "event " << i;
    }
    if (promise.names) {
      ASSERT_EQ(b.name, a.name) << "event " << i;
    }
    if (promise.categories) {
      ASSERT_EQ(b.category, a.category) << a.name;
    }
    if (promise.nanos > 0) {
      ASSERT_LT(std::abs(b.issue - a.issue), promise.nanos) << "event " << i;
    }
  }
  if (promise.roles) {
    EXPECT_EQ(is.role, was.role);
  }
  EXPECT_EQ(is.steps.size(), was.steps.size());
}

/// Of those that need replicas, two.
Job JobOf(const std::string& strategy) {
  Job job = OracleJob(strategy, 3);
  if (!FindStrategy(strategy)->Accept(job)) {
    job.axes.shard.replicas = 2;
  }
  return job;
}

class EveryStrategy : public testing::TestWithParam<std::string> {};

TEST_P(EveryStrategy, GoesThroughEveryFormatAndBack) {
  const Result<Prediction> prediction = Predict(
      JobOf(GetParam()), {.steps = {{StepKind::first, 1}, {StepKind::second, 1}}, .traces = true, .capacity = {}});
  ASSERT_TRUE(prediction) << prediction.error().Text();
  std::vector<Trace> traces;
  for (const RolePrediction& role : prediction->roles) {
    traces.push_back(*role.trace);
  }
  for (const auto& format : MakeTraceFormats()) {
    if (!format->reads() || !format->writes()) {
      continue;
    }
    SCOPED_TRACE(format->name());
    const auto promise = kPromises.find(format->name());
    ASSERT_NE(promise, kPromises.end()) << "say what it keeps";
    const Result<std::string> written = format->Write(traces);
    ASSERT_TRUE(written) << written.error().Text();
    const Result<TraceFile> back = ReadTraces(*written);
    ASSERT_TRUE(back) << back.error().Text();
    EXPECT_EQ(back->note, "");
    ASSERT_EQ(back->traces.size(), traces.size());
    for (std::size_t i = 0; i < traces.size(); ++i) {
      ExpectKept(traces[i], back->traces[i], promise->second);
    }
    const Result<std::string> again = format->Write(back->traces);
    ASSERT_TRUE(again) << again.error().Text();
    const Result<TraceFile> twice = ReadTraces(*again);
    ASSERT_TRUE(twice) << twice.error().Text();
    ASSERT_EQ(twice->traces.size(), traces.size());
    for (std::size_t i = 0; i < traces.size(); ++i) {  // the second time nothing more is lost
      ExpectKept(back->traces[i], twice->traces[i], promise->second);
    }
  }
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const Strategy& strategy : AllStrategies()) {
    names.emplace_back(strategy.defaults.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(RoundTrip, EveryStrategy, testing::ValuesIn(Names()), [](const auto& strategy) {
  std::string name = strategy.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#include "sim/observe/observed_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/traces/trace_script.h"

// Rows of scripted microbatches, worked out by hand. Happenings are 10 ns apart, the first at 10.

namespace tidemark::observed_network_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;

/// What a trace of another tool says: no categories, bytes of no type.
Trace Foreign(std::vector<Happening> script) {
  for (Happening& happening : script) {
    happening.category = Category::unknown;
    happening.dtype = DType::u8;
  }
  Trace trace = Play(script);
  trace.origin = "torch profiler";
  trace.role = "cpu";
  return trace;
}

ObservedNetwork Observed(const Trace& trace, const ObserveOptions& options = {}) {
  Result<ObservedNetwork> network = ObserveNetwork(trace, options);
  EXPECT_TRUE(network.ok()) << network.error().Text();
  return network.ok() ? std::move(*network) : ObservedNetwork();
}

std::string Refusal(const Trace& trace) {
  const Result<ObservedNetwork> network = ObserveNetwork(trace, {});
  return network.ok() ? "" : network.error().Text();
}

std::vector<Happening> Joined(std::vector<std::vector<Happening>> parts) {
  std::vector<Happening> all;
  for (const std::vector<Happening>& part : parts) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

/// Two blocks: a saves 100 bytes and has 80 bytes of gradients, b 200 and 400.
std::vector<Happening> TwoBlocks(std::int32_t microbatch = 0) {
  return {Begun("forward", microbatch),     Allocated("a", 100, microbatch),
          Allocated("t", 30, microbatch),   Freed("t", microbatch),
          Allocated("b", 200, microbatch),  Allocated("u", 50, microbatch),
          Freed("u", microbatch),           Ended(),
          Begun("backward", microbatch),    Allocated("d", 20, microbatch),
          Allocated("gb", 400, microbatch), Freed("b", microbatch),
          Freed("d", microbatch),           Allocated("e", 10, microbatch),
          Allocated("ga", 80, microbatch),  Freed("a", microbatch),
          Freed("e", microbatch),           Ended()};
}

TEST(ObservedNetwork, HasARowForEachGradientAndWhatIsFreedBehindIt) {
  const ObservedNetwork network = Observed(Foreign(TwoBlocks()), {.samples = 4});
  TableRow a, b;
  a.name = "block_1";
  a.parameters = 20;  // 80 bytes of fp32
  a.saved_bytes = 100;
  a.transient_bytes = 30;           // 130 alive, 100 of them saved
  a.backward_transient_bytes = 10;  // 590 alive: a, both gradients, and 10
  a.forward_ns = 40;                // from the forward pass's begin to b's birth
  a.backward_ns = 50;               // from what follows b's free to the end
  b.name = "block_2";
  b.parameters = 100;
  b.saved_bytes = 200;
  b.transient_bytes = 50;           // 350 alive, 300 of them saved
  b.backward_transient_bytes = 20;  // 720 alive: a, b, b's gradient, and 20
  b.forward_ns = 30;
  b.backward_ns = 40;
  EXPECT_THAT(network.table.rows, ElementsAre(a, b));
  EXPECT_EQ(network.table.samples, 4);
  EXPECT_EQ(network.saved, Bytes(300));
  EXPECT_EQ(network.gradients, Bytes(480));
  EXPECT_EQ(network.parameters, 120);
  EXPECT_EQ(network.peak, Bytes(720));
  EXPECT_EQ(network.table_peak, Bytes(720));
  EXPECT_FALSE(network.tells_dtype);
  EXPECT_TRUE(network.tells_times);
  EXPECT_THAT(network.notes, ElementsAre("the trace does not tell the gradients' dtype: taken as fp32"));
}

TEST(ObservedNetwork, TakesTheGradientsDtypeFromATraceThatTellsIt) {
  std::vector<Happening> script = TwoBlocks();
  for (Happening& happening : script) {
    happening.category = happening.name.starts_with("g") ? Category::gradient : Category::activation;
  }
  const ObservedNetwork network = Observed(Play(script));
  EXPECT_EQ(network.dtype, DType::bf16);
  EXPECT_EQ(network.parameters, 240);
  EXPECT_TRUE(network.tells_dtype);
}

TEST(ObservedNetwork, LeavesOutWhatBelongsToTheStrategy) {
  std::vector<Happening> script = TwoBlocks();
  for (Happening& happening : script) {
    happening.category = happening.name.starts_with("g") ? Category::gradient : Category::activation;
  }
  const ObservedNetwork alone = Observed(Play(script));
  script.insert(script.begin(), Allocated("weight", 480, 0, Category::parameter));
  script.insert(script.begin() + 12, Allocated("slot", 400, 0, Category::bucket));
  const ObservedNetwork network = Observed(Play(script));
  EXPECT_EQ(network.table.rows, alone.table.rows);
  EXPECT_EQ(network.peak, alone.peak);
}

TEST(ObservedNetwork, IsTheLastMicrobatchWhoseBackwardPassLeavesGradients) {
  const std::vector<Happening> accumulated = {Begun("forward", 1),        Allocated("a", 100, 1), Ended(),
                                              Begun("backward", 1),       Allocated("ga", 80, 1), Freed("ga", 1),
                                              Allocated("counter", 8, 1), Freed("a", 1),          Ended()};
  const ObservedNetwork network = Observed(Foreign(Joined({TwoBlocks(0), accumulated})));
  EXPECT_EQ(network.microbatch.microbatch, 0);
  EXPECT_EQ(network.gradients, Bytes(480));
  const std::vector<Happening> step = {Begun("optimizer"), Freed("ga", 0), Freed("gb", 0), Ended()};
  std::vector<Happening> larger = TwoBlocks(7);
  larger[1] = Allocated("a", 300, 7);
  EXPECT_EQ(Observed(Foreign(Joined({TwoBlocks(0), accumulated, step, larger}))).saved, Bytes(500));
}

TEST(ObservedNetwork, CountsInputsAndWhatIsHeldAsSavedByTheFirstRow) {
  std::vector<Happening> script = TwoBlocks();
  script.insert(script.begin() + 1, Allocated("loss", 4));  // nobody frees it
  script.insert(script.begin(), {Allocated("weight", 480), Allocated("ids", 16)});
  script.push_back(Freed("ids"));
  const ObservedNetwork network = Observed(Foreign(script));
  ASSERT_EQ(network.table.rows.size(), 2u);
  EXPECT_EQ(network.table.rows[0].saved_bytes, 100 + 4 + 16);
  EXPECT_EQ(network.table.rows[1].saved_bytes, 200);
  EXPECT_EQ(network.before, Bytes(480));
  EXPECT_EQ(network.peak, Bytes(720 + 4 + 16));
  EXPECT_EQ(network.table_peak, network.peak);
}

TEST(ObservedNetwork, FollowsAnnotationsOfTheForwardPass) {
  Trace trace = Foreign({Begun("forward", 0),  // 10
                         Allocated("ids", 8),  // 20
                         Allocated("a1", 100),
                         Allocated("a2", 50),  // layer 0: 30, 40
                         Allocated("b1", 200),
                         Allocated("b2", 60),   // layer 1: 50, 60
                         Allocated("loss", 4),  // 70
                         Ended(),
                         Begun("backward", 0),
                         Freed("loss"),  //
                         Allocated("gb2", 40),
                         Freed("b2"),
                         Allocated("gb1", 80),
                         Freed("b1"),  //
                         Allocated("ga2", 44),
                         Freed("a2"),
                         Allocated("ga1", 84),
                         Freed("a1"),
                         Freed("ids"),
                         Ended()});
  trace.spans.insert(trace.spans.begin() + 1,
                     {{"layer 0", 0, Nanos(25), Nanos(45)}, {"layer 1", 0, Nanos(45), Nanos(65)}});
  for (MemoryEvent& event : trace.memory) {
    event.span = event.span == 1 ? 3 : event.span;
  }
  ASSERT_EQ(Verify(trace), "");
  const ObservedNetwork network = Observed(trace);
  const auto name = [](const char* text) { return Field(&TableRow::name, text); };
  EXPECT_THAT(network.table.rows, ElementsAre(name("layer_0"), name("layer_1"), name("after_layer_1")));
  EXPECT_EQ(network.table.rows[0].saved_bytes, 100 + 50 + 8);
  EXPECT_EQ(network.table.rows[0].parameters, 11 + 21);
  EXPECT_EQ(network.table.rows[1].saved_bytes, 200 + 60);
  EXPECT_EQ(network.table.rows[1].parameters, 10 + 20);
  EXPECT_EQ(network.table.rows[2].saved_bytes, 4);
  // Of the 418 bytes behind the loss, b2's 60 are gone when both gradients of layer 1 are there; the table keeps them.
  EXPECT_EQ(network.peak, Bytes(418 + 40 - 60 + 80));
  EXPECT_EQ(network.table_peak, Bytes(418 + 40 + 80));
  EXPECT_THAT(network.notes, Contains(HasSubstr("60 B above the measured one")));
}

TEST(ObservedNetwork, JoinsNeighboursUntilThereAreFewEnoughRows) {
  std::vector<Happening> forward = {Begun("forward", 0)}, backward = {Begun("backward", 0)};
  for (std::int32_t i = 0; i < 200; ++i) {
    forward.push_back(Allocated("x", 100, i));
    backward.push_back(Allocated("g", 40, 199 - i));
    backward.push_back(Freed("x", 199 - i));
  }
  forward.push_back(Ended());
  backward.push_back(Ended());
  const Trace trace = Foreign(Joined({forward, backward}));
  for (const std::size_t most : {std::size_t{1}, std::size_t{7}, std::size_t{64}, std::size_t{200}}) {
    const ObservedNetwork network = Observed(trace, {.most_rows = most});
    EXPECT_EQ(network.table.rows.size(), most);
    std::int64_t saved = 0, parameters = 0, time = 0;
    for (const TableRow& row : network.table.rows) {
      saved += row.saved_bytes;
      parameters += row.parameters;
      time += row.forward_ns;
    }
    EXPECT_EQ(saved, 200 * 100);
    EXPECT_EQ(parameters, 200 * 10);
    EXPECT_EQ(time, 10 * 201);  // each of 200 allocations, and the end
  }
}

TEST(ObservedNetwork, TakesTimesFromComputeStreamsAndDividesThemWhereTheStreamGotToTheNextRow) {
  Trace trace = Foreign(TwoBlocks());
  trace.role = "cuda:0";
  EXPECT_FALSE(Observed(trace).tells_times);
  EXPECT_THAT(Observed(trace).notes, Contains(HasSubstr("times are not observed")));
  trace.streams = {{"stream 7", "compute"}, {"stream 9", "collective"}};
  trace.strings = {"kernel"};
  const TraceStringId kernel{0};
  trace.slices = {{0, kernel, Nanos(100), Nanos(150), 0},
                  {0, kernel, Nanos(150), Nanos(170), 0},
                  {1, kernel, Nanos(100), Nanos(900), 0},
                  {0, kernel, Nanos(300), Nanos(400), 1},
                  {0, kernel, Nanos(420), Nanos(500), 1}};
  trace.memory[3].ready = Nanos(150);  // b's birth
  trace.memory[9].ready = Nanos(450);  // what follows b's free
  ASSERT_EQ(Verify(trace), "");
  const ObservedNetwork network = Observed(trace);
  EXPECT_EQ(network.table.rows[0].forward_ns, 50);
  EXPECT_EQ(network.table.rows[1].forward_ns, 20);
  EXPECT_EQ(network.table.rows[1].backward_ns, 100 + 30);
  EXPECT_EQ(network.table.rows[0].backward_ns, 50);
}

TEST(ObservedNetwork, RefusesTracesThatDoNotTell) {
  EXPECT_THAT(Refusal(Trace()), HasSubstr("no allocations"));
  EXPECT_THAT(Refusal(Foreign({Allocated("a", 8), Freed("a")})), HasSubstr("record_function(\"forward\")"));
  EXPECT_THAT(Refusal(Foreign({Begun("forward", 0), Allocated("a", 8), Ended(), Begun("forward", 1), Allocated("b", 8),
                               Ended(), Begun("backward", 0), Freed("a"), Ended()})),
              HasSubstr("no forward pass with its backward pass right behind it"));
  EXPECT_THAT(Refusal(Foreign({Begun("forward", 0), Allocated("a", 8), Ended(), Begun("backward", 0), Allocated("g", 8),
                               Freed("g"), Freed("a"), Ended()})),
              HasSubstr("zero_grad(set_to_none=True)"));
  std::vector<Happening> script = TwoBlocks();
  script[10] = Allocated("gb", 401);
  EXPECT_THAT(Refusal(Foreign(script)), HasSubstr("401 bytes does not consist of elements of fp32"));
  for (Happening& happening : script) {
    happening.category = happening.name.starts_with("g") ? Category::gradient : Category::activation;
  }
  Trace divided = Play(script);
  for (TraceTensor& tensor : divided.tensors) {
    tensor.sharding = "1/8 over dp";
  }
  EXPECT_THAT(Refusal(divided), HasSubstr("part of a gradient: 1/8 over dp"));
}

TEST(ObservedNetwork, IsNotMisledByNumbersOfHostileFiles) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 62;
  EXPECT_THAT(Refusal(Foreign({Begun("forward", 0), Allocated("a", kLargest), Ended(), Begun("backward", 0), Freed("a"),
                               Allocated("g", kLargest), Ended()})),
              HasSubstr("2^60 bytes"));
  Trace trace = Foreign(TwoBlocks());
  constexpr std::int64_t kLastInstant = std::int64_t{1} << 61;
  trace.spans[0].begin = Nanos(-kLastInstant);
  trace.spans[1].end = Nanos(kLastInstant);
  ASSERT_EQ(Verify(trace), "");
  EXPECT_FALSE(Observed(trace).tells_times);
}

}  // namespace
}  // namespace tidemark::observed_network_test

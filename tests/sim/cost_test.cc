// SPDX-License-Identifier: Apache-2.0
#include "sim/cost/cost.h"

#include <gtest/gtest.h>

#include "sim/cost/overlap.h"

namespace tidemark::cost_test {
namespace {

/// Numbers with which one computes in one's head: 1 TFLOP/s in bf16, 4 tiles of 100 x 100 at once, 1 GB/s of memory, no
/// launch.
Machine Toy() {
  Machine machine;
  machine.peak = {{DType::bf16, FlopsPerSec(1e12)}, {DType::fp32, FlopsPerSec(1e11)}};
  machine.memory_bandwidth = BytesPerSec(1e9);
  machine.processors = 4;
  machine.tile_m = machine.tile_n = 100;
  machine.intra_node = {Nanos(0), BytesPerSec(1e9)};
  machine.inter_node = {Nanos(0), BytesPerSec(1e8)};
  machine.host_link = {Nanos(500), BytesPerSec(1e9)};
  machine.overlap_slowdown = 1.5;
  return machine;
}

/// So much bandwidth that only arithmetic takes time.
Machine ToyForArithmetic() {
  Machine machine = Toy();
  machine.memory_bandwidth = BytesPerSec(1e30);
  return machine;
}

/// Beside collectives that outlast it.
Nanos TimeBeside(const Operator& op, const Machine& machine) {
  return TimeBeside(10, KernelSeconds(op, machine), machine);
}

Nanos Time(const Operator& op, const Machine& machine) { return RoundToNanos(KernelSeconds(op, machine)); }

// One tile of 100 x 100 with k = 1000 is 2 * 100 * 100 * 1000 = 2e7 flops. A wave is four of them, 8e7 flops, which at
// 1e12 flop/s take 80,000 ns.
constexpr Nanos kWave = Nanos(80000);

TEST(KernelTime, OneFullWaveOfTilesRunsAtTheMachinesRate) {
  EXPECT_EQ(Time(Gemm{.m = 200, .n = 200, .k = 1000}, ToyForArithmetic()), kWave);
}

TEST(KernelTime, OneTileMoreThanAWaveTakesTwice) {
  EXPECT_EQ(Time(Gemm{.m = 500, .n = 100, .k = 1000}, ToyForArithmetic()), 2 * kWave);
  EXPECT_EQ(Time(Gemm{.m = 200, .n = 201, .k = 1000}, ToyForArithmetic()), 2 * kWave);  // 2 x 3 tiles
}

TEST(KernelTime, AnUnfilledWaveAndAnUnfilledTileCostAsMuchAsFullOnes) {
  EXPECT_EQ(Time(Gemm{.m = 100, .n = 100, .k = 1000}, ToyForArithmetic()), kWave);
  EXPECT_EQ(Time(Gemm{.m = 1, .n = 1, .k = 1000}, ToyForArithmetic()), kWave);
}

TEST(KernelTime, ABatchFillsTheWaveWithTheTilesOfAllItsProducts) {
  EXPECT_EQ(Time(Gemm{.m = 100, .n = 100, .k = 1000, .batch = 4}, ToyForArithmetic()), kWave);
  EXPECT_EQ(Time(Gemm{.m = 100, .n = 100, .k = 1000, .batch = 5}, ToyForArithmetic()), 2 * kWave);
}

// 2 * 100 * 100 * 1000 operations at 40 GFLOP/s, whatever the roofline says, then the launch. Other dtypes and kinds
// have no curve: one tile in a wave of four, and bytes at 1 GB/s.
TEST(KernelTime, WhatWasMeasuredOnTheMachineGoesBeforeTheRoofline) {
  Machine machine = Toy();
  machine.kernel_launch = Nanos(7);
  machine.rates["gemm.fp32"] = {{100, 40e9}};
  EXPECT_EQ(Time(Gemm{.m = 100, .n = 100, .k = 1000, .dtype = DType::fp32, .output = DType::fp32}, machine),
            Nanos(500'000 + 7));
  machine.memory_bandwidth = BytesPerSec(1e30);
  EXPECT_EQ(Time(Gemm{.m = 100, .n = 100, .k = 1000}, machine), kWave + Nanos(7));
  machine.memory_bandwidth = BytesPerSec(1e9);
  EXPECT_EQ(Time(Pointwise{.elements = 100, .bytes_moved = 1000}, machine), Nanos(1000 + 7));
}

// 2 * 100 * 100 * 1000 operations: 500 us at the 40 GFLOP/s of its smallest dimension, 1 ms at the 20 of a product with
// as many operations.
TEST(KernelTime, AProductIsAsSlowAsTheSlowerOfItsCurves) {
  Machine machine = Toy();
  const Gemm op{.m = 100, .n = 100, .k = 1000, .dtype = DType::fp32, .output = DType::fp32};
  machine.rates["gemm.fp32"] = {{100, 40e9}};
  machine.rates["gemm_small.fp32"] = {{20'000'000, 20e9}};
  EXPECT_EQ(Time(op, machine), Nanos(1'000'000));
  machine.rates["gemm_small.fp32"] = {{20'000'000, 80e9}};
  EXPECT_EQ(Time(op, machine), Nanos(500'000));
}

// Tiles of 128 x 128, or of 64 columns, four at once, which 8192 x 8192 outputs fill. 384 x 384 are nine, in three
// waves with room for twelve, or eighteen of the narrow ones in five with room for twenty. Of 128 x 1025 the last
// narrow one of seventeen is all but empty.
TEST(KernelTime, AProductTakesTheWavesThatItDoesNotFillBesideItsCurve) {
  Machine machine = Toy();
  machine.tile_m = machine.tile_n = 128;
  machine.rates["gemm.bf16"] = {{100, 40e9}};
  EXPECT_EQ(Time(Gemm{.m = 384, .n = 384, .k = 1000}, machine), Nanos(7'372'800 * 20 / 18));
  EXPECT_EQ(Time(Gemm{.m = 128, .n = 1025, .k = 800}, machine), Nanos(std::int64_t{2} * 128 * 20 * 64 * 800 / 40));
  EXPECT_EQ(Time(Gemm{.m = 384, .n = 384, .k = 1000, .batch = 4}, machine), Nanos(4 * 7'372'800));
}

// Three tiles, for four processors: the fourth takes a part of the sums.
TEST(KernelTime, OfFewTilesTheCurveHasTheWaves) {
  Machine machine = Toy();
  machine.tile_m = machine.tile_n = 128;
  machine.rates["gemm.bf16"] = {{100, 40e9}};
  EXPECT_EQ(Time(Gemm{.m = 384, .n = 128, .k = 1000}, machine), Nanos(2 * 384 * 128 * 1000 / 40));
}

// The same, of odd sums: nobody takes a part, and the room is that of four tiles.
TEST(KernelTime, OfFewTilesOfOddSidesTheProcessorsWithoutOneAreLost) {
  Machine machine = Toy();
  machine.tile_m = machine.tile_n = 128;
  machine.rates["gemm.bf16"] = {{100, 40e9}};
  EXPECT_EQ(Time(Gemm{.m = 384, .n = 128, .k = 1005}, machine), Nanos(std::int64_t{2} * 4 * 128 * 128 * 1005 / 40));
}

// Tiles of 100 x 100, of which 8192 x 8192 outputs do not fill the last: twelve in three waves fill theirs, and
// are taken for no faster.
TEST(KernelTime, NoProductIsTakenForFasterThanItsCurve) {
  Machine machine = Toy();
  machine.rates["gemm.bf16"] = {{100, 40e9}};
  EXPECT_EQ(Time(Gemm{.m = 100, .n = 1200, .k = 1000}, machine), Nanos(6'000'000));
}

// 2 * 200 * 200 * 1001 operations, in a tile for each processor, at 40 GFLOP/s, or at 4 where products of odd sides
// were measured.
TEST(KernelTime, AnUnalignedProductHasItsOwnCurveWhereThereIsOne) {
  Machine machine = Toy();
  const Gemm op{.m = 200, .n = 200, .k = 1001, .dtype = DType::fp32, .output = DType::fp32};
  machine.rates["gemm.fp32"] = {{100, 40e9}};
  EXPECT_EQ(Time(op, machine), Nanos(2'002'000));
  machine.rates["gemm_unaligned.fp32"] = {{100, 4e9}};
  EXPECT_EQ(Time(op, machine), Nanos(20'020'000));
}

TEST(KernelTime, WhatWasMeasuredIsStretchedBesideACollective) {
  Machine machine = Toy();
  machine.rates["stream"] = {{1, 1e9}};
  EXPECT_EQ(TimeBeside(Pointwise{.elements = 100, .bytes_moved = 400}, machine), Nanos(600));
}

TEST(KernelTime, OnlyAFractionOfThePeakIsAchieved) {
  Machine machine = ToyForArithmetic();
  machine.achievable_flops = 0.5;
  EXPECT_EQ(Time(Gemm{.m = 200, .n = 200, .k = 1000}, machine), 2 * kWave);
}

TEST(KernelTime, IsThatOfMemoryWhereTrafficTakesLonger) {
  // (200 * 1000 + 1000 * 200 + 200 * 200) * 2 bytes = 880,000 bytes at 1e9 bytes/s.
  EXPECT_EQ(Time(Gemm{.m = 200, .n = 200, .k = 1000}, Toy()), Nanos(880000));
  Machine slower = Toy();
  slower.achievable_bandwidth = 0.5;
  EXPECT_EQ(Time(Gemm{.m = 200, .n = 200, .k = 1000}, slower), Nanos(1760000));
}

TEST(KernelTime, ADtypeWithoutAPeakOfItsOwnRunsAsFp32) {
  EXPECT_EQ(PeakOf(Toy(), DType::bf16), FlopsPerSec(1e12));
  EXPECT_EQ(PeakOf(Toy(), DType::fp64), FlopsPerSec(1e11));
  EXPECT_EQ(Time(Gemm{.m = 200, .n = 200, .k = 1000, .dtype = DType::fp16}, ToyForArithmetic()), 10 * kWave);
  Machine machine;
  machine.peak = {{DType::fp16, FlopsPerSec(4)}, {DType::fp64, FlopsPerSec(2)}};
  EXPECT_EQ(PeakOf(machine, DType::bf16), FlopsPerSec(2)) << "without fp32, the slowest that is listed";
}

TEST(KernelTime, AttentionIsCutIntoRowsOfHeads) {
  // Two products of 100 x 100 pairs, 10 wide: 2 * 2 * 100 * 100 * 10 = 4e5 flops a head; 4 heads are one wave, 1.6e6
  // flops at 1e12 flop/s = 1,600 ns.
  const Attention four{.batch = 2, .heads = 2, .kv_heads = 2, .sequence = 100, .head_size = 10, .causal = false};
  EXPECT_EQ(Time(four, ToyForArithmetic()), Nanos(1600));
  Attention five = four;
  five.batch = 1;
  five.heads = five.kv_heads = 5;
  EXPECT_EQ(Time(five, ToyForArithmetic()), Nanos(3200)) << "a fifth tile opens a second wave";
  Attention causal = four;
  causal.causal = true;
  EXPECT_EQ(Time(causal, ToyForArithmetic()), Nanos(800)) << "half of the pairs";
}

TEST(KernelTime, AttentionPadsItsRowsToTiles) {
  // 150 rows need two tiles of 100. 2 * 2 * 150 * 150 * 10 = 9e5 flops, by 200/150 for padding is 1.2e6 in two of four
  // slots: 2.4e6 flops at 1e12 flop/s.
  const Attention op{.batch = 1, .heads = 1, .kv_heads = 1, .sequence = 150, .head_size = 10, .causal = false};
  EXPECT_EQ(Time(op, ToyForArithmetic()), Nanos(2400));
}

Attention Windowed(std::int64_t sequence, std::int64_t window) {
  Attention op{.batch = 1, .heads = 4, .kv_heads = 4, .sequence = sequence, .head_size = 10};
  op.window = window;
  return op;
}

TEST(KernelTime, AWindowLeavesItsKeysAndHalfATileWhereItBegins) {
  // 1000 tokens are ten tiles, and 4 heads ten full waves. The mean of the queries behind the window's 200 tokens has
  // 200 keys and half a tile of 100; 200 tokens before them have 100 keys in the mean: 1000 x 200 - 200^2 / 2 + 800 x
  // 50 = 220,000 pairs, 4 x 10 flops each, of 4 heads at 1e12 flop/s.
  EXPECT_EQ(Time(Windowed(1000, 200), ToyForArithmetic()), Nanos(35200));
  EXPECT_EQ(Time(Windowed(1000, 200).Full(), ToyForArithmetic()), Nanos(80000));
}

TEST(KernelTime, AWindowOfNoWholeTilesBeginsEarlierInOne) {
  // The first of 100 queries sees 169 keys before its own, so that their tiles of keys begin 200 before it: 300 keys to
  // each query, and 250 without half of the diagonal's tile, which are 170, 30 and 50. 1000 x 170 - 170^2 / 2 + 830 x
  // (30 + 50) = 221,950 pairs.
  EXPECT_EQ(Time(Windowed(1000, 170), ToyForArithmetic()), Nanos(35512));
}

TEST(KernelTime, NoWindowTakesLongerThanNone) {
  // 1000 x 990 - 990^2 / 2 + 10 x (10 + 50) = 500,550 pairs are more than half the square: no tile is left out.
  EXPECT_EQ(Time(Windowed(1000, 990), ToyForArithmetic()), Nanos(80000));
}

TEST(KernelTime, OfWindowsInSomeLayersIsTheMeanOfAll) {
  Attention op = Windowed(1000, 200);
  op.windowed_layers = 3;
  op.full_layers = 1;
  EXPECT_EQ(Time(op, ToyForArithmetic()), Nanos((3 * 35200 + 80000) / 4));
}

TEST(KernelTime, OfAWindowIsByTheRateOfSequencesWithAsManyKeysToAQuery) {
  Machine machine = ToyForArithmetic();
  machine.rates["attention.bf16"] = {{500, 1e12}, {1000, 2e12}};
  // 180,000 pairs, stretched to 220,000, at the rate of 2 x 250 tokens.
  EXPECT_EQ(Time(Windowed(1000, 200), machine), Nanos(35200));
  EXPECT_EQ(Time(Windowed(1000, 200).Full(), machine), Nanos(40000));
}

TEST(KernelTime, StreamingOperatorsTakeTheTimeOfTheirTraffic) {
  EXPECT_EQ(Time(Pointwise{.elements = 10, .bytes_moved = 3000, .flops_per_element = 1000000}, Toy()), Nanos(3000));
  EXPECT_EQ(Time(Rope{.elements = 1000}, Toy()), Nanos(4000));  // 2 bytes in, 2 bytes out
  EXPECT_EQ(Time(OptimizerUpdate{.elements = 10, .bytes_moved = 280}, Toy()), Nanos(280));
}

TEST(KernelTime, AddsTheLaunchOnce) {
  Machine machine = Toy();
  machine.kernel_launch = Nanos(7);
  EXPECT_EQ(Time(Pointwise{.elements = 10, .bytes_moved = 3000}, machine), Nanos(3007));
}

TEST(KernelTime, NothingToDoIsNotLaunched) {
  Machine machine = Toy();
  machine.kernel_launch = Nanos(7);
  EXPECT_EQ(Time(Pointwise{}, machine), Nanos(0));
  EXPECT_EQ(Time(Gemm{.m = 0, .n = 100, .k = 0}, machine), Nanos(0));
}

TEST(KernelTime, AMeasuredDurationIsTakenAsItIs) {
  Machine machine = Toy();
  machine.kernel_launch = Nanos(7);
  EXPECT_EQ(Time(Tabulated{.nanoseconds = 1234, .flops = 1000000000}, machine), Nanos(1234));
  EXPECT_EQ(Time(Tabulated{.flops = 1000000}, machine), Nanos(1007));  // 1e6 flops at 1e12 flop/s, and the launch
}

TEST(KernelTime, BesideACollectiveEverythingTakesLonger) {
  Machine machine = Toy();
  machine.kernel_launch = Nanos(10);
  EXPECT_EQ(TimeBeside(Pointwise{.elements = 10, .bytes_moved = 3000}, machine), Nanos(4515));  // 3,010 * 1.5
}

Group Ranks(std::int64_t size, std::int64_t per_node) { return {"dp", size, per_node}; }

TEST(CollectiveTime, ARankAloneTakesNoTime) {
  for (const CollectiveKind kind :
       {CollectiveKind::all_reduce, CollectiveKind::all_to_all, CollectiveKind::broadcast}) {
    EXPECT_EQ(CollectiveTime(kind, Bytes(1000), Ranks(1, 1), Toy()), Nanos(0));
  }
}

TEST(CollectiveTime, WithoutLatencyIsWireBytesOverBandwidth) {
  // S = 8,000 bytes over 4 ranks of one node at 1 byte/ns: 2 S (n-1)/n = 12,000 for all_reduce, half for its halves.
  const Group group = Ranks(4, 8);
  EXPECT_EQ(CollectiveTime(CollectiveKind::all_reduce, Bytes(8000), group, Toy()), Nanos(12000));
  EXPECT_EQ(CollectiveTime(CollectiveKind::all_gather, Bytes(8000), group, Toy()), Nanos(6000));
  EXPECT_EQ(CollectiveTime(CollectiveKind::reduce_scatter, Bytes(8000), group, Toy()), Nanos(6000));
  EXPECT_EQ(CollectiveTime(CollectiveKind::all_to_all, Bytes(8000), group, Toy()), Nanos(6000));
  EXPECT_EQ(CollectiveTime(CollectiveKind::broadcast, Bytes(8000), group, Toy()), Nanos(8000));
  EXPECT_EQ(CollectiveTime(CollectiveKind::reduce, Bytes(8000), group, Toy()), Nanos(8000));
}

TEST(CollectiveTime, ARingPaysLatencyAtEachStep) {
  Machine machine = Toy();
  machine.intra_node.latency = Nanos(1000);
  const Group group = Ranks(4, 8);
  EXPECT_EQ(CollectiveTime(CollectiveKind::all_reduce, Bytes(8000), group, machine), Nanos(12000 + 6 * 1000));
  EXPECT_EQ(CollectiveTime(CollectiveKind::all_gather, Bytes(8000), group, machine), Nanos(6000 + 3 * 1000));
  EXPECT_EQ(CollectiveTime(CollectiveKind::broadcast, Bytes(8000), group, machine), Nanos(8000 + 3 * 1000));
  EXPECT_EQ(CollectiveTime(CollectiveKind::all_to_all, Bytes(8000), group, machine), Nanos(6000 + 3 * 1000));
}

// 8,000 bytes to a neighbour at 1 byte/ns, 1,000 ns away; where the group spans nodes those on the border take the
// network's way, at 0.1 byte/ns and 7,000 ns away.
TEST(CollectiveTime, AShiftIsOneMessageOverTheSlowestLinkThatTheRingCrosses) {
  Machine machine = Toy();
  machine.intra_node.latency = Nanos(1000);
  machine.inter_node.latency = Nanos(7000);
  for (const CollectiveKind kind : {CollectiveKind::shift_up, CollectiveKind::shift_down}) {
    EXPECT_EQ(CollectiveTime(kind, Bytes(8000), Ranks(4, 8), machine), Nanos(9000));
    EXPECT_EQ(CollectiveTime(kind, Bytes(8000), Ranks(4, 2), machine), Nanos(87000));
    EXPECT_EQ(CollectiveTime(kind, Bytes(8000), Ranks(1, 1), machine), Nanos(0));
  }
}

TEST(CollectiveTime, AcrossNodesWithOneRankEachIsThatOfTheNetwork) {
  Machine machine = Toy();
  machine.intra_node.latency = Nanos(1000);
  machine.inter_node.latency = Nanos(20000);
  // 6,000 bytes at 0.1 bytes/ns and three steps, all between nodes.
  EXPECT_EQ(CollectiveTime(CollectiveKind::all_gather, Bytes(8000), Ranks(4, 1), machine), Nanos(60000 + 3 * 20000));
}

TEST(CollectiveTime, RanksOfANodeShareTheRingsTrafficOverTheirAdapters) {
  Machine machine = Toy();
  machine.intra_node.latency = Nanos(1000);
  machine.inter_node.latency = Nanos(20000);
  // Two nodes of two: 6,000 bytes at 2 * 0.1 bytes/ns; two steps inside, one between the nodes.
  EXPECT_EQ(CollectiveTime(CollectiveKind::all_gather, Bytes(8000), Ranks(4, 2), machine),
            Nanos(30000 + 2 * 1000 + 20000));
  // An all_reduce is both halves.
  EXPECT_EQ(CollectiveTime(CollectiveKind::all_reduce, Bytes(8000), Ranks(4, 2), machine),
            Nanos(2 * (30000 + 2 * 1000 + 20000)));
}

TEST(CollectiveTime, NoRingIsFasterThanTheLinksInsideItsNodes) {
  Machine machine = Toy();
  machine.inter_node.bandwidth = BytesPerSec(9e8);  // two adapters together outrun the 1e9 inside
  EXPECT_EQ(CollectiveTime(CollectiveKind::all_gather, Bytes(8000), Ranks(4, 2), machine), Nanos(6000));
}

TEST(CollectiveTime, AllToAllExchangesPairwiseOverEachRanksOwnLinks) {
  Machine machine = Toy();
  machine.intra_node.latency = Nanos(1000);
  machine.inter_node.latency = Nanos(20000);
  // Shares of 2,000 bytes: one inside the node (1,000 + 2,000 ns), two across (20,000 + 20,000 ns each).
  EXPECT_EQ(CollectiveTime(CollectiveKind::all_to_all, Bytes(8000), Ranks(4, 2), machine), Nanos(3000 + 2 * 40000));
}

TEST(MessageTime, IsLatencyAndBytesOfItsLink) {
  Machine machine = Toy();
  machine.intra_node.latency = Nanos(5);
  machine.inter_node.latency = Nanos(60);
  EXPECT_EQ(MessageTime(Bytes(100), false, machine), Nanos(105));
  EXPECT_EQ(MessageTime(Bytes(100), true, machine), Nanos(1060));
}

/// One node of each kind that takes time on the device, between two that do not. All of buffer x, 1,000 elements of
/// bf16.
Program OneOfEach() {
  Program program;
  Buffer x;
  x.elements = 1000;
  program.buffers = {x};
  program.groups = {Ranks(4, 8)};
  program.channels = {{.name = "next", .from_role = 0, .to_role = 1, .crosses_nodes = true}};
  const BufferRef ref{.buffer = BufferId{0}, .index = {}};
  Alloc alloc{ref};
  Compute compute;
  compute.op = Pointwise{.elements = 1, .bytes_moved = 3000};
  Compute beside = compute;
  beside.beside = FlightSetId{0};
  program.flight_sets = {{FlightId{0}}};
  Collective collective;
  collective.flight = FlightId{0};
  collective.kind = CollectiveKind::all_gather;
  collective.group = GroupId{0};
  collective.dtype = DType::fp32;
  collective.payload_elements = 2000;
  Send send;
  send.channel = ChannelId{0};
  send.buffer = ref;
  Recv recv;
  recv.channel = ChannelId{0};
  recv.buffer = ref;
  Copy copy;
  copy.bytes = Bytes(100);
  Scale scale;
  scale.buffer = ref;
  program.nodes = {alloc, compute, beside, collective, send, recv, copy, scale, Free{ref}};
  return program;
}

TEST(Price, GivesEachNodeItsTimeOnTheDevice) {
  Machine machine = Toy();
  machine.host_issue = Nanos(4000);
  const Costs costs = Price(OneOfEach(), machine);
  const std::vector<Nanos> expected = {
      Nanos(0),      // an Alloc is the host's business
      Nanos(3000),   // 3,000 bytes at 1 byte/ns
      Nanos(4500),   // half as long again beside a collective
      Nanos(6000),   // 3/4 of 2,000 fp32 at 1 byte/ns
      Nanos(20000),  // 2,000 bytes at 0.1 bytes/ns
      Nanos(0),      // a message has arrived when its Send ends
      Nanos(600),    // 500 latency, 100 bytes at 1 byte/ns
      Nanos(4000),   // 2,000 bytes read, 2,000 written
      Nanos(0),      // a Free
  };
  EXPECT_EQ(costs.device, expected);
  EXPECT_EQ(costs.host_issue, Nanos(4000));
}

}  // namespace
}  // namespace tidemark::cost_test

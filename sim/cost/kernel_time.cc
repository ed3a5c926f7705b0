// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>

#include "models/machine/rates.h"
#include "sim/cost/cost.h"

namespace tidemark {
namespace {

// The roofline (Williams, Waterman and Patterson, CACM 2009): a kernel takes the longer of its arithmetic and its
// memory traffic, each at the rate that large well-shaped kernels reach.
//
// Matrix kernels do not scale smoothly with their shape (NVIDIA, "Matrix Multiplication Background User's Guide", tile
// and wave quantisation): the output is cut into tiles, an unfilled tile costs as much as a full one, and `processors`
// tiles run at once, an unfilled wave costing as much as a full one. So the arithmetic is that of waves * processors
// full tiles.
//
// Measured rates (models/machine/rates.h) are those of products that fill their waves, and say nothing of others: what
// a product's waves are emptier than theirs comes on top.
//
// Where this stops being true: libraries pick from several tile shapes and split k (or stream it, "stream-K") where m *
// n gives too few tiles, so small products and weight gradients of narrow layers are faster than said here; attention
// balances the unequal rows of a causal mask; and clocks fall under long matrix work, which `achievable_flops` must
// hold.

std::int64_t TilesOf(const Gemm& op, std::int64_t columns, const Machine& machine) {
  return CeilDiv(op.m, machine.tile_m) * CeilDiv(op.n, columns) * op.batch;
}

/// Seconds of `work` on tensor units, cut into `tiles` equal pieces of which each keeps one processor busy.
double SecondsInWaves(double work, std::int64_t tiles, FlopsPerSec peak, const Machine& machine) {
  const std::int64_t waves = CeilDiv(tiles, machine.processors);
  const double slots = static_cast<double>(waves) * static_cast<double>(machine.processors);
  const double rate = peak.per_second() * machine.achievable_flops;
  TIDEMARK_CHECK(rate > 0 && tiles > 0);
  return work / static_cast<double>(tiles) * slots / rate;
}

/// Keys that are worked on for a query that does not see the first token, but for the diagonal's tile: tiles in which a
/// window begins are worked on whole, to the mean query half of one more and what the window lacks of whole tiles. (So
/// are tiles of the diagonal, which any causal mask has, and rates hold.)
double KeysInTiles(const Attention& op, const Machine& machine) {
  return static_cast<double>(CeilDiv(op.window, machine.tile_m) * machine.tile_m) +
         static_cast<double>(machine.tile_m) / 2;
}

/// What is worked on, to what windows leave.
double PaddingOfWindows(const Operator& op, const Machine& machine) {
  const auto* attention = std::get_if<Attention>(&op);
  if (attention == nullptr || attention->window == 0) {
    return 1;
  }
  const auto sequence = static_cast<double>(attention->sequence), window = static_cast<double>(attention->window);
  return 1 + (sequence - window) * (KeysInTiles(*attention, machine) - window) / (window * (sequence - window / 2));
}

struct ArithmeticSeconds {
  const Machine& machine;

  /// Full tiles of tile_m * tile_n outputs, k multiply-adds each.
  double operator()(const Gemm& op) const {
    const std::int64_t tiles = TilesOf(op, machine.tile_n, machine);
    const double tile = 2.0 * static_cast<double>(machine.tile_m) * static_cast<double>(machine.tile_n);
    return SecondsInWaves(tile * static_cast<double>(op.k) * static_cast<double>(tiles), tiles,
                          PeakOf(machine, op.dtype), machine);
  }

  /// The matrix products that it is made of.
  double operator()(const InfoNce& op) const {
    const auto product = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
      return (*this)(Gemm{.m = m, .n = n, .k = k, .dtype = op.dtype, .output = op.dtype});
    };
    return op.backward ? product(op.rows, op.width, op.columns) + product(op.columns, op.width, op.rows)
                       : product(op.rows, op.columns, op.width);
  }

  /// One processor takes tile_m rows of one head over all columns (forward: queries, backward: keys);
  /// FlashAttention-2's partition (Dao, 2023, section 3.2). Tiles of a causal mask count as equal, at their mean.
  double operator()(const Attention& op) const {
    const std::int64_t blocks = CeilDiv(op.sequence, machine.tile_m);
    const double padding = static_cast<double>(blocks * machine.tile_m) / static_cast<double>(op.sequence);
    return SecondsInWaves(static_cast<double>(FlopsOf(op).count()) * padding * PaddingOfWindows(op, machine),
                          blocks * op.heads * op.batch, PeakOf(machine, op.dtype), machine);
  }

  /// Nothing is known of its shape: as if it were large and well-shaped.
  double operator()(const Tabulated& op) const {
    return SecondsAt(Flops(op.flops), PeakOf(machine, op.dtype) * machine.achievable_flops);
  }

  /// All others stream through memory: a few operations an element against tens that the bandwidth leaves time for.
  template <class Streaming>
  double operator()(const Streaming&) const {
    return 0;
  }
};

std::optional<double> SecondsByCurve(const std::optional<RatedWork>& rated, const Machine& machine) {
  if (!rated) {
    return std::nullopt;
  }
  auto curve = machine.rates.find(rated->key);
  if (curve == machine.rates.end()) {
    curve = machine.rates.find(rated->otherwise);
  }
  return curve == machine.rates.end() ? std::nullopt : std::optional(rated->work / RateAt(curve->second, rated->size));
}

/// Outputs that waves of full tiles have room for, to those that there are, in the better of two tiles: libraries pick.
double RoomOfWaves(const Gemm& op, const Machine& machine) {
  const auto room = [&](std::int64_t columns) {
    return CeilDiv(TilesOf(op, columns, machine), machine.processors) * machine.processors * machine.tile_m * columns;
  };
  const std::int64_t least = std::min(room(machine.tile_n), room(std::max<std::int64_t>(1, machine.tile_n / 2)));
  return static_cast<double>(least) /
         (static_cast<double>(op.m) * static_cast<double>(op.n) * static_cast<double>(op.batch));
}

/// How many times as long as by its curve a product takes whose last wave or last tiles are emptier than those of the
/// curve's products. A fuller one is not taken for faster: it has other limits. One of fewer tiles than processors
/// shares out the sums of each, where its sides are those that the fast kernels take; others do not: a head's input
/// gradient of 4096 tokens of GPT-2, 96 tiles, takes 1.34 times as long a token as one of 16,384 on an H200.
double Unfilled(const Operator& op, const Machine& machine) {
  constexpr std::int64_t kMeasured = 8192;  // rows and columns of a GPU's (profiler/calibrate/sizes.cc)
  const auto* gemm = std::get_if<Gemm>(&op);
  if (gemm == nullptr || (IsAligned(*gemm) && TilesOf(*gemm, machine.tile_n, machine) <= machine.processors)) {
    return 1;
  }
  return std::max(1.0, RoomOfWaves(*gemm, machine) / RoomOfWaves({.m = kMeasured, .n = kMeasured, .k = 1}, machine));
}

/// Where the machine's kernels of this kind were measured: how long this one takes by them, without its launch.
std::optional<double> MeasuredSeconds(const Operator& op, const Machine& machine) {
  if (machine.rates.empty()) {
    return std::nullopt;
  }
  std::optional<RatedWork> work = WorkOf(op);
  if (const auto* attention = std::get_if<Attention>(&op); work && attention != nullptr && attention->window > 0) {
    // As many keys to a query as the mean one of a causal sequence of twice as many has.
    work->size = std::min(work->size, static_cast<std::int64_t>(2 * KeysInTiles(*attention, machine)));
  }
  const std::optional<double> seconds = SecondsByCurve(work, machine);
  return seconds ? std::optional(std::max(*seconds, SecondsByCurve(SmallWorkOf(op), machine).value_or(0)) *
                                 Unfilled(op, machine) * PaddingOfWindows(op, machine))
                 : std::nullopt;
}

}  // namespace

FlopsPerSec PeakOf(const Machine& machine, DType dtype) {
  TIDEMARK_CHECK(!machine.peak.empty());
  for (const DType listed : {dtype, DType::fp32}) {
    if (const auto found = machine.peak.find(listed); found != machine.peak.end()) {
      return found->second;
    }
  }
  const auto slower = [](const auto& a, const auto& b) { return a.second < b.second; };
  return std::min_element(machine.peak.begin(), machine.peak.end(), slower)->second;
}

Nanos HostTime(const Operator& op, const Machine& machine, std::int64_t ranks) {
  TIDEMARK_CHECK(ranks > 0 && machine.host_memory_bandwidth.per_second() > 0 && machine.host_flops.per_second() > 0);
  const double part = 1.0 / static_cast<double>(ranks);
  return RoundToNanos(std::max(SecondsAt(FlopsOf(op), machine.host_flops * part),
                               SecondsAt(BytesMovedBy(op), machine.host_memory_bandwidth * part)));
}

namespace {

/// Of an operator of which all layers have the same.
double SecondsOfOne(const Operator& op, const Machine& machine) {
  if (const auto* row = std::get_if<Tabulated>(&op); row != nullptr && row->nanoseconds > 0) {
    return static_cast<double>(row->nanoseconds) * 1e-9;  // measured: launch and traffic are in it
  }
  const Bytes bytes = BytesMovedBy(op);
  const Flops flops = FlopsOf(op);
  if (bytes == Bytes(0) && flops == Flops(0)) {
    return 0;
  }
  const double launch = static_cast<double>(machine.kernel_launch.count()) * 1e-9;
  if (const std::optional<double> measured = MeasuredSeconds(op, machine)) {
    return *measured + launch;
  }
  const double traffic = SecondsAt(bytes, machine.memory_bandwidth * machine.achievable_bandwidth);
  const double arithmetic = flops == Flops(0) ? 0 : std::visit(ArithmeticSeconds{machine}, op);
  return std::max(arithmetic, traffic) + launch;
}

}  // namespace

double KernelSeconds(const Operator& op, const Machine& machine) {
  const auto* attention = std::get_if<Attention>(&op);
  if (attention == nullptr || attention->window == 0) {
    return SecondsOfOne(op, machine);
  }
  const double full = SecondsOfOne(attention->Full(), machine);
  const double windowed = std::min(full, SecondsOfOne(attention->Windowed(), machine));
  const auto with = static_cast<double>(attention->windowed_layers),
             without = static_cast<double>(attention->full_layers);
  return (windowed * with + full * without) / (with + without);
}

}  // namespace tidemark

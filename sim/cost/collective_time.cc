// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "sim/cost/cost.h"

namespace tidemark {
namespace {

// n ranks, r of them on each node, S bytes of payload (the full buffer).
//
// Ring (Patarasu and Yuan, JPDC 2009; Thakur, Rabenseifner and Gropp, IJHPCA 2005):
//
//   kind                          steps      bytes that each rank sends
//   all_gather, reduce_scatter    n - 1      (n - 1)/n S
//   all_reduce                    2 (n - 1)  2 (n - 1)/n S          a reduce_scatter and an all_gather
//   broadcast, reduce             n - 1      S                      a pipelined chain
//
// time = (steps - crossings) * intra latency + crossings * inter latency + bytes / bandwidth
//
// A ring over k = ceil(n/r) nodes crosses between nodes k - 1 times a round, 2 (k - 1) times in an all_reduce; the same
// count is in NCCL's own model (src/graph/tuning.cc, nInterSteps). NCCL lays r rings, each leaving the node by another
// rank's adapter with 1/r of the payload, while the links inside the node carry all of them: the bandwidth of a ring
// across nodes is min(intra, r * inter), with one rank a node just inter. The bytes are those by which nccl-tests
// defines "bus bandwidth" (its doc/PERFORMANCE.md), so a machine's bandwidths are bus bandwidths of large messages.
//
// all_to_all is n - 1 pairwise exchanges of S/n, r - 1 of them inside the node, n - r across, each over the rank's own
// link (the long-message algorithm of Thakur et al.).
//
// shift_up, shift_down: one message of S to a neighbour, all at once. In a group across nodes some neighbours are on
// other nodes, and the others wait for them: it takes as long as theirs, over one rank's own link.
//
// Where this stops being true: below about a megabyte a rank, where NCCL takes trees (latency grows with log k, not
// with n) and its low-latency protocols; with in-network reduction (NVLink SHARP, InfiniBand SHARP), which about halves
// an all_reduce's traffic; where the network has fewer adapters than ranks or is oversubscribed, unless the machine's
// inter-node bandwidth is given as a rank's share; and where several collectives share a link.

double Seconds(Nanos nanos) { return static_cast<double>(nanos.count()) * 1e-9; }

double LinkSeconds(Bytes bytes, const Link& link) { return Seconds(link.latency) + SecondsAt(bytes, link.bandwidth); }

struct Placement {
  std::int64_t ranks, on_node, nodes;
};

Placement PlacementOf(const Group& group) {
  TIDEMARK_CHECK(group.size >= 1 && group.ranks_per_node >= 1);
  const std::int64_t on_node = std::min(group.size, group.ranks_per_node);
  return {group.size, on_node, CeilDiv(group.size, on_node)};
}

BytesPerSec RingBandwidth(const Placement& at, const Machine& machine) {
  if (at.nodes == 1) {
    return machine.intra_node.bandwidth;
  }
  if (at.on_node == 1) {
    return machine.inter_node.bandwidth;
  }
  return std::min(machine.intra_node.bandwidth, machine.inter_node.bandwidth * static_cast<double>(at.on_node));
}

double RingSeconds(CollectiveKind kind, Bytes payload, const Placement& at, const Machine& machine) {
  const std::int64_t rounds = kind == CollectiveKind::all_reduce ? 2 : 1;
  const std::int64_t crossings = rounds * (at.nodes - 1);
  const std::int64_t steps = rounds * (at.ranks - 1);
  const double latency = static_cast<double>(steps - crossings) * Seconds(machine.intra_node.latency) +
                         static_cast<double>(crossings) * Seconds(machine.inter_node.latency);
  return latency + SecondsAt(WireBytes(kind, payload, at.ranks), RingBandwidth(at, machine));
}

double PairwiseSeconds(Bytes payload, const Placement& at, const Machine& machine) {
  const double share = static_cast<double>(payload.count()) / static_cast<double>(at.ranks);
  const auto exchange = [&](const Link& link) { return Seconds(link.latency) + share / link.bandwidth.per_second(); };
  double seconds = 0;
  if (at.on_node > 1) {
    seconds += static_cast<double>(at.on_node - 1) * exchange(machine.intra_node);
  }
  if (at.ranks > at.on_node) {
    seconds += static_cast<double>(at.ranks - at.on_node) * exchange(machine.inter_node);
  }
  return seconds;
}

}  // namespace

Nanos CollectiveTime(CollectiveKind kind, Bytes payload, const Group& group, const Machine& machine) {
  const Placement at = PlacementOf(group);
  if (at.ranks == 1 || payload == Bytes(0)) {
    return Nanos(0);
  }
  if (IsShift(kind)) {
    return MessageTime(payload, at.nodes > 1, machine);
  }
  return RoundToNanos(kind == CollectiveKind::all_to_all ? PairwiseSeconds(payload, at, machine)
                                                         : RingSeconds(kind, payload, at, machine));
}

Nanos MessageTime(Bytes bytes, bool crosses_nodes, const Machine& machine) {
  return RoundToNanos(LinkSeconds(bytes, crosses_nodes ? machine.inter_node : machine.intra_node));
}

}  // namespace tidemark

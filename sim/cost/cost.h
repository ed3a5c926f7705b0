// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/quantity.h"
#include "models/machine/machine.h"
#include "sim/program/program.h"

namespace tidemark {

/// How long each node of a program takes, by node index: kernels, collectives, messages and copies on their stream; 0
/// for nodes that take no device time. Each is rounded to a nanosecond exactly once, here.
struct Costs {
  std::vector<Nanos> device;
  Nanos host_issue;  ///< host time of every leaf that reaches the device
  /// Machine::overlap is false: what is issued to another stream begins when the compute stream has come to it, and
  /// that stream goes on behind it.
  bool streams_take_turns = false;
};

/// How fast the machine multiplies in `dtype`. A machine file need not list every dtype: one that is missing runs as
/// fp32 does (a V100 has no bf16 units), and where fp32 is missing too, as the slowest that is listed.
FlopsPerSec PeakOf(const Machine& machine, DType dtype);

/// What a kernel takes beside nothing: max(flops / achievable rate, bytes / achievable bandwidth) + launch, flops
/// stretched by tile and wave quantisation; of kinds that were measured on the machine work / rate + launch
/// (models/machine/rates.h). An operator without work is not launched. Of attention with a window in some layers the
/// mean of both kinds, neither of which takes longer than without a window. Rounded once, when it is known what
/// collectives beside it cost (overlap.h).
double KernelSeconds(const Operator& op, const Machine& machine);

/// Latency of the algorithm's steps plus wire bytes over the slowest link the group crosses.
Nanos CollectiveTime(CollectiveKind kind, Bytes payload, const Group& group, const Machine& machine);

/// Point to point: latency + bytes / bandwidth of the link.
Nanos MessageTime(Bytes bytes, bool crosses_nodes, const Machine& machine);

/// What a kernel on the host takes where `ranks` of its node share the host: max(flops / rate, bytes / bandwidth), each
/// rank having an equal part of both. The machine knows its host.
Nanos HostTime(const Operator& op, const Machine& machine, std::int64_t ranks);

/// What one node of a program takes on its stream beside nothing, where `ranks_on_node` ranks share a host.
Nanos NodeTime(const Program& program, const Node& node, const Machine& machine, std::int64_t ranks_on_node);
/// Of a step, all of whose ranks are there.
std::int64_t RanksOnNode(const StepProgram& step, const Machine& machine);

/// As if there were no roles but this one.
Costs Price(const Program& program, const Machine& machine);
/// Of every role, in order.
std::vector<Costs> PriceAll(const StepProgram& step, const Machine& machine);

}  // namespace tidemark

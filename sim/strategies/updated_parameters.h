// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "sim/lower/role.h"

namespace tidemark {

/// Elements of each parameter of one block that this rank's optimizer updates, in order: of all that it trains, or with
/// `shard.optimizer` an equal part for each data-parallel rank, rounded up. So the SPMD partitioner cuts arrays, whose
/// last part it pads, and nanotron's ZeroDistributedOptimizer parameters, whose last ranks' parts have one element less
/// where ranks do not divide them: rank 0's are these.
std::vector<std::int64_t> UpdatedSizes(const Job& job, const Block& block);
/// Of the whole block.
std::int64_t UpdatedElements(const Job& job, const Block& block);

/// What a buffer of these elements holds of the block at a position; nothing where they are all of it.
std::vector<Holding> HoldsUpdated(const Role& role, std::int64_t position);
/// The same of each run's blocks, for Role::PerBlock.
std::vector<Holding> HoldsUpdatedOfRuns(const Role& role);

/// Brings the parts of `elements` parameters that each rank has updated together on all ranks, on `stream`. Orders
/// nothing: the streams are the caller's.
void GatherUpdated(Role& role, StreamId stream, GroupId group, std::int64_t elements, std::vector<BufferRef> parts,
                   std::vector<BufferRef> whole);

/// Writes `gathers()`, which starts when the compute stream has updated, and lets that stream wait for its end.
template <class Gathers>
void BetweenUpdateAndUse(Role& role, StreamId stream, Gathers gathers) {
  role.builder.Order(stream, role.compute, "updated");
  gathers();
  role.builder.Order(role.compute, stream, "parameters gathered");
}

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/team.cuh"

namespace tidemark::kernels::cuda {

/// Below as many elements per team, more teams are not worth a second kernel.
inline constexpr std::int64_t kSumOfOneTeam = 1 << 14;

/// partials[row] = sum of term(i) over the row's share of [0, count).
template <class C, class Term>
struct PartialSum {
  std::int64_t count, share;
  Term term;
  C* partials;

  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t begin = row * share, end = begin + share;
    const C sum = team.Sum<C>(begin, end < count ? end : count, term);
    team.Each(1, [&](std::int64_t) { partials[row] = sum; });
  }
};

template <class C, class Term, class Store>
struct TotalSum {
  std::int64_t count;
  Term term;
  Store store;

  __host__ __device__ void operator()(const Team& team, std::int64_t) const {
    const C sum = team.Sum<C>(0, count, term);
    team.Each(1, [&](std::int64_t) { store(sum); });
  }
};

template <class C>
struct ReadPartial {
  const C* partials;
  __host__ __device__ C operator()(std::int64_t i) const { return partials[i]; }
};

/// Calls `store(sum of term(i))`, i in [0, count), once; also of none. As many teams as there is work for share it, so
/// that the order of additions depends on `count` alone. The error is about (count / kThreads + 16) roundings with one
/// team, by as many times less as there are teams.
template <class C, class Term, class Store>
void SumAll(const Queue& queue, std::int64_t count, const Term& term, const Store& store) {
  const std::int64_t most = queue.scratch == nullptr ? 1 : Queue::kPartialSums;
  const std::int64_t teams = std::min(most, (count + kSumOfOneTeam - 1) / kSumOfOneTeam);
  if (teams <= 1) {
    EachRow(queue, 1, TotalSum<C, Term, Store>{count, term, store});
    return;
  }
  auto* partials = static_cast<C*>(queue.scratch);
  const std::int64_t share = (count + teams - 1) / teams;
  EachRow(queue, teams, PartialSum<C, Term>{count, share, term, partials});
  EachRow(queue, 1, TotalSum<C, ReadPartial<C>, Store>{teams, {partials}, store});
}

}  // namespace tidemark::kernels::cuda

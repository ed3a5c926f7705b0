// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "sim/lower/role.h"

namespace tidemark {

/// FSDP's rate limiter (_FreeEventQueue): every free of unsharded parameters puts an event of the compute stream into a
/// queue; every unshard takes the oldest one out if there are two or more, and the host waits for it.
///
/// A leaf that lets the host wait for one event does not exist, but the host can wait for a stream: the k-th youngest
/// event of the queue is where "limiter k" stands, a stream to which nothing but waits are issued.
class GatherLimiter {
 public:
  /// `waiting`: events that the step before has left in the queue. They are over when the step begins.
  GatherLimiter(Role& role, bool on, std::int64_t waiting) : role_(role), on_(on), waiting_(on ? waiting : 0) {}

  /// Parameters were freed behind the compute work issued so far.
  void Freed();
  /// Before a gather is issued, needed or not.
  void WaitForOne();

  std::int64_t waiting() const { return waiting_; }

 private:
  static constexpr std::int64_t kMostInFlight = 2;  ///< _max_num_inflight_all_gathers

  StreamId Place(std::int64_t youngest);

  Role& role_;
  const bool on_;
  std::int64_t waiting_;
  std::vector<StreamId> places_;  ///< [0] is the youngest
};

/// Events left in the queue behind a synchronised microbatch, once it has run for a while: what GatherLimiter begins a
/// step with. `root`: there is a root unit.
struct LimiterPattern {
  std::int64_t layers = 0;
  bool root = true, reshards_after_forward = true;
  bool prefetches_before = true;  ///< the unit below is unsharded before the backward of this one...
  bool prefetches_after = false;  ///< ... or behind it
};
std::int64_t EventsLeft(const LimiterPattern& pattern);

}  // namespace tidemark

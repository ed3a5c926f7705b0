// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/deepspeed/zero3_fetch.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

namespace tidemark {
namespace {

class Coordinator {
 public:
  Coordinator(const ModuleTrace& trace, const Shard& shard, bool traced, std::vector<bool> available)
      : trace_(trace), shard_(shard), traced_(traced), followed_(trace.parameters.size()) {
    plan_.available = std::move(available);
    plan_.steps.resize(trace.uses.size());
    elements_before_.reserve(trace.uses.size() + 1);
    std::int64_t elements = 0;
    for (std::size_t step = 0; step < trace.uses.size(); ++step) {
      elements_before_.push_back(elements);
      for (const std::int64_t member : trace.uses[step].members) {
        queue_.push_back({member, static_cast<std::int64_t>(step)});
        elements += Of(member).elements;
      }
    }
    elements_before_.push_back(elements);
    for (auto later = queue_.rbegin(); later != queue_.rend(); ++later) {
      later->next = std::exchange(followed_[Slot(later->member)].next, queue_.rend() - later - 1);
    }
  }

  FetchPlan Run() && {
    // Modules of one block may overlap, so passes end in the order of their last actions.
    std::vector<std::size_t> open;
    for (std::size_t step = 0; step < trace_.uses.size(); ++step) {
      const ModuleUse& use = trace_.uses[step];
      ReleaseThose(open, [&](std::size_t other) {
        const ModuleUse& before = trace_.uses[other];
        return before.position != use.position || before.last < use.first || IsForward(other) != IsForward(step);
      });
      Fetch(step);
      open.insert(
          std::ranges::upper_bound(open, use.last, {}, [&](std::size_t other) { return trace_.uses[other].last; }),
          step);
    }
    ReleaseThose(open, [](std::size_t) { return true; });
    for (std::size_t slot = 0; slot < plan_.available.size(); ++slot) {
      if (!late_.empty() && plan_.available[slot] && late_[slot]) {
        plan_.available[slot] = false;
        plan_.released_late.push_back(static_cast<std::int64_t>(slot));
      }
    }
    return std::move(plan_);
  }

 private:
  static std::size_t Slot(std::int64_t member) { return static_cast<std::size_t>(member); }
  const ModuleTrace::Traced& Of(std::int64_t member) const { return trace_.parameters[Slot(member)]; }
  bool IsForward(std::size_t step) const { return step < trace_.forward_uses; }
  bool IsMissing(std::int64_t member) const {
    return !plan_.available[Slot(member)] && followed_[Slot(member)].inflight < 0;
  }

  template <class Ends>
  void ReleaseThose(std::vector<std::size_t>& open, Ends ends) {
    std::erase_if(open, [&](std::size_t step) {
      if (ends(step)) {
        Release(step);
        return true;
      }
      return false;
    });
  }

  void Fetch(std::size_t step) {
    const std::vector<std::int64_t>& members = trace_.uses[step].members;
    FetchStep& here = plan_.steps[step];
    here.gather = Gather(members);
    for (const std::int64_t member : members) {
      ++followed_[Slot(member)].users;
      Take(member, here);
    }
    if (traced_) {
      ForgetQueued(members);
      Prefetch(here);
    }
    ++fetches_;
  }

  /// Those of `wanted` that are missing; nothing where none is.
  std::optional<std::size_t> Gather(const std::vector<std::int64_t>& wanted) {
    const std::size_t number = plan_.sets.size();
    GatherSet set;
    for (const std::int64_t member : wanted) {
      if (IsMissing(member)) {
        set.members.push_back(member);
        live_ += Of(member).elements;
      }
    }
    if (set.members.empty()) {
      return std::nullopt;
    }
    std::sort(set.members.begin(), set.members.end());
    for (const std::int64_t member : set.members) {
      followed_[Slot(member)].inflight = static_cast<std::int64_t>(number);
    }
    if (set.members.size() > 1) {
      while (std::ranges::any_of(flat_, [&](std::size_t other) {
        return plan_.sets[other].members.front() == set.members.front() && plan_.sets[other].copy == set.copy;
      })) {
        ++set.copy;
      }
      flat_.push_back(number);
    }
    under_way_.push_back({false, std::ssize(set.members)});
    plan_.sets.push_back(std::move(set));
    return number;
  }

  /// Waits for a parameter that is under way.
  void Take(std::int64_t member, FetchStep& here) {
    const std::int64_t inflight = std::exchange(followed_[Slot(member)].inflight, -1);
    if (inflight < 0) {
      return;
    }
    plan_.available[Slot(member)] = true;
    const std::size_t number = Slot(inflight);
    if (plan_.sets[number].members.size() == 1) {
      return;
    }
    if (!std::exchange(under_way_[number].landed, true)) {
      here.landings.push_back(number);
    }
    if (--under_way_[number].left == 0) {
      std::erase(flat_, number);
      here.given_back.push_back(number);
    }
  }

  /// Takes this module's parameters off the queue, unless an earlier prefetch has.
  void ForgetQueued(const std::vector<std::int64_t>& members) {
    const auto fetched_now = std::count_if(members.begin(), members.end(), [&](std::int64_t member) {
      return followed_[Slot(member)].fetched_for < fetches_;
    });
    for (std::int64_t i = 0; i < fetched_now && head_ < queue_.size(); ++i, ++head_) {
      followed_[Slot(queue_[head_].member)].fetched_for = queue_[head_].step;
    }
  }

  void Prefetch(FetchStep& here) {
    const std::int64_t most = std::min(shard_.max_live_elements - live_, shard_.prefetch_elements);
    wanted_.clear();
    std::int64_t elements = 0;
    for (; head_ < queue_.size() && elements < most; ++head_) {
      const Queued& queued = queue_[head_];
      std::int64_t& fetched_for = followed_[Slot(queued.member)].fetched_for;
      fetched_for = std::max(fetched_for, queued.step);
      if (IsMissing(queued.member) && std::find(wanted_.begin(), wanted_.end(), queued.member) == wanted_.end()) {
        wanted_.push_back(queued.member);
        elements += Of(queued.member).elements;
      }
    }
    here.prefetch = Gather(wanted_);
  }

  void Release(std::size_t step) {
    const ModuleUse& use = trace_.uses[step];
    for (const std::int64_t member : use.members) {
      --followed_[Slot(member)].users;
      if (use.released_late) {
        late_.resize(plan_.available.size());
        late_[Slot(member)] = !Of(member).persistent;
      } else if (plan_.available[Slot(member)] && followed_[Slot(member)].users == 0 && MayGo(member)) {
        plan_.available[Slot(member)] = false;
        live_ -= Of(member).elements;
        plan_.steps[step].released.push_back(member);
      }
    }
  }

  bool MayGo(std::int64_t member) {
    if (!traced_) {
      return true;
    }
    Followed& followed = followed_[Slot(member)];
    if (Of(member).persistent || followed.fetched_for > fetches_) {
      return false;
    }
    while (followed.next >= 0 && queue_[Slot(followed.next)].step < fetches_) {
      followed.next = queue_[Slot(followed.next)].next;
    }
    return followed.next < 0 ||
           elements_before_[Slot(queue_[Slot(followed.next)].step)] - elements_before_[Slot(fetches_)] >=
               shard_.reuse_distance;
  }

  struct UnderWay {
    bool landed = false;
    std::int64_t left = 0;
  };
  /// A parameter in the trace.
  struct Queued {
    std::int64_t member = 0, step = 0;
    std::int64_t next = -1;  ///< its next place in the queue, or -1
  };
  struct Followed {
    std::int64_t inflight = -1;     ///< its gather, or -1
    std::int64_t fetched_for = -1;  ///< the latest step it was taken off the queue for, or -1
    std::int64_t users = 0;         ///< modules under way
    std::int64_t next = -1;         ///< in the queue, first of the uses that nobody has looked past, or -1
  };

  const ModuleTrace& trace_;
  const Shard& shard_;
  bool traced_;
  FetchPlan plan_;
  std::vector<UnderWay> under_way_;            ///< parallel to the plan's sets
  std::vector<std::size_t> flat_;              ///< sets of several members that are under way
  std::vector<Followed> followed_;             ///< by parameter
  std::vector<std::int64_t> elements_before_;  ///< by step: elements of all modules before it
  std::vector<Queued> queue_;                  ///< the whole trace; from head_ on it is still to be fetched
  std::size_t head_ = 0;
  std::vector<std::int64_t> wanted_;  ///< by the prefetch under way
  std::vector<bool> late_;
  std::int64_t live_ = 0;     ///< elements gathered since the microbatch began and not released
  std::int64_t fetches_ = 0;  ///< so far
};

}  // namespace

FetchPlan PlanFetches(const ModuleTrace& trace, const Shard& shard, bool traced, std::vector<bool> available) {
  return Coordinator(trace, shard, traced, std::move(available)).Run();
}

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/deepspeed/zero3_fetch.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace tidemark {
namespace {

class Coordinator {
 public:
  Coordinator(const ModuleTrace& trace, const Shard& shard, bool traced, std::vector<bool> available)
      : trace_(trace),
        shard_(shard),
        traced_(traced),
        inflight_(trace.parameters.size(), -1),
        fetched_for_(trace.parameters.size(), -1),
        users_(trace.parameters.size(), 0),
        next_uses_(trace.parameters.size()) {
    plan_.available = std::move(available);
    plan_.steps.resize(trace.uses.size());
    elements_before_.push_back(0);
    for (std::size_t step = 0; step < trace.uses.size(); ++step) {
      std::int64_t elements = elements_before_.back();
      for (const std::int64_t member : trace.uses[step].members) {
        queue_.push_back({member, static_cast<std::int64_t>(step)});
        next_uses_[Slot(member)].push_back(static_cast<std::int64_t>(step));
        elements += Of(member).elements;
      }
      elements_before_.push_back(elements);
    }
  }

  FetchPlan Run() && {
    // Modules of one block may overlap, so passes end in the order of their last actions.
    std::vector<std::size_t> open;
    for (std::size_t step = 0; step < trace_.uses.size(); ++step) {
      const ModuleUse& use = trace_.uses[step];
      ReleaseThose(open, [&](const ModuleUse& other) {
        return other.position != use.position || other.last < use.first || IsForward(other) != IsForward(use);
      });
      Fetch(step);
      open.push_back(step);
    }
    ReleaseThose(open, [](const ModuleUse&) { return true; });
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
  bool IsForward(const ModuleUse& use) const {
    return static_cast<std::size_t>(&use - trace_.uses.data()) < trace_.forward_uses;
  }
  bool IsMissing(std::int64_t member) const { return !plan_.available[Slot(member)] && inflight_[Slot(member)] < 0; }

  template <class Ends>
  void ReleaseThose(std::vector<std::size_t>& open, Ends ends) {
    std::stable_sort(open.begin(), open.end(),
                     [&](std::size_t a, std::size_t b) { return trace_.uses[a].last < trace_.uses[b].last; });
    std::erase_if(open, [&](std::size_t step) {
      if (ends(trace_.uses[step])) {
        Release(step);
        return true;
      }
      return false;
    });
  }

  void Fetch(std::size_t step) {
    const std::vector<std::int64_t>& members = trace_.uses[step].members;
    FetchStep& here = plan_.steps[step];
    Gather(members, here.gathers);
    for (const std::int64_t member : members) {
      ++users_[Slot(member)];
      Take(member, here);
    }
    if (traced_) {
      ForgetQueued(members);
      Prefetch(here);
    }
    ++fetches_;
  }

  void Gather(const std::vector<std::int64_t>& wanted, std::vector<GatherSet>& gathers) {
    GatherSet set;
    for (const std::int64_t member : wanted) {
      if (IsMissing(member)) {
        set.members.push_back(member);
        live_ += Of(member).elements;
      }
    }
    if (set.members.empty()) {
      return;
    }
    std::sort(set.members.begin(), set.members.end());
    for (const std::int64_t member : set.members) {
      inflight_[Slot(member)] = static_cast<std::int64_t>(sets_.size());
    }
    if (set.members.size() > 1) {
      std::set<std::int64_t>& copies = copies_[set.members.front()];
      while (!copies.insert(set.copy).second) {
        ++set.copy;
      }
    }
    sets_.push_back({set, false, static_cast<std::int64_t>(set.members.size())});
    gathers.push_back(std::move(set));
  }

  /// Waits for a parameter that is under way.
  void Take(std::int64_t member, FetchStep& here) {
    const std::int64_t number = std::exchange(inflight_[Slot(member)], -1);
    if (number < 0) {
      return;
    }
    UnderWay& under_way = sets_[Slot(number)];
    const GatherSet& set = under_way.set;
    plan_.available[Slot(member)] = true;
    if (set.members.size() > 1 && !std::exchange(under_way.landed, true)) {
      here.landings.push_back(set);
    }
    if (--under_way.left == 0 && set.members.size() > 1) {
      copies_[set.members.front()].erase(set.copy);
      here.given_back.push_back(set);
    }
  }

  /// Takes this module's parameters off the queue, unless an earlier prefetch has.
  void ForgetQueued(const std::vector<std::int64_t>& members) {
    const auto fetched_now = std::count_if(members.begin(), members.end(),
                                           [&](std::int64_t member) { return fetched_for_[Slot(member)] < fetches_; });
    for (std::int64_t i = 0; i < fetched_now && head_ < queue_.size(); ++i, ++head_) {
      fetched_for_[Slot(queue_[head_].first)] = queue_[head_].second;
    }
  }

  void Prefetch(FetchStep& here) {
    const std::int64_t most = std::min(shard_.max_live_elements - live_, shard_.prefetch_elements);
    std::vector<std::int64_t> wanted;
    std::int64_t elements = 0;
    for (; head_ < queue_.size() && elements < most; ++head_) {
      const auto [member, step] = queue_[head_];
      fetched_for_[Slot(member)] = std::max(fetched_for_[Slot(member)], step);
      if (IsMissing(member) && std::find(wanted.begin(), wanted.end(), member) == wanted.end()) {
        wanted.push_back(member);
        elements += Of(member).elements;
      }
    }
    Gather(wanted, here.prefetches);
  }

  void Release(std::size_t step) {
    const ModuleUse& use = trace_.uses[step];
    for (const std::int64_t member : use.members) {
      --users_[Slot(member)];
      if (use.released_late) {
        late_.resize(plan_.available.size());
        late_[Slot(member)] = !Of(member).persistent;
      } else if (plan_.available[Slot(member)] && users_[Slot(member)] == 0 && MayGo(member)) {
        plan_.available[Slot(member)] = false;
        live_ -= Of(member).elements;
        plan_.steps[step].released.push_back(member);
      }
    }
  }

  bool MayGo(std::int64_t member) const {
    if (!traced_) {
      return true;
    }
    if (Of(member).persistent || fetched_for_[Slot(member)] > fetches_) {
      return false;
    }
    const std::vector<std::int64_t>& uses = next_uses_[Slot(member)];
    const auto next = std::lower_bound(uses.begin(), uses.end(), fetches_);
    return next == uses.end() ||
           elements_before_[Slot(*next)] - elements_before_[Slot(fetches_)] >= shard_.reuse_distance;
  }

  struct UnderWay {
    GatherSet set;
    bool landed = false;
    std::int64_t left = 0;
  };

  const ModuleTrace& trace_;
  const Shard& shard_;
  bool traced_;
  FetchPlan plan_;
  std::vector<UnderWay> sets_;
  std::map<std::int64_t, std::set<std::int64_t>> copies_;  ///< by first member: those of gathers under way
  std::vector<std::int64_t> inflight_;                     ///< by parameter: its gather, or -1
  std::vector<std::int64_t> fetched_for_;  ///< by parameter: the latest step it was taken off the queue for, or -1
  std::vector<std::int64_t> users_;        ///< by parameter: modules under way
  std::vector<std::vector<std::int64_t>> next_uses_;
  std::vector<std::int64_t> elements_before_;  ///< by step: elements of all modules before it
  std::vector<std::pair<std::int64_t, std::int64_t>> queue_;
  std::size_t head_ = 0;
  std::vector<bool> late_;
  std::int64_t live_ = 0;     ///< elements gathered since the microbatch began and not released
  std::int64_t fetches_ = 0;  ///< so far
};

}  // namespace

FetchPlan PlanFetches(const ModuleTrace& trace, const Shard& shard, bool traced, std::vector<bool> available) {
  return Coordinator(trace, shard, traced, std::move(available)).Run();
}

}  // namespace tidemark

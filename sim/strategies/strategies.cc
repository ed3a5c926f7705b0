// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "base/text.h"
#include "models/job/fields.h"
#include "sim/lower/tensor_pool.h"
#include "sim/lower/window.h"
#include "sim/schedules/pipeline_schedule.h"
#include "sim/strategies/strategy.h"

namespace tidemark {
namespace {

/// The strategies of the same system as `name` that have `value` by themselves where it is set by `field`.
std::vector<std::string> SiblingsWith(const Field<Job>& field, const std::string& value, std::string_view name) {
  std::vector<std::string> siblings;
  for (const std::vector<Strategy>& family : StrategyFamilies()) {
    const bool own = std::any_of(family.begin(), family.end(),
                                 [&](const Strategy& strategy) { return strategy.defaults.name == name; });
    for (const Strategy& strategy : family) {
      Job plain;
      plain.axes = strategy.defaults.axes;
      if (own && field.write(plain) == value) {
        siblings.push_back(strategy.defaults.name);
      }
    }
  }
  return siblings;
}

/// Of each system that divides experts over ranks, its first strategy that takes what the job says of its loss, if it
/// is not what `own` says by itself.
std::vector<std::string> DividingExperts(const Job& job, const StrategyDefaults& own) {
  std::vector<std::string> names;
  for (const std::vector<Strategy>& family : StrategyFamilies()) {
    const auto first = std::ranges::find_if(family, [&](const Strategy& one) {
      Job other = job;
      other.axes = one.defaults.axes;
      if (job.axes.loss_scale != own.axes.loss_scale) {
        other.axes.loss_scale = job.axes.loss_scale;
      }
      return one.defaults.divides_experts && one.refuse(other).ok();
    });
    if (first != family.end()) {
      names.push_back(first->defaults.name);
    }
  }
  return names;
}

/// "; its own: sync.bucket_elements": keys that a strategy has and that begin as one does that it has not, up to the
/// first underscore.
std::string OwnKeysLike(const std::string& key, const StrategyDefaults& strategy) {
  const std::string stem = key.substr(0, key.find('_') + 1);  // empty: no underscore
  std::vector<std::string> own;
  std::ranges::copy_if(strategy.keys, std::back_inserter(own),
                       [&](const std::string& other) { return !stem.empty() && other.starts_with(stem); });
  return own.empty() ? "" : fmt::format("; its own: {}", fmt::join(own, ", "));
}

}  // namespace

Status Strategy::Accept(const Job& job) const {
  TIDEMARK_TRY(refuse(job));
  TIDEMARK_TRY(WindowsOf(job));
  if (job.layout.ep > 1 && !defaults.divides_experts) {
    const std::vector<std::string> others = DividingExperts(job, defaults);
    return BadKey("layout.ep", fmt::format("{} does not divide experts over ranks here", defaults.name),
                  fmt::format("set layout.ep to 1: each rank then has all experts{}{}",
                              others.empty() ? "" : "; or use ", fmt::join(others, " or ")));
  }
  if (job.layout.pp > 1) {
    TIDEMARK_TRY(ScheduleOf(job.schedule).refuse(job));
  }
  if (job.layout.vpp > 1 && job.axes.optimizer_step.clip_norm > 0 &&
      std::ranges::find(schedules, Schedule::interleaved) == schedules.end()) {
    return BadKey("optimizer_step.clip_norm",
                  fmt::format("{} has no schedule with several chunks, and so no norm over them", defaults.name),
                  "set layout.vpp to 1, or optimizer_step.clip_norm to null");
  }
  Job plain;
  plain.axes = defaults.axes;
  for (const Field<Job>& field : JobFields()) {
    if (!IsAxis(field.key) || IsCommonAxis(field.key) || !field.write ||
        std::find(defaults.keys.begin(), defaults.keys.end(), field.key) != defaults.keys.end()) {
      continue;
    }
    const std::string usual = field.write(plain);
    if (field.write(job) != usual) {
      const std::vector<std::string> siblings = SiblingsWith(field, field.write(job), defaults.name);
      return BadKey(field.key, fmt::format("{} has no such setting", defaults.name),
                    fmt::format("set {} to {}, or leave it out{}{}", field.key, usual, OwnKeysLike(field.key, defaults),
                                siblings.empty() ? "" : fmt::format("; or use {}", fmt::join(siblings, " or "))));
    }
  }
  return Done{};
}

std::optional<WrongNumbers> Strategy::DeclaredWrong(const Job& job) const {
  if (auto numbers = wrong == nullptr ? std::nullopt : wrong(job)) {
    return numbers;
  }
  if (const auto pool = WhatIsWrongWithPool(job)) {
    return pool;
  }
  const Result<std::vector<WindowRun>> windows = WindowsOf(job);
  return windows ? WhatIsWrongWith(*windows, job) : std::nullopt;
}

RunningSum Strategy::SumOf(const Job& job) const {
  return running_sum == nullptr ? RunningSum{job.axes.precision.accumulate} : running_sum(job);
}

std::vector<IdleClaim> Strategy::IdleClaims() const {
  std::vector<IdleClaim> claims = keeps;
  for (IdleClaim& claim : CommonIdleClaims()) {
    claims.push_back(std::move(claim));
  }
  return claims;
}

RunningSum SumInMasterWhereScattered(const Job& job) {
  const Precision& precision = job.axes.precision;
  const Result<std::vector<WindowRun>> windows = WindowsOf(job);
  const bool waits = windows.ok() && std::any_of(windows->begin(), windows->end(),
                                                 [](const WindowRun& run) { return run.place.pending; });
  return waits ? RunningSum{precision.accumulate}
               : RunningSum{precision.master.value_or(precision.params), "precision.master"};
}

const std::vector<Strategy>& AllStrategies() {
  static const std::vector<Strategy> strategies = [] {
    std::vector<Strategy> all;
    for (std::vector<Strategy>& family : StrategyFamilies()) {
      all.insert(all.end(), family.begin(), family.end());
    }
    return all;
  }();
  return strategies;
}

std::vector<StrategyDefaults> KnownStrategies() {
  std::vector<StrategyDefaults> known;
  for (const Strategy& strategy : AllStrategies()) {
    known.push_back(strategy.defaults);
    known.back().refuse = [&strategy](const Job& job) { return strategy.Accept(job); };
  }
  return known;
}

Result<Strategy> FindStrategy(std::string_view name) {
  const std::vector<Strategy>& all = AllStrategies();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Strategy& strategy) { return strategy.defaults.name == name; });
  if (found != all.end()) {
    return *found;
  }
  std::vector<std::string> names;
  for (const Strategy& strategy : all) {
    names.push_back(strategy.defaults.name);
  }
  const std::string nearest = Nearest(name, names);
  return BadInput(fmt::format("there is no strategy '{}'", name), nearest.empty()
                                                                      ? "'tidemark list strategies' shows them all"
                                                                      : fmt::format("did you mean '{}'?", nearest));
}

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#include "sim/sweep/pricer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/text.h"
#include "models/job/throughput.h"
#include "models/machine/device_bytes.h"
#include "sim/sweep/global_batch.h"

namespace tidemark {

void PricedCombinations::Refuse(std::int64_t combination, const std::string& reason) {
  const auto [known, added] = places_.try_emplace(reason, static_cast<std::uint32_t>(reasons.size()));
  if (added) {
    reasons.push_back(reason);
  }
  refused.push_back({combination, known->second});
}

void PricedCombinations::Prune(std::int64_t combination, Bytes device) {
  ++pruned;
  if (const Nearest found{combination, device}; !nearest || found.ComesBefore(*nearest)) {
    nearest = found;
  }
}

GroupPricer::GroupPricer(const SweepGroups& groups, const SweepLimits& limits, JobTemplate job)
    : groups_(groups), limits_(limits), job_(std::move(job)) {
  constexpr std::int64_t kMostKept = 4096;
  machines_.resize(static_cast<std::size_t>(std::min(groups.machines(), kMostKept)));
  if (limits.global_batch && job_.follows()) {
    one_step_ = OneStepEach();
  }
}

Status GroupPricer::Price(std::int64_t group, PricedCombinations& priced) {
  TIDEMARK_TRY(FindAllowed(group, priced));
  if (std::ranges::find(allowed_, true) == allowed_.end()) {
    return Done{};
  }
  std::vector<const JobChange*> changes = groups_.OfGroup(group);
  if (one_step_) {
    changes.push_back(&*one_step_);
  }
  Result<Job> job = job_.Unchecked(changes);
  const Result<std::vector<std::int64_t>> counts =
      job ? CountsOf(*job) : Result<std::vector<std::int64_t>>(job.error());
  // Programs know of a machine only how many devices a node has.
  std::map<std::int64_t, StepFamily> families;
  const auto [begin, end] = groups_.MachinesOf(group);
  for (std::int64_t machine = begin; machine < end; ++machine) {
    if (!counts) {
      const std::int64_t before = std::ssize(priced.refused);
      RefuseMachine(group, machine, Reason(counts.error()), priced);
      priced.indivisible += job ? std::ssize(priced.refused) - before : 0;
      continue;
    }
    const Result<Machine>& found = MachineAt(machine);
    if (!found) {
      RefuseMachine(group, machine, Reason(found.error()), priced);
      continue;
    }
    job->machine = *found;
    std::vector<std::size_t> which(counts->size());
    std::iota(which.begin(), which.end(), std::size_t{0});
    const auto family = families.try_emplace(found->devices_per_node, *job, *counts, std::move(which)).first;
    PriceOn(*job, *counts, group, machine, family->second, priced);
  }
  return Done{};
}

const Result<Machine>& GroupPricer::MachineAt(std::int64_t machine) {
  const bool kept = machine < std::ssize(machines_);
  std::optional<Result<Machine>>& known = kept ? machines_[static_cast<std::size_t>(machine)] : other_machine_;
  if (!kept || !known) {
    known = job_.MachineWith(groups_.OfMachine(machine));
  }
  return *known;
}

Result<std::vector<std::int64_t>> GroupPricer::CountsOf(const Job& job) const {
  if (!limits_.global_batch) {
    return groups_.counts().empty() ? std::vector<std::int64_t>{job.accumulation_steps} : groups_.counts();
  }
  const std::optional<std::int64_t> steps =
      AccumulationSteps(*limits_.global_batch, job.micro_batch_size, job.layout.dp);
  if (!steps) {
    return BadInput(fmt::format("--global-batch {} is no multiple of micro_batch_size {} times layout.dp {}",
                                *limits_.global_batch, job.micro_batch_size, job.layout.dp));
  }
  return std::vector<std::int64_t>{*steps};
}

Status GroupPricer::FindAllowed(std::int64_t group, PricedCombinations& priced) {
  const auto [begin, end] = groups_.MachinesOf(group);
  first_machine_ = begin;
  allowed_.assign(static_cast<std::size_t>(end - begin) * counts(), true);
  if (!limits_.condition) {
    return Done{};
  }
  std::size_t at = 0;
  for (std::int64_t machine = begin; machine < end; ++machine) {
    for (std::size_t count = 0; count < counts(); ++count, ++at) {
      const std::int64_t combination = groups_.Combination(group, machine, count);
      TIDEMARK_ASSIGN(const bool holds, limits_.condition->Holds(groups_.space(), combination));
      if (!holds) {
        allowed_[at] = false;
        priced.Refuse(combination, "--where does not hold");
      }
    }
  }
  return Done{};
}

void GroupPricer::RefuseMachine(std::int64_t group, std::int64_t machine, const std::string& reason,
                                PricedCombinations& priced) {
  for (std::size_t count = 0; count < counts(); ++count) {
    if (Allowed(machine, count)) {
      priced.Refuse(groups_.Combination(group, machine, count), reason);
    }
  }
}

void GroupPricer::PriceOn(const Job& job, const std::vector<std::int64_t>& counts, std::int64_t group,
                          std::int64_t machine, StepFamily& family, PricedCombinations& priced) {
  for (const auto& [count, reason] : family.refused()) {
    if (Allowed(machine, count)) {
      priced.Refuse(groups_.Combination(group, machine, count), reason);
    }
  }
  if (family.steps().empty()) {
    return;
  }
  if (family.CheckOn(job.machine, family.Longest())) {
    PriceSteps(job, group, machine, family, priced);
    return;
  }
  std::vector<std::size_t> left;
  for (std::size_t i = 0; i < family.steps().size(); ++i) {
    const std::size_t count = family.steps()[i].count;
    const Status taken = family.CheckOn(job.machine, i);
    if (taken) {
      left.push_back(count);
    } else if (Allowed(machine, count)) {
      priced.Refuse(groups_.Combination(group, machine, count), Reason(taken.error()));
    }
  }
  if (!left.empty()) {
    std::ranges::sort(left);
    StepFamily shorter(job, counts, std::move(left));
    PriceSteps(job, group, machine, shorter, priced);
  }
}

void GroupPricer::PriceSteps(const Job& job, std::int64_t group, std::int64_t machine, StepFamily& family,
                             PricedCombinations& priced) {
  std::vector<PricedRow> rows;          // without times
  std::vector<std::size_t> rows_steps;  // parallel: which of the steps each is
  for (std::size_t i = 0; i < family.steps().size(); ++i) {
    const StepFacts& step = family.steps()[i];
    if (!Allowed(machine, step.count)) {
      continue;
    }
    PricedRow row;
    row.combination = groups_.Combination(group, machine, step.count);
    row.allocated = step.peak.allocated;
    row.host = step.peak.host;
    row.by_category = step.peak.by_category;
    row.phase = step.peak.phase;
    row.device = DeviceBytes(job.machine, {step.peak.allocated, std::nullopt, step.communicators});
    const Band usable = UsableMemory(job.machine, job.allocator.memory_fraction, step.communicators);
    row.usable = usable.high;
    row.fits = Fits(row.device, usable.high);
    const bool perhaps = row.device.low <= usable.low;
    if ((limits_.fit == SweepLimits::Fit::fitting && !row.fits) ||
        (limits_.fit == SweepLimits::Fit::perhaps_fitting && !perhaps)) {
      priced.Prune(row.combination, row.device.high);
    } else {
      rows.push_back(row);
      rows_steps.push_back(i);
    }
  }
  if (rows.empty()) {
    return;
  }
  family.Take(job.machine);
  if (front_) {
    const std::vector<Nanos> least = family.LeastSteps();
    std::size_t beaten = 0;
    while (beaten < rows.size() && front_->Beats(rows[beaten], least[rows_steps[beaten]])) {
      ++beaten;
    }
    if (beaten == rows.size()) {
      priced.pruned += std::ssize(rows);
      priced.pruned_fitting += std::ranges::count_if(rows, &PricedRow::fits);
      return;
    }
  }
  const std::vector<StepTime> times = family.Price();
  const auto peak = job.machine.peak.find(job.axes.precision.params);
  const FlopsPerSec fastest = peak == job.machine.peak.end() ? FlopsPerSec() : peak->second;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const StepFacts& step = family.steps()[rows_steps[i]];
    rows[i].time = times[rows_steps[i]];
    const Throughput throughput = MakeThroughput({step.tokens, step.model_flops, 0}, rows[i].time.step, fastest);
    rows[i].tokens = std::llround(step.tokens * static_cast<double>(job.Ranks()));
    rows[i].tokens_per_s_per_gpu = throughput.tokens_per_s_per_gpu;
    rows[i].mfu = throughput.mfu;
    if (front_) {
      front_->Add(rows[i]);
    }
  }
  priced.rows.insert(priced.rows.end(), rows.begin(), rows.end());
}

}  // namespace tidemark

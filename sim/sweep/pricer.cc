// SPDX-License-Identifier: Apache-2.0
#include "sim/sweep/pricer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "models/job/throughput.h"
#include "models/machine/device_bytes.h"

namespace tidemark {

void PricedCombinations::Refuse(std::int64_t combination, const std::string& reason) {
  auto known = std::ranges::find(reasons, reason);
  if (known == reasons.end()) {
    known = reasons.insert(reasons.end(), reason);
  }
  refused.push_back({combination, static_cast<std::uint32_t>(known - reasons.begin())});
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
}

Status GroupPricer::Price(std::int64_t group, PricedCombinations& priced) {
  TIDEMARK_TRY(FindAllowed(group, priced));
  if (std::ranges::find(allowed_, true) == allowed_.end()) {
    return Done{};
  }
  Result<Job> job = job_.Unchecked(groups_.OfGroup(group));
  const Result<std::vector<std::int64_t>> counts =
      job ? CountsOf(*job) : Result<std::vector<std::int64_t>>(job.error());
  // Programs know of a machine only how many devices a node has.
  std::map<std::int64_t, StepFamily> families;
  for (std::int64_t machine = 0; machine < groups_.machines(); ++machine) {
    if (!counts) {
      RefuseMachine(group, machine, Reason(counts.error()), priced);
      continue;
    }
    const Result<Machine>& found = MachineAt(machine);
    if (!found) {
      RefuseMachine(group, machine, Reason(found.error()), priced);
      continue;
    }
    job->machine = *found;
    const auto family = families.try_emplace(found->devices_per_node, *job, *counts).first;
    PriceOn(*job, group, machine, family->second, priced);
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
  const std::int64_t at_once = job.micro_batch_size * job.layout.dp;
  if (*limits_.global_batch % at_once != 0) {
    return BadInput(fmt::format("--global-batch {} is no multiple of micro_batch_size {} times layout.dp {}",
                                *limits_.global_batch, job.micro_batch_size, job.layout.dp));
  }
  return std::vector<std::int64_t>{*limits_.global_batch / at_once};
}

Status GroupPricer::FindAllowed(std::int64_t group, PricedCombinations& priced) {
  allowed_.assign(static_cast<std::size_t>(groups_.machines()) * counts(), true);
  if (!limits_.condition) {
    return Done{};
  }
  std::size_t at = 0;
  for (std::int64_t machine = 0; machine < groups_.machines(); ++machine) {
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

void GroupPricer::RefuseSteps(std::int64_t group, std::int64_t machine, const StepFamily& family,
                              const std::string& reason, PricedCombinations& priced) {
  for (const StepFacts& step : family.steps()) {
    if (Allowed(machine, step.count)) {
      priced.Refuse(groups_.Combination(group, machine, step.count), reason);
    }
  }
}

void GroupPricer::PriceOn(const Job& job, std::int64_t group, std::int64_t machine, StepFamily& family,
                          PricedCombinations& priced) {
  for (const auto& [count, reason] : family.refused()) {
    if (Allowed(machine, count)) {
      priced.Refuse(groups_.Combination(group, machine, count), reason);
    }
  }
  if (family.steps().empty()) {
    return;
  }
  if (const Status valid = family.CheckOn(job.machine); !valid) {
    RefuseSteps(group, machine, family, Reason(valid.error()), priced);
    return;
  }
  const auto device = [&](const StepFacts& step) {
    return DeviceBytes(job.machine, {step.peak.allocated, std::nullopt, step.communicators});
  };
  const auto wanted = [&](const StepFacts& step) { return Allowed(machine, step.count); };
  const auto matters = [&](const StepFacts& step) {
    return wanted(step) && (!limits_.only_fitting || Fits(device(step), job.machine.device_memory));
  };
  for (const StepFacts& step : family.steps()) {
    if (wanted(step) && !matters(step)) {
      priced.Prune(groups_.Combination(group, machine, step.count), device(step).high);
    }
  }
  if (std::ranges::none_of(family.steps(), matters)) {
    return;
  }
  const std::vector<StepTime> times = family.Price(job.machine);
  const auto peak = job.machine.peak.find(job.axes.precision.params);
  const FlopsPerSec fastest = peak == job.machine.peak.end() ? FlopsPerSec() : peak->second;
  for (std::size_t i = 0; i < times.size(); ++i) {
    const StepFacts& step = family.steps()[i];
    if (!matters(step)) {
      continue;
    }
    PricedRow& row = priced.rows.emplace_back();
    row.combination = groups_.Combination(group, machine, step.count);
    row.allocated = step.peak.allocated;
    row.host = step.peak.host;
    row.by_category = step.peak.by_category;
    row.phase = step.peak.phase;
    row.device = device(step);
    row.fits = Fits(row.device, job.machine.device_memory);
    row.time = times[i];
    const Throughput throughput = MakeThroughput({step.tokens, step.model_flops, 0}, row.time.step, fastest);
    row.tokens_per_s_per_gpu = throughput.tokens_per_s_per_gpu;
    row.mfu = throughput.mfu;
  }
}

}  // namespace tidemark

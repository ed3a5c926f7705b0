// SPDX-License-Identifier: Apache-2.0
#include "sim/sweep/alternative_jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/check.h"
#include "models/job/change.h"
#include "models/job/fields.h"
#include "sim/sweep/global_batch.h"
#include "sim/sweep/single_changes.h"

namespace tidemark {
namespace {

/// JobTemplate takes changes by their addresses.
Result<Job> JobWith(JobTemplate& job, const std::vector<JobChange>& changes) {
  std::vector<const JobChange*> all;
  for (const JobChange& change : changes) {
    all.push_back(&change);
  }
  return job.Unchecked(all);
}

std::vector<std::string> KeysOf(const SweepSpace& space) {
  std::vector<std::string> keys;
  for (const SweepAxis& axis : space.axes()) {
    if (axis.key == "layout") {
      keys.insert(keys.end(),
                  {"layout.dp", "layout.tp", "layout.pp", "layout.vpp", "layout.cp", "layout.layers_per_stage"});
    } else {
      keys.push_back(axis.key);
    }
  }
  keys.emplace_back("accumulation_steps");
  return keys;
}

}  // namespace

bool IsGivenToAlternatives(std::string_view key) {
  constexpr std::string_view kSections[] = {"machine", "network", "sequence_length", "last_window"};
  constexpr std::string_view kKeys[] = {"accumulation_steps", "layout",    "layout.dp",
                                        "layout.tp",          "layout.pp", "layout.cp"};
  return std::ranges::find(kKeys, key) != std::end(kKeys) ||
         std::ranges::any_of(kSections, [&](std::string_view section) {
           return key.starts_with(section) && (key.size() == section.size() || key[section.size()] == '.');
         });
}

std::string SettingOf(const Job& job, std::string_view key) {
  if (key == "strategy") {
    return job.strategy;
  }
  const auto field = std::ranges::find(JobFields(), key, &Field<Job>::key);
  return field == JobFields().end() || !field->write ? "" : field->write(job);
}

AlternativeJobs::AlternativeJobs(JobTemplate job, Job base, const SweepSpace& space, std::int64_t global_batch)
    : template_(std::move(job)),
      base_(std::move(base)),
      space_(space),
      global_batch_(global_batch),
      keys_(KeysOf(space)) {}

Result<Job> AlternativeJobs::At(std::int64_t combination) {
  const std::vector<SweepAxis>& axes = space_.axes();
  std::vector<std::size_t> at(axes.size());
  space_.At(combination, at);
  std::vector<JobChange> changes;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    TIDEMARK_ASSIGN(changes.emplace_back(), ParseJobChange(axes[i].key + "=" + axes[i].values[at[i]], "--vary"));
  }
  if (template_.follows()) {
    changes.push_back(OneStepEach());
  }
  TIDEMARK_ASSIGN(Job job, JobWith(template_, changes));
  const auto steps = AccumulationSteps(global_batch_, job.micro_batch_size, job.layout.dp);
  TIDEMARK_CHECK(steps.has_value());
  job.accumulation_steps = *steps;
  return job;
}

bool AlternativeJobs::ComputesTheSame(const Job& job) const {
  return !IsDeclaredWrong(job) && SameArithmetic(base_, job);
}

Result<std::vector<std::string>> AlternativeJobs::ChangeTo(const Job& job) {
  std::vector<JobChange> strategy;
  TIDEMARK_ASSIGN(strategy.emplace_back(), ParseJobChange("strategy=" + job.strategy, "--vary"));
  TIDEMARK_ASSIGN(const Job bare, JobWith(template_, strategy));
  std::vector<std::string> change;
  for (const std::string& key : keys_) {
    const std::string value = SettingOf(job, key);
    if (SettingOf(key == "strategy" ? base_ : bare, key) != value) {
      change.push_back(fmt::format("{}={}", key, value));
    }
  }
  // In another tool's config one value may follow from another, which is changed: it is said as well.
  TIDEMARK_ASSIGN(const std::vector<JobChange> changes, ParseJobChanges(change));
  TIDEMARK_ASSIGN(const Job told, JobWith(template_, changes));
  for (const std::string& key : keys_) {
    if (const std::string value = SettingOf(job, key); SettingOf(told, key) != value) {
      change.push_back(fmt::format("{}={}", key, value));
    }
  }
  return change;
}

std::vector<std::string> AlternativeJobs::Differences(const Job& a, const Job& b) const {
  std::vector<std::string> keys;
  for (const std::string& key : keys_) {
    if (key != "accumulation_steps" && SettingOf(a, key) != SettingOf(b, key)) {
      const std::string shown = key.starts_with("layout.") ? "layout" : key;
      if (std::ranges::find(keys, shown) == keys.end()) {
        keys.push_back(shown);
      }
    }
  }
  return keys;
}

}  // namespace tidemark

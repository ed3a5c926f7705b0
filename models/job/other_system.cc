// SPDX-License-Identifier: Apache-2.0
#include "models/job/other_system.h"

#include <algorithm>
#include <string>
#include <vector>

#include "models/job/fields.h"

namespace tidemark {
namespace {

bool Has(const StrategyDefaults& strategy, const std::string& key) {
  return std::find(strategy.keys.begin(), strategy.keys.end(), key) != strategy.keys.end();
}

/// What else a strategy wants (replicas) it wants with its own scale as well.
bool TakesLossScale(const StrategyDefaults& strategy, const ConfigValue& value) {
  const std::string key = "loss_scale";
  Job job;
  job.axes = strategy.axes;
  const Status own = strategy.refuse(job);
  const std::vector<Field<Job>>& fields = JobFields();
  const auto field = std::find_if(fields.begin(), fields.end(), [&](const Field<Job>& one) { return one.key == key; });
  if (!Has(strategy, key) || !field->read(job, value).ok()) {
    return false;
  }
  const Status with = strategy.refuse(job);
  return with.ok() || (!own.ok() && own.error().message == with.error().message);
}

bool IsOfASystem(const std::string& key) {
  return (key.starts_with("sync.") || key.starts_with("shard.") || key.starts_with("buffers.")) && !IsCommonAxis(key);
}

}  // namespace

void DropSettingsOfOthers(const Settings& theirs, const StrategyDefaults& strategy, Settings& settings) {
  for (const auto& [key, value] : theirs) {
    const bool is_others =
        key == "loss_scale" ? !TakesLossScale(strategy, value) : IsOfASystem(key) && !Has(strategy, key);
    const ConfigValue* still = Find(settings, key);
    if (is_others && still != nullptr && still->source == value.source) {
      settings.erase(key);
    }
  }
}

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "models/job/validate.h"
#include "tests/sim/axis_values.h"
#include "tests/sim/oracle_job.h"

namespace tidemark::strategy_keys_test {
namespace {

/// Windows and, within each of them, settings from which some change of a key is accepted that is refused from others.
std::vector<Job> BasesOf(const std::string& strategy) {
  std::vector<Job> windows(1, OracleJob(strategy, 4));
  windows.push_back(OracleJob(strategy, 1));
  windows.back().layout.dp = 1;
  for (const Sync::When when : {Sync::When::every, Sync::When::last}) {
    windows.push_back(windows[0]);
    windows.back().axes.sync.when = when;
  }
  for (const char* expression : {"(i + 1) % 2 == 0", "(i + 1) % steps == 0", "i >= 0"}) {
    for (const char* step : {"", "(i + 1) % steps == 0"}) {
      windows.push_back(windows[0]);
      Sync& sync = windows.back().axes.sync;
      sync.when = Sync::When::custom;
      sync.expression = expression;
      sync.step_expression = step;
    }
  }
  const std::vector<void (*)(Axes&)> settings = {
      [](Axes&) {},
      [](Axes& axes) { axes.shard.replicas = 2; },
      [](Axes& axes) { axes.shard.optimizer = true; },
      [](Axes& axes) { axes.sync.executable = Sync::Executable::branch; },
      [](Axes& axes) { axes.shard.reshard_after_forward = true; },
      [](Axes& axes) { axes.sync.coalesce = true; },
      [](Axes& axes) { axes.sync.coalesce = false; },
      [](Axes& axes) { axes.sync.forward_in_no_sync = true; },
      [](Axes& axes) {
        constexpr DType kWide = DType::fp32;
        axes.precision = {kWide, kWide, kWide, kWide, std::nullopt, kWide};
      },
      [](Axes& axes) { axes.precision.reduce = axes.precision.accumulate = axes.precision.gradients; },
  };
  std::vector<Job> bases;
  for (const Job& window : windows) {
    for (const auto& set : settings) {
      bases.push_back(window);
      set(bases.back().axes);
    }
  }
  return bases;
}

bool CanBeChanged(const Strategy& strategy, const std::string& key) {
  const Field<Job>& field = FieldOf(key);
  Dice dice(7);
  std::vector<std::string> values = WordsOf(key);
  values.push_back(ValueToTry(key, dice));
  const std::string usual = field.write(OracleJob(strategy.defaults.name, 4));
  const auto counts = [&](const Job& job) {
    return field.write(job) != usual && Validate(job).ok() && strategy.Accept(job).ok();
  };
  std::vector<Job> bases = BasesOf(strategy.defaults.name);
  for (const std::string& other : strategy.defaults.keys) {
    for (const std::string& value : WordsOf(other)) {
      Job job = bases.front();
      if (SetKey(job, other, value)) {
        bases.push_back(job);
      }
    }
  }
  for (const Job& base : bases) {
    if (counts(base)) {
      return true;
    }
    for (const std::string& value : values) {
      Job job = base;
      if (SetKey(job, key, value) && counts(job)) {
        return true;
      }
    }
  }
  return false;
}

// `tidemark job` prints what a strategy lists: a key that nobody can set to anything else has no place there.
TEST(Strategies, EveryKeyThatAStrategyListsCanBeChanged) {
  for (const Strategy& strategy : AllStrategies()) {
    for (const std::string& key : strategy.defaults.keys) {
      EXPECT_TRUE(CanBeChanged(strategy, key)) << strategy.defaults.name << ": " << key;
    }
  }
}

}  // namespace
}  // namespace tidemark::strategy_keys_test

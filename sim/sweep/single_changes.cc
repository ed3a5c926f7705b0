// SPDX-License-Identifier: Apache-2.0
#include "sim/sweep/single_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "models/job/fields.h"
#include "sim/lower/rank_parameters.h"
#include "sim/strategies/strategy.h"

namespace tidemark {
namespace {

std::string Set(std::string_view key, std::int64_t number) { return fmt::format("{}={}", key, number); }

/// The number that a key is written as; nothing for names, null and 0, which switches off.
std::optional<std::int64_t> NumberOf(const std::string& text) {
  const std::optional<std::int64_t> number = ParseWhole(text);
  return number && *number > 0 ? number : std::nullopt;
}

bool LooksAt(const Strategy& strategy, const std::string& key) {
  const std::vector<std::string>& keys = strategy.defaults.keys;
  return !IsAxis(key) || IsCommonAxis(key) || std::find(keys.begin(), keys.end(), key) != keys.end();
}

void AddFields(const Job& job, const Strategy& strategy, std::vector<SingleChange>& changes) {
  for (const Field<Job>& field : JobFields()) {
    if (!field.write || !LooksAt(strategy, field.key)) {
      continue;
    }
    const std::string now = field.write(job);
    for (const std::string& value : field.values) {
      if (value != now) {
        changes.push_back({fmt::format("{}={}", field.key, value)});
      }
    }
    const std::optional<std::int64_t> number = IsAxis(field.key) ? NumberOf(now) : std::nullopt;
    if (number) {
      if (*number > 1) {
        changes.push_back({Set(field.key, *number / 2)});
      }
      changes.push_back({Set(field.key, *number * 2)});
    }
  }
}

/// Each part of a layer that can be computed again, alone: attention is it by default. They come with the policy that
/// looks at them; under it each is a key of its own.
void AddRecomputedParts(const Job& job, std::vector<SingleChange>& changes) {
  if (job.axes.recompute.policy == Recompute::Policy::selective) {
    return;
  }
  const bool latent = AnyDecoder(job.network, [](const Decoder& d) { return d.IsLatent(); });
  for (const RecomputedPart& part : kRecomputedParts) {
    const bool missing = part.selected == &Recompute::latent_heads && !latent;
    if (part.selected != &Recompute::attention && !missing) {
      changes.push_back(
          {"recompute.policy=selective", "recompute.attention=false", fmt::format("recompute.{}=true", part.name)});
    }
  }
}

/// A bucket that is allocated whole and holds more than there is.
void AddBucket(const Job& job, const Strategy& strategy, std::vector<SingleChange>& changes) {
  const std::int64_t bucket = strategy.fixed_bucket == nullptr ? 0 : strategy.fixed_bucket(job);
  if (const std::int64_t parameters = RankParameters(job); parameters > 0 && parameters < bucket) {
    changes.push_back({Set("sync.bucket_elements", parameters)});
  }
}

void AddMicroBatches(const Job& job, std::vector<SingleChange>& changes) {
  const std::int64_t micro = job.micro_batch_size, steps = job.accumulation_steps;
  if (micro % 2 == 0) {
    changes.push_back({Set("micro_batch_size", micro / 2), Set("accumulation_steps", steps * 2)});
  }
  if (steps % 2 == 0) {
    changes.push_back({Set("micro_batch_size", micro * 2), Set("accumulation_steps", steps / 2)});
  }
}

void AddLayouts(const Job& job, std::vector<SingleChange>& changes) {
  const std::int64_t dp = job.layout.dp, steps = job.accumulation_steps;
  std::vector<std::pair<const char*, std::int64_t>> others = {{"layout.tp", job.layout.tp},
                                                              {"layout.pp", job.layout.pp}};
  if (job.layout.cp > 1) {
    others.emplace_back("layout.cp", job.layout.cp);
  }
  if (ExpertsOf(job.network) != nullptr) {  // laid over the same ranks, whatever else they share
    changes.push_back({Set("layout.ep", job.layout.ep * 2)});
    if (job.layout.ep % 2 == 0) {
      changes.push_back({Set("layout.ep", job.layout.ep / 2)});
    }
  }
  for (const auto& [key, ranks] : others) {
    if (dp % 2 == 0) {
      changes.push_back({Set(key, ranks * 2), Set("layout.dp", dp / 2), Set("accumulation_steps", steps * 2)});
    }
    if (ranks % 2 == 0 && steps % 2 == 0) {
      changes.push_back({Set(key, ranks / 2), Set("layout.dp", dp * 2), Set("accumulation_steps", steps / 2)});
    }
  }
}

}  // namespace

std::vector<SingleChange> SingleChanges(const Job& job) {
  std::vector<SingleChange> changes;
  if (const Result<Strategy> strategy = FindStrategy(job.strategy); strategy.ok()) {
    AddFields(job, *strategy, changes);
    AddRecomputedParts(job, changes);
    AddBucket(job, *strategy, changes);
  }
  for (const Strategy& strategy : AllStrategies()) {
    if (strategy.defaults.name != job.strategy) {
      changes.push_back({fmt::format("strategy={}", strategy.defaults.name)});
    }
  }
  AddMicroBatches(job, changes);
  AddLayouts(job, changes);
  return changes;
}

std::int64_t GlobalBatch(const Job& job) {
  const std::int64_t microbatches = job.CachesRepresentations() ? job.accumulation_steps : job.Microbatches();
  return job.micro_batch_size * microbatches * job.layout.dp;
}

bool SameArithmetic(const Job& a, const Job& b) {
  const auto softmax_in_16_bits = [](const Job& job) { return job.axes.loss == Partition::Loss::low_precision; };
  const Result<Strategy> of_a = FindStrategy(a.strategy), of_b = FindStrategy(b.strategy);
  const bool sums_alike = of_a.ok() && of_b.ok() && of_a->SumOf(a).dtype == of_b->SumOf(b).dtype;
  return sums_alike && a.axes.precision == b.axes.precision && a.optimizer == b.optimizer &&
         a.axes.optimizer_step.clip_norm == b.axes.optimizer_step.clip_norm &&
         softmax_in_16_bits(a) == softmax_in_16_bits(b) && a.CachesRepresentations() == b.CachesRepresentations();
}

bool ComputeAlike(const Job& a, const Job& b) { return GlobalBatch(a) == GlobalBatch(b) && SameArithmetic(a, b); }

bool IsDeclaredWrong(const Job& job) {
  const Result<Strategy> strategy = FindStrategy(job.strategy);
  return strategy.ok() && strategy->DeclaredWrong(job).has_value();
}

}  // namespace tidemark

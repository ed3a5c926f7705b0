// SPDX-License-Identifier: Apache-2.0
#include "sim/sweep/alternatives.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "models/job/fields.h"
#include "sim/strategies/strategy.h"

namespace tidemark {
namespace {

SweepAxis Strategies() {
  SweepAxis axis{"strategy", {}};
  for (const Strategy& strategy : AllStrategies()) {
    axis.values.push_back(strategy.defaults.name);
  }
  return axis;
}

/// All that a key takes.
SweepAxis ValuesOf(const std::string& key) {
  const auto field = std::ranges::find(JobFields(), key, &Field<Job>::key);
  return {key, field->values};
}

SweepAxis MicroBatches(const Job& job, std::int64_t global_batch) {
  std::set<std::int64_t> sizes = {job.micro_batch_size};
  for (std::int64_t size = 1; global_batch % size == 0; size *= 2) {
    sizes.insert(size);
  }
  SweepAxis axis{"micro_batch_size", {}};
  for (const std::int64_t size : sizes) {
    axis.values.push_back(std::to_string(size));
  }
  return axis;
}

std::vector<std::int64_t> DivisorsOf(std::int64_t number) {
  std::vector<std::int64_t> divisors;
  for (std::int64_t divisor = 1; divisor <= number / divisor; ++divisor) {
    if (number % divisor == 0) {
      divisors.push_back(divisor);
      if (divisor != number / divisor) {
        divisors.push_back(number / divisor);
      }
    }
  }
  std::ranges::sort(divisors);
  return divisors;
}

SweepAxis Layouts(const Job& job, const std::set<std::string>& kept) {
  const Layout& own = job.layout;
  const std::int64_t ranks = own.dp * own.tp * own.pp;
  const auto* decoder = std::get_if<Decoder>(&job.network.shape);
  const std::int64_t most_tp = std::max(own.tp, job.machine.devices_per_node);
  const std::int64_t most_pp = std::max(own.pp, decoder == nullptr ? std::int64_t{1} : decoder->layers);
  const auto stays = [&](const char* key, std::int64_t value, std::int64_t of_job) {
    return !kept.contains(key) || value == of_job;
  };
  SweepAxis axis{"layout", {}};
  for (const std::int64_t pp : DivisorsOf(ranks)) {
    for (const std::int64_t tp : DivisorsOf(ranks / pp)) {
      const std::int64_t dp = ranks / pp / tp;
      if (pp <= most_pp && tp <= most_tp && stays("layout.dp", dp, own.dp) && stays("layout.tp", tp, own.tp) &&
          stays("layout.pp", pp, own.pp)) {
        axis.values.push_back(fmt::format("{{dp: {}, tp: {}, pp: {}}}", dp, tp, pp));
      }
    }
  }
  return axis;
}

}  // namespace

const std::vector<std::string>& AlternativeKeys() {
  static const std::vector<std::string> keys = {"strategy",  "recompute.policy", "micro_batch_size", "layout",
                                                "layout.dp", "layout.tp",        "layout.pp"};
  return keys;
}

std::vector<SweepAxis> Alternatives(const Job& job, std::int64_t global_batch, const std::set<std::string>& kept) {
  std::vector<SweepAxis> axes;
  for (SweepAxis axis :
       {Strategies(), ValuesOf("recompute.policy"), Layouts(job, kept), MicroBatches(job, global_batch)}) {
    if (!kept.contains(axis.key)) {
      axes.push_back(std::move(axis));
    }
  }
  return axes;
}

}  // namespace tidemark

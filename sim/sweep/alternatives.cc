// SPDX-License-Identifier: Apache-2.0
#include "sim/sweep/alternatives.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
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

/// Up to here every micro batch is tried, beyond it powers of two.
constexpr std::int64_t kEverySize = 256;

SweepAxis MicroBatches(const Job& job, std::int64_t global_batch) {
  std::set<std::int64_t> sizes = {job.micro_batch_size};
  for (const std::int64_t size : DivisorsOf(global_batch)) {
    if (size <= kEverySize || std::has_single_bit(static_cast<std::uint64_t>(size))) {
      sizes.insert(size);
    }
  }
  SweepAxis axis{"micro_batch_size", {}};
  for (const std::int64_t size : sizes) {
    axis.values.push_back(std::to_string(size));
  }
  return axis;
}

/// How a pipeline of so many stages divides the layers: evenly where that can be, else with the layers that are left
/// over on stages in the middle, as the first also holds the embedding and the last the head. Too few are not divided.
std::string LayersPerStage(std::int64_t layers, std::int64_t stages) {
  if (layers % stages == 0 || layers < stages) {
    return "null";
  }
  std::vector<std::int64_t> each(static_cast<std::size_t>(stages), layers / stages);
  const std::int64_t left = layers % stages;
  for (std::int64_t i = 0; i < left; ++i) {
    ++each[static_cast<std::size_t>((stages - left) / 2 + i)];
  }
  return fmt::format("[{}]", fmt::join(each, ", "));
}

/// Those of one number of ranks that share a sequence.
void AddLayouts(const Job& job, const std::set<std::string>& kept, const std::vector<std::int64_t>& vpp,
                std::int64_t cp, SweepAxis& axis) {
  const Layout& own = job.layout;
  const std::int64_t ranks = job.Ranks() / cp;
  const auto* decoder = std::get_if<Decoder>(&job.network.shape);
  const std::int64_t most_tp = std::max(own.tp, job.machine.devices_per_node);
  const std::int64_t layers = decoder == nullptr ? 0 : decoder->layers;
  const auto stays = [&](const char* key, std::int64_t value, std::int64_t of_job) {
    return !kept.contains(key) || value == of_job;
  };
  const std::string sharing = cp == own.cp ? "" : fmt::format(", cp: {}", cp);
  for (const std::int64_t pp : DivisorsOf(ranks)) {
    for (const std::int64_t tp : DivisorsOf(ranks / pp)) {
      const std::int64_t dp = ranks / pp / tp;
      if (tp > most_tp || !stays("layout.dp", dp, own.dp) || !stays("layout.tp", tp, own.tp) ||
          !stays("layout.pp", pp, own.pp)) {
        continue;
      }
      for (const std::int64_t chunks : vpp) {
        if (pp <= std::max({std::int64_t{1}, own.pp, layers / chunks})) {
          const bool as_it_is = pp == own.pp && chunks == own.vpp;
          axis.values.push_back(
              fmt::format("{{dp: {}, tp: {}, pp: {}{}{}{}}}", dp, tp, pp, sharing,
                          chunks == own.vpp ? "" : fmt::format(", vpp: {}", chunks),
                          as_it_is ? "" : ", layers_per_stage: " + LayersPerStage(layers, pp * chunks)));
        }
      }
    }
  }
}

SweepAxis Layouts(const Job& job, const std::set<std::string>& kept, const std::vector<std::int64_t>& vpp,
                  const std::vector<std::int64_t>& cp) {
  SweepAxis axis{"layout", {}};
  for (const std::int64_t sharing : cp) {
    if (job.Ranks() % sharing == 0) {
      AddLayouts(job, kept, vpp, sharing, axis);
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

std::vector<SweepAxis> Alternatives(const Job& job, std::int64_t global_batch, const std::set<std::string>& kept,
                                    const std::vector<std::int64_t>& vpp, const std::vector<std::int64_t>& cp) {
  std::vector<SweepAxis> axes;
  for (SweepAxis axis :
       {Strategies(), ValuesOf("recompute.policy"), Layouts(job, kept, vpp, cp), MicroBatches(job, global_batch)}) {
    if (!kept.contains(axis.key)) {
      axes.push_back(std::move(axis));
    }
  }
  return axes;
}

}  // namespace tidemark

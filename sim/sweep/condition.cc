// SPDX-License-Identifier: Apache-2.0
#include "sim/sweep/condition.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "sim/sweep/global_batch.h"

namespace tidemark {
namespace {

/// The places of these among the names, which come first.
enum Size : std::size_t { kDp, kTp, kCp, kPp, kMicroBatch, kSteps };

std::int64_t Product(std::span<const std::int64_t> factors) {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) {
      return INT64_MAX;  // no job has so many ranks: whatever the condition says, the combination is refused
    }
  }
  return product;
}

}  // namespace

Result<SweepCondition> SweepCondition::Parse(const std::string& text, const SweepSpace& space, const Job& base,
                                             std::optional<std::int64_t> global_batch) {
  const std::vector<std::pair<std::string, std::int64_t>> sizes = {{"layout.dp", base.layout.dp},
                                                                   {"layout.tp", base.layout.tp},
                                                                   {"layout.cp", base.layout.cp},
                                                                   {"layout.pp", base.layout.pp},
                                                                   {"micro_batch_size", base.micro_batch_size},
                                                                   {"accumulation_steps", base.accumulation_steps},
                                                                   {"layout.vpp", base.layout.vpp},
                                                                   {"layout.ep", base.layout.ep},
                                                                   {"sequence_length", base.sequence_length}};
  std::vector<std::string> names;
  std::vector<Source> sources;
  for (const auto& [name, size] : sizes) {
    names.push_back(name);
    sources.push_back({0, {}, size});
  }
  for (std::size_t i = 0; i < space.axes().size(); ++i) {
    const SweepAxis& axis = space.axes()[i];
    const auto known = std::ranges::find(names, axis.key);
    std::optional<std::vector<std::int64_t>> numbers = NumbersOf(axis);
    if (!numbers && known != names.end()) {
      return BadInput(fmt::format("--where: the values of {} are not all whole numbers", axis.key),
                      "write its --vary in digits");
    }
    if (!numbers) {
      continue;
    }
    Source source{i, std::move(*numbers), 0};
    if (known == names.end()) {
      names.push_back(axis.key);
      sources.push_back(std::move(source));
    } else {
      sources[static_cast<std::size_t>(known - names.begin())] = std::move(source);
    }
  }
  names.emplace_back("ranks");
  Result<Expression> expression = Expression::Parse(text, names);
  if (!expression) {
    return std::move(expression).At("--where").error();
  }
  SweepCondition condition(std::move(*expression), text);
  condition.sources_ = std::move(sources);
  condition.global_batch_ = global_batch;
  return condition;
}

Result<bool> SweepCondition::Holds(const SweepSpace& space, std::int64_t combination) const {
  std::vector<std::size_t> at(space.axes().size());
  space.At(combination, at);
  std::vector<std::int64_t> values;
  values.reserve(sources_.size() + 1);
  for (const Source& source : sources_) {
    values.push_back(source.values.empty() ? source.fixed : source.values[at[source.axis]]);
  }
  if (global_batch_) {
    const auto steps = AccumulationSteps(*global_batch_, values[kMicroBatch], values[kDp]);
    if (!steps) {
      return true;  // refused for that
    }
    values[kSteps] = *steps;
  }
  values.push_back(Product(std::span(values).first(kPp + 1)));
  Result<std::int64_t> value = expression_.Evaluate(values);
  if (!value) {
    return std::move(value).At("--where").error();
  }
  return *value != 0;
}

}  // namespace tidemark

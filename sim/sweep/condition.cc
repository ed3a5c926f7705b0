// SPDX-License-Identifier: Apache-2.0
#include "sim/sweep/condition.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace tidemark {
namespace {

bool ReadNumbers(const std::vector<std::string>& texts, std::vector<std::int64_t>& numbers) {
  return std::ranges::all_of(texts, [&](const std::string& text) {
    const char* const end = text.data() + text.size();
    const auto [at, fault] = std::from_chars(text.data(), end, numbers.emplace_back());
    return fault == std::errc() && at == end;
  });
}

}  // namespace

Result<SweepCondition> SweepCondition::Parse(const std::string& text, const SweepSpace& space, const Job& base) {
  const std::vector<std::pair<std::string, std::int64_t>> sizes = {{"layout.dp", base.layout.dp},
                                                                   {"layout.tp", base.layout.tp},
                                                                   {"layout.cp", base.layout.cp},
                                                                   {"layout.pp", base.layout.pp},
                                                                   {"layout.vpp", base.layout.vpp},
                                                                   {"layout.ep", base.layout.ep},
                                                                   {"micro_batch_size", base.micro_batch_size},
                                                                   {"accumulation_steps", base.accumulation_steps},
                                                                   {"sequence_length", base.sequence_length}};
  std::vector<std::string> names;
  std::vector<Source> sources;
  for (const auto& [name, size] : sizes) {
    names.push_back(name);
    sources.push_back({0, {}, size});
  }
  for (std::size_t i = 0; i < space.axes().size(); ++i) {
    const SweepAxis& axis = space.axes()[i];
    Source source{i, {}, 0};
    if (!ReadNumbers(axis.values, source.values)) {
      continue;
    }
    const auto known = std::ranges::find(names, axis.key);
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
  values.push_back(values[0] * values[1] * values[2] * values[3]);  // dp, tp, cp, pp
  Result<std::int64_t> value = expression_.Evaluate(values);
  if (!value) {
    return std::move(value).At("--where").error();
  }
  return *value != 0;
}

}  // namespace tidemark

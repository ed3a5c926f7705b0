// SPDX-License-Identifier: Apache-2.0
#include "reports/check/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "base/text.h"
#include "models/configs/field.h"
#include "models/configs/value.h"
#include "traces/utf8.h"

namespace tidemark {
namespace {

constexpr std::int64_t kMostSteps = 1'000'000;
constexpr std::size_t kLongestName = 100;
constexpr std::int64_t kSmallestDevice = 1 << 20;

bool IsScenarioName(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName && Utf8(std::string(name)) == name &&
         std::none_of(name.begin(), name.end(), [](unsigned char letter) { return letter < 0x20 || letter == 0x7f; });
}

struct ScenarioName {
  Result<std::string> Read(const ConfigValue& value) const {
    if (value.kind != ConfigValue::Kind::scalar || !IsScenarioName(value.text)) {
      return BadInput(fmt::format("expected one line of at most {} letters, found {}", kLongestName, Describe(value)));
    }
    return value.text;
  }
  std::string Write(const std::string& name) const { return QuoteYaml(name); }
  std::string Example() const { return "llama-3-8b-fsdp2"; }
};

struct JobPath : Word {
  std::string Example() const { return "../jobs/llama-3-8b.yaml"; }
};

/// "5 %", "2.5%", "5".
struct Percent {
  Result<double> Read(const ConfigValue& value) const {
    double number = -1;
    const char* const end = value.text.data() + value.text.size();
    const auto [at, fault] = std::from_chars(value.text.data(), end, number);
    std::string rest(at, end);
    std::erase(rest, ' ');
    if (value.kind != ConfigValue::Kind::scalar || fault != std::errc() || (!rest.empty() && rest != "%") ||
        !(number >= 0 && number <= 100)) {
      return BadInput(fmt::format("expected a share from 0 % to 100 %, found {}", Describe(value)));
    }
    return number;
  }
  std::string Write(double percent) const { return fmt::format("{} %", percent); }
  std::string Example() const { return "5 %"; }
};

/// As a value of `--set` is written; every scalar is a word, which means the same quoted or not.
std::string SetText(const ConfigValue& value) {
  std::vector<std::string> parts;
  switch (value.kind) {
    case ConfigValue::Kind::null:
      return "null";
    case ConfigValue::Kind::scalar:
      return QuoteYaml(value.text);
    case ConfigValue::Kind::list:
      for (const ConfigValue& item : value.items) {
        parts.push_back(SetText(item));
      }
      return fmt::format("[{}]", fmt::join(parts, ", "));
    case ConfigValue::Kind::map:
      for (const auto& [key, item] : value.fields) {
        parts.push_back(fmt::format("{}: {}", QuoteYaml(key), SetText(item)));
      }
      return fmt::format("{{{}}}", fmt::join(parts, ", "));
  }
  return {};
}

Status ReadSet(Scenario& scenario, const ConfigValue& value) {
  if (!value.is_map()) {
    return BadInput(fmt::format("expected keys of the job and their values, found {}", Describe(value)));
  }
  for (const auto& [key, changed] : value.fields) {
    scenario.set.push_back(fmt::format("{}={}", key, SetText(changed)));
  }
  return Done{};
}

struct ReadScenario {
  Scenario scenario;
  std::optional<double> tolerance;
};

std::vector<Field<ReadScenario>> ScenarioFields() {
  const Choice<bool> mode{{{"predict", false}, {"run", true}}};
  return {
      FieldAt<ReadScenario>(
          "name", [](ReadScenario & s) -> auto& { return s.scenario.name; }, ScenarioName()),
      FieldAt<ReadScenario>(
          "job", [](ReadScenario & s) -> auto& { return s.scenario.job; }, JobPath()),
      {"set",
       [](ReadScenario& s, const ConfigValue& value) { return ReadSet(s.scenario, value); },
       {},
       "{layout.tp: 8}"},
      FieldAt<ReadScenario>(
          "mode", [](ReadScenario & s) -> auto& { return s.scenario.run; }, mode),
      FieldAt<ReadScenario>(
          "steps", [](ReadScenario & s) -> auto& { return s.scenario.steps; }, WholeNumber{1, kMostSteps}),
      {"budget",
       [](ReadScenario& s, const ConfigValue& value) -> Status {
         TIDEMARK_ASSIGN(s.scenario.budget, Size{Bytes(kSmallestDevice)}.Read(value));
         return Done{};
       },
       {},
       "24 GiB"},
      {"tolerance",
       [](ReadScenario& s, const ConfigValue& value) -> Status {
         TIDEMARK_ASSIGN(s.tolerance, Percent().Read(value));
         return Done{};
       },
       {},
       Percent().Example()},
  };
}

/// The line in "gate/scenarios.yaml:7".
std::int64_t LineOf(const std::string& where) {
  return ParseWhole(std::string_view(where).substr(where.rfind(':') + 1)).value_or(0);
}

/// The field of a key; nothing where there is none.
const Field<ReadScenario>* FindField(const std::vector<Field<ReadScenario>>& fields, const std::string& key) {
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const auto& field) { return field.key == key; });
  return found == fields.end() ? nullptr : &*found;
}

Error UnknownKey(const ConfigValue& value, const std::string& key, const std::vector<Field<ReadScenario>>& fields) {
  std::vector<std::string> keys;
  for (const auto& field : fields) {
    keys.push_back(field.key);
  }
  const std::string nearest = Nearest(key, keys);
  return ErrorAt(value, key, "there is no such key of a scenario",
                 nearest.empty() ? fmt::format("its keys are {}", fmt::join(keys, ", "))
                                 : fmt::format("did you mean {}?", nearest));
}

Result<Scenario> ReadOne(const ConfigValue& item, const std::filesystem::path& folder) {
  if (!item.is_map()) {
    return ErrorAt(item, {}, fmt::format("expected a scenario, found {}", Describe(item)),
                   "for example {name: small, job: job.yaml}");
  }
  const std::vector<Field<ReadScenario>> fields = ScenarioFields();
  ReadScenario read;
  for (const auto& [key, value] : item.fields) {
    const Field<ReadScenario>* field = FindField(fields, key);
    if (field == nullptr) {
      return UnknownKey(value, key, fields);
    }
    TIDEMARK_TRY(ReadField(*field, read, value, key));
  }
  for (const char* key : {"name", "job"}) {
    if (item.Find(key) == nullptr) {
      return ErrorAt(item, {}, fmt::format("a scenario lacks '{}'", key),
                     fmt::format("for example {}: {}", key, FindField(fields, key)->example));
    }
  }
  Scenario scenario = std::move(read.scenario);
  if (read.tolerance && !scenario.run) {
    return ErrorAt(*item.Find("tolerance"), "tolerance", "a predicted peak is compared to the byte",
                   "remove it, or measure the peak with mode: run");
  }
  scenario.tolerance_percent = scenario.run ? read.tolerance.value_or(kMeasuredTolerancePercent) : 0;
  scenario.job = (folder / scenario.job).lexically_normal().string();
  scenario.line = LineOf(item.where);
  return scenario;
}

}  // namespace

Status CheckScenarioName(std::string_view name) {
  if (!IsScenarioName(name)) {
    return BadInput(fmt::format("expected one line of at most {} letters, found '{}'", kLongestName, Excerpt(name, 0)),
                    "a scenario's name stands in reports, file names and annotations");
  }
  return Done{};
}

Result<std::vector<Scenario>> ParseScenarios(std::string_view text, const std::string& path) {
  TIDEMARK_ASSIGN(const ConfigValue root, ParseConfig(text, path));
  constexpr const char* kExample = "for example scenarios: [{name: small, job: job.yaml}]";
  const ConfigValue* list = root.Find("scenarios");
  if (list == nullptr || list->kind != ConfigValue::Kind::list || list->items.empty()) {
    return ErrorAt(list == nullptr ? root : *list, "scenarios",
                   fmt::format("expected a list of scenarios, found {}", list == nullptr ? "none"
                                                                         : list->kind == ConfigValue::Kind::list
                                                                             ? "an empty one"
                                                                             : Describe(*list)),
                   kExample);
  }
  for (const auto& [key, value] : root.fields) {
    if (key != "scenarios") {
      return ErrorAt(value, key, "there is no such key of a scenario file", "its key is scenarios");
    }
  }
  std::map<std::string, std::int64_t> lines;
  std::vector<Scenario> scenarios;
  for (const ConfigValue& item : list->items) {
    TIDEMARK_ASSIGN(Scenario scenario, ReadOne(item, std::filesystem::path(path).parent_path()));
    scenario.file = path;
    const auto [other, is_first] = lines.emplace(scenario.name, scenario.line);
    if (!is_first) {
      return ErrorAt(item, "name", fmt::format("'{}' is also the scenario in line {}", scenario.name, other->second),
                     "the baseline knows scenarios by their names: give each its own");
    }
    scenarios.push_back(std::move(scenario));
  }
  return scenarios;
}

}  // namespace tidemark

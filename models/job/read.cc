// SPDX-License-Identifier: Apache-2.0
#include "models/job/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "models/configs/config.h"
#include "models/configs/flatten.h"
#include "models/job/fields.h"
#include "models/job/read_network.h"
#include "models/job/validate.h"
#include "models/machine/presets.h"

namespace tidemark {
namespace {

const ConfigValue* Find(const Settings& settings, const std::string& key) {
  const auto found = settings.find(key);
  return found == settings.end() ? nullptr : &found->second;
}

Result<ConfigFormat> Recognise(const ConfigValue& root, const std::optional<std::string>& wanted) {
  std::vector<std::string> names;
  for (const ConfigFormat& format : ConfigFormats()) {
    if (wanted ? format.name == *wanted : format.recognises(root)) {
      return format;
    }
    names.push_back(format.name);
  }
  if (wanted) {
    return BadInput(fmt::format("'{}' is not a config format", *wanted),
                    fmt::format("known: {}", fmt::join(names, ", ")));
  }
  return ErrorAt(
      root, {}, "is not a config that tidemark knows",
      fmt::format("known: {}; a Tidemark job has the keys network, machine, strategy, ...", fmt::join(names, ", ")));
}

/// All of a value comes from the place `where`.
void PlaceAt(ConfigValue& value, const std::string& where) {
  value.where = where;
  value.source = kCommandLine;
  for (ConfigValue& item : value.items) {
    PlaceAt(item, where);
  }
  for (ConfigValue::Entry& entry : value.fields) {
    PlaceAt(entry.value, where);
  }
}

/// What a file with nothing but this key would say: `{layout: {tp: 8}}` for layout.tp.
ConfigValue Nested(const std::string& key, ConfigValue value) {
  const std::size_t dot = key.rfind('.');
  ConfigValue map;
  map.kind = ConfigValue::Kind::map;
  map.where = value.where;
  map.source = value.source;
  map.fields.push_back({key.substr(dot + 1), std::move(value)});  // npos + 1 is 0
  return dot == std::string::npos ? map : Nested(key.substr(0, dot), std::move(map));
}

/// `--set key=value`; the value may be a section. What is said about a whole network or machine replaces all that was
/// said about it before.
Status Change(Settings& settings, const std::string& change) {
  const std::string place = "--set " + Excerpt(change, 0);
  const std::size_t equals = change.find('=');
  if (equals == std::string::npos || equals == 0) {
    return Error{ErrorCode::bad_input, place, "expected key=value", "for example --set layout.tp=8"};
  }
  const std::string key = change.substr(0, equals);
  Result<ConfigValue> parsed = ParseConfig(change.substr(equals + 1), place);
  if (!parsed) {
    Error error = parsed.error();
    error.where = place;  // one line: its number says nothing
    error.hint = "the value is YAML: is every bracket and quote closed, and the whole quoted for the shell?";
    return error;
  }
  ConfigValue value = std::move(*parsed);
  PlaceAt(value, place);
  Settings given;
  if (value.is_map()) {
    TIDEMARK_ASSIGN(given, Flatten(Nested(key, std::move(value)), JobKeys(), NullableJobKeys()));
  } else if (JobKeys().contains(key)) {
    given[key] = std::move(value);
  } else {
    Error error = UnknownKey(value, key, JobKeys());
    error.where = place;
    return error;
  }
  if (key == "network" || key == "machine") {
    std::erase_if(settings, [&](const auto& setting) { return setting.first.starts_with(key); });
  }
  // Another system's defaults say nothing about this one.
  if (key == "strategy") {
    std::erase_if(settings, [](const auto& setting) {
      return IsAxis(setting.first) && setting.second.source.starts_with("default of ");
    });
  }
  // A number, or a section of two: what is said last counts. Beside a number only the mean may be said.
  if (given.contains("sequence_length")) {
    settings.erase("sequence_length.max");
    settings.erase("sequence_length.mean");
  }
  if (given.contains("sequence_length.max")) {
    settings.erase("sequence_length");
  }
  for (auto& [name, setting] : given) {
    settings.erase(name);
    if (!setting.is_null() || !NullableJobKeys().contains(name)) {
      settings[name] = std::move(setting);
    }
  }
  return Done{};
}

Result<StrategyDefaults> FindStrategy(const Settings& settings, std::span<const StrategyDefaults> strategies) {
  std::vector<std::string> names;
  for (const StrategyDefaults& strategy : strategies) {
    names.push_back(strategy.name);
  }
  const ConfigValue* value = Find(settings, "strategy");
  if (value == nullptr) {
    return BadInput("the job has no strategy", fmt::format("add `strategy:` and one of {}", fmt::join(names, ", ")));
  }
  const auto found = std::find(names.begin(), names.end(), value->text);
  if (value->kind == ConfigValue::Kind::scalar && found != names.end()) {
    return strategies[static_cast<std::size_t>(found - names.begin())];
  }
  const std::string nearest = Nearest(value->text, names);
  return ErrorAt(
      *value, "strategy", fmt::format("expected a known strategy, found {}", Describe(*value)),
      nearest.empty() ? fmt::format("known: {}", fmt::join(names, ", ")) : fmt::format("did you mean {}?", nearest));
}

Result<Machine> MachineOf(const Settings& settings, const std::string& folder) {
  Settings own;
  if (const ConfigValue* name = Find(settings, "machine")) {
    own["from"] = *name;
  }
  constexpr std::string_view kPrefix = "machine.";
  for (const auto& [key, value] : settings) {
    if (key.starts_with(kPrefix)) {
      own[key.substr(kPrefix.size())] = value;
    }
  }
  if (own.empty()) {
    return BadInput("the job has no machine", "add `machine: h100-sxm-80gb`, or another of `tidemark list machines`");
  }
  return ReadMachine(own, folder, kPrefix);
}

bool Contains(const std::vector<std::string>& keys, const std::string& key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

/// Reads every field that is given; the others keep the default, which depends on the strategy for an axis. An axis
/// that the strategy does not look at and that says nothing about it has no source, and is not printed.
Status ReadFields(Job& job, const Settings& settings, const StrategyDefaults& strategy) {
  const Job plain;
  for (const Field<Job>& field : JobFields()) {
    if (const ConfigValue* value = Find(settings, field.key)) {
      if (Status read = ReadField(field, job, *value, field.key); !read) {
        Error error = read.error();
        error.hint += NullableJobKeys().contains(field.key) ? ", or null for none" : "";
        return error;
      }
      job.sources[field.key] = value->source;
    } else if (!IsAxis(field.key)) {
      job.sources[field.key] = "default";
    } else if (IsCommonAxis(field.key) || Contains(strategy.keys, field.key) ||
               (field.write && field.write(job) != field.write(plain))) {
      job.sources[field.key] = "default of " + job.strategy;
    }
  }
  if (!settings.contains("sequence_length") && !settings.contains("sequence_length.max")) {
    return BadInput("the job has no sequence_length", "for a table network, which counts samples, write 1");
  }
  return Done{};
}

/// Defaults that follow from other values.
void Derive(Job& job, const Settings& settings, const StrategyDefaults& strategy) {
  if (!settings.contains("layout.sp")) {
    job.layout.sp = strategy.sp_with_tp && job.layout.tp > 1;
    job.sources["layout.sp"] = "default of " + strategy.name;
  }
  if (job.layout.sp && job.layout.tp == 1) {
    job.layout.sp = false;
    job.sources["layout.sp"] = "over one rank the same as false";
  }
  if (!settings.contains("sequence_length.max")) {
    job.sources["sequence_length.max"] = job.SourceOf("sequence_length");
  }
  if (!settings.contains("recompute.tp_gather")) {
    job.sources["recompute.tp_gather"] = "follows buffers.tp_gather";
  }
}

/// buffers.tp_gather alone decides whether gathers are done again; the other key may only agree.
Status CheckGathersAgain(const Job& job, const Settings& settings) {
  constexpr const char* kKey = "recompute.tp_gather";
  const ConfigValue* value = Find(settings, kKey);
  const bool again = job.axes.buffers.gathers_again();
  if (value == nullptr || *Truth{}.Read(*value) == again) {
    return Done{};
  }
  return ErrorAt(
      *value, kKey, fmt::format("{} contradicts buffers.tp_gather, which alone decides it", value->text),
      fmt::format("{}: remove this key", again ? "pooled and async gathers are done again in the backward pass"
                                               : "fresh and cached gathers are kept for the backward pass"));
}

/// What somebody else's config could not say and was assumed stays marked when the resolved job is read again.
void MarkAssumed(Job& job, const Settings& settings) {
  if (const ConfigValue* assumed = Find(settings, "assumed")) {
    for (const ConfigValue& key : assumed->items) {
      job.sources[key.text] = "assumed";
    }
  }
}

/// Of a section, the given value that made the difference: one that the strategy does not have by itself.
const ConfigValue* FindChange(const Settings& settings, const std::string& section, const Job& job,
                              const StrategyDefaults& strategy) {
  Job usual;
  usual.axes = strategy.axes;
  for (const Field<Job>& field : JobFields()) {
    const ConfigValue* value = field.key.starts_with(section + ".") ? Find(settings, field.key) : nullptr;
    if (value != nullptr && field.write && field.write(job) != field.write(usual)) {
      return value;
    }
  }
  return nullptr;
}

/// Validation knows keys and sections; this puts in front where the value was given: the file and line, or the --set.
Error Placed(Error error, const Settings& settings, const std::string& path, const Job& job,
             const StrategyDefaults& strategy) {
  const ConfigValue* value = Find(settings, error.where);
  value = value == nullptr ? FindChange(settings, error.where, job, strategy) : value;
  const std::string place = value == nullptr ? path : value->where;
  error.where = error.where.empty() ? place : fmt::format("{}: {}", place, error.where);
  return error;
}

Result<Job> Resolve(const Settings& settings, const std::string& path, std::span<const StrategyDefaults> strategies) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  Job job;
  TIDEMARK_ASSIGN(const StrategyDefaults strategy, FindStrategy(settings, strategies));
  job.strategy = strategy.name;
  job.axes = strategy.axes;
  job.sources["strategy"] = Find(settings, "strategy")->source;
  TIDEMARK_ASSIGN(job.network, ReadNetwork(settings, folder, job.sources));
  TIDEMARK_ASSIGN(job.machine, MachineOf(settings, folder));
  const ConfigValue* machine = Find(settings, "machine");
  job.sources["machine"] = machine == nullptr ? "inline" : machine->source;
  TIDEMARK_TRY(ReadFields(job, settings, strategy));
  Derive(job, settings, strategy);
  MarkAssumed(job, settings);
  TIDEMARK_TRY(CheckGathersAgain(job, settings));
  if (const Status valid = Validate(job); !valid) {
    return Placed(valid.error(), settings, path, job, strategy);
  }
  if (const Status allowed = strategy.refuse ? strategy.refuse(job) : Status(Done{}); !allowed) {
    return Placed(allowed.error(), settings, path, job, strategy);
  }
  return job;
}

}  // namespace

Result<Job> ParseJob(std::string_view text, const std::string& path, const JobChanges& changes,
                     std::span<const StrategyDefaults> strategies) {
  TIDEMARK_ASSIGN(const ConfigValue root, ParseConfig(text, path));
  if (!root.is_map()) {
    return ErrorAt(root, {},
                   fmt::format("expected a config, found {}", root.is_null() ? "an empty file" : Describe(root)),
                   "a job is YAML with the keys network, machine, strategy, ...");
  }
  TIDEMARK_ASSIGN(const ConfigFormat format, Recognise(root, changes.format));
  TIDEMARK_ASSIGN(Settings settings, format.read(root));
  for (const std::string& change : changes.set) {
    TIDEMARK_TRY(Change(settings, change));
  }
  Result<Job> job = Resolve(settings, path, strategies);
  return !job && job.error().where.empty() ? std::move(job).At(path) : std::move(job);
}

Result<Job> ReadJob(const std::string& path, const JobChanges& changes, std::span<const StrategyDefaults> strategies) {
  TIDEMARK_ASSIGN(const std::string text, ReadTextFile(path));
  return ParseJob(text, path, changes, strategies);
}

}  // namespace tidemark

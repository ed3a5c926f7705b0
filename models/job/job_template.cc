// SPDX-License-Identifier: Apache-2.0
#include "models/job/job_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "models/configs/config.h"
#include "models/configs/parse.h"
#include "models/configs/translation.h"
#include "models/job/fields.h"
#include "models/job/other_system.h"
#include "models/job/read_network.h"
#include "models/job/validate.h"
#include "models/machine/presets.h"

namespace tidemark {
namespace {

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
      fmt::format("known: {}; --job-format says which it is where its content does not. A Tidemark job has the keys "
                  "network, machine, strategy, ...",
                  fmt::join(names, ", ")));
}

Result<const StrategyDefaults*> FindStrategy(const Settings& settings, std::span<const StrategyDefaults> strategies) {
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
    return &strategies[static_cast<std::size_t>(found - names.begin())];
  }
  const std::string nearest = Nearest(value->text, names);
  return ErrorAt(
      *value, "strategy", fmt::format("expected a known strategy, found {}", Describe(*value)),
      nearest.empty() ? fmt::format("known: {}", fmt::join(names, ", ")) : fmt::format("did you mean {}?", nearest));
}

constexpr std::string_view kMachinePrefix = "machine.";

/// What a job says about its machine, with the keys of a machine file.
Settings MachineSettings(const Settings& settings) {
  Settings own;
  if (const ConfigValue* name = Find(settings, "machine")) {
    own["from"] = *name;
  }
  for (const auto& [key, value] : settings) {
    if (key.starts_with(kMachinePrefix)) {
      own[key.substr(kMachinePrefix.size())] = value;
    }
  }
  return own;
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
    const bool by_experts = job.layout.tp > 1 && ExpertsOf(job.network) != nullptr;
    job.layout.sp = by_experts || (job.layout.tp > 1 && strategy.sp_with_tp);
    job.sources["layout.sp"] = "default of " + (by_experts ? "layers with experts" : strategy.name);
  }
  if (job.layout.sp && job.layout.tp == 1) {
    job.layout.sp = false;
    job.sources["layout.sp"] = "over one rank the same as false";
  }
  const bool views = AnyDecoder(job.network, [](const Decoder& d) { return d.qkv_views; });
  if (views && !job.axes.packing.qkv && !settings.contains("packing.qkv")) {
    job.axes.packing.qkv = true;
    job.sources["packing.qkv"] = "follows network.qkv_views";
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

/// All that a value is made of.
void AppendTo(std::string& text, const ConfigValue& value) {
  fmt::format_to(std::back_inserter(text), "{}\n{}\n{}\n{}\n", static_cast<int>(value.kind), value.text, value.where,
                 value.source);
  for (const ConfigValue& item : value.items) {
    AppendTo(text, item);
  }
  for (const ConfigValue::Entry& entry : value.fields) {
    text += entry.key + "\n";
    AppendTo(text, entry.value);
  }
}

/// All that settings say about one section.
std::string Described(const Settings& settings, std::string_view section) {
  std::string text;
  for (auto setting = settings.lower_bound(std::string(section));
       setting != settings.end() && setting->first.starts_with(section); ++setting) {
    text += setting->first + "\n";
    AppendTo(text, setting->second);
  }
  return text;
}

/// Of so many, all are forgotten: somebody varies a number of them.
constexpr std::size_t kMostRemembered = 1024;

template <class Known>
auto Remember(std::map<std::string, Known>& all, std::string described, Known known) {
  if (all.size() == kMostRemembered) {
    all.clear();
  }
  return all.emplace(std::move(described), std::move(known)).first;
}

}  // namespace

JobTemplate::JobTemplate(ConfigValue root, ConfigFormat format, std::vector<JobChange> changes, std::string path,
                         std::span<const StrategyDefaults> strategies)
    : root_(std::move(root)),
      format_(std::move(format)),
      changes_(std::move(changes)),
      path_(std::move(path)),
      folder_(std::filesystem::path(path_).parent_path().string()),
      strategies_(strategies) {}

Result<JobTemplate> JobTemplate::Parse(std::string_view text, const std::string& path, const JobChanges& changes,
                                       std::span<const StrategyDefaults> strategies) {
  TIDEMARK_ASSIGN(const ConfigValue root, ParseAnyConfig(text, path));
  TIDEMARK_ASSIGN(ConfigFormat format, Recognise(root, changes.format));
  TIDEMARK_ASSIGN(std::vector<JobChange> set, ParseJobChanges(changes.set));
  set.insert(set.begin(), changes.read.begin(), changes.read.end());
  JobTemplate job(root, std::move(format), std::move(set), path, strategies);
  if (job.format_.own) {
    TIDEMARK_ASSIGN(job.own_, job.ReadWith({}));
  }
  return job;
}

Result<JobTemplate> JobTemplate::Read(const std::string& path, const JobChanges& changes,
                                      std::span<const StrategyDefaults> strategies) {
  TIDEMARK_ASSIGN(const std::string text, ReadTextFile(path));
  return Parse(text, path, changes, strategies);
}

Result<Job> JobTemplate::With(std::span<const JobChange* const> changes) {
  const Result<Settings> settings = Changed(changes);
  Result<Job> job = settings ? Resolve(*settings) : Result<Job>(settings.error());
  if (job) {
    if (const Status checked = Check(*job, *settings); !checked) {
      job = checked.error();
    }
  }
  return InFile(std::move(job));
}

Result<Job> JobTemplate::InFile(Result<Job> job) const {
  return !job && job.error().where.empty() ? std::move(job).At(path_) : std::move(job);
}

Result<Job> JobTemplate::Unchecked(std::span<const JobChange* const> changes) {
  TIDEMARK_ASSIGN(const Settings settings, Changed(changes));
  return Resolve(settings);
}

Result<Settings> JobTemplate::Changed(std::span<const JobChange* const> changes) const {
  if (!format_.own) {
    return ReadWith(changes);  // what its reader makes of the file may depend on them
  }
  Settings settings = own_;
  for (const JobChange* change : changes) {
    Apply(*change, settings);
  }
  return settings;
}

Result<Settings> JobTemplate::ReadWith(std::span<const JobChange* const> changes) const {
  const auto apply = [&](Settings& settings) {
    for (const JobChange& change : changes_) {
      Apply(change, settings);
    }
    for (const JobChange* change : changes) {
      Apply(*change, settings);
    }
  };
  Settings given;
  apply(given);
  TIDEMARK_ASSIGN(const Settings theirs, format_.read(root_, given));
  Settings settings = theirs;
  apply(settings);
  for (const std::string& key : format_.of_code) {
    if (const ConfigValue* value = Find(theirs, key); value != nullptr && !given.contains(key)) {
      settings[key] = *value;
    }
  }
  if (!format_.own) {
    DropOtherSystems(theirs, settings);
  }
  return settings;
}

void JobTemplate::DropOtherSystems(const Settings& theirs, Settings& settings) const {
  const ConfigValue* named = Find(theirs, "strategy");
  const ConfigValue* chosen = Find(settings, "strategy");
  if (named == nullptr || chosen == nullptr || named->text == chosen->text) {
    return;
  }
  if (const auto strategy = FindStrategy(settings, strategies_)) {  // else whoever resolves them says so
    DropSettingsOfOthers(theirs, **strategy, settings);
  }
}

Status JobTemplate::FindNetwork(const Settings& settings, Job& job) {
  std::string described = Described(settings, "network");
  auto known = networks_.find(described);
  if (known == networks_.end()) {
    KnownNetwork read;
    TIDEMARK_ASSIGN(read.network, ReadNetwork(settings, folder_, read.sources));
    known = Remember(networks_, std::move(described), std::move(read));
  }
  job.network = known->second.network;
  job.sources.insert(known->second.sources.begin(), known->second.sources.end());
  return Done{};
}

Result<Machine> JobTemplate::MachineWith(std::span<const JobChange* const> changes) {
  Settings settings = own_;
  if (!format_.own) {
    settings["machine"] = AssumedMachine();  // none of them names one
    for (const JobChange& change : changes_) {
      Apply(change, settings);
    }
  }
  for (const JobChange* change : changes) {
    Apply(*change, settings);
  }
  return MachineOf(settings);
}

/// Somebody may vary a number of a machine thousands of times: its file is read once.
Result<Machine> JobTemplate::MachineOf(const Settings& settings) {
  const Settings own = MachineSettings(settings);
  if (own.empty()) {
    return BadInput("the job has no machine", "add `machine: h100-sxm-80gb`, or another of `tidemark list machines`");
  }
  const auto from = own.find("from");
  if (from == own.end()) {
    return ReadMachine(own, folder_, kMachinePrefix);
  }
  std::string described;
  AppendTo(described, from->second);
  auto named = machines_.find(described);
  if (named == machines_.end()) {
    TIDEMARK_ASSIGN(Machine machine, ReadMachine({*from}, folder_, kMachinePrefix));
    named = Remember(machines_, std::move(described), std::move(machine));
  }
  return ChangedMachine(named->second, own, kMachinePrefix);
}

Result<Job> JobTemplate::Base() {
  TIDEMARK_ASSIGN(const Settings settings, Changed({}));
  return InFile(Resolve(settings));
}

Result<Job> JobTemplate::Resolve(const Settings& settings) {
  Job job;
  TIDEMARK_ASSIGN(const StrategyDefaults* const found, FindStrategy(settings, strategies_));
  const StrategyDefaults& strategy = *found;
  job.strategy = strategy.name;
  job.axes = strategy.axes;
  job.sources["strategy"] = Find(settings, "strategy")->source;
  TIDEMARK_TRY(FindNetwork(settings, job));
  TIDEMARK_ASSIGN(job.machine, MachineOf(settings));
  const ConfigValue* machine = Find(settings, "machine");
  job.sources["machine"] = machine == nullptr ? "inline" : machine->source;
  TIDEMARK_TRY(ReadFields(job, settings, strategy));
  Derive(job, settings, strategy);
  MarkAssumed(job, settings);
  TIDEMARK_TRY(CheckGathersAgain(job, settings));
  return job;
}

Status JobTemplate::Check(const Job& job, const Settings& settings) const {
  TIDEMARK_ASSIGN(const StrategyDefaults* const strategy, FindStrategy(settings, strategies_));
  if (const Status valid = Validate(job); !valid) {
    return Placed(valid.error(), settings, path_, job, *strategy);
  }
  if (const Status allowed = strategy->refuse ? strategy->refuse(job) : Status(Done{}); !allowed) {
    return Placed(allowed.error(), settings, path_, job, *strategy);
  }
  return Done{};
}

}  // namespace tidemark

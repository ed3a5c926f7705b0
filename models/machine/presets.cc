// SPDX-License-Identifier: Apache-2.0
#include "models/machine/presets.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "models/configs/flatten.h"
#include "models/machine/rates.h"

namespace tidemark {
namespace {

constexpr const char* kHostMemoryBandwidth = "host_memory_bandwidth";
constexpr const char* kHostFlops = "host_flops";
constexpr const char* kOverlap = "overlap";
constexpr std::array kProvenance = {"device",
                                    "driver",
                                    "cuda",
                                    "measured_on",
                                    "clocks.sm_mhz",
                                    "clocks.sm_max_mhz",
                                    "clocks.memory_mhz",
                                    "clocks.memory_max_mhz"};
constexpr std::array kPeakDTypes = {DType::bf16, DType::fp16, DType::fp32, DType::fp64};

/// Presets are part of the program; one that cannot be read is our mistake.
Machine ReadPreset(const EmbeddedFile& file) {
  Result<ConfigValue> root = ParseConfig(file.text, std::string(file.name) + ".yaml");
  TIDEMARK_CHECK(root.ok());
  Result<Settings> settings = Flatten(*root, MachineKeys());
  TIDEMARK_CHECK(settings.ok());
  Result<Machine> machine = ReadMachine(*settings, {});
  if (!machine) {
    Fail(machine.error().Text(), __FILE__, __LINE__);
  }
  return *std::move(machine);
}

/// Read once: most jobs name one, and a search reads thousands of jobs. None is read under the lock, as it may be made
/// of another; what two threads read at a time is the same.
const Machine& Preset(const EmbeddedFile& file) {
  static std::mutex mutex;
  static std::map<std::string_view, Machine> known;
  {
    const std::lock_guard lock(mutex);
    if (const auto found = known.find(file.name); found != known.end()) {
      return found->second;
    }
  }
  Machine machine = ReadPreset(file);
  const std::lock_guard lock(mutex);
  return known.try_emplace(file.name, std::move(machine)).first->second;
}

std::vector<Field<Machine>> MakeMachineFields() {
  using M = Machine;
  const WholeNumber processors{1, 1 << 20};
  const RealNumber fraction{0.01, 1};
  const WholeNumber megahertz{0, 100'000};
  std::vector<Field<M>> fields = {
      FieldAt<M>(
          "device", [](M & m) -> auto& { return m.device; }, Word{}),
      FieldAt<M>(
          "driver", [](M & m) -> auto& { return m.driver; }, Word{}),
      FieldAt<M>(
          "cuda", [](M & m) -> auto& { return m.cuda; }, Word{}),
      FieldAt<M>(
          "measured_on", [](M & m) -> auto& { return m.measured_on; }, Day{}),
      FieldAt<M>(
          "clocks.sm_mhz", [](M & m) -> auto& { return m.clocks.sm_mhz; }, megahertz),
      FieldAt<M>(
          "clocks.sm_max_mhz", [](M & m) -> auto& { return m.clocks.sm_max_mhz; }, megahertz),
      FieldAt<M>(
          "clocks.memory_mhz", [](M & m) -> auto& { return m.clocks.memory_mhz; }, megahertz),
      FieldAt<M>(
          "clocks.memory_max_mhz", [](M & m) -> auto& { return m.clocks.memory_max_mhz; }, megahertz),
      FieldAt<M>(
          "accelerator", [](M & m) -> auto& { return m.accelerator; }, Truth{}),
      FieldAt<M>(
          "devices_per_node", [](M & m) -> auto& { return m.devices_per_node; }, WholeNumber{1, 1 << 16}),
      FieldAt<M>(
          "device_memory", [](M & m) -> auto& { return m.device_memory; }, Size{Bytes(1 << 20), "80 GiB"}),
      FieldAt<M>(
          "memory_bandwidth", [](M & m) -> auto& { return m.memory_bandwidth; }, Bandwidth{}),
      FieldAt<M>(
          "achievable_flops", [](M & m) -> auto& { return m.achievable_flops; }, fraction),
      FieldAt<M>(
          "achievable_bandwidth", [](M & m) -> auto& { return m.achievable_bandwidth; }, fraction),
      FieldAt<M>(
          "processors", [](M & m) -> auto& { return m.processors; }, processors),
      FieldAt<M>(
          "tile_m", [](M & m) -> auto& { return m.tile_m; }, WholeNumber{1, 1 << 16}),
      FieldAt<M>(
          "tile_n", [](M & m) -> auto& { return m.tile_n; }, WholeNumber{1, 1 << 16}),
      FieldAt<M>(
          "kernel_launch", [](M & m) -> auto& { return m.kernel_launch; }, Time{}),
      FieldAt<M>(
          "host_issue", [](M & m) -> auto& { return m.host_issue; }, Time{}),
      FieldAt<M>(
          "host_link.latency", [](M & m) -> auto& { return m.host_link.latency; }, Time{}),
      FieldAt<M>(
          "host_link.bandwidth", [](M & m) -> auto& { return m.host_link.bandwidth; }, Bandwidth{}),
      FieldAt<M>(
          kHostMemoryBandwidth, [](M & m) -> auto& { return m.host_memory_bandwidth; }, Bandwidth{}),
      FieldAt<M>(
          kHostFlops, [](M & m) -> auto& { return m.host_flops; }, Arithmetic{}),
      FieldAt<M>(
          "intra_node.latency", [](M & m) -> auto& { return m.intra_node.latency; }, Time{}),
      FieldAt<M>(
          "intra_node.bandwidth", [](M & m) -> auto& { return m.intra_node.bandwidth; }, Bandwidth{}),
      FieldAt<M>(
          "inter_node.latency", [](M & m) -> auto& { return m.inter_node.latency; }, Time{}),
      FieldAt<M>(
          "inter_node.bandwidth", [](M & m) -> auto& { return m.inter_node.bandwidth; }, Bandwidth{}),
      FieldAt<M>(
          kOverlap, [](M & m) -> auto& { return m.overlap; }, Truth{}),
      FieldAt<M>(
          "overlap_slowdown", [](M & m) -> auto& { return m.overlap_slowdown; }, RealNumber{1, 100}),
      FieldAt<M>(
          "context.low", [](M & m) -> auto& { return m.context.low; }, Size{}),
      FieldAt<M>(
          "context.expected", [](M & m) -> auto& { return m.context.expected; }, Size{}),
      FieldAt<M>(
          "context.high", [](M & m) -> auto& { return m.context.high; }, Size{}),
      FieldAt<M>(
          "communicator", [](M & m) -> auto& { return m.communicator; }, Size{}),
      FieldAt<M>(
          "workspace", [](M & m) -> auto& { return m.workspace; }, Size{}),
  };
  for (const DType dtype : kPeakDTypes) {
    fields.push_back(FieldAt<M>(
        fmt::format("peak.{}", Name(dtype)), [dtype](M & m) -> auto& { return m.peak[dtype]; }, Arithmetic{}));
  }
  for (const RatedKind& kind : RatedKinds()) {
    fields.push_back(FieldAt<M>(
        "rates." + kind.key, [key = kind.key](M & m) -> auto& { return m.rates[key]; }, RateForm{kind.arithmetic}));
  }
  return fields;
}

/// A file may leave these out: not every machine multiplies in every dtype or was measured, only an optimizer in host
/// memory asks what the host can do, and streams overlap unless it says otherwise; by what it was measured says no
/// number.
bool IsOptional(std::string_view key) {
  return std::find(kProvenance.begin(), kProvenance.end(), key) != kProvenance.end() || key.starts_with("peak.") ||
         key.starts_with("rates.") || key == kHostMemoryBandwidth || key == kHostFlops || key == kOverlap;
}

/// The value behind `{value: ..., source: ...}`, and where it comes from; `example`: of a value.
Result<std::pair<ConfigValue, std::string>> ValueAndSource(const ConfigValue& given, const std::string& example) {
  if (!given.is_map()) {
    return std::pair(given, given.source);
  }
  const ConfigValue* value = given.Find("value");
  const ConfigValue* source = given.Find("source");
  if (value == nullptr || source == nullptr || given.fields.size() != 2) {
    std::vector<std::string> keys;
    for (const ConfigValue::Entry& entry : given.fields) {
      keys.push_back(entry.key);
    }
    return BadInput(fmt::format("expected a value, or {{value: ..., source: ...}} with both, found a map of {}",
                                keys.empty() ? "nothing" : fmt::format("{}", fmt::join(keys, ", "))),
                    fmt::format("for example {0}, or {{value: {0}, source: a data sheet}}", example));
  }
  if (source->kind != ConfigValue::Kind::scalar || source->text.empty()) {
    return BadInput(fmt::format("expected a source in words, found {}",
                                source->text.empty() && source->kind == ConfigValue::Kind::scalar ? "an empty one"
                                                                                                  : Describe(*source)),
                    fmt::format("say where the value is from, or write the value alone: {}", example));
  }
  return std::pair(*value, source->text);
}

Status CheckMachine(const Machine& machine) {
  if (machine.peak.empty()) {
    return BadInput("the machine has no peak; expected at least peak.bf16 or peak.fp32");
  }
  if (machine.context.low > machine.context.expected || machine.context.expected > machine.context.high) {
    return BadInput(fmt::format("context has low {}, expected {} and high {}; expected low <= expected <= high",
                                Text(machine.context.low), Text(machine.context.expected), Text(machine.context.high)));
  }
  return Done{};
}

Status CheckComplete(const Settings& settings) {
  for (const Field<Machine>& field : MachineFields()) {
    if (!IsOptional(field.key) && !settings.contains(field.key)) {
      return BadInput(fmt::format("the machine lacks '{}'", field.key),
                      "give it, or `from: <preset>` for all that is not given");
    }
  }
  return Done{};
}

}  // namespace

const std::vector<Field<Machine>>& MachineFields() {
  static const std::vector<Field<Machine>> fields = MakeMachineFields();
  return fields;
}

std::set<std::string> MachineKeys() {
  std::set<std::string> keys = {"name", "summary", "from"};
  for (const Field<Machine>& field : MachineFields()) {
    keys.insert(field.key);
  }
  return keys;
}

std::vector<MachineSummary> MachinePresets() {
  std::vector<MachineSummary> presets;
  for (const EmbeddedFile& file : MachinePresetFiles()) {
    const Result<ConfigValue> root = ParseConfig(file.text, std::string(file.name));
    TIDEMARK_CHECK(root.ok() && root->Find("summary") != nullptr);
    presets.push_back({std::string(file.name), root->Find("summary")->text});
  }
  return presets;
}

Result<Machine> ReadMachine(const Settings& settings, const std::string& folder, std::string_view section) {
  const auto from = settings.find("from");
  if (from == settings.end()) {
    TIDEMARK_ASSIGN(Machine machine, ChangedMachine({}, settings, section));
    TIDEMARK_TRY(CheckComplete(settings));
    return machine;
  }
  const Result<std::string> name = Word{}.Read(from->second);
  if (!name) {
    const std::string_view key = section.empty() ? "from" : section.substr(0, section.size() - 1);
    return Explain(name.error(), from->second, std::string(key), "h100-sxm-80gb");
  }
  Result<Machine> found = FindMachine(*name, FolderOf(from->second, folder));
  if (!found) {
    return found.error().where.empty() ? std::move(found).At(from->second.where) : std::move(found);
  }
  return ChangedMachine(*std::move(found), settings, section);
}

Result<Machine> ChangedMachine(Machine machine, const Settings& settings, std::string_view section) {
  if (const auto name = settings.find("name"); name != settings.end()) {
    TIDEMARK_ASSIGN(machine.name, Word{}.Read(name->second).At(fmt::format("{}: {}name", name->second.where, section)));
  }
  for (const Field<Machine>& field : MachineFields()) {
    const auto given = settings.find(field.key);
    if (given == settings.end()) {
      continue;
    }
    const std::string key = fmt::format("{}{}", section, field.key);
    auto parts = ValueAndSource(given->second, field.example).At(fmt::format("{}: {}", given->second.where, key));
    if (!parts) {
      return parts.error();
    }
    TIDEMARK_TRY(ReadField(field, machine, parts->first, key));
    machine.sources[field.key] = parts->second;
  }
  TIDEMARK_TRY(CheckMachine(machine));
  return machine;
}

std::optional<Machine> FindMachineOfDevice(std::string_view device) {
  for (const EmbeddedFile& file : MachinePresetFiles()) {
    if (const Machine& machine = Preset(file); machine.device == device) {
      return machine;
    }
  }
  return std::nullopt;
}

Result<Machine> FindMachine(const std::string& name_or_path, const std::string& folder) {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : MachinePresetFiles()) {
    if (file.name == name_or_path) {
      return Preset(file);
    }
    names.emplace_back(file.name);
  }
  const std::filesystem::path path = std::filesystem::path(folder) / name_or_path;
  std::error_code code;
  if (!std::filesystem::exists(path, code)) {
    const std::string nearest = Nearest(name_or_path, names);
    const std::filesystem::path looked = std::filesystem::absolute(path, code).lexically_normal();
    return BadInput(fmt::format("'{}' is neither a known machine nor a file: there is no {}", name_or_path,
                                looked.empty() ? path.string() : looked.string()),
                    nearest.empty() ? "tidemark list machines" : fmt::format("did you mean {}?", nearest));
  }
  TIDEMARK_ASSIGN(const std::string text, ReadTextFile(path.string()));
  TIDEMARK_ASSIGN(const ConfigValue root, ParseConfig(text, path.string()));
  TIDEMARK_ASSIGN(const Settings settings, Flatten(root, MachineKeys()));
  Result<Machine> machine = ReadMachine(settings, path.parent_path().string());
  if (!machine) {
    const bool is_placed = machine.error().where.starts_with(path.string());  // at a line
    return is_placed ? std::move(machine) : std::move(machine).At(path.string());
  }
  if (machine->name.empty()) {
    machine->name = path.stem().string();
  }
  return machine;
}

std::vector<std::pair<std::string, std::string>> MachineYaml(const Machine& machine) {
  std::vector<std::pair<std::string, std::string>> lines = {{"name", QuoteYaml(machine.name)}};
  for (const Field<Machine>& field : MachineFields()) {
    const auto source = machine.sources.find(field.key);
    if (source != machine.sources.end()) {
      lines.emplace_back(field.key,
                         fmt::format("{{value: {}, source: {}}}", field.write(machine), QuoteYaml(source->second)));
    }
  }
  return lines;
}

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/embedded_file.h"
#include "base/result.h"
#include "models/configs/field.h"
#include "models/configs/value.h"
#include "models/machine/machine.h"

namespace tidemark {

/// The files of models/machine/presets, generated into the program.
std::span<const EmbeddedFile> MachinePresetFiles();

struct MachineSummary {
  std::string name, summary;
};

/// The presets by name, each with its summary line.
std::vector<MachineSummary> MachinePresets();

/// The grammar of a machine file. In a file each number is `{value: ..., source: ...}`, or the bare value.
const std::vector<Field<Machine>>& MachineFields();

/// Every key of a machine file.
std::set<std::string> MachineKeys();

/// A machine from dotted keys ("intra_node.latency"). `from` names the machine that supplies what is not given: a
/// preset or a path, relative to `folder` (see FolderOf); without it every key must be there, except that one peak is
/// enough. Errors put `section` before keys: "machine." of a job's.
Result<Machine> ReadMachine(const Settings& settings, const std::string& folder, std::string_view section = {});

/// A machine that is there, with what dotted keys say otherwise; `from` is not looked at.
Result<Machine> ChangedMachine(Machine machine, const Settings& settings, std::string_view section = {});

/// A preset by name, or a machine file by path (relative to `folder`). Errors name the nearest preset.
Result<Machine> FindMachine(const std::string& name_or_path, const std::string& folder);

/// The preset of nodes with this device, by the name that its driver gives it.
std::optional<Machine> FindMachineOfDevice(std::string_view device);

/// Inverse of ReadMachine: (key, value and source in YAML) for every key of the machine.
std::vector<std::pair<std::string, std::string>> MachineYaml(const Machine& machine);

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#include "cli/common_machine.h"

#include <cstdint>
#include <utility>

#include "base/result.h"

namespace tidemark {

std::optional<Machine> CommonMachine(const SweepGroups& groups, JobTemplate& job) {
  std::optional<Machine> common;
  for (std::int64_t i = 0; i < groups.machines(); ++i) {
    Result<Machine> machine = job.MachineWith(groups.OfMachine(i));
    if (!machine || (common && (common->name != machine->name || common->device_memory != machine->device_memory))) {
      return std::nullopt;
    }
    common = std::move(*machine);
  }
  return common;
}

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/prediction.h"

#include <fmt/format.h>

#include "base/text.h"
#include "models/machine/device_bytes.h"

namespace tidemark {

std::string UsableMemoryText(Bytes usable, Bytes device) {
  return usable == device
             ? Text(device)
             : fmt::format("{} (allocator.memory_fraction leaves no more of {})", Text(usable), Text(device));
}

bool PredictionReport::Fits() const { return tidemark::Fits(Worst().device, usable_memory); }

std::int64_t PredictionReport::Steps() const {
  std::int64_t count = 0;
  for (const StepReport& step : steps) {
    count += step.count;
  }
  return count;
}

std::string PredictionReport::LastRoleText() const {
  if (roles.size() == 1) {
    return "the last role to finish";
  }
  return time.role.empty() ? "each step's last role" : fmt::format("{}, the last to finish", time.role);
}

std::string PredictionReport::StepText() const {
  return Steps() == 1 ? fmt::format("{} step", steps.front().kind) : fmt::format("{} steps", Grouped(Steps()));
}

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
#include "cli/sweep_id.h"

#include <fmt/format.h>

#include <functional>

#include "models/job/change.h"
#include "models/job/read.h"
#include "models/machine/presets.h"

namespace tidemark {
namespace {

/// With the machine, of which a job's YAML says the name only.
std::string TextOf(const Job& job) {
  std::string text = JobYaml(job);
  for (const auto& [key, value] : MachineYaml(job.machine)) {
    text += fmt::format("{}: {}\n", key, value);
  }
  return text;
}

bool MayNameFiles(const std::string& key) { return key == "machine" || key == "network"; }

}  // namespace

std::uint64_t SweepId(const Sweep& sweep, const Job& base, JobTemplate& job, const std::string& limits) {
  std::string text = fmt::format("{}\n{}\n{}\n{}\n", TIDEMARK_VERSION, limits, sweep.chunks(), TextOf(base));
  for (const SweepAxis& axis : sweep.groups().space().axes()) {
    for (const std::string& value : axis.values) {
      text += fmt::format("{}={}\n", axis.key, value);
      if (!MayNameFiles(axis.key)) {
        continue;
      }
      if (const Result<JobChange> change = ParseJobChange(axis.key + "=" + value, "--vary")) {
        const JobChange* const changes[] = {&*change};
        const Result<Job> changed = job.Unchecked(changes);
        text += changed ? TextOf(*changed) : changed.error().message;
      }
    }
  }
  return std::hash<std::string>{}(text);
}

}  // namespace tidemark

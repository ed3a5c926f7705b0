// SPDX-License-Identifier: Apache-2.0
#include "reports/check/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>

#include "models/job/read.h"
#include "models/machine/device_bytes.h"
#include "reports/summarise/job_differences.h"
#include "reports/summarise/trace_report.h"
#include "traces/family.h"

namespace tidemark {
namespace {

/// The longest-named life of a family at a peak: the largest of its entries.
const LiveBuffers* FindLive(const Peak& peak, const std::string& family, Category category) {
  const LiveBuffers* largest = nullptr;
  for (const LiveBuffers& live : peak.live) {
    const bool is_it = live.category == category && FamilyOf(live.name) == family;
    if (is_it && (largest == nullptr || live.bytes > largest->bytes)) {
      largest = &live;
    }
  }
  return largest;
}

void AddChanges(const Peak& before, const Peak& after, CheckedScenario& checked) {
  for (const TensorDifference& tensor : ComparePeaks(before, after).tensors) {
    if (tensor.difference() == Bytes(0)) {
      continue;
    }
    const bool grows = tensor.difference() > Bytes(0);
    PeakChange change{tensor.category, tensor.name, {}, {}, tensor.before, tensor.after};
    if (const LiveBuffers* live = FindLive(grows ? after : before, tensor.name, tensor.category)) {
      change.phase = live->since_phase;
      change.until = live->until_phase;
    }
    (grows ? checked.grown : checked.shrunk).push_back(std::move(change));
  }
}

/// "name: NVIDIA H100 -> NVIDIA H200, driver: ..." where the hardware differs; empty where it is the same.
std::string HardwareDifference(const std::map<std::string, std::string>& before,
                               const std::map<std::string, std::string>& now) {
  std::set<std::string> parts;
  for (const auto* hardware : {&before, &now}) {
    for (const auto& [part, value] : *hardware) {
      parts.insert(part);
    }
  }
  const auto value = [](const std::map<std::string, std::string>& hardware, const std::string& part) {
    const auto found = hardware.find(part);
    return found == hardware.end() ? std::string("-") : found->second;
  };
  std::vector<std::string> differences;
  for (const std::string& part : parts) {
    if (value(before, part) != value(now, part)) {
      differences.push_back(fmt::format("{} {} -> {}", part, value(before, part), value(now, part)));
    }
  }
  return fmt::format("{}", fmt::join(differences, ", "));
}

/// A key that the program which made the baseline did not know, and that stands at its default, is no difference. How
/// the steps are chosen is not the job's, but moves the peak as well.
std::vector<JobDifference> DifferencesOf(const ObservedPeak& before, const ObservedPeak& now) {
  std::vector<JobDifference> differences = CompareJobs({before.job, now.job});
  const std::vector<JobDifference> chosen = CompareJobs({JobYaml(Job()), now.job});
  std::erase_if(differences, [&](const JobDifference& difference) {
    return difference.values.front() == "-" &&
           std::ranges::find(chosen, difference.key, &JobDifference::key) == chosen.end();
  });
  if (before.steps != now.steps) {
    const auto text = [](std::int64_t steps) {
      return steps == 0 ? "a steady one" : fmt::format("the first {}", steps);
    };
    differences.push_back({"steps", {text(before.steps), text(now.steps)}});
  }
  return differences;
}

PeakVerdict AgainstBytes(Bytes before, Bytes now, double tolerance_percent) {
  const double allowed = static_cast<double>(before.count()) * tolerance_percent / 100;
  const auto difference = static_cast<double>((now - before).count());
  return difference > allowed ? PeakVerdict::grown : difference < -allowed ? PeakVerdict::shrunk : PeakVerdict::pass;
}

/// The verdict against the baseline of this name.
void CompareWith(const ObservedPeak& before, const ObservedPeak& now, CheckedScenario& checked) {
  if (before.measured != now.measured) {
    checked.against = PeakVerdict::new_one;
    checked.message =
        before.measured ? " that was predicted, only a measured one" : " that was measured, only a predicted one";
    return;
  }
  checked.baseline = before.peak.allocated;
  checked.job_changed = DifferencesOf(before, now);
  const std::string hardware = HardwareDifference(before.hardware, now.hardware);
  if (!hardware.empty()) {
    checked.against = PeakVerdict::error;
    checked.message = fmt::format("was measured on other hardware than its baseline: {}", hardware);
    checked.hint =
        "check it where the baseline was measured, or give it a baseline from here: tidemark run JOB --format json > "
        "run.json, then tidemark baseline promote run.json";
    return;
  }
  AddChanges(before.peak, now.peak, checked);
  checked.against = AgainstBytes(before.peak.allocated, now.peak.allocated, checked.tolerance_percent);
}

CheckedScenario JudgeOne(const ObservedScenario& observed, const Baseline& baseline) {
  const Scenario& scenario = observed.scenario;
  CheckedScenario checked;
  checked.name = scenario.name;
  checked.file = scenario.file;
  checked.line = scenario.line;
  checked.measured = scenario.run;
  checked.tolerance_percent = scenario.tolerance_percent;
  checked.budget = scenario.budget;
  const auto entry = baseline.find(scenario.name);
  if (!observed.peak) {
    const Error& error = observed.peak.error();
    checked.message = error.where.empty() ? error.message : error.where + ": " + error.message;
    checked.hint = error.hint;
    if (entry != baseline.end()) {
      checked.baseline = entry->second.peak.peak.allocated;
    }
    return checked;
  }
  const ObservedPeak& now = *observed.peak;
  checked.peak = now.peak.allocated;
  checked.at = now.at;
  checked.device = now.device;
  checked.doubts = now.doubts;
  checked.over_budget = scenario.budget && !Fits({now.device, now.device, now.device}, *scenario.budget);
  if (entry == baseline.end()) {
    checked.against = PeakVerdict::new_one;
  } else {
    CompareWith(entry->second.peak, now, checked);
  }
  return checked;
}

}  // namespace

std::vector<CheckedScenario> Judge(const std::vector<ObservedScenario>& observed, const Baseline& baseline,
                                   const std::string& baseline_path) {
  std::vector<CheckedScenario> all;
  std::set<std::string> names;
  for (const ObservedScenario& each : observed) {
    all.push_back(JudgeOne(each, baseline));
    names.insert(each.scenario.name);
  }
  for (const auto& [name, entry] : baseline) {
    if (!names.contains(name)) {
      CheckedScenario lost;
      lost.name = name;
      lost.file = baseline_path;
      lost.measured = entry.peak.measured;
      lost.against = PeakVerdict::lost;
      lost.baseline = entry.peak.peak.allocated;
      all.push_back(std::move(lost));
    }
  }
  return all;
}

}  // namespace tidemark

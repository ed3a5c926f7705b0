// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/check_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "traces/place.h"

namespace tidemark {
namespace {

std::string Exact(Bytes bytes) { return fmt::format("{} ({} bytes)", Text(bytes), Grouped(bytes.count())); }

std::string ScenarioPlace(const CheckedScenario& scenario) {
  return scenario.at.empty() ? kBeforeStep : "in " + scenario.at;
}

/// The tensors of which there is more, the largest ones by name.
std::string GrowthText(const CheckedScenario& scenario) {
  constexpr std::size_t kNamed = 3;
  std::vector<std::string> parts;
  for (const PeakChange& change : scenario.grown) {
    if (parts.size() == kNamed) {
      parts.push_back(fmt::format("{} more", scenario.grown.size() - kNamed));
      break;
    }
    parts.push_back(fmt::format("{} '{}' +{} (from {} to {})", Name(change.category), change.tensor,
                                Text(change.difference()), change.phase, change.until));
  }
  return parts.empty() ? "" : fmt::format(": {}", fmt::join(parts, ", "));
}

std::string AgainstText(const CheckedScenario& scenario) {
  switch (scenario.against) {
    case PeakVerdict::grown:
      return fmt::format("the peak grew by {} to {} {}{}", Exact(*scenario.delta()), Text(*scenario.peak),
                         ScenarioPlace(scenario), GrowthText(scenario));
    case PeakVerdict::shrunk:
      return fmt::format("the peak shrank by {} to {}", Exact(*scenario.baseline - *scenario.peak),
                         Text(*scenario.peak));
    case PeakVerdict::new_one:
      return fmt::format("has no baseline{}; its peak is {} {}", scenario.message, Exact(*scenario.peak),
                         ScenarioPlace(scenario));
    case PeakVerdict::lost:
      return "is in the baseline, but no longer among the scenarios";
    case PeakVerdict::error:
      return scenario.message;
    case PeakVerdict::pass:
    case PeakVerdict::over_budget:
      break;
  }
  const bool equal = scenario.delta() == Bytes(0);
  return fmt::format("the peak is {}{}", Exact(*scenario.peak),
                     equal ? ", as it was" : fmt::format(", within {} % of what it was", scenario.tolerance_percent));
}

}  // namespace

std::string_view Name(PeakVerdict verdict) {
  switch (verdict) {
    case PeakVerdict::pass:
      return "pass";
    case PeakVerdict::grown:
      return "grown";
    case PeakVerdict::shrunk:
      return "shrunk";
    case PeakVerdict::new_one:
      return "new";
    case PeakVerdict::lost:
      return "lost";
    case PeakVerdict::over_budget:
      return "over_budget";
    case PeakVerdict::error:
      return "error";
  }
  Fail("a verdict that is not in the enumeration", __FILE__, __LINE__);
}

std::optional<Bytes> CheckedScenario::delta() const {
  return baseline && peak ? std::optional(*peak - *baseline) : std::nullopt;
}

std::size_t CheckReport::Failed() const {
  return static_cast<std::size_t>(std::count_if(scenarios.begin(), scenarios.end(),
                                                [](const CheckedScenario& scenario) { return scenario.Fails(); }));
}

std::size_t CheckReport::Count(PeakVerdict verdict) const {
  return static_cast<std::size_t>(std::count_if(
      scenarios.begin(), scenarios.end(), [&](const CheckedScenario& each) { return each.verdict() == verdict; }));
}

std::string CheckSentence(const CheckedScenario& scenario) {
  if (!scenario.over_budget) {
    return AgainstText(scenario);
  }
  return fmt::format("needs up to {} of its device, {} more than its budget of {}; {}", Text(*scenario.device),
                     Exact(*scenario.device - *scenario.budget), Text(*scenario.budget), AgainstText(scenario));
}

std::string CheckHint(const CheckReport& report, const CheckedScenario& scenario) {
  switch (scenario.verdict()) {
    case PeakVerdict::grown:
    case PeakVerdict::lost:
      return "if that is meant: " + RenewCommand(report);
    case PeakVerdict::shrunk:
      return "so that it stays so: " + RenewCommand(report);
    case PeakVerdict::new_one:
      return RenewCommand(report);
    case PeakVerdict::over_budget:
      return fmt::format("tidemark solve finds what fits; or raise budget in {}", report.scenarios_path);
    case PeakVerdict::error:
      return scenario.hint;
    case PeakVerdict::pass:
      break;
  }
  return {};
}

bool WantsRenewal(const CheckedScenario& scenario) {
  switch (scenario.verdict()) {
    case PeakVerdict::grown:
    case PeakVerdict::shrunk:
    case PeakVerdict::new_one:
    case PeakVerdict::lost:
      return true;
    case PeakVerdict::pass:
    case PeakVerdict::over_budget:
    case PeakVerdict::error:
      break;
  }
  return false;
}

std::string RenewCommand(const CheckReport& report) {
  return fmt::format("tidemark baseline update {} --baseline {} --reason '...'", report.scenarios_path,
                     report.baseline_path);
}

}  // namespace tidemark

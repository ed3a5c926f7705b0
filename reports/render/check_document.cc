// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "reports/render/document.h"
#include "reports/render/role_sections.h"
#include "reports/summarise/check_report.h"

namespace tidemark {
namespace {

// Whoever reads hundreds of scenarios looks at those that fail; JSON has them all.
constexpr std::size_t kScenarioRows = 100, kExplained = 20, kTensors = 8, kKeys = 8;

/// Those that fail first, then those that shrank; each group in the order of the file.
std::vector<const CheckedScenario*> Ordered(const CheckReport& report) {
  std::vector<const CheckedScenario*> all;
  for (const CheckedScenario& scenario : report.scenarios) {
    all.push_back(&scenario);
  }
  std::stable_sort(all.begin(), all.end(), [](const auto* a, const auto* b) {
    const auto rank = [](const CheckedScenario& s) {
      return s.Fails() ? 0 : s.verdict() == PeakVerdict::shrunk ? 1 : 2;
    };
    return rank(*a) < rank(*b);
  });
  return all;
}

std::string VerdictText(const CheckReport& report) {
  if (!report.has_baseline) {
    return fmt::format("FAILED: there is no baseline {}", report.baseline_path);
  }
  if (report.Passes()) {
    const std::size_t shrunk = report.Count(PeakVerdict::shrunk);
    return shrunk == 0 ? "PASSED: no peak has grown"
                       : fmt::format("PASSED: no peak has grown, {} {} lower than the baseline", shrunk,
                                     shrunk == 1 ? "is" : "are");
  }
  std::vector<std::string> parts;
  for (const PeakVerdict verdict :
       {PeakVerdict::grown, PeakVerdict::over_budget, PeakVerdict::new_one, PeakVerdict::lost, PeakVerdict::error}) {
    if (const std::size_t count = report.Count(verdict); count > 0) {
      parts.push_back(fmt::format("{} {}", count, verdict == PeakVerdict::over_budget ? "over budget" : Name(verdict)));
    }
  }
  return fmt::format("FAILED: {} of {} scenarios: {}", report.Failed(), report.scenarios.size(),
                     fmt::join(parts, ", "));
}

std::string OptionalText(const std::optional<Bytes>& bytes) { return bytes ? Text(*bytes) : "-"; }

std::string DeltaText(const std::optional<Bytes>& delta) {
  return !delta ? "-" : fmt::format("{}{}", *delta > Bytes(0) ? "+" : "", Text(*delta));
}

Section ScenariosSection(const std::vector<const CheckedScenario*>& ordered) {
  Section section{"Scenarios", "what fails first", {}, {}};
  section.table.columns = {{"scenario", false, true}, {"verdict", false, false}, {"baseline", true, false},
                           {"peak", true, false},     {"change", true, false},   {"device", true, false},
                           {"budget", true, false},   {"by", false, false}};
  for (const CheckedScenario* each : std::span(ordered).first(std::min(kScenarioRows, ordered.size()))) {
    section.table.rows.push_back({{each->name, std::string(Name(each->verdict())), OptionalText(each->baseline),
                                   OptionalText(each->peak), DeltaText(each->delta()), OptionalText(each->device),
                                   OptionalText(each->budget), each->measured ? "run" : "prediction"},
                                  std::nullopt});
  }
  if (ordered.size() > kScenarioRows) {
    section.remarks.push_back({"left out", fmt::format("{} more scenarios", ordered.size() - kScenarioRows),
                               "--format json has all", Tone::neutral});
  }
  return section;
}

void AddRows(const std::vector<PeakChange>& changes, ReportTable& table) {
  for (const PeakChange& change : std::span(changes).first(std::min(kTensors, changes.size()))) {
    table.rows.push_back({{std::string(Name(change.category)), change.tensor, DeltaText(change.difference()),
                           Text(change.before), Text(change.after), change.phase, change.until},
                          std::nullopt});
  }
}

Remark JobRemark(const std::vector<JobDifference>& differences) {
  std::vector<std::string> parts;
  for (const JobDifference& difference : std::span(differences).first(std::min(kKeys, differences.size()))) {
    parts.push_back(fmt::format("{}: {} -> {}", difference.key, Excerpt(difference.values.at(0), 0),
                                Excerpt(difference.values.at(1), 0)));
  }
  if (differences.size() > kKeys) {
    parts.push_back(fmt::format("{} more", differences.size() - kKeys));
  }
  return {"the job differs from the baseline's", fmt::format("{}", fmt::join(parts, "; ")), "", Tone::warning};
}

/// One that fails, or has shrunk.
Section DetailsSection(const CheckReport& report, const CheckedScenario& scenario) {
  Section section{scenario.name, fmt::format("{}:{}", scenario.file, scenario.line), {}, {}};
  if (scenario.line == 0) {
    section.subtitle = scenario.file;
  }
  section.table.columns = {{"category", false, false}, {"tensor", false, true}, {"change", true, false},
                           {"before", true, false},    {"now", true, false},    {"from", false, false},
                           {"to", false, false}};
  section.table.wide = true;
  AddRows(scenario.grown, section.table);
  AddRows(scenario.shrunk, section.table);
  section.remarks.push_back({std::string(Name(scenario.verdict())), CheckSentence(scenario),
                             WantsRenewal(scenario) ? "" : CheckHint(report, scenario),
                             scenario.Fails() ? Tone::bad : Tone::good});
  if (!scenario.job_changed.empty()) {
    section.remarks.push_back(JobRemark(scenario.job_changed));
  }
  for (const std::string& doubt : scenario.doubts) {
    section.remarks.push_back({"in doubt", doubt, "", Tone::warning});
  }
  return section;
}

/// What there is to say beyond the row in the table.
bool HasDetails(const CheckedScenario& scenario) {
  const PeakVerdict verdict = scenario.verdict();
  const bool in_table = verdict == PeakVerdict::pass || verdict == PeakVerdict::lost ||
                        (verdict == PeakVerdict::new_one && scenario.message.empty());
  return !in_table || !scenario.doubts.empty() || !scenario.job_changed.empty();
}

Section RenewalSection(const CheckReport& report) {
  Section section{"If this is meant", "", {}, {}};
  Remark remark{"renew the baseline", "this writes it; commit it with the change that moves the peaks", "",
                Tone::neutral};
  remark.command = RenewCommand(report);
  section.remarks.push_back(std::move(remark));
  return section;
}

std::vector<Figure> Figures(const CheckReport& report) {
  const std::size_t shrunk = report.Count(PeakVerdict::shrunk);
  return {{"scenarios", std::to_string(report.scenarios.size()), report.scenarios_path},
          {"passed", std::to_string(report.scenarios.size() - report.Failed()),
           shrunk == 0 ? "" : fmt::format("{} of them lower than the baseline", shrunk)},
          {"failed", std::to_string(report.Failed()), ""}};
}

}  // namespace

Document MakeDocument(const CheckReport& report) {
  Document document{fmt::format("Peak memory against {}", report.baseline_path),
                    VerdictText(report),
                    report.Passes() ? Tone::good : Tone::bad,
                    Figures(report),
                    {},
                    {}};
  const std::vector<const CheckedScenario*> ordered = Ordered(report);
  document.sections.push_back(ScenariosSection(ordered));
  for (const CheckedScenario* each : std::span(ordered).first(std::min(kExplained, ordered.size()))) {
    if (HasDetails(*each)) {
      document.sections.push_back(DetailsSection(report, *each));
    }
  }
  if (std::ranges::any_of(report.scenarios, WantsRenewal)) {
    document.sections.push_back(RenewalSection(report));
  }
  return document;
}

}  // namespace tidemark

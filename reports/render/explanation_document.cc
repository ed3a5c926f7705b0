// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "base/text.h"
#include "reports/render/document.h"
#include "reports/render/instants.h"
#include "reports/render/lints.h"
#include "reports/render/role_sections.h"

namespace tidemark {
namespace {

constexpr std::size_t kExplainedRows = 14;
constexpr std::size_t kChangeRows = 10;

std::string PeakDetail(const ExplainedSide& side) {
  const Peak& peak = side.peak();
  const std::string place = PhaseText(peak.phase, peak.microbatch, peak.step, peak.side);
  return fmt::format("{}, {}; {}", side.report.Worst().role, place, side.report.Fits() ? "fits" : "does not fit");
}

std::vector<Figure> Figures(const Explanation& explanation) {
  const ExplainedSide &before = explanation.before, &after = explanation.after;
  return {{"peak before", Text(before.peak().allocated), PeakDetail(before)},
          {"peak after", Text(after.peak().allocated), PeakDetail(after)},
          {"difference", Signed(explanation.peak_delta()), AllDigits(explanation.peak_delta())},
          {"step before", Text(before.report.time.step), before.report.StepText()},
          {"step after", Text(after.report.time.step), Signed(explanation.step_delta())}};
}

std::string Verdict(const Explanation& explanation) {
  const bool fitted = explanation.before.report.Fits(), fits = explanation.after.report.Fits();
  const std::string sizes = fitted == fits ? (fits ? "Both fit" : "Neither fits")
                            : fits         ? "Before does not fit, after fits"
                                           : "Before fits, after does not fit";
  const std::string errors = ErrorSentence(explanation.after.report.lints);
  return sizes + (errors.empty() ? "" : "; but after, " + errors);
}

Section ChangesSection(const Explanation& explanation) {
  Section section{"Where the jobs differ", "everything else is the same", {}, {}};
  section.table.columns = {{"key", false, true}, {"before", false, true}, {"after", false, true}};
  for (const JobDifference& change : explanation.changes) {
    if (section.table.rows.size() == kChangeRows) {
      section.table.rows.push_back(
          {{fmt::format("{} more keys", explanation.changes.size() - kChangeRows), "", ""}, std::nullopt});
      break;
    }
    section.table.rows.push_back({{change.key, change.values[0], change.values[1]}, std::nullopt});
  }
  return section;
}

ReportRow SumRow(const std::string& name, Bytes before, Bytes after) {
  return {{name, "", "", Text(before), Text(after), Signed(after - before)}, std::nullopt};
}

bool IsShown(const ExplainedTensor& tensor) { return tensor.in_peak && tensor.delta() != Bytes(0); }

/// Largest difference first. What is left out is added up, so that the rows sum to the last one.
Section TensorsSection(const Explanation& explanation) {
  Section section{"Tensor by tensor", "bytes that are alive at each peak", {}, {}};
  section.table.columns = {{"tensor", false, true}, {"dtype", false, false}, {"of the whole", false, true},
                           {"before", true, false}, {"after", true, false},  {"difference", true, false}};
  std::array<std::pair<Bytes, Bytes>, 2> rest;  // smaller differences, and none
  std::array<std::int64_t, 2> counts{};
  for (const ExplainedTensor& tensor : explanation.tensors) {
    if (IsShown(tensor) && section.table.rows.size() < kExplainedRows) {
      section.table.rows.push_back({{tensor.name, tensor.dtype, tensor.sharding, Text(tensor.before),
                                     Text(tensor.after), Signed(tensor.delta())},
                                    std::nullopt});
    } else if (tensor.in_peak) {
      const std::size_t alike = tensor.delta() == Bytes(0) ? 1 : 0;
      rest.at(alike).first += tensor.before;
      rest.at(alike).second += tensor.after;
      ++counts.at(alike);
    }
  }
  for (const std::size_t i : {0U, 1U}) {
    if (counts.at(i) > 0) {
      section.table.rows.push_back(
          SumRow(fmt::format("{} {}", Grouped(counts.at(i)), i == 0 ? "smaller families" : "families alike in both"),
                 rest.at(i).first, rest.at(i).second));
    }
  }
  section.table.rows.push_back(
      SumRow("all tensors", explanation.before.peak().allocated, explanation.after.peak().allocated));
  return section;
}

/// Of those that make the difference: since when and until when, and how much of each is ever alive at once.
Section LivesSection(const Explanation& explanation) {
  Section section{"When they live", "the most of each that is alive at once, at whatever moment", {}, {}};
  section.table.columns = {{"tensor", false, true},
                           {"born", false, false},
                           {"dies", false, false},
                           {"most before", true, false},
                           {"most after", true, false}};
  for (const ExplainedTensor& tensor : explanation.tensors) {
    if (IsShown(tensor) && section.table.rows.size() < kExplainedRows) {
      section.table.rows.push_back(
          {{tensor.name, tensor.born, tensor.dies, Text(tensor.most_before), Text(tensor.most_after)}, std::nullopt});
    }
  }
  return section;
}

/// "on stage 3, the last to finish; before, on stage 0"
std::string WhereTimesAreOf(const PredictionReport& before, const PredictionReport& after) {
  if (before.LastRoleText() == after.LastRoleText()) {
    return fmt::format("on {}", after.LastRoleText());
  }
  const auto name = [](const PredictionReport& side) {
    return side.roles.size() > 1 ? side.time.role : "the only role";
  };
  return fmt::format("on {}, the last to finish; before, on {}", name(after), name(before));
}

Section TimeSection(const Explanation& explanation) {
  Section section{
      "Time of a step by cause", WhereTimesAreOf(explanation.before.report, explanation.after.report), {}, {}};
  section.table.columns = {
      {"cause", false, false}, {"before", true, false}, {"after", true, false}, {"difference", true, false}};
  for (const ExplainedTime& time : explanation.times) {
    section.table.rows.push_back(
        {{time.cause, Text(time.before), Text(time.after), Signed(time.delta())}, std::nullopt});
  }
  section.table.rows.push_back({{"step", Text(explanation.before.report.time.step),
                                 Text(explanation.after.report.time.step), Signed(explanation.step_delta())},
                                std::nullopt});
  return section;
}

Section HintsSection(const Explanation& explanation) {
  Section section{"Remarks on the second job", "", {}, {}};
  for (const Lint& lint : explanation.after.report.lints) {
    section.remarks.push_back(LintRemark(lint));
  }
  return section;
}

std::string Title(const Explanation& explanation) {
  const std::string &before = explanation.before.report.title, &after = explanation.after.report.title;
  return before == after ? before : fmt::format("{} -> {}", before, after);
}

}  // namespace

Document MakeDocument(const Explanation& explanation) {
  const PredictionReport& after = explanation.after.report;
  const bool good = after.Fits() && ErrorSentence(after.lints).empty();
  Document document{
      Title(explanation), Verdict(explanation), good ? Tone::good : Tone::bad, Figures(explanation), {}, {}};
  document.paragraphs.push_back(ExplainInWords(explanation));
  if (!explanation.changes.empty()) {
    document.sections.push_back(ChangesSection(explanation));
  }
  document.sections.push_back(TensorsSection(explanation));
  if (Section lives = LivesSection(explanation); !lives.table.rows.empty()) {
    document.sections.push_back(std::move(lives));
  }
  document.sections.push_back(TimeSection(explanation));
  document.sections.push_back(
      InstantsSection("Named instants before", explanation.before.report.Worst(), explanation.before.report.instants));
  document.sections.push_back(
      InstantsSection("Named instants after", explanation.after.report.Worst(), explanation.after.report.instants));
  if (!after.lints.empty()) {
    document.sections.push_back(HintsSection(explanation));
  }
  return document;
}

}  // namespace tidemark

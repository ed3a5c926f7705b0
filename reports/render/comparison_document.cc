// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/text.h"
#include "reports/render/document.h"
#include "reports/render/role_sections.h"
#include "reports/render/sparklines.h"

namespace tidemark {
namespace {

constexpr std::size_t kCauseRows = 12;
constexpr std::size_t kComparedRows = 10;

std::string SignedDigits(Bytes bytes) { return (bytes > Bytes(0) ? "+" : "") + AllDigits(bytes); }

std::string PercentText(std::optional<double> percent) { return percent ? fmt::format("{:+.2f} %", *percent) : "-"; }

std::string Optional(const std::optional<Bytes>& bytes) { return bytes ? Text(*bytes) : "not known"; }

/// "; stage 1 is predicted only"
std::string LoneRoles(const Comparison& comparison) {
  std::string text;
  for (const std::string& role : comparison.only_predicted) {
    text += fmt::format("; {} is predicted only", role);
  }
  for (const std::string& role : comparison.only_measured) {
    text += fmt::format("; {} is measured only", role);
  }
  return text;
}

std::string Verdict(const Comparison& comparison) {
  const TraceComparison& worst = comparison.Worst();
  const char* of = worst.of_tensors ? "tensors" : "the allocator";
  if (comparison.EqualPeaks()) {
    const bool all = std::none_of(comparison.roles.begin(), comparison.roles.end(),
                                  [](const TraceComparison& role) { return role.first.has_value(); });
    return fmt::format("The peaks of {} agree to the byte: {}{}{}", of, Text(worst.predicted.peak),
                       all ? "" : ", but not every event does", LoneRoles(comparison));
  }
  const Bytes error = worst.peak_error();
  return fmt::format("The predicted peak of {} is {} too {} ({}){}", of,
                     Text(error < Bytes(0) ? Bytes(0) - error : error), error < Bytes(0) ? "low" : "high",
                     PercentText(ErrorPercent(worst.predicted.peak.count(), worst.measured.peak.count())),
                     LoneRoles(comparison));
}

/// What a verdict on the peaks does not cover.
std::string CutSentences(const ComparisonReport& report) {
  std::string text;
  for (const ComparedSide* side : {&report.predicted, &report.measured}) {
    if (!side->note.empty()) {
      text += fmt::format(". {} is cut short: {}; its peak may be in what is missing", side->path, side->note);
    }
  }
  return text;
}

std::string PeakDetail(const SideTotals& side, const ComparedSide& of) {
  return fmt::format("{}; {}", PlaceInWords(side.peak_at), of.label);
}

/// "a steady step"
std::string OfKind(const StepTimes& row) { return row.kind.empty() ? "a step" : fmt::format("a {} step", row.kind); }

/// Of several steps the last kind is what a training spends its time with.
std::vector<Figure> TimeFigures(const TraceComparison& worst) {
  const auto figure = [](std::string label, Nanos predicted, Nanos measured, const std::string& which) -> Figure {
    return {std::move(label), PercentText(ErrorPercent(predicted.count(), measured.count())),
            fmt::format("{} against {}{}", Text(predicted), Text(measured), which)};
  };
  if (worst.steps.size() < 2) {
    return {figure("step time error", worst.predicted.step, worst.measured.step, "")};
  }
  const StepTimes& last = worst.step_times.back();
  return {figure(fmt::format("time error of {} steps", worst.steps.size()), worst.predicted.step, worst.measured.step,
                 ", all together"),
          figure(fmt::format("of {}", OfKind(last)), last.predicted, last.measured,
                 last.count > 1 ? fmt::format(", medians of {}", last.count) : "")};
}

std::vector<Figure> Figures(const ComparisonReport& report) {
  const TraceComparison& worst = report.comparison.Worst();
  const auto reserved = [&] {
    const auto &ours = worst.predicted.reserved, &theirs = worst.measured.reserved;
    return ours && theirs ? PercentText(ErrorPercent(ours->count(), theirs->count())) : "-";
  };
  std::vector<Figure> figures = {
      {"predicted peak", Text(worst.predicted.peak), PeakDetail(worst.predicted, report.predicted)},
      {"measured peak", Text(worst.measured.peak), PeakDetail(worst.measured, report.measured)},
      {"peak error", Signed(worst.peak_error()), SignedDigits(worst.peak_error())},
      {"reserved error", reserved(),
       fmt::format("{} against {}", Optional(worst.predicted.reserved), Optional(worst.measured.reserved))}};
  std::ranges::move(TimeFigures(worst), std::back_inserter(figures));
  return figures;
}

Section StepsSection(const TraceComparison& worst) {
  Section section{"By step", "of several of a kind the median of each side", {}, {}};
  section.table.columns = {{"step", false, false},
                           {"count", true, false},
                           {"predicted", true, false},
                           {"measured", true, false},
                           {"error", true, false}};
  for (const StepTimes& row : worst.step_times) {
    section.table.rows.push_back(
        {{row.kind.empty() ? "of unknown kind" : row.kind, Grouped(row.count), Text(row.predicted), Text(row.measured),
          PercentText(ErrorPercent(row.predicted.count(), row.measured.count()))},
         std::nullopt});
  }
  return section;
}

Section CausesSection(const TraceComparison& worst) {
  Section section{"Why", "bytes are predicted minus measured; those of the peak's error sum to it exactly", {}, {}};
  const std::vector<WordedCause> causes = CausesInWords(worst);
  for (std::size_t i = 0; i < std::min(kCauseRows, causes.size()); ++i) {
    std::string label = causes[i].of == "time" ? "time" : causes[i].kind;
    std::replace(label.begin(), label.end(), '_', ' ');
    section.remarks.push_back({std::move(label), causes[i].sentence, "",
                               causes[i].bytes && *causes[i].bytes != Bytes(0) ? Tone::warning : Tone::neutral});
  }
  if (causes.size() > kCauseRows) {
    section.remarks.push_back(
        {"more", fmt::format("{} further causes, all of them with --format json", causes.size() - kCauseRows), "",
         Tone::neutral});
  }
  return section;
}

Section PhasesSection(const TraceComparison& worst) {
  Section section{"By phase",
                  fmt::format("highest total; the largest error of one microbatch or step; time {}",
                              worst.times_of_work ? "of the work it issued" : "of the host in it"),
                  {},
                  {}};
  section.table.columns = {{"phase", false, false},        {"predicted", true, false},
                           {"measured", true, false},      {"error", true, false},
                           {"largest error", true, false}, {"predicted time", true, false},
                           {"measured time", true, true}};
  for (const PhaseComparison& phase : worst.phases) {
    const auto peak = [](Bytes bytes) { return bytes > Bytes(0) ? Text(bytes) : std::string("-"); };
    section.table.rows.push_back({{phase.phase, peak(phase.predicted_peak), peak(phase.measured_peak),
                                   Signed(phase.predicted_peak - phase.measured_peak), Signed(phase.largest_error),
                                   Text(phase.predicted_time), Text(phase.measured_time)},
                                  std::nullopt});
  }
  return section;
}

Section CategoriesSection(const TraceComparison& worst) {
  Section section{"By category",
                  worst.paired_by_bytes
                      ? "at each side's own peak; one side does not tell categories: its tensors have "
                        "those of the ones that they pair with by bytes"
                      : "at each side's own peak",
                  {},
                  {}};
  section.table.columns = {
      {"category", false, false}, {"predicted", true, false}, {"measured", true, false}, {"error", true, false}};
  const auto add = [&](std::string_view name, Bytes predicted, Bytes measured) {
    section.table.rows.push_back(
        {{std::string(name), Text(predicted), Text(measured), Signed(predicted - measured)}, std::nullopt});
  };
  for (std::size_t i = 0; i < kCategories; ++i) {
    const auto category = static_cast<Category>(i);
    const Bytes predicted = worst.predicted.by_category[category], measured = worst.measured.by_category[category];
    if (predicted + measured > Bytes(0)) {
      add(Name(category), predicted, measured);
    }
  }
  add("tensors", worst.predicted.by_category.Total(), worst.measured.by_category.Total());
  return section;
}

Section OperatorsSection(const TraceComparison& worst) {
  Section section{"Time by operator", "all of a name together, the largest error first", {}, {}};
  section.table.columns = {{"operator", false, true},
                           {"stream", false, false},
                           {"predicted", true, false},
                           {"measured", true, false},
                           {"error", true, false}};
  for (std::size_t i = 0; i < std::min(kComparedRows, worst.operators.size()); ++i) {
    const OperatorComparison& row = worst.operators[i];
    if (row.predicted == row.measured && row.predicted_count == row.measured_count) {
      break;  // so are all that follow
    }
    const auto text = [](std::int64_t count, Nanos nanos) {
      return count == 0 ? std::string("-") : fmt::format("{} x, {}", Grouped(count), Text(nanos));
    };
    section.table.rows.push_back({{row.name, row.stream_kind, text(row.predicted_count, row.predicted),
                                   text(row.measured_count, row.measured), Signed(row.predicted - row.measured)},
                                  std::nullopt});
  }
  return section;
}

Section UnmatchedSection(const TraceComparison& worst) {
  Section section{"On one side only", "", {}, {}};
  section.table.columns = {{"tensor", false, true},
                           {"only", false, false},
                           {"in", false, true},
                           {"count", true, false},
                           {"bytes", true, false}};
  for (std::size_t i = 0; i < std::min(kComparedRows, worst.unmatched.size()); ++i) {
    const UnmatchedTensor& row = worst.unmatched[i];
    section.table.rows.push_back({{row.name, row.predicted ? "predicted" : "measured", PhaseLabel(row.place),
                                   Grouped(row.count), Grouped(row.bytes.count())},
                                  std::nullopt});
  }
  if (worst.unmatched.size() > kComparedRows) {
    section.subtitle = fmt::format("the first {} of {}; all with --format json", kComparedRows, worst.unmatched.size());
  }
  return section;
}

Section RolesSection(const Comparison& comparison) {
  Section section{"By role and rank", "the first one is told above", {}, {}};
  section.table.columns = {{"role", false, true},     {"trace", true, false}, {"predicted", true, false},
                           {"measured", true, false}, {"error", true, false}, {"in bytes", true, false}};
  std::vector<const TraceComparison*> roles;
  for (const TraceComparison& role : comparison.roles) {
    roles.push_back(&role);
  }
  std::rotate(roles.begin(), roles.begin() + static_cast<std::ptrdiff_t>(comparison.worst),
              roles.begin() + static_cast<std::ptrdiff_t>(comparison.worst) + 1);
  for (const TraceComparison* role : roles) {
    section.table.rows.push_back(
        {{role->role, Grouped(static_cast<std::int64_t>(role->measured_trace) + 1), Text(role->predicted.peak),
          Text(role->measured.peak), Signed(role->peak_error()), Grouped(role->peak_error().count())},
         std::nullopt});
  }
  for (const auto& [only, names] :
       {std::pair("predicted", comparison.only_predicted), std::pair("measured", comparison.only_measured)}) {
    for (const std::string& name : names) {
      section.remarks.push_back({name, fmt::format("is {} only", only), "", Tone::warning});
    }
  }
  return section;
}

Section FirstSection(const FirstDifference& first) {
  Section section{"Where they part", "the first event that is not the same on both sides", {}, {}};
  const auto add = [&](const char* side, const std::string& event, const PhasePlace& place, Nanos issue) {
    section.remarks.push_back(
        {side,
         event.empty() ? "has no further event" : fmt::format("{}; {}, at {}", event, PlaceInWords(place), Text(issue)),
         "", Tone::neutral});
  };
  add("predicted", first.predicted, first.predicted_place, first.predicted_issue);
  add("measured", first.measured, first.measured_place, first.measured_issue);
  return section;
}

Section JobsSection(const ComparisonReport& report) {
  Section section{"Where the jobs differ", "a prediction of another job is no prediction of this one", {}, {}};
  section.table.columns = {{"key", false, true}, {"predicted", false, true}, {"measured", false, true}};
  for (const JobDifference& job : report.jobs) {
    section.table.rows.push_back({{job.key, job.values.at(0), job.values.at(1)}, std::nullopt});
  }
  return section;
}

/// Trace::clock, with its word for scripts.
std::string ClockInWords(const std::string& clock) {
  if (clock == "cupti") {
    return "CUPTI's records time the measured work on streams (cupti)";
  }
  if (clock == "device_events") {
    return "CUDA's events time the measured work on streams (device_events)";
  }
  if (clock == kUntimed) {
    return "the measured steps are timed, and not the work in them (none)";
  }
  return fmt::format("the {}'s clock times the measured work", clock);
}

/// "; of its 4 steps only 2 (1, 2)": a peak may be in the others.
std::string StepsOf(const ComparedSide& side) {
  if (side.steps.empty()) {
    return "";
  }
  constexpr std::size_t kNamed = 6;
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < std::min(kNamed, side.steps.size()); ++i) {
    numbers.push_back(side.steps[i] + 1);
  }
  return fmt::format("; of its {} steps {} compared: {}{}", side.all_steps,
                     side.steps.size() == 1 ? "one is" : fmt::format("{} are", side.steps.size()),
                     fmt::join(numbers, ", "), side.steps.size() > kNamed ? "..." : "");
}

Section SourcesSection(const ComparisonReport& report) {
  const Comparison& comparison = report.comparison;
  Section section{"The traces", "", {}, {}};
  for (const ComparedSide* side : {&report.predicted, &report.measured}) {
    section.remarks.push_back({side == &report.predicted ? "predicted" : "measured",
                               fmt::format("{}; {}, {} memory events of {}, from {}{}",
                                           side->title.empty() ? "a job without a title" : side->title,
                                           side->origin.empty() ? "of unknown origin" : side->origin,
                                           Grouped(static_cast<std::int64_t>(side->trace.memory.size())),
                                           comparison.Worst().role.empty() ? "one role" : comparison.Worst().role,
                                           side->path, StepsOf(*side)),
                               "", Tone::neutral});
  }
  section.remarks.push_back({"independence",
                             comparison.independent.empty()
                                 ? "both sides are predictions: what they agree in proves nothing about a run"
                                 : fmt::format("the measured side has its own {}, not the prediction's",
                                               fmt::join(comparison.independent, " and ")),
                             "", Tone::neutral});
  if (!report.measured.clock.empty()) {
    section.remarks.push_back({"clock", ClockInWords(report.measured.clock), "", Tone::neutral});
  }
  if (const auto& times = report.uncalibrated) {
    section.remarks.push_back(
        {"times", fmt::format("were predicted for the machine {}, of which nothing was measured here", times->machine),
         fmt::format("tidemark calibrate --device {} -o machine.yaml measures this one, --set machine=machine.yaml "
                     "predicts with it",
                     times->device),
         Tone::neutral});
  }
  return section;
}

}  // namespace

Document MakeDocument(const ComparisonReport& report) {
  const Comparison& comparison = report.comparison;
  const TraceComparison& worst = comparison.Worst();
  Document document{fmt::format("Predicted against measured: {}",
                                report.predicted.title.empty() ? report.predicted.path : report.predicted.title),
                    Verdict(comparison) + CutSentences(report),
                    report.Agrees() ? Tone::good : Tone::bad,
                    Figures(report),
                    {},
                    {}};
  document.sparklines =
      MemorySparklines({{"predicted", &report.predicted.trace}, {"measured", &report.measured.trace}});
  const auto add = [&](Section section) {
    if (!section.table.rows.empty() || !section.remarks.empty()) {
      document.sections.push_back(std::move(section));
    }
  };
  add(CausesSection(worst));
  if (worst.steps.size() > 1) {
    add(StepsSection(worst));
  }
  add(PhasesSection(worst));
  add(CategoriesSection(worst));
  if (comparison.roles.size() > 1 || !comparison.only_predicted.empty() || !comparison.only_measured.empty()) {
    add(RolesSection(comparison));
  }
  if (worst.first) {
    add(FirstSection(*worst.first));
  }
  add(UnmatchedSection(worst));
  add(OperatorsSection(worst));
  add(JobsSection(report));
  Section assumptions{"What the prediction assumes", "", {}, {}};
  AddAssumptions(assumptions, "", report.predicted.trace);
  add(std::move(assumptions));
  add(SourcesSection(report));
  return document;
}

}  // namespace tidemark

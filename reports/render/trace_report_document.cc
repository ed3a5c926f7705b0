// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"
#include "reports/render/document.h"
#include "reports/render/lints.h"
#include "reports/render/peak_differences.h"
#include "reports/render/role_sections.h"
#include "reports/render/sparklines.h"
#include "reports/summarise/comparison.h"
#include "traces/place.h"

namespace tidemark {
namespace {

constexpr std::size_t kCauses = 3;

Bytes Size(Bytes bytes) { return bytes < Bytes(0) ? Bytes(0) - bytes : bytes; }

std::string PlaceOf(const Peak& peak) { return PhaseText(peak.phase, peak.microbatch, peak.step, peak.side); }

/// "a, b and c"
std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    text += i == 0 ? "" : i + 1 == words.size() ? " and " : ", ";
    text += words[i];
  }
  return text;
}

std::string HighestSentence(const TraceReport& report) {
  const TraceSummary& highest = report.traces[report.Highest()];
  std::vector<std::string> margins;
  for (const TraceSummary& trace : report.traces) {
    if (&trace != &highest) {
      const Bytes margin = highest.role.peak.allocated - trace.role.peak.allocated;
      margins.push_back(margin == Bytes(0) ? fmt::format("as much as {}", trace.label)
                                           : fmt::format("{} more than {}", Text(margin), trace.label));
    }
  }
  const bool alike = std::all_of(report.traces.begin(), report.traces.end(), [&](const TraceSummary& trace) {
    return trace.role.peak.allocated == highest.role.peak.allocated;
  });
  if (alike) {
    return fmt::format("All traces peak at {} of tensors.", Text(highest.role.peak.allocated));
  }
  const std::string place = PlaceOf(highest.role.peak);
  return fmt::format("{} peaks highest: {} of tensors{}{}, {}.", highest.label, Text(highest.role.peak.allocated),
                     place.empty() ? "" : ", in ", place, Joined(margins));
}

/// The tensors that move the peak most, in the direction in which it moves.
std::string CausesSentence(const TraceReport& report, const PeakDifference& difference) {
  const std::string from_to =
      fmt::format("from {} to {}", report.traces.front().label, report.traces[difference.other].label);
  const Bytes delta = difference.difference();
  if (delta == Bytes(0)) {
    return fmt::format("The peak does not change {}.", from_to);
  }
  std::vector<std::string> causes;
  for (const TensorDifference& tensor : difference.tensors) {
    const bool same_way = tensor.difference() != Bytes(0) && (tensor.difference() > Bytes(0)) == (delta > Bytes(0));
    if (same_way && causes.size() < kCauses) {
      causes.push_back(fmt::format("{} ({}, {})", tensor.name, Name(tensor.category), Signed(tensor.difference())));
    }
  }
  return fmt::format("The peak {} by {} {}, most of all by {}.", delta < Bytes(0) ? "falls" : "rises",
                     Text(Size(delta)), from_to, Joined(causes));
}

/// "up to 87.8 GiB of 79.6 GiB": what has to fit, and into what.
std::string NeedText(const TraceSummary& trace) {
  const bool whole = trace.role.device.high > Bytes(0);
  const char* what = whole ? "up to " : trace.role.reserved ? "reserved " : "tensors ";
  const std::string where = trace.needed_by == trace.role.role ? "" : " in " + trace.needed_by;
  return fmt::format("{}{} of {}{}", what, Text(trace.needed),
                     UsableMemoryText(trace.usable_memory, trace.device_memory), where);
}

std::string FitSentence(const TraceSummary& trace) {
  const auto fits = trace.Fits();
  if (!fits) {
    return fmt::format("Whether {} fits is not known: its trace {}.", trace.label,
                       trace.note.empty() ? "does not tell the device's memory" : "is cut short");
  }
  if (trace.RanOut()) {
    return fmt::format("{} ran out of memory.", trace.label);
  }
  return fmt::format("{} {} its device ({}).", trace.label, *fits ? "fits" : "does not fit", NeedText(trace));
}

std::string Paragraph(const TraceReport& report) {
  std::string text;
  if (report.traces.size() > 1) {
    text = HighestSentence(report) + " ";
  }
  for (const PeakDifference& difference : report.differences) {
    text += CausesSentence(report, difference) + " ";
  }
  for (const TraceSummary& trace : report.traces) {
    text += FitSentence(trace) + (&trace == &report.traces.back() ? "" : " ");
  }
  return text;
}

Section PeaksSection(const TraceReport& report) {
  Section section{"Peaks", report.traces.front().role.role, {}, {}};
  section.table.columns = {{"trace", false, true},     {"tensors", true, false},    {"allocator", true, false},
                           {"reserved", true, false},  {"device used", true, true}, {"fits", false, false},
                           {"issued at", true, false}, {"in", false, true}};
  for (const TraceSummary& trace : report.traces) {
    const RoleReport& role = trace.role;
    const auto text = [](const std::optional<Bytes>& bytes) { return bytes ? Text(*bytes) : std::string("-"); };
    const auto fits = trace.Fits();
    section.table.rows.push_back({{trace.label, Text(role.peak.allocated), text(role.allocator_bytes),
                                   text(role.reserved), role.device.high > Bytes(0) ? Text(role.device.expected) : "-",
                                   !fits   ? "?"
                                   : *fits ? "yes"
                                           : "no",
                                   role.peak.at ? Text(*role.peak.at) : "-",
                                   PhaseLabel(role.peak.phase, role.peak.microbatch, role.peak.step, role.peak.side)},
                                  std::nullopt});
  }
  for (const TraceSummary& trace : report.traces) {
    for (const RolePeak& other : trace.roles) {
      if (other.allocated > trace.role.peak.allocated) {
        section.remarks.push_back({trace.label,
                                   fmt::format("{} peaks higher ({}) than {}, which is shown", other.role,
                                               Text(other.allocated), trace.role.role),
                                   "--role chooses the role that is shown", Tone::warning});
      }
    }
    if (trace.role.role != report.traces.front().role.role) {
      section.remarks.push_back({trace.label, fmt::format("shows {}", trace.role.role), "", Tone::warning});
    }
  }
  return section;
}

/// The ranks of a file beside each other, the one that peaks highest named.
Section RanksSection(const TraceSummary& trace, bool alone) {
  const auto worst = std::max_element(trace.roles.begin(), trace.roles.end(),
                                      [](const RolePeak& a, const RolePeak& b) { return a.allocated < b.allocated; });
  Section section{alone ? "Ranks" : "Ranks of " + trace.label,
                  fmt::format("{} peaks highest; ranks that do the same are one role", worst->role),
                  {},
                  {}};
  section.table.columns = {{"role", false, true},     {"ranks", true, false},           {"tensors", true, false},
                           {"reserved", true, false}, {"below the worst", true, false}, {"peak in", false, true}};
  for (const RolePeak& role : trace.roles) {
    const Bytes below = worst->allocated - role.allocated;
    section.table.rows.push_back(
        {{role.role, Grouped(role.ranks), Text(role.allocated), role.reserved ? Text(*role.reserved) : "-",
          below == Bytes(0) ? "-" : Text(below), role.where},
         Share(role.allocated.count(), worst->allocated.count())});
  }
  return section;
}

/// What the predictions among the traces take for granted.
Section AssumptionsSection(const TraceReport& report) {
  Section section{"What the predictions assume", "", {}, {}};
  for (const TraceSummary& trace : report.traces) {
    AddAssumptions(section, report.traces.size() == 1 ? "" : trace.label + ": ", trace.trace());
  }
  return section;
}

Section SourcesSection(const TraceReport& report) {
  Section section{"The traces", "", {}, {}};
  for (const TraceSummary& trace : report.traces) {
    const Trace& events = trace.trace();
    const std::size_t steps = std::max<std::size_t>(events.steps.size(), 1);
    section.remarks.push_back({trace.label,
                               fmt::format("{}; {}, {}{} of {}, {} memory events over {} in {}, from {}",
                                           trace.title.empty() ? "a job without a title" : trace.title,
                                           trace.origin.empty() ? "of unknown origin" : trace.origin, trace.role.role,
                                           trace.role.role.empty() ? "one role" : "", Counted(trace.role.ranks, "rank"),
                                           Grouped(static_cast<std::int64_t>(events.memory.size())), Text(events.step),
                                           Counted(static_cast<std::int64_t>(steps), "step"), trace.path),
                               "", Tone::neutral});
  }
  return section;
}

std::vector<Figure> Figures(const TraceReport& report) {
  std::vector<Figure> figures;
  for (const TraceSummary& trace : report.traces) {
    const auto fits = trace.Fits();
    std::string need = PlaceOf(trace.role.peak);
    if (trace.RanOut()) {
      need = "ran out of memory";
    } else if (fits) {
      need = (*fits ? "fits, " : "does not fit, ") + NeedText(trace);
    }
    figures.push_back({fmt::format("peak of {}", trace.label), Text(trace.role.peak.allocated), need});
  }
  return figures;
}

/// "a does not fit its device; b and c fit"
std::string Verdict(const TraceReport& report) {
  std::array<std::vector<std::string>, 2> by_answer;
  for (const TraceSummary& trace : report.traces) {
    if (const auto fits = trace.Fits()) {
      by_answer.at(*fits ? 1 : 0).push_back(trace.label);
    }
  }
  const auto& [bad, good] = by_answer;
  if (bad.empty()) {
    return good.size() == report.traces.size() ? "All fit their devices" : "Whether they fit is not known of all";
  }
  return fmt::format("{} {} not fit{}", Joined(bad), bad.size() == 1 ? "does" : "do",
                     good.empty() ? "" : fmt::format("; {} {}", Joined(good), good.size() == 1 ? "fits" : "fit"));
}

/// " But GRADIENTS ARE WRONG: ...." of one trace, "; pooled: GRADIENTS ARE WRONG: ..." of several: what a verdict on
/// sizes leaves out.
std::string Errors(const TraceReport& report) {
  std::string text;
  for (const TraceSummary& trace : report.traces) {
    if (const std::string errors = ErrorSentence(trace.lints); !errors.empty()) {
      text +=
          report.traces.size() == 1 ? fmt::format(" But {}.", errors) : fmt::format("; {}: {}", trace.label, errors);
    }
  }
  return text;
}

/// The errors that the traces' jobs carry.
Section ErrorsSection(const TraceReport& report) {
  Section section{"What is wrong with the jobs", "", {}, {}};
  for (const TraceSummary& trace : report.traces) {
    for (const Lint& lint : trace.lints) {
      if (lint.severity == "error") {
        Remark remark = LintRemark(lint);
        remark.label = fmt::format("{}, {}", trace.label, remark.label);
        section.remarks.push_back(std::move(remark));
      }
    }
  }
  return section;
}

/// The traces of which something is missing.
Section CutSection(const TraceReport& report) {
  Section section{"What is missing", "", {}, {}};
  for (const TraceSummary& trace : report.traces) {
    if (!trace.note.empty()) {
      section.remarks.push_back({trace.label, fmt::format("is cut short: {}", trace.note),
                                 "its peak may be in what is missing", Tone::warning});
    }
  }
  return section;
}

/// "of stage 1 ", where a file has several.
std::string OfRole(const TraceSummary& trace, const RefusedRequest& refused) {
  return trace.roles.size() > 1 ? fmt::format("of {} ", refused.role) : std::string();
}

/// What the traces tell of requests that were refused.
Section OutOfMemorySection(const TraceReport& report) {
  constexpr std::size_t kMost = 5;  // of each trace
  Section section{"Out of memory", "requests that the device refused", {}, {}};
  for (const TraceSummary& trace : report.traces) {
    for (std::size_t i = 0; i < std::min(kMost, trace.refused.size()); ++i) {
      const RefusedRequest& refused = trace.refused[i];
      std::string text = fmt::format("a request {}was refused at {} or later; {}", OfRole(trace, refused),
                                     Text(refused.at), PlaceInWords(refused.where));
      text += refused.allocated ? fmt::format("; {} were allocated", Text(*refused.allocated)) : std::string();
      text += refused.reserved ? fmt::format("; {} were reserved", Text(*refused.reserved)) : std::string();
      section.remarks.push_back({trace.label, std::move(text), "", Tone::bad});
    }
  }
  return section;
}

Document Heading(const TraceReport& report) {
  if (report.traces.size() == 1) {
    const TraceSummary& trace = report.traces.front();
    return {trace.title.empty() ? trace.label : trace.title,
            FitSentence(trace) + Errors(report),
            Tone::neutral,
            {},
            {},
            {}};
  }
  return {fmt::format("Peak memory of {} traces, {}", report.traces.size(), report.traces.front().role.role),
          Verdict(report) + Errors(report),
          Tone::neutral,
          {},
          {},
          {}};
}

}  // namespace

Document MakeDocument(const TraceReport& report) {
  Document document = Heading(report);
  const auto all = [&](bool unknown) {
    return std::ranges::all_of(report.traces,
                               [&](const TraceSummary& trace) { return trace.Fits().value_or(unknown); });
  };
  Section errors = ErrorsSection(report);
  Section cut = CutSection(report);
  Section out_of_memory = OutOfMemorySection(report);
  const bool sound = errors.remarks.empty() && cut.remarks.empty() && out_of_memory.remarks.empty();
  document.tone = !sound || !all(true) ? Tone::bad : all(false) ? Tone::good : Tone::neutral;
  document.figures = Figures(report);
  std::vector<std::pair<std::string, const Trace*>> traces;
  for (const TraceSummary& trace : report.traces) {
    traces.emplace_back(report.traces.size() == 1 ? "memory" : trace.label, &trace.trace());
  }
  document.sparklines = MemorySparklines(traces);
  if (!out_of_memory.remarks.empty()) {
    document.sections.push_back(std::move(out_of_memory));
  }
  if (!errors.remarks.empty()) {
    document.sections.push_back(std::move(errors));
  }
  if (!cut.remarks.empty()) {
    document.sections.push_back(std::move(cut));
  }
  document.sections.push_back(PeaksSection(report));
  for (const TraceSummary& trace : report.traces) {
    if (trace.roles.size() > 1) {
      document.sections.push_back(RanksSection(trace, report.traces.size() == 1));
    }
  }
  if (report.traces.size() == 1) {
    const RoleReport& role = report.traces.front().role;
    document.sections.push_back(BudgetSection(role));
    document.sections.push_back(CategorySection(role));
    document.sections.push_back(LiveSection(role));
    if (!role.phases.empty()) {
      document.sections.push_back(PhasesSection(role));
    }
  } else {
    document.paragraphs.push_back(Paragraph(report));
    document.sections.push_back(CategoriesSection(report));
    for (const PeakDifference& difference : report.differences) {
      document.sections.push_back(DifferenceSection(report, difference));
    }
    if (!report.jobs.empty()) {
      document.sections.push_back(JobsSection(report));
    }
  }
  if (Section assumptions = AssumptionsSection(report); !assumptions.remarks.empty()) {
    document.sections.push_back(std::move(assumptions));
  }
  document.sections.push_back(SourcesSection(report));
  return document;
}

}  // namespace tidemark

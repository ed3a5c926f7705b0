// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/text.h"
#include "models/findings/findings.h"
#include "reports/render/document.h"
#include "reports/render/lints.h"

namespace tidemark {
namespace {

constexpr std::size_t kHazardRows = 40;
constexpr std::size_t kWindowRows = 12;

/// "0 to 3" of microbatches in a row, which those of a window are.
std::string Range(const std::vector<std::int64_t>& microbatches) {
  return microbatches.size() == 1 ? fmt::format("{}", microbatches.front())
                                  : fmt::format("{} to {}", microbatches.front(), microbatches.back());
}

std::vector<std::string> WarningsAboutNumbers(const std::vector<Lint>& lints) {
  std::vector<std::string> ids;
  for (const Lint& lint : lints) {
    if (lint.severity == "warning" && IsAboutNumbers(lint)) {
      ids.push_back(lint.id);
    }
  }
  return ids;
}

Tone ToneOf(const AuditReport& report) {
  return !report.clean ? Tone::bad : WarningsAboutNumbers(report.lints).empty() ? Tone::good : Tone::warning;
}

std::string Verdict(const AuditReport& report) {
  std::vector<std::string> faults;
  const auto add = [&](std::int64_t count, const std::string& noun) {
    if (count > 0) {
      faults.push_back(Counted(count, noun));
    }
  };
  add(report.CountOf("clobber"), "clobbered value");
  add(report.CountOf("race"), "race");
  add(report.WrongWindows(), "window");
  if (report.WrongWindows() > 0) {
    faults.back() += " with a wrong gradient";
  }
  add(report.Errors(), "error");
  if (!faults.empty()) {
    return fmt::format("WRONG: {}{}", report.hazards_left_out ? "more than " : "", fmt::join(faults, ", "));
  }
  const std::vector<std::string> doubts = WarningsAboutNumbers(report.lints);
  const std::string found = doubts.empty()
                                ? "NOTHING WRONG FOUND"
                                : fmt::format("NO FAULT FOUND, BUT {} ABOUT ITS NUMBERS ({})",
                                              doubts.size() == 1 ? "A WARNING" : "WARNINGS", fmt::join(doubts, ", "));
  return fmt::format("{}: every value is read before it is overwritten, {}", found,
                     report.windows.empty() ? "and the optimizer does not step"
                                            : "every window's gradient is the mean over its microbatches and ranks");
}

std::vector<Figure> Figures(const AuditReport& report) {
  if (!report.followed) {
    return {{"program", "none", "no step can be made of the job's own predicate"}};
  }
  std::vector<Figure> figures = {
      {"clobbered values", Grouped(report.CountOf("clobber")),
       "read after their memory was written under another name"},
      {"races", Grouped(report.CountOf("race")), "two streams at the same bytes, one writes, no order between them"},
      {"windows", Grouped(static_cast<std::int64_t>(report.windows.size())),
       report.windows.empty() ? "the optimizer does not step"
       : report.WrongWindows() == 0
           ? fmt::format("each the mean of its microbatches{}", report.hazards.empty() ? "" : ", but of such values")
           : fmt::format("{} of them not the mean of their microbatches", Grouped(report.WrongWindows()))},
      {"program", report.step + " step", "of which values and gradients are followed"}};
  return figures;
}

/// What the loop's own predicates do, in words.
std::string BoundaryParagraph(const AuditReport& report) {
  if (report.synchronises.empty()) {
    return {};
  }
  const std::string where =
      report.steps == report.synchronises
          ? fmt::format("Gradients are synchronised and the optimizer steps where '{}'", report.steps)
          : fmt::format("Gradients are synchronised where '{}', the optimizer steps where '{}'", report.synchronises,
                        report.steps);
  std::vector<std::int64_t> behind;
  for (const WindowReport& window : report.windows) {
    if (behind.size() < kWindowRows) {
      behind.push_back(window.microbatches.back());
    }
  }
  const char* more = report.windows.size() > behind.size() ? ", ..." : "";
  std::string text = fmt::format("{}; i counts microbatches from 0, steps is {}. ", where, report.accumulation_steps);
  const std::string within =
      report.evaluated ? fmt::format("In {} microbatches", report.evaluated_microbatches) : "Before it fails";
  text += behind.empty() ? fmt::format("{} it never steps.", within)
                         : fmt::format("{} it steps behind {}{}.", within, fmt::join(behind, ", "), more);
  if (!report.pending.empty()) {
    text += fmt::format(
        " Microbatch{} {} {} pending: no step follows, and {} gradient{} in the next window unless "
        "zeroed.",
        report.pending.size() == 1 ? "" : "es", Range(report.pending), report.pending.size() == 1 ? "is" : "are",
        report.pending.size() == 1 ? "its" : "their", report.pending.size() == 1 ? " ends up" : "s end up");
  }
  return text;
}

std::string MeaningOf(const WindowReport& window) {
  if (window.lost) {
    return "not all of its gradients reach the optimizer";
  }
  if (!window.uniform) {
    return "not all ranks and microbatches count alike: replicas differ";
  }
  return window.right ? "the mean" : window.factor && *window.factor < 1 ? "too small" : "too large";
}

/// "3/4 = 0.750", "2"
std::string FactorText(const WindowReport& window) {
  return window.factor && window.exact.find('/') != std::string::npos
             ? fmt::format("{} = {:.3f}", window.exact, *window.factor)
             : window.exact;
}

/// Equal windows in a row are one line.
Section WindowsSection(const AuditReport& report) {
  Section section{"Windows", "what the optimizer steps on, over the mean of the window's microbatches", {}, {}};
  section.table.columns = {{"window", false, false},
                           {report.chunks ? "chunks of each side" : "microbatches", false, false},
                           {"of", true, false},
                           {"gradient over the mean", true, false},
                           {"", false, true}};
  const auto alike = [](const WindowReport& a, const WindowReport& b) {
    return a.microbatches.size() == b.microbatches.size() && a.exact == b.exact && a.uniform == b.uniform &&
           a.lost == b.lost;
  };
  const auto& windows = report.windows;
  for (std::size_t first = 0; first < windows.size();) {
    std::size_t last = first;
    while (last + 1 < windows.size() && alike(windows[first], windows[last + 1])) {
      ++last;
    }
    if (section.table.rows.size() == kWindowRows) {
      section.table.rows.push_back(
          {{"...", fmt::format("up to {}", windows.back().microbatches.back()), "", "", ""}, std::nullopt});
      break;
    }
    const std::vector<std::int64_t> span = {windows[first].microbatches.front(), windows[last].microbatches.back()};
    section.table.rows.push_back(
        {{first == last ? fmt::format("{}", first + 1) : fmt::format("{} to {}", first + 1, last + 1),
          span.front() == span.back() ? fmt::format("{}", span.front())
                                      : fmt::format("{} to {}", span.front(), span.back()),
          fmt::format("{}{}", windows[first].microbatches.size(), first == last ? "" : " each"),
          FactorText(windows[first]), MeaningOf(windows[first])},
         std::nullopt});
    first = last + 1;
  }
  if (!report.pending.empty()) {
    section.table.rows.push_back({{"pending", Range(report.pending), fmt::format("{}", report.pending.size()), "-",
                                   "the optimizer does not step"},
                                  std::nullopt});
  }
  return section;
}

/// A column of the table of hazards.
struct HazardColumn {
  ReportColumn column;
  std::string (*cell)(const HazardReport& hazard);
};

std::string NumberText(const std::optional<std::int64_t>& number) { return number ? std::to_string(*number) : "-"; }

/// "3"; of GradCache's chunks "query chunk 3".
std::string MicrobatchText(const HazardReport& hazard) {
  const std::string number = NumberText(hazard.microbatch);
  return hazard.side.empty() ? number : fmt::format("{} chunk {}", hazard.side, number);
}

/// What is the same in all hazards is said once.
Section HazardsSection(const AuditReport& report) {
  Section section{"Hazards", "names as in tidemark program", {}, {}};
  std::vector<HazardColumn> columns = {
      {{"mb", true, false}, [](const HazardReport& hazard) { return MicrobatchText(hazard); }},
      {{"layer", true, false}, [](const HazardReport& hazard) { return NumberText(hazard.layer); }},
      {{"read by", false, true}, [](const HazardReport& hazard) { return hazard.read_by; }},
      {{"value", false, true}, [](const HazardReport& hazard) { return hazard.value; }},
      {{"overwritten by", false, true}, [](const HazardReport& hazard) { return hazard.overwritten_by; }}};
  const auto differ = [&](std::string HazardReport::*text) {
    return std::any_of(report.hazards.begin(), report.hazards.end(),
                       [&](const HazardReport& hazard) { return hazard.*text != report.hazards.front().*text; });
  };
  if (differ(&HazardReport::kind)) {
    columns.insert(columns.begin(), {{"kind", false, false}, [](const HazardReport& hazard) { return hazard.kind; }});
  } else {
    section.subtitle += fmt::format("; each is a {}", report.hazards.front().kind);
  }
  if (differ(&HazardReport::buffer)) {
    columns.push_back({{"in", false, true}, [](const HazardReport& hazard) { return hazard.buffer; }});
  } else {
    section.subtitle += fmt::format("; all in {}", report.hazards.front().buffer);
  }
  if (report.several_roles) {
    columns.push_back({{"role", false, false}, [](const HazardReport& hazard) { return hazard.role; }});
  }
  for (const HazardColumn& column : columns) {
    section.table.columns.push_back(column.column);
  }
  for (std::size_t i = 0; i < std::min(report.hazards.size(), kHazardRows); ++i) {
    std::vector<std::string> cells;
    for (const HazardColumn& column : columns) {
      cells.push_back(column.cell(report.hazards[i]));
    }
    section.table.rows.push_back({std::move(cells), std::nullopt});
  }
  if (report.hazards.size() > kHazardRows) {
    section.remarks.push_back(
        {"left out",
         fmt::format("{} more{}", Grouped(static_cast<std::int64_t>(report.hazards.size() - kHazardRows)),
                     report.hazards_left_out ? ", and those that were not counted" : ""),
         report.hazards_left_out ? "fewer layers or microbatches show the same in less"
                                 : "--format json lists them; fewer layers or microbatches show the same in less",
         Tone::neutral});
  }
  return section;
}

/// What holds them is a sentence, so it stands behind the numbers, not in a column.
Section IdleSection(const AuditReport& report) {
  Section section{"Kept after their last use", "as the real system does; bytes at once, on the worst role", {}, {}};
  for (const IdleReport& idle : report.idle) {
    const std::string where = report.several_roles ? fmt::format(" on {}", idle.role) : "";
    const std::string text =
        fmt::format("{}{}, last used by {}, freed in {}", Text(idle.bytes), where, idle.last_used_by, idle.freed_in);
    if (idle.why.empty()) {
      section.remarks.push_back({idle.buffers, text + "; nothing in the real system is known to hold it",
                                 "nothing says that the real system keeps it: it may be freed too late here",
                                 Tone::bad});
    } else {
      section.remarks.push_back({idle.buffers, fmt::format("{}: {}", text, idle.why), "", Tone::neutral});
    }
  }
  return section;
}

}  // namespace

Document MakeDocument(const AuditReport& report) {
  Document document{"Audit of " + report.title, Verdict(report), ToneOf(report), Figures(report), {}, {}};
  if (std::string boundary = BoundaryParagraph(report); !boundary.empty()) {
    document.paragraphs.push_back(std::move(boundary));
  }
  if (!report.lints.empty()) {
    Section section{"Remarks on the job", "", {}, {}};
    for (const Lint& lint : report.lints) {
      section.remarks.push_back(LintRemark(lint));
    }
    document.sections.push_back(std::move(section));
  }
  if (!report.windows.empty() || !report.pending.empty()) {
    document.sections.push_back(WindowsSection(report));
  }
  if (!report.hazards.empty()) {
    document.sections.push_back(HazardsSection(report));
  }
  if (!report.idle.empty()) {
    document.sections.push_back(IdleSection(report));
  }
  return document;
}

}  // namespace tidemark

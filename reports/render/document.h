// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reports/summarise/advice.h"
#include "reports/summarise/audit.h"
#include "reports/summarise/check_report.h"
#include "reports/summarise/comparison.h"
#include "reports/summarise/explanation.h"
#include "reports/summarise/prediction.h"
#include "reports/summarise/replay.h"
#include "reports/summarise/solution.h"
#include "reports/summarise/sweep.h"
#include "reports/summarise/trace_report.h"

namespace tidemark {

// A report as a person reads it, before anybody has decided on a medium: headline, figures, tables, remarks. Terminal,
// Markdown and HTML lay out the same Document; JSON is made from the report itself.

enum class Tone : std::uint8_t { neutral, good, bad, warning };

struct Figure {
  std::string label, value, detail;  ///< "step time", "2.05 s", "steady step"
};

/// A curve in one line of text; media with pictures of their own leave it out.
struct Sparkline {
  std::string label, detail;    ///< "memory", "up to 61.8 GiB, over 3.20 s"
  std::vector<double> heights;  ///< 0..1
};

struct ReportColumn {
  std::string title;
  bool number = false;   ///< right-aligned
  bool shrinks = false;  ///< may be cut where the medium is narrow
  bool wraps = false;    ///< one that shrinks goes on in the next line instead of being cut
};

struct ReportRow {
  std::vector<std::string> cells;  ///< one per column
  std::optional<double> share;     ///< 0..1: drawn as a bar behind the row's last cell
};

struct ReportTable {
  std::vector<ReportColumn> columns;
  std::vector<ReportRow> rows;
  bool wide = false;  ///< on a terminal, wider than the page before a cell is cut: cells tell the rows apart
};

/// "warning  first-bucket: ..." and below it what to do about it.
struct Remark {
  std::string label, text, hint;
  Tone tone = Tone::neutral;
  std::string paragraph = {};  ///< what is behind it; only media with room for it show it
  std::string link = {};       ///< where to read on; empty: nowhere
  std::string command = {};    ///< a line for a shell: neither cut nor wrapped
};

struct Section {
  std::string title, subtitle;
  ReportTable table;            ///< may be empty
  std::vector<Remark> remarks;  ///< may be empty
};

struct Document {
  std::string title;
  std::string verdict;        ///< one sentence
  Tone tone = Tone::neutral;  ///< of the verdict
  std::vector<Figure> figures;
  std::vector<std::string> paragraphs;  ///< what it comes to, in words; may be empty
  std::vector<Section> sections;
  std::vector<Sparkline> sparklines = {};  ///< on one scale; may be empty
};

Document MakeDocument(const PredictionReport& report);
Document MakeDocument(const TraceReport& report);
Document MakeDocument(const AuditReport& report);
Document MakeDocument(const Explanation& explanation);
Document MakeDocument(const ComparisonReport& report);
Document MakeDocument(const SweepReport& report);
Document MakeDocument(const Advice& advice);
Document MakeDocument(const Solution& solution);
Document MakeDocument(const ReplayReport& report);
Document MakeDocument(const CheckReport& report);

/// The same without its rows, for a medium that shows these its own way.
Document SweepFrame(const SweepReport& report);

}  // namespace tidemark

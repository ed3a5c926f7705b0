// SPDX-License-Identifier: Apache-2.0
//
// The report in a terminal: at most 100 columns, plain ASCII of our own but for sparklines (names of the user's may
// hold anything printable).
#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "reports/render/document.h"
#include "reports/render/render.h"
#include "reports/render/sparklines.h"

namespace tidemark {
namespace {

constexpr std::size_t kWidth = 100, kWideWidth = 180;
constexpr std::size_t kBar = 40;
constexpr std::string_view kIndent = "  ";

/// Columns that a UTF-8 text takes: its code points.
std::size_t WidthOf(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

/// Control characters would move the cursor of whoever reads the report.
std::string Printable(std::string_view text) {
  std::string out(text);
  std::replace_if(
      out.begin(), out.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return out;
}

/// Cut to `width` columns, the end replaced by "..", never within a code point.
std::string Cut(const std::string& text, std::size_t width) {
  if (WidthOf(text) <= width) {
    return text;
  }
  std::string out;
  std::size_t columns = 0;
  for (const char c : text) {
    columns += (c & 0xc0) != 0x80 ? 1 : 0;
    if (columns > width - 2) {
      break;
    }
    out += c;
  }
  return out + "..";
}

std::string Trimmed(const std::string& text) { return text.substr(0, text.find_last_not_of(' ') + 1); }

std::string Pad(const std::string& text, std::size_t width, bool right) {
  const std::string space(width - std::min(width, WidthOf(text)), ' ');
  return right ? space + text : text + space;
}

class Painter {
 public:
  explicit Painter(bool colour) : colour_(colour) {}

  std::string Bold(const std::string& text) const { return Paint(text, "1"); }
  std::string Dim(const std::string& text) const { return Paint(text, "2"); }
  std::string Toned(const std::string& text, Tone tone) const {
    switch (tone) {
      case Tone::good:
        return Paint(text, "1;32");
      case Tone::bad:
        return Paint(text, "1;31");
      case Tone::warning:
        return Paint(text, "33");
      case Tone::neutral:
        break;
    }
    return text;
  }

 private:
  std::string Paint(const std::string& text, const char* code) const {
    return colour_ ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : text;
  }
  bool colour_;
};

/// Lines of at most `width` columns, broken between words; a longer word is cut. The first line has `taken` columns
/// less.
std::vector<std::string> Wrap(const std::string& text, std::size_t width, std::size_t taken = 0) {
  std::vector<std::string> lines(1);
  std::size_t room = width - std::min(width, taken);
  std::istringstream words(text);
  std::string word;
  while (words >> word) {
    word = Cut(word, width);
    const std::size_t used = lines.back().empty() ? 0 : WidthOf(lines.back()) + 1;
    if (used + WidthOf(word) > room) {
      lines.emplace_back();
      room = width;
    }
    lines.back() += lines.back().empty() ? word : " " + word;
  }
  return lines;
}

class TableLayout {
 public:
  explicit TableLayout(const ReportTable& table) : table_(table), bars_(HasBars(table)) {
    for (const ReportColumn& column : table.columns) {
      widths_.push_back(WidthOf(column.title));
    }
    for (const ReportRow& row : table.rows) {
      for (std::size_t i = 0; i < row.cells.size(); ++i) {
        widths_[i] = std::max(widths_[i], WidthOf(Printable(row.cells[i])));
      }
    }
    Shrink();
  }

  std::string Render(const Painter& painter) const {
    std::string out = fmt::format("{}\n", painter.Dim(Trimmed(Line(Titles()))));
    for (const ReportRow& row : table_.rows) {
      const std::vector<std::string> lines = Lines(row.cells);
      const std::size_t room = std::min(kBar, kWidth - std::min(kWidth, LineWidth() + 2));
      for (std::size_t i = 0; i < lines.size(); ++i) {
        out += Trimmed(row.share && i == 0 ? fmt::format("{}  {}", lines[i], Bar(*row.share, room)) : lines[i]) + "\n";
      }
    }
    return out;
  }

 private:
  static bool HasBars(const ReportTable& table) {
    return std::any_of(table.rows.begin(), table.rows.end(),
                       [](const ReportRow& row) { return row.share.has_value(); });
  }

  static std::string Bar(double share, std::size_t room) {
    const double clamped = std::clamp(share, 0.0, 1.0);
    return std::string(static_cast<std::size_t>(clamped * static_cast<double>(room) + 0.5), '#');
  }

  std::vector<std::string> Titles() const {
    std::vector<std::string> titles;
    for (const ReportColumn& column : table_.columns) {
      titles.push_back(column.title);
    }
    return titles;
  }

  std::size_t LineWidth() const {
    std::size_t width = 0;
    for (const std::size_t column : widths_) {
      width += column + kIndent.size();
    }
    return width;
  }

  /// Takes from the widest column that may shrink, until the line fits (with room for a short bar).
  void Shrink() {
    const std::size_t limit = table_.wide ? kWideWidth : bars_ ? kWidth - 12 : kWidth;
    while (LineWidth() > limit) {
      std::size_t widest = widths_.size();
      for (std::size_t i = 0; i < widths_.size(); ++i) {
        if (table_.columns[i].shrinks && widths_[i] > 6 && (widest == widths_.size() || widths_[i] > widths_[widest])) {
          widest = i;
        }
      }
      if (widest == widths_.size()) {
        return;
      }
      --widths_[widest];
    }
  }

  /// Of one row: more than one where a cell goes on in the next.
  std::vector<std::string> Lines(const std::vector<std::string>& cells) const {
    std::vector<std::vector<std::string>> all(1, std::vector<std::string>(cells.size()));
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const bool wraps = table_.columns[i].wraps;
      const std::vector<std::string> parts = wraps ? Wrap(Printable(cells[i]), widths_[i]) : std::vector{cells[i]};
      for (std::size_t part = 0; part < parts.size(); ++part) {
        all.resize(std::max(all.size(), part + 1), std::vector<std::string>(cells.size()));
        all[part][i] = parts[part];
      }
    }
    std::vector<std::string> lines;
    for (const std::vector<std::string>& line : all) {
      lines.push_back(Line(line));
    }
    return lines;
  }

  std::string Line(const std::vector<std::string>& cells) const {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      line += kIndent;
      line += Pad(Cut(Printable(cells[i]), widths_[i]), widths_[i], table_.columns[i].number);
    }
    return Cut(line, table_.wide ? kWideWidth : kWidth);
  }

  const ReportTable& table_;
  bool bars_;
  std::vector<std::size_t> widths_;
};

/// Figures, and below them the curves.
std::string RenderFigures(const Document& document) {
  std::size_t label = 0;
  std::size_t value = 0;
  for (const Figure& figure : document.figures) {
    label = std::max(label, WidthOf(figure.label));
    value = std::max(value, WidthOf(figure.value));
  }
  for (const Sparkline& line : document.sparklines) {
    label = std::max(label, WidthOf(line.label));
  }
  std::string out;
  for (const Figure& figure : document.figures) {
    const std::string line = fmt::format("{}{}  {}  {}", kIndent, Pad(figure.label, label, false),
                                         Pad(figure.value, value, true), figure.detail);
    out += Cut(Printable(line), kWidth) + "\n";
  }
  for (const Sparkline& line : document.sparklines) {
    const std::string name = Pad(Cut(Printable(line.label), kWidth / 4), label, false);
    out += Cut(fmt::format("{}{}  {}  {}", kIndent, name, SparklineText(line.heights), line.detail), kWidth) + "\n";
  }
  return out;
}

std::string RenderRemarks(const std::vector<Remark>& remarks, const Painter& painter) {
  std::string out;
  for (const Remark& remark : remarks) {
    const std::string label = Printable(remark.label) + ":";
    const bool is_short = WidthOf(label) <= kWidth / 2;  // else it has lines of its own
    const std::vector<std::string> lines = Wrap(Printable(remark.text), kWidth - 6, is_short ? WidthOf(label) + 1 : 0);
    for (const std::string& line : is_short ? std::vector{label} : Wrap(label, kWidth - kIndent.size())) {
      out += fmt::format("{}{}{}", kIndent, painter.Toned(line, remark.tone), is_short ? " " + lines[0] : "") + "\n";
    }
    for (std::size_t i = is_short ? 1 : 0; i < lines.size(); ++i) {
      out += fmt::format("    {}\n", lines[i]);
    }
    if (!remark.command.empty()) {
      out += fmt::format("    {}\n", Printable(remark.command));
    }
    if (!remark.hint.empty()) {
      for (const std::string& line : Wrap("hint: " + Printable(remark.hint), kWidth - 6)) {
        out += fmt::format("    {}\n", painter.Dim(line));
      }
    }
    if (!remark.link.empty()) {
      out += fmt::format("    {}\n", painter.Dim(Cut("more: " + Printable(remark.link), kWidth - 6)));
    }
  }
  return out;
}

class TerminalRenderer : public Renderer {
 public:
  std::string_view name() const override { return "terminal"; }
  std::string_view summary() const override { return "plain text of at most 100 columns"; }

  std::string Render(const Report& report, const RenderOptions& options) const override {
    return RenderDocument(report.document(), options);
  }

 private:
  static std::string RenderDocument(const Document& document, const RenderOptions& options) {
    const Painter painter(options.colour);
    std::string out;
    for (const std::string& line : Wrap(Printable(document.title), kWidth)) {
      out += painter.Bold(line) + "\n";
    }
    for (const std::string& line : Wrap(Printable(document.verdict), kWidth)) {
      out += painter.Toned(line, document.tone) + "\n";
    }
    out += "\n" + RenderFigures(document);
    for (const std::string& paragraph : document.paragraphs) {
      out += "\n";
      for (const std::string& line : Wrap(Printable(paragraph), kWidth)) {
        out += line + "\n";
      }
    }
    for (const Section& section : document.sections) {
      const std::string subtitle = section.subtitle.empty() ? "" : fmt::format(" ({})", Printable(section.subtitle));
      const std::string shown = Cut(subtitle, kWidth - WidthOf(section.title));
      out += "\n" + painter.Bold(section.title) + painter.Dim(shown) + "\n";
      if (!section.table.rows.empty()) {
        out += TableLayout(section.table).Render(painter);
      }
      out += RenderRemarks(section.remarks, painter);
    }
    return out;
  }
};

}  // namespace

std::unique_ptr<Renderer> RenderTerminal() { return std::make_unique<TerminalRenderer>(); }

}  // namespace tidemark

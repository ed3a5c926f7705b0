// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "reports/render/document.h"
#include "reports/render/render.h"
#include "reports/render/sparklines.h"

namespace tidemark {
namespace {

/// Text that Markdown and the HTML it may become show as it is.
std::string Escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n' || c == '\r') {
      out += ' ';
      continue;
    }
    if (c == '<') {
      out += "&lt;";
      continue;
    }
    if (c == '&') {
      out += "&amp;";
      continue;
    }
    if (c == '|' || c == '*' || c == '_' || c == '`' || c == '\\' || c == '[' || c == ']') {
      out += '\\';
    }
    out += c;
  }
  return out;
}

std::string RenderTable(const ReportTable& table) {
  std::string head = "|";
  std::string rule = "|";
  for (const ReportColumn& column : table.columns) {
    head += fmt::format(" {} |", Escape(column.title));
    rule += column.number ? " ---: |" : " --- |";
  }
  std::string out = head + "\n" + rule + "\n";
  for (const ReportRow& row : table.rows) {
    out += "|";
    for (const std::string& cell : row.cells) {
      out += fmt::format(" {} |", Escape(cell));
    }
    out += "\n";
  }
  return out;
}

std::string RenderRemarks(const std::vector<Remark>& remarks) {
  std::string out;
  for (const Remark& remark : remarks) {
    out += fmt::format("- **{}**: {}{}{}{}{}\n", Escape(remark.label), Escape(remark.text),
                       remark.hint.empty() ? "" : fmt::format(" *Hint: {}*", Escape(remark.hint)),
                       remark.paragraph.empty() ? "" : " " + Escape(remark.paragraph),
                       remark.link.empty() ? "" : fmt::format(" [More]({})", remark.link),
                       remark.command.empty() ? "" : fmt::format(" `{}`", remark.command));
  }
  return out;
}

constexpr std::size_t kComment = 60'000;

/// The lines that fit into so many bytes, with a word on what is missing.
std::string CutAtLine(std::string text, std::size_t most) {
  constexpr std::string_view kNote = "\n*Cut here: it is longer than a comment may be. `--format json` has all.*\n";
  if (text.size() > most) {
    const std::size_t end = text.rfind('\n', most - kNote.size() - 1);
    text.resize(end == std::string::npos ? 0 : end + 1);
    text += kNote;
  }
  return text;
}

class MarkdownRenderer : public Renderer {
 public:
  std::string_view name() const override { return "markdown"; }
  std::string_view summary() const override { return "the tables of the report, for issues and pull requests"; }

  /// Goes into comments, which GitHub takes up to 65,536 letters of.
  std::string Render(const Report& report, const RenderOptions&) const override {
    return CutAtLine(RenderDocument(report.document()), kComment);
  }

 private:
  static std::string RenderDocument(const Document& document) {
    std::string out = fmt::format("## {}\n\n**{}**\n\n", Escape(document.title), Escape(document.verdict));
    out += "| | | |\n| --- | ---: | --- |\n";
    for (const Figure& figure : document.figures) {
      out += fmt::format("| {} | **{}** | {} |\n", Escape(figure.label), Escape(figure.value), Escape(figure.detail));
    }
    for (const Sparkline& line : document.sparklines) {
      out += fmt::format("\n{}: `{}` {}\n", Escape(line.label), SparklineText(line.heights), Escape(line.detail));
    }
    for (const std::string& paragraph : document.paragraphs) {
      out += fmt::format("\n{}\n", Escape(paragraph));
    }
    for (const Section& section : document.sections) {
      out += fmt::format("\n### {}\n\n", Escape(section.title));
      if (!section.subtitle.empty()) {
        out += fmt::format("{}\n\n", Escape(section.subtitle));
      }
      if (!section.table.rows.empty()) {
        out += RenderTable(section.table);
      }
      out += RenderRemarks(section.remarks);
    }
    return out;
  }
};

}  // namespace

std::unique_ptr<Renderer> RenderMarkdown() { return std::make_unique<MarkdownRenderer>(); }

}  // namespace tidemark

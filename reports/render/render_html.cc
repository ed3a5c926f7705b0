// SPDX-License-Identifier: Apache-2.0
//
// One self-contained page: headline, figures, the memory of each role over time above its streams, and the tables of
// the other renderers. It asks the network for nothing. The pictures are drawn by page/*.js from the embedded traces.
#include <fmt/format.h>

#include "reports/render/document.h"
#include "reports/render/html_text.h"
#include "reports/render/page.h"
#include "reports/render/pages.h"
#include "reports/render/render.h"

namespace tidemark {
namespace {

std::string_view ToneClass(Tone tone) {
  switch (tone) {
    case Tone::good:
      return "good";
    case Tone::bad:
      return "bad";
    case Tone::warning:
      return "warning";
    case Tone::neutral:
      break;
  }
  return "neutral";
}

/// Without the pointer to a source map, which a browser would look for beside the report.
std::string_view WithoutSourceMap(std::string_view text) { return text.substr(0, text.find("//# sourceMappingURL")); }

std::string Head(const std::string& title) {
  std::string out = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  out += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  out += fmt::format("<title>Tidemark: {}</title>\n<link rel=\"icon\" href=\"data:,\">\n", HtmlText(title));
  for (const EmbeddedFile& file : PageNotices()) {
    out += fmt::format("<!--\n{}-->\n", file.text);
  }
  for (const auto& files : {ChartStyles(), PageStyles()}) {
    for (const EmbeddedFile& file : files) {
      out += fmt::format("<style>\n{}\n</style>\n", file.text.substr(0, file.text.find("/*# sourceMappingURL")));
    }
  }
  return out + "</head>\n";
}

std::string FiguresHtml(const std::vector<Figure>& figures) {
  std::string out = "<section class=\"cards\">\n";
  for (const Figure& figure : figures) {
    out += fmt::format(
        "<div class=\"card\"><div class=\"label\">{}</div><div class=\"value\">{}</div>"
        "<div class=\"detail\">{}</div></div>\n",
        HtmlText(figure.label), HtmlText(figure.value), HtmlText(figure.detail));
  }
  return out + "</section>\n";
}

/// Whether a cell holds a name, which may be broken where a page is narrow: words of the language are shorter.
bool HasName(std::string_view cell) {
  constexpr std::size_t kLongestWord = 12;
  std::size_t letters = 0;
  for (const char letter : cell) {
    letters = letter == ' ' ? 0 : letters + 1;
    if (letters > kLongestWord) {
      return true;
    }
  }
  return false;
}

std::string TableHtml(const ReportTable& table) {
  std::string out = "<table>\n<thead><tr>";
  for (const ReportColumn& column : table.columns) {
    out += fmt::format("<th{}>{}</th>", column.number ? " class=\"number\"" : "", HtmlText(column.title));
  }
  out += "</tr></thead>\n<tbody>\n";
  for (const ReportRow& row : table.rows) {
    out += "<tr>";
    for (std::size_t i = 0; i < row.cells.size(); ++i) {
      const ReportColumn& column = table.columns[i];
      const bool breaks = column.shrinks && HasName(row.cells[i]);
      const char* kind = column.number ? " class=\"number\"" : breaks ? " class=\"shrinks\"" : "";
      out += fmt::format("<td{}>{}</td>", kind, HtmlText(row.cells[i]));
    }
    if (row.share) {
      out += fmt::format("<td class=\"bar\"><div style=\"width:{:.2f}%\"></div></td>", *row.share * 100);
    }
    out += "</tr>\n";
  }
  return out + "</tbody>\n</table>\n";
}

std::string SectionHtml(const Section& section) {
  std::string out = fmt::format("<section class=\"panel\">\n<h2>{}</h2>\n", HtmlText(section.title));
  if (!section.subtitle.empty()) {
    out += fmt::format("<p class=\"subtitle\">{}</p>\n", HtmlText(section.subtitle));
  }
  if (!section.table.rows.empty()) {
    out += TableHtml(section.table);
  }
  for (const Remark& remark : section.remarks) {
    out += fmt::format("<p class=\"remark {}\"><b>{}</b> {}", ToneClass(remark.tone), HtmlText(remark.label),
                       HtmlText(remark.text));
    if (!remark.hint.empty()) {
      out += fmt::format("<span class=\"hint\">{}</span>", HtmlText(remark.hint));
    }
    if (!remark.paragraph.empty() || !remark.link.empty()) {
      out += fmt::format("<span class=\"more\">{}", HtmlText(remark.paragraph));
      out += remark.link.empty() ? "" : fmt::format(" <a href=\"{}\">More</a>", HtmlText(remark.link));
      out += "</span>";
    }
    out += remark.command.empty() ? "" : fmt::format("<code>{}</code>", HtmlText(remark.command));
    out += "</p>\n";
  }
  return out + "</section>\n";
}

std::string Scripts() {
  std::string out;
  for (const auto& files : {ChartScripts(), PageScripts()}) {
    for (const EmbeddedFile& file : files) {
      out += fmt::format("<script>\n{}\n</script>\n", WithoutSourceMap(file.text));
    }
  }
  return out;
}

std::string PageHtml(const Page& page) {
  const Document& document = page.document;
  const std::string kind = page.kind.empty() ? "" : fmt::format(" class=\"{}\"", page.kind);
  std::string out = fmt::format("{}<body{}>\n<main>\n<header>\n", Head(document.title), kind);
  out += fmt::format("<h1>{}</h1>\n<p class=\"verdict {}\">{}</p>\n</header>\n", HtmlText(document.title),
                     ToneClass(document.tone), HtmlText(document.verdict));
  for (const std::string& paragraph : document.paragraphs) {
    out += fmt::format("<p class=\"summary\">{}</p>\n", HtmlText(paragraph));
  }
  out += FiguresHtml(document.figures);
  out += page.stage;
  out += "<div class=\"sections\">\n";
  for (const Section& section : document.sections) {
    out += SectionHtml(section);
  }
  // Without pictures there is nothing for the scripts to do.
  return out + "</div>\n</main>\n" + page.data + (page.stage.empty() ? "" : Scripts()) + "</body>\n</html>\n";
}

class HtmlRenderer : public Renderer {
 public:
  std::string_view name() const override { return "html"; }
  std::string_view summary() const override { return "one self-contained page with pictures, for a browser"; }

  std::string Render(const Report& report, const RenderOptions&) const override { return PageHtml(report.page()); }
};

}  // namespace

std::unique_ptr<Renderer> RenderHtml() { return std::make_unique<HtmlRenderer>(); }

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
//
// One self-contained page: headline, figures, the memory of each role over time above its streams, and the tables of
// the other renderers. It asks the network for nothing. The pictures are drawn by page/*.js from the embedded traces.
#include <fmt/format.h>

#include "reports/render/document.h"
#include "reports/render/page.h"
#include "reports/render/render.h"
#include "reports/render/sweep_columns.h"
#include "reports/render/trace_json.h"

namespace tidemark {
namespace {

std::string Escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

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
  out += fmt::format("<title>Tidemark: {}</title>\n<link rel=\"icon\" href=\"data:,\">\n", Escape(title));
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
        Escape(figure.label), Escape(figure.value), Escape(figure.detail));
  }
  return out + "</section>\n";
}

std::string TableHtml(const ReportTable& table) {
  std::string out = "<table>\n<thead><tr>";
  for (const ReportColumn& column : table.columns) {
    out += fmt::format("<th{}>{}</th>", column.number ? " class=\"number\"" : "", Escape(column.title));
  }
  out += "</tr></thead>\n<tbody>\n";
  for (const ReportRow& row : table.rows) {
    out += "<tr>";
    for (std::size_t i = 0; i < row.cells.size(); ++i) {
      out += fmt::format("<td{}>{}</td>", table.columns[i].number ? " class=\"number\"" : "", Escape(row.cells[i]));
    }
    if (row.share) {
      out += fmt::format("<td class=\"bar\"><div style=\"width:{:.2f}%\"></div></td>", *row.share * 100);
    }
    out += "</tr>\n";
  }
  return out + "</tbody>\n</table>\n";
}

std::string SectionHtml(const Section& section) {
  std::string out = fmt::format("<section class=\"panel\">\n<h2>{}</h2>\n", Escape(section.title));
  if (!section.subtitle.empty()) {
    out += fmt::format("<p class=\"subtitle\">{}</p>\n", Escape(section.subtitle));
  }
  if (!section.table.rows.empty()) {
    out += TableHtml(section.table);
  }
  for (const Remark& remark : section.remarks) {
    out += fmt::format("<p class=\"remark {}\"><b>{}</b> {}", ToneClass(remark.tone), Escape(remark.label),
                       Escape(remark.text));
    if (!remark.hint.empty()) {
      out += fmt::format("<span class=\"hint\">{}</span>", Escape(remark.hint));
    }
    if (!remark.paragraph.empty() || !remark.link.empty()) {
      out += fmt::format("<span class=\"more\">{}", Escape(remark.paragraph));
      out += remark.link.empty() ? "" : fmt::format(" <a href=\"{}\">More</a>", Escape(remark.link));
      out += "</span>";
    }
    out += remark.command.empty() ? "" : fmt::format("<code>{}</code>", Escape(remark.command));
    out += "</p>\n";
  }
  return out + "</section>\n";
}

/// The place for the pictures; page/page.js fills it.
constexpr std::string_view kStage = R"html(<section class="stage panel" id="stage">
<div class="toolbar">
<h2>Memory over time</h2>
<label id="role-label">role <select id="role"></select></label>
<label id="stack-label">stacked by <select id="stack"><option>category</option><option>layer</option></select></label>
<label>time <select id="clock"><option value="device">when the device got there</option>
<option value="host">when the host issued it</option><option value="event">event by event</option></select></label>
<label><input type="checkbox" id="capacity" checked> device capacity</label>
<span class="buttons"><button id="zoom-in" title="zoom in (+)">+</button><button id="zoom-out" title="zoom out (-)">&minus;</button>
<button id="to-peak" title="zoom to the peak (p)">peak</button><button id="reset" title="whole step (0)">whole step</button></span>
</div>
<div class="board">
<div class="tracks" id="tracks">
<canvas id="phases"></canvas>
<div id="memory"></div>
<canvas id="streams"></canvas>
<div id="cursor"></div>
</div>
<aside id="inspector"></aside>
</div>
<p class="help">Drag to zoom, shift-drag or scroll sideways to pan, ctrl-scroll to zoom, double-click for the whole step;
click to hold the list of buffers. Keys: + &minus; &larr; &rarr; p 0.</p>
<div id="tip"></div>
</section>
)html";

/// The place for the pictures of several traces; page/comparison.js fills it.
constexpr std::string_view kComparison = R"html(<section class="stage panel" id="stage">
<div class="toolbar">
<h2>Tensors over time, all on one scale</h2>
<label id="clock-label">time <select id="clock"><option value="aligned">the prediction's, phase by phase</option>
<option value="device">each its own</option></select></label>
<span class="legend" id="legend"></span>
<span class="buttons"><button id="zoom-in" title="zoom in (+)">+</button><button id="zoom-out" title="zoom out (-)">&minus;</button>
<button id="to-peak" title="zoom to the highest peak (p)">peak</button><button id="reset" title="everything (0)">everything</button></span>
</div>
<div class="tracks" id="tracks">
<canvas id="phases"></canvas>
<div id="totals"></div>
<div id="cursor"></div>
</div>
<div class="columns" id="columns"></div>
<p class="help">Drag to zoom, shift-drag or scroll sideways to pan, ctrl-scroll to zoom, double-click for everything; all pictures
follow. Point at a moment to see what is alive in each trace, click to hold it. Time is the device's; tables name the time of issue. Keys: + &minus; &larr; &rarr; p 0. Steps and phases
are those of the first trace.</p>
</section>
)html";

/// The place for the rows of a sweep; page/sweep_page.js fills it.
constexpr std::string_view kSweep = R"html(<section class="stage panel" id="stage">
<div class="toolbar">
<h2>Combinations</h2>
<span class="key"><span class="swatch" style="background:#2f80c2"></span>fits</span>
<span class="key"><span class="swatch" style="background:#98a2ad"></span>does not fit</span>
<span class="key"><span class="swatch line" style="background:#d9480f"></span>front</span>
<label>across <select id="x-metric"></select></label>
<label>up <select id="y-metric"></select></label>
<label><input type="checkbox" id="log"> logarithmic</label>
</div>
<div class="tracks"><div id="scatter" role="img" aria-label="combinations over two metrics; the table below holds the same rows"></div><div id="ring"></div></div>
<p class="help">Drag to zoom, shift-drag to pan, double-click for everything.</p>
<p class="help" id="held-help">Click a point or a row to see what to set for it.</p>
<code id="held"></code>
<div id="tip"></div>
</section>
<section class="panel table-panel">
<div class="toolbar">
<h2>Rows</h2>
<span class="key" id="passing" aria-live="polite"></span>
<label><input type="checkbox" id="only-fitting"> only what fits</label>
<label><input type="checkbox" id="only-front"> only the front</label>
<span class="buttons"><button type="button" id="reset">all rows</button></span>
</div>
<div id="filters"></div>
<div class="scrolls"><table id="rows"><thead></thead><tbody></tbody></table></div>
</section>
)html";

std::string Embedded(const Trace& trace, Streams streams, const std::string& attributes) {
  return fmt::format("<script type=\"application/json\" class=\"trace\"{}>{}</script>\n", attributes,
                     TraceJson(trace, streams));
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

std::string TracesOf(const PredictionReport& report) {
  std::string out;
  for (const RoleReport& role : report.roles) {
    if (role.trace) {
      out += Embedded(*role.trace, Streams::drawn, &role == &report.Worst() ? " data-worst" : "");
    }
  }
  return out;
}

std::string TracesOf(const TraceReport& report) {
  if (report.traces.size() == 1) {
    return Embedded(report.traces.front().trace(), Streams::drawn, "");
  }
  std::string out;
  for (const TraceSummary& trace : report.traces) {
    out += Embedded(trace.trace(), Streams::left_out, fmt::format(" data-label=\"{}\"", Escape(trace.label)));
  }
  return out;
}

std::string TracesOf(const Explanation& explanation) {
  return Embedded(*explanation.before.report.Worst().trace, Streams::left_out, " data-label=\"before\"") +
         Embedded(*explanation.after.report.Worst().trace, Streams::left_out, " data-label=\"after\"");
}

/// `data`: elements that the page's scripts read.
std::string PageHtml(const Document& document, std::string_view stage, const std::string& data,
                     std::string_view body = "<body>") {
  std::string out = fmt::format("{}{}\n<main>\n<header>\n", Head(document.title), body);
  out += fmt::format("<h1>{}</h1>\n<p class=\"verdict {}\">{}</p>\n</header>\n", Escape(document.title),
                     ToneClass(document.tone), Escape(document.verdict));
  for (const std::string& paragraph : document.paragraphs) {
    out += fmt::format("<p class=\"summary\">{}</p>\n", Escape(paragraph));
  }
  out += FiguresHtml(document.figures);
  out += stage;
  out += "<div class=\"sections\">\n";
  for (const Section& section : document.sections) {
    out += SectionHtml(section);
  }
  // Without pictures there is nothing for the scripts to do.
  return out + "</div>\n</main>\n" + data + (stage.empty() ? "" : Scripts()) + "</body>\n</html>\n";
}

/// Both lines in one chart; the second is dashed, so that equal ones show both.
std::string TracesOf(const ComparisonReport& report) {
  const auto label = [](const ComparedSide& side) { return fmt::format(" data-label=\"{}\"", Escape(side.label)); };
  return Embedded(report.predicted.trace, Streams::left_out, label(report.predicted)) +
         Embedded(report.measured.trace, Streams::left_out, label(report.measured) + " data-dashed");
}

class HtmlRenderer : public Renderer {
 public:
  std::string_view name() const override { return "html"; }
  std::string_view summary() const override { return "one self-contained page with pictures, for a browser"; }

  std::string Render(const PredictionReport& report, const RenderOptions&) const override {
    return PageHtml(MakeDocument(report), kStage, TracesOf(report));
  }
  std::string Render(const TraceReport& report, const RenderOptions&) const override {
    return PageHtml(MakeDocument(report), report.traces.size() == 1 ? kStage : kComparison, TracesOf(report));
  }
  std::string Render(const AuditReport& report, const RenderOptions&) const override {
    return PageHtml(MakeDocument(report), "", "");
  }
  std::string Render(const Explanation& explanation, const RenderOptions&) const override {
    return PageHtml(MakeDocument(explanation), kComparison, TracesOf(explanation));
  }
  std::string Render(const ComparisonReport& report, const RenderOptions&) const override {
    return PageHtml(MakeDocument(report), kComparison, TracesOf(report));
  }
  std::string Render(const Advice& advice, const RenderOptions&) const override {
    return PageHtml(MakeDocument(advice), "", "");
  }
  std::string Render(const Solution& solution, const RenderOptions&) const override {
    return PageHtml(MakeDocument(solution), "", "");
  }
  std::string Render(const ReplayReport& report, const RenderOptions&) const override {
    return PageHtml(MakeDocument(report), "", "");
  }
  std::string Render(const CheckReport& report, const RenderOptions&) const override {
    return PageHtml(MakeDocument(report), "", "");
  }
  std::string Render(const SweepReport& report, const RenderOptions&) const override {
    const std::string rows =
        fmt::format("<script type=\"application/json\" id=\"sweep\">{}</script>\n", SweepColumns(report));
    return PageHtml(SweepFrame(report), kSweep, rows, "<body class=\"sweep\">");
  }
};

}  // namespace

std::unique_ptr<Renderer> RenderHtml() { return std::make_unique<HtmlRenderer>(); }

}  // namespace tidemark

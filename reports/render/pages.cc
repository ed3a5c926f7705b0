// SPDX-License-Identifier: Apache-2.0
#include "reports/render/pages.h"

#include <fmt/format.h>

#include "reports/render/html_text.h"
#include "reports/render/sweep_columns.h"
#include "reports/render/trace_json.h"

namespace tidemark {
namespace {

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
    out += Embedded(trace.trace(), Streams::left_out, fmt::format(" data-label=\"{}\"", HtmlText(trace.label)));
  }
  return out;
}

std::string TracesOf(const Explanation& explanation) {
  return Embedded(*explanation.before.report.Worst().trace, Streams::left_out, " data-label=\"before\"") +
         Embedded(*explanation.after.report.Worst().trace, Streams::left_out, " data-label=\"after\"");
}

/// Both lines in one chart; the second is dashed, so that equal ones show both.
std::string TracesOf(const ComparisonReport& report) {
  const auto label = [](const ComparedSide& side) { return fmt::format(" data-label=\"{}\"", HtmlText(side.label)); };
  return Embedded(report.predicted.trace, Streams::left_out, label(report.predicted)) +
         Embedded(report.measured.trace, Streams::left_out, label(report.measured) + " data-dashed");
}

}  // namespace

Page MakePage(const PredictionReport& report) { return {MakeDocument(report), kStage, TracesOf(report)}; }

Page MakePage(const TraceReport& report) {
  return {MakeDocument(report), report.traces.size() == 1 ? kStage : kComparison, TracesOf(report)};
}

Page MakePage(const Explanation& explanation) {
  return {MakeDocument(explanation), kComparison, TracesOf(explanation)};
}

Page MakePage(const ComparisonReport& report) { return {MakeDocument(report), kComparison, TracesOf(report)}; }

Page MakePage(const SweepReport& report) {
  return {SweepFrame(report), kSweep,
          fmt::format("<script type=\"application/json\" id=\"sweep\">{}</script>\n", SweepColumns(report)), "sweep"};
}

}  // namespace tidemark

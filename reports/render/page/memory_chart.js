// SPDX-License-Identifier: Apache-2.0
'use strict';

/// Memory stacked by category or by layer, under the lines of the allocator and the device. Dygraphs draws axes, grid and the overview below;
/// the stack is a plotter of ours, because lines and areas that do not add up share the picture.
class MemoryChart {
  /// `top`: bytes at the top of the picture where several share it; `overview`: the whole step below it.
  constructor(element, viewport, {top = 0, overview = true, labelWidth = 104} = {}) {
    Object.assign(this, {element, viewport, sharedTop: top, overview, labelWidth, points: 0});
  }

  use(data) {
    this.data = data;
    if (this.graph) this.graph.destroy();
    this.scale();
    this.lines = [];
    if (data.allocator.some((bytes) => bytes > 0)) this.lines.push(['allocator', data.allocator, theme.colours.ink, []]);
    if (data.reserved.some((bytes) => bytes > 0)) this.lines.push(['reserved', data.reserved, theme.colours.reserved, [6, 3]]);
    this.graph = new Dygraph(this.element, this.rows(), this.options());
  }

  showCapacity(shown) {
    this.capacityShown = shown;
    this.scale();
    this.graph.updateOptions({valueRange: [0, this.top / this.unit[0]]});
  }

  /// The height of the picture: what is reserved, and the device where it is not many times larger.
  scale() {
    let highest = 1;
    for (const column of [this.data.total, this.data.reserved]) {
      for (let i = 0; i < column.length; ++i) highest = Math.max(highest, column[i]);
    }
    const room = this.capacityShown ? this.data.capacity : 0;
    this.top = this.sharedTop || Math.max(highest, room) * 1.06;
    this.unit = axisUnit(this.sharedTop || highest, BYTE_UNITS);
  }

  /// Rows for dygraphs: fine within the view, coarse outside of it (for the overview).
  rows() {
    const {data, viewport} = this;
    const width = Math.max(this.element.clientWidth, 300);
    const fine = data.sample(viewport.from, viewport.to, width);
    this.points = fine.length;
    const picked = [...data.sample(0, viewport.from, 300).filter((event) => event < fine[0]), ...fine];
    const last = picked[picked.length - 1];
    picked.push(...data.sample(viewport.to, viewport.length, 300).filter((event) => event > last));
    const rows = picked.map((event) => this.row(data.time[event], event));
    if (rows.length === 0) return [[0, ...this.labels().slice(1).map(() => 0)]];
    if (rows[0][0] > 0) rows.unshift([0, ...rows[0].slice(1).map(() => 0)]);
    rows.push(this.row(Math.min(viewport.length, data.length), picked[picked.length - 1]));
    return rows;
  }

  row(time, event) {
    const row = [time];
    let below = 0;
    for (const column of this.data.byBand) row.push((below += column[event]) / this.unit[0]);
    for (const [, column] of this.lines) row.push(column[event] / this.unit[0]);
    return row;
  }

  labels() { return ['time', ...this.data.bands.map(({name}) => name), ...this.lines.map(([name]) => name)]; }

  options() {
    const series = {};
    for (const {name, colour} of this.data.bands) series[name] = {plotter: fillStep, color: colour};
    for (const [name, , color, strokePattern] of this.lines) series[name] = {color, strokePattern, strokeWidth: 1.25};
    const highest = this.data.bands[this.data.bands.length - 1];
    if (highest) series[highest.name].showInRangeSelector = true;
    return {
      labels: this.labels(), series, stepPlot: true, legend: 'never', interactionModel: {}, animatedZooms: false,
      highlightCircleSize: 0, showLabelsOnHighlight: false, rightGap: 12, ...graphColours(),
      valueRange: [0, this.top / this.unit[0]], dateWindow: [this.viewport.from, this.viewport.to],
      showRangeSelector: this.overview, rangeSelectorHeight: 34,
      axes: {
        x: {ticker: timeTicks, axisLabelFormatter: (at) => this.data.momentText(at, this.viewport.from, this.viewport.to), pixelsPerLabel: this.overview ? 110 : 80},
        y: {axisLabelWidth: this.labelWidth, axisLabelFormatter: (value) => +value.toFixed(3) + ' ' + this.unit[1]},
      },
      underlayCallback: (context, area, graph) => this.drawPhases(context, area, graph),
      drawCallback: (graph) => this.afterDraw(graph),
    };
  }

  draw() {
    this.graph.updateOptions({file: this.rows(), dateWindow: [this.viewport.from, this.viewport.to]});
  }

  /// The overview below the picture moves the view of dygraphs; the other tracks follow.
  afterDraw(graph) {
    const [from, to] = graph.xAxisRange();
    if (Math.abs(from - this.viewport.from) + Math.abs(to - this.viewport.to) > 1) this.viewport.show(from, to);
    this.drawLimits(graph);
  }

  drawPhases(context, area, graph) {
    context.save();
    context.fillStyle = theme.colours.shade;
    let shade = false;
    let last = -Infinity;
    for (const span of this.data.spans) {
      if (span.depth > 0) continue;
      shade = !shade;
      const left = Math.max(graph.toDomXCoord(span.from), area.x);
      const right = Math.min(graph.toDomXCoord(span.to), area.x + area.w);
      if (!shade || right - left < 1 || left < last) continue;
      context.fillRect(left, area.y, right - left, area.h);
      last = right;
    }
    this.drawSteps(context, area, graph);
    context.restore();
  }

  /// A line where one step ends and the next begins.
  drawSteps(context, area, graph) {
    context.fillStyle = theme.colours.step;
    for (const step of this.data.steps.slice(1)) {
      const x = graph.toDomXCoord(step.from);
      if (x > area.x && x < area.x + area.w) context.fillRect(Math.round(x), area.y, 1, area.h);
    }
  }

  /// The device's capacity and the peak, above everything else.
  drawLimits(graph) {
    const context = graph.hidden_ctx_;
    const area = graph.getArea();
    context.save();
    context.font = '12px system-ui, "DejaVu Sans", sans-serif';
    if (this.capacityShown && this.data.capacity > 0) drawCapacity(context, area, graph, this.data, this.unit);
    if (this.data.events > 0) this.drawPeak(context, area, graph);
    context.restore();
  }

  drawPeak(context, area, graph) {
    const time = this.data.time[this.data.peak];
    if (time < this.viewport.from || time > this.viewport.to) return;
    const y = graph.toDomYCoord(this.data.total[this.data.peak] / this.unit[0]);
    drawPeakMark(context, area, graph.toDomXCoord(time), y, 'peak ' + bytesText(this.data.total[this.data.peak]), theme.colours.ink);
  }
}

function drawCapacity(context, area, graph, {capacity, capacityName}, unit) {
  const y = Math.round(graph.toDomYCoord(capacity / unit[0])) + 0.5;
  context.beginPath();
  context.setLineDash([8, 4]);
  context.strokeStyle = theme.colours.limit;
  context.lineWidth = 1.25;
  context.moveTo(area.x, y);
  context.lineTo(area.x + area.w, y);
  context.stroke();
  context.setLineDash([]);
  const text = capacityName + ' ' + bytesText(capacity);
  context.fillStyle = theme.colours.label;
  context.fillRect(area.x + 5, y + 3, context.measureText(text).width + 6, 16);
  context.fillStyle = theme.colours.limit;
  context.fillText(text, area.x + 8, y + 15);
}

/// A ring at the peak and its height beside it.
function drawPeakMark(context, area, x, y, text, colour) {
  const width = context.measureText(text).width;
  const left = Math.min(Math.max(x + 9, area.x), area.x + area.w - width - 6);
  const top = Math.max(y - 22, area.y + 2);
  context.fillStyle = theme.colours.label;
  context.fillRect(left - 3, top, width + 6, 17);
  context.fillStyle = colour;
  context.fillText(text, left, top + 13);
  context.beginPath();
  context.arc(x, y, 4, 0, 2 * Math.PI);
  context.fillStyle = theme.colours.ground;
  context.fill();
  context.lineWidth = 2;
  context.strokeStyle = colour;
  context.stroke();
}

/// Plotter of dygraphs: fills the steps between this series and the one below it.
function fillStep(plot) {
  const upper = plot.points;
  const below = plot.seriesIndex > 0 ? plot.allSeriesPoints[plot.seriesIndex - 1] : null;
  const floor = plot.plotArea.y + plot.plotArea.h;
  if (upper.length === 0) return;
  const context = plot.drawingContext;
  context.beginPath();
  context.moveTo(upper[0].canvasx, upper[0].canvasy);
  for (let i = 1; i < upper.length; ++i) {
    context.lineTo(upper[i].canvasx, upper[i - 1].canvasy);
    context.lineTo(upper[i].canvasx, upper[i].canvasy);
  }
  for (let i = upper.length - 1; i >= 0; --i) {
    const y = below ? below[i].canvasy : floor;
    context.lineTo(upper[i].canvasx, y);
    if (i > 0) context.lineTo(upper[i].canvasx, below ? below[i - 1].canvasy : floor);
  }
  context.closePath();
  context.fillStyle = plot.color;
  context.fill();
}

/// Ticks at round times in the unit that the labels use.
function timeTicks(from, to, pixels, options) {
  const step = niceStep((to - from) / Math.max(pixels / options('pixelsPerLabel'), 2));
  const ticks = [];
  const format = options('axisLabelFormatter');
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to * (1 + 1e-12); ++i) {
    ticks.push({v: i * step, label: i === 0 ? '0' : format(i * step)});
  }
  return ticks;
}

function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least * 0.999) || 10 * power;
}

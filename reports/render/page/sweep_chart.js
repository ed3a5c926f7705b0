// SPDX-License-Identifier: Apache-2.0
'use strict';

// Of medium lightness: they stand out on a light and on a dark ground, and on paper.
const SWEEP_COLOURS = {fits: '#2f80c2', other: '#98a2ad', front: '#d9480f', device: '#e5484d', grid: '#8893a044', axis: '#8893a0'};

/// Rows of a sweep as points over two metrics, the front as a line through some of them. Dygraphs draws axes, grid and front, and
/// zooms; the other points are squares painted below, because a hundred thousand points of a series take it seconds.
class SweepChart {
  constructor(element, ring, data, {hover, hold}) {
    Object.assign(this, {element, ring, data, marked: -1});
    element.addEventListener('mousemove', (event) => hover(this.rowAt(event), event));
    element.addEventListener('mouseleave', () => hover(-1));
    element.addEventListener('click', (event) => hold(this.rowAt(event)));
  }

  use(rows, x, y, logarithmic) {
    Object.assign(this, {x, y, logarithmic, across: this.data.metrics[x], up: this.data.metrics[y]});
    this.front = this.data.front(rows, x, y);
    this.drawn = rows.filter((row) => this.across[row] !== null && this.up[row] !== null);
    this.places = new Float32Array(2 * this.drawn.length);
    this.units = [this.unitOf(x), this.unitOf(y)];
    if (this.graph) this.graph.destroy();
    const line = Array.from(this.front, (row) => [this.across[row] / this.units[0][0], this.up[row] / this.units[1][0]]);
    this.graph = new Dygraph(this.element, line.length > 0 ? line : [[0, null]], this.options());
  }

  unitOf(metric) {
    const largest = this.data.metrics[metric].reduce((a, b) => Math.max(a, b), 0);
    return metric.endsWith('_bytes') ? axisUnit(largest, BYTE_UNITS) : metric.endsWith('_ns') ? axisUnit(largest, TIME_UNITS) :
        metric === 'mfu' ? [0.01, '%'] : [1, ''];
  }

  title(metric, unit) { return SWEEP_METRICS[metric].title + (unit[1] ? `, ${unit[1]}` : ''); }

  /// Room around the points; the device's memory is in the picture unless it is far away.
  range(metric, unit) {
    const column = this.data.metrics[metric];
    let [low, high] = [Infinity, -Infinity];
    for (const row of this.drawn) {
      low = Math.min(low, column[row]);
      high = Math.max(high, column[row]);
    }
    if (low > high) return [0.1, 1];
    if (SWEEP_METRICS[metric].bytes && this.data.device_memory !== null && this.data.device_memory <= 2 * high) high = Math.max(high, this.data.device_memory);
    if (this.logarithmic) return [Math.max(low / 1.15, high / 1e9) / unit[0], high * 1.15 / unit[0]];
    const room = (high - low || high || 1) * 0.04;
    return [Math.max(low - room, 0) / unit[0], (high + room) / unit[0]];
  }

  ranges() { return {dateWindow: this.range(this.x, this.units[0]), valueRange: this.range(this.y, this.units[1])}; }

  options() {
    return {
      labels: [SWEEP_METRICS[this.x].title, 'front'], color: SWEEP_COLOURS.front, strokeWidth: 1.5, drawPoints: true, pointSize: 3.5,
      xlabel: this.title(this.x, this.units[0]), ylabel: this.title(this.y, this.units[1]), legend: 'never', rightGap: 14,
      logscale: this.logarithmic, animatedZooms: false, showLabelsOnHighlight: false, highlightCircleSize: 0,
      gridLineColor: SWEEP_COLOURS.grid, axisLineColor: SWEEP_COLOURS.axis, ...this.ranges(),
      axes: {
        x: {logscale: this.logarithmic, axisLabelFormatter: SweepChart.tick, pixelsPerLabel: 70},
        y: {axisLabelFormatter: SweepChart.tick, axisLabelWidth: 56},
      },
      interactionModel: {...Dygraph.defaultInteractionModel, dblclick: () => this.graph.updateOptions(this.ranges())},
      underlayCallback: (context, area, graph) => {
        this.drawPoints(context, area, graph);
        this.drawDevice(context, area, graph);
      },
      drawCallback: (graph) => {
        this.graph = graph;
        this.mark(this.marked);
      },
    };
  }

  static tick(value) { return String(+value.toPrecision(4)); }

  /// From a metric's value to pixels: both axes are straight, or both are logarithmic.
  scale([low, high], unit, toPixels) {
    const bend = this.logarithmic ? Math.log : (value) => value;
    const [from, to] = [toPixels(low), toPixels(high)];
    const slope = (to - from) / (bend(high) - bend(low));
    return (value) => from + (bend(value / unit[0]) - bend(low)) * slope;
  }

  /// Those that do not fit first, so that they hide none that fit.
  drawPoints(context, area, graph) {
    const toX = this.scale(graph.xAxisRange(), this.units[0], (value) => graph.toDomXCoord(value));
    const toY = this.scale(graph.yAxisRange(), this.units[1], (value) => graph.toDomYCoord(value));
    const size = this.drawn.length > 20000 ? 2 : this.drawn.length > 2000 ? 3 : 5;
    this.drawn.forEach((row, i) => {
      this.places[2 * i] = toX(this.across[row]);
      this.places[2 * i + 1] = toY(this.up[row]);
    });
    context.save();
    context.beginPath();
    context.rect(area.x, area.y, area.w, area.h);
    context.clip();
    for (const fits of [0, 1]) {
      context.fillStyle = fits ? SWEEP_COLOURS.fits : SWEEP_COLOURS.other;
      this.drawn.forEach((row, i) => {
        if (this.data.fits[row] === fits) context.fillRect(this.places[2 * i] - size / 2, this.places[2 * i + 1] - size / 2, size, size);
      });
    }
    context.restore();
  }

  /// The device's memory, across the axis that bytes are on.
  drawDevice(context, area, graph) {
    if (this.data.device_memory === null) return; // each row has a limit of its own
    context.save();
    context.strokeStyle = context.fillStyle = SWEEP_COLOURS.device;
    context.lineWidth = 1;
    context.setLineDash([7, 4]);
    context.font = '12px system-ui, "DejaVu Sans", sans-serif';
    const text = 'device memory ' + bytesText(this.data.device_memory);
    context.beginPath();
    const x = Math.round(graph.toDomXCoord(this.data.device_memory / this.units[0][0])) + 0.5;
    if (SWEEP_METRICS[this.x].bytes && x >= area.x && x <= area.x + area.w) {
      const isRight = x > area.x + area.w / 2;
      context.moveTo(x, area.y);
      context.lineTo(x, area.y + area.h);
      context.textAlign = isRight ? 'right' : 'left';
      context.fillText(text, x + (isRight ? -6 : 6), area.y + 14);
    }
    const y = Math.round(graph.toDomYCoord(this.data.device_memory / this.units[1][0])) + 0.5;
    if (SWEEP_METRICS[this.y].bytes && y >= area.y && y <= area.y + area.h) {
      context.moveTo(area.x, y);
      context.lineTo(area.x + area.w, y);
      context.textAlign = 'left';
      context.fillText(text, area.x + 6, y + 15);
    }
    context.stroke();
    context.restore();
  }

  /// The row nearest to the mouse; -1 where none is near.
  rowAt(event) {
    const box = this.element.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let nearest = -1, least = 20 ** 2;
    for (let i = 0; i < this.drawn.length; ++i) {
      const distance = (this.places[2 * i] - x) ** 2 + (this.places[2 * i + 1] - y) ** 2;
      if (distance < least) [nearest, least] = [this.drawn[i], distance];
    }
    return nearest;
  }

  /// A ring around one row; none for -1.
  mark(row) {
    this.marked = row;
    this.ring.style.display = 'none';
    const i = row < 0 ? -1 : this.drawn.indexOf(row);
    if (i < 0 || !this.graph) return;
    const [x, y] = this.places.subarray(2 * i, 2 * i + 2), area = this.graph.getArea();
    if (x < area.x || x > area.x + area.w || y < area.y || y > area.y + area.h) return;
    Object.assign(this.ring.style, {display: 'block', left: x + 'px', top: y + 'px'});
  }
}

// SPDX-License-Identifier: Apache-2.0
'use strict';

/// All traces as lines in one picture, with the steps of the first above and the overview of dygraphs below.
class TotalsChart {
  constructor(element, viewport, traces) {
    Object.assign(this, {element, viewport, traces});
    this.top = sharedTop(traces.map(({data}) => data), true);
    this.unit = axisUnit(this.top, BYTE_UNITS);
    this.graph = new Dygraph(element, this.rows(), this.options());
  }

  /// One row for every moment at which a trace has a sample: null before and behind a trace.
  rows() {
    const {viewport} = this;
    const width = Math.max(this.element.clientWidth, 300);
    const moments = new Set();
    const picked = this.traces.map(({data}) => {
      const events = [...data.sample(0, viewport.from, 300), ...data.sample(viewport.from, viewport.to, width),
                      ...data.sample(viewport.to, viewport.length, 300)];
      const ordered = [...new Set(events)].sort((a, b) => a - b);
      for (const event of ordered) moments.add(data.time[event]);
      moments.add(data.length);
      return {data, ordered, at: 0};
    });
    return [...moments].sort((a, b) => a - b).map((time) => [time, ...picked.map((trace) => this.valueAt(trace, time))]);
  }

  /// The highest total of all samples at this moment, else the last one before it.
  valueAt(trace, time) {
    const {data, ordered} = trace;
    if (time > data.length || ordered.length === 0) return null;
    let highest = -1;
    while (trace.at < ordered.length && data.time[ordered[trace.at]] <= time) {
      highest = Math.max(highest, data.total[ordered[trace.at++]]);
    }
    if (highest < 0) highest = trace.at > 0 ? data.total[ordered[trace.at - 1]] : 0;
    return highest / this.unit[0];
  }

  options() {
    const series = {};
    this.traces.forEach(({label, colour, dashed}) => {
      series[label] = {color: colour, strokeWidth: 1.5, strokePattern: dashed ? [7, 4] : null};
    });
    if (this.traces.some(({dashed}) => dashed)) series[this.traces[0].label].plotter = drawWithError;
    return {
      labels: ['time', ...this.traces.map(({label}) => label)], series, stepPlot: true, legend: 'never', interactionModel: {},
      animatedZooms: false, highlightCircleSize: 0, showLabelsOnHighlight: false, rightGap: 12, ...graphColours(),
      valueRange: [0, this.top / this.unit[0]], dateWindow: [this.viewport.from, this.viewport.to],
      showRangeSelector: true, rangeSelectorHeight: 30,
      axes: {
        x: {ticker: timeTicks, axisLabelFormatter: (nanos) => momentText(nanos, this.viewport.from, this.viewport.to), pixelsPerLabel: 110},
        y: {axisLabelWidth: 80, axisLabelFormatter: (value) => +value.toFixed(3) + ' ' + this.unit[1]},
      },
      drawCallback: (graph) => this.afterDraw(graph),
    };
  }

  draw() {
    this.graph.updateOptions({file: this.rows(), dateWindow: [this.viewport.from, this.viewport.to]});
  }

  afterDraw(graph) {
    const [from, to] = graph.xAxisRange();
    if (Math.abs(from - this.viewport.from) + Math.abs(to - this.viewport.to) > 1) this.viewport.show(from, to);
    const context = graph.hidden_ctx_;
    const area = graph.getArea();
    context.save();
    context.font = '12px system-ui, "DejaVu Sans", sans-serif';
    const shown = this.traces.filter(({data}) => data.capacity > 0 && data.capacity <= this.top);
    const capacities = new Map(shown.map(({data}) => [data.capacity, data]));
    for (const data of capacities.values()) drawCapacity(context, area, graph, data, this.unit);
    for (const {data, colour} of this.traces) this.drawPeak(context, area, graph, data, colour);
    context.restore();
  }

  drawPeak(context, area, graph, data, colour) {
    const time = data.time[data.peak];
    if (data.events === 0 || time < this.viewport.from || time > this.viewport.to) return;
    const text = bytesText(data.total[data.peak]);
    drawPeakMark(context, area, graph.toDomXCoord(time), graph.toDomYCoord(data.total[data.peak] / this.unit[0]), text, colour);
  }
}

/// Plotter of dygraphs for the first of two lines: shades what lies between them, where the prediction errs, below both.
function drawWithError(plot) {
  const [first, second] = plot.allSeriesPoints;
  const context = plot.drawingContext;
  context.fillStyle = theme.colours.error;
  for (let i = 0; i + 1 < second.length; ++i) {
    const [a, b] = [first[i].canvasy, second[i].canvasy];
    const width = second[i + 1].canvasx - second[i].canvasx;
    if (a !== b && !isNaN(a) && !isNaN(b)) context.fillRect(second[i].canvasx, Math.min(a, b), width, Math.abs(a - b));
  }
  Dygraph.Plotters.linePlotter(plot);
}

/// The top of a memory axis that several traces share. A device many times larger than all of them is left out.
function sharedTop(all, with_capacity) {
  let highest = 1;
  for (const data of all) {
    for (const column of [data.total, data.reserved]) {
      for (let i = 0; i < column.length; ++i) highest = Math.max(highest, column[i]);
    }
  }
  const room = Math.max(0, ...all.map((data) => data.capacity));
  return Math.max(highest, with_capacity && room <= 4 * highest ? room : 0) * 1.06;
}

/// The page of several traces: all in one picture above, each with its categories below, on the same scale of time and memory.
class ComparisonPage {
  constructor() {
    this.find = (id) => document.getElementById(id);
    this.held = false;
    this.viewport = new Viewport(() => this.draw());
    this.traces = [...document.querySelectorAll('script.trace')].map((script, i) => ({
      label: script.dataset.label, data: new RoleData(JSON.parse(script.textContent)), place: i,
      dashed: 'dashed' in script.dataset,
    }));
    for (const trace of this.traces) {   // the colour is another one when the page goes dark
      Object.defineProperty(trace, 'colour', {get: () => theme.colours.traces[trace.place % theme.colours.traces.length]});
    }
  }

  start() {
    const [ours, theirs] = this.traces.map(({data}) => data);
    const isAligned = this.traces.some(({dashed}) => dashed) && theirs.hasPhasesOf(ours);
    this.find('clock-label').style.display = isAligned ? '' : 'none';
    if (isAligned) theirs.alignTo(ours);
    this.find('clock').addEventListener('change', (event) => this.useClock(event.target.value));
    this.viewport.reset(Math.max(...this.traces.map(({data}) => data.length)));
    this.legend();
    this.totals = new TotalsChart(this.find('totals'), this.viewport, this.traces);
    this.steps = new PhaseTrack(this.find('phases'));
    const top = sharedTop(this.traces.map(({data}) => data), true);
    this.columns = this.traces.map((trace) => this.column(trace, top));
    for (const [tracks, graph] of [[this.find('tracks'), this.totals.graph],
                                   ...this.columns.map((column) => [column.tracks, column.chart.graph])]) {
      this.wire(tracks, graph);
    }
    this.find('reset').addEventListener('click', () => this.viewport.show(0, this.viewport.length));
    this.find('zoom-in').addEventListener('click', () => this.viewport.zoom(0.5));
    this.find('zoom-out').addEventListener('click', () => this.viewport.zoom(2));
    this.find('to-peak').addEventListener('click', () => this.showPeak());
    window.addEventListener('resize', () => this.viewport.show(this.viewport.from, this.viewport.to));
    theme.whenChanged(() => this.recolour());
    this.leave();
    this.draw();
  }

  useClock(clock) {
    const [ours, theirs] = this.traces.map(({data}) => data);
    if (clock === 'aligned') theirs.alignTo(ours); else theirs.useClock(clock);
    this.viewport.reset(Math.max(ours.length, theirs.length));
    this.recolour();
    this.leave();
  }

  recolour() {
    this.find('legend').replaceChildren();
    this.legend();
    this.totals.graph.updateOptions(this.totals.options());
    this.columns.forEach(({chart, data, swatch}, i) => {
      swatch.style.background = this.traces[i].colour;
      chart.use(data);
    });
    this.draw();
  }

  legend() {
    for (const {label, colour, dashed} of this.traces) {
      const entry = document.createElement('span');
      const swatch = document.createElement('span');
      swatch.className = 'swatch line';
      swatch.style.background = dashed ? `repeating-linear-gradient(90deg, ${colour} 0 5px, transparent 5px 7px)` : colour;
      entry.append(swatch, label);
      this.find('legend').append(entry);
    }
    if (this.traces.some(({dashed}) => dashed)) this.find('legend').append(this.errorKey());
  }

  /// What the shade between the lines is, with the largest error of all moments.
  errorKey() {
    const [{data: ours}, {data: theirs}] = this.traces;
    const end = Math.min(ours.length, theirs.length);
    let largest = 0, mine = -1, other = -1;
    while (true) {   // both in the order of time; what happens at one moment counts when all of it has happened
      const time = Math.min(mine + 1 < ours.events ? ours.time[mine + 1] : Infinity,
                            other + 1 < theirs.events ? theirs.time[other + 1] : Infinity);
      if (time > end || time === Infinity) break;
      while (mine + 1 < ours.events && ours.time[mine + 1] <= time) ++mine;
      while (other + 1 < theirs.events && theirs.time[other + 1] <= time) ++other;
      const error = (mine < 0 ? 0 : ours.total[mine]) - (other < 0 ? 0 : theirs.total[other]);
      if (Math.abs(error) > Math.abs(largest)) largest = error;
    }
    const entry = document.createElement('span');
    const swatch = document.createElement('span');
    swatch.className = 'swatch';
    swatch.style.background = theme.colours.error;
    entry.id = 'error-key';
    entry.append(swatch, largest === 0 ? 'no error at any moment'
                                       : `error, at most ${bytesText(Math.abs(largest))} too ${largest > 0 ? 'high' : 'low'}`);
    return entry;
  }

  column({label, data, colour}, top) {
    const make = (tag, className, parent) => {
      const element = document.createElement(tag);
      element.className = className;
      parent.append(element);
      return element;
    };
    const column = make('div', 'column', this.find('columns'));
    const heading = make('h3', '', column);
    const swatch = make('span', 'swatch line', heading);
    swatch.style.background = colour;
    heading.append(label);
    const tracks = make('div', 'tracks', column);
    const memory = make('div', 'memory', tracks);
    const cursor = make('div', 'cursor', tracks);
    const chart = new MemoryChart(memory, this.viewport, {top, overview: false, labelWidth: 72});
    chart.capacityShown = data.capacity <= top;
    chart.use(data);
    return {data, tracks, chart, cursor, swatch, inspector: new Inspector(make('div', 'inspector', column))};
  }

  wire(tracks, graph) {
    const area = () => ({left: graph.getArea().x, width: graph.getArea().w});
    new Gestures(tracks, this.viewport, area, {
      hover: (time) => this.hover(time), leave: () => this.leave(), hold: (time) => this.hold(time),
    }, tracks === this.find('tracks'));
  }

  draw() {
    const begin = performance.now();
    this.totals.graph.resize();
    this.totals.draw();
    const area = this.totals.graph.getArea();
    this.steps.draw(this.traces[0].data, this.viewport, {left: area.x, width: area.w});
    for (const {chart} of this.columns) {
      chart.graph.resize();
      chart.draw();
    }
    Object.assign(document.documentElement.dataset, {
      ready: 'true', traces: this.traces.length, points: Math.max(...this.columns.map(({chart}) => chart.points)),
      events: this.traces.reduce((sum, {data}) => sum + data.events, 0), drawMs: (performance.now() - begin).toFixed(1),
    });
  }

  showPeak() {
    const highest = this.traces.map(({data}) => data).reduce((a, b) => b.total[b.peak] > a.total[a.peak] ? b : a);
    const time = highest.time[highest.peak];
    const width = Math.max(this.viewport.length / 40, 1000);
    this.viewport.show(time - width / 2, time + width / 2);
  }

  hover(time) {
    if (!this.held) this.point(time, 'Under the cursor');
  }

  hold(time) {
    this.held = !this.held;
    this.point(time, this.held ? 'Held (click to release)' : 'Under the cursor');
  }

  point(time, title) {
    const place = (cursor, graph) => {
      const area = graph.getArea();
      const x = area.x + (time - this.viewport.from) / (this.viewport.to - this.viewport.from) * area.w;
      Object.assign(cursor.style, {display: 'block', left: x + 'px'});
      cursor.classList.toggle('held', this.held);
    };
    place(this.find('cursor'), this.totals.graph);
    for (const {data, chart, cursor, inspector} of this.columns) {
      place(cursor, chart.graph);
      inspector.show(data, data.eventAt(time), title, time);
    }
  }

  leave() {
    if (this.held) return;
    this.find('cursor').style.display = 'none';
    for (const {data, cursor, inspector} of this.columns) {
      cursor.style.display = 'none';
      inspector.show(data, data.peak, 'At its peak');
    }
  }
}

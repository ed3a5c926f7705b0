// SPDX-License-Identifier: Apache-2.0
'use strict';

/// Ties the tracks together. When all is drawn, <html> carries data-ready and what was drawn (the tests look at it).
class Page {
  constructor() {
    this.find = (id) => document.getElementById(id);
    this.traces = [...document.querySelectorAll('script.trace')];
    this.roles = new Map();
    this.held = false;
  }

  start() {
    if (this.traces.length === 0) {
      this.find('stage').classList.add('empty');
      this.find('stage').querySelector('.help').textContent =
          'No pictures: only the closed form ran, and it knows the peak without walking through the step.';
      this.announce(0);
      return;
    }
    this.viewport = new Viewport(() => this.draw());
    this.phases = new PhaseTrack(this.find('phases'));
    this.memory = new MemoryChart(this.find('memory'), this.viewport);
    this.streams = new StreamTrack(this.find('streams'));
    this.inspector = new Inspector(this.find('inspector'));
    this.wire();
    theme.whenChanged(() => this.useClock());
    this.useRole(Math.max(0, this.traces.findIndex((script) => 'worst' in script.dataset)));
  }

  wire() {
    const select = this.find('role');
    this.traces.forEach((script, i) => select.add(new Option(JSON.parse(script.textContent.match(/"role":("(?:[^"\\]|\\.)*")/)[1]), i)));
    this.find('role-label').style.display = this.traces.length > 1 ? '' : 'none';
    select.addEventListener('change', () => this.useRole(+select.value));
    this.find('clock').addEventListener('change', () => this.useClock());
    this.find('stack').addEventListener('change', () => this.useStack());
    this.find('capacity').addEventListener('change', (event) => this.memory.showCapacity(event.target.checked));
    this.find('zoom-in').addEventListener('click', () => this.viewport.zoom(0.5));
    this.find('zoom-out').addEventListener('click', () => this.viewport.zoom(2));
    this.find('reset').addEventListener('click', () => this.viewport.show(0, this.viewport.length));
    this.find('to-peak').addEventListener('click', () => this.showPeak());
    window.addEventListener('resize', () => this.viewport.show(this.viewport.from, this.viewport.to));
    new Gestures(this.find('tracks'), this.viewport, () => this.area(), {
      hover: (time, event) => this.hover(time, event), leave: () => this.leave(), hold: (time) => this.hold(time),
    });
  }

  useRole(index) {
    if (!this.roles.has(index)) this.roles.set(index, new RoleData(JSON.parse(this.traces[index].textContent)));
    this.data = this.roles.get(index);
    this.find('role').value = index;
    this.find('stack-label').style.display = this.data.layers.length > 0 ? '' : 'none';
    this.data.stackBy(this.stack());
    this.held = false;
    this.find('cursor').style.display = 'none';
    this.data.useClock(this.find('clock').value);
    this.viewport.reset(this.data.length);
    this.useClock();
  }

  /// Category or layer; a trace that knows no layers has no choice.
  stack() { return this.data.layers.length > 0 ? this.find('stack').value : 'category'; }

  useStack() {
    this.data.stackBy(this.stack());
    this.memory.use(this.data);
    this.inspector.show(this.data, this.data.peak, 'At the peak');
    this.draw();
  }

  useClock() {
    const length = this.data.length;
    this.data.useClock(this.find('clock').value);
    if (this.data.length !== length) this.viewport.reset(this.data.length);
    if (this.memory.capacityShown === undefined) this.decideCapacity();
    this.memory.use(this.data);
    this.inspector.show(this.data, this.data.peak, 'At the peak');
    this.draw();
  }

  /// A device many times larger than the peak would press the picture flat: then its line waits for a click.
  decideCapacity() {
    const highest = this.data.reserved.reduce((a, b) => Math.max(a, b), this.data.total.reduce((a, b) => Math.max(a, b), 1));
    this.memory.capacityShown = this.data.capacity <= 4 * highest;
    this.find('capacity').checked = this.memory.capacityShown;
    this.find('capacity').parentElement.style.display = this.data.capacity > 0 ? '' : 'none';
  }

  area() {
    const area = this.memory.graph.getArea();
    return {left: area.x, width: area.w};
  }

  draw() {
    const begin = performance.now();
    this.memory.graph.resize();
    this.memory.draw();
    this.phases.draw(this.data, this.viewport, this.area());
    this.streams.draw(this.data, this.viewport, this.area());
    this.announce(performance.now() - begin);
  }

  announce(milliseconds) {
    Object.assign(document.documentElement.dataset, {
      ready: 'true', points: this.memory ? this.memory.points : 0, slices: this.streams ? this.streams.drawn : 0,
      events: this.data ? this.data.events : 0, drawMs: milliseconds.toFixed(1),
    });
    document.documentElement.dataset.openMs ||= performance.now().toFixed(0);   // since the page was asked for
  }

  showPeak() {
    const time = this.data.time[this.data.peak];
    const width = Math.max(this.viewport.length / 40, 1000);
    this.viewport.show(time - width / 2, time + width / 2);
    this.inspector.show(this.data, this.data.peak, 'At the peak');
  }

  placeCursor(time) {
    const {left, width} = this.area();
    const x = left + (time - this.viewport.from) / (this.viewport.to - this.viewport.from) * width;
    Object.assign(this.find('cursor').style, {display: 'block', left: x + 'px'});
    this.find('cursor').classList.toggle('held', this.held);
  }

  hover(time, event) {
    this.tip(time, event);
    if (this.held) return;
    this.placeCursor(time);
    this.inspector.show(this.data, this.data.eventAt(time), 'Under the cursor', time);
  }

  hold(time) {
    this.held = !this.held;
    this.placeCursor(time);
    this.inspector.show(this.data, this.data.eventAt(time), this.held ? 'Held (click to release)' : 'Under the cursor', time);
  }

  leave() {
    this.find('tip').style.display = 'none';
    if (this.held) return;
    this.find('cursor').style.display = 'none';
    this.inspector.show(this.data, this.data.peak, 'At the peak');
  }

  tip(time, event) {
    const tip = this.find('tip');
    const slice = event.target === this.find('streams') ? this.streams.sliceAt(time, event.offsetY) : null;
    tip.style.display = slice ? 'block' : 'none';
    if (!slice) return;
    tip.textContent = `${slice.name}: ${timeText(slice.end - slice.start)}, from ${timeText(slice.start)} on ${slice.stream}`;
    tip.style.left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8) + 'px';
    tip.style.top = event.clientY + 16 + 'px';
  }
}

/// The list beside the pictures: what is alive at one instant. Texts go in as text, never as markup.
class Inspector {
  constructor(element) { this.element = element; }

  show(data, event, title, time = data.time[event]) {
    const heading = this.make('h3', title);
    const when = this.make('p', [data.whenText(event, time), data.phaseOf(event)].filter(Boolean).join(', '));
    when.className = 'when';
    this.element.replaceChildren(heading, when, this.bands(data, event), this.buffers(data, event));
  }

  make(tag, text, className = '') {
    const element = document.createElement(tag);
    element.textContent = text;
    element.className = className;
    return element;
  }

  row(cells, className = '') {
    const row = document.createElement('tr');
    row.className = className;
    cells.forEach((cell, i) => row.append(cell instanceof Node ? cell : this.make('td', cell, i > 0 ? 'number' : '')));
    return row;
  }

  named(colour, text, line = false) {
    const cell = this.make('td', '', 'name');
    const swatch = this.make('span', '', line ? 'swatch line' : 'swatch');
    swatch.style.background = colour;
    cell.append(swatch, text);
    cell.title = text;
    return cell;
  }

  bands(data, event) {
    const table = document.createElement('table');
    const value = (column) => event < 0 ? 0 : column[event];
    for (let i = data.bands.length - 1; i >= 0; --i) {
      const {name, colour} = data.bands[i];
      table.append(this.row([this.named(colour, name), bytesText(value(data.byBand[i]))]));
    }
    table.append(this.row(['tensors', bytesText(value(data.total))], 'total'));
    if (value(data.allocator) > 0) table.append(this.row([this.named(theme.colours.ink, 'allocator', true), bytesText(value(data.allocator))]));
    if (value(data.reserved) > 0) table.append(this.row([this.named(theme.colours.reserved, 'reserved', true), bytesText(value(data.reserved))]));
    return table;
  }

  buffers(data, event) {
    const list = data.aliveAfter(event);
    const table = document.createElement('table');
    const head = document.createElement('tr');
    head.append(this.make('th', 'largest buffers'), this.make('th', 'count', 'number'), this.make('th', 'bytes', 'number'));
    table.append(head);
    for (const {tensor, count, bytes} of list.slice(0, 12)) {
      table.append(this.row([this.named(CATEGORY_COLOURS[tensor.category], tensor.name), String(count), bytesText(bytes)]));
    }
    if (list.length > 12) table.append(this.row([`and ${list.length - 12} more families`, '', '']));
    return table;
  }
}

window.addEventListener('DOMContentLoaded', () => {
  const has = (id) => document.getElementById(id) !== null;
  (has('sweep') ? new SweepPage() : has('columns') ? new ComparisonPage() : new Page()).start();
});

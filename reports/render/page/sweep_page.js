// SPDX-License-Identifier: Apache-2.0
'use strict';

const SWEEP_ROWS_SHOWN = 200;

/// The page of a sweep: points over two metrics, and the rows that pass a filter. When all is drawn, <html> carries data-ready and
/// what was drawn (the tests look at it). Texts go in as text, never as markup.
class SweepPage {
  constructor() {
    this.find = (id) => document.getElementById(id);
    this.data = new SweepData(JSON.parse(this.find('sweep').textContent));
    this.metrics = Object.keys(this.data.metrics);
    this.order = {column: null, down: false};
    this.held = -1;
  }

  start() {
    this.chart = new SweepChart(this.find('scatter'), this.find('ring'), this.data, {
      hover: (row, event) => this.hover(row, event), hold: (row) => this.hold(row),
    });
    for (const [id, metric] of [['x-metric', this.data.x], ['y-metric', this.data.y]]) {
      for (const name of this.metrics) this.find(id).add(new Option(SWEEP_METRICS[name].title, name));
      this.find(id).value = this.metrics.includes(metric) ? metric : id === 'x-metric' ? 'allocated_bytes' : 'step_ns';
      this.find(id).addEventListener('change', () => this.draw());
    }
    this.filters = this.data.keys.map((key) => this.filter(key));
    for (const id of ['only-fitting', 'only-front']) this.find(id).addEventListener('change', () => this.refresh());
    this.find('log').addEventListener('change', () => this.draw());
    this.find('reset').addEventListener('click', () => this.reset());
    this.head();
    this.refresh();
  }

  make(tag, text = '', className = '') {
    const element = document.createElement(tag);
    element.textContent = text;
    element.className = className;
    return element;
  }

  /// A choice of one of a key's values.
  filter(key) {
    const label = this.make('label', key.name + ' ');
    const select = document.createElement('select');
    select.add(new Option('any', -1));
    const order = key.values.map((_, i) => i).sort((a, b) => key.rank[a] - key.rank[b]);
    for (const value of order) select.add(new Option(key.values[value], value));
    select.dataset.key = key.name;
    select.addEventListener('change', () => this.refresh());
    label.append(select);
    this.find('filters').append(label);
    return select;
  }

  reset() {
    for (const select of this.filters) select.value = -1;
    this.find('only-fitting').checked = this.find('only-front').checked = false;
    this.order = {column: null, down: false};
    this.hold(-1);
    this.refresh();
  }

  columns() { return [...this.data.keys.map(({name}) => name), ...this.metrics, 'fits', 'front']; }

  titleOf(column) { return column in SWEEP_METRICS ? SWEEP_METRICS[column].title : column; }

  head() {
    const row = document.createElement('tr');
    for (const column of this.columns()) {
      const cell = this.make('th', '', column in SWEEP_METRICS ? 'number' : '');
      const button = this.make('button', this.titleOf(column));
      button.type = 'button';
      button.addEventListener('click', () => this.sortBy(column));
      cell.dataset.column = column;
      cell.append(button);
      row.append(cell);
    }
    this.find('rows').tHead.replaceChildren(row);
  }

  /// The first click sorts what is best to the top, the next one turns the order.
  sortBy(column) {
    const down = column in SWEEP_METRICS && SWEEP_METRICS[column].more === true;
    this.order = {column, down: this.order.column === column ? !this.order.down : down};
    this.list();
    this.announce();
  }

  refresh() {
    const wanted = this.filters.map((select) => +select.value);
    this.passing = this.data.passing(wanted, this.find('only-fitting').checked, this.find('only-front').checked);
    this.draw();
    this.list();
    this.announce();
  }

  draw() {
    const begin = performance.now();
    this.chart.use(this.passing, this.find('x-metric').value, this.find('y-metric').value, this.find('log').checked);
    this.drawMs = performance.now() - begin;
    this.announce();
  }

  list() {
    const {column, down} = this.order;
    this.listed = column === null ? this.passing : this.data.sorted(this.passing, column, down);
    for (const cell of this.find('rows').tHead.rows[0].cells) {
      const isSorted = cell.dataset.column === column;
      cell.setAttribute('aria-sort', !isSorted ? 'none' : down ? 'descending' : 'ascending');
    }
    this.find('rows').tBodies[0].replaceChildren(...Array.from(this.listed.slice(0, SWEEP_ROWS_SHOWN), (row) => this.line(row)));
    const count = (number) => number.toLocaleString('en');
    const shown = this.listed.length > SWEEP_ROWS_SHOWN ? `; the first ${SWEEP_ROWS_SHOWN} are shown` : '';
    this.find('passing').textContent = `${count(this.listed.length)} of ${count(this.data.rows)} rows pass${shown}`;
  }

  cellsOf(row) {
    const known = (metric) => this.data.metrics[metric][row] === null ? '-' : SWEEP_METRICS[metric].text(this.data.metrics[metric][row]);
    return [...this.data.keys.map((key) => key.values[key.of[row]]), ...this.metrics.map(known),
            this.data.fits[row] ? 'yes' : 'no', this.data.pareto[row] ? '\u2713' : ''];
  }

  line(row) {
    const line = document.createElement('tr');
    this.cellsOf(row).forEach((text, i) =>
        line.append(this.make('td', text, this.columns()[i] in SWEEP_METRICS ? 'number' : '')));
    line.tabIndex = 0;
    line.classList.toggle('unfit', !this.data.fits[row]);
    line.addEventListener('mouseenter', () => this.chart.mark(row));
    line.addEventListener('mouseleave', () => this.chart.mark(this.held));
    line.addEventListener('focus', () => this.chart.mark(row));
    line.addEventListener('click', () => this.hold(row));
    line.addEventListener('keydown', (event) => {
      if (event.key === 'Enter') this.hold(row);
    });
    return line;
  }

  hover(row, event) {
    const tip = this.find('tip');
    tip.style.display = row >= 0 ? 'block' : 'none';
    this.chart.mark(row >= 0 ? row : this.held);
    if (row < 0) return;
    const columns = this.columns();
    tip.replaceChildren(...this.cellsOf(row).map((text, i) => this.make('div', `${this.titleOf(columns[i])}: ${text}`)));
    tip.style.left = Math.max(8, Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8)) + 'px';
    tip.style.top = Math.max(8, Math.min(event.clientY + 16, window.innerHeight - tip.offsetHeight - 8)) + 'px';
  }

  /// Keeps a row marked, with what has to be set for it; -1 lets go.
  hold(row) {
    this.held = row;
    this.chart.mark(row);
    this.find('held').textContent = row >= 0 ? this.data.command(row) : '';
    this.find('held-help').textContent = row >= 0 ? 'The chosen row, for any verb:' : 'Click a point or a row to see what to set for it.';
  }

  announce() {
    const first = this.find('rows').tBodies[0].rows[0];
    Object.assign(document.documentElement.dataset, {
      ready: 'true', rows: this.data.rows, passing: this.passing.length, shown: this.find('rows').tBodies[0].rows.length,
      points: this.chart.drawn.length, front: this.chart.front.length, first: first ? first.cells[0].textContent : '',
      drawMs: this.drawMs.toFixed(1), readyMs: document.documentElement.dataset.readyMs || performance.now().toFixed(0),
    });
  }
}

// SPDX-License-Identifier: Apache-2.0
'use strict';

const SWEEP_METRICS = {
  allocated_bytes: {title: 'peak', text: (bytes) => bytesText(bytes), bytes: true},
  reserved_bytes: {title: 'reserved', text: (bytes) => bytesText(bytes), bytes: true},
  device_high_bytes: {title: 'device', text: (bytes) => bytesText(bytes), bytes: true},
  host_bytes: {title: 'host memory', text: (bytes) => bytesText(bytes), bytes: true},
  step_ns: {title: 'step', text: (nanos) => timeText(nanos)},
  tokens_per_s_per_gpu: {title: 'tokens/s/GPU', text: (rate) => Math.round(rate).toLocaleString('en'), more: true},
  mfu: {title: 'MFU', text: (share) => (share * 100).toFixed(1) + ' %', more: true},
  compute_ns: {title: 'compute', text: (nanos) => timeText(nanos)},
  recompute_ns: {title: 'recompute', text: (nanos) => timeText(nanos)},
  exposed_communication_ns: {title: 'exposed communication', text: (nanos) => timeText(nanos)},
  bubble_ns: {title: 'bubble', text: (nanos) => timeText(nanos)},
  optimizer_ns: {title: 'optimizer', text: (nanos) => timeText(nanos)},
  host_ns: {title: 'host', text: (nanos) => timeText(nanos)},
};

/// The rows of a sweep, column by column: which of them pass a filter, in which order, and which no other one beats. Rows are
/// numbers; `more` in a metric says that more of it is better.
class SweepData {
  constructor(data) {
    Object.assign(this, data);
    this.all = Uint32Array.from({length: this.rows}, (_, row) => row);
    for (const key of this.keys) key.rank = SweepData.ranks(key.values);
    const fits = (row) => this.fits[row] === 1;
    const front = this.all.filter((row) => this.pareto[row] === 1);
    this.frontOfFitting = front.length > 0 && front.every(fits);
  }

  /// The place of each value among all: numbers by size, anything else by its text.
  static ranks(values) {
    const numbers = values.every((value) => value !== '' && !Number.isNaN(Number(value)));
    const order = values.map((_, i) => i).sort((a, b) =>
        numbers ? values[a] - values[b] : values[a].localeCompare(values[b], 'en', {numeric: true}));
    const rank = new Uint32Array(values.length);
    order.forEach((value, i) => { rank[value] = i; });
    return rank;
  }

  /// `wanted`: per key the index of a value, or -1.
  passing(wanted, onlyFitting, onlyFront) {
    const asked = this.keys.map((key, i) => [key.of, wanted[i]]).filter(([, value]) => value >= 0);
    return this.all.filter((row) => (!onlyFitting || this.fits[row]) && (!onlyFront || this.pareto[row]) &&
        asked.every(([of, value]) => of[row] === value));
  }

  /// What a column is sorted by: a key, a metric, "fits" or "front". What is not known comes last either way.
  sorted(rows, column, down) {
    const key = this.keys.find(({name}) => name === column);
    const value = key ? (row) => key.rank[key.of[row]]
        : column === 'fits' ? (row) => -this.fits[row]
        : column === 'front' ? (row) => -this.pareto[row]
        : (row) => this.metrics[column][row];
    const sign = down ? -1 : 1;
    return rows.slice().sort((a, b) => {
      const [left, right] = [value(a), value(b)];
      if (left === null || right === null) return (left === null) - (right === null) || a - b;
      return sign * (left - right) || a - b;
    });
  }

  /// The front of two metrics among `rows`, from left to right: those of the report as it says; of others what no row beats in
  /// both, among those that fit if the report's front is of these.
  front(rows, x, y) {
    const across = this.metrics[x], up = this.metrics[y];
    const byX = (a, b) => across[a] - across[b] || up[a] - up[b];
    if (x === this.x && y === this.y) return rows.filter((row) => this.pareto[row]).sort(byX);
    const better = (metric) => SWEEP_METRICS[metric].more ? -1 : 1;
    const candidates = rows.filter((row) => across[row] !== null && up[row] !== null && (!this.frontOfFitting || this.fits[row]));
    candidates.sort((a, b) => better(x) * (across[a] - across[b]) || better(y) * (up[a] - up[b]));
    let best = Infinity;
    return candidates.filter((row) => {
      const value = better(y) * up[row];
      const isBetter = value < best;
      best = Math.min(best, value);
      return isBetter;
    }).sort(byX);
  }

  /// "--set layout.tp=8 --set strategy=ddp-last"
  command(row) {
    const word = (text) => /^[\w\-./:,+@%=]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
    return this.keys.map((key) => '--set ' + word(`${key.name}=${key.values[key.of[row]]}`)).join(' ');
  }
}

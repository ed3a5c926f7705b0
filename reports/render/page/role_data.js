// SPDX-License-Identifier: Apache-2.0
'use strict';

// One role's trace as columns of numbers, and the questions the pictures ask of it. Everything is answered from typed arrays:
// a view of 200,000 events costs one pass over them or a binary search, never an object per event.

const CATEGORY_COLOURS = {   // Paul Tol's "muted" scheme and relatives: distinguishable with any kind of colour vision
  parameter: '#4477aa', optimizer: '#88ccee', accumulator: '#44aa99', gradient: '#117733', bucket: '#999933',
  input: '#bbbbbb', rng: '#dddddd', representation_cache: '#661100', activation: '#ddcc77', tp_gather: '#cc6677',
  logits: '#aa4499', workspace: '#777777', unknown: '#9aa5b1',
};
const LAYER_BANDS = 16;   // stacked by layer: more could not be told apart
const STACK_ORDER = Object.keys(CATEGORY_COLOURS);   // from the bottom: what stays, then what comes and goes

/// The number of sorted values that are <= x.
function upperBound(sorted, x, begin = 0, end = sorted.length) {
  while (begin < end) {
    const middle = (begin + end) >> 1;
    if (sorted[middle] <= x) begin = middle + 1; else end = middle;
  }
  return begin;
}

const PACKED = {i8: Int8Array, i16: Int16Array, i32: Int32Array, f64: Float64Array};

/// The numbers of a column {type, values: base64 of their bytes}.
function unpacked({type, values}) {
  const text = atob(values);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; ++i) bytes[i] = text.charCodeAt(i);
  return new PACKED[type](bytes.buffer);
}

function runningSum(differences) {
  const sums = new Float64Array(differences.length);
  for (let i = 0, sum = 0; i < sums.length; ++i) sums[i] = sum += differences[i];
  return sums;
}

class RoleData {
  constructor(json) {
    Object.assign(this, {role: json.role, ranks: json.ranks, capacity: json.capacity, capacityName: json.capacity_name, strings: json.strings});
    this.tensors = json.tensors.map(([name, category, bytes, dtype]) => ({name, category, bytes, dtype}));
    this.spans = json.spans.map(([phase, microbatch, begin, end, side]) => ({phase, microbatch, begin, end, side}));
    this.steps = json.steps.map(([kind, begin, end, firstEvent]) => ({kind, begin, end, firstEvent}));
    const {tensor, issue, ready, span, allocator, reserved, layer} = json.memory;
    this.tensorOf = unpacked(tensor);
    this.events = this.tensorOf.length;
    this.spanOf = unpacked(span);
    this.issue = runningSum(unpacked(issue));
    this.ready = Float64Array.from(unpacked(ready));
    for (let i = 0; i < this.events; ++i) this.ready[i] += this.issue[i];
    this.allocator = runningSum(unpacked(allocator));
    this.reserved = runningSum(unpacked(reserved));
    this.layers = json.layers.map(([block, number]) => ({block, number}));
    this.layerOf = layer ? unpacked(layer) : null;
    this.addUp();
    this.makeCheckpoints();
    this.readStreams(json.slices, json.streams);
    this.duration = Math.max(json.step, this.lastSlice, this.events ? this.issue[this.events - 1] : 0, 1);
    this.nestSpans();
    this.useClock('device');
  }

  /// The whole after each event, and the first instant of its highest value.
  addUp() {
    const bytes = Float64Array.from(this.tensors, (tensor) => tensor.bytes);
    this.change = new Float64Array(this.events);
    this.total = new Float64Array(this.events);
    this.peak = 0;
    for (let i = 0, sum = 0; i < this.events; ++i) {
      const id = this.tensorOf[i];
      this.change[i] = id < 0 ? -bytes[~id] : bytes[id];
      this.total[i] = sum += this.change[i];
      if (sum > this.total[this.peak]) this.peak = i;
    }
    this.stackings = {};
    this.stackBy('category');
  }

  /// What the picture stacks: `bands` ({name, colour}, from the bottom) and for each the bytes after every event.
  stackBy(what) {
    this.stackings[what] ||= what === 'layer' ? this.stackLayers() : this.stackCategories();
    Object.assign(this, this.stackings[what]);
  }

  stackCategories() {
    const used = new Set(this.tensors.map((tensor) => tensor.category));
    const names = STACK_ORDER.filter((name) => used.has(name));
    const bandOf = Int32Array.from(this.tensors, (tensor) => names.indexOf(tensor.category));
    const bands = names.map((name) => ({name, colour: CATEGORY_COLOURS[name]}));
    return {bands, byBand: this.columns(bands.length, (i, id) => bandOf[id])};
  }

  /// What belongs to no layer is at the bottom. Neighbours share a band where there are more layers than colours.
  stackLayers() {
    const bands = [{name: 'outside the layers', colour: CATEGORY_COLOURS.input}];
    const share = Math.ceil(this.layers.length / LAYER_BANDS);
    const bandOf = new Int32Array(this.layers.length);
    let first = null;
    this.layers.forEach(({block, number}, i) => {
      if (!first || first.block !== block || number >= first.number + share) {
        first = {block, number};
        bands.push({});
      }
      bandOf[i] = bands.length - 1;
      const last = number > first.number ? ` to ${number}` : '';
      bands[bands.length - 1].name = `${block} ${first.number}${last}`;
    });
    for (let i = 1; i < bands.length; ++i) {   // from blue over red to yellow; neighbours differ in lightness
      const hue = 215 + 195 * (i - 1) / Math.max(bands.length - 2, 1);
      bands[i].colour = `hsl(${Math.round(hue) % 360}, 45%, ${i % 2 ? 52 : 64}%)`;
    }
    return {bands, byBand: this.columns(bands.length, (i) => this.layerOf[i] < 0 ? 0 : bandOf[this.layerOf[i]])};
  }

  /// Totals of `count` bands after each event; `bandOf(event, tensor)`.
  columns(count, bandOf) {
    const columns = Array.from({length: count}, () => new Float64Array(this.events));
    const now = new Float64Array(count);
    for (let i = 0; i < this.events; ++i) {
      const id = this.tensorOf[i];
      now[bandOf(i, id < 0 ? ~id : id)] += this.change[i];
      for (let band = 0; band < count; ++band) columns[band][i] = now[band];
    }
    return columns;
  }

  /// How many members of each family are alive, kept every `stride` events: a list of buffers at any instant replays at most
  /// that many. The stride grows with the number of families so that all checkpoints stay below 4 million numbers.
  makeCheckpoints() {
    const families = Math.max(this.tensors.length, 1);
    this.stride = Math.max(1024, Math.ceil(this.events * families / 4e6));
    this.checkpoints = [];
    const alive = new Int32Array(families);
    for (let i = 0; i < this.events; ++i) {
      if (i % this.stride === 0) this.checkpoints.push(alive.slice());
      this.count(alive, i);
    }
  }

  count(alive, event) {
    const id = this.tensorOf[event];
    if (id < 0) --alive[~id]; else ++alive[id];
  }

  /// Families alive after `event`, the most bytes first.
  aliveAfter(event) {
    if (event < 0) return [];
    const checkpoint = Math.floor(event / this.stride);
    const alive = this.checkpoints[checkpoint].slice();
    for (let i = checkpoint * this.stride; i <= event; ++i) this.count(alive, i);
    const list = [];
    alive.forEach((count, id) => {
      if (count > 0) list.push({tensor: this.tensors[id], count, bytes: count * this.tensors[id].bytes});
    });
    return list.sort((a, b) => b.bytes - a.bytes);
  }

  /// The slices of each stream, which come in the order of their starts.
  readStreams(slices, streams) {
    const [streamOf, name, length] = [slices.stream, slices.name, slices.length].map(unpacked);
    const starts = runningSum(unpacked(slices.start));
    const count = new Uint32Array(streams.length);
    for (const stream of streamOf) ++count[stream];
    const all = streams.map(([name, kind], i) => ({
      name, kind, filled: 0, starts: new Float64Array(count[i]), ends: new Float64Array(count[i]), names: new Int32Array(count[i]),
    }));
    this.lastSlice = 0;
    for (let i = 0; i < starts.length; ++i) {
      const stream = all[streamOf[i]];
      const place = stream.filled++;
      stream.starts[place] = starts[i];
      stream.ends[place] = starts[i] + length[i];
      stream.names[place] = name[i];
      this.lastSlice = Math.max(this.lastSlice, stream.ends[place]);
    }
    this.streams = all.filter((stream) => stream.filled > 0);
  }

  /// Memory follows the order of issue. On the device's clock an event is shown when its stream got there, but never before the
  /// event issued before it: the curve keeps its shape and its peak. By `event`, all are equally far apart.
  useClock(clock) {
    this.clock = clock;
    this.length = clock === 'event' ? Math.max(this.events, 1) : this.duration;
    this.time = this.issue;
    if (clock === 'event') {
      this.time = new Float64Array(this.events);
      for (let i = 0; i < this.events; ++i) this.time[i] = i;
    } else if (clock === 'device') {
      this.time = new Float64Array(this.events);
      for (let i = 0, last = 0; i < this.events; ++i) {
        this.time[i] = last = Math.max(last, Math.min(this.ready[i], this.length));
      }
    }
    this.placeSpans();
  }

  /// Where each event of this trace would be if its phases took as long as those of `other`: between the ends of a phase,
  /// events are matched by their place among its events, so that equal programs match event by event.
  alignTo(other) {
    const knots = [[0, 0], ...this.phaseEnds(other), [this.events, other.events]];
    this.clock = 'aligned';
    this.length = other.length;
    this.time = new Float64Array(this.events);
    const timeOf = (place) => {
      const event = Math.min(Math.floor(place), other.events - 1);
      const next = event + 1 < other.events ? other.time[event + 1] : other.length;
      return other.events ? other.time[event] + (place - event) * (next - other.time[event]) : 0;
    };
    for (let i = 0, knot = 0; i < this.events; ++i) {
      while (knot + 2 < knots.length && knots[knot + 1][0] <= i) ++knot;
      const [[from, to], [end, toEnd]] = [knots[knot], knots[knot + 1]];
      this.time[i] = timeOf(to + (end > from ? (i - from) / (end - from) * (toEnd - to) : 0));
    }
    this.placeSpans();
  }

  /// Whether both have the same phases in the same order.
  hasPhasesOf(other) {
    const phases = (data) => data.spans.map(({phase, side, microbatch, depth}) => [phase, side, microbatch, depth].join('/')).join();
    return this.spans.length > 0 && phases(this) === phases(other);
  }

  /// Pairs of events of this trace and of `other` at which the same phase begins, in order.
  phaseEnds(other) {
    const ends = [];
    this.spans.forEach((span, i) => {
      const last = ends[ends.length - 1] || [0, 0];
      const [mine, its] = [span.first, other.spans[i].first];
      if (mine > last[0] && its > last[1] && mine < this.events && its < other.events) ends.push([mine, its]);
    });
    return ends;
  }

  /// A moment of a view [from, to] on this clock.
  momentText(at, from, to) {
    return this.clock === 'event' ? Math.round(at).toLocaleString('en-US') : momentText(at, from, to);
  }

  /// Where in the trace an event is, for a person.
  whenText(event, time) {
    return this.clock === 'event' ? `event ${(event + 1).toLocaleString('en-US')} of ${this.events.toLocaleString('en-US')}`
                                  : timeText(Math.max(time || 0, 0));
  }

  /// The memory events of each span, those of the spans in it included, and how deep it lies. Where the host costs nothing all
  /// spans begin and end at once; then a span lies in another that has events behind its own.
  nestSpans() {
    for (const span of this.spans) Object.assign(span, {first: this.events, last: -1});
    for (let event = 0; event < this.events; ++event) {
      const span = this.spans[this.spanOf[event]];
      if (!span) continue;
      span.first = Math.min(span.first, event);
      span.last = event;
    }
    for (let i = this.spans.length - 2; i >= 0; --i) {   // before its first event there is none of a later span
      this.spans[i].first = Math.min(this.spans[i].first, this.spans[i + 1].first);
    }
    const open = [];
    const close = () => {
      const {last} = open.pop();
      if (open.length) open[open.length - 1].last = Math.max(open[open.length - 1].last, last);
    };
    const isOver = (outer, span) => outer.end <= span.begin && outer.last < span.first;
    for (const span of this.spans) {
      while (open.length && isOver(open[open.length - 1], span)) close();
      span.depth = open.length;
      open.push(span);
    }
    while (open.length) close();
    this.depth = this.spans.reduce((depth, span) => Math.max(depth, span.depth + 1), 0);
  }

  /// Spans and steps are host times: on another clock they reach from their first memory event to that of what follows.
  placeSpans() {
    const shown = (event) => (event < this.events ? Math.max(this.time[event], 0) : this.length);
    const ofHost = this.clock === 'host';
    for (const span of this.spans) {
      span.from = ofHost ? span.begin : shown(span.first);
      span.to = ofHost ? span.end : Math.max(shown(Math.max(span.last, span.first - 1) + 1), span.from);
    }
    this.steps.forEach((step, i) => {
      const byEvent = this.clock === 'event';
      const next = this.steps[i + 1];
      step.from = byEvent ? shown(step.firstEvent) : step.begin;
      step.to = byEvent ? (next ? shown(next.firstEvent) : this.length) : step.end;
    });
  }

  /// The last event at or before `time`; -1: none.
  eventAt(time) { return upperBound(this.time, time) - 1; }

  phaseOf(event) {
    const span = event < 0 ? undefined : this.spans[this.spanOf[event]];
    if (!span) return '';
    const counted = (span.side ? span.side + ' chunk ' : 'microbatch ') + span.microbatch;
    return span.phase + (span.microbatch >= 0 ? ' of ' + counted : '') + this.stepOf(event);
  }

  /// " of step 2" where there are several.
  stepOf(event) {
    if (this.steps.length < 2) return '';
    return ' of step ' + Math.max(upperBound(this.steps.map((step) => step.firstEvent), event), 1);
  }

  /// Which events to draw for a view of `buckets` pixels: all where they are few, else the lowest and the highest total of each
  /// pixel, so that no peak is lost at any zoom.
  sample(from, to, buckets) {
    const begin = Math.max(this.eventAt(from), 0);
    const end = Math.min(upperBound(this.time, to) + 1, this.events);
    const picked = [];
    if (end - begin <= 2 * buckets) {
      for (let i = begin; i < end; ++i) picked.push(i);
      return picked;
    }
    const width = (to - from) / buckets;
    for (let i = begin; i < end;) {
      const border = from + (Math.floor((this.time[i] - from) / width) + 1) * width;
      let low = i, high = i;
      const first = i;
      for (++i; i < end && this.time[i] < border; ++i) {
        if (this.total[i] < this.total[low]) low = i;
        if (this.total[i] > this.total[high]) high = i;
      }
      for (const event of new Set([first, Math.min(low, high), Math.max(low, high), i - 1].sort((a, b) => a - b))) {
        picked.push(event);
      }
    }
    return picked;
  }
}

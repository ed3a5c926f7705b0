// SPDX-License-Identifier: Apache-2.0
'use strict';

// The tracks drawn on canvases of ours: the phases above the memory chart, the streams below it.

const STREAM_COLOURS = {
  host: ['#8d99a6', '#a4aeb9'], compute: ['#4477aa', '#6b95bf'], collective: ['#cc6677', '#d98a97'],
  peer: ['#228833', '#57a363'], copy: ['#999933', '#b0b05f'],
};
const PHASE_COLOURS = {
  load: '#e8ecf1', forward: '#d3e3f3', backward: '#f6e3bd', reduce: '#f3d3d8', optimizer: '#d5ecd9', gather: '#e4d9ee',
  'A_forward': '#e3eef7', 'B_loss': '#efe6c8', 'C_forward': '#d3e3f3', 'C_backward': '#f6e3bd',
};

/// A canvas of `height` pixels as wide as its parent, sharp on every screen; returns its cleared context.
function prepare(canvas, height) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.parentElement.clientWidth;
  canvas.style.width = width + 'px';
  canvas.style.height = height + 'px';
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext('2d');
  context.scale(ratio, ratio);
  context.clearRect(0, 0, width, height);
  context.font = '12px system-ui, "DejaVu Sans", sans-serif';
  context.textBaseline = 'middle';
  return context;
}

/// `text`, or its longest start that fits, or nothing.
function fitText(context, text, width) {
  if (width < 14) return '';
  if (context.measureText(text).width <= width) return text;
  const letters = Math.floor(width / (context.measureText(text).width / text.length)) - 2;
  return letters >= 3 ? text.slice(0, letters) + '..' : '';
}

class PhaseTrack {
  constructor(canvas) { this.canvas = canvas; }

  draw(data, viewport, area) {
    const steps = data.steps.length > 1 ? 22 : 0;   // their row is above those of the phases
    const depth = Math.min(data.depth, 2);
    const context = prepare(this.canvas, steps + depth * 22 + 4);
    const x = (time) => area.left + (time - viewport.from) / (viewport.to - viewport.from) * area.width;
    const reached = new Float64Array(3).fill(-Infinity);
    const box = (row, from, to, top, colour, name, short) => {
      if (to < viewport.from || from > viewport.to) return;
      const left = Math.max(x(from), area.left);
      const right = Math.min(x(to), area.left + area.width);
      if (right < reached[row] + 0.5) return;   // this pixel is painted already
      reached[row] = right;
      context.fillStyle = colour;
      context.fillRect(left, top, right - left > 4 ? right - left - 1 : Math.max(right - left, 0.6), 20);
      const room = right - left - 8;
      context.fillStyle = ON_COLOUR.dark;
      context.fillText(context.measureText(name).width <= room ? name : fitText(context, short, room), left + 4, top + 10.5);
    };
    if (steps) {
      data.steps.forEach(({kind, from, to}, i) => {
        box(2, from, to, 1, i % 2 ? '#dbe2ea' : '#e8ecf1', `step ${i + 1}` + (kind ? ` (${kind})` : ''), `step ${i + 1}`);
      });
    }
    for (const span of data.spans) {
      if (span.depth > 1) continue;
      const several = span.microbatch >= 0;
      box(span.depth, span.from, span.to, steps + span.depth * 22 + 1, PHASE_COLOURS[span.phase] || '#e8ecf1',
          [span.phase, span.side, several ? span.microbatch : ''].filter(String).join(' '),
          several ? span.phase[0].toUpperCase() + span.microbatch : span.phase);
    }
    context.fillStyle = theme.colours.soft;
    context.textAlign = 'right';
    if (steps) context.fillText('step', area.left - 8, 11.5);
    context.fillText('phase', area.left - 8, steps + 11.5);
  }
}

class StreamTrack {
  constructor(canvas) {
    Object.assign(this, {canvas, drawn: 0, rowHeight: 26});
  }

  draw(data, viewport, area) {
    Object.assign(this, {data, viewport, area, drawn: 0});
    const streams = data.clock === 'event' ? [] : data.streams;   // between two events any time may pass
    const context = prepare(this.canvas, streams.length * this.rowHeight + 8);
    streams.forEach((stream, row) => {
      const top = row * this.rowHeight + 6;
      context.fillStyle = theme.colours.shade;
      context.fillRect(area.left, top, area.width, this.rowHeight - 6);
      context.fillStyle = theme.colours.soft;
      context.textAlign = 'right';
      context.fillText(fitText(context, stream.name, area.left - 10), area.left - 8, top + 10);
      context.textAlign = 'left';
      this.drawStream(context, stream, top);
    });
  }

  /// Slices of a stream do not overlap. One that is narrower than a pixel stands for all others in that pixel: a binary search
  /// finds the next one beyond, so the cost follows the pixels and not the slices.
  drawStream(context, stream, top) {
    const {viewport, area} = this;
    const perNano = area.width / (viewport.to - viewport.from);
    const colours = STREAM_COLOURS[stream.kind] || STREAM_COLOURS.host;
    const height = this.rowHeight - 6;
    for (let i = upperBound(stream.ends, viewport.from); i < stream.starts.length && stream.starts[i] < viewport.to;) {
      const left = Math.max((stream.starts[i] - viewport.from) * perNano, 0);
      const right = Math.min((stream.ends[i] - viewport.from) * perNano, area.width);
      context.fillStyle = colours[i % 2];
      context.fillRect(area.left + left, top, Math.max(right - left, 0.6), height);
      ++this.drawn;
      if (right - left >= 1) {
        this.drawName(context, stream, i, area.left + left, right - left, top);
        ++i;
      } else {
        i = Math.max(i + 1, upperBound(stream.ends, viewport.from + (Math.floor(left) + 1) / perNano, i));
      }
    }
  }

  drawName(context, stream, slice, left, width, top) {
    const text = width < 30 ? '' : fitText(context, this.data.strings[stream.names[slice]], width - 8);
    if (!text) return;
    context.fillStyle = ON_COLOUR.light;
    context.fillText(text, left + 4, top + 10.5);
  }

  /// What lies under a point of the canvas: {name, stream, start, end} or nothing.
  sliceAt(time, y) {
    const stream = this.data && this.data.clock !== 'event' && this.data.streams[Math.floor((y - 6) / this.rowHeight)];
    if (!stream) return null;
    const reach = (this.viewport.to - this.viewport.from) / this.area.width;
    const i = upperBound(stream.ends, time - reach / 2);
    if (i >= stream.starts.length || stream.starts[i] > time + reach / 2) return null;
    return {name: this.data.strings[stream.names[i]], stream: stream.name, start: stream.starts[i], end: stream.ends[i]};
  }
}

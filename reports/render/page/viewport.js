// SPDX-License-Identifier: Apache-2.0
'use strict';

/// The window of time that all tracks show, and the one place that changes it.
class Viewport {
  constructor(redraw) {
    this.redraw = redraw;
    this.pending = false;
    this.reset(1);
  }

  reset(length) {
    Object.assign(this, {length, from: 0, to: length});
  }

  /// Shows [from, to], kept within the step and no narrower than 100 ns. Draws once a frame at most.
  show(from, to) {
    const width = Math.min(Math.max(to - from, 100), this.length);
    this.from = Math.min(Math.max((from + to - width) / 2, 0), this.length - width);
    this.to = this.from + width;
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => { this.pending = false; this.redraw(); });
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    this.show(around + (this.from - around) * factor, around + (this.to - around) * factor);
  }

  pan(share) {
    const shift = Math.min(Math.max(share * (this.to - this.from), -this.from), this.length - this.to);
    this.show(this.from + shift, this.to + shift);
  }
}

/// Mouse and keys on the tracks. `area()` is the part of the tracks in which time runs: {left, width} in pixels;
/// `hover(time, event)` and `hold(time)` tell what the person points at. Of several tracks on a page one listens to `keys`.
class Gestures {
  constructor(tracks, viewport, area, {hover, leave, hold}, keys = true) {
    Object.assign(this, {tracks, viewport, area, hover, hold, drag: null});
    this.selection = document.createElement('div');
    this.selection.className = 'selection';
    tracks.append(this.selection);
    tracks.addEventListener('mousedown', (event) => this.begin(event));
    window.addEventListener('mousemove', (event) => this.move(event));
    window.addEventListener('mouseup', (event) => this.finish(event));
    tracks.addEventListener('mouseleave', leave);
    tracks.addEventListener('dblclick', () => viewport.show(0, viewport.length));
    tracks.addEventListener('wheel', (event) => this.wheel(event), {passive: false});
    if (keys) window.addEventListener('keydown', (event) => this.key(event));
  }

  x(event) { return event.clientX - this.tracks.getBoundingClientRect().left; }

  timeAt(x) {
    const {left, width} = this.area();
    const share = Math.min(Math.max((x - left) / width, 0), 1);
    return this.viewport.from + share * (this.viewport.to - this.viewport.from);
  }

  begin(event) {
    if (event.button !== 0 || event.target.closest('.dygraph-rangesel-fgcanvas, .dygraph-rangesel-zoomhandle')) return;
    if (this.x(event) < this.area().left) return;
    event.preventDefault();
    this.drag = {x: this.x(event), pan: event.shiftKey, last: this.x(event)};
  }

  move(event) {
    const x = this.x(event);
    if (!this.drag) {
      if (this.tracks.contains(event.target)) this.hover(this.timeAt(x), event);
    } else if (this.drag.pan) {
      this.viewport.pan((this.drag.last - x) / this.area().width);
      this.drag.last = x;
    } else {
      const {left, width} = this.area();
      const ends = [this.drag.x, Math.min(Math.max(x, left), left + width)].sort((a, b) => a - b);
      Object.assign(this.selection.style, {display: 'block', left: ends[0] + 'px', width: ends[1] - ends[0] + 'px'});
    }
  }

  finish(event) {
    if (!this.drag) return;
    const {x, pan} = this.drag;
    this.drag = null;
    this.selection.style.display = 'none';
    if (pan) return;
    if (Math.abs(this.x(event) - x) < 4) {
      this.hold(this.timeAt(x));
    } else {
      const ends = [this.timeAt(x), this.timeAt(this.x(event))].sort((a, b) => a - b);
      this.viewport.show(...ends);
    }
  }

  wheel(event) {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.viewport.zoom(Math.exp(Math.max(-100, Math.min(100, event.deltaY)) / 200), this.timeAt(this.x(event)));
    } else if (event.deltaX !== 0) {
      event.preventDefault();
      this.viewport.pan(event.deltaX / this.area().width);
    }
  }

  key(event) {
    if (event.target.closest('select, input') || event.ctrlKey || event.metaKey || event.altKey) return;
    const actions = {
      '+': () => this.viewport.zoom(0.5), '=': () => this.viewport.zoom(0.5), '-': () => this.viewport.zoom(2),
      'ArrowLeft': () => this.viewport.pan(-0.2), 'ArrowRight': () => this.viewport.pan(0.2),
      'p': () => document.getElementById('to-peak').click(), '0': () => this.viewport.show(0, this.viewport.length),
    };
    if (actions[event.key]) {
      event.preventDefault();
      actions[event.key]();
    }
  }
}

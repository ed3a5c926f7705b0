#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Opens HTML reports in a headless Chromium: they must draw, stay quick, ask the network for nothing and run nobody else's scripts.

Takes the sample writer from $TIDEMARK_SAMPLE_PAGE. Exits with 77 (skipped) where there is no Chromium.
"""

import functools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from browser import CHROMIUM, SKIPPED, attributes, colours

# The same for the page of several traces: what was drawn, what the lists say when the mouse is over the first column, and whether
# all pictures share one scale.
COMPARISON_PROBE = """
<script>
window.addEventListener('load', () => {
  const results = document.documentElement.dataset;
  window.requestAnimationFrame = (draw) => draw();
  document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '+', bubbles: true}));
  results.columns = document.querySelectorAll('.column canvas').length > 0 ? document.querySelectorAll('.column').length : 0;
  const box = document.querySelector('.memory').getBoundingClientRect();
  document.querySelector('.memory').dispatchEvent(new MouseEvent('mousemove',
      {clientX: box.left + box.width / 2, clientY: box.top + 50, bubbles: true}));
  const lists = [...document.querySelectorAll('.inspector')];
  results.pointed = lists.filter((list) => list.textContent.includes('Under the cursor')).length;
  results.cursors = [...document.querySelectorAll('.cursor')].filter((cursor) => cursor.style.display === 'block').length;
  results.error = document.getElementById('error-key') ? document.getElementById('error-key').textContent : 'none';
  results.scales = new Set([...document.querySelectorAll('.memory')].map((memory) =>
      [...memory.querySelectorAll('.dygraph-axis-label-y')].map((label) => label.textContent).join())).size;
  results.requests = performance.getEntriesByType('resource').map((entry) => entry.name)
      .filter((name) => !name.startsWith('data:')).join(' ');
});
</script>
"""

# Runs after the page's own scripts: what the page fetched, how long a warm redraw takes while zooming (drawn at once instead of
# with the next frame, so that each is measured), and what the page shows under the mouse.
PROBE = """
<script>
window.addEventListener('load', () => {
  const results = document.documentElement.dataset;
  window.requestAnimationFrame = (draw) => draw();
  Object.assign(results, {eventsAtFirst: results.events, slicesAtFirst: results.slices});
  const durations = [];
  for (const key of ['+', '+', '+', 'ArrowRight', '+', '+', '-', '-', 'ArrowLeft', '-', '-', '-', '0']) {
    document.body.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
    durations.push(+results.drawMs);
  }
  results.medianDrawMs = durations.sort((a, b) => a - b)[durations.length >> 1];
  const box = document.getElementById('memory').getBoundingClientRect();
  document.getElementById('memory').dispatchEvent(new MouseEvent('mousemove',
      {clientX: box.left + box.width / 2, clientY: box.top + 50, bubbles: true}));
  results.inspector = document.getElementById('inspector').textContent;
  const role = document.getElementById('role');
  role.value = role.options.length - 1;
  role.dispatchEvent(new Event('change'));
  results.eventsOfLastRole = results.events;
  const clock = document.getElementById('clock');
  clock.value = 'event';
  clock.dispatchEvent(new Event('change'));
  results.byEvent = document.querySelector('#inspector .when').textContent;
  results.slicesByEvent = results.slices;
  results.requests = performance.getEntriesByType('resource').map((entry) => entry.name)
      .filter((name) => !name.startsWith('data:')).join(' ');
});
</script>
"""


# Stacked by layer: each band at the peak, in MiB, and what was drawn.
LAYERS_PROBE = """
<script>
window.addEventListener('load', () => {
  const results = document.documentElement.dataset;
  const stack = document.getElementById('stack');
  window.requestAnimationFrame = (draw) => draw();
  stack.value = 'layer';
  stack.dispatchEvent(new Event('change'));
  const [bands] = document.querySelectorAll('#inspector table');
  results.bands = [...bands.rows].map((row) => row.cells[0].textContent).join();
  const data = new RoleData(JSON.parse(document.querySelector('script.trace').textContent));
  data.stackBy('layer');
  results.atPeak = data.byBand.map((column) => column[data.peak] / 2 ** 20).join();
  results.atEnd = data.byBand.map((column) => column[data.events - 1] / 2 ** 20).join();
});
</script>
"""

# The page of a sweep: each step writes down what it comes to.
SWEEP_PROBE = """
<script>
window.addEventListener('load', () => {
  const results = document.documentElement.dataset;
  const find = (id) => document.getElementById(id);
  const change = (element, value) => {
    if (element.type === 'checkbox') element.checked = value; else element.value = value;
    element.dispatchEvent(new Event('change'));
  };
  const column = (i) => [...find('rows').tBodies[0].rows].map((row) => row.cells[i].textContent);
  const header = (name) => document.querySelector(`#rows th[data-column="${name}"] button`);
  results.atFirst = [results.passing, results.shown, results.front].join();
    const strategy = document.querySelector('select[data-key="strategy"]');
  change(strategy, [...strategy.options].find((option) => option.text === 'megatron').value);
  results.filtered = [results.passing, results.points, [...new Set(column(0))].join('+')].join();
  change(find('only-fitting'), true);
  results.fitting = [results.passing, [...new Set(column(8))].join('+')].join();
  find('reset').click();
  header('accumulation_steps').click();
  results.up = column(2)[0];
  header('accumulation_steps').click();
  results.down = column(2)[0];
  results.sorted = document.querySelector('#rows th[data-column="accumulation_steps"]').getAttribute('aria-sort');
  header('tokens_per_s_per_gpu').click();
  results.fastest = column(0)[0];
  change(find('y-metric'), 'tokens_per_s_per_gpu');
  results.otherFront = results.front;
  change(find('log'), true);
  results.logPoints = results.points;
  const row = find('rows').tBodies[0].rows[0];
  results.tab = row.tabIndex;
  row.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'}));
  results.held = find('held').textContent;
  results.ring = find('ring').style.display;
  const box = find('scatter').getBoundingClientRect();
  const ring = find('ring');
  find('scatter').dispatchEvent(new MouseEvent('mousemove', {clientX: box.left + parseFloat(ring.style.left),
      clientY: box.top + parseFloat(ring.style.top), bubbles: true}));
  results.tip = find('tip').innerText.replace(/\\s+/g, ' ');
  results.requests = performance.getEntriesByType('resource').map((entry) => entry.name)
      .filter((name) => !name.startsWith('data:')).join(' ');
});
</script>
"""


class HtmlReport(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)

    @classmethod
    def write(cls, name, *arguments):
        page = pathlib.Path(cls.folder.name) / name
        subprocess.run([os.environ["TIDEMARK_SAMPLE_PAGE"], page, *arguments], check=True, capture_output=True)
        return page

    @classmethod
    @functools.cache
    def small(cls):
        """A page of 4 microbatches and 12 layers, which several tests look at."""
        return cls.write("small.html", "4", "12")

    @classmethod
    @functools.cache
    def probed(cls):
        return attributes(cls.small(), PROBE)

    @classmethod
    @functools.cache
    def painted(cls):
        return colours(cls.small())

    def test_draws_its_pictures(self):
        found = self.probed()
        self.assertEqual(found.get("ready"), "true")
        # Allocations and frees: 2 resident tensors a layer; in each of 4 microbatches 2 for tokens, 2 for logits and 8 a layer;
        # a gradient a layer; a scatter buffer a layer in the last microbatch.
        self.assertEqual(int(found["events-at-first"]), 2 * 12 + 4 * (2 + 2 + 8 * 12) + 2 * 12 + 2 * 12)
        self.assertGreater(int(found["points"]), 100)
        self.assertGreater(int(found["slices-at-first"]), 50)

    def test_names_the_buffers_under_the_mouse(self):
        found = self.probed()
        self.assertIn("Under the cursor", found["inspector"])
        self.assertIn("layer.moments", found["inspector"])

    def test_shows_the_role_that_is_chosen(self):
        found = self.probed()
        self.assertEqual(int(found["events-of-last-role"]), 2 * 6 + 4 * (2 + 2 + 8 * 6) + 2 * 6 + 2 * 6)   # half the layers

    def test_shows_memory_event_by_event(self):
        found = self.probed()
        last_role = int(found["events-of-last-role"])
        match = re.match(rf"event ([\d,]+) of {last_role:,}, ", found["by-event"])
        self.assertIsNotNone(match, found["by-event"])
        self.assertLessEqual(int(match.group(1).replace(",", "")), last_role)
        self.assertEqual(found["slices-by-event"], "0")   # between two events any time may pass

    def test_stacks_memory_by_layer(self):
        found = attributes(self.small(), LAYERS_PROBE)
        self.assertEqual(found["bands"].split(",")[:13], [f"layer {i}" for i in range(11, -1, -1)] + ["outside the layers"])
        # Most is alive in the second microbatch, when its backward pass begins: of each layer parameters, moments, gradients and
        # what the forward pass saved, of the last one what the backward pass needs as well; beside them logits and tokens.
        layer = 300 + 600 + 300 + 420 + 560
        self.assertEqual(found["at-peak"], ",".join(map(str, [4000 + 2] + 11 * [layer] + [layer + 640])))
        self.assertEqual(found["at-end"], ",".join(map(str, [0] + 12 * [300 + 600])))

    def test_many_layers_share_bands(self):
        found = attributes(self.write("many-layers.html", "1", "36"), LAYERS_PROBE)
        names = [f"layer {first} to {first + 2}" for first in range(33, -1, -3)]   # 16 bands at most
        self.assertEqual(found["bands"].split(",")[:13], names + ["outside the layers"])
        self.assertEqual(found["at-end"], ",".join(map(str, [0] + 12 * [3 * (300 + 600)])))

    def test_is_dark_where_the_system_is(self):
        light, dark = self.painted(), colours(self.small(), dark=True)
        self.assertGreater(light.get("ffffff", 0), 10 * light.get("1b2128", 0) + 1000)   # the panels' ground
        self.assertGreater(dark.get("1b2128", 0), 10 * dark.get("ffffff", 0) + 1000)
        self.assertGreater(dark.get("ddcc77", 0), 1000)   # activations have their colour in both

    def test_draws_200000_events_without_stutter(self):
        found = attributes(self.write("large.html", "256", "96"), PROBE)
        self.assertEqual(found.get("ready"), "true")
        # Two to four rows a pixel, whatever the number of events; a tenth of a second is where people notice. The bound is
        # loose because test machines are busy and draw without a GPU.
        self.assertLess(int(found["points"]), 4 * 1400)
        self.assertLess(float(found["median-draw-ms"]), 400)

    def test_opens_a_million_events(self):
        found = attributes(self.write("million.html", "1024", "128"), PROBE)
        # 2 resident tensors a layer; in each microbatch 2 for tokens, 2 for logits, 8 a layer; gradients, scatter buffers.
        self.assertEqual(int(found["events-at-first"]), 2 * 128 + 1024 * (2 + 2 + 8 * 128) + 2 * 128 + 2 * 128)
        self.assertLess(int(found["points"]), 4 * 1400)

    def test_asks_the_network_for_nothing(self):
        page = self.write("offline.html", "1", "2")
        self.assertEqual(attributes(page, PROBE)["requests"], "")
        self.assertNotRegex(page.read_text(), r"""(?i)(?:\bsrc|(?<!<a )\bhref)\s*=\s*["']?(?:https?:)?//|@import|url\(\s*["']?https?:""")

    def test_runs_nobody_elses_script(self):
        found = attributes(self.write("hostile.html", "2", "3", "hostile"), PROBE)
        self.assertEqual(found.get("ready"), "true")
        self.assertNotIn("attacked", found)
        self.assertEqual(found["requests"], "")

    def test_lays_traces_side_by_side_on_one_scale(self):
        found = attributes(self.write("three.html", "4", "12", "report"), COMPARISON_PROBE)
        self.assertEqual(found.get("ready"), "true")
        self.assertEqual((found["traces"], found["columns"], found["pointed"], found["cursors"]), ("3", "3", "3", "3"))
        self.assertEqual((found["scales"], found["error"]), ("1", "none"))   # of several predictions none is in error
        self.assertEqual(found["requests"], "")
        self.assertNotIn("attacked", found)

    def test_draws_predicted_and_measured_over_each_other(self):
        page = self.write("both.html", "4", "12", "compare")
        found = attributes(page, COMPARISON_PROBE)
        self.assertEqual((found.get("ready"), found["traces"], found["scales"]), ("true", "2", "1"))
        self.assertEqual(found["error"], "error, at most 1.00 GiB too low")   # the second's transient is larger by that
        self.assertEqual(found["requests"], "")
        self.assertNotIn("attacked", found)
        drawn = colours(page)
        for colour in ("222222", "e66100"):   # the lines of the first and of the second trace
            self.assertGreater(drawn.get(colour, 0), 300, f"hardly any pixel is #{colour}")

    def test_filters_sorts_and_draws_a_sweep(self):
        """320 rows: 4 strategies in turn, 4 micro batches, 20 accumulation steps. Peaks are 80, 60, 40 and 20 GiB by strategy and
        10 GiB more for each doubling of the micro batch; what is up to 4 GiB less than the device's 80 fits."""
        found = attributes(self.write("sweep.html", "sweep", "320"), SWEEP_PROBE)
        self.assertEqual(found.get("ready"), "true")
        # Of the 16 kinds of rows those of one peak differ in nothing but time; one step of each kind is on the front.
        kinds = {(80 - 20 * s + 10 * p, 1 + s - p / 10) for s in range(4) for p in range(4)}
        front = [kind for kind in kinds if not any(other != kind and other[0] <= kind[0] and other[1] <= kind[1] for other in kinds)]
        self.assertEqual(found["at-first"], f"320,200,{len(front)}")
        self.assertEqual(found["filtered"], "80,80,megatron")
        self.assertEqual(found["fitting"], "80,yes")  # megatron takes at most 20 + 30 + 4 GiB
        self.assertEqual((found["up"], found["down"], found["sorted"]), ("1", "20", "descending"))
        self.assertEqual(found["fastest"], "ddp-last")  # more tokens are better: the first click has them on top
        self.assertEqual(found["other-front"], found["at-first"].rsplit(",", 1)[1])  # the same order as by step
        self.assertEqual(found["log-points"], "320")
        self.assertEqual((found["tab"], found["ring"]), ("0", "block"))
        self.assertEqual(found["held"], "--set strategy=ddp-last --set micro_batch_size=8 --set accumulation_steps=1")
        self.assertIn("strategy: ddp-last", found["tip"])
        self.assertEqual(found["requests"], "")

    def test_a_sweep_of_100000_rows_is_drawn_and_filtered(self):
        found = attributes(self.write("large-sweep.html", "sweep", "100000"), SWEEP_PROBE)
        self.assertEqual((found.get("ready"), found["at-first"].split(",")[:2]), ("true", ["100000", "200"]))
        self.assertEqual(found["filtered"], "25000,25000,megatron")

    def test_a_sweep_runs_nobody_elses_script(self):
        found = attributes(self.write("hostile-sweep.html", "sweep", "32", "hostile"), "")
        self.assertEqual(found.get("ready"), "true")
        self.assertNotIn("attacked", found)

    def test_paints_a_sweep_in_its_colours(self):
        drawn = colours(self.write("sweep-picture.html", "sweep", "320"))
        for colour, least in (("2f80c2", 60), ("98a2ad", 20), ("d9480f", 300), ("e5484d", 20)):  # fits, does not, front, device
            self.assertGreater(drawn.get(colour, 0), least, f"hardly any pixel is #{colour}")

    def test_paints_the_stack_in_its_colours(self):
        drawn = self.painted()
        for colour in ("4477aa", "88ccee", "ddcc77", "117733"):   # parameter, optimizer, activation, gradient
            self.assertGreater(drawn.get(colour, 0), 2000, f"hardly any pixel is #{colour}")


if __name__ == "__main__":
    if CHROMIUM is None:
        print("skipped: no chromium here; install it to see whether the HTML report draws")
        sys.exit(SKIPPED)
    unittest.main()

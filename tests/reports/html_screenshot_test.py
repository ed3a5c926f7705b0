#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Opens HTML reports in a headless Chromium: they must draw, stay quick, ask the network for nothing and run nobody else's scripts.

Takes the sample writer from $TIDEMARK_SAMPLE_PAGE. Exits with 77 (skipped) where there is no Chromium.
"""

import os
import pathlib
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
  results.eventsAtFirst = results.events;
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

    def write(self, name, *arguments):
        page = pathlib.Path(self.folder.name) / name
        subprocess.run([os.environ["TIDEMARK_SAMPLE_PAGE"], page, *arguments], check=True, capture_output=True)
        return page

    def test_draws_its_pictures(self):
        found = attributes(self.write("small.html", "4", "12"), PROBE)
        self.assertEqual(found.get("ready"), "true")
        # Allocations and frees: 2 resident tensors a layer; in each of 4 microbatches 2 for tokens, 2 for logits and 8 a layer;
        # a gradient a layer; a scatter buffer a layer in the last microbatch.
        self.assertEqual(int(found["events-at-first"]), 2 * 12 + 4 * (2 + 2 + 8 * 12) + 2 * 12 + 2 * 12)
        self.assertGreater(int(found["points"]), 100)
        self.assertGreater(int(found["slices"]), 50)

    def test_names_the_buffers_under_the_mouse(self):
        found = attributes(self.write("hover.html", "4", "12"), PROBE)
        self.assertIn("Under the cursor", found["inspector"])
        self.assertIn("layer.moments", found["inspector"])

    def test_shows_the_role_that_is_chosen(self):
        found = attributes(self.write("roles.html", "4", "12"), PROBE)
        self.assertEqual(int(found["events-of-last-role"]), 2 * 6 + 4 * (2 + 2 + 8 * 6) + 2 * 6 + 2 * 6)   # half the layers

    def test_draws_200000_events_without_stutter(self):
        found = attributes(self.write("large.html", "256", "96"), PROBE)
        self.assertEqual(found.get("ready"), "true")
        # Two to four rows a pixel, whatever the number of events; a tenth of a second is where people notice. The bound is
        # loose because test machines are busy and draw without a GPU.
        self.assertLess(int(found["points"]), 4 * 1400)
        self.assertLess(float(found["median-draw-ms"]), 400)

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
        self.assertEqual(found["scales"], "1")
        self.assertEqual(found["requests"], "")
        self.assertNotIn("attacked", found)

    def test_draws_predicted_and_measured_over_each_other(self):
        page = self.write("both.html", "4", "12", "compare")
        found = attributes(page, COMPARISON_PROBE)
        self.assertEqual((found.get("ready"), found["traces"], found["scales"]), ("true", "2", "1"))
        self.assertEqual(found["requests"], "")
        self.assertNotIn("attacked", found)
        drawn = colours(page)
        for colour in ("222222", "e66100"):   # the lines of the first and of the second trace
            self.assertGreater(drawn.get(colour, 0), 300, f"hardly any pixel is #{colour}")

    def test_paints_the_stack_in_its_colours(self):
        page = self.write("picture.html", "4", "12")
        drawn = colours(page)
        for colour in ("4477aa", "88ccee", "ddcc77", "117733"):   # parameter, optimizer, activation, gradient
            self.assertGreater(drawn.get(colour, 0), 2000, f"hardly any pixel is #{colour}")


if __name__ == "__main__":
    if CHROMIUM is None:
        print("skipped: no chromium here; install it to see whether the HTML report draws")
        sys.exit(SKIPPED)
    unittest.main()

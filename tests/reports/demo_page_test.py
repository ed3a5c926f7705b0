#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of the demo in a headless Chromium: two strategies of one small job, each predicted and executed here."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from browser import CHROMIUM, SKIPPED, attributes, colours

PROGRAM = os.environ["TIDEMARK_PROGRAM"]
JOB = pathlib.Path(__file__).resolve().parents[1] / "jobs" / "demo-small.yaml"
STRATEGIES = ("nanotron", "fsdp2-scatter-each")
LINES = ("222222", "e66100", "7b3fa0", "0a8f8f")  # of the first to the fourth trace

PROBE = """
<script>
window.addEventListener('load', () => {
  const results = document.documentElement.dataset;
  results.peaks = [...document.querySelectorAll('.memory')].length;
  results.words = document.body.innerText.replace(/[\\s"]+/g, ' ');
});
</script>
"""

# The bands of phases as they are drawn: name, microbatch, depth, and whether there is anything to see of them.
BANDS_PROBE = """
<script>
window.addEventListener('load', () => {
  const json = document.querySelector('script[type="application/json"]').textContent;
  const data = new RoleData(JSON.parse(json));
  const bands = data.spans.map((span) => [span.phase, span.microbatch, span.depth, span.to > span.from].join('/'));
  document.documentElement.dataset.bands = bands.join(' ');
});
</script>
"""

# What the legend says of the error, by the prediction's clock and by each one's own.
ERROR_PROBE = """
<script>
window.addEventListener('load', () => {
  const results = document.documentElement.dataset;
  const clock = document.getElementById('clock');
  results.aligned = document.getElementById('error-key').textContent;
  clock.value = 'device';
  clock.dispatchEvent(new Event('change'));
  results.drawn = results.ready;
  results.unaligned = document.getElementById('error-key').textContent;
  results.words = document.body.innerText.replace(/[\\s"]+/g, ' ');
});
</script>
"""


def call(*words):
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=240, check=True).stdout


class DemoPage(unittest.TestCase):
    def test_lays_prediction_and_measurement_of_two_strategies_over_each_other(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            traces, peaks = [], []
            for strategy in STRATEGIES:
                predicted, measured = folder / f"{strategy}-predicted.trace", folder / f"{strategy}-measured.trace"
                change = ("--set", f"strategy={strategy}")
                told = json.loads(call("predict", JOB, *change, "--step", "first", "--trace", predicted, "--format", "json"))
                run = json.loads(call("run", JOB, *change, "--trace", measured, "--format", "json"))
                self.assertEqual(told["peak"]["allocated_bytes"], run["peak"]["allocated_bytes"], strategy)
                traces += [predicted, measured]
                peaks.append(told["peak"]["allocated_bytes"])
            page = folder / "report.html"
            call("report", *traces, "-o", page)
            found = attributes(page, PROBE)
            self.assertEqual((found.get("ready"), found["traces"]), ("true", "4"))
            for peak in peaks:
                text = f"{peak / 2**20:.1f} MiB"
                self.assertGreaterEqual(found["words"].count(text), 2, f"{text} should be told of both traces")
            drawn = colours(page)
            for colour in LINES:
                self.assertGreater(drawn.get(colour, 0), 100, f"hardly any pixel is #{colour}")

    def test_lays_a_run_over_its_prediction_phase_by_phase(self):
        with tempfile.TemporaryDirectory() as name:
            page = pathlib.Path(name) / "compare.html"
            call("compare", JOB, "--device", "cpu", "--html", page)
            found = attributes(page, ERROR_PROBE)
            # Every event was predicted, so that no moment has an error, however long the phases took here.
            self.assertEqual(found["drawn"], "true")
            self.assertEqual(found["aligned"], "no error at any moment")
            self.assertRegex(found["unaligned"], "error, at most .* too (high|low)")   # the machine is not the preset's
            self.assertIn("What the prediction assumes", found["words"])

    def test_a_host_that_costs_nothing_hides_no_phase(self):
        for strategy in STRATEGIES:
            with self.subTest(strategy=strategy), tempfile.TemporaryDirectory() as name:
                page = pathlib.Path(name) / "predicted.html"
                bands = []
                for cost in ("1 us", "0 ns"):
                    call("predict", JOB, "--set", f"strategy={strategy}", "--set", f"machine.host_issue={cost}", "--html", page)
                    bands.append(attributes(page, BANDS_PROBE)["bands"].split())
                self.assertEqual(bands[0], bands[1])
                for band in ("forward/0/0/true", "backward/0/0/true", "forward/1/0/true", "optimizer/-1/0/true"):
                    self.assertIn(band, bands[0])


if __name__ == "__main__":
    if CHROMIUM is None:
        print("skipped: no chromium here; install it to see whether the demo's page draws")
        sys.exit(SKIPPED)
    unittest.main()

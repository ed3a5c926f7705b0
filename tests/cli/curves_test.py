# SPDX-License-Identifier: Apache-2.0
"""The curves in docs/run.md: what is committed is what a run gives, and it shows what the page says."""

import importlib.util
import json
import math
import os
import pathlib
import unittest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "docs" / "curves"
STEPS = 12
# Of two runs on processors that round sums otherwise, in nats; the curves fall by more than one within these steps.
BOUND = 0.02


def script():
    spec = importlib.util.spec_from_file_location("curves", FOLDER / "curves.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Curves(unittest.TestCase):
    def setUp(self):
        self.curves = json.loads((FOLDER / "curves.json").read_text(encoding="utf-8"))

    def test_three_ways_agree_and_the_unsafe_pool_departs(self):
        fresh, unsafe = self.curves["fresh"], self.curves["pooled-unsafe"]
        self.assertEqual(len(fresh), 100)
        self.assertAlmostEqual(fresh[0], math.log(256), delta=0.1)  # it knows nothing yet
        self.assertLess(fresh[-1], fresh[0] - 3)
        self.assertEqual(self.curves["pooled"], fresh)
        self.assertEqual(self.curves["cached"], fresh)
        self.assertTrue(all(wrong > right for wrong, right in zip(unsafe, fresh)))
        self.assertGreater(unsafe[-1], fresh[-1] + 0.5)

    def test_the_first_steps_are_those_of_a_run(self):
        for way in ("pooled", "pooled-unsafe"):
            found = script().losses(way, STEPS, os.environ["TIDEMARK_PROGRAM"])
            self.assertGreater(found[0] - found[-1], 1)
            for step, (loss, committed) in enumerate(zip(found, self.curves[way])):
                self.assertLess(abs(loss - committed), BOUND, (way, step))


if __name__ == "__main__":
    unittest.main()

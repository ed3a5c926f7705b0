#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where tidemark baseline writes: the file that a link leads to."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

PROGRAM = os.environ["TIDEMARK_PROGRAM"]
JOB = pathlib.Path(__file__).resolve().parents[1] / "jobs" / "demo-small.yaml"


class Links(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.scenarios = self.folder / "scenarios.yaml"
        self.scenarios.write_text(f"scenarios: [{{name: small, job: {JOB}}}]")
        (self.folder / "real").mkdir()

    def update(self, baseline):
        return subprocess.run([PROGRAM, "baseline", "update", self.scenarios, "--baseline", baseline, "--reason", "links"],
                              capture_output=True, text=True, timeout=120)

    def test_a_link_stays_one_and_its_file_is_written(self):
        for exists in (True, False):
            with self.subTest(exists=exists):
                real, link = self.folder / "real" / f"{exists}.json", self.folder / f"{exists}.json"
                if exists:
                    self.assertEqual(self.update(real).returncode, 0)
                link.symlink_to(pathlib.Path("real") / real.name)
                done = self.update(link)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(link.is_symlink())
                self.assertEqual(list(json.loads(real.read_text())["scenarios"]), ["small"])

    def test_links_in_a_circle_are_refused_by_name(self):
        one, two = self.folder / "one.json", self.folder / "two.json"
        one.symlink_to(two)
        two.symlink_to(one)
        done = self.update(one)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("one.json", done.stderr)
        self.assertIn("symbolic links", done.stderr)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["one.json", "real", "scenarios.yaml", "two.json"])


if __name__ == "__main__":
    unittest.main()

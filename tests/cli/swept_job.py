# SPDX-License-Identifier: Apache-2.0
"""What tests of tidemark sweep have in common: the program, called on one job, and what every report must say."""

import json
import pathlib
import tempfile
import unittest

from tidemark import run

JOBS = pathlib.Path(__file__).resolve().parents[1] / "jobs"
JOB = JOBS / "llama-3-8b-fsdp2.yaml"


def vary(**keys):
    return [word for key, values in keys.items() for word in ("--vary", f"{key.replace('__', '.')}={values}")]


def sweep(*arguments):
    done = run("sweep", JOB, *arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class SweptJob(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def assert_adds_up(self, report):
        self.assertEqual(report["size"], report["evaluated"] + report["pruned"] + report["refused"])
        self.assertEqual(report["refused"], sum(refusal["count"] for refusal in report["refusals"]))

# SPDX-License-Identifier: Apache-2.0
"""What tests of tidemark run have in common: a job in a folder of its own, the program called on it, and the two questions
that every executed job is asked."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

PROGRAM = os.environ["TIDEMARK_PROGRAM"]

UNLIKE_RANKS = ("strategy=megatron-dist-opt", "strategy=colossalai-gemini")

TINY = """
network: {name: tiny, layers: 2, hidden: 64, ffn: 96, heads: 4, kv_heads: 2, vocabulary: 256}
machine: cpu
sequence_length: 32
micro_batch_size: 2
accumulation_steps: 2
layout: {dp: 2}
strategy: ddp-last
"""


def call(*words, changes=(), launcher=(), env=None):
    """The program with these words, and with `changes` ("layout.dp=4") of the job."""
    sets = [word for change in changes for word in ("--set", change)]
    return subprocess.run([*launcher, PROGRAM, *map(str, words), *sets], capture_output=True, text=True, timeout=240,
                          check=False, env=env)


class ExecutedJob(unittest.TestCase):
    JOB = TINY

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.job = self.folder / "job.yaml"
        self.job.write_text(self.JOB, encoding="utf-8")

    def json_of(self, *words, changes=(), codes=(0,)):
        done = call(*words, "--format", "json", changes=changes)
        self.assertIn(done.returncode, codes, f"{changes}: {done.stderr}{done.stdout}")
        return json.loads(done.stdout)

    def losses(self, *changes, steps=3):
        return [step["loss"] for step in self.json_of("run", self.job, "--steps", steps, changes=changes)["steps"]]

    def assert_memory(self, *changes, steps=2):
        """Memory is what was predicted, to the byte: of every rank of every role, in every phase, and what the allocator
        reserves."""
        comparison = self.json_of("compare", self.job, "--device", "cpu", "--steps", steps, changes=changes)
        self.assert_as_predicted(changes, comparison)
        return comparison

    def assert_as_predicted(self, changes, comparison):
        self.assertEqual((comparison["peak_error_bytes"], comparison["reserved_error_percent"], comparison["unmatched"]),
                         (0, 0, []), changes)
        for phase in comparison["phases"]:
            self.assertEqual(phase["predicted_peak_bytes"], phase["measured_peak_bytes"], (changes, phase["phase"]))

    def assert_numbers(self, *changes):
        """Gradients are those of one big batch, in fp64 and in the job's own precision."""
        self.assert_right(changes, self.json_of("run", self.job, "--verify", changes=changes))

    def assert_right(self, changes, run):
        self.assertLess(run["numerics"]["exact"]["max_relative_error"], 1e-10, changes)
        self.assertTrue(run["numerics"]["equal"], changes)

    def assert_executed(self, *changes, steps=2):
        """Both, of one run; where ranks hold unlike parts, of two: predict tells those of one of them."""
        if any(change in UNLIKE_RANKS for change in changes):
            self.assert_numbers(*changes)
            self.assert_memory(*changes, steps=steps)
            return
        predicted, measured = self.folder / "predicted.trace", self.folder / "measured.trace"
        self.assert_right(changes, self.json_of("run", self.job, "--verify", "--steps", steps, "--trace", measured, changes=changes))
        self.json_of("predict", self.job, "--steps", steps, "--trace", predicted, changes=changes)
        self.assert_as_predicted(changes, self.json_of("compare", predicted, measured))

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What torchtitan saves of a config, against what torchtitan itself allocated (torchtitan_rehearsed.json).

Not predicted are rotary tables: each layer has its own, 8 bytes for every second number of a head at every position,
and keeps the rows that a microbatch's positions choose. Where it is done again, one layer at most has these rows.
"""

import json
import pathlib
import tempfile
import unittest

from tidemark import run

TESTS = pathlib.Path(__file__).resolve().parents[1]
RECORD = json.loads((TESTS / "cli" / "torchtitan_rehearsed.json").read_text(encoding="utf-8"))
SAMPLE = (TESTS / "jobs" / RECORD["sample"]).read_text(encoding="utf-8")
LAYERS, HEAD_SIZE = 32, 128
SMALL = 64 << 10  # scalars, gradients of norms, random states


def config(case):
    saved = json.loads(SAMPLE)
    for path, value in case["set"].items():
        section, field = path.split(".")
        saved[section][field] = value
    if case["loss"] == "dense":
        saved["loss"] = saved["loss"]["loss_fn"]
    if case["recompute"] == "none":
        saved["activation_checkpoint"] = None
    if case["recompute"] == "full":
        del saved["activation_checkpoint"]["force_recompute_mm_shapes_by_fqns"]
    return saved


def tokens_of(case):
    return case["set"]["training.num_tokens_per_microbatch_per_dp_rank"]


def rotary_tables(case):
    """At least, and at most."""
    row = HEAD_SIZE // 2 * 8
    tables, rows = LAYERS * case["set"]["training.max_context_length"] * row, tokens_of(case) * row
    return (tables + LAYERS * rows,) * 2 if case["recompute"] == "none" else (tables, tables + rows)


class Torchtitan(unittest.TestCase):
    def test_peaks_are_those_of_torchtitan_but_for_rotary_tables(self):
        for case in RECORD["cases"]:
            with self.subTest(case["name"]), tempfile.TemporaryDirectory() as folder:
                job = pathlib.Path(folder) / "saved.json"
                job.write_text(json.dumps(config(case)), encoding="utf-8")
                done = run("predict", job, "--format", "json", "--exit-zero")
                self.assertEqual(done.returncode, 0, done.stderr)
                predicted = json.loads(done.stdout)["peak"]["allocated_bytes"]
                missing = case["peak"] - predicted
                least, most = rotary_tables(case)
                self.assertGreaterEqual(missing, least - SMALL)  # a norm is scattered with the head, not by itself
                self.assertLess(missing, most + SMALL + 2 * tokens_of(case) * 8)

    def test_a_file_that_is_none_says_how_to_save_one(self):
        job = TESTS / "jobs" / "torchtitan-llama3-8b.toml"
        done = run("predict", job, "--job-format", "torchtitan-saved")
        self.assertEqual(done.returncode, 2)
        self.assertIn("model_spec: expected torchtitan's network, found none", done.stderr)
        self.assertIn("save the config with --debug.save_config_file", done.stderr)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What torchtitan saves of a config, against what torchtitan itself allocated (torchtitan_rehearsed.json).

Not predicted are rotary tables: each layer has its own, 8 bytes for every second number of a head at every position, and
keeps the rows that a microbatch's positions choose unless it is done again.
"""

import json
import pathlib
import tempfile
import unittest

from tidemark import run

TESTS = pathlib.Path(__file__).resolve().parents[1]
RECORD = json.loads((TESTS / "cli" / "torchtitan_rehearsed.json").read_text(encoding="utf-8"))
SAMPLE = (TESTS / "jobs" / RECORD["sample"]).read_text(encoding="utf-8")
TOKENS, LENGTH, RANKS, LAYERS, HEAD_SIZE = 4096, 2048, 8, 32, 128
SMALL = 64 << 10  # scalars, norms' statistics of the optimizer, random states


def config(edits):
    saved = json.loads(SAMPLE)
    training, parallelism = saved["training"], saved["parallelism"]
    shards = RANKS // 2 if "tp2" in edits else RANKS
    parallelism["data_parallel_shard_degree"] = shards
    parallelism["tensor_parallel_degree"] = RANKS // shards
    training["num_tokens_per_microbatch_per_dp_rank"] = TOKENS
    training["max_context_length"] = LENGTH
    training["num_tokens_per_train_step"] = TOKENS * shards * (1 if "one" in edits else 2)
    training["disable_cuda_graphs"] = "graphs" not in edits
    for policy in {"never", "always"} & set(edits):
        parallelism["fsdp_reshard_after_forward"] = policy
    if "dense" in edits:
        saved["loss"] = saved["loss"]["loss_fn"]
    if "keep" in edits:
        saved["activation_checkpoint"] = None
    if "full" in edits:
        del saved["activation_checkpoint"]["force_recompute_mm_shapes_by_fqns"]
    return saved


def rotary_tables(edits):
    row = HEAD_SIZE // 2 * 8
    return LAYERS * row * (LENGTH + (TOKENS if "keep" in edits else 0))


class Torchtitan(unittest.TestCase):
    def test_peaks_are_those_of_torchtitan_but_for_rotary_tables(self):
        for case in RECORD["cases"]:
            with self.subTest(case["name"]), tempfile.TemporaryDirectory() as folder:
                job = pathlib.Path(folder) / "saved.json"
                job.write_text(json.dumps(config(case["edits"])), encoding="utf-8")
                done = run("predict", job, "--format", "json")
                self.assertEqual(done.returncode, 0, done.stderr)
                predicted = json.loads(done.stdout)["peak"]["allocated_bytes"]
                missing = case["peak"] - predicted - rotary_tables(case["edits"])
                self.assertGreaterEqual(missing, 0)
                self.assertLess(missing, SMALL + 2 * TOKENS * 8)

    def test_a_file_that_is_none_says_how_to_save_one(self):
        job = TESTS / "jobs" / "torchtitan-llama3-8b.toml"
        done = run("predict", job, "--job-format", "torchtitan-saved")
        self.assertEqual(done.returncode, 2)
        self.assertIn("save the config with --debug.save_config_file", done.stderr)


if __name__ == "__main__":
    unittest.main()

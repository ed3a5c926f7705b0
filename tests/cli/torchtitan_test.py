#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What torchtitan saves of a config, against what torchtitan itself allocated (torchtitan_rehearsed.json).

Not predicted are rotary tables: each layer has its own, and keeps the rows that a microbatch's positions choose. A row
is a complex number of 8 bytes for every second number of a head (llama3), or two of 4 bytes for every one (qwen3). Where
layers are done again, one at most has these rows. Nor is what a router's weights are divided by, and that its
choice is kept where operations are kept one by one.
"""

import json
import pathlib
import tempfile
import unittest

from tidemark import run

TESTS = pathlib.Path(__file__).resolve().parents[1]
RECORD = json.loads((TESTS / "cli" / "torchtitan_rehearsed.json").read_text(encoding="utf-8"))
LLAMA, QWEN = "llama3.llama3_8b", "qwen3.qwen3_30b_a3b"
LAYERS = {LLAMA: 32, QWEN: 48}
ROW = {LLAMA: 64 * 8, QWEN: 128 * 2 * 4}  # of rotary tables
SUM = {LLAMA: 0, QWEN: 4}  # of a token: what the weights of its experts are divided by
CHOICE = {LLAMA: 0, QWEN: 8 * (4 + 8)}  # of a token: weights and numbers of its experts
BEHIND_A_LAYER = ("experts, nothing done again",)  # peaks behind a layer's backward pass; others with all layers
SMALL = 64 << 10  # scalars, gradients of norms, random states


def config(case):
    saved = json.loads((TESTS / "jobs" / RECORD["samples"][case["config"]]).read_text(encoding="utf-8"))
    for path, value in case["set"].items():
        section, field = path.split(".")
        saved[section][field] = value
    if case["loss"] == "dense":
        saved["loss"] = saved["loss"]["loss_fn"]
    if case["recompute"] == "none":
        saved["activation_checkpoint"] = None
    forced = {"selective": {"force_recompute_mm_shapes_by_fqns": ["moe.router.gate"]}}
    if case["recompute"] != "none":
        policy = saved["activation_checkpoint"]
        policy.pop("force_recompute_mm_shapes_by_fqns", None)
        policy.update(forced.get(case["recompute"], {}))
    return saved


def tokens_of(case):
    return case["set"]["training.num_tokens_per_microbatch_per_dp_rank"]


def not_predicted(case):
    """At least, and at most."""
    network, tokens = case["config"], tokens_of(case)
    tables = LAYERS[network] * case["set"]["training.max_context_length"] * ROW[network]
    rows = tokens * (ROW[network] + SUM[network])
    if case["recompute"] == "none":
        kept = tables + (LAYERS[network] - (case["name"] in BEHIND_A_LAYER)) * rows
        return kept, kept
    chosen = LAYERS[network] * tokens * CHOICE[network] if case["recompute"] == "selective" else 0
    return tables + chosen * (LAYERS[network] - 1) // LAYERS[network], tables + chosen + rows


class Torchtitan(unittest.TestCase):
    def test_peaks_are_those_of_torchtitan_but_for_what_is_not_predicted(self):
        for case in RECORD["cases"]:
            with self.subTest(case["name"]), tempfile.TemporaryDirectory() as folder:
                job = pathlib.Path(folder) / "saved.json"
                job.write_text(json.dumps(config(case)), encoding="utf-8")
                done = run("predict", job, "--format", "json", "--exit-zero")
                self.assertEqual(done.returncode, 0, done.stderr)
                predicted = json.loads(done.stdout)["peak"]["allocated_bytes"]
                missing = case["peak"] - predicted
                least, most = not_predicted(case)
                self.assertGreaterEqual(missing, least - SMALL)  # a norm is scattered with the head, not by itself
                self.assertLess(missing, most + SMALL + 2 * tokens_of(case) * 8)

    def test_experts_on_several_ranks_are_those_of_one_replica(self):
        saved = json.loads((TESTS / "jobs" / RECORD["samples"][QWEN]).read_text(encoding="utf-8"))
        saved["parallelism"].update(expert_parallel_degree=4, data_parallel_replicate_degree=2)
        with tempfile.TemporaryDirectory() as folder:
            job = pathlib.Path(folder) / "saved.json"
            job.write_text(json.dumps(saved), encoding="utf-8")
            done = run("predict", job, "--set", "layout.dp=16")
            self.assertEqual(done.returncode, 2)
            self.assertIn("shard.replicas: replicas of shards of which each divides the experts", done.stderr)
            self.assertEqual(run("predict", job, "--set", "layout.dp=16", "--set", "layout.ep=1", "--exit-zero").returncode, 0)

    def test_a_file_that_is_none_says_how_to_save_one(self):
        job = TESTS / "jobs" / "torchtitan-llama3-8b.toml"
        done = run("predict", job, "--job-format", "torchtitan-saved")
        self.assertEqual(done.returncode, 2)
        self.assertIn("model_spec: expected torchtitan's network, found none", done.stderr)
        self.assertIn("save the config with --debug.save_config_file", done.stderr)


if __name__ == "__main__":
    unittest.main()

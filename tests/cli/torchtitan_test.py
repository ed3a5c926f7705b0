#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What torchtitan saves of a config, against what torchtitan itself allocated (torchtitan_rehearsed.json).

Not predicted are rotary tables: each layer has its own, and keeps the rows that a microbatch's positions choose. A row
is a complex number of 8 bytes for every second number of a head (llama3, deepseek_v3), or two of 4 bytes for every one
(qwen3). Where layers are done again, one at most has these rows. Nor are what a router's weights are divided by, where
they are, and else that there is one copy of them less; that a router's choice is kept where operations are kept one by
one; and that what keys share of latent attention is a view, which keeps what it is a view of.
"""

import json
import pathlib
import tempfile
import unittest

from tidemark import run

TESTS = pathlib.Path(__file__).resolve().parents[1]
RECORD = json.loads((TESTS / "cli" / "torchtitan_rehearsed.json").read_text(encoding="utf-8"))
LLAMA, QWEN = "llama3.llama3_8b", "qwen3.qwen3_30b_a3b"
LITE, FIVE = "deepseek_v3.deepseek_v3_16b", "deepseek_v3.deepseek_v3_671b"  # of the latter the first layers
SMALLEST = "qwen3.qwen3_0_6b"
LAYERS = {LLAMA: 32, QWEN: 48, LITE: 27, FIVE: 5, SMALLEST: 28}
DENSE = {LLAMA: 32, QWEN: 0, LITE: 1, FIVE: 3, SMALLEST: 28}  # layers without experts
SHARED = {LLAMA: 0, QWEN: 0, LITE: 64 * 2, FIVE: 64 * 2, SMALLEST: 0}  # of a token: the part that all heads' keys have
ROUTED = {LLAMA: 0, QWEN: 4, LITE: -6 * 4, FIVE: 4, SMALLEST: 0}  # of a token: sum of its weights, or a copy of them less
CHOICE = {LLAMA: 0, QWEN: 8 * (4 + 8), LITE: 6 * (4 + 8), FIVE: 8 * (4 + 8), SMALLEST: 0}  # of a token: weights and numbers of its experts
# Whether peaks are where all layers' choices are there: those of V2 Lite are late in the backward pass.
SEEN = {LLAMA: 0, QWEN: 1, LITE: 0, FIVE: 0, SMALLEST: 0}
# Peaks behind a layer's backward pass; others with all layers.
BEHIND_A_LAYER = ("experts, nothing done again", "latent attention, nothing done again",
                  "latent queries, nothing done again")
# Of a token, where a layer with experts is in its backward pass: the gradient of its rows' weights, which torchtitan makes
# behind the peak, less its labels and positions and the sum of its weights, which are there and not predicted.
EARLY = {QWEN: 8 * 4 - 2 * 8 - 4}
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


def of_tied_embedding(case):
    """Under spmd_types its two uses are two parameters to FSDP2 (one shard): a second gathered copy, and the second use's
    part of what a reduction leaves, which lives as long as the first's. The latter also where the head's gradient is
    reduced by itself, behind a loss in chunks: the embedding's reduction leaves one more."""
    if case["config"] != SMALLEST:
        return 0
    table, apart = 151_936 * 1_024, "parallelism.spmd_backend" not in case["set"]
    return apart * table * 2 + (apart or case["loss"] == "chunked") * table * 4 // 8


def not_predicted(case):
    """At least, and at most."""
    least, most = in_layers(case)
    return least + of_tied_embedding(case), most + of_tied_embedding(case)


def in_layers(case):
    network, tokens = case["config"], tokens_of(case)
    layers, sparse = LAYERS[network], LAYERS[network] - DENSE[network]
    of_token = SHARED[network] + ROUTED[network]
    if case["recompute"] == "none":
        kept = tokens * (layers * SHARED[network] + sparse * ROUTED[network] - (case["name"] in BEHIND_A_LAYER) * of_token)
        return kept, kept
    chosen = sparse * tokens * CHOICE[network] if case["recompute"] == "selective" else 0
    # In the backward pass of the last layer but one, which reads its own choices again.
    least = chosen * (layers - 2) // layers * SEEN[network]
    return least, chosen + tokens * (SHARED[network] + max(ROUTED[network], 0))


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
                # A norm is scattered with the head, not by itself.
                self.assertGreaterEqual(missing, least - SMALL - EARLY.get(case["config"], 0) * tokens_of(case))
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

    def test_another_strategy_of_fsdp2_keeps_what_torchtitan_does_for_its_experts(self):
        """Their loss is one of all tokens, and a layer is gathered ahead; other systems have neither."""
        job = TESTS / "jobs" / RECORD["samples"][LITE]
        for strategy, loss, ahead in (("fsdp2-keep-all", "global-tokens", True), ("megatron-dist-opt", "microbatches", False)):
            done = run("job", job, "--set", "layout.dp=16", "--set", f"strategy={strategy}")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"loss_scale: {loss}", done.stdout)
            self.assertEqual("prefetch_forward: 1" in done.stdout, ahead)
        replicas = ("strategy=hsdp", "shard.replicas=2", "layout.ep=1")
        done = run("job", job, "--set", "layout.dp=16", *(word for change in replicas for word in ("--set", change)))
        self.assertIn("loss_scale: global-tokens", done.stdout)

    def test_a_file_that_is_none_says_how_to_save_one(self):
        job = TESTS / "jobs" / "torchtitan-llama3-8b.toml"
        done = run("predict", job, "--job-format", "torchtitan-saved")
        self.assertEqual(done.returncode, 2)
        self.assertIn("model_spec: expected torchtitan's network, found none", done.stderr)
        self.assertIn("save the config with --debug.save_config_file", done.stderr)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GradCache's sample job, given to the real program: what it says about its three passes, and plain accumulation beside
it."""

import json
import os
import pathlib
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
JOB = ROOT / "tests/jobs/gradcache-bert-base.yaml"


class GradCache(unittest.TestCase):
    def run_program(self, *arguments):
        return subprocess.run([os.environ["TIDEMARK_PROGRAM"], *arguments], check=False, capture_output=True, text=True)

    def predict(self, *changes):
        sets = [argument for change in changes for argument in ("--set", change)]
        done = self.run_program("predict", str(JOB), "--format", "json", "--exit-zero", *sets)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def lints(self, *changes):
        return [lint["id"] for lint in self.predict(*changes)["lints"]]

    def test_the_peak_of_each_pass_is_named(self):
        role = self.predict()["roles"][0]
        highest = {phase["phase"]: phase["allocated_bytes"] for phase in role["phases"]}
        self.assertEqual(list(highest), ["load", "A_forward", "B_loss", "C_forward", "C_backward", "optimizer"])
        self.assertEqual(role["allocated_bytes"], highest["C_backward"])
        # C holds a chunk's activations, A nobody's; B only logits and representations.
        self.assertGreater(highest["C_forward"], highest["A_forward"])
        self.assertGreater(highest["A_forward"], highest["B_loss"])

    def test_a_chunk_is_named_by_side_and_number(self):
        # The query tower has its gradients since its own pass, the passage tower since its chunk 0: chunk 1 is the first
        # that has both beside a whole chunk's activations, and later ones rise no higher.
        at = self.predict()["peak"]["at"]
        self.assertEqual((at["phase"], at["side"], at["chunk"], at["microbatch"]), ("C_backward", "passage", 1, None))
        text = self.run_program("predict", str(JOB)).stdout
        self.assertIn("reached in C_backward of passage chunk 1", text)
        self.assertNotIn("of microbatch", text)
        plain = self.predict("strategy=ddp-last")["peak"]["at"]
        self.assertEqual((plain["phase"], plain["side"], plain["chunk"]), ("backward", None, None))

    def test_running_out_of_memory_names_the_chunk(self):
        done = self.run_program("predict", str(JOB), "--format", "json", "--exit-zero", "--capacity", "2600MiB")
        capacity = json.loads(done.stdout)["capacity"]
        self.assertEqual((capacity["phase"][:2], capacity["microbatch"]), ("C_", None))
        self.assertIn(capacity["side"], ("query", "passage"))
        self.assertIsInstance(capacity["chunk"], int)

    def test_plain_accumulation_is_one_setting_away_and_compares_too_few_pairs(self):
        self.assertEqual(self.lints(), [])
        self.assertEqual(self.lints("strategy=ddp-last"), ["contrastive-accumulation"])
        self.assertEqual(self.lints("strategy=ddp-last", "micro_batch_size=64", "accumulation_steps=1"), [])

    def test_the_hint_that_takes_back_chunks_works(self):
        done = self.run_program("predict", str(JOB), "--set", "strategy=ddp-last", "--set", "gradient_flow.chunks=8")
        self.assertEqual(done.returncode, 2)
        self.assertIn("add --set gradient_flow.chunks=0", done.stderr)
        self.predict("strategy=ddp-last", "gradient_flow.chunks=8", "gradient_flow.chunks=0")

    def test_both_published_mistakes_with_the_loss_are_lints(self):
        self.assertEqual(self.lints("gradient_flow.loss_times_ranks=false"), ["wrong-gradient"])
        self.assertEqual(self.lints("network.dual_encoder.gather=false"), ["wrong-gradient", "contrastive-without-gather"])

    def test_a_language_models_loss_and_a_shared_tower_are_settings(self):
        plain = self.predict()
        with_loss = self.predict("network.dual_encoder.lm_loss=true")
        self.assertGreater(with_loss["peak"]["by_category"]["logits"], plain["peak"]["by_category"]["logits"])
        self.assertLess(self.predict("network.dual_encoder.shared=true")["peak"]["by_category"]["parameter"],
                        plain["peak"]["by_category"]["parameter"])


if __name__ == "__main__":
    unittest.main()

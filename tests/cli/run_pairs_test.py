#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The verb run on two encoders: GradCache's three passes with real ranks, against one batch of all pairs on one rank."""

import unittest

from executed_job import ExecutedJob, call

STRATEGIES = ("gradcache", "gradcache-every", "gradcache-forward-outside")

JOB = """
network:
  name: pairs
  dual_encoder:
    representation: 32
    first: {layers: 1, hidden: 64, ffn: 96, heads: 4, kv_heads: 2, vocabulary: 250, causal: false}
    second: {layers: 2, hidden: 48, ffn: 64, heads: 4, kv_heads: 2, vocabulary: 130}
machine: cpu
sequence_length: 8
micro_batch_size: 2
accumulation_steps: 2
layout: {dp: 2}
strategy: gradcache
"""


class RunPairs(ExecutedJob):
    JOB = JOB

    def check(self, *changes):
        self.assert_executed(*changes, steps=3)

    def test_gradients_are_those_of_one_loss_over_all_pairs_and_memory_is_what_was_predicted(self):
        for strategy in STRATEGIES:
            self.check(f"strategy={strategy}")
        self.check("layout.dp=4", "gradient_flow.chunks=4", "network.dual_encoder.targets=3", "optimizer_step.kernel=for-loop")

    def test_one_encoder_for_both_sides_has_the_right_gradients(self):
        lines = [line for line in JOB.splitlines() if "second:" not in line]
        self.job.write_text("\n".join(lines).replace("representation: 32", "representation: 32\n    shared: true"),
                            encoding="utf-8")
        self.check("optimizer_step.clip_norm=1.0")

    def test_without_the_factor_of_ranks_gradients_are_that_many_times_too_small(self):
        """|g/N - g| / |g| = 1 - 1/N, in every tensor."""
        for ranks in (2, 4):
            run = self.json_of("run", self.job, "--verify", changes=("strategy=gradcache-unscaled", f"layout.dp={ranks}"),
                               codes=(1,))
            self.assertAlmostEqual(run["numerics"]["exact"]["max_relative_error"], 1 - 1 / ranks, delta=1e-10)

    def test_several_losses_are_not_compared_with_one(self):
        for changes in (("network.dual_encoder.gather=false", "gradient_flow.loss_times_ranks=false"),
                        ("strategy=ddp-last",)):
            done = call("run", self.job, "--verify", changes=changes)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("one contrastive loss", done.stderr)


if __name__ == "__main__":
    unittest.main()

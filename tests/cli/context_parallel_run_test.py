# SPDX-License-Identifier: Apache-2.0
"""Context parallelism under run and compare JOB --device cpu, from outside: ranks that share each sequence in a ring, whose
memory is what was predicted, to the byte, and whose gradients are those of one big batch on one rank."""

import unittest

from executed_job import ExecutedJob, call

GPT = ("network.norm=layer", "network.ffn_kind=two-layer", "network.rope=false", "network.positions=64",
       "network.qkv_bias=true", "network.linear_bias=true", "network.tied_embeddings=true")

JOB = """
network: {name: tiny, layers: 2, hidden: 64, ffn: 96, heads: 4, kv_heads: 2, vocabulary: 256}
machine: cpu
sequence_length: 48
micro_batch_size: 2
accumulation_steps: 2
layout: {dp: 1, cp: 2}
strategy: megatron
"""


class ContextParallel(ExecutedJob):
    JOB = JOB

    def test_memory_is_what_was_predicted(self):
        for changes in ((), ("layout.cp=3",), ("layout.cp=4", *GPT), ("layout.tp=2", "layout.sp=true"),
                        ("strategy=ddp-last", "layout.dp=2"), ("layout.pp=2", "layout.sp=false"),
                        ("strategy=megatron-dist-opt", "layout.dp=2", "buffers.attention_mask=true")):
            self.assert_memory(*changes)

    def test_memory_is_what_was_predicted_where_work_is_done_again(self):
        for changes in (("recompute.policy=full",), ("recompute.policy=selective", "layout.cp=3")):
            self.assert_memory(*changes, steps=1)

    def test_gradients_are_those_of_one_big_batch(self):
        """Of three ranks and more, the middle ones have ranks on both sides: keys in front of all their queries, and keys
        that only their later queries see."""
        for changes in (("layout.cp=3",), ("layout.cp=4", *GPT), ("layout.tp=2", "layout.sp=true"),
                        ("layout.pp=2", "network.tied_embeddings=true"), ("recompute.policy=full", "layout.cp=3"),
                        ("strategy=ddp-last", "layout.cp=3", "network.kv_heads=4")):
            self.assert_numbers(*changes)

    def test_every_family_of_strategies_sums_over_the_ring(self):
        """State that is divided is divided over the ranks of a ring as well, and gradients are summed over them."""
        for changes in (("strategy=ddp-every", "layout.dp=2"), ("strategy=fsdp2-scatter-each",),
                        ("strategy=fsdp1", "layout.dp=2"), ("strategy=hsdp", "layout.dp=2", "shard.replicas=2"),
                        ("strategy=deepspeed-zero2", "sync.bucket_elements=20000"), ("strategy=deepspeed-zero3",),
                        ("strategy=nanotron", "layout.dp=2", "shard.optimizer=true"),
                        ("strategy=megatron-dist-opt", "layout.dp=2", "optimizer_step.clip_norm=0.01")):
            self.assert_memory(*changes, steps=1)
            self.assert_numbers(*changes)

    def test_dropout_drops_what_it_drops_on_one_rank(self):
        for changes in (("network.dropout=0.1",), ("network.dropout=0.1", "layout.tp=2", "layout.sp=true")):
            self.assert_numbers(*changes)

    def test_the_loss_and_what_is_learned_are_those_of_one_rank(self):
        exact = ("precision.params=fp32", "precision.gradients=fp32", "precision.master=none", "precision.optimizer=fp32",
                 "strategy=ddp-last", "precision.reduce=fp32", "precision.accumulate=fp32", "optimizer=sgd")
        alone = self.losses(*exact, "layout.cp=1", steps=4)
        ring = self.losses(*exact, "layout.cp=3", steps=4)
        for expected, found in zip(alone, ring):
            self.assertAlmostEqual(expected, found, delta=5e-7)

    def test_what_is_not_executed_says_so_before_anything_starts(self):
        done = call("run", self.job, changes=("sequence_length={max: 48, mean: 24}",))
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("layout.cp", done.stderr)
        self.assertNotIn("mpirun", done.stderr)


if __name__ == "__main__":
    unittest.main()

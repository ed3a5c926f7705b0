# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts under run and compare JOB --device cpu, from outside: memory is what was predicted, to the byte, and
gradients are those of one big batch on one rank, whose tokens go to the experts that they go to in the job."""

import unittest

from executed_job import ExecutedJob, call

JOB = """
network: {name: tiny, layers: 2, hidden: 64, ffn: 96, heads: 4, kv_heads: 2, vocabulary: 256,
          experts: {count: 4, per_token: 2, ffn: 48}}
machine: cpu
sequence_length: 32
micro_batch_size: 2
accumulation_steps: 2
layout: {dp: 1}
strategy: ddp-last
"""

SHARED = ("network.experts.shared_ffn=32", "network.experts.shared_gate=true")
FP32_ROUTER = "network.experts.router_fp32=true"
TORCHTITAN = ("network.experts.layer=torchtitan", FP32_ROUTER)
TWO_KERNELS = "buffers.fused_glu=false"


class Experts(ExecutedJob):
    JOB = JOB

    def test_every_family_of_strategies(self):
        for changes in ((), ("layout.dp=2",), ("strategy=megatron", "layout.dp=2"), ("strategy=nanotron", "layout.dp=2"),
                        ("strategy=fsdp2-scatter-each", "layout.dp=2"), ("strategy=fsdp1", "layout.dp=2"),
                        ("strategy=deepspeed-zero2", "layout.dp=2"), ("strategy=megatron-dist-opt", "layout.dp=2"),
                        ("strategy=megatron", "layout.pp=2"), ("strategy=megatron", "layout.cp=2")):
            self.assert_executed(*changes)

    def test_work_that_is_done_again(self):
        for part in ("attention", "norm", "activation", "feed_forward"):
            self.assert_executed("recompute.policy=selective", *(f"recompute.{one}={str(one == part).lower()}" for one in (
                "attention", "norm", "activation", "feed_forward")), steps=1)
        self.assert_executed("recompute.policy=full", *SHARED, steps=1)
        self.assert_executed("recompute.policy=full", "strategy=megatron", "layout.dp=2", steps=1)
        self.assert_executed("recompute.policy=selective", "recompute.feed_forward=true", *SHARED, TWO_KERNELS, steps=1)

    def test_every_table_of_the_layer(self):
        for changes in (("network.experts.dispatcher=all-gather",), ("network.experts.kernel=sequential",),
                        (TWO_KERNELS,), (FP32_ROUTER,), (FP32_ROUTER, TWO_KERNELS),
                        ("network.ffn_kind=two-layer",), ("network.ffn_kind=two-layer", FP32_ROUTER, *SHARED),
                        ("network.experts.dispatcher=all-gather", "network.experts.kernel=sequential", *SHARED),
                        (SHARED[0],), (*SHARED, TWO_KERNELS), (*SHARED, "packing.gate_up=separate"),
                        ("network.dropout=0.1", *SHARED)):
            self.assert_executed(*changes, steps=1)

    def test_torchtitans_layer(self):
        for changes in ((), (TWO_KERNELS, SHARED[0]), ("strategy=fsdp2-scatter-each", "layout.dp=2"),
                        ("strategy=fsdp2-scatter-each", "layout.dp=2", "recompute.policy=per_op"),
                        ("strategy=fsdp2-scatter-each", "layout.dp=8", "micro_batch_size=1"),  # more ranks than experts
                        ("strategy=hsdp", "layout.dp=4", "shard.replicas=2", "recompute.policy=full"),
                        ("strategy=fsdp2-keep-all", "layout.pp=2", "layout.dp=2"), ("strategy=megatron", "layout.cp=2"),
                        ("strategy=megatron", "layout.dp=2", "layout.ep=2"),
                        ("strategy=megatron", "layout.dp=2", "layout.ep=2", "recompute.policy=per_op", SHARED[0]),
                        ("strategy=megatron-dist-opt", "layout.dp=4", "layout.ep=2", TWO_KERNELS),
                        ("strategy=ddp-last", "layout.dp=2", "network.experts.dense_layers=1", "recompute.policy=selective",
                         "recompute.feed_forward=true")):
            self.assert_executed(*TORCHTITAN, *changes, steps=2)

    def test_layers_before_them_that_have_none(self):
        """Under strategies of every system, where a stage has layers of both kinds and where it has those of one."""
        first = ("network.experts.dense_layers=1", "network.layers=3")
        for changes in ((), ("strategy=megatron", "layout.dp=2", "recompute.policy=full"), ("strategy=nanotron", "layout.dp=2"),
                        ("strategy=fsdp2-scatter-each", "layout.dp=2", "shard.gathered_layers=3"),
                        ("strategy=fsdp1", "layout.dp=2"), ("strategy=jax-scan", "layout.dp=2"), ("strategy=alpa", "layout.dp=2"),
                        ("strategy=deepspeed-zero3", "layout.dp=2", "sync.bucket_elements=20000"),
                        ("strategy=colossalai-gemini", "layout.dp=2", "shard.chunk_elements=20000"),
                        ("strategy=colossalai-gemini", "network.dropout=0.1"),  # in one chunk, where a weight is found by its layer
                        ("strategy=megatron-dist-opt", "layout.dp=2", "layout.ep=2"), ("strategy=megatron", "layout.cp=2"),
                        ("recompute.policy=selective", "recompute.feed_forward=true"),
                        ("strategy=megatron", "layout.tp=2", "network.kv_heads=4", *SHARED),
                        ("strategy=megatron", "layout.pp=3", "network.tied_embeddings=true"),
                        ("strategy=megatron", "layout.pp=2", "network.layers=4", "network.experts.dense_layers=3"),
                        ("strategy=megatron", "layout.pp=2", "layout.dp=2", "layout.ep=2", "layout.layers_per_stage=[2, 1]")):
            self.assert_executed(*first, *changes, steps=2)

    def test_any_number_of_experts(self):
        """One to which all tokens go, as many as there are, and more than there are tokens."""
        for count, per_token in ((1, 1), (4, 4), (16, 1), (200, 3)):
            self.assert_executed(f"network.experts.count={count}", f"network.experts.per_token={per_token}", steps=1)

    def test_choices_that_roundings_change_are_followed(self):
        """In bf16 some tokens go to other experts than in fp64, and a gradient of one of these experts is far from that of
        the other: the batch that the job is compared with goes where the job went. In fp64 both choose for themselves."""
        many = ("network.experts.count=64", "network.experts.per_token=1", "network.hidden=128", "network.layers=2",
                "network.experts.ffn=256", "network.ffn_kind=two-layer", "sequence_length=128")
        for changes in (many, (*many, "layout.dp=2"), (*many, "strategy=megatron", "layout.cp=2"),
                        (*many, "strategy=megatron", "layout.pp=2")):
            numerics = self.json_of("run", self.job, "--verify", changes=changes)["numerics"]
            self.assertEqual(numerics["routed_tokens"], 2 * 128 * 4 * (2 if "layout.dp=2" in changes else 1), changes)
            self.assertGreater(numerics["routed_otherwise"], 0, changes)
            self.assertLess(numerics["routed_otherwise"], numerics["routed_tokens"] / 10, changes)
            self.assertTrue(numerics["equal"], changes)
            self.assertLess(numerics["exact"]["max_relative_error"], 1e-10, changes)

    def test_a_job_without_experts_tells_of_no_choices(self):
        none = ("network.experts.count=0", "network.experts.ffn=0")
        self.assertNotIn("routed_tokens", self.json_of("run", self.job, "--verify", changes=none)["numerics"])

    def test_losses_fall_as_on_one_rank(self):
        exact = ("precision.params=fp32", "precision.gradients=fp32", "precision.optimizer=fp32", "precision.reduce=fp32",
                 "precision.accumulate=fp32", "precision.master=none", "optimizer=sgd")
        alone = self.losses(*exact, "micro_batch_size=4", "accumulation_steps=1", steps=4)
        divided = self.losses(*exact, "layout.dp=2", "micro_batch_size=1", steps=4)
        for expected, found in zip(alone, divided):
            self.assertAlmostEqual(expected, found, delta=5e-7)

    def test_experts_on_several_ranks(self):
        """Whole ones or parts, tokens by all-to-all or gathered, state divided or not, beside every other division."""
        parts = "network.kv_heads=4"
        gathers = "network.experts.dispatcher=all-gather"
        for changes in (("layout.dp=2", "layout.ep=2"), ("layout.dp=2", "layout.ep=2", gathers),
                        ("layout.dp=4", "layout.ep=4", "recompute.policy=full"),
                        ("layout.tp=2", parts), ("layout.tp=2", parts, gathers, *SHARED),
                        ("layout.tp=2", "layout.ep=2", "layout.etp=1", *SHARED),
                        ("layout.dp=2", "layout.tp=2", "layout.ep=2", FP32_ROUTER, TWO_KERNELS),
                        ("layout.dp=2", "layout.tp=2", "layout.ep=2", FP32_ROUTER, gathers),
                        ("layout.dp=2", "layout.tp=2", "layout.ep=2", "network.ffn_kind=two-layer"),
                        ("layout.cp=2", "layout.ep=2"), ("layout.dp=2", "layout.pp=2", "layout.ep=2"),
                        ("layout.dp=4", "layout.ep=2", "strategy=megatron-dist-opt"),
                        ("layout.dp=2", "layout.tp=2", "layout.ep=2", "strategy=megatron-dist-opt", "network.experts.kernel=sequential")):
            self.assert_executed("strategy=megatron", *changes, steps=2)

    def test_weights_that_are_sharded_over_the_ranks_with_the_same_experts(self):
        """FSDP2's, in units of two groups: gathered and scattered by others, or by nobody, beside all that a unit may be."""
        alone = ("layout.dp=2", "layout.ep=2")
        for changes in (alone, ("layout.dp=4", "layout.ep=2", *TORCHTITAN), ("layout.cp=2", "layout.ep=2", *TORCHTITAN),
                        ("layout.dp=4", "layout.ep=2", *TORCHTITAN, "recompute.policy=full", "shard.prefetch_forward=1"),
                        (*alone, *TORCHTITAN, "shard.prefetch_backward=2", "shard.prefetch_forward=2"),
                        ("layout.dp=8", "layout.ep=2", *TORCHTITAN, "micro_batch_size=1"),  # rows of experts
                        (*alone, *TORCHTITAN, "strategy=fsdp2-defer", "optimizer_step.kernel=foreach"),
                        (*alone, "layout.tp=2", "layout.etp=1", "strategy=fsdp2-keep-after-backward", "network.tied_embeddings=true"),
                        ("layout.dp=4", "layout.ep=2", "layout.pp=2", *TORCHTITAN, "strategy=fsdp2-keep-all"),
                        ("layout.dp=4", "layout.ep=2", *TORCHTITAN, "optimizer_step.clip_norm=0.01", SHARED[0]),
                        (*alone, *TORCHTITAN, "optimizer_step.kernel=for-loop"),
                        (*alone, *TORCHTITAN, "network.trainable=[layer.experts_*]", "network.experts.dense_layers=1")):
            self.assert_executed("strategy=fsdp2-scatter-each", "loss_scale=global-tokens", *changes, steps=2)

    def test_tokens_that_no_router_sent_are_told_of(self):
        """There is nothing that could be routed otherwise, and who reads a loss must know that no router chose."""
        report = self.json_of("run", self.job, "--verify", changes=("strategy=megatron", "layout.dp=2", "layout.ep=2"))
        self.assertNotIn("routed_tokens", report["numerics"])
        self.assertIn("experts took tokens round-robin", " ".join(report["notes"]))
        self.assertNotIn("round-robin", " ".join(self.json_of("run", self.job)["notes"]))

    def test_what_is_not_executed_says_so_before_anything_starts(self):
        divided = ("layout.dp=2", "layout.ep=2", "strategy=megatron")
        for changes, words in (((*divided, "network.experts.imbalance=1.25"), "network.experts.imbalance"),
                               ((*divided, "network.experts.count=6"), "the 64 tokens of a rank's microbatch"),
                               (("network.experts.balancing_loss=true",), "network.experts.balancing_loss")):
            done = call("run", self.job, changes=changes)
            self.assertEqual(done.returncode, 3, (changes, done.stderr))
            self.assertIn(words, done.stderr)
            self.assertNotIn("mpirun", done.stderr)
            self.assertEqual(call("predict", self.job, changes=changes).returncode, 0, changes)


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""Pipelines under run and compare JOB --device cpu, from outside: a rank per stage, messages between them, memory that
is what was predicted, to the byte, and the gradients of one big batch."""

import unittest

from executed_job import ExecutedJob, call

STRATEGIES = ("ddp-last", "nanotron", "megatron")
SCHEDULES = {
    "gpipe": (),
    "1f1b": (),
    "interleaved": ("layout.vpp=2",),
    "zb-h1": (),
    "zb-h2": (),
    "dualpipe": (),
}
TWO_BY_TWO = (("layout.dp=2",), ("layout.tp=2", "layout.sp=true"))

JOB = """
network: {name: tiny, layers: 4, hidden: 64, ffn: 96, heads: 4, kv_heads: 2, vocabulary: 256, tied_embeddings: true}
machine: cpu
sequence_length: 32
micro_batch_size: 2
accumulation_steps: 4
layout: {pp: 2}
strategy: nanotron
"""


class Pipelines(ExecutedJob):
    JOB = JOB

    def test_memory_of_two_stages_is_what_was_predicted(self):
        for schedule, more in SCHEDULES.items():
            for strategy in STRATEGIES:
                self.assert_memory(f"strategy={strategy}", f"schedule={schedule}", *more)

    def test_memory_of_four_stages_is_what_was_predicted(self):
        for schedule, more in SCHEDULES.items():
            deep = ("network.layers=8",) if schedule == "interleaved" else ()
            full = ("accumulation_steps=8",) if schedule == "dualpipe" else ()
            self.assert_memory("layout.pp=4", f"schedule={schedule}", *more, *deep, *full)

    def test_memory_of_two_ranks_a_stage_is_what_was_predicted(self):
        for i, (schedule, more) in enumerate(SCHEDULES.items()):
            layout = TWO_BY_TWO[(i + 1) % 2]  # the other one stands below
            self.assert_memory(f"strategy={STRATEGIES[i % 3]}", f"schedule={schedule}", *layout, *more)

    def test_memory_is_what_was_predicted_where_work_is_done_again(self):
        for schedule, policies in (("1f1b", ("full", "selective", "every_n")), ("zb-h1", ("full",)),
                                   ("interleaved", ("every_n",)), ("dualpipe", ("selective",))):
            for policy in policies:
                self.assert_memory(f"schedule={schedule}", f"recompute.policy={policy}", *SCHEDULES[schedule], steps=1)

    def test_gradients_are_those_of_one_big_batch(self):
        """With a tied embedding, of which the first and the last stage have a copy each: what the head's copy gets must
        reach the other, and each layer must have the numbers that it has in the whole model."""
        for i, (schedule, more) in enumerate(SCHEDULES.items()):
            self.assert_numbers(f"strategy={STRATEGIES[i % 3]}", f"schedule={schedule}", *more)
            layout = TWO_BY_TWO[i % 2]
            self.assert_numbers(f"strategy={STRATEGIES[(i + 1) % 3]}", f"schedule={schedule}", *layout, *more)

    def test_gradients_of_other_cuts_are_those_of_one_big_batch(self):
        for changes in (("layout.pp=4",), ("layout.pp=4", "schedule=dualpipe", "accumulation_steps=8"),
                        ("layout.layers_per_stage=[1, 3]",), ("network.tied_embeddings=false",),
                        ("network.dropout=0.1", "layout.tp=2", "layout.sp=true", "schedule=zb-h1")):
            self.assert_numbers(*changes)

    def test_stages_whose_state_is_divided_are_right_as_well(self):
        """Two stages on each rank, and each of their parameters in two parts: its numbers are found by stage, layer and
        part."""
        changes = ("strategy=fsdp2-keep-all", "layout.dp=2", "network.tied_embeddings=false", "schedule=dualpipe")
        self.assert_memory(*changes)
        self.assert_numbers(*changes)
        for changes in (("strategy=deepspeed-zero1", "sync.bucket_elements=20000", "network.tied_embeddings=false",
                         "optimizer_step.clip_norm=0.01"), ("strategy=nanotron", "shard.optimizer=true"),
                        ("strategy=nanotron", "shard.optimizer=true", "network.tied_embeddings=false",
                         "optimizer_step.clip_norm=0.01")):
            self.assert_memory(*changes, "layout.dp=2")
            self.assert_numbers(*changes, "layout.dp=2")

    def test_clipped_gradients_of_several_chunks_are_those_of_one_big_batch(self):
        for changes in (("strategy=ddp-last", "buffers.gradient_as_bucket_view=true"), ("strategy=megatron-dist-opt", "layout.dp=2")):
            self.assert_numbers(*changes, "schedule=interleaved", *SCHEDULES["interleaved"], "optimizer_step.clip_norm=0.01")

    def test_what_is_done_again_is_the_same_bit_for_bit(self):
        for schedule in ("1f1b", "interleaved"):
            changes = (f"schedule={schedule}", "network.dropout=0.1", *SCHEDULES[schedule])
            self.assertEqual(self.losses(*changes), self.losses(*changes, "recompute.policy=full"), schedule)

    def test_the_loss_and_what_is_learned_are_those_of_one_rank(self):
        """Clipped as well: with plain SGD an update is as long as the clipped gradient, so that a norm which counts the
        tied embedding on both stages, or on one stage only what that stage has, learns something else. A norm that is
        10 % off is 4e-6 off here after six steps, roundings in fp32 are 1e-7."""
        exact = ("precision.params=fp32", "precision.gradients=fp32", "optimizer=sgd")
        for clip in ((), ("optimizer_step.clip_norm=0.5",)):
            alone = self.losses(*exact, *clip, "layout.pp=1", steps=6)
            staged = self.losses(*exact, *clip, "schedule=zb-h1", steps=6)
            for expected, found in zip(alone, staged):
                self.assertAlmostEqual(expected, found, delta=5e-7, msg=clip)
        chunks = ("strategy=ddp-last", *exact, "precision.reduce=fp32", "precision.accumulate=fp32", "precision.master=none",
                  "precision.optimizer=fp32", "optimizer_step.clip_norm=0.5")  # all of a rank are clipped to one norm
        alone = self.losses(*chunks, "layout.pp=1", steps=6)
        staged = self.losses(*chunks, "schedule=interleaved", *SCHEDULES["interleaved"], steps=6)
        for expected, found in zip(alone, staged):
            self.assertAlmostEqual(expected, found, delta=5e-7)

    def test_the_report_tells_the_stage_that_has_the_highest_peak(self):
        """Of four stages of one layer the last has the head, whose logits in fp32 are larger than all else here."""
        predicted = self.json_of("predict", self.job, changes=("layout.pp=4", "network.vocabulary=4096"))
        run = self.json_of("run", self.job, "--steps", "3", changes=("layout.pp=4", "network.vocabulary=4096"))
        self.assertEqual(run["peak"]["role"], "stage 3")
        self.assertEqual(run["peak"]["allocated_bytes"], predicted["peak"]["allocated_bytes"])

    def test_a_trace_tells_every_stage(self):
        comparison = self.assert_memory("layout.pp=2")
        self.assertEqual([role["role"] for role in comparison["roles"]], ["stage 0", "stage 1"])

    def test_what_is_not_executed_says_so_before_anything_starts(self):
        done = call("run", self.job, "--capacity", "1GiB")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("--capacity", done.stderr)
        self.assertNotIn("mpirun", done.stderr)


if __name__ == "__main__":
    unittest.main()

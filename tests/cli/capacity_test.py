# SPDX-License-Identifier: Apache-2.0
"""tidemark predict --capacity against tidemark run --capacity, with real ranks under mpirun: fine, fine after so many
flushes of the cache, or out of memory at a named request. tests/profiler/execute/capacity_test.cc asks every strategy."""

import random
import unittest

from executed_job import ExecutedJob

PAGE = 2 << 20

# Logits of 256 tokens in 2048 words are 1 MiB in bf16: some tensors share a segment of 2 MiB, some have their own.
JOB = """
network: {name: tiny, layers: 2, hidden: 32, ffn: 64, heads: 4, kv_heads: 2, vocabulary: 2048}
machine: cpu
sequence_length: 128
micro_batch_size: 2
accumulation_steps: 2
layout: {dp: 2}
strategy: ddp-last
"""


class Capacity(ExecutedJob):
    JOB = JOB

    def compare_at(self, changes, capacity):
        """What becomes of the job on devices of so many bytes, predicted and executed."""
        words = (self.job, "--steps", "2", "--capacity", capacity)
        expected = self.json_of("predict", *words, changes=changes, codes=(0, 1))["capacity"]
        code = 1 if expected["outcome"] == "out_of_memory" else 0
        run, case = self.json_of("run", *words, changes=changes, codes=(code,)), (changes, capacity)
        self.assertEqual(run["peak"]["cache_flushes"], expected["cache_flushes"], case)
        found = run["out_of_memory"]
        self.assertEqual(found is not None, expected["outcome"] == "out_of_memory", case)
        if found:
            self.assertEqual(found["requested_bytes"], expected["request_bytes"], case)
            for key in ("phase", "microbatch", "side", "chunk", "step"):
                self.assertEqual(found[key], expected[key], (key, case))
            self.assertEqual(found["capacity_bytes"], capacity)
            # What is alive fits, and with what was asked for it would not, or the allocator's rounding is in the way.
            self.assertLessEqual(sum(live["bytes"] for live in found["live"]), found["reserved_bytes"])
            self.assertEqual(len(run["steps"]) - 1, expected["step"] or 0, case)  # null: before the first
        return expected["outcome"]

    def test_ranks_end_as_predicted_under_every_limit(self):
        dice = random.Random(5)
        for changes in (("strategy=nanotron", "layout.dp=1", "layout.tp=2"), ("strategy=fsdp2-scatter-each",)):
            told = self.json_of("predict", self.job, "--steps", "2", changes=changes)
            peak, least = told["peak"]["reserved_bytes"], told["peak"]["minimum_bytes"]
            self.assertEqual(self.compare_at(changes, peak), "fine")
            self.assertIn(self.compare_at(changes, least), ("fine", "flushed"))
            self.assertEqual(self.compare_at(changes, least - PAGE), "out_of_memory")
            self.compare_at(changes, dice.randrange(peak // 2, peak))

    def test_without_rounding_the_limit_is_sharp_to_one_byte(self):
        changes = ("allocator.kind=exact",)
        told = self.json_of("predict", self.job, "--steps", "2", changes=changes)
        peak = told["peak"]["allocated_bytes"]
        self.assertEqual(told["peak"]["minimum_bytes"], peak)
        self.assertEqual(self.compare_at(changes, peak), "fine")
        self.assertEqual(self.compare_at(changes, peak - 1), "out_of_memory")


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""What a run's process really took, from outside: the closed budget of tidemark run against what the operating system
says to whoever waits for the process, and what puts a measurement in doubt."""

import json
import os
import subprocess
import unittest

from executed_job import PROGRAM, ExecutedJob

MIB = 1 << 20

# Logits of 2048 tokens in 16384 words are 64 MiB in bf16 and 128 MiB in fp32, and so is their gradient: 384 MiB at
# least, with little arithmetic.
JOB = """
network: {name: wide, layers: 1, hidden: 64, ffn: 96, heads: 4, kv_heads: 2, vocabulary: 16384}
machine: cpu
sequence_length: 1024
micro_batch_size: 2
accumulation_steps: 1
strategy: ddp-last
"""


class Budget(ExecutedJob):
    JOB = JOB

    def run_job(self, *changes, form="json"):
        words = [word for change in changes for word in ("--set", change)]
        process = subprocess.Popen([PROGRAM, "run", self.job, "--format", form, *words], stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL)
        with process.stdout:
            told = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0)
        return (json.loads(told) if form == "json" else told.decode()), usage.ru_maxrss * 1024

    def check_sum(self, run):
        """The parts and the residual are what is used, and the residual is under 2 %."""
        budget = dict(run["budget"])
        used, residual = budget.pop("device_used_bytes"), budget.pop("residual_bytes")
        self.assertEqual(sum(budget.values()) + residual, used)
        self.assertGreater(used, 256 * MIB)
        self.assertLess(abs(residual), 0.02 * used, run["budget"])
        return used

    def test_the_budget_of_one_rank_closes_against_what_its_parent_is_told(self):
        run, told_to_parent = self.run_job()
        used = self.check_sum(run)
        self.assertEqual(run["validity"]["reasons"], [])
        self.assertTrue(run["validity"]["ok"])
        self.assertEqual(run["clock"], "host")
        peak = run["validity"]["resident_peak_bytes"]
        self.assertLess(abs(told_to_parent - peak), 0.01 * peak)
        self.assertLess(peak - used, 0.02 * used)

    def test_what_lies_in_host_memory_is_a_part_of_it(self):
        """Shards, moments and gradients in fp32: 16 bytes of each parameter, and beside them the gradient that arrives last."""
        offload = ("strategy=fsdp2-scatter-each", "optimizer_step.offload=true", "accumulation_steps=2")
        run, _ = self.run_job(*offload)
        self.check_sum(run)
        table, layer = 16384 * 64, 64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 96 + 2 * 64
        parameters = 2 * table + layer + 64
        told = run["budget"]["host_tensors_bytes"]
        self.assertGreaterEqual(told, 12 * parameters)
        self.assertLess(told, 1.01 * (16 * parameters + 4 * table))
        self.assertEqual(self.run_job()[0]["budget"]["host_tensors_bytes"], 0)

    def test_the_budget_of_two_ranks_closes_and_names_what_mpi_takes(self):
        run, _ = self.run_job("layout.dp=2")
        self.check_sum(run)
        self.assertEqual(run["validity"]["ok"], (os.cpu_count() or 1) >= 2, run["validity"])
        self.assertGreater(run["budget"]["communication_bytes"], 0)

    def test_more_ranks_than_cores_put_times_in_doubt(self):
        ranks = 2 * (os.cpu_count() or 1)
        if ranks > 8:
            self.skipTest("too many ranks for a test")
        run, _ = self.run_job(f"layout.dp={ranks}", "sequence_length=16", "network.vocabulary=256")
        self.assertFalse(run["validity"]["ok"])
        self.assertIn(f"{ranks} ranks share", " ".join(run["validity"]["reasons"]))

    def test_the_text_report_shows_it_part_by_part(self):
        text, _ = self.run_job(form="text")
        for words in ("the process of rank 0", "tensors", "program and libraries", "residual", "resident, says the system"):
            self.assertIn(words, text)
        self.assertNotIn("in doubt", text)


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""Sweeps over machines and their numbers: each row has a machine of its own, and their file is read once."""

import json
import unittest

from swept_job import JOB, JOBS, SweptJob, sweep, vary
from tidemark import run


class SweepMachines(SweptJob):
    def test_machines_have_memories_of_their_own(self):
        report = sweep(*vary(machine="h100-sxm-80gb,b200-sxm-180gb", strategy="ddp-last"))
        self.assertIsNone(report["device_memory_bytes"])
        self.assertEqual({row["machine"]: row["fits"] for row in report["rows"]},
                         {"h100-sxm-80gb": False, "b200-sxm-180gb": True})

    def test_one_machine_refuses_nothing_for_another(self):
        preset = JOBS.parents[1] / "models/machine/presets/h100-sxm-80gb.yaml"
        lines = [line for line in preset.read_text().splitlines() if not line.startswith("  bf16:")]
        fp16 = self.folder / "fp16.yaml"
        fp16.write_text("\n".join(lines))
        for machines in (f"{fp16},h100-sxm-80gb", f"h100-sxm-80gb,{fp16}"):
            report = sweep(*vary(machine=machines))
            self.assert_adds_up(report)
            self.assertEqual([row["machine"] for row in report["rows"]], ["h100-sxm-80gb"])
            self.assertIn("states no peak for bf16", report["refusals"][0]["reason"])

    def test_a_count_that_takes_too_long_refuses_no_shorter_one(self):
        for bandwidths in ("3 TB/s,100 MB/s", "100 MB/s,3 TB/s"):
            report = sweep(*vary(machine__memory_bandwidth=bandwidths, accumulation_steps="4,1000000"))
            self.assert_adds_up(report)
            self.assertEqual(report["refused"], 1)
            self.assertIn("1000000", report["refusals"][0]["reason"])
            slow = [row for row in report["rows"] if row["machine.memory_bandwidth"] == "100 MB/s"]
            self.assertEqual([row["accumulation_steps"] for row in slow], [4])
            one = json.loads(run("predict", JOB, "--set", "machine.memory_bandwidth=100 MB/s", "--format", "json").stdout)
            self.assertEqual(slow[0]["step_ns"], one["time"]["step_ns"])

    def test_a_machine_of_which_a_rate_is_varied_is_named(self):
        report = sweep(*vary(machine__overlap_slowdown="1,1.2"))
        self.assertEqual((report["machine"], report["device_memory_bytes"]), ("h100-sxm-80gb", 81559 << 20))
        memory = sweep(*vary(machine__device_memory="80GiB,90GiB"))
        self.assertEqual((memory["machine"], memory["device_memory_bytes"]), (None, None))

    def test_a_single_varied_machine_is_the_one_that_is_named(self):
        report = sweep(*vary(machine="b200-sxm-180gb", micro_batch_size="1,3"))
        one = json.loads(run("predict", JOB, "--set", "machine=b200-sxm-180gb", "--format", "json").stdout)
        self.assertEqual((report["machine"], report["device_memory_bytes"]), ("b200-sxm-180gb", one["device_memory_bytes"]))

    def test_very_many_machines_are_no_more_than_their_rows(self):
        report = sweep(*vary(machine__processors="1..40000"), "--top", 1)
        self.assert_adds_up(report)
        self.assertEqual(report["evaluated"], 40000)


if __name__ == "__main__":
    unittest.main()

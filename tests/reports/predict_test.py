#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The verb predict, from outside. Takes the program from $TIDEMARK_PROGRAM."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

JOB = """network: gpt2
machine: h100-sxm-80gb
sequence_length: 1024
micro_batch_size: 2
accumulation_steps: 4
layout: {dp: 8}
strategy: fsdp2-scatter-each
"""


class Predict(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.job = self.folder / "job.yaml"
        self.job.write_text(JOB)

    def predict(self, *arguments):
        return subprocess.run([os.environ["TIDEMARK_PROGRAM"], "predict", self.job, *arguments], capture_output=True,
                              text=True, timeout=120, check=False)

    def json(self, *arguments):
        return json.loads(self.predict("--format", "json", *arguments).stdout)

    def test_the_parts_sum_to_the_whole(self):
        report = self.json()
        self.assertEqual(report["schema"], "tidemark.prediction/1")
        self.assertEqual(sum(report["peak"]["by_category"].values()), report["peak"]["allocated_bytes"])
        time = dict(report["time"])
        self.assertEqual(time.pop("step_ns"), sum(time.values()))

    def test_the_sizes_are_ordered(self):
        peak = self.json()["peak"]
        self.assertLessEqual(peak["allocated_bytes"], peak["allocator_bytes"])    # rounding only adds
        self.assertLessEqual(peak["allocator_bytes"], peak["reserved_bytes"])
        self.assertLessEqual(peak["allocator_bytes"], peak["minimum_bytes"])
        self.assertLessEqual(peak["device_bytes"]["low"], peak["device_bytes"]["expected"])
        self.assertLessEqual(peak["device_bytes"]["expected"], peak["device_bytes"]["high"])

    def test_the_closed_form_knows_the_peak_and_says_null_for_the_allocator(self):
        closed = self.json("--engine", "closed-form")
        self.assertEqual(closed["peak"]["allocated_bytes"], self.json()["peak"]["allocated_bytes"])
        self.assertEqual(closed["time"], self.json()["time"])
        for key in ("allocator_bytes", "reserved_bytes", "reserved_late_bytes", "minimum_bytes"):
            self.assertIsNone(closed["peak"][key])

    def test_streams_that_lag_are_told_where_they_cost_memory(self):
        lags = ("--set", "strategy=fsdp1", "--set", "layout.dp=4", "--set", "accumulation_steps=2", "--exit-zero")
        report = self.json(*lags)
        late = report["peak"]["reserved_late_bytes"]
        self.assertGreater(late, report["peak"]["reserved_bytes"])
        self.assertEqual([role["reserved_late_bytes"] for role in report["roles"]], [late])
        self.assertIn("record_stream", " ".join(report["provenance"]["modelled"]))
        text = self.predict(*lags).stdout
        self.assertRegex(text, rf"reserved if streams lag +[\d.]+ [MG]iB  {late:,} bytes")
        for other in ("strategy=fsdp2-scatter-each", "allocator.kind=exact", "machine=cpu"):
            self.assertIsNone(self.json(*lags, "--set", other)["peak"]["reserved_late_bytes"], other)
            self.assertNotIn("streams lag", self.predict(*lags, "--set", other).stdout)

    def test_both_engines_are_shown_beside_each_other(self):
        engines = self.json("--engine", "both")["engines"]
        for key in ("allocated_bytes", "step_ns"):
            self.assertEqual(engines["closed_form"][key], engines["simulate"][key])
        self.assertGreater(engines["closed_form"]["evaluation_ns"], 0)

    def test_the_minimum_is_where_the_outcome_turns(self):
        minimum = self.json()["peak"]["minimum_bytes"]
        enough = self.json("--capacity", str(minimum))["capacity"]
        self.assertIn(enough["outcome"], ("fine", "flushed"))
        done = self.predict("--capacity", str(minimum - 2 * 2**20), "--format", "json")
        self.assertEqual(done.returncode, 1)
        short = json.loads(done.stdout)["capacity"]
        self.assertEqual(short["outcome"], "out_of_memory")
        self.assertGreater(short["request_bytes"], 0)
        self.assertTrue(short["phase"])

    def test_a_step_shows_what_its_allocator_reserved_at_most(self):
        # The exact allocator gives everything back at once: what it holds after a step is less than within it.
        report = self.json("--steps", "3", "--set", "allocator.kind=exact")
        self.assertEqual(len(report["steps"]), 3)
        for step in report["steps"]:
            self.assertEqual(step["reserved_bytes"], step["allocated_bytes"])
        for step in self.json("--steps", "3")["steps"]:
            self.assertGreaterEqual(step["reserved_bytes"], step["allocated_bytes"])

    def test_running_out_names_the_step_and_the_microbatch(self):
        first, second = (step["allocated_bytes"] for step in self.json("--steps", "2", "--set", "strategy=ddp-last",
                                                                       "--set", "allocator.kind=exact")["steps"])
        self.assertLess(first, second)  # moments appear at the end of the first step
        done = self.predict("--steps", "2", "--set", "strategy=ddp-last", "--set", "allocator.kind=exact",
                            "--capacity", str(first), "--format", "json")
        short = json.loads(done.stdout)["capacity"]
        self.assertEqual((short["outcome"], short["step"]), ("out_of_memory", 1))
        self.assertIn(short["microbatch"], range(4))
        text = self.predict("--steps", "2", "--set", "strategy=ddp-last", "--set", "allocator.kind=exact",
                            "--capacity", str(first)).stdout
        self.assertIn(f"of microbatch {short['microbatch']} of step 2", text)

    def test_a_step_is_named_where_there_are_several(self):
        self.assertIn(self.json("--steps", "2")["peak"]["at"]["step"], (0, 1))
        one = self.json("--capacity", "1GiB", "--exit-zero")
        self.assertIsNone(one["peak"]["at"]["step"])
        self.assertIsNone(one["capacity"]["step"])

    def test_exit_zero_turns_a_finding_into_success(self):
        self.assertEqual(self.predict("--capacity", "1MiB").returncode, 1)
        self.assertEqual(self.predict("--capacity", "1MiB", "--exit-zero").returncode, 0)

    def test_a_job_that_does_not_fit_is_a_finding(self):
        done = self.predict("--set", "micro_batch_size=4096")
        self.assertEqual(done.returncode, 1)
        self.assertIn("DOES NOT FIT", done.stdout)

    def test_writes_whole_files_and_nothing_beside_them(self):
        page, trace = self.folder / "report.html", self.folder / "step.trace"
        self.assertEqual(self.predict("--html", page, "--trace", trace).returncode, 0)
        self.assertTrue(page.read_text().endswith("</html>\n"))
        self.assertTrue(trace.read_bytes().startswith(b"TIDEMARK TRACE 1\n"))
        self.assertEqual({path.name for path in self.folder.iterdir()}, {"job.yaml", "report.html", "step.trace"})

    def test_a_file_alone_can_go_to_stdout(self):
        self.assertTrue(self.predict("--html", "-").stdout.startswith("<!DOCTYPE html>"))

    def test_refuses_what_it_cannot_do_and_writes_nothing(self):
        page = self.folder / "report.html"
        for arguments in (["--steps", "0"], ["--steps", "2", "--step", "first"], ["--steps", "two"], ["--engine", "closed-form", "--trace", "x"], ["--capacity", "much"],
                          ["--engine", "closed-form", "--capacity", "1GiB"], ["--step", "third"],
                          ["--html", self.folder], ["--html", self.folder / "missing" / "report.html"],
                          ["--set", "layout.tp=5", "--html", page]):
            done = self.predict(*arguments)
            self.assertEqual(done.returncode, 2, (arguments, done.stderr))
            self.assertEqual(done.stdout, "", arguments)
            self.assertIn("error:", done.stderr)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["job.yaml"])

    def test_says_the_same_twice(self):
        for form in ("text", "json", "markdown"):
            self.assertEqual(self.predict("--format", form).stdout, self.predict("--format", form).stdout)


if __name__ == "__main__":
    unittest.main()

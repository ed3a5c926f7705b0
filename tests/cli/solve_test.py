#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The verb solve, from outside: the first option is the fastest of an exhaustive sweep, and each is what its own command
line predicts."""

import functools
import json
import pathlib
import shlex
import tempfile
import unittest

from tidemark import run

JOB = """network: {layers: 8, hidden: 1024, ffn: 2816, heads: 16, kv_heads: 4, vocabulary: 32000}
machine: h100-sxm-80gb
sequence_length: 2048
micro_batch_size: 2
accumulation_steps: 4
strategy: ddp-last
layout: {dp: 4}
"""
JOBS = pathlib.Path(__file__).resolve().parents[1] / "jobs"
LAYOUTS = [(4, 1, 1), (2, 2, 1), (2, 1, 2), (1, 4, 1), (1, 2, 2), (1, 1, 4)]


class Solve(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.job = pathlib.Path(cls.folder.name) / "job.yaml"
        cls.job.write_text(JOB)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    @functools.cache  # for all tests together: each has a self of its own
    def solve(cls, *arguments, code=0):
        done = run("solve", cls.job, *arguments, "--format", "json")
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    def sweep(self, dp, tp, pp, *arguments):
        done = run("sweep", self.job, "--set", f"layout={{dp: {dp}, tp: {tp}, pp: {pp}}}", "--global-batch", 32,
                   "--vary", "micro_batch_size=1..32:x2", "--format", "json", "--exit-zero", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["rows"]

    def test_pipelines_are_interleaved_where_model_chunks_are_varied(self):
        pipeline = ("--set", "strategy=megatron", "--set", "layout={dp: 1, tp: 1, pp: 4}", "--set", "accumulation_steps=16")
        solution = self.solve(*pipeline, *(word for key in ("strategy", "layout.dp", "layout.tp", "micro_batch_size",
                                                           "recompute.policy") for word in ("--keep", key)),
                              "--vary", "schedule=1f1b,interleaved", "--vary", "layout.vpp=1,2")
        steps = {}
        for vpp, schedule in ((1, "1f1b"), (2, "interleaved")):
            done = run("predict", self.job, *pipeline, "--set", f"schedule={schedule}", "--set", f"layout.vpp={vpp}",
                       "--format", "json")
            steps[vpp] = json.loads(done.stdout)["time"]["step_ns"]
        self.assertLess(steps[2], steps[1])
        self.assertEqual(solution["now"]["step_ns"], steps[1])
        self.assertEqual(solution["options"][0]["step_ns"], steps[2])
        self.assertLessEqual({"schedule=interleaved", "layout.vpp=2"}, set(shlex.split(solution["options"][0]["command"])))

    def test_model_chunks_are_dealt_out_where_they_do_not_divide_the_layers(self):
        """Ten layers in two stages of two chunks: 2 + 3 and 3 + 2."""
        job = ("--set", "network.layers=10", "--set", "strategy=megatron", "--set", "layout={dp: 1, tp: 2, pp: 2}")
        kept = [word for key in ("strategy", "layout.dp", "layout.tp", "micro_batch_size", "recompute.policy")
                for word in ("--keep", key)]
        solution = self.solve(*job, *kept, "--vary", "schedule=interleaved", "--vary", "layout.vpp=2")
        option = solution["options"][0]
        self.assertIn("layout.layers_per_stage=[2, 3, 3, 2]", option["change"])
        self.assertEqual(sorted(option["differs_in"]), [])
        predicted = json.loads(run(*shlex.split(option["command"])[1:], "--format", "json").stdout)
        self.assertEqual(predicted["time"]["step_ns"], option["step_ns"])

    def test_as_many_ranks_share_sequences_as_is_asked(self):
        """With all of the job's ranks in a ring there is nothing else to lay out."""
        kept = [word for key in ("strategy", "micro_batch_size", "recompute.policy") for word in ("--keep", key)]
        solution = self.solve("--set", "strategy=megatron", *kept, "--vary", "layout.cp=4")
        self.assertEqual((solution["size"], solution["refused"]), (1, 0))
        option = solution["options"][0]
        self.assertLessEqual({"layout.dp=1", "layout.cp=4"}, set(shlex.split(option["command"])))
        predicted = json.loads(run(*shlex.split(option["command"])[1:], "--format", "json").stdout)
        self.assertEqual(predicted["time"]["step_ns"], option["step_ns"])

    def test_the_list_of_layers_of_the_job_is_not_that_of_another_layout(self):
        listed = ("--set", "strategy=megatron", "--set", "layout={dp: 2, tp: 1, pp: 2, layers_per_stage: [3, 5]}")
        kept = [word for key in ("strategy", "micro_batch_size", "recompute.policy") for word in ("--keep", key)]
        solution = self.solve(*listed, *kept)
        self.assertEqual((solution["size"], solution["refused"]), (len(LAYOUTS), 0))

    def test_the_first_is_the_fastest_that_fits(self):
        memory = "6GiB"
        solution = self.solve("--memory", memory, "--keep", "strategy")
        fitting, steps = [], []
        for layout in LAYOUTS:
            rows = self.sweep(*layout, "--set", f"machine.device_memory={memory}", "--vary",
                              "recompute.policy=none,selective,full,every_n,per_op")
            fitting += [row["step_ns"] for row in rows if row["fits"]]
            for row in rows:
                if not row["fits"] and row["allocated_bytes"] < 6 << 30:  # only the simulation can tell
                    keys = ("micro_batch_size", "recompute.policy", "accumulation_steps")
                    sets = [word for key in keys for word in ("--set", f"{key}={row[key]}")]
                    dp, tp, pp = layout
                    one = run("predict", self.job, *sets, "--set", f"layout={{dp: {dp}, tp: {tp}, pp: {pp}}}", "--set",
                              f"machine.device_memory={memory}", "--format", "json", "--exit-zero")
                    steps += [row["step_ns"]] if json.loads(one.stdout)["fits"] else []
        self.assertEqual(solution["options"][0]["step_ns"], min(fitting + steps))
        self.assertEqual(solution["fit"], len(fitting))
        self.assertGreater(solution["too_large"], 0)
        self.assertEqual(solution["size"], solution["fit"] + solution["near"] + solution["too_large"] + solution["refused"])

    def test_options_are_what_their_commands_predict_and_all_of_other_kinds(self):
        solution = self.solve("--memory", "6GiB", "--threads", 2)
        options = solution["options"]
        self.assertEqual(len(options), 6)
        self.assertEqual([option["kind"] for option in options], ["fastest"] + ["other"] * 5)
        self.assertEqual(len({tuple(option["differs_in"]) for option in options}), 6)
        steps = [option["step_ns"] for option in options]
        self.assertEqual(steps, sorted(steps))
        for option in options:
            words = shlex.split(option["command"])
            self.assertEqual(words[0], "tidemark")
            predicted = json.loads(run(*words[1:], "--format", "json").stdout)
            self.assertEqual(predicted["time"]["step_ns"], option["step_ns"])
            self.assertEqual(predicted["peak"]["allocated_bytes"], option["allocated_bytes"])
            self.assertTrue(predicted["fits"])
            self.assertEqual(solution["now"]["allocated_bytes"] - option["allocated_bytes"], option["saved_bytes"])
            self.assertEqual(option["step_ns"] - solution["now"]["step_ns"], option["lost_ns"])
            resolved = predicted["job"]
            batch = (resolved["micro_batch_size"] * resolved["accumulation_steps"] * resolved["layout"]["dp"])
            self.assertEqual(batch, 32)

    def test_threads_change_nothing(self):
        one, two = (self.solve("--memory", "6GiB", "--threads", threads) for threads in (1, 2))
        self.assertEqual({**one, "seconds": 0}, {**two, "seconds": 0})

    def test_the_global_batch_may_be_another(self):
        solution = self.solve("--global-batch", 24, "--keep", "strategy", "--top", 0)
        self.assertEqual(solution["global_batch"], 24)
        self.assertEqual(len(solution["options"]), 1)
        self.assertIsNone(solution["options"][0]["lost_ns"])  # the job's own step is of another batch

    def test_of_ways_that_cost_the_same_the_one_that_changes_less_is_told(self):
        """Colossal-AI's DDP plugin is DDP, and without a pipeline a schedule has no effect."""
        solution = self.solve("--keep", "layout", "--vary", "schedule=1f1b,interleaved", "--top", 100)
        costs = [(option["allocated_bytes"], option["device_high_bytes"], option["step_ns"]) for option in solution["options"]]
        self.assertEqual(len(set(costs)), len(costs))
        self.assertGreater(len(costs), 5)
        self.assertFalse([option["change"] for option in solution["options"] if "schedule=" in option["change"]])
        own = self.solve("--keep", "layout", "--keep", "micro_batch_size", "--keep", "recompute.policy", "--top", 100)
        self.assertIn("", [option["change"] for option in own["options"]])
        self.assertNotIn("colossalai-ddp", json.dumps(own["options"]))

    def test_a_key_is_varied_once(self):
        for key, values in (("layout.vpp", ("1", "2")), ("schedule", ("1f1b", "interleaved"))):
            done = run("solve", self.job, *(word for value in values for word in ("--vary", f"{key}={value}")))
            self.assertEqual((done.returncode, f"{key} is varied twice" in done.stderr), (2, True), done.stderr)

    def test_what_is_kept_stays(self):
        solution = self.solve("--keep", "layout", "--keep", "strategy", "--keep", "recompute.policy", "--top", 100)
        self.assertEqual(solution["varied"], ["micro_batch_size"])
        self.assertLessEqual(len(solution["options"]), 2)  # the fastest, and one of another micro batch
        for option in solution["options"]:
            self.assertNotIn("layout", option["change"])

    def test_where_nothing_fits_it_says_what_comes_nearest(self):
        solution = self.solve("--memory", "600MiB", code=1)
        self.assertEqual(solution["options"], [])
        self.assertGreater(solution["nearest"]["device_high_bytes"], 600 << 20)
        text = run("solve", self.job, "--memory", "600MiB", "--keep", "strategy", "--exit-zero")
        self.assertEqual(text.returncode, 0)
        self.assertIn("NOTHING FITS in 600 MiB", text.stdout)
        change = solution["nearest"]["change"].split()
        nearest = run("predict", self.job, *[word for each in change for word in ("--set", each)], "--exit-zero",
                      "--format", "json")
        self.assertEqual(json.loads(nearest.stdout)["peak"]["device_bytes"]["high"],
                         solution["nearest"]["device_high_bytes"])

    def test_a_job_that_is_refused_itself_has_ways_all_the_same(self):
        solution = self.solve("--set", "layout={dp: 1, tp: 3, pp: 4}", "--global-batch", 12, "--keep", "strategy")
        self.assertIsNone(solution["now"])
        self.assertIn("heads", solution["refusal"])
        self.assertIsNone(solution["options"][0]["saved_bytes"])

    def test_bad_input_is_a_sentence(self):
        for arguments, words in {
            ("--memory", "80"): "write the unit",
            ("--keep", "layout.cp"): "expected one of",
            ("--global-batch", "0"): "--global-batch",
            ("--global-batch", "7", "--keep", "layout", "--keep", "micro_batch_size"): "divides a global batch of 7",
            ("--vary", "layout.tp=1,2"): "tidemark sweep varies any key",
            ("--vary", "network.layers=4,8"): "another training run",
            ("--vary", "sequence_length=64,128"): "another training run",
            ("--vary", "strategy=ddp-last", "--keep", "strategy"): "to be kept and to be varied",
            ("--set", "last_window.microbatches=2"): "cut short",
            ("--vary", "scheddule=1f1b"): "schedule",
            ("--keep", "strategy", "--keep", "layout", "--keep", "recompute.policy", "--keep", "micro_batch_size"):
                "all there is to vary",
        }.items():
            with self.subTest(arguments):
                done = run("solve", self.job, *arguments)
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertIn(words, done.stderr)
        self.assertEqual(run("solve", "nowhere.yaml").returncode, 2)

    def test_a_job_that_fits_by_simulation_only_is_found(self):
        job = JOBS / "llama-3-8b-fsdp2.yaml"
        done = run("solve", job, "--memory", "70GiB", "--keep", "strategy", "--keep", "layout", "--keep",
                   "recompute.policy", "--format", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        solution = json.loads(done.stdout)
        self.assertEqual(solution["options"][0]["change"], "")
        self.assertTrue(solution["now"]["fits"])

    def test_a_way_whose_first_steps_do_not_fit_is_none(self):
        """Megatron's first step makes what later steps find: a steady step fits 40 GiB, the first does not."""
        job = (JOBS / "gpt2-ddp.yaml", "--set", "strategy=megatron", "--set", "micro_batch_size=48")
        predicted = json.loads(run("predict", *job, "--format", "json").stdout)
        self.assertTrue(predicted["fits"])
        self.assertIn("first-steps-do-not-fit", [lint["id"] for lint in predicted["lints"]])
        kept = ("--keep", "strategy", "--keep", "layout", "--keep", "recompute.policy", "--top", 100)
        solution = json.loads(run("solve", *job, *kept, "--format", "json").stdout)
        self.assertTrue(solution["now"]["fits"])
        self.assertFalse(solution["begins"])
        self.assertGreater(solution["tight"], 0)
        self.assertGreater(len(solution["options"]), 0)
        self.assertNotIn("", [option["change"] for option in solution["options"]])

    def test_where_every_way_is_refused_it_says_why(self):
        refused = ("--set", "strategy=deepspeed-zero2", "--set", "sync.when=last", "--keep", "strategy", "--keep", "layout")
        solution = self.solve(*refused, code=1)
        self.assertEqual(solution["refused"], solution["size"])
        self.assertIn("gradient partitioning", solution["refusals"][0]["reason"])
        self.assertLessEqual(sum(refusal["count"] for refusal in solution["refusals"]), solution["refused"])
        text = run("solve", self.job, *refused).stdout
        self.assertIn("NOTHING TO CHOOSE FROM", text)
        self.assertNotIn("NOTHING FITS", text)

    def test_a_schedule_may_be_varied(self):
        solution = self.solve("--vary", "schedule=1f1b,zb-h1", "--set", "layout={dp: 1, tp: 1, pp: 4}", "--keep",
                              "layout", "--global-batch", 32, "--top", 20)
        self.assertIn("schedule", solution["varied"])
        self.assertIn(["schedule"], [option["differs_in"] for option in solution["options"]])


if __name__ == "__main__":
    unittest.main()

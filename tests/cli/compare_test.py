# SPDX-License-Identifier: Apache-2.0
"""The verb compare, from outside: which traces it takes, what it answers, and with which exit code."""

import json
import pathlib
import tempfile
import unittest

from tidemark import run


JOB = """network: gpt2
machine: a100-sxm-40gb
sequence_length: 512
micro_batch_size: 2
accumulation_steps: 3
layout: {dp: 4}
strategy: ddp-last
"""

CHANGES = {
    "job": [],
    "fp32-moments": ["--set", "precision.optimizer=fp32"],
    "every": ["--set", "strategy=ddp-every"],
    "foreach": ["--set", "optimizer_step.kernel=foreach"],
    "first": ["--step", "first"],
    "second": ["--step", "second"],
    "four": ["--steps", "4"],
    "eight": ["--steps", "8"],
    "stages": ["--set", "layout.pp=2"],
    "larger": ["--set", "network=gpt2-xl"],
}


class Compare(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.holder.cleanup)
        cls.folder = pathlib.Path(cls.holder.name)
        job = cls.folder / "job.yaml"
        job.write_text(JOB)
        for name, arguments in CHANGES.items():
            done = run("predict", job, "--exit-zero", "--trace", cls.trace(name), *arguments)
            assert done.returncode == 0, done.stderr

    @classmethod
    def trace(cls, name):
        return cls.folder / f"{name}.trace"

    def compare(self, predicted, measured, code):
        done = run("compare", self.trace(predicted), self.trace(measured), "--format", "json")
        self.assertEqual((done.returncode, done.stderr), (code, ""))
        return json.loads(done.stdout)

    def assert_refused(self, *arguments, says, hint=""):
        done = run("compare", *arguments)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertIn(says, done.stderr)
        self.assertIn(hint, done.stderr)
        return done.stderr

    def test_the_help_names_no_device_as_the_default(self):
        shown = run("compare", "--help").stdout
        self.assertIn("default: none, and two traces are compared", shown)
        self.assertIn("default: cpu", run("run", "--help").stdout)
        self.assertNotIn("default: cpu", shown)

    def test_a_trace_is_equal_to_itself(self):
        for name in ("job", "four", "stages"):
            report = self.compare(name, name, 0)
            self.assertEqual(report["schema"], "tidemark.comparison/1")
            for key in ("peak_error_bytes", "peak_error_percent", "reserved_error_percent", "step_time_error_percent"):
                self.assertEqual(report[key], 0, key)
            for key in ("unmatched", "causes", "independent"):
                self.assertEqual(report[key], [], key)
            self.assertIsNone(report["first_difference"])
            self.assertEqual([phase["predicted_peak_bytes"] for phase in report["phases"]],
                             [phase["measured_peak_bytes"] for phase in report["phases"]])
        self.assertEqual([role["role"] for role in report["roles"]], ["stage 0", "stage 1"])

    def test_moments_in_fp32_are_a_wrong_dtype_of_four_bytes_a_parameter(self):
        """AdamW has two moments a parameter: 2 x 2 bytes in bf16, 2 x 4 in fp32. GPT-2 has 124,439,808 parameters (768 x
        (50,257 + 1,024) embeddings, 12 layers of 7,087,872, a norm of 1,536), so the prediction in bf16 is 4 times that
        too low."""
        parameters = 768 * (50257 + 1024) + 12 * (4 * 768 * 768 + 8 * 768 * 768 + 13 * 768) + 2 * 768
        self.assertEqual(parameters, 124439808)
        report = self.compare("job", "fp32-moments", 1)
        self.assertEqual(report["peak_error_bytes"], -4 * parameters)
        causes = [cause for cause in report["causes"] if cause["of"] == "allocated"]
        self.assertEqual({cause["kind"] for cause in causes if cause["bytes"]}, {"dtype"})
        self.assertEqual(sum(cause["bytes"] for cause in causes), -4 * parameters)
        self.assertIn("first moment of embedding.embedding", [cause["tensors"][0] for cause in causes])
        self.assertEqual([job["key"] for job in report["jobs"]], ["precision.optimizer"])
        self.assertEqual(self.compare("fp32-moments", "job", 1)["peak_error_bytes"], 4 * parameters)
        self.assertEqual(run("compare", self.trace("job"), self.trace("fp32-moments"), "--exit-zero").returncode, 0)

    def test_the_causes_of_any_two_strategies_sum_to_the_errors(self):
        strategies = ["ddp-last", "fsdp1", "fsdp2-defer", "hsdp", "deepspeed-zero1", "deepspeed-zero3", "colossalai-gemini",
                      "megatron", "nanotron", "jax-multisteps", "single-backward"]
        for strategy in strategies:
            extra = ["--set", "shard.replicas=2"] if strategy == "hsdp" else []
            done = run("predict", self.folder / "job.yaml", "--exit-zero", "--set", f"strategy={strategy}", *extra,
                       "--trace", self.trace(strategy))
            self.assertEqual(done.returncode, 0, (strategy, done.stderr))
        for predicted, measured in zip(strategies, strategies[1:] + strategies[:1]):
            done = run("compare", self.trace(predicted), self.trace(measured), "--exit-zero", "--format", "json")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            report = json.loads(done.stdout)
            sums = {of: sum(cause[unit] for cause in report["causes"] if cause["of"] == of)
                    for of, unit in (("allocated", "bytes"), ("allocator", "bytes"), ("reserved", "bytes"), ("time", "ns"))}
            sides = report["predicted"], report["measured"]
            error = {key: sides[0][key] - sides[1][key] for key in ("peak_bytes", "allocator_bytes", "reserved_bytes", "step_ns")}
            self.assertEqual(sums["allocated"], error["peak_bytes"], (predicted, measured))
            self.assertEqual(sums["allocated"] + sums["allocator"], error["allocator_bytes"])
            self.assertEqual(sums["allocated"] + sums["allocator"] + sums["reserved"], error["reserved_bytes"])
            self.assertEqual(sums["time"], error["step_ns"])
            self.assertEqual(report["peak_error_bytes"], error["peak_bytes"])
            for side in sides:
                self.assertEqual(sum(side["by_category"].values()), side["peak_bytes"])

    def test_time_may_differ_where_no_byte_does(self):
        report = self.compare("job", "every", 0)
        self.assertEqual(report["peak_error_bytes"], 0)
        self.assertIsNone(report["first_difference"])
        self.assertLess(report["step_time_error_percent"], 0)
        times = [cause for cause in report["causes"] if cause["of"] == "time"]
        self.assertEqual(sum(cause["ns"] for cause in times), report["predicted"]["step_ns"] - report["measured"]["step_ns"])
        reductions = next(row for row in report["operators"] if row["name"] == "reduce bucket")
        self.assertEqual(reductions["measured_count"], 3 * reductions["predicted_count"])   # in each of 3 microbatches

    def test_scratch_of_a_foreach_optimizer_is_workspace_that_the_peak_does_not_feel(self):
        report = self.compare("job", "foreach", 0)
        causes = [cause for cause in report["causes"] if cause["of"] == "allocated"]
        renamed = [cause for cause in causes if cause["kind"] in ("renamed", "missing", "extra")]
        for tensor in (tensor for cause in renamed for tensor in cause["tensors"]):
            self.assertIn("moment", tensor)  # foreach has a block's in one buffer
        self.assertEqual(sum(cause["bytes"] for cause in renamed), 0)
        self.assertEqual(report["predicted"]["by_category"]["optimizer"], report["measured"]["by_category"]["optimizer"])
        self.assertEqual({cause["kind"] for cause in causes if cause not in renamed}, {"workspace"})
        self.assertEqual({(row["only"], row["phase"], row["category"]) for row in report["unmatched"]
                          if row["category"] != "optimizer"}, {("measured", "optimizer", "workspace")})
        optimizer = next(phase for phase in report["phases"] if phase["phase"] == "optimizer")
        self.assertLess(optimizer["largest_error_bytes"], 0)
        self.assertEqual(optimizer["largest_error_at"]["phase"], "optimizer")

    def test_one_step_is_compared_with_the_one_of_its_kind(self):
        report = self.compare("job", "four", 0)
        self.assertEqual(report["steps"], ["steady"])
        self.assertEqual((report["peak_error_bytes"], report["step_time_error_percent"]), (0, 0))
        self.assertEqual(self.compare("first", "four", 0)["steps"], ["first"])
        self.assert_refused(self.trace("first"), self.trace("job"),
                            says="the predicted one has first and the measured one steady", hint="--step steady")

    def test_a_steady_step_is_the_last_one_of_a_recording_that_knows_no_kinds(self):
        """PyTorch's profile of two steps: momentum is there in the second one only."""
        samples = pathlib.Path(__file__).resolve().parents[1] / "traces" / "samples"
        job, one, two = (samples / f"torch-2.15-cpu-resnet{rest}" for rest in (".yaml", "-1.json.gz", "-4.json.gz"))
        done = {}
        for name, steps in {"steady": [], "both": ["--steps", 2]}.items():
            trace = self.folder / f"{name}.trace"
            self.assertEqual(run("predict", job, "--observed", one, *steps, "--trace", trace).returncode, 0)
            done[name] = json.loads(run("compare", trace, two, "--format", "json").stdout)
        steady, both = done["steady"], done["both"]
        self.assertEqual((steady["measured"]["steps_compared"], steady["measured"]["steps_of_trace"]), ([1], 2))
        self.assertIsNone(both["measured"]["steps_compared"])
        self.assertEqual(steady["measured"]["peak_bytes"], both["measured"]["peak_bytes"])
        text = " ".join(run("compare", self.folder / "steady.trace", two).stdout.split())
        self.assertIn("of its 2 steps one is compared: 2", text)

    def test_steps_without_kinds_are_counted_from_where_the_prediction_stands(self):
        """A snapshot tells no kinds; what is cut off ends within a step that is not compared."""
        snapshot, kindless, cut = (self.folder / name for name in ("four.pickle", "kindless.trace", "cut.trace"))
        self.assertEqual(run("convert", self.trace("eight"), "-o", snapshot).returncode, 0)
        self.assertEqual(run("convert", snapshot, "-o", kindless).returncode, 0)

        def compared(predicted, measured):
            report = json.loads(run("compare", self.trace(predicted), measured, "--format", "json").stdout)
            return report["measured"]["steps_compared"], report["peak_error_bytes"]

        self.assertEqual(compared("job", kindless), ([7], 0))
        self.assertEqual(compared("second", kindless), ([1], 0))
        self.assertEqual(compared("first", kindless), ([0], 0))
        whole = kindless.read_bytes()
        cut.write_bytes(whole[:len(whole) * 7 // 10])
        [step], error = compared("job", cut)
        self.assertIn(step, range(2, 7))
        self.assertEqual(error, 0)

    def test_text_and_markdown_say_the_same_twice(self):
        for form in ("text", "markdown", "json"):
            arguments = ("compare", self.trace("job"), self.trace("fp32-moments"), "--format", form)
            self.assertEqual(run(*arguments).stdout, run(*arguments).stdout)
        text = run("compare", self.trace("job"), self.trace("fp32-moments")).stdout
        self.assertIn("too low", text)
        self.assertRegex(text, r"dtype: first moment of layer.down \(optimizer\) is fp32")
        self.assertLessEqual(max(map(len, text.splitlines())), 100)

    def test_the_page_holds_both_curves_and_says_which_is_which(self):
        page = self.folder / "both.html"
        done = run("compare", self.trace("job"), self.trace("every"), "--html", page)
        self.assertEqual(done.returncode, 0, done.stderr)
        text = page.read_text()
        self.assertEqual(text.count('<script type="application/json" class="trace"'), 2)
        self.assertIn('data-label="predicted (job)"', text)
        self.assertIn('data-label="predicted (every)" data-dashed', text)
        self.assert_refused(self.trace("job"), self.trace("every"), "--html", self.trace("job"), says="would be overwritten")

    def test_a_trace_that_is_cut_short_is_compared_but_never_agrees(self):
        whole = self.trace("job").read_bytes()
        cut = self.folder / "cut.trace"
        cut.write_bytes(whole[:-1])  # all of its events, but not its end
        for arguments, side in (((self.trace("job"), cut), "measured"), ((cut, self.trace("job")), "predicted")):
            done = run("compare", *arguments, "--format", "json")
            self.assertEqual(done.returncode, 1, done.stderr)
            comparison = json.loads(done.stdout)
            self.assertEqual(comparison["peak_error_bytes"], 0)
            self.assertIn("cut off or damaged after", comparison[side]["cut_short"])
            self.assertIsNone(comparison["measured" if side == "predicted" else "predicted"]["cut_short"])
            self.assertIn("cut.trace is cut short", " ".join(run("compare", *arguments).stdout.split()))
        cut.write_bytes(whole[:len(whole) // 2])
        done = run("compare", self.trace("job"), cut)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("cut.trace is cut short", " ".join(done.stdout.split()))

    def test_what_cannot_be_compared_is_refused_in_a_sentence(self):
        text = self.folder / "text.trace"
        text.write_text("hello")
        job = self.trace("job")
        self.assert_refused(text, job, says="text.trace: this is not a trace file of a known format")
        self.assert_refused(job, self.folder / "missing.trace", says="missing.trace: there is no such file")
        self.assert_refused(job, says="compare needs two traces, or a job and --device")
        self.assert_refused(job, self.trace("larger"), says="network.name is gpt2 in the first and gpt2-xl in the second",
                            hint="tidemark report")
        self.assert_refused(job, self.trace("stages"), says="layout.pp is 1 in the first and 2 in the second")


if __name__ == "__main__":
    unittest.main()

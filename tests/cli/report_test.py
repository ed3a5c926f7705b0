# SPDX-License-Identifier: Apache-2.0
"""The verb report, and the traces of several steps that it reads, from outside."""

import json
import os
import pathlib
import pickle
import tempfile
import unittest

from tidemark import run


JOBS = pathlib.Path(__file__).resolve().parents[1] / "jobs"
JOB = """network: gpt2
machine: a100-sxm-40gb
sequence_length: 512
micro_batch_size: 2
accumulation_steps: 3
layout: {dp: 4}
strategy: ddp-last
"""


class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.holder.cleanup)
        cls.folder = pathlib.Path(cls.holder.name)
        cls.job = cls.folder / "job.yaml"
        cls.job.write_text(JOB)
        cls.predictions = {}
        for name, arguments in {"last": [], "zero2": ["--set", "strategy=deepspeed-zero2"],
                                "four": ["--steps", "4"]}.items():
            done = run("predict", cls.job, "--trace", cls.folder / f"{name}.trace", "--format", "json", *arguments)
            assert done.returncode == 0, done.stderr
            cls.predictions[name] = json.loads(done.stdout)

    def trace(self, name):
        return self.folder / f"{name}.trace"

    def json(self, *names):
        done = run("report", *map(self.trace, names), "--format", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def report(self, path):
        return json.loads(run("report", path, "--format", "json").stdout)["traces"][0]

    def assert_refused(self, *arguments, says):
        done = run("report", *arguments)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertTrue(done.stderr.startswith("tidemark: error: "), done.stderr)
        self.assertIn(says, done.stderr)

    def test_the_peak_of_a_trace_is_that_of_its_prediction(self):
        for name, prediction in self.predictions.items():
            trace = self.json(name)["traces"][0]
            for key in ("allocated_bytes", "allocator_bytes", "reserved_bytes", "device_bytes", "by_category", "at", "live"):
                self.assertEqual(trace["peak"][key], prediction["peak"][key], (name, key))
            self.assertEqual(trace["fits"], prediction["fits"])
            self.assertEqual((trace["format"], trace["origin"]), ("tidemark", "predicted"))
            self.assertGreater(trace["events"], 100)

    def test_the_published_nanotron_run_is_out_of_memory_where_pooled_gathers_and_megatron_fit(self):
        """Llama-70B, tp 8, pp 4, sequence 8192, accumulation 4 on 80 GB (nanotron, pull request 203), five steps.

        The first stage holds 4 microbatches of its 20 layers. Each keeps two gathered inputs of 2 x 8192 x 8192 bytes and,
        with an eager GLU, silu of 2 x 8192 x 28672 / 8 bytes.
        """
        job = pathlib.Path(__file__).resolve().parents[1] / "jobs" / "llama-3-70b-tp8-pp4.yaml"
        ways = {"kept": ["buffers.tp_gather=cached", "buffers.fused_glu=false"], "pooled": ["buffers.tp_gather=pooled"],
                "megatron": ["strategy=megatron"]}
        for name, changes in ways.items():
            done = run("predict", job, "--steps", 5, "--exit-zero", "--trace", self.trace(name),
                       *[word for change in changes for word in ("--set", change)])
            self.assertEqual(done.returncode, 0, done.stderr)
        report = self.json(*ways)
        self.assertEqual([trace["fits"] for trace in report["traces"]], [False, True, True])
        self.assertGreater(report["traces"][0]["peak"]["allocated_bytes"], 80 * 2**30)
        for difference in report["differences"]:
            tensors = {(row["name"], row["category"]): row for row in difference["tensors"]}
            for gathered in ("layer.qkv_in", "layer.gu_in"):
                self.assertEqual(tensors[gathered, "tp_gather"]["difference_bytes"], -20 * 4 * 2 * 8192 * 8192)
            self.assertEqual(tensors["layer.silu", "activation"]["difference_bytes"], -20 * 4 * 2 * 8192 * 28672 // 8)

    def test_differences_add_up_to_that_of_the_peaks(self):
        report = self.json("last", "zero2", "four")
        self.assertEqual(report["schema"], "tidemark.report/1")
        first = report["traces"][0]["peak"]["allocated_bytes"]
        self.assertEqual(len(report["differences"]), 2)
        for difference, trace in zip(report["differences"], report["traces"][1:]):
            self.assertEqual(difference["peak_delta_bytes"], trace["peak"]["allocated_bytes"] - first)
            self.assertEqual(sum(tensor["difference_bytes"] for tensor in difference["tensors"]), difference["peak_delta_bytes"])
            self.assertEqual(sum(tensor["bytes_before"] for tensor in difference["tensors"]), first)
            sizes = [abs(tensor["difference_bytes"]) for tensor in difference["tensors"]]
            self.assertEqual(sizes, sorted(sizes, reverse=True))

    def test_several_steps_are_told_and_the_peak_names_its_step(self):
        self.assertEqual(self.json("four")["traces"][0]["steps"], 4)
        steps = self.predictions["four"]["steps"]
        self.assertEqual([(step["kind"], step["count"]) for step in steps], [("first", 1), ("second", 1), ("steady", 2)])
        self.assertEqual(self.predictions["four"]["time"]["step_ns"], sum(step["step_ns"] * step["count"] for step in steps))
        self.assertEqual(self.predictions["four"]["peak"]["allocated_bytes"], max(step["allocated_bytes"] for step in steps))
        self.assertIn("step 2", run("report", self.trace("four")).stdout)

    def test_one_step_is_the_first(self):
        self.assertEqual(run("predict", self.job, "--steps", "1", "--format", "json").stdout,
                         run("predict", self.job, "--step", "first", "--format", "json").stdout)

    def test_both_engines_agree_over_several_steps(self):
        for steps in ("1", "2", "3", "5"):
            done = run("predict", self.job, "--steps", steps, "--engine", "both")
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_says_which_peaks_highest_and_why(self):
        text = run("report", self.trace("last"), self.trace("zero2")).stdout
        self.assertIn("last peaks highest", text)
        self.assertIn("strategy", text)            # where the jobs differ
        self.assertLessEqual(max(map(len, text.splitlines())), 100)

    def test_the_ending_of_the_file_decides_its_form(self):
        for name, begin in {"x.html": "<!DOCTYPE html>", "x.md": "## ", "x.json": "{", "x.txt": "Peak memory"}.items():
            done = run("report", self.trace("last"), self.trace("four"), "-o", self.folder / name)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
            self.assertTrue((self.folder / name).read_text().startswith(begin), name)

    def test_says_the_same_twice(self):
        for form in ("text", "json", "markdown"):
            arguments = ("report", self.trace("last"), self.trace("zero2"), "--format", form)
            self.assertEqual(run(*arguments).stdout, run(*arguments).stdout)

    def test_of_a_trace_that_is_cut_short_what_there_is_is_told_and_that_something_is_missing(self):
        whole = self.trace("last").read_bytes()
        cut = self.folder / "cut.trace"
        fits = set()
        for length in range(18, len(whole), max(1, len(whole) // 40)):
            cut.write_bytes(whole[:length])
            done = run("report", cut, "--format", "json")
            if done.returncode == 2:
                self.assertIn("cut off before its first one", done.stderr)
                continue
            self.assertEqual(done.returncode, 0, done.stderr)
            trace = json.loads(done.stdout)["traces"][0]
            self.assertIn("cut off or damaged after", trace["cut_short"])
            fits.add(trace["fits"])
        self.assertNotIn(True, fits)  # the peak may be in what is missing
        done = run("report", cut)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("is cut short: the file was cut off or damaged after", " ".join(done.stdout.split()))
        whole_report = json.loads(run("report", self.trace("last"), "--format", "json").stdout)
        self.assertIsNone(whole_report["traces"][0]["cut_short"])

    def test_what_a_part_is_told_of_the_device_does_not_add_up_with_the_whole(self):
        whole = self.trace("last").read_bytes()
        cut = self.folder / "part.trace"
        cut.write_bytes(whole[:len(whole) * 2 // 3])
        self.assertIn("context, communicators, workspaces", run("report", self.trace("last")).stdout)
        self.assertNotIn("context, communicators, workspaces", run("report", cut).stdout)
        self.assertIsNone(json.loads(run("report", cut, "--format", "json").stdout)["traces"][0]["peak"]["device_bytes"])

    def test_out_of_memory_is_told_of_whoever_says_so(self):
        """A prediction under a limit, a run, and a snapshot that PyTorch dumps when it runs out."""
        small = self.folder / "small.trace"
        done = run("predict", JOBS / "gpt2-ddp.yaml", "--capacity", "8GiB", "--trace", small)
        self.assertIn("OUT OF MEMORY under a limit of 8.00 GiB", done.stdout)
        text = " ".join(run("report", small).stdout.split())
        self.assertIn("small ran out of memory.", text)
        self.assertIn("is cut short: a request of", text)
        self.assertIn("a request was refused at", text)
        trace = self.report(small)
        self.assertLessEqual(trace["peak"]["reserved_bytes"], 8 * 2**30)
        self.assertEqual(trace["device_memory_bytes"], 40 * 2**30)  # of the machine: the limit is the allocator's
        self.assertIs(trace["fits"], False)
        [refused] = trace["out_of_memory"]
        self.assertIs(refused["ends"], True)
        run("predict", JOBS / "gpt2-ddp.yaml", "--trace", self.folder / "whole.trace")
        self.assertLess(trace["span_ns"], self.report(self.folder / "whole.trace")["span_ns"])

        run("predict", JOBS / "gpt2-ddp.yaml", "--set", "strategy=nanotron", "--set", "layout.pp=2", "--set", "layout.dp=4",
            "--capacity", "4.3GiB", "--trace", self.folder / "stages.trace")
        text = " ".join(run("report", self.folder / "stages.trace").stdout.split())
        self.assertIn("a request of stage 1 was refused", text)
        self.assertIn(", stage 0", text)  # which the page is about

        done = run("run", JOBS / "demo-small.yaml", "--set", "layout.tp=1", "--set", "layout.sp=false", "--capacity", "60MiB",
                   "--trace", self.folder / "run.trace")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("run ran out of memory.", run("report", self.folder / "run.trace").stdout)

    def test_a_limit_that_is_wide_enough_changes_nothing_of_what_a_process_takes(self):
        free, limited = self.folder / "free.trace", self.folder / "limited.trace"
        run("predict", JOBS / "gpt2-ddp.yaml", "--trace", free)
        run("predict", JOBS / "gpt2-ddp.yaml", "--capacity", "30GiB", "--trace", limited)
        self.assertEqual(self.report(free)["peak"]["device_bytes"], self.report(limited)["peak"]["device_bytes"])
        self.assertIsNotNone(self.report(limited)["peak"]["device_bytes"])

    def test_a_snapshot_tells_where_memory_ran_out(self):

        entries = [{"action": "alloc", "addr": 1 << 22, "size": 1024, "stream": 0, "time_us": 5, "frames": []},
                   {"action": "oom", "addr": 5, "size": 1 << 30, "stream": 0, "time_us": 9, "frames": [], "device_free": 5}]
        dumped = self.folder / "oom.pickle"
        dumped.write_bytes(pickle.dumps({"segments": [], "device_traces": [entries]}, protocol=4))
        done = run("report", dumped)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("a request was refused at", " ".join(done.stdout.split()))
        self.assertNotIn("a request was refused at", " ".join(run("report", self.trace("last")).stdout.split()))

    def test_a_file_name_that_is_no_text_makes_a_page_of_text(self):
        odd = os.fsencode(self.folder) + b"/n\xff.trace"
        with open(odd, "wb") as file:
            file.write(self.trace("last").read_bytes())
        page = self.folder / "odd.html"
        self.assertEqual(run("report", os.fsdecode(odd), "-o", page).returncode, 0)
        self.assertIn("n\ufffd", page.read_bytes().decode("utf-8"))
        job = os.fsencode(self.folder) + b"/j\xff.yaml"
        with open(job, "w", encoding="utf-8") as file:
            file.write(JOB)
        self.assertEqual(run("predict", os.fsdecode(job), "--trace", self.folder / "of_odd.trace").returncode, 0)
        self.assertEqual(run("report", self.folder / "of_odd.trace").returncode, 0)

    def test_what_is_no_trace_is_refused_in_a_sentence(self):
        whole = self.trace("last").read_bytes()
        empty, text = self.folder / "empty.trace", self.folder / "text.trace"
        empty.write_bytes(b"")
        text.write_text("hello")
        self.assert_refused(self.folder / "missing.trace", says="missing.trace: there is no such file")
        self.assert_refused(self.folder, says="is a directory")
        self.assert_refused(self.trace("last"), empty, says="empty.trace: the file is empty")
        self.assert_refused(text, says="text.trace: this is not a trace file of a known format")
        self.assert_refused(says="TRACE is required")
        none = self.folder / "none.trace"
        none.write_bytes(whole[:17])
        self.assert_refused(none, says="cut off before its first one")

    def test_contradictions_and_unknown_names_are_refused_and_nothing_is_written(self):
        trace = self.trace("last")
        before = sorted(path.name for path in self.folder.iterdir())
        self.assert_refused(trace, "-o", self.folder / "report.pdf", says="ends in .html, .md, .json or .txt")
        self.assert_refused(trace, "-o", self.folder / "y.html", "--format", "json", says="contradicts --format")
        self.assert_refused(trace, "--role", "stage 7", says="no trace has a role 'stage 7'")
        self.assert_refused(*[trace] * 9, says="9 traces are more than the 8")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), before)


if __name__ == "__main__":
    unittest.main()

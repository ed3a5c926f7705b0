# SPDX-License-Identifier: Apache-2.0
"""Experiments with steps of ours, rehearsed on the processor: what a record holds, and what is said of it. And every
record that is kept gives here what it gave where it was made."""

import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from steps.case import COUNTS, cases
from steps.verdict import verdict_of

PROGRAM = os.environ["TIDEMARK_PROGRAM"]
HERE = pathlib.Path(__file__).resolve().parent
RECORDED = HERE / "recorded"


def call(*words):
    return subprocess.run([sys.executable, str(HERE / "own_steps.py"), *map(str, words)], capture_output=True, text=True,
                          timeout=280, check=False)


def compared_again(record, folder):
    """What the program says today of the record's two traces."""
    paths = []
    for name in record["traces"].values():
        paths.append(pathlib.Path(folder) / name.removesuffix(".gz"))
    return json.loads(subprocess.run([PROGRAM, "compare", *map(str, paths), "--format", "json"], capture_output=True,
                                     text=True, check=False).stdout)


class Cases(unittest.TestCase):
    def test_each_is_a_job_that_is_predicted(self):
        for rehearsal in (False, True):
            chosen = cases("h100-sxm-80gb", ["ddp-last"], rehearsal)
            self.assertEqual(len({case.name for case in chosen}), len(chosen))
            for case in chosen:
                with self.subTest(case.name), tempfile.NamedTemporaryFile("w", suffix=".yaml") as job:
                    job.write(case.job)
                    job.flush()
                    done = subprocess.run([PROGRAM, "predict", job.name, "--format", "json"], capture_output=True,
                                          text=True, check=False)
                    self.assertEqual(done.returncode, 0, "it fits the GPU: " + done.stderr)

    def test_those_of_most_worth_come_first(self):
        names = [case.name for case in cases("cpu", ["a", "b"], False)]
        self.assertEqual(names[0], "real-gpt2")
        accumulation = [name for name in names if name.startswith("accumulation-")]
        self.assertEqual(accumulation[:3], ["accumulation-a-m4", "accumulation-b-m4", "accumulation-a-m1"])
        self.assertEqual(sorted(COUNTS), [1, 2, 4, 8, 16])


class Rehearsal(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.holder.cleanup)
        cls.out = pathlib.Path(cls.holder.name)
        cls.done = call("--rehearse", "--tidemark", PROGRAM, "--out", cls.out, "--cases", "*-rehearsed")
        cls.more = call("--rehearse", "--tidemark", PROGRAM, "--out", cls.out, "--cases", "accumulation-[dh]*-m2")

    def test_records_what_was_predicted_and_what_was_measured(self):
        self.assertEqual(self.done.returncode, 0, self.done.stdout + self.done.stderr)
        record = json.loads((self.out / "real-rehearsed.json").read_text(encoding="utf-8"))
        for key in ("gpu", "driver", "cuda", "nccl", "date", "job", "predicted", "measured", "compared"):
            self.assertIn(key, record)
        self.assertEqual(record["device"], "cpu")
        self.assertEqual(record["predicted"]["schema"], "tidemark.prediction/1")
        self.assertEqual(record["measured"]["schema"], "tidemark.run/1")
        self.assertEqual(record["recorded"]["schema"], "tidemark.run/1")
        self.assertEqual(record["compared"]["peak_error_bytes"], 0)

    def test_what_learns_must_learn(self):
        verdict = verdict_of(self.out / "learn-rehearsed.json")
        self.assertLess(verdict.losses[1], verdict.losses[0])
        self.assertTrue(verdict.is_right)
        path = self.out / "learn-again.json"
        record = json.loads((self.out / "learn-rehearsed.json").read_text(encoding="utf-8"))
        record["measured"]["steps"].reverse()
        path.write_text(json.dumps(record), encoding="utf-8")
        self.assertFalse(verdict_of(path).is_right)
        path.unlink()

    def test_strategies_that_one_rank_cannot_have_are_left_out_with_their_reason(self):
        self.assertEqual(self.more.returncode, 0, self.more.stdout + self.more.stderr)
        self.assertRegex(self.more.stdout, r"accumulation-hsdp-m2  left out: tidemark \w+ ended with 2: .*replica")
        self.assertFalse((self.out / "accumulation-hsdp-m2.json").exists())
        self.assertTrue((self.out / "accumulation-ddp-last-m2.json").exists())

    def test_the_table_tells_errors_and_ends_with_1_where_there_are_any(self):
        table = call("table", self.out, "--cases", "accumulation-ddp-last-m2")
        self.assertEqual(table.returncode, 0, table.stderr)
        self.assertRegex(table.stdout, r"accumulation-ddp-last-m2 +[\d,]+ +\+0 +\+0.00 %")
        record = json.loads((self.out / "accumulation-ddp-last-m2.json").read_text(encoding="utf-8"))
        record["measured"]["peak"]["allocated_bytes"] -= 8
        wrong = self.out / "accumulation-wrong-m2.json"
        wrong.write_text(json.dumps(record), encoding="utf-8")
        table = call("table", self.out, "--cases", "accumulation-wrong-m2")
        wrong.unlink()
        self.assertEqual(table.returncode, 1)
        self.assertRegex(table.stdout, r"accumulation-wrong-m2 +[\d,]+ +\+8 ")

    def test_a_record_that_cannot_be_read_is_a_row_that_says_so(self):
        for damaged in ("", "{", '{"traces": null}'):
            path = self.out / "damaged.json"
            path.write_text(damaged, encoding="utf-8")
            table = call("table", self.out, "--cases", "damaged")
            path.unlink()
            self.assertEqual(table.returncode, 1, table.stderr)
            self.assertRegex(table.stdout, r"damaged +.*damaged.json cannot be read")

    def test_a_recorded_pair_compares_as_it_did(self):
        record = json.loads((self.out / "real-rehearsed.json").read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory() as folder:
            for name in record["traces"].values():
                whole = gzip.decompress((self.out / name).read_bytes())
                (pathlib.Path(folder) / name.removesuffix(".gz")).write_bytes(whole)
            again = compared_again(record, folder)
        for key in ("peak_error_bytes", "peak_error_percent", "reserved_error_percent", "step_time_error_percent",
                    "phases", "unmatched", "causes"):
            self.assertEqual(again[key], record["compared"][key], key)

    def test_records_are_not_made_twice(self):
        before = (self.out / "real-rehearsed.json").stat().st_mtime_ns
        again = call("--rehearse", "--tidemark", PROGRAM, "--out", self.out, "--cases", "real-rehearsed")
        self.assertEqual(again.returncode, 0)
        self.assertEqual((self.out / "real-rehearsed.json").stat().st_mtime_ns, before)


class Refusals(unittest.TestCase):
    def test_words_that_mean_nothing(self):
        for words, says in ((("--cases", "nothing", "--rehearse", "--tidemark", PROGRAM), "no case is called 'nothing'"),
                            (("--rehearse",), "--tidemark PATH"), (("table",), "table needs a folder"),
                            (("--rehearse", "--tidemark", "/nowhere"), "No such file")):
            done = call(*words)
            self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
            self.assertIn(says, done.stderr)

    def test_what_leaves_no_case(self):
        with tempfile.TemporaryDirectory() as folder:
            rehearse = ("--rehearse", "--tidemark", PROGRAM, "--out", folder, "--cases", "real-rehearsed")
            done = call(*rehearse, "--machine", "h100-sxm-80bg")
            self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
            self.assertIn("h100-sxm-80bg", done.stdout)
            self.assertEqual(call(*rehearse, "--time-box", "0").returncode, 124)
            self.assertEqual(call(*rehearse[:4], PROGRAM, *rehearse[5:]).returncode, 2, "--out is no folder")

    def test_without_a_gpu_one_sentence_says_so(self):
        if json.loads(subprocess.run([PROGRAM, "doctor", "--format", "json"], capture_output=True, text=True,
                                     check=True).stdout)["gpus"]:
            self.skipTest("this machine has a GPU")
        done = call("--tidemark", PROGRAM)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (3, 1))
        self.assertIn("tidemark doctor says why", done.stderr)


class Recorded(unittest.TestCase):
    """Those of tests/gpu/recorded that hold two traces."""

    def test_each_compares_as_it_did_where_it_was_made(self):
        for path in sorted(RECORDED.glob("*.json")):
            record = json.loads(path.read_text(encoding="utf-8"))
            if not record.get("traces"):
                continue
            with self.subTest(path.name), tempfile.TemporaryDirectory() as folder:
                for name in record["traces"].values():
                    whole = gzip.decompress((RECORDED / name).read_bytes())
                    (pathlib.Path(folder) / name.removesuffix(".gz")).write_bytes(whole)
                again = compared_again(record, folder)
                for key in ("peak_error_bytes", "reserved_error_percent", "step_time_error_percent", "phases"):
                    self.assertEqual(again[key], record["compared"][key], key)


if __name__ == "__main__":
    unittest.main()

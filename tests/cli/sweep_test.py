# SPDX-License-Identifier: Apache-2.0
"""The verb sweep, from outside: its rows are predictions, nothing disappears, and what was priced survives."""

import csv
import json
import os
import pathlib
import re
import signal
import subprocess
import time
import unittest

from swept_job import JOB, SweptJob, sweep, vary
from tidemark import PROGRAM, run


def mpirun(ranks, *arguments):
    return ["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", str(ranks), PROGRAM, *map(str, arguments)]


def children_of(parent):
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # gone meanwhile
        if int(fields[1]) == parent:
            found.append(int(stat.parent.name))
    return found


def beats(a, b):
    """Whether a is better than b on both axes of the usual front, or on one and equal on the other."""
    x, y = (a["allocated_bytes"], a["step_ns"]), (b["allocated_bytes"], b["step_ns"])
    return x != y and x[0] <= y[0] and x[1] <= y[1]


class Sweep(SweptJob):
    def test_a_row_is_a_prediction(self):
        report = sweep(*vary(strategy="ddp-last,fsdp2-defer,deepspeed-zero2", micro_batch_size="1,3",
                             accumulation_steps="1,2,7..9"))
        self.assert_adds_up(report)
        self.assertEqual((report["schema"], report["size"], report["evaluated"]), ("tidemark.sweep/1", 30, 30))
        self.assertEqual(len(report["rows"]), 30)
        for row in report["rows"][::7]:
            keys = {key: row[key] for key in ("strategy", "micro_batch_size", "accumulation_steps")}
            sets = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
            one = json.loads(run("predict", JOB, *sets, "--format", "json", "--exit-zero").stdout)
            self.assertEqual(row["allocated_bytes"], one["peak"]["allocated_bytes"], keys)
            self.assertEqual(row["by_category"], one["peak"]["by_category"], keys)
            self.assertEqual(row["step_ns"], one["time"]["step_ns"], keys)
            self.assertEqual(row["tokens_per_s_per_gpu"], one["throughput"]["tokens_per_s_per_gpu"], keys)

    def test_rows_that_fit_come_first_then_faster_ones(self):
        rows = sweep(*vary(layout__dp="4..32:x2", micro_batch_size="1..4"))["rows"]
        self.assertIn(False, [row["fits"] for row in rows])
        self.assertEqual(rows, sorted(rows, key=lambda row: (not row["fits"], row["step_ns"])))

    def test_no_row_of_the_front_is_beaten(self):
        arguments = vary(recompute__policy="none,full", micro_batch_size="1..4", layout__tp="1,2,4")
        rows = sweep(*arguments)["rows"]
        front = [row for row in rows if row["pareto"]]
        self.assertEqual(front, [row for row in rows if not any(beats(other, row) for other in rows)])
        shown = sweep(*arguments, "--pareto")["rows"]
        self.assertEqual(sorted(shown, key=str), sorted(front, key=str))

    def test_pruning_loses_nothing_of_the_front(self):
        arguments = vary(strategy="ddp-last,fsdp2-defer,deepspeed-zero2,nanotron", micro_batch_size="1..4",
                         recompute__policy="none,full", layout__tp="1,2,4", accumulation_steps="1..16",
                         machine="h100-sxm-80gb,a100-sxm-80gb,l40s-48gb")
        everything = sweep(*arguments)
        front = [row for row in everything["rows"] if row["pareto"]]
        for metrics in ("allocated_bytes,step_ns", "step_ns,allocated_bytes"):
            pruned = sweep(*arguments, "--pareto", metrics, "--threads", 2)
            self.assert_adds_up(pruned)
            self.assertGreater(pruned["pruned"], everything["size"] / 10)
            self.assertEqual(pruned["rows"], front)
            self.assertEqual(pruned["feasible"], everything["feasible"])
            alone = sweep(*arguments, "--pareto", metrics, "--threads", 1)
            self.assertEqual({**alone, "seconds": 0}, {**pruned, "seconds": 0})
        times_only = sweep(*arguments, "--pareto", "bubble_ns,step_ns")
        self.assertEqual(times_only["pruned"], 0)

    def test_what_is_refused_is_counted_with_the_reason(self):
        report = sweep(*vary(layout__tp="1,2,3", layout__dp="2,4"))
        self.assert_adds_up(report)
        self.assertEqual(report["refused"], 2)
        self.assertIn("do not divide over 3 ranks", report["refusals"][0]["reason"])

    def test_a_misspelled_value_is_refused_with_the_nearest(self):
        report = sweep(*vary(strategy="ddp-lst,ddp-every"))
        self.assertEqual(report["refused"], 1)
        self.assertTrue(report["refusals"][0]["reason"].endswith("found 'ddp-lst' (did you mean ddp-last?)"), report)

    def test_where_nothing_can_be_priced_the_exit_code_says_so(self):
        done = run("sweep", JOB, *vary(layout__tp="3,5"))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(run("sweep", JOB, *vary(layout__tp="3,5"), "--exit-zero").returncode, 0)

    def test_a_mistake_in_the_file_is_told_with_its_place_once(self):
        job = self.folder / "job.yaml"
        job.write_text(JOB.read_text() + "machine.processors: 0\n")
        for verb in (("sweep", job, *vary(micro_batch_size="1,2")), ("solve", job)):
            done = run(*verb)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertEqual(re.findall(r"job\.yaml:?[0-9]*", done.stderr.splitlines()[0]), ["job.yaml:9"], done.stderr)

    def test_what_is_varied_may_be_what_is_wrong_with_the_job(self):
        job = self.folder / "job.yaml"
        job.write_text(JOB.read_text() + "layout.tp: 3\n")
        self.assertEqual(run("predict", job).returncode, 2)
        done = run("sweep", job, *vary(layout__tp="1,2"), "--format", "json")
        self.assertEqual((done.returncode, json.loads(done.stdout)["evaluated"]), (0, 2), done.stderr)

    def test_values_keep_their_quotes(self):
        network = self.folder / "a: b.json"
        network.write_text(json.dumps({"model_type": "llama", "hidden_size": 256, "intermediate_size": 512,
                                       "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 1024}))
        report = sweep("--vary", f'network="{network}",llama-3-8b')
        self.assertEqual(report["evaluated"], 2, report["refusals"])

    def test_the_fastest_and_the_lowest_are_those_of_all_rows(self):
        arguments = vary(recompute__policy="none,full", micro_batch_size="1,2", layout__tp="1,2,4")
        rows = sweep(*arguments)["rows"]
        fastest = rows[0]
        text = run("sweep", JOB, *arguments, "--pareto", "device_high_bytes,bubble_ns").stdout
        line = next(line for line in text.splitlines() if "fastest that fits" in line)
        self.assertIn(f"{fastest['step_ns'] / 1e9:.2f} s", line)
        line = next(line for line in text.splitlines() if "lowest peak" in line)
        self.assertIn(f"{min(row['allocated_bytes'] for row in rows) / 2 ** 30:.2f} GiB", line)

    def test_every_metric_is_in_the_rows(self):
        help_text = run("sweep", "--help").stdout
        metrics = re.search(r"there are ([a-z_, ]+)", help_text).group(1).split(", ")
        self.assertIn("host_bytes", metrics)
        row = sweep(*vary(micro_batch_size="1,2"))["rows"][0]
        for metric in metrics:
            self.assertIn(metric.strip(), row)

    def test_a_global_batch_decides_the_number_of_microbatches(self):
        report = sweep("--global-batch", 96, *vary(layout__dp="4,8,16", micro_batch_size="1,2,5"))
        self.assert_adds_up(report)
        self.assertEqual(report["refused"], 3)  # those of 5
        self.assertTrue(report["same_batch"])
        for row in report["rows"]:
            self.assertEqual(row["micro_batch_size"] * row["accumulation_steps"] * row["layout.dp"], 96)

    def test_a_condition_leaves_out_the_rest(self):
        report = sweep(*vary(layout__dp="1,2,4,8", layout__tp="1,2,4,8"), "--where", "ranks == 8 and layout.tp < 8")
        self.assertFalse(report["same_batch"])
        self.assert_adds_up(report)
        self.assertEqual({(row["layout.dp"], row["layout.tp"]) for row in report["rows"]}, {(8, 1), (4, 2), (2, 4)})

    def test_steps_are_of_one_batch_where_their_tokens_are_as_many(self):
        self.assertTrue(sweep(*vary(accumulation_steps="2,4,8", micro_batch_size="2,4,8"),
                              "--where", "accumulation_steps * micro_batch_size == 16")["same_batch"])
        self.assertTrue(sweep(*vary(accumulation_steps="4", strategy="ddp-last,ddp-every"))["same_batch"])
        self.assertFalse(sweep(*vary(accumulation_steps="4,8"))["same_batch"])
        self.assertFalse(sweep(*vary(sequence_length="256,512"))["same_batch"])
        self.assertFalse(sweep(*vary(sequence_length__mean="128,256"))["same_batch"])

    def test_a_condition_knows_what_follows_from_the_batch(self):
        rows = sweep("--global-batch", 64, *vary(micro_batch_size="1,2,4"), "--where", "accumulation_steps <= 4")["rows"]
        self.assertEqual(sorted((row["micro_batch_size"], row["accumulation_steps"]) for row in rows), [(2, 4), (4, 2)])

    def test_refused_values_are_in_the_csv_as_well(self):
        path = self.folder / "rows.csv"
        done = run("sweep", JOB, "--global-batch", 64, "--vary", "micro_batch_size=0,1,x,9223372036854775807", "--out",
                   path)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(path, newline="") as file:
            rows = {row["micro_batch_size"]: row for row in csv.DictReader(file)}
        self.assertEqual({key: row["status"] for key, row in rows.items()},
                         {"1": "priced", "0": "refused", "x": "refused", "9223372036854775807": "refused"})
        self.assertEqual({key: row["accumulation_steps"] for key, row in rows.items()},
                         {"1": "8", "0": "null", "x": "null", "9223372036854775807": "null"})

    def test_only_what_fits(self):
        arguments = vary(micro_batch_size="1..6")
        fitting = sweep(*arguments, "--fit")
        self.assert_adds_up(fitting)
        everything = sweep(*arguments)
        self.assertGreater(fitting["pruned"], 0)
        self.assertEqual(fitting["rows"], [row for row in everything["rows"] if row["fits"]])
        nothing = run("sweep", JOB, *vary(micro_batch_size="64"), "--fit")
        self.assertEqual(nothing.returncode, 1, nothing.stderr)

    def test_one_thread_and_two_say_the_same(self):
        arguments = vary(strategy="ddp-last,fsdp2-defer,nanotron", accumulation_steps="1..40", layout__tp="1,2,4")
        reports = [sweep(*arguments, "--threads", threads) for threads in (1, 2)]
        for report in reports:
            report.pop("seconds")
        self.assertEqual(*reports)

    def test_all_rows_as_csv(self):
        path = self.folder / "rows.csv"
        arguments = vary(layout__tp="1,2,3", accumulation_steps="1..5")
        report = sweep(*arguments)
        done = run("sweep", JOB, *arguments, "--out", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), 15)
        priced = [row for row in rows if row["status"] == "priced"]
        self.assertEqual([(int(row["layout.tp"]), int(row["allocated_bytes"]), int(row["step_ns"])) for row in priced],
                         [(row["layout.tp"], row["allocated_bytes"], row["step_ns"]) for row in report["rows"]])
        self.assertTrue(all("3 ranks" in row["reason"] for row in rows if row["status"] == "refused"))
        self.assertEqual(sorted(os.listdir(self.folder)), ["rows.csv"])

    def test_an_interrupted_sweep_is_resumed(self):
        path = self.folder / "rows.csv"
        arguments = ["sweep", JOB, *vary(strategy="ddp-last,fsdp2-defer,nanotron,megatron", layout__tp="1,2,4,8",
                                         layout__dp="1..64", accumulation_steps="1..256", micro_batch_size="1,2"),
                     "--out", path, "--yes", "--threads", 1]
        segments = pathlib.Path(f"{path}.segments")
        process = subprocess.Popen([PROGRAM, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        while process.poll() is None and not list(segments.glob("*.segment")):
            time.sleep(0.01)
        self.assertIsNone(process.poll(), "it was done before it could be interrupted")
        process.send_signal(signal.SIGINT)
        _, notes = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, notes)
        self.assertIn("--resume", notes)
        there = len(list(segments.glob("*.segment")))
        self.assertGreater(there, 0)

        again = run(*arguments)
        self.assertEqual(again.returncode, 2)
        self.assertIn("--resume", again.stderr)
        other = run(*arguments, "--resume", "--set", "sequence_length=1024")
        self.assertEqual(other.returncode, 2)
        self.assertIn("another sweep", other.stderr)
        self.assertEqual(len(list(segments.glob("*.segment"))), there)

        segment = sorted(segments.glob("*.segment"))[0]
        whole = segment.read_bytes()
        for damaged in (whole[:-1], whole[:500] + bytes([whole[500] ^ 1]) + whole[501:]):
            segment.write_bytes(damaged)
            refused = run(*arguments, "--resume")
            self.assertEqual(refused.returncode, 2)
            self.assertIn(segment.name, refused.stderr)
        segment.write_bytes(whole)

        few = subprocess.run(["bash", "-c", 'ulimit -n 12; exec "$@"', "bash", PROGRAM, *map(str, arguments), "--resume"],
                             capture_output=True, text=True, timeout=280)
        if few.returncode == 3:  # fewer descriptors than segments: the rows are kept
            self.assertIn("ulimit", few.stderr)
            there = len(list(segments.glob("*.segment")))

        resumed = run(*arguments, "--resume")
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertIn(f"{there} of ", resumed.stderr)
        with open(path) as file:
            self.assertEqual(sum(1 for _ in file), 1 + 4 * 4 * 64 * 256 * 2)

    def test_a_file_that_changed_meanwhile_is_another_sweep(self):
        machine = self.folder / "slow.yaml"
        machine.write_text("from: h100-sxm-80gb\n")
        path = self.folder / "rows.csv"
        arguments = ["sweep", JOB, *vary(machine=f"{machine},h100-sxm-80gb", layout__dp="1..400",
                                         accumulation_steps="1..256", micro_batch_size="1,2"),
                     "--out", path, "--yes", "--threads", 1]
        segments = pathlib.Path(f"{path}.segments")
        process = subprocess.Popen([PROGRAM, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while process.poll() is None and not list(segments.glob("*.segment")):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        machine.write_text("from: h100-sxm-80gb\nmemory_bandwidth: 1 TB/s\n")
        done = run(*arguments, "--resume")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("another sweep", done.stderr)

    def rows_by(self, name, *command):
        path = self.folder / name
        done = subprocess.run([*command, "--out", str(path)], capture_output=True, text=True, timeout=280)
        self.assertEqual(done.returncode, 0, done.stderr)
        return path.read_text()

    def test_several_processes_write_what_one_does(self):
        arguments = ["sweep", JOB, *vary(strategy="ddp-last,fsdp2-defer,nanotron,megatron", layout__tp="1,2,4,8",
                                         layout__dp="1..16", accumulation_steps="1..512", micro_batch_size="1,2")]
        alone = self.rows_by("one.csv", PROGRAM, *map(str, arguments))
        self.assertEqual(alone.count("\n"), 1 + 4 * 4 * 16 * 512 * 2)
        for ranks in (1, 2, 4):
            self.assertEqual(self.rows_by(f"{ranks}.csv", *mpirun(ranks, *arguments, "--threads", 1)), alone, ranks)

        path = self.folder / "killed.csv"
        segments = pathlib.Path(f"{path}.segments")
        process = subprocess.Popen([*mpirun(2, *arguments, "--threads", 1), "--out", str(path)],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not list(segments.glob("*.segment")):
            time.sleep(0.01)
        self.assertIsNone(process.poll(), "it was done before a rank could be killed")
        os.kill(children_of(process.pid)[-1], signal.SIGKILL)
        self.assertNotEqual(process.wait(60), 0)
        self.assertFalse(path.exists())
        self.assertEqual(self.rows_by("killed.csv", PROGRAM, *map(str, arguments), "--resume"), alone)
        self.assertEqual(self.rows_by("threads.csv", *mpirun(2, *arguments, "--threads", 2)), alone)
        lonely = subprocess.run(mpirun(2, "sweep", JOB, *vary(layout__tp="1,2")), capture_output=True, text=True, timeout=60)
        self.assertIn("--out", lonely.stderr)

    def test_bad_input(self):
        for arguments, expected in (
                (["--vary", "micro_batch_siz=1,2"], "micro_batch_size"),
                (["--vary", "micro_batch_size=4..1"], "4..1"),
                (["--vary", "micro_batch_size=1..8:2"], "is no range"),
                (["--vary", "layout.tp=1,2", "--pareto", "step_ns,mfu,bubble_ns"], "two metrics"),
                (["--vary", "layout.tp=1,2", "--pareto", "step_ns,step_ns"], "twice"),
                (["--vary", "micro_batch_size=1,1"], "twice"),
                (["--vary", "accumulation_steps=8,08,9"], "twice"),
                (["--vary", "layout.tp=1,2", "--vary", "layout.tp=4"], "twice"),
                (["--vary", "layout.tp=1,2", "--where", "layout.tpp > 1"], "layout.tpp"),
                (["--vary", "layout.tp=1,2", "--where", "1 // (layout.tp - 1) > 0"], "zero"),
                (["--vary", "layout.tp=1,2", "--pareto", "step_ns,memory"], "memory"),
                (["--vary", "accumulation_steps=1,2", "--global-batch", "64"], "accumulation_steps"),
                (["--vary", "layout.tp=1,2", "--out", "rows.txt"], ".csv"),
                (["--vary", "layout.tp=1,0x2", "--where", "layout.tp == 2"], "whole numbers"),
                (["--vary", "layout.tp=1,2", "--resume"], "--out")):
            done = run("sweep", JOB, *arguments)
            self.assertEqual(done.returncode, 2, (arguments, done.stderr))
            self.assertIn(expected, done.stderr, arguments)

    def test_a_space_without_end_is_announced(self):
        thousand = "1..1000"
        done = run("sweep", JOB, *vary(micro_batch_size=thousand, layout__dp=thousand, sequence_length=thousand,
                                       layout__tp=thousand))
        self.assertEqual(done.returncode, 2)
        self.assertIn("1,000,000,000,000 combinations", done.stderr)
        self.assertIn("years", done.stderr)
        self.assertIn("--yes", done.stderr)


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""What goes wrong while a job runs, from outside: a rank that is killed, hangs or is interrupted ends the run soon, with
its name, where it was, and an exit code of ours."""

import json
import os
import pathlib
import resource
import signal
import subprocess
import time
import unittest

from executed_job import PROGRAM, ExecutedJob, call

FOREVER = ("--steps", "100000")  # until somebody ends it


def environment_of(pid):
    """Empty for a process that has gone or is no business of ours."""
    try:
        pairs = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    return dict(pair.decode().split("=", 1) for pair in pairs if b"=" in pair)


def descendants(pid):
    children = [int(word) for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children")
                for word in task.read_text(encoding="ascii").split()]
    return children + [below for child in children for below in descendants(child)]


def rank_pids(run):
    """The processes of a run's ranks, by rank."""
    ranks = {}
    for pid in descendants(run.pid):
        rank = environment_of(pid).get("OMPI_COMM_WORLD_RANK")
        if rank is not None:
            ranks[int(rank)] = pid
    return ranks


def processor_ticks(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


class Faults(ExecutedJob):
    def start(self, *words):
        """A run, and the processes of its ranks once all of them compute."""
        run = subprocess.Popen([PROGRAM, "run", self.job, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True)
        self.addCleanup(run.stdout.close)
        self.addCleanup(run.stderr.close)
        self.addCleanup(run.kill)
        for _ in range(600):
            pids = rank_pids(run)
            if len(pids) == 2 and all(processor_ticks(pid) > 25 for pid in pids.values()):
                return run, pids
            time.sleep(0.05)
        self.fail("the ranks do not start")

    def end_of(self, run, within):
        started = time.monotonic()
        out, err = run.communicate(timeout=60)
        self.assertLess(time.monotonic() - started, within, err)
        self.assertNotIn("mpirun noticed", err)
        self.assertNotIn("-----", err)
        self.assertEqual(out, "")
        return run.returncode, err

    def assert_gone(self, pids):
        for _ in range(100):
            if not any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids.values()):
                return
            time.sleep(0.05)
        self.fail("a rank outlives its run")

    def test_a_killed_rank_ends_the_run_with_its_name_and_phase(self):
        for rank, name, changes in ((0, "rank 0 (dp 0)", ()), (1, "rank 1 (cp 1)", ("--set", "layout={dp: 1, cp: 2}"))):
            run, pids = self.start(*FOREVER, *changes)
            os.kill(pids[rank], signal.SIGKILL)
            code, err = self.end_of(run, within=10)
            self.assertEqual(code, 3, err)
            self.assertRegex(err, rf"error: {name.replace('(', '.').replace(')', '.')} was ended by SIGKILL in .*step \d+")
            self.assertIn("hint:", err)
            self.assert_gone(pids)

    def test_a_crash_is_a_fault_of_ours(self):
        run, pids = self.start(*FOREVER)
        os.kill(pids[1], signal.SIGSEGV)
        out, err = run.communicate(timeout=60)
        self.assertEqual(run.returncode, 70, err)
        self.assertIn("rank 1 (dp 1) was ended by SIG", err)
        self.assertIn("please report it", err)

    def test_a_rank_that_stands_still_ends_the_run_with_its_name_and_phase(self):
        run, pids = self.start(*FOREVER, "--hang-timeout", "2s")
        os.kill(pids[1], signal.SIGSTOP)
        code, err = self.end_of(run, within=15)
        self.assertEqual(code, 3, err)
        self.assertRegex(err, r"error: rank 1 .dp 1. hangs in .*step \d+: for [23] s it is stopped by a signal")
        self.assertIn("--hang-timeout", err)
        self.assert_gone(pids)

    def test_an_interrupt_ends_all_ranks(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            run, pids = self.start(*FOREVER)
            run.send_signal(number)
            code, err = self.end_of(run, within=10)
            self.assertEqual(code, 130, err)
            self.assertRegex(err, r"error: interrupted, rank 0 in .*step \d+")
            self.assert_gone(pids)

    def test_ranks_do_not_outlive_the_process_that_started_them(self):
        run, pids = self.start(*FOREVER)
        run.kill()
        run.communicate(timeout=60)
        self.assert_gone(pids)

    def report_of(self, trace):
        done = call("report", trace, "--format", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["traces"][0]

    def assert_cut_but_readable(self, trace):
        report = self.report_of(trace)
        self.assertIn("cut off", report["cut_short"])
        self.assertGreater(report["events"], 100)
        self.assertEqual(report["origin"], "measured on cpu")

    def test_the_traces_of_a_run_that_is_killed_are_readable_and_say_that_they_are_cut_short(self):
        trace = self.folder / "x.trace"
        for victim in ("rank", "everybody"):
            trace.write_bytes(b"of an earlier run")  # must not pass for one of this
            run, pids = self.start(*FOREVER, "--trace", trace)
            time.sleep(0.5)
            if victim == "everybody":
                for pid in (run.pid, *descendants(run.pid)):
                    os.kill(pid, signal.SIGKILL)
                run.communicate(timeout=60)
            else:
                os.kill(pids[1], signal.SIGKILL)
                code, err = self.end_of(run, within=10)
                self.assertEqual(code, 3, err)
                self.assertIn(f"{trace} and {trace}.rank1", err)
            self.assert_cut_but_readable(trace)
            self.assert_cut_but_readable(f"{trace}.rank1")
            done = call("compare", trace, f"{trace}.rank1")
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("is cut short", " ".join(done.stdout.split()))

    def test_a_trace_that_grew_is_whole_in_the_end_and_leaves_nothing_else(self):
        trace = self.folder / "x.trace"
        done = call("run", self.job, "--steps", "20", "--trace", trace)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIsNone(self.report_of(trace)["cut_short"])
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["job.yaml", "x.trace"])

    def test_one_rank_that_is_interrupted_ends_in_good_order(self):
        trace = self.folder / "x.trace"
        for number in (signal.SIGINT, signal.SIGTERM):
            run = subprocess.Popen([PROGRAM, "run", self.job, "--set", "layout.dp=1", *FOREVER, "--trace", trace],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            while not trace.exists() or trace.stat().st_size < 10000:
                time.sleep(0.05)
            run.send_signal(number)
            code, err = self.end_of(run, within=10)
            self.assertEqual(code, 130, err)
            self.assertRegex(err, r"error: interrupted in .*step \d+")
            self.assertIn(f"tidemark report reads what was recorded until then: {trace}", err)
            self.assert_cut_but_readable(trace)
            trace.unlink()

    def test_a_place_that_cannot_be_written_is_refused_before_anything_runs(self):
        page = ("compare", self.job, "--device", "cpu", "--html")
        for words in (("run", self.job, "--trace"), page):
            for place, told in ((self.folder / "no" / "folder" / "x", "does the folder exist"),
                                (self.folder, "this is a directory")):
                done = call(*words, place)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(str(place), done.stderr)
                self.assertIn(told, done.stderr)
                self.assertNotIn("starting", done.stderr)

    def test_a_full_disk_is_noticed_and_nothing_that_was_measured_is_lost(self):
        trace = self.folder / "x.trace"
        for ranks in ("1", "2"):
            words = ("run", self.job, "--set", f"layout.dp={ranks}", "--format", "json")
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([PROGRAM, *words, "--trace", trace], stdout=full, stderr=subprocess.PIPE, text=True,
                                      timeout=60, check=False)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn("error: stdout: cannot be written (No space left on device)", done.stderr)
            self.assertIn('"schema": "tidemark.run/1"', done.stderr)
            self.assertIsNone(self.report_of(trace)["cut_short"])
            done = call(*words, "--trace", "/dev/full")
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertEqual(json.loads(done.stdout)["schema"], "tidemark.run/1")
            self.assertIn("error: /dev/full: cannot be written (No space left on device)", done.stderr)

    def test_a_trace_that_becomes_too_large_ends_neither_the_run_nor_what_was_written(self):
        trace = self.folder / "x.trace"
        limit = 60_000  # in bytes; a step of this job takes some 10,000
        done = subprocess.run([PROGRAM, "run", self.job, "--set", "layout.dp=1", "--steps", "200", "--trace", trace],
                              capture_output=True, text=True, timeout=60, check=False,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("measured on cpu", done.stdout)
        self.assertIn(f"error: {trace}: cannot be written (File too large)", done.stderr)
        self.assertIn("cut off", self.report_of(trace)["cut_short"])

    def test_a_limit_on_files_or_on_memory_is_no_fault_of_ours(self):
        page = self.folder / "page.html"

        def limited(limit, size, *words):
            return subprocess.run([PROGRAM, "predict", self.job, *words], capture_output=True, text=True, timeout=60,
                                  check=False, preexec_fn=lambda: resource.setrlimit(limit, (size, size)))

        done = limited(resource.RLIMIT_FSIZE, 20_000, "--html", page)  # of more than 100,000 bytes
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn(f"error: {page}: cannot be written (File too large)", done.stderr)
        self.assertEqual(list(self.folder.glob("page*")), [])

        # Of 2.7 million events.
        words = ("--set", "accumulation_steps=8000", "--trace", self.folder / "x.trace")
        done = limited(resource.RLIMIT_AS, 200 << 20, *words)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("error: this machine gives tidemark no more memory", done.stderr)
        self.assertFalse((self.folder / "x.trace").exists())

    def test_a_closed_stdout_is_no_file(self):
        trace = self.folder / "x.trace"
        done = subprocess.run(f"'{PROGRAM}' run '{self.job}' --set layout.dp=1 --trace '{trace}' >&-", shell=True,
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("error: stdout: cannot be written", done.stderr)
        self.assertIsNone(self.report_of(trace)["cut_short"])

    def test_a_job_from_a_pipe_is_for_one_rank(self):
        for ranks, code in ((1, 0), (2, 2)):
            done = subprocess.run([PROGRAM, "run", "/dev/stdin", "--set", f"layout.dp={ranks}"], input=self.JOB,
                                  capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn("'/dev/stdin' is a pipe, and 2 ranks must each read it", done.stderr)

    def test_torchruns_first_process_starts_the_ranks(self):
        """Its processes have no MPI in common."""
        torchrun = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
        runs = [call("run", self.job, env={**os.environ, **torchrun, "RANK": rank}) for rank in ("0", "1")]
        self.assertEqual([run.returncode for run in runs], [0, 0], runs[0].stderr)
        self.assertIn("measured on cpu, 2 ranks", runs[0].stdout)
        self.assertEqual((runs[1].stdout, runs[1].stderr), ("", ""))
        done = call("run", self.job, env={**os.environ, **torchrun, "RANK": "0", "WORLD_SIZE": "4"})
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("the job has 2 ranks, and the launcher has started 4", done.stderr)
        done = call("run", self.job, env={**os.environ, **torchrun, "RANK": "0", "LOCAL_WORLD_SIZE": "1"})
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("srun --mpi=pmix", done.stderr)

    def test_srun_without_pmi_is_told_what_to_ask_for(self):
        done = call("run", self.job, env={**os.environ, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"})
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("hint: srun --mpi=pmix", done.stderr)

    def test_a_finding_is_told_by_us_alone(self):
        done = subprocess.run([PROGRAM, "run", self.job, "--capacity", "1MiB"], capture_output=True, text=True, timeout=60,
                              check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("out of memory", done.stdout)
        self.assertEqual(done.stderr.splitlines()[1:], [], done.stderr)  # the first line tells of mpirun

    def test_without_mpirun_the_sentence_says_so(self):
        done = subprocess.run([PROGRAM, "run", self.job], capture_output=True, text=True, timeout=60, check=False,
                              env={"PATH": str(self.folder)})
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("2 ranks need mpirun, which is not here", done.stderr)


if __name__ == "__main__":
    unittest.main()

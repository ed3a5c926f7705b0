# SPDX-License-Identifier: Apache-2.0
"""What runs the experiments where there is a GPU: order, time boxes, what is kept. Programs of a bundle are stood in for
by scripts."""

import json
import pathlib
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

RUN = pathlib.Path(__file__).resolve().with_name("run_experiments.py")


def is_running(pid):
    """Whether a process does: one that has ended, but was not yet asked about by its parent, does not."""
    try:
        status = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


# A Python program for which others have begun before it is told so.
ON_A_BUSY_MACHINE = """
import runpy, subprocess, sys, time
begin = subprocess.Popen.__init__
def begin_and_wait(*words, **options):
    begin(*words, **options)
    time.sleep(0.5)
subprocess.Popen.__init__ = begin_and_wait
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def hear_interrupts():
    """Shells let what they start in the background ignore them, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Bundle(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.bundle = pathlib.Path(folder.name)
        (self.bundle / "run").write_bytes(RUN.read_bytes())
        self.results, self.pack = self.bundle / "results", self.bundle / "pack.tar.gz"
        self.make("tidemark", "exit 0")
        self.make("gpu_test", "exit 0")
        self.make("memory_experiment", "exit 0")

    def make(self, name, script):
        path = self.bundle / name
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)

    def run_it(self, *words):
        return subprocess.run([sys.executable, str(self.bundle / "run"), str(self.results), *map(str, words)],
                              capture_output=True, text=True, timeout=120, check=False)

    def outcomes(self):
        ended = json.loads((self.results / "parts.json").read_text(encoding="utf-8"))
        return {name: part["outcome"] for name, part in ended.items()}

    def test_names_its_parts_those_of_most_worth_first(self):
        names = [line.split()[0] for line in self.run_it("--list").stdout.splitlines()]
        self.assertEqual(names[0], "device-probe")
        self.assertEqual(len(names), len(set(names)))
        for before, after in (("watched-ClosesItsBudget", "pytorch-judge"), ("pytorch-judge", "calibrate"),
                              ("calibrate", "real-sizes"), ("real-sizes", "accumulation")):
            self.assertLess(names.index(before), names.index(after))

    def test_a_failure_is_told_and_the_others_go_on(self):
        self.make("memory_experiment", 'echo "mode $1"; [ "$1" != records ]')
        done = self.run_it("--only", "memory-*")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual(self.outcomes(), {"memory-none": "done", "memory-records": "failed with exit code 1",
                                           "memory-sources": "done"})
        self.assertEqual((self.results / "memory-sources.txt").read_text(encoding="utf-8"), "mode sources\n")
        self.assertIn("of 3 parts: 2 done, 1 failed\n", done.stdout)

    def test_what_is_done_is_not_run_again(self):
        self.make("memory_experiment", f'echo "$1" >> {self.bundle}/calls; [ "$1" != records ]')
        self.run_it("--only", "memory-*")
        again = self.run_it("--only", "memory-*")
        self.assertEqual((self.bundle / "calls").read_text(encoding="utf-8").split(),
                         ["none", "records", "sources", "records"])
        self.assertIn("memory-none: done before", again.stdout)

    def test_what_is_missing_is_no_failure_but_nothing_at_all_is(self):
        self.make("gpu_test", "exit 3")
        self.assertEqual(self.run_it("--only", "device-probe").returncode, 3)
        self.assertEqual(self.run_it("--only", "device-probe,memory-none").returncode, 0)
        self.assertEqual(self.outcomes()["device-probe"], "left out, something is missing")

    def test_the_time_box_begins_nothing_that_has_no_time_and_ends_what_takes_longer(self):
        done = self.run_it("--only", "memory-none", "--time-box", "5")
        self.assertIn("memory-none: not begun, the time is over", done.stdout)
        self.make("memory_experiment", "echo begun; exec sleep 100")
        done = self.run_it("--only", "memory-*", "--time-box", "21")
        self.assertEqual(self.outcomes(), {"memory-none": "out of time, what it has written stays"})
        self.assertEqual((self.results / "memory-none.txt").read_text(encoding="utf-8"), "begun\n")
        self.assertEqual(done.returncode, 124)
        self.assertIn("of 3 parts: 1 out of time, 2 not begun", done.stdout)

    def test_what_a_part_leaves_running_holds_nobody_up(self):
        self.make("memory_experiment", "setsid sleep 100 & sleep 101 & echo told")
        begin = time.monotonic()
        done = self.run_it("--only", "memory-none")
        self.assertLess(time.monotonic() - begin, 60, "seconds, of 100 that it goes on")
        self.assertEqual(self.outcomes(), {"memory-none": "done"})
        self.assertIn("told", done.stdout)

    def test_a_script_whose_own_time_was_over_goes_on_the_next_time(self):
        self.make("memory_experiment", f'echo "$1" >> {self.bundle}/calls; exit 124')
        for _ in range(2):
            self.run_it("--only", "memory-none")
        self.assertEqual((self.bundle / "calls").read_text(encoding="utf-8").split(), ["none", "none"])

    def test_results_may_be_named_from_where_one_is(self):
        done = subprocess.run([sys.executable, str(self.bundle / "run"), "here", "--only", "memory-none"],
                              cwd=self.bundle, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((self.bundle / "here/memory-none.txt").exists())

    def test_a_part_without_what_it_works_on_is_left_out(self):
        done = self.run_it("--only", "real-sizes")
        self.assertIn("not begun, there is no machine.yaml yet", done.stdout)

    def test_everything_is_packed_in_pieces_that_are_small_enough(self):
        self.make("memory_experiment", f'head -c 9000000 /dev/urandom > {self.results}/recorded/$1.gz; echo "$1"')
        self.run_it("--only", "memory-*", "--pack", self.pack)
        pieces = sorted(self.bundle.glob("pack.tar.gz*"))
        self.assertEqual([piece.name for piece in pieces], ["pack.tar.gz", "pack.tar.gz.1", "pack.tar.gz.2"])
        names = []
        for piece in pieces:
            self.assertLess(piece.stat().st_size, 16 << 20)
            with tarfile.open(piece) as archive:
                names += archive.getnames()
        self.assertEqual(len(names), len(set(names)))
        for name in ("parts.json", "doctor.txt", "memory-none.txt", "recorded/records.gz"):
            self.assertIn(f"results/{name}", names)

    def test_a_pack_that_cannot_be_is_told_before_anything_runs(self):
        self.make("memory_experiment", f"touch {self.bundle}/ran")
        (self.bundle / "folder").mkdir()
        for words in (("--pack", self.bundle / "folder"), ("--pack", self.bundle / "run/x")):
            done = self.run_it("--only", "memory-none", *words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("--pack a file", done.stderr)
        self.assertFalse((self.bundle / "ran").exists())

    def test_an_interrupt_ends_the_part_and_keeps_what_there_is(self):
        self.make("memory_experiment", f'echo "$1"; [ "$1" = none ] || {{ echo $$ > {self.bundle}/pid; exec sleep 100; }}')
        for end, how in ((signal.SIGINT, []), (signal.SIGTERM, []), (signal.SIGINT, ["-c", ON_A_BUSY_MACHINE])):
            child = subprocess.Popen([sys.executable, *how, str(self.bundle / "run"), str(self.results), "--only",
                                      "memory-*", "--pack", str(self.pack)], stdout=subprocess.DEVNULL,
                                     stderr=subprocess.PIPE, preexec_fn=hear_interrupts)
            while not (self.bundle / "pid").exists():
                time.sleep(0.05)
            child.send_signal(end)
            _, errors = child.communicate(timeout=60)
            self.assertEqual(child.returncode, 130, errors)
            self.assertNotIn(b"Traceback", errors)
            self.assertEqual(self.outcomes()["memory-records"], "interrupted, what it has written stays")
            pid = int((self.bundle / "pid").read_text(encoding="utf-8"))
            self.assertFalse(is_running(pid))
            self.assertTrue(self.pack.exists())
            (self.bundle / "pid").unlink()

    def test_a_program_that_does_not_start_is_not_a_missing_gpu(self):
        self.make("tidemark", "echo 'loader: no libfmt' >&2; exit 127")
        done = self.run_it()
        self.assertEqual(done.returncode, 3)
        self.assertIn("loader: no libfmt", done.stdout)
        self.assertIn("tidemark doctor ended with 127", done.stderr)

    def test_an_unknown_part_is_wrong_input(self):
        for patterns in ("nothing", "memory-*,nothing"):
            done = self.run_it("--only", patterns)
            self.assertEqual(done.returncode, 2)
            self.assertIn("no part is called 'nothing'\nhint: --list names them", done.stderr)


if __name__ == "__main__":
    unittest.main()

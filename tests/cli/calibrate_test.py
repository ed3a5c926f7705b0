# SPDX-License-Identifier: Apache-2.0
"""The verb calibrate from outside: a machine file with a source for every number, which predictions use."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

PROGRAM = os.environ["TIDEMARK_PROGRAM"]
JOB = pathlib.Path(__file__).resolve().parents[1] / "jobs/demo-small.yaml"


def call(*words, **environment):
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=240,
                          env={**os.environ, **environment})


class Calibrate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.holder.cleanup)
        cls.machine = pathlib.Path(cls.holder.name) / "mine.yaml"
        cls.done = call("calibrate", "--device", "cpu", "-o", cls.machine)

    def test_writes_a_file_in_which_every_number_has_its_source(self):
        self.assertEqual(self.done.returncode, 0, self.done.stderr)
        self.assertIn("two ranks", self.done.stdout)
        lines = self.machine.read_text(encoding="utf-8").splitlines()
        numbers = [line for line in lines if not line.startswith(("summary:", "name:"))]
        self.assertTrue(any(line.startswith("device: {value: ") and "/proc/cpuinfo" in line for line in lines), lines)
        for line in numbers:
            self.assertIn("source: ", line)
        measured = {line.split(": ")[0] for line in numbers if "source: \"measured: " in line}
        for key in ("peak.fp32", "memory_bandwidth", "kernel_launch", "intra_node.latency", "intra_node.bandwidth",
                    "rates.gemm.fp32", "rates.gemm.bf16", "rates.attention_backward.bf16", "rates.optimizer_update"):
            self.assertIn(key, measured)
        self.assertTrue(any(line.startswith("overlap: {value: false") for line in lines), "streams take turns here")
        links = [line for line in numbers if line.startswith("inter_node.")]
        self.assertEqual(len(links), 2)
        for line in links:
            self.assertIn("not measured", line)

    def test_predictions_take_its_numbers(self):
        def predicted(*changes):
            done = call("predict", JOB, "--format", "json", *changes)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)["time"]["step_ns"]

        mine = predicted("--set", f"machine={self.machine}")
        self.assertNotEqual(mine, predicted())
        # A thousand times the launch that was measured, for each of hundreds of kernels.
        self.assertGreater(predicted("--set", f"machine={self.machine}", "--set", "machine.kernel_launch=50 ms"),
                           2 * mine)

    def test_predictions_say_on_what_and_when_it_was_measured(self):
        done = call("predict", JOB, "--set", f"machine={self.machine}", "--format", "json")
        calibrated = json.loads(done.stdout)["provenance"]["calibrated"]
        self.assertEqual(len(calibrated), 1)
        self.assertRegex(calibrated[0], r"^what the machine file calls measured: on .+, \d{4}-\d{2}-\d{2}$")
        self.assertEqual(json.loads(call("predict", JOB, "--format", "json").stdout)["provenance"]["calibrated"], [])

    def test_its_file_is_found_from_where_it_is_named(self):
        """On the command line from where that is typed, in a job from the job's folder."""
        typed = subprocess.run([PROGRAM, "predict", JOB, "--set", f"machine={self.machine.name}"], cwd=self.machine.parent,
                               capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(typed.returncode, 0, typed.stderr)
        lines = [line for line in JOB.read_text(encoding="utf-8").splitlines() if not line.startswith("machine:")]
        job = self.machine.parent / "job.yaml"
        job.write_text("\n".join([*lines, f"machine: {self.machine.name}"]), encoding="utf-8")
        told = call("predict", job)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertIn("mine", told.stdout)

    def test_a_machine_without_mpi_is_told_so(self):
        done = call("calibrate", "--device", "cpu", "-o", "-", PATH="/nowhere")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("2 ranks need mpirun, which is not here", done.stderr)
        self.assertIn("hint: install Open MPI", done.stderr)

    def test_under_a_launcher_of_another_number_of_ranks_it_says_what_to_do(self):
        done = call("calibrate", "--device", "cpu", "-o", "-", OMPI_COMM_WORLD_SIZE="3")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("start 2 processes, or none", done.stderr)


if __name__ == "__main__":
    unittest.main()

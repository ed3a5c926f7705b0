# SPDX-License-Identifier: Apache-2.0
"""The verb program, seen from outside. What the text says is tested beside the code that writes it."""

import os
import pathlib
import subprocess
import unittest

PROGRAM = os.environ["TIDEMARK_PROGRAM"]
JOBS = pathlib.Path(__file__).resolve().parent.parent / "jobs"


def run(*arguments):
    return subprocess.run([PROGRAM, "program", *map(str, arguments)], capture_output=True, text=True, timeout=60)


def lines(*arguments):
    done = run(*arguments)
    if done.returncode != 0:
        raise AssertionError(f"{arguments}: {done.returncode}: {done.stderr}")
    return done.stdout.splitlines()


class Program(unittest.TestCase):
    pipeline = JOBS / "llama-3-70b-tp8-pp4.yaml"
    single = JOBS / "gpt2-ddp.yaml"

    def roles(self, *arguments):
        return [line for line in lines(*arguments) if line.startswith("role ")]

    def test_every_pipeline_stage_is_a_role(self):
        self.assertEqual([role.split(",")[0] for role in self.roles(self.pipeline)],
                         [f'role {stage} "stage {stage}"' for stage in range(4)])

    def test_one_role_is_chosen_by_number_or_by_name(self):
        by_number = lines(self.pipeline, "--role", 2)
        self.assertEqual(by_number, lines(self.pipeline, "--role", "stage 2"))
        self.assertTrue(by_number[0].startswith("role 2 "))
        self.assertEqual(sum(line.startswith("role ") for line in by_number), 1)

    def test_a_role_that_is_not_there_is_bad_input(self):
        for role in ("4", "-1", "stage"):
            done = run(self.pipeline, "--role=" + role)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn("--role: expected a number below 4", done.stderr)

    def test_expanding_leaves_no_loop_and_no_loop_variable(self):
        folded = lines(self.single)
        expanded = lines(self.single, "--expand")
        self.assertTrue(any(line.lstrip().startswith("repeat ") for line in folded))
        self.assertFalse(any(line.lstrip().startswith("repeat ") or line.strip() == "}" for line in expanded))
        self.assertGreater(len(expanded), len(folded))

    def test_a_step_is_first_second_or_steady(self):
        self.assertEqual(lines(self.single), lines(self.single, "--step", "steady"))
        self.assertNotEqual(lines(self.single), lines(self.single, "--step", "first"))   # DDP's one bucket, no moments yet
        done = run(self.single, "--step", "last")
        self.assertEqual(done.returncode, 2)
        self.assertIn("first,second,steady", done.stderr)

    def test_the_same_job_gives_the_same_bytes(self):
        self.assertEqual(lines(self.pipeline), lines(self.pipeline))


if __name__ == "__main__":
    unittest.main()

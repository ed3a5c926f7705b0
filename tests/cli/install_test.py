#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `./dev install` puts somewhere: the program alone, which needs nothing of the folder that it was built in."""

import os
import pathlib
import subprocess
import tempfile
import unittest

JOB = pathlib.Path(__file__).resolve().parents[1] / "jobs" / "gpt2-ddp.yaml"


def run(*words, cwd):
    return subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, timeout=240, check=False)


class Install(unittest.TestCase):
    def test_the_program_is_all_that_is_installed_and_works_there(self):
        with tempfile.TemporaryDirectory() as folder:
            prefix = pathlib.Path(folder) / "somewhere else"
            made = run("cmake", "--install", os.environ["TIDEMARK_BUILD"], "--prefix", prefix, cwd=folder)
            self.assertEqual(made.returncode, 0, made.stderr)
            files = sorted(path for path in prefix.rglob("*") if path.is_file())
            self.assertEqual(files, [prefix / "bin" / "tidemark"])
            there, here = (run(program, "predict", JOB, cwd=folder) for program in (files[0], os.environ["TIDEMARK_PROGRAM"]))
            self.assertEqual((there.returncode, there.stderr), (0, ""))
            self.assertEqual(there.stdout, here.stdout)


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""What is said where there is no GPU: one sentence, what to use instead, exit code 3; nothing is written."""

import json
import unittest

from executed_job import ExecutedJob, call


class NoGpu(ExecutedJob):
    def setUp(self):
        super().setUp()
        if json.loads(call("doctor", "--format", "json").stdout)["gpus"]:
            self.skipTest("this machine has a GPU")

    def test_whatever_needs_one_says_so(self):
        written = self.folder / "machine.yaml"
        for words in (("run", self.job, "--device", "cuda"), ("compare", self.job, "--device", "cuda"),
                      ("calibrate", "--device", "cuda", "-o", written)):
            done = call(*words)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertEqual(done.stdout, "")
            self.assertRegex(done.stderr, "^tidemark: error: --device cuda: there is no GPU to run on: [^\n]+\n"
                                          "hint: use this machine's processor, --device cpu; ")
        self.assertFalse(written.exists())

    def test_doctor_says_what_is_missing(self):
        done = call("doctor", "--require", "cuda")
        self.assertEqual(done.returncode, 3)
        self.assertRegex(done.stdout, "GPU +none: ")


if __name__ == "__main__":
    unittest.main()

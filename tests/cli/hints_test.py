# SPDX-License-Identifier: Apache-2.0
"""Hints hold what they promise: the strategies they name exist, the settings they name are taken."""

import json
import os
import pathlib
import re
import subprocess
import unittest

PROGRAM = os.environ["TIDEMARK_PROGRAM"]
TESTS = pathlib.Path(__file__).resolve().parent
SOURCES = sorted((TESTS.parent.parent / "sim").rglob("*.cc"))
JOB = TESTS.parent / "jobs" / "oracle.yaml"


def texts():
    """The string literals of the simulator, joined where the source breaks them."""
    for path in SOURCES:
        source = re.sub(r'"\s*\n\s*"', "", path.read_text())
        for text in re.findall(r'"((?:[^"\\\n]|\\.)*)"', source):
            if " " in text:
                yield path.name, text


def run(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=60)


class Hints(unittest.TestCase):
    def test_a_strategy_that_a_text_names_exists(self):
        names = {row["name"] for row in json.loads(run("list", "strategies", "--format", "json").stdout)}
        families = {name.split("-")[0] for name in names}
        word = re.compile(r"(?<![\w./-])(?:%s)-[a-z0-9*-]*[a-z0-9*]" % "|".join(families))
        checked = 0
        for path, text in texts():
            for name in word.findall(text):
                checked += 1
                with self.subTest(path=path, text=text):
                    known = [each for each in names if re.fullmatch(name.replace("*", ".*"), each)]
                    self.assertTrue(known, name)
        self.assertGreater(checked, 30)

    def test_a_setting_that_a_text_names_is_one(self):
        phrase = re.compile(r"\b(?:set|leave) ([a-z_]+(?:\.[a-z_]+)+) (?:to|at) ([\w-]+(?:(?:, [\w-]+)* or [\w-]+)?)")
        settings = {(key, value) for _, text in texts() for key, values in phrase.findall(text)
                    for value in re.split(", | or ", values) if value not in ("a", "more")}
        self.assertGreater(len(settings), 20)
        for key, value in sorted(settings):
            with self.subTest(key=key, value=value):
                error = run("job", JOB, "--set", f"{key}={value}").stderr.splitlines()
                self.assertNotIn("expected", error[0] if error else "")
                self.assertNotIn("there is no such key", error[0] if error else "")


if __name__ == "__main__":
    unittest.main()

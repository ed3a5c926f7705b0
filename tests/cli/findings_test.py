# SPDX-License-Identifier: Apache-2.0
"""The catalogue of findings: complete, and every example in it shows what it says it shows."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS = {"lint", "cause", "hazard", "program", "refusal", "elsewhere"}


def run(arguments, *more):
    return subprocess.run([os.environ["TIDEMARK_PROGRAM"], *arguments, *more], cwd=ROOT, check=False,
                          capture_output=True, text=True)


def catalogue():
    return json.loads(run(["list", "findings", "--format", "json"]).stdout)


def ids_in_sources():
    """What the sources give as an id, by the calls that take one."""
    found = {}
    for name, kind, pattern in (
            ("sim/predict/lints.cc", "lint", r'\bAdd\("([a-z-]+)"'),
            ("sim/predict/host_lints.cc", "lint", r'push_back\(\{"([a-z-]+)"'),
            ("sim/predict/audit.cc", "lint", r'BoundaryFault\{"([a-z-]+)"'),
            ("sim/predict/audit.h", "lint", r'kBoundaryFails = "([a-z-]+)"'),
            ("cli/first_steps.cc", "lint", r'Lint\{\s*"([a-z-]+)"'),
            ("cli/observed_job.cc", "lint", r'Lint\{\s*"([a-z-]+)"'),
            ("cli/audit_report.cc", "hazard", r'\? "([a-z]+)" : "clobber"'),
            ("cli/audit_report.cc", "hazard", r'\? "race" : "([a-z]+)"')):
        for identifier in re.findall(pattern, (ROOT / name).read_text(encoding="utf-8")):
            found.setdefault(kind, set()).add(identifier)
    found["lint"].add("option-without-effect")  # added by a function of its own
    for source in sorted((ROOT / "sim").rglob("*.cc")):
        for identifier in re.findall(r'WrongNumbers\{\s*"([a-z-]+)"', source.read_text(encoding="utf-8")):
            found.setdefault("cause", set()).add(identifier)
    rules = re.search(r"bool IsWrongResult\(.*?\n}", (ROOT / "sim/program/verify.cc").read_text(encoding="utf-8"),
                      re.DOTALL).group()
    found["program"] = {rule.replace("_", "-") for rule in re.findall(r"Rule::(\w+)", rules)}
    return found


class Catalogue(unittest.TestCase):
    def test_every_entry_is_whole(self):
        names = [entry["name"] for entry in catalogue()]
        self.assertEqual(len(names), len(set(names)))
        for entry in catalogue():
            with self.subTest(entry["name"]):
                self.assertIn(entry["kind"], KINDS)
                for field in ("summary", "paragraph", "effect", "hint"):
                    self.assertTrue(entry[field])
                self.assertRegex(entry["link"], r"^https://[\w./#-]+$")

    def test_it_has_just_what_the_program_can_say(self):
        entries = catalogue()
        for kind, identifiers in ids_in_sources().items():
            self.assertEqual({entry["name"] for entry in entries if entry["kind"] == kind}, identifiers, kind)

    def test_every_example_shows_its_finding(self):
        for entry in catalogue():
            if not entry["example"]:
                continue
            with self.subTest(entry["name"]):
                done = run(shlex.split(entry["example"]), "--format", "json")
                if entry["kind"] == "refusal":
                    self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                    continue
                self.assertIn(done.returncode, (0, 1), done.stderr)
                report = json.loads(done.stdout)
                shown = {hazard["kind"] for hazard in report["hazards"]}
                shown |= {lint["id"] for lint in report["lints"]} | {lint["cause"] for lint in report["lints"]}
                shown |= {"clobbered-value"} if "clobber" in shown else set()
                self.assertIn(entry["name"], shown)

    def test_a_report_explains_the_cause_and_says_where_to_read_on(self):
        arguments = ["audit", "tests/jobs/gpt2-ddp.yaml", "--set", "strategy=alpa", "--set", "sync.rewrite=false"]
        lint = json.loads(run(arguments, "--format", "json").stdout)["lints"][0]
        entry = {entry["name"]: entry for entry in catalogue()}["skip-without-rewrite"]
        self.assertEqual((lint["id"], lint["cause"], lint["paragraph"], lint["link"]),
                         ("wrong-gradient", entry["name"], entry["paragraph"], entry["link"]))
        self.assertIn(f"more: {entry['link']}", run(arguments).stdout)
        self.assertIn(f"[More]({entry['link']})", run(arguments, "--format", "markdown").stdout)
        self.assertIn(f"<a href=\"{entry['link']}\">", run(arguments, "--html", "-").stdout)


if __name__ == "__main__":
    unittest.main()

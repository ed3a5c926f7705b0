# SPDX-License-Identifier: Apache-2.0
"""What docs/ci.md and action.yml tell others to use: the scenario file, the commands and the action's own step are run."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import textwrap
import unittest
import xml.etree.ElementTree

PROGRAM = os.environ["TIDEMARK_PROGRAM"]
ROOT = pathlib.Path(__file__).resolve().parents[2]

SMALL = """network: {name: small, layers: 2, hidden: 64, ffn: 96, heads: 4, kv_heads: 2, vocabulary: 256}
machine: cpu
sequence_length: 32
micro_batch_size: 2
accumulation_steps: 2
strategy: ddp-last
"""


class Documented(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name in ("jobs", "memory", "bin"):
            (self.folder / name).mkdir()
        (self.folder / "jobs" / "small.yaml").write_text(SMALL)
        shutil.copy(ROOT / "tests" / "jobs" / "llama-3-8b-fsdp2.yaml", self.folder / "jobs" / "llama-3-8b.yaml")
        (self.folder / "bin" / "tidemark").symlink_to(PROGRAM)
        self.text = (ROOT / "docs" / "ci.md").read_text()
        (self.folder / "memory" / "scenarios.yaml").write_text(re.search(r"```yaml\n(scenarios:.*?)```", self.text, re.DOTALL)[1])

    def shell(self, command, **environment):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return subprocess.run(["bash", "-e", "-c", command], cwd=self.folder, capture_output=True, text=True, timeout=120, check=False,
                              env={**kept, "PATH": path, **environment})

    def first_baseline(self):
        command = re.search(r"^    (tidemark baseline update .*)$", self.text, re.MULTILINE)[1]
        done = self.shell(command)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_documented_scenarios_and_commands_work(self):
        self.first_baseline()
        for command in re.findall(r"(?:^    |entry: )(tidemark (?:check|run|baseline promote) .*)$", self.text, re.MULTILINE):
            done = self.shell(command + (" --scenario small-for-real" if "promote" in command else ""))
            self.assertEqual(done.returncode, 0, f"{command}: {done.stderr}{done.stdout}")

    def test_every_verdict_is_documented(self):
        rows = set(re.findall(r"^\| `(\w+)` \| .* \| [01] \|$", self.text, re.MULTILINE))
        self.assertEqual(rows, {"pass", "grown", "shrunk", "new", "lost", "over_budget", "error"})

    def test_the_action_checks_and_writes_what_it_names(self):
        action = (ROOT / "action.yml").read_text()
        step = textwrap.dedent(action[action.rindex("run: |\n") + len("run: |\n"):])
        names = dict(re.findall(r"^        (\w+): \$\{\{ inputs\.(\w+) \}\}$", action, re.MULTILINE))
        self.assertEqual(set(names), {"PROGRAM", "SCENARIOS", "BASELINE", "JUNIT", "MARKDOWN", "BENCHMARK"})
        defaults = dict(re.findall(r"^  (\w+):\n    description: .*\n    default: (.*)$", action, re.MULTILINE))
        given = {"scenarios": "memory/scenarios.yaml", "baseline": "memory/baseline.json", "program": PROGRAM}
        environment = {variable: given.get(name, defaults.get(name, "")) for variable, name in names.items()}
        self.first_baseline()
        baseline = json.loads((self.folder / "memory" / "baseline.json").read_text())
        del baseline["scenarios"]["llama-3-8b-long"]
        (self.folder / "memory" / "baseline.json").write_text(json.dumps(baseline))
        done = self.shell(step, GITHUB_ACTIONS="true", GITHUB_ACTION_PATH="/none", GITHUB_WORKSPACE=str(self.folder),
                          GITHUB_STEP_SUMMARY="summary.md", **environment)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("::error file=memory/scenarios.yaml,line=5,title=llama-3-8b-long%3A new::", done.stderr)
        self.assertIsNotNone(xml.etree.ElementTree.parse(self.folder / defaults["junit"]).find(".//failure"))
        self.assertEqual(len(json.loads((self.folder / defaults["benchmark"]).read_text())), 3)
        self.assertEqual((self.folder / defaults["markdown"]).read_text(), (self.folder / "summary.md").read_text())


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""The compatibility matrix: as text, as JSON, and in docs/compatibility.md (TIDEMARK_RENEW=1 writes that)."""

import json
import os
import pathlib
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "compatibility.md"


def run(*arguments):
    return subprocess.run([os.environ["TIDEMARK_PROGRAM"], "list", *arguments], cwd=ROOT, check=False,
                          capture_output=True, text=True)


class Matrix(unittest.TestCase):
    def test_the_document_is_what_the_program_prints(self):
        printed = run("strategies", "--matrix", "--format", "markdown").stdout
        if os.environ.get("TIDEMARK_RENEW"):
            DOCUMENT.write_text(printed, encoding="utf-8")
        self.assertEqual(DOCUMENT.read_text(encoding="utf-8"), printed,
                         "docs/compatibility.md is out of date: TIDEMARK_RENEW=1 writes it")

    def test_every_cell_says_what_why_and_where_to_read_on(self):
        rows = json.loads(run("strategies", "--matrix", "--format", "json").stdout)
        names = [entry["name"] for entry in json.loads(run("strategies", "--format", "json").stdout)]
        self.assertEqual([row["name"] for row in rows], names)
        for row in rows:
            self.assertTrue(row["summary"])
            for cell in row["cells"]:
                with self.subTest(f"{row['name']} {cell['feature']}"):
                    self.assertIn(cell["verdict"], {"works", "does-not-defer", "refused", "changes-memory", "wrong",
                                                    "no-such-setting", "not-modelled"})
                    if cell["verdict"] != "works":
                        for field in ("id", "paragraph", "hint", "link"):
                            self.assertTrue(cell[field], field)

    def test_the_text_fits_a_terminal(self):
        text = run("strategies", "--matrix").stdout
        self.assertLessEqual(max(map(len, text.splitlines())), 100)
        self.assertIn("\nddp-last ", text)

    def test_only_strategies_have_one(self):
        done = run("machines", "--matrix")
        self.assertEqual(done.returncode, 2)
        self.assertIn("tidemark list strategies --matrix", done.stderr)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The include checker finds what it is there to find. Every tree here breaks, or just keeps, one rule of the house."""

import tempfile
import unittest
from pathlib import Path

import check_includes

LICENCE = "// SPDX-License-Identifier: Apache-2.0\n"
HEADER = LICENCE + "#pragma once\n"


def faults_of(files):
    """What the checker says about a tree of {path: text}."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        return check_includes.check_tree(root)[0]


def includes(path, target):
    """The faults of a tree in which path includes target."""
    return faults_of({target: HEADER, path: LICENCE + f'#include "{target}"\n'})


class CheckIncludesTest(unittest.TestCase):
    def test_a_loop_over_an_element_of_a_temporary_is_found(self):
        def faults(loop):
            return len(faults_of({"sim/a.cc": LICENCE + loop + "\n"}))

        self.assertEqual(faults("for (const Node& node : Sound(job).roles.front().nodes) {"), 1)
        self.assertEqual(faults("for (const Node& node : Lower(Job(1), kind).roles.at(0).nodes) {"), 1)
        self.assertEqual(faults("for (const Node& node : Unroll(Lower(job).roles.front()).nodes) {"), 0)
        self.assertEqual(faults("for (const Row& row : Rows(Lower(job).roles.front())) {"), 0)
        self.assertEqual(faults("for (const Node& node : step.roles.front().nodes) {"), 0)
        self.assertEqual(faults("for (const Step& s : Plan(trace, 1).steps) {"), 0)

    def test_a_folder_may_use_itself_and_those_above_it(self):
        self.assertEqual(includes("models/job/a.cc", "models/job/a.h"), [])
        self.assertEqual(includes("models/job/a.cc", "base/b.h"), [])
        self.assertEqual(includes("cli/a.cc", "sim/engine/b.h"), [])

    def test_a_folder_may_not_use_those_below_it(self):
        self.assertEqual(
            includes("base/a.cc", "models/b.h"),
            ['base/a.cc:2: base/ may not include "models/b.h"; it may use: nothing'],
        )
        self.assertEqual(len(includes("traces/a.cc", "models/b.h")), 1)
        self.assertEqual(len(includes("reports/a.cc", "sim/program/b.h")), 1)
        self.assertEqual(len(includes("sim/a.cc", "cli/b.h")), 1)
        self.assertEqual(len(includes("sim/a.cc", "tests/b.h")), 1)

    def test_the_profiler_sees_the_program_and_the_allocators_but_no_engine(self):
        self.assertEqual(includes("profiler/execute/a.cc", "sim/program/b.h"), [])
        self.assertEqual(includes("profiler/execute/a.cc", "sim/memory/b.h"), [])
        self.assertEqual(len(includes("profiler/execute/a.cc", "sim/engine/b.h")), 1)

    def test_a_folder_is_not_its_longer_namesake(self):
        self.assertFalse(check_includes.is_within("sim/program_text/a.h", "sim/program"))

    def test_an_include_starts_at_the_root(self):
        self.assertEqual(len(faults_of({"base/a.h": HEADER, "base/b.cc": LICENCE + '#include "a.h"\n'})), 1)

    def test_a_source_includes_its_own_header_first(self):
        headers = {"base/a.h": HEADER, "base/b.h": HEADER}
        own, other, foreign = ('#include "base/a.h"\n', '#include "base/b.h"\n', "#include <string>\n")
        self.assertEqual(faults_of(headers | {"base/a.cc": LICENCE + own + foreign + other}), [])
        self.assertEqual(faults_of(headers | {"base/c.cc": LICENCE + other + own}), [])
        for wrong in (other + own, foreign + own, ""):
            self.assertEqual(
                faults_of(headers | {"base/a.cc": LICENCE + wrong}),
                ['base/a.cc:1: the first include must be its own header, "base/a.h"'],
            )

    def test_a_test_has_a_namespace_of_its_own(self):
        def faults(namespace):
            return len(faults_of({"tests/sim/a_test.cc": LICENCE + f"namespace {namespace} {{\n"}))

        self.assertEqual(faults("tidemark::a_test"), 0)
        self.assertEqual(faults("tidemark::kernels::a_test"), 0)
        self.assertEqual(faults("tidemark"), 1)
        self.assertEqual(faults("tidemark::b_test"), 1)

    def test_a_generated_header_counts_as_its_proto_file(self):
        proto = {"traces/a.proto": LICENCE}
        self.assertEqual(faults_of(proto | {"traces/a.cc": LICENCE + '#include "traces/a.pb.h"\n'}), [])
        self.assertEqual(len(faults_of(proto | {"base/a.cc": LICENCE + '#include "traces/a.pb.h"\n'})), 1)
        self.assertEqual(len(faults_of({"traces/a.cc": LICENCE + '#include "traces/a.pb.h"\n'})), 1)

    def test_a_file_without_licence_or_pragma_is_found(self):
        self.assertEqual(len(faults_of({"base/a.h": "#pragma once\n"})), 1)
        self.assertEqual(len(faults_of({"base/a.h": LICENCE})), 1)
        self.assertEqual(faults_of({"base/a.h": HEADER}), [])

    def test_a_file_may_have_400_lines_and_no_more(self):
        self.assertEqual(faults_of({"base/a.cc": LICENCE + "\n" * 399}), [])
        self.assertEqual(len(faults_of({"base/a.cc": LICENCE + "\n" * 400})), 1)


if __name__ == "__main__":
    unittest.main()

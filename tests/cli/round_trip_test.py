# SPDX-License-Identifier: Apache-2.0
"""Every strategy's trace through every trace format and back, and what each format holds of it. What is expected comes from
the prediction's JSON, from the trace before it was converted, or from readers of our own (trace_readers.py)."""

import collections
import csv
import functools
import gzip
import itertools
import json
import operator
import pathlib
import re
import tempfile
import unittest

import nsys_test
from trace_readers import READERS, highest, sign
from tidemark import run

TESTS = pathlib.Path(__file__).resolve().parents[1]
# A strategy's trace is of the first of these jobs that it accepts, with stages if it can be.
DECODER = ["decoder.yaml", "network.layers=2", "accumulation_steps=2"]
JOBS = [[*DECODER, "layout={dp: 4, pp: 2}"], [*DECODER, "layout={dp: 4}"], [*DECODER, "layout={dp: 4}", "shard.replicas=2"],
        ["dual_encoder.yaml"]]


def listed(what):
    return json.loads(run("list", what, "--format", "json").stdout)


def formats(use):
    return [row["name"] for row in listed("formats") if re.match(f"a trace, {use}: ", row["summary"])]


def same(*columns):
    return {column: operator.itemgetter(column) for column in columns}


def micros(row):
    return str(int(row["issue_ns"]) // 1000 * 1000)


# What a format makes of the columns of CSV. Phases come further below; members of a family have other numbers.
TOTALS = ("allocated_bytes", "reserved_bytes")
EVENTS = {**same("origin", "role", "event", "operation", "tensor", "category", "dtype", "bytes", "address", "step", *TOTALS),
          "sharding": lambda _: ""}
HELD = {
    "chrome": {**EVENTS, **same("issue_ns", "allocator_bytes"), "ready_ns": operator.itemgetter("issue_ns"), "stream": lambda _: ""},
    "torch-snapshot": {**EVENTS, **same("waits"), "issue_ns": micros, "ready_ns": micros,
                       "allocator_bytes": operator.itemgetter("guessed_bytes")},
}
UNITS = {"chrome": 1, "torch-snapshot": 1000}  # of times, in nanoseconds
MEMBER = operator.itemgetter("number", "tensor", "category", "dtype", "bytes", "index0", "index1")
STREAM = operator.itemgetter("number", "stream")


def with_guessed_bytes(rows):
    """Of a block that is gone by the end a snapshot tells the request only, and readers round that as PyTorch does."""
    stays = {(row["number"], row["born"]): row["operation"] == "alloc" for row in rows}
    guessed, before = collections.Counter(), collections.Counter()
    for row in rows:
        number, block = row["number"], abs(int(row["allocator_bytes"]) - before[row["number"]])
        guessed[number] += sign(row) * (block if stays[number, row["born"]] else -(-int(row["bytes"]) // 512) * 512)
        before[number] = int(row["allocator_bytes"])
        row["guessed_bytes"] = str(min(guessed[number], int(row["reserved_bytes"])))
    return rows


def of_every_strategy(check):
    """A test of each strategy's trace, given what was predicted of its roles."""
    @functools.wraps(check)
    def test(self):
        for name, roles in self.predictions.items():
            with self.subTest(strategy=name):
                check(self, self.folder / f"{name}.trace", roles)
    return test


class RoundTrip(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder, cls.predictions = pathlib.Path(holder.name), {}
        for name in (entry["name"] for entry in listed("strategies")):
            for job, *changes in JOBS:
                settings = (f"--set={change}" for change in (f"strategy={name}", *changes))
                done = run("predict", TESTS / "golden" / job, *settings, "--steps", 2, "--exit-zero", "--format", "json",
                           "--trace", cls.folder / f"{name}.trace")
                if done.returncode == 0:
                    cls.predictions[name] = json.loads(done.stdout)["roles"]
                    break
            else:
                raise AssertionError(f"no job of JOBS is one for {name}: {done.stderr}")

    def convert(self, path, to):
        """Once for all tests: a file is named after what it was made of."""
        out = self.folder / f"{path.name}.{to}"
        if not out.exists():
            done = run("convert", path, "--to", to, "-o", out)
            self.assertEqual(done.returncode, 0, done.stderr)
        return out

    def lines(self, path, to="jsonl"):
        done = run("convert", path, "--to", to, "-o", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()

    def rows(self, path):
        """The lines of CSV, with the number of their role and the event in which their block was born."""
        rows, numbers, born = list(csv.DictReader(self.lines(path, "csv"))), {}, {}
        for row in rows:
            row["number"] = numbers.setdefault(row["role"], len(numbers))
            block = row["number"], row["address"]
            row["born"] = born.setdefault(block, row["event"]) if row["operation"] == "alloc" else born.pop(block)
        return rows

    def tables(self, path, *kinds):
        """The lines of JSON of each kind."""
        tables = collections.defaultdict(list)
        for line in map(json.loads, self.lines(path)):
            tables[line["type"]].append(line)
        return [tables[kind] for kind in kinds]

    def assert_peaks(self, rows, roles):
        for number, role in enumerate(roles):
            own = [row for row in rows if row["number"] == number]
            for total in TOTALS:
                self.assertEqual(max(int(row[total]) for row in own), role[total], (role["role"], total))
            alive, at_peak = collections.Counter(), None
            for row in own:
                alive[row["category"]] += sign(row) * int(row["bytes"])
                at_peak = at_peak or (sum(alive.values()) == role["allocated_bytes"] and +alive)
            self.assertEqual(at_peak, +collections.Counter(role["by_category"]))

    def assert_one_to_one(self, pairs):
        self.assertEqual([len({pair[side] for pair in pairs}) for side in (0, 1)], [len(set(pairs))] * 2)

    def assert_same(self, found, expected, what=None):
        """Says where they begin to differ: a message about all of that would take minutes."""
        differ = (each for each in enumerate(itertools.zip_longest(found, expected)) if each[1][0] != each[1][1])
        self.assertIsNone(next(differ, None), what)

    def test_every_format_has_its_tests(self):
        both, written = formats("read and written"), formats("written")
        self.assertEqual(set(HELD), set(both) - {"tidemark"}, "HELD says what a format holds")
        self.assertEqual(set(READERS), set(both + written) - {"tidemark"}, "READERS reads what is written")

    @of_every_strategy
    def test_tidemarks_own_format_holds_everything(self, trace, roles):
        again = self.convert(trace, "tidemark")
        self.assertTrue(again.read_bytes() == trace.read_bytes())
        for to in ("csv", "jsonl"):
            self.assert_same(self.lines(again, to), self.lines(trace, to))
        self.assert_peaks(self.rows(again), roles)

    @of_every_strategy
    def test_other_formats_hold_every_event_and_its_bytes(self, trace, roles):
        before = with_guessed_bytes(self.rows(trace))
        for format, held in HELD.items():
            after = self.rows(self.convert(trace, format))
            for column, expect in held.items():
                self.assert_same([row[column] for row in after], map(expect, before), (format, column))
            self.assert_peaks(after, roles)
            self.assert_one_to_one([((a["number"], a["born"]), MEMBER(b)) for a, b in zip(before, after)])
            if format == "torch-snapshot":  # Chrome JSON has no streams of blocks
                self.assert_one_to_one([(STREAM(a), STREAM(b)) for a, b in zip(before, after)])

    @of_every_strategy
    def test_phases_and_steps_and_work_are_held(self, trace, _):
        """PyTorch's snapshots hold no work of streams, and a side is in its phase's name."""
        def stretch(line, unit):
            phase, side, microbatch = line.get("phase", "step"), line.get("side", ""), line.get("microbatch", -1)
            name = (phase, side) if unit == 1 else (f"{phase} ({side})" if side else phase, "")
            return line["trace"], line["begin_ns"] // unit, line["end_ns"] // unit, *name, microbatch, line.get("first_event", -1)

        work = operator.itemgetter("trace", "stream", "name", "start_ns", "end_ns")
        headers, spans, steps, slices = self.tables(trace, "header", "span", "step", "slice")
        self.assertEqual(len(steps), 2 * len(headers))
        for format, unit in UNITS.items():
            after = self.tables(self.convert(trace, format), "header", "span", "step", "slice")
            self.assertEqual([line["step_ns"] // unit for line in after[0]], [line["step_ns"] // unit for line in headers])
            self.assert_same(sorted(stretch(line, unit) for line in after[1]), sorted(stretch(line, unit) for line in spans), format)
            self.assert_same([stretch(line, unit) for line in after[2]], [stretch(line, unit) for line in steps], format)
            self.assert_same(sorted(map(work, after[3])), sorted(map(work, slices)) if format == "chrome" else [], format)

    @of_every_strategy
    def test_an_event_within_one_phase_is_of_that(self, trace, _):
        """Where phases meet, neither format tells which of them an event is of."""
        before, (spans,) = self.rows(trace), self.tables(trace, "span")
        for format, unit in UNITS.items():
            within = 0
            for row, after in zip(before, self.rows(self.convert(trace, format))):
                at = int(row["issue_ns"]) // unit
                around = [span for span in spans if span["trace"] == row["number"]
                          and span["begin_ns"] // unit <= at <= span["end_ns"] // unit]
                if row["phase"] and len(around) == 1 and at < around[0]["end_ns"] // unit:
                    told = after["phase"] + (f" ({after['side']})" if after["side"] else "")
                    phase = row["phase"] + (f" ({row['side']})" if row["side"] else "")
                    self.assertEqual((told, after["microbatch"]), (phase, row["microbatch"]), (format, row["event"]))
                    within += 1
            self.assertGreater(within, len(before) / 2)

    @of_every_strategy
    def test_what_is_written_sums_up_to_the_predicted_peak(self, trace, roles):
        for format, changes in READERS.items():
            found = highest(changes(self.convert(trace, format).read_bytes()))
            self.assertEqual(found, [role["allocated_bytes"] for role in roles], format)

    @of_every_strategy
    def test_chains_of_formats_hold_the_peak(self, trace, roles):
        kept = operator.itemgetter("number", "operation", "tensor", "category", "bytes", "address")
        for chain in itertools.permutations(HELD):
            last = functools.reduce(self.convert, [*chain, "tidemark"], trace)
            after = self.rows(last)
            self.assert_same(map(kept, after), map(kept, self.rows(trace)), chain)
            self.assert_peaks(after, roles)

    @of_every_strategy
    def test_what_a_format_holds_it_holds_the_second_time(self, trace, _):
        def told(path):  # but for the numbers of streams
            return [re.sub('"stream":"stream [0-9]+",', "", line) for line in self.lines(path)]

        for format in HELD:
            once = self.convert(trace, format)
            self.assert_same(told(self.convert(once, format)), told(once), format)

    def test_traces_of_several_origins_stay_apart(self):
        out = self.folder / "origins.json"
        recorded = TESTS / "traces" / "snapshots" / "plain.pickle"
        self.assertEqual(run("convert", self.folder / "ddp-last.trace", recorded, "--to", "chrome", "-o", out).returncode, 0)
        origins = {row["role"].split(":")[0]: row["origin"] for row in self.rows(out)}
        self.assertEqual(origins, {"ddp-last": "predicted", "plain": "torch snapshot"})

    def test_a_trace_agrees_with_what_was_made_of_it(self):
        for format in HELD:
            done = run("compare", self.folder / "fsdp1.trace", self.convert(self.folder / "fsdp1.trace", format), "--format", "json")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual({role["peak_error_bytes"] for role in json.loads(done.stdout)["roles"]}, {0}, format)

    def test_compressed_it_reads_the_same(self):
        for format in ("tidemark", *HELD):
            path = self.convert(self.folder / "ddp-last.trace", format)
            packed = self.folder / f"packed.{format}.gz"
            packed.write_bytes(gzip.compress(path.read_bytes()))
            self.assert_same(self.lines(packed), self.lines(path))

    def test_recordings_of_every_format_become_traces_of_ours(self):
        nsys = nsys_test.NsightSystems("setUp")  # an export, as that test makes it
        nsys.setUp()
        self.addCleanup(nsys.doCleanups)
        recordings = {"nsys": [nsys.path], "chrome": (TESTS / "traces" / "samples").glob("*.json.gz"),
                      "torch-snapshot": (TESTS / "traces" / "snapshots").glob("*.pickle")}
        self.assertEqual({"tidemark", *recordings}, {*formats("read"), *formats("read and written")})
        for path in itertools.chain(*recordings.values()):
            with self.subTest(path=path.name):
                ours = self.convert(path, "tidemark")
                self.assert_same(self.lines(ours), self.lines(path))
                self.assertTrue(self.convert(ours, "tidemark").read_bytes() == ours.read_bytes())


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""The verb convert from outside. What it writes for Perfetto is read in tests/traces/perfetto_test.py."""

import csv
import io
import json
import os
import pathlib
import pickle
import pty
import re
import shlex
import subprocess
import tempfile
import unittest

from tidemark import PROGRAM, run

JOBS = pathlib.Path(__file__).resolve().parents[1] / "jobs"
SNAPSHOTS = JOBS.parent / "traces" / "snapshots"
SAMPLES = {"gpt2": ["gpt2-ddp.yaml"], "gradcache": ["gradcache-bert-base.yaml"],
           "stages": ["llama-3-70b-tp8-pp4.yaml", "--set", "network.layers=8"], "steps": ["demo-small.yaml", "--steps", 3]}


def written_formats():
    formats = json.loads(run("list", "formats", "--format", "json").stdout)
    return [format["name"] for format in formats if re.match("a trace, (read and )?written: ", format["summary"])]


class Convert(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = pathlib.Path(holder.name)
        cls.predictions = {}
        for name, (job, *changes) in SAMPLES.items():
            done = run("predict", JOBS / job, *changes, "--exit-zero", "--trace", cls.folder / f"{name}.trace", "--format", "json")
            assert done.returncode == 0, done.stderr
            cls.predictions[name] = json.loads(done.stdout)

    def trace(self, name):
        return self.folder / f"{name}.trace"

    def convert(self, *arguments):
        done = run("convert", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def csv(self, *names):
        return list(csv.DictReader(io.StringIO(self.convert(*map(self.trace, names), "--to", "csv", "-o", "-").stdout)))

    def jsonl(self, name):
        return [json.loads(line) for line in self.convert(self.trace(name), "--to", "jsonl", "-o", "-").stdout.splitlines()]

    def assert_refused(self, *arguments, says, hint="hint: "):
        done = run("convert", *arguments)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertTrue(done.stderr.startswith("tidemark: error: "), done.stderr)
        self.assertIn(says, done.stderr)
        self.assertIn(hint, done.stderr)

    def test_every_format_is_written_and_the_same_twice(self):
        formats = written_formats()
        self.assertLessEqual({"tidemark", "perfetto", "csv", "jsonl"}, set(formats))
        for name in SAMPLES:
            for format in formats:
                with self.subTest(job=name, format=format):
                    paths = [self.folder / f"{name}.{format}.{i}" for i in range(2)]
                    for path in paths:
                        done = self.convert(self.trace(name), "--to", format, "-o", path)
                        self.assertEqual(done.stdout, "")
                        self.assertIn(f": {path.stat().st_size:,} bytes from ", done.stderr)
                    self.assertEqual(paths[0].read_bytes(), paths[1].read_bytes())
                    self.assertEqual(run("convert", self.trace(name), "--to", format, "-o", "-", text=False).stdout,
                                     paths[0].read_bytes())

    def test_a_trace_of_ours_stays_as_it_is(self):
        for name in SAMPLES:
            again = self.folder / "again.tidemark"
            self.convert(self.trace(name), "-o", again)
            self.assertEqual(again.read_bytes(), self.trace(name).read_bytes())

    def test_the_ending_chooses_the_format(self):
        for ending, begin in {".csv": b"origin,role,", ".jsonl": b'{"type":"header"', ".ndjson": b'{"type":"header"',
                              ".trace": b"TIDEMARK TRACE", ".zip": b"PK", ".pickle": b"\x80", ".pftrace": b"\n", ".perfetto-trace": b"\n"}.items():
            path = self.folder / f"chosen{ending}"
            self.convert(self.trace("gpt2"), "-o", path)
            self.assertTrue(path.read_bytes().startswith(begin), ending)

    def test_csv_and_json_lines_peak_where_the_prediction_does(self):
        for name, prediction in self.predictions.items():
            roles = {role["role"]: role for role in prediction["roles"]}
            rows = self.csv(name)
            self.assertEqual({row["role"] for row in rows}, set(roles))
            lines = self.jsonl(name)
            headers = {line["trace"]: line for line in lines if line["type"] == "header"}
            for role, peaks in roles.items():
                own = [row for row in rows if row["role"] == role]
                events = [line for line in lines if line["type"] == "memory" and headers[line["trace"]]["role"] == role]
                for key in ("allocated_bytes", "allocator_bytes", "reserved_bytes"):
                    self.assertEqual(max(int(row[key]) for row in own), peaks[key], (name, role, key))
                    self.assertEqual(max(event[key] for event in events), peaks[key], (name, role, key))

    def test_csv_and_json_lines_tell_the_same_events(self):
        for name in SAMPLES:
            events = [line for line in self.jsonl(name) if line["type"] == "memory"]
            rows = self.csv(name)
            self.assertEqual(len(rows), len(events))
            for row, event in zip(rows, events):
                for key, value in row.items():
                    if key not in ("origin", "role", "dtype", "sharding", "waits"):
                        self.assertEqual(value, str(event.get(key, "")), (name, key))
                self.assertEqual(row["waits"] == "true", event.get("waits", False))

    def test_totals_follow_from_the_events_themselves(self):
        for name in SAMPLES:
            alive, role = 0, None
            for row in self.csv(name):
                alive = 0 if row["role"] != role else alive
                role = row["role"]
                alive += int(row["bytes"]) * (1 if row["operation"] == "alloc" else -1)
                self.assertEqual(alive, int(row["allocated_bytes"]))

    def test_json_lines_describe_themselves(self):
        lines = self.jsonl("steps")
        self.assertEqual({line["type"] for line in lines}, {"header", "tensor", "span", "step", "memory", "slice"})
        self.assertEqual(lines[0]["type"], "header")
        self.assertEqual(lines[0]["origin"], "predicted")
        self.assertEqual([line["kind"] for line in lines if line["type"] == "step"], ["first", "second", "steady"])
        tensors = {(line["tensor"], line["category"], line["bytes"]) for line in lines if line["type"] == "tensor"}
        spans = {(line["phase"], line.get("microbatch")) for line in lines if line["type"] == "span"}
        self.assertEqual({line.get("step") for line in lines if line["type"] == "memory"}, {0, 1, 2})
        for line in lines:
            if line["type"] == "memory":
                self.assertIn((line["tensor"], line["category"], line["bytes"]), tensors)
            if "phase" in line:
                self.assertIn((line["phase"], line.get("microbatch")), spans)
        sides = {line.get("side") for line in self.jsonl("gradcache") if line["type"] == "span"}
        self.assertLessEqual({"query", "passage"}, sides)

    def test_several_files_keep_apart_by_their_names(self):
        odd = self.folder / 'a "b", c.trace'  # the roles that it gives are quoted
        odd.write_bytes(self.trace("gpt2").read_bytes())
        done = self.convert(odd, self.trace("stages"), "--to", "csv", "-o", "-")
        roles = list(dict.fromkeys(row["role"] for row in csv.DictReader(io.StringIO(done.stdout))))
        self.assertEqual(roles, ['a "b", c: stage 0'] + [f"stages: stage {i}" for i in range(4)])
        self.assertIn(" of 5 traces\n", done.stderr)
        merged = self.folder / "merged.trace"
        self.convert(odd, self.trace("stages"), "-o", merged)
        self.assertEqual(len(json.loads(run("report", merged, "--format", "json").stdout)["traces"]), 1)

    def test_a_file_name_that_is_no_text_does_no_harm(self):
        odd = os.fsencode(self.folder) + b"/\xff\xfe.trace"
        with open(odd, "wb") as file:
            file.write(self.trace("gpt2").read_bytes())
        merged = self.folder / "of_odd.trace"
        self.convert(os.fsdecode(odd), self.trace("steps"), "-o", merged)
        done = run("report", merged, "--role", "\ufffd\ufffd: stage 0", "--format", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["traces"][0]["peak"]["allocated_bytes"],
                         self.predictions["gpt2"]["peak"]["allocated_bytes"])

    def test_a_role_is_picked_by_its_name(self):
        done = self.convert(self.trace("stages"), "--role", "stage 2", "--to", "csv", "-o", "-")
        self.assertEqual({row["role"] for row in csv.DictReader(io.StringIO(done.stdout))}, {"stage 2"})
        self.assertIn(" of 1 trace\n", done.stderr)
        self.assert_refused(self.trace("stages"), "--role", "stage 7", "-o", self.folder / "no.csv", says="'stage 7'")

    def test_what_a_format_does_not_tell_is_said(self):
        for target, lost in (("chrome", "streams of allocations"), ("torch-snapshot", "work of streams"), ("csv", None)):
            with self.subTest(target):
                note = [line for line in self.convert(self.trace("gpt2"), "--to", target, "-o", self.folder / "lost").stderr.splitlines()
                        if line.startswith("note: ")]
                self.assertEqual(len(note), 0 if lost is None else 1)
                self.assertIn(lost or "", "".join(note))
        sample = JOBS.parent / "traces" / "samples" / "torch-1.13-cpu-decoder.json.gz"  # one stream, and no reserved memory
        self.assertNotIn("note: ", self.convert(sample, "--to", "chrome", "-o", self.folder / "lost").stderr)
        self.assertIn("reserved memory", self.convert(sample, "--to", "torch-snapshot", "-o", self.folder / "lost").stderr)
        note = self.convert(self.trace("gpt2"), "--to", "torch-snapshot", "-o", self.folder / "lost").stderr
        self.assertIn("sizes of blocks: it rounds", note)
        self.assertNotIn("times below a microsecond", note)  # launches of 4 us
        finer = self.convert(self.trace("steps"), "--to", "torch-snapshot", "-o", self.folder / "lost").stderr
        self.assertIn("times below a microsecond", finer)
        self.assertNotIn("blocks", self.convert(SNAPSHOTS / "new_4.pickle", "--to", "torch-snapshot", "-o", self.folder / "lost").stderr)

    def test_what_is_not_known_is_an_empty_field(self):
        """The profiler of a processor tells neither dtypes nor what is reserved."""
        sample = JOBS.parent / "traces" / "samples" / "torch-2.15-cpu-resnet-1.json.gz"
        rows = list(csv.DictReader(io.StringIO(self.convert(sample, "--to", "csv", "-o", "-").stdout)))
        self.assertEqual({(row["category"], row["dtype"], row["reserved_bytes"]) for row in rows}, {("unknown", "", "")})
        self.assertGreater(max(int(row["allocator_bytes"]) for row in rows), 0)
        lines = [json.loads(line) for line in self.convert(sample, "--to", "jsonl", "-o", "-").stdout.splitlines()]
        self.assertFalse([line for line in lines if "dtype" in line or "reserved_bytes" in line])

    def test_each_device_keeps_its_own_phases_and_steps(self):
        """Annotations of a snapshot are of one of its two devices."""
        self.convert(SNAPSHOTS / "new_4.pickle", "--to", "chrome", "-o", self.folder / "two.json")

        def told(path):
            rows = list(csv.DictReader(io.StringIO(self.convert(path, "--to", "csv", "-o", "-").stdout)))
            return {(row["role"], row["phase"], row["step"]) for row in rows}
        self.assertEqual(told(self.folder / "two.json"), told(SNAPSHOTS / "new_4.pickle"))

    def test_a_cut_file_is_converted_as_far_as_it_goes_and_says_so(self):
        cut = self.folder / "cut.trace"
        whole = self.trace("gpt2").read_bytes()
        cut.write_bytes(whole[:len(whole) * 2 // 3])
        done = self.convert(cut, "--to", "csv", "-o", "-")
        self.assertRegex(done.stderr, r"note: .*cut\.trace: the file was cut off or damaged after [\d,]+ events\n")
        self.assertGreater(len(done.stdout.splitlines()), 100)
        self.assertLess(len(done.stdout.splitlines()), len(self.csv("gpt2")))
        # What was missing is still missing in what is made of it.
        again = self.folder / "of_cut.trace"
        self.convert(cut, "-o", again)
        told = [json.loads(run("report", path, "--format", "json").stdout)["traces"][0]["cut_short"] for path in (cut, again)]
        self.assertRegex(told[0], r"the file was cut off or damaged after [\d,]+ events")
        self.assertEqual(told[1], told[0])
        self.assertEqual(run("convert", again, "--to", "csv", "-o", "-").stdout, done.stdout)

    def test_unknown_formats_are_refused_with_what_was_meant(self):
        out = self.folder / "never.bin"
        self.assert_refused(self.trace("gpt2"), "--to", "perfeto", "-o", out, says="expected one of", hint="did you mean perfetto?")
        self.assert_refused(self.trace("gpt2"), "--to", "xyzzy", "-o", out, says="'xyzzy' is not a trace format")
        self.assert_refused(self.trace("gpt2"), "-o", out, says="the ending tells no trace format", hint="--to")
        self.assert_refused(self.trace("gpt2"), "-o", "-", says="the ending tells no trace format")
        self.assert_refused(self.trace("gpt2"), "--to", "csv", "-o", self.folder / "never.zip", says="csv has no archives")
        self.assertFalse(out.exists())

    def test_a_trace_is_not_written_under_the_ending_of_another_format(self):
        """It would be Tidemark's own whatever its name, and no other tool would open it."""
        for verb in (("predict", JOBS / "gpt2-ddp.yaml"), ("run", JOBS / "demo-small.yaml"), ("replay", self.trace("gpt2"))):
            for name, format in (("step.pickle", "torch-snapshot"), ("a b.JSON", "chrome")):
                with self.subTest(f"{verb[0]} {name}"):
                    out = self.folder / name
                    done = run(*verb, "--trace", out)
                    self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                    self.assertIn(f"{out.suffix.lower()} is the ending of {format}", done.stderr)
                    own, other = (shlex.quote(str(path)) for path in (out.with_suffix(".trace"), out))
                    self.assertIn(f"--trace {own}, and behind that: tidemark convert {own} -o {other}", done.stderr)
                    self.assertFalse(out.exists())

    def test_a_trace_is_not_written_under_the_ending_of_a_compressed_one(self):
        for name, own in (("step.trace.gz", "step.trace"), ("step.json.GZ", "step.trace"), ("step.gz", "step"), ("step.trace.zst", "step.trace")):
            done = run("predict", JOBS / "gpt2-ddp.yaml", "--trace", self.folder / name)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertIn(f"--trace {self.folder / name}: what is written is not compressed", done.stderr)
            self.assertIn(f"hint: --trace {self.folder / own}, and behind that: gzip {self.folder / own} (", done.stderr)

    def test_the_name_that_is_advised_for_a_compressed_trace_is_free(self):
        trace = self.trace("gpt2")
        done = run("replay", trace, "--trace", f"{trace}.gz")
        self.assertIn(f"hint: --trace {trace.with_suffix('.tidemark')}, and behind that: gzip ", done.stderr)

    def test_the_name_that_is_advised_for_a_trace_is_free(self):
        done = run("replay", self.trace("gpt2"), "--trace", self.trace("gpt2").with_suffix(".json"))
        self.assertIn(f"hint: --trace {self.trace('gpt2').with_suffix('.tidemark')}, ", done.stderr)

    def test_a_snapshot_of_expandable_segments_has_them(self):
        """As many as PyTorch makes: one for small blocks and one for large ones, which grow, and nothing made up."""
        trace, snapshot = self.folder / "expandable.trace", self.folder / "expandable.pickle"
        done = run("predict", JOBS / "gpt2-ddp.yaml", "--set", "allocator.expandable_segments=true", "--trace", trace, "--format", "json")
        self.assertNotIn("where blocks lie", self.convert(trace, "-o", snapshot).stderr)
        told = pickle.loads(snapshot.read_bytes())
        entries, reserved = told["device_traces"][0], 0
        for entry in entries:
            sign = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}.get(entry["action"], 0)
            reserved += sign * entry["size"]
        self.assertEqual(reserved, json.loads(done.stdout)["peak"]["reserved_bytes"])  # nothing is given back
        self.assertEqual(sum(segment["total_size"] for segment in told["segments"]), reserved)
        self.assertEqual([segment["is_expandable"] for segment in told["segments"]], [True, True])

    def test_inputs_are_never_overwritten(self):
        link = self.folder / "link.csv"
        link.symlink_to(self.trace("gpt2"))
        before = self.trace("gpt2").read_bytes()
        for output in (self.trace("gpt2"), link):
            self.assert_refused(self.trace("stages"), self.trace("gpt2"), "--to", "csv", "-o", output, says="would be overwritten")
        self.assertEqual(self.trace("gpt2").read_bytes(), before)

    def test_what_cannot_be_read_or_written_is_named_and_leaves_no_file(self):
        text = self.folder / "notes.txt"
        text.write_text("no trace\n")
        out = self.folder / "never.csv"
        self.assert_refused(text, "-o", out, says=str(text))
        self.assert_refused(self.folder / "missing.trace", "-o", out, says="missing.trace")
        self.assert_refused(self.folder, "-o", out, says=str(self.folder))
        self.assert_refused(self.trace("gpt2"), text, "-o", out, says=str(text))
        self.assert_refused(self.trace("gpt2"), "-o", self.folder / "none" / "x.csv", says="x.csv")
        self.assertFalse(out.exists())
        self.assertEqual([path for path in self.folder.iterdir() if path.suffix == ".tmp"], [])
        self.assertEqual(run("convert", self.trace("gpt2")).returncode, 2)

    def test_a_terminal_gets_text_but_nothing_binary(self):
        for format, code in (("perfetto", 2), ("tidemark", 2), ("csv", 0)):
            ours, theirs = pty.openpty()
            process = subprocess.Popen([PROGRAM, "convert", self.trace("steps"), "--to", format, "-o", "-"], stdout=theirs,
                                       stderr=subprocess.PIPE, text=True)
            os.close(theirs)
            shown = b""
            try:
                while piece := os.read(ours, 65536):
                    shown += piece
            except OSError:  # the other end is closed
                pass
            error = process.communicate(timeout=60)[1]
            os.close(ours)
            self.assertEqual(process.returncode, code, error)
            self.assertEqual(shown.startswith(b"origin,role"), code == 0)
            self.assertEqual("stdout is a terminal" in error, code == 2)


if __name__ == "__main__":
    unittest.main()

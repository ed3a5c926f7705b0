# SPDX-License-Identifier: Apache-2.0
"""Chrome JSON from outside: a recorded profile has the peak that its own script computed, in every way in which the file
can be handed over."""

import collections
import gzip
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

PROGRAM = os.environ["TIDEMARK_PROGRAM"]
SAMPLE = pathlib.Path(__file__).resolve().parent.parent / "traces/samples/torch-1.13-cpu-decoder.json.gz"


def report(*arguments, **more):
    return subprocess.run([PROGRAM, "report", *map(str, arguments)], capture_output=True, timeout=120, check=False, **more)


class RecordedProfile(unittest.TestCase):
    """Numbers: tests/traces/samples/README.md."""

    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = pathlib.Path(holder.name)
        cls.plain = cls.folder / "plain.json"
        cls.plain.write_bytes(gzip.decompress(SAMPLE.read_bytes()))

    def check(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        trace = json.loads(done.stdout)["traces"][0]
        self.assertEqual(trace["format"], "chrome")
        self.assertIsNone(trace["cut_short"])
        self.assertEqual((trace["events"], trace["steps"]), (5088, 2))
        peak = trace["peak"]
        self.assertEqual(peak["role"], "cpu")
        self.assertEqual(peak["allocated_bytes"], 5_349_972)
        self.assertEqual(peak["allocator_bytes"], 5_349_972)
        at = peak["at"]
        self.assertEqual((at["ns"], at["step"], at["phase"], at["microbatch"]), (23_810_795, 1, "backward", 1))
        # What was allocated last lives from the peak's instant on.
        self.assertEqual([(row["name"], row["bytes"]) for row in peak["live"] if row["since"] == 23_810_795],
                         [("aten::_log_softmax_backward_data", 262_144)])

    def test_its_peak_is_the_one_that_the_profiler_counted(self):
        self.check(report(SAMPLE, "--format", "json"))
        self.check(report(self.plain, "--format", "json"))

    def test_it_is_read_from_stdin(self):
        self.check(report("-", "--format", "json", input=SAMPLE.read_bytes()))
        self.check(report("-", "--format", "json", input=self.plain.read_bytes()))
        with open(SAMPLE, "rb") as file:
            self.check(report("-", "--format", "json", stdin=file))

    def test_what_is_alive_at_its_end_are_parameters_and_states(self):
        # A file that ends with an allocation of that size more than the peak peaks there, with all that is alive at the end.
        trace = json.loads(self.plain.read_bytes())
        trace["traceEvents"].append({"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": 1e9, "args": {
            "Device Type": 0, "Device Id": -1, "Addr": 1, "Bytes": 10_000_000, "Total Allocated": 11_994_556, "Total Reserved": 0}})
        path = self.folder / "longer.json"
        path.write_text(json.dumps(trace))
        peak = json.loads(report(path, "--format", "json").stdout)["traces"][0]["peak"]
        self.assertEqual(peak["allocated_bytes"], 1_994_556 + 10_000_000)

    def test_one_that_is_cut_off_says_so_and_one_that_is_damaged_is_refused(self):
        cut = self.folder / "cut.json"
        cut.write_bytes(self.plain.read_bytes()[:2_000_000])
        done = report(cut, "--format", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("cut off after", json.loads(done.stdout)["traces"][0]["cut_short"])
        damaged = self.folder / "damaged.json.gz"
        damaged.write_bytes(SAMPLE.read_bytes()[:200_000])
        done = report(damaged, "--format", "json")
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"damaged.json.gz: the gzip file is damaged or cut off after", done.stderr)
        self.assertIn(b"hint: ", done.stderr)


JOB = """network: gpt2
machine: a100-sxm-40gb
sequence_length: 512
micro_batch_size: 2
accumulation_steps: 3
layout: {dp: 4, pp: 2}
strategy: ddp-last
"""


class WrittenTrace(unittest.TestCase):
    """What convert writes, read by Python's json."""

    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        folder = pathlib.Path(holder.name)
        (folder / "job.yaml").write_text(JOB)
        trace, cls.path = folder / "step.trace", folder / "step.json"
        for arguments in (["predict", folder / "job.yaml", "--trace", trace], ["convert", trace, "-o", cls.path]):
            subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, check=True, timeout=120)
        cls.peaks = {role: json.loads(report(trace, "--format", "json", "--role", role).stdout)["traces"][0]["peak"]
                     for role in ("stage 0", "stage 1")}
        cls.events = json.loads(cls.path.read_text(encoding="utf-8"))["traceEvents"]
        cls.roles = {event["args"]["name"]: event["pid"] for event in cls.events if event["name"] == "process_name"}

    def of(self, role, **keys):
        return [event for event in self.events if event["pid"] == self.roles[role]
                and all(event.get(key) == value for key, value in keys.items())]

    def test_replayed_by_address_every_stage_has_the_predicted_peak(self):
        for role, predicted in self.peaks.items():
            alive, total, highest = {}, 0, (0, 0)
            for event in self.of(role, name="[memory]"):
                args = event["args"]
                if args["Bytes"] > 0:
                    self.assertNotIn(args["Addr"], alive)
                    alive[args["Addr"]] = args["Bytes"]
                else:
                    self.assertEqual(alive.pop(args["Addr"]), -args["Bytes"])
                total += args["Bytes"]
                self.assertEqual(args["Total Allocated"], total)
                if total > highest[0]:
                    highest = (total, event["ts"])
            self.assertEqual(highest[0], predicted["allocated_bytes"])
            self.assertEqual(round(highest[1] * 1000), predicted["at"]["ns"])
            self.assertEqual(max(event["args"]["Total Reserved"] for event in self.of(role, name="[memory]")),
                             predicted["reserved_bytes"])

    def test_counters_tell_the_bytes_of_each_category_after_every_instant(self):
        for role in self.peaks:
            after = {}
            totals = collections.Counter()
            for event in self.of(role, name="[memory]"):
                totals[event["args"]["Category"]] += event["args"]["Bytes"]
                after[event["ts"]] = dict(totals)
            counters = {event["ts"]: event["args"] for event in self.of(role, ph="C")}
            self.assertEqual(list(counters), list(after))
            for ts, args in counters.items():
                self.assertEqual({name: n_bytes for name, n_bytes in args.items() if n_bytes},
                                 {name: n_bytes for name, n_bytes in after[ts].items() if n_bytes})

    def test_slices_lie_on_named_streams_and_phases_on_the_host(self):
        for role in self.peaks:
            names = {event["tid"]: event["args"]["name"] for event in self.of(role, name="thread_name")}
            slices = self.of(role, ph="X")
            self.assertLessEqual({event["tid"] for event in slices}, set(names))
            phases = {event["name"] for event in slices if event["cat"] == "user_annotation"}
            self.assertLessEqual({"microbatch 0 forward", "microbatch 2 backward", "optimizer"}, phases)
            self.assertTrue(any(event["cat"] == "kernel" and event["dur"] > 0 for event in slices))

    def test_it_is_read_back_to_the_same_peak(self):
        read = json.loads(report(self.path, "--format", "json").stdout)["traces"][0]
        self.assertEqual(read["origin"], "predicted")
        highest = max(self.peaks.values(), key=lambda peak: peak["allocated_bytes"])
        for key in ("allocated_bytes", "reserved_bytes", "by_category"):
            self.assertEqual(read["peak"][key], highest[key])
        least = highest["live"][-1]["bytes"]  # of these the list is not complete
        alive = [sorted((row["bytes"], row["name"], row["dtype"]) for row in peak["live"] if row["bytes"] > least)
                 for peak in (read["peak"], highest)]
        self.assertGreater(len(alive[0]), 5)
        self.assertEqual(*alive)


if __name__ == "__main__":
    unittest.main()

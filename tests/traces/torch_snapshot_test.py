#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Python's pickle loads the snapshots that we write, and they keep every promise that PyTorch's viewer relies on.

Takes the writer from $TIDEMARK_REWRITE and the program from $TIDEMARK_PROGRAM. What is replayed here is counted from the
entries alone and compared with what the writer counted from its trace, and with what `tidemark predict` says.
"""

import json
import os
import pathlib
import pickle
import pickletools
import subprocess
import tempfile
import unittest

PROGRAM = os.environ["TIDEMARK_PROGRAM"]
REWRITE = os.environ["TIDEMARK_REWRITE"]
TESTS = pathlib.Path(__file__).resolve().parent.parent
SNAPSHOTS = TESTS / "traces" / "snapshots"

# What `unpickle` in PyTorch's MemoryViz.js knows, as far as protocol 2 has it.
VIEWERS_OPCODES = {"PROTO", "EMPTY_DICT", "EMPTY_LIST", "MARK", "SETITEMS", "APPENDS", "BINUNICODE", "BININT", "BININT1", "BININT2",
                   "LONG1", "NEWTRUE", "NEWFALSE", "TUPLE2", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "STOP"}


def touches(segments, at, other):
    return at in segments and other in segments and at + segments[at][0] == other and segments[at][1] == segments[other][1]


def insert(segments, address, size, stream, merge):
    assert address not in segments
    segments[address] = [size, stream]
    if merge and touches(segments, address, address + size):
        segments[address][0] += segments.pop(address + size)[0]
    before = next((at for at in segments if merge and touches(segments, at, address)), None)
    if before is not None:
        segments[before][0] += segments.pop(address)[0]


def cut(segments, address, size):
    begin = next(at for at in segments if at <= address and address + size <= at + segments[at][0])
    whole, stream = segments.pop(begin)
    if begin < address:
        segments[begin] = [address - begin, stream]
    if address + size < begin + whole:
        segments[address + size] = [begin + whole - address - size, stream]


def remove(segments, address, size):
    assert segments.pop(address)[0] == size


def outside(segments, blocks):
    """Blocks that lie in no segment."""
    found = []
    ordered = sorted(segments)
    place = 0
    for address in sorted(blocks):
        while place + 1 < len(ordered) and ordered[place + 1] <= address:
            place += 1
        if not ordered or not (ordered[place] <= address and
                               address + blocks[address] <= ordered[place] + segments[ordered[place]][0]):
            found.append(address)
    return found


class Device:
    """Plays a device's entries forwards, and keeps the state after each."""

    def __init__(self, snapshot, index):
        self.entries = snapshot["device_traces"][index]
        self.end = [segment for segment in snapshot["segments"] if segment["device"] == index]
        self.segments, self.blocks, self.pending = {}, {}, {}
        self.alive = self.reserved = self.peak = self.most_reserved = self.moments = self.waits = self.refused = 0
        self.failures = []
        for i, entry in enumerate(self.entries):
            self.play(i, entry)

    def play(self, i, entry):
        action, address, size = entry["action"], entry["addr"], entry["size"]
        if action == "alloc":
            if address in self.blocks or address in self.pending:
                self.failures.append(f"entry {i} allocates a block that is taken")
            self.blocks[address] = size
            self.alive += size
            self.moments += 1
        elif action == "free_requested":
            if self.blocks.pop(address, None) != size:
                self.failures.append(f"entry {i} frees what is not there")
            self.pending[address] = size
            self.alive -= size
            self.moments += 1
            after = self.entries[i + 1] if i + 1 < len(self.entries) else {}
            self.waits += not (after.get("action") == "free_completed" and after["addr"] == address and
                               after["time_us"] - entry["time_us"] <= 1)
        elif action == "free_completed":
            if self.pending.pop(address, None) != size:
                self.failures.append(f"entry {i} completes what was not freed")
        elif action in ("segment_alloc", "segment_map"):
            insert(self.segments, address, size, entry["stream"], action == "segment_map")
            self.reserved += size
        elif action == "segment_free":
            remove(self.segments, address, size)
            self.reserved -= size
        elif action == "segment_unmap":
            cut(self.segments, address, size)
            self.reserved -= size
        elif action == "oom" and "device_free" in entry:  # which PyTorch's own tool prints
            self.refused += 1
        else:
            self.failures.append(f"entry {i} is of the action {action}")
        if i > 0 and entry["time_us"] < self.entries[i - 1]["time_us"]:
            self.failures.append(f"entry {i} is before the one before it")
        if action in ("alloc", "free_requested"):
            self.peak = max(self.peak, self.alive)
            self.most_reserved = max(self.most_reserved, self.reserved)
            missing = outside(self.segments, {**self.blocks, **self.pending}) if action == "alloc" else []
            if missing:
                self.failures.append(f"after entry {i} blocks lie in no segment: {missing}")

    def backwards(self):
        """What the Allocator State History does: from the segments at the end, entry by entry to the beginning."""
        segments = {segment["address"]: [segment["total_size"], segment["stream"]] for segment in self.end}
        blocks = {block["address"]: block["requested_size"] for segment in self.end for block in segment["blocks"]
                  if block["state"] != "inactive"}
        for i, entry in reversed(list(enumerate(self.entries))):
            action, address, size = entry["action"], entry["addr"], entry["size"]
            if action == "alloc":
                del blocks[address]
            elif action == "free_completed":
                blocks[address] = size
            elif action in ("segment_free", "segment_unmap"):
                insert(segments, address, size, entry["stream"], action == "segment_unmap")
            elif action == "segment_alloc":
                remove(segments, address, size)
            elif action == "segment_map":
                cut(segments, address, size)
            if not action.startswith("segment") and i % 7 == 0 and outside(segments, blocks):
                self.failures.append(f"going back, a block lies in no segment at entry {i}")
        if segments or blocks:
            self.failures.append("something is left at the beginning")


class TorchSnapshotTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def rewritten(self, path):
        """What the writer read, and the snapshot that it wrote."""
        out = self.folder / "snapshot.pickle"
        done = subprocess.run([REWRITE, str(path), str(out)], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        data = out.read_bytes()
        self.assertLessEqual({opcode.name for opcode, _, _ in pickletools.genops(data)}, VIEWERS_OPCODES)
        self.assertEqual(data[:2], b"\x80\x02")
        return json.loads(done.stdout), pickle.loads(data)

    def predicted(self, job, *settings):
        path = self.folder / "predicted.trace"
        done = subprocess.run([PROGRAM, "predict", str(TESTS / "jobs" / job), "--format", "json", "--trace", str(path), *settings],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout), path

    def check(self, read, snapshot):
        """A device for each trace, in which the entries, the segments at the end and the trace agree."""
        self.assertEqual(len(snapshot["device_traces"]), len(read["traces"]))
        devices = []
        for index, trace in enumerate(read["traces"]):
            device = Device(snapshot, index)
            device.backwards()
            self.assertEqual(device.failures, [])
            self.assertEqual(device.peak, trace["peak"])
            self.assertEqual(device.alive, trace["end"])
            self.assertEqual(device.most_reserved, trace["reserved"])
            self.check_end(device)
            devices.append(device)
        return devices

    def check_end(self, device):
        self.assertEqual({segment["address"]: [segment["total_size"], segment["stream"]] for segment in device.end}, device.segments)
        alive, pending = {}, {}
        for segment in device.end:
            at = segment["address"]
            for block in segment["blocks"]:
                self.assertEqual(block["address"], at, "blocks lie behind each other")
                self.assertLessEqual(block["requested_size"], block["size"])
                at += block["size"]
                if block["state"] == "active_allocated":
                    alive[block["address"]] = block["requested_size"]
                elif block["state"] == "active_pending_free":
                    pending[block["address"]] = block["requested_size"]
                else:
                    self.assertEqual(block["state"], "inactive")
            self.assertEqual(at, segment["address"] + segment["total_size"], "blocks fill their segment")
            self.assertEqual(segment["allocated_size"],
                             sum(block["size"] for block in segment["blocks"] if block["state"] == "active_allocated"))
        self.assertEqual(alive, device.blocks)
        self.assertEqual(pending, device.pending)

    def test_a_prediction_is_replayed_to_its_own_peak(self):
        for job, role in (("gpt2-ddp.yaml", 0), ("nanotron-tinystories-tp4.yaml", 0)):
            with self.subTest(job=job):
                report, path = self.predicted(job)
                read, snapshot = self.rewritten(path)
                devices = self.check(read, snapshot)
                self.assertEqual(max(device.peak for device in devices), report["peak"]["allocated_bytes"])

    def test_every_allocator_gives_a_snapshot_that_can_be_played_backwards(self):
        for settings in (["allocator.kind=exact"], ["allocator.kind=cuda-async"], ["allocator.kind=arena"],
                         ["allocator.expandable_segments=true"]):
            with self.subTest(settings=settings):
                _, path = self.predicted("demo-small.yaml", *(word for setting in settings for word in ("--set", setting)))
                self.check(*self.rewritten(path))

    def test_recorded_snapshots_are_written_with_the_same_peaks(self):
        for path in sorted(SNAPSHOTS.glob("*.pickle")):
            with self.subTest(path=path.name):
                read, snapshot = self.rewritten(path)
                devices = self.check(read, snapshot)
                for device, trace in zip(devices, read["traces"]):
                    self.assertEqual(device.moments, trace["events"])
                    self.assertEqual(device.waits, trace["waits"])
                own = pickle.loads(path.read_bytes())  # the oldest are lists of segments alone
                entries = [entry for device in own["device_traces"] for entry in device] if isinstance(own, dict) else []
                refused = sum(entry["action"] == "oom" for entry in entries)
                self.assertEqual(sum(device.refused for device in devices), refused)

    def test_an_allocation_names_its_tensor_category_and_phase(self):
        _, path = self.predicted("gpt2-ddp.yaml")
        _, snapshot = self.rewritten(path)
        frames = [entry["frames"] for entry in snapshot["device_traces"][0] if entry["action"] == "alloc"]
        self.assertTrue(all([frame["filename"] for frame in stack][:2] == ["tensor", "category"] for stack in frames))
        categories = {entry["category"] for entry in snapshot["device_traces"][0] if "category" in entry}
        self.assertLessEqual({"unknown", "parameter", "gradient"}, categories, "without 'unknown' the viewer stops")
        phases = {stack[2]["name"] for stack in frames if len(stack) > 2}
        self.assertIn("forward#0", phases)
        self.assertIn("backward#0", phases)
        marks = {(mark["name"], mark["stage"]) for mark in snapshot["external_annotations"]}
        self.assertLessEqual({("forward#0", "START"), ("forward#0", "END")}, marks)

    def test_the_fixtures_are_what_their_maker_makes(self):
        done = subprocess.run(["python3", str(SNAPSHOTS / "make_snapshots.py"), str(self.folder)], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        for path in sorted(SNAPSHOTS.glob("*.pickle")):  # Python's versions remember different values, and mean the same
            self.assertEqual(pickle.loads((self.folder / path.name).read_bytes()), pickle.loads(path.read_bytes()))
        self.assertEqual((self.folder / "expected.txt").read_text(), (SNAPSHOTS / "expected.txt").read_text())


if __name__ == "__main__":
    unittest.main()

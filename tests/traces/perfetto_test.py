# SPDX-License-Identifier: Apache-2.0
"""What `tidemark convert` writes for Perfetto, read by protoc and held to the rules of Perfetto's importer. (By hand, Perfetto's
own message definitions decode it as well: protoc --decode=perfetto.protos.Trace -I PERFETTO protos/perfetto/trace/trace.proto.)"""

import collections
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest
import zipfile

PROGRAM = os.environ["TIDEMARK_PROGRAM"]
ROOT = pathlib.Path(__file__).resolve().parents[2]
JOBS = ROOT / "tests" / "jobs"
MESSAGES = ROOT / "traces" / "formats"

FIRST, NEEDS_STATE = 1, 2  # flags of a packet


def run(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    if done.returncode not in (0, 1):
        raise AssertionError(f"{arguments}: {done.returncode}: {done.stderr}")
    return done.stdout


def parse(lines):
    """A message of protoc's text form, of which every field is a list. No string here has anything to escape."""
    message = collections.defaultdict(list)
    for line in lines:
        if line.endswith("}"):
            break
        if line.endswith("{"):
            message[line[:-1].strip()].append(parse(lines))
        else:
            field, value = line.strip().split(": ", 1)
            message[field].append(value[1:-1] if value[0] == '"' else True if value == "true" else
                                  int(value) if value[-1].isdigit() else value)
    return message


def decode(data):
    done = subprocess.run(["protoc", f"-I{MESSAGES}", "--decode=tidemark.perfetto.Trace", "perfetto.proto"], input=data,
                          capture_output=True, check=True, timeout=120)
    return parse(iter(done.stdout.decode().splitlines()))["packet"]


def fields(message):
    for name, values in message.items():
        yield name
        for value in values:
            if isinstance(value, dict):
                yield from fields(value)


class Decoded:
    """The tracks and events of a file. Checks on the way what a reader needs of the order of packets."""

    def __init__(self, test, data):
        self.tracks = {}                             # uuid: descriptor
        self.events = collections.defaultdict(list)  # uuid: (time, event)
        self.counters = collections.defaultdict(list)
        self.flows = collections.Counter()
        self.ended_flows = set()
        sequences = {}
        for packet in decode(data):
            test.assertFalse([name for name in fields(packet) if name.isdigit()], "fields that nobody named")
            (sequence,), (flags,) = packet["trusted_packet_sequence_id"], packet["sequence_flags"]
            test.assertGreater(sequence, 0)
            if sequence not in sequences:
                test.assertEqual((flags, packet["first_packet_on_sequence"]), (FIRST | NEEDS_STATE, [True]))
                sequences[sequence] = {"event_names": {}, "event_categories": {}, "extra": []}
            else:
                test.assertEqual(flags, NEEDS_STATE)
            self.add(test, packet, sequences[sequence])

    def add(self, test, packet, state):
        for defaults in packet["trace_packet_defaults"]:
            state["extra"] = defaults["track_event_defaults"][0]["extra_counter_track_uuids"]
        for interned in packet["interned_data"]:
            for table, entries in interned.items():
                for entry in entries:
                    test.assertGreater(entry["iid"][0], 0)
                    test.assertNotIn(entry["iid"][0], state[table])
                    state[table][entry["iid"][0]] = entry["name"][0]
        for track in packet["track_descriptor"]:
            test.assertNotIn(track["uuid"][0], self.tracks)
            for parent in track["parent_uuid"]:
                test.assertIn(parent, self.tracks)
            self.tracks[track["uuid"][0]] = track
        for event in packet["track_event"]:
            self.add_event(test, packet["timestamp"][0], event, state)

    def add_event(self, test, time, event, state):
        track = event["track_uuid"][0]
        test.assertIn(track, self.tracks, "declared before it is used")
        is_counter = bool(self.tracks[track]["counter"])
        test.assertEqual(is_counter, event["type"] == ["TYPE_COUNTER"])
        for table, iids in (("event_names", event["name_iid"]), ("event_categories", event["category_iids"])):
            for iid in iids:
                test.assertIn(iid, state[table])
        event["named"] = event["name"] + [state["event_names"][iid] for iid in event["name_iid"]]
        self.events[track].append((time, event))
        if is_counter:
            self.counters[track].append((time, event["counter_value"][0]))
        extra = event["extra_counter_values"]
        test.assertLessEqual(len(extra), len(state["extra"]))
        for counter, value in zip(state["extra"], extra):
            test.assertTrue(self.tracks[counter]["counter"])
            self.counters[counter].append((time, value))
        for flow in event["flow_ids"]:
            self.flows[flow] += 1
        for flow in event["terminating_flow_ids"]:
            test.assertIn(flow, self.flows, "a flow begins before it ends")
            test.assertNotIn(flow, self.ended_flows)
            self.ended_flows.add(flow)

    def processes(self):
        return {uuid: track["process"][0] for uuid, track in self.tracks.items() if track["process"]}

    def named(self, process):
        """The tracks of a process by name."""
        return {track["name"][0]: uuid for uuid, track in self.tracks.items() if track["parent_uuid"] == [process]}


class Perfetto(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = pathlib.Path(holder.name)
        cls.jobs = {"one": ["gpt2-ddp.yaml"], "stages": ["llama-3-70b-tp8-pp4.yaml", "--set", "network.layers=8"],
                    "steps": ["gpt2-ddp.yaml", "--set", "strategy=deepspeed-zero2", "--steps", 3]}
        cls.predictions, cls.decoded, cls.lines = {}, {}, {}
        for name, (job, *changes) in cls.jobs.items():
            trace, written = cls.folder / f"{name}.trace", cls.folder / f"{name}.pftrace"
            cls.predictions[name] = json.loads(run("predict", JOBS / job, *changes, "--trace", trace, "--format", "json"))
            run("convert", trace, "-o", written)
            cls.decoded[name] = Decoded(cls("run_nothing"), written.read_bytes())
            cls.lines[name] = [json.loads(line) for line in run("convert", trace, "--to", "jsonl", "-o", "-").splitlines()]

    def run_nothing(self):
        """Whose assertions setUpClass uses."""

    def each(self):
        for name, decoded in self.decoded.items():
            with self.subTest(job=name):
                yield name, decoded

    def test_times_of_a_track_run_forwards_and_its_slices_nest(self):
        for _, decoded in self.each():
            self.assertGreater(len(decoded.events), 5)
            for track in set(decoded.events) | set(decoded.counters):
                times = [time for time, _ in decoded.counters[track] or decoded.events[track]]
                self.assertEqual(times, sorted(times), decoded.tracks[track]["name"])
                depth = 0
                for _, event in decoded.events[track]:
                    depth += {"TYPE_SLICE_BEGIN": 1, "TYPE_SLICE_END": -1}.get(event["type"][0], 0)
                    self.assertGreaterEqual(depth, 0)
                self.assertEqual(depth, 0)

    def test_every_flow_goes_from_a_phase_to_a_stream(self):
        for _, decoded in self.each():
            self.assertGreater(len(decoded.flows), 5)
            self.assertEqual(set(decoded.flows), decoded.ended_flows)
            self.assertEqual(set(decoded.flows.values()), {1})
            for track, events in decoded.events.items():
                for _, event in events:
                    if event["flow_ids"]:
                        self.assertEqual(decoded.tracks[track]["name"], ["phases"])
                    if event["terminating_flow_ids"]:
                        self.assertTrue(decoded.tracks[track]["name"][0].startswith("stream "))

    def test_roles_are_processes_in_their_order(self):
        for name, decoded in self.each():
            processes = list(decoded.processes().values())
            self.assertEqual([process["process_name"][0] for process in processes],
                             [line["role"] for line in self.lines[name] if line["type"] == "header"])
            self.assertEqual([process["pid"][0] for process in processes], list(range(1, len(processes) + 1)))
            self.assertTrue(all("predicted" in process["process_labels"] for process in processes))
            self.assertEqual(decoded.tracks[0]["process_ordering"], ["PROCESS_ORDERING_EXPLICIT"])
        self.assertEqual(len(self.decoded["stages"].processes()), 4)

    def test_the_highest_counters_are_the_prediction(self):
        for name, decoded in self.each():
            for uuid, process in decoded.processes().items():
                role = next(role for role in self.predictions[name]["roles"] if role["role"] == process["process_name"][0])
                tracks = decoded.named(uuid)
                for counter, key in (("allocated", "allocated_bytes"), ("allocator", "allocator_bytes"),
                                     ("reserved", "reserved_bytes")):
                    samples = [value for _, value in decoded.counters[tracks[f"memory: {counter}"]]]
                    self.assertEqual(max(samples), role[key], (role["role"], counter))

    def test_the_peak_says_what_was_alive(self):
        for name, decoded in self.each():
            for uuid, process in decoded.processes().items():
                role = next(role for role in self.predictions[name]["roles"] if role["role"] == process["process_name"][0])
                ((time, peak),) = [each for each in decoded.events[uuid] if each[1]["type"] == ["TYPE_INSTANT"]]
                self.assertEqual(peak["named"], ["memory peak"])
                told = {note["name"][0]: note for note in peak["debug_annotations"]}
                by_category = {entry["name"][0]: entry["int_value"][0] for entry in told["bytes by category"]["dict_entries"]}
                self.assertEqual(by_category, {key: value for key, value in role["by_category"].items() if value != 0})
                self.assertEqual(sum(by_category.values()), role["allocated_bytes"])
                self.assertGreater(len(told["largest tensors"]["array_values"]), 5)
                allocated = decoded.counters[decoded.named(uuid)["memory: allocated"]]
                self.assertIn((time, role["allocated_bytes"]), allocated)

    def test_counters_follow_the_memory_events(self):
        def changes(samples):
            return [sample for sample, before in zip(samples, [None] + samples) if not before or sample[1] != before[1]]

        for name, decoded in self.each():
            for number, uuid in enumerate(decoded.processes()):
                totals, wanted = collections.Counter(), collections.defaultdict(list)
                for line in self.lines[name]:
                    if (line["type"], line["trace"]) == ("memory", number):
                        for counter in ("allocated", "allocator", "reserved"):
                            wanted[f"memory: {counter}"].append((line["issue_ns"], line[f"{counter}_bytes"]))
                        totals[line["category"]] += line["bytes"] * (1 if line["operation"] == "alloc" else -1)
                        wanted[f"memory by category: {line['category']}"].append((line["issue_ns"], totals[line["category"]]))
                found = {track: changes(decoded.counters[uuid]) for track, uuid in decoded.named(uuid).items()
                         if track.startswith("memory")}
                self.assertEqual(set(found), set(wanted))
                wrong = [track for track, samples in found.items() if samples != changes(wanted[track])]
                self.assertEqual(wrong, [], "(their samples are too many to be compared in a message)")

    def test_counters_are_bytes_and_share_the_scale_of_their_kind(self):
        for _, decoded in self.each():
            for track in decoded.tracks.values():
                for counter in track["counter"]:
                    self.assertEqual(counter["unit"], ["UNIT_SIZE_BYTES"])
                    self.assertEqual(counter["y_axis_share_key"], [track["name"][0].split(":")[0]])
                    # The interface shares a scale below one parent, and has none for a child of a process.
                    self.assertIn(track["parent_uuid"][0], decoded.processes())

    def test_every_phase_step_and_piece_of_work_is_a_slice(self):
        for name, decoded in self.each():
            for number, uuid in enumerate(decoded.processes()):
                wanted = collections.Counter()
                for line in self.lines[name]:
                    if line["trace"] == number and line["type"] in ("span", "step", "slice"):
                        wanted[{"span": "phases", "step": "steps"}.get(line["type"]) or f"stream {line['stream']}"] += 1
                found = collections.Counter()
                for track_name, track in decoded.named(uuid).items():
                    if not decoded.tracks[track]["counter"]:
                        found[re.sub(r" \(\d+\)$", "", track_name)] += sum(
                            event["type"] == ["TYPE_SLICE_BEGIN"] for _, event in decoded.events[track])
                self.assertEqual(found, wanted)

    def test_several_files_are_processes_of_one(self):
        both = self.folder / "both.pftrace"
        run("convert", self.folder / "one.trace", self.folder / "steps.trace", "-o", both)
        decoded = Decoded(self, both.read_bytes())
        names = [process["process_name"][0] for process in decoded.processes().values()]
        self.assertEqual(names, ["one: stage 0", "steps: stage 0"])
        for uuid, name in zip(decoded.processes(), ("one", "steps")):
            highest = max(value for _, value in decoded.counters[decoded.named(uuid)["memory: allocated"]])
            self.assertEqual(highest, self.predictions[name]["peak"]["allocated_bytes"])

    def test_a_zip_holds_each_trace_and_a_manifest_of_them(self):
        path = self.folder / "stages.zip"
        run("convert", self.folder / "stages.trace", "-o", path)
        with zipfile.ZipFile(path) as archive:
            self.assertIsNone(archive.testzip())
            text = archive.read("perfetto_manifest.json").decode()
            self.assertTrue(text.startswith('{"perfetto_manifest"'), "by which Perfetto knows it")
            manifest = json.loads(text)["perfetto_manifest"]
            self.assertEqual(manifest["version"], 1)
            self.assertEqual({file["path"] for file in manifest["files"]} | {"perfetto_manifest.json"}, set(archive.namelist()))
            self.assertEqual([file["machine"]["name"] for file in manifest["files"]], [f"stage {i}" for i in range(4)])
            for file in manifest["files"]:
                decoded = Decoded(self, archive.read(file["path"]))
                self.assertEqual([process["process_name"] for process in decoded.processes().values()],
                                 [[file["machine"]["name"]]])


if __name__ == "__main__":
    unittest.main()

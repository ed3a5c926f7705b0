# SPDX-License-Identifier: Apache-2.0
"""What trace formats tell of memory, read without Tidemark: pairs of a role and by how many bytes it changes, in order. And
the highest sums of those, which are the peaks."""

import collections
import csv
import io
import json
import pathlib
import pickle
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "traces"))
import perfetto_test  # noqa: E402  for what it decodes with protoc


def sign(event):
    return {"alloc": 1, "free": -1}[event["operation"]]


def chrome_changes(data):
    return ((event["pid"], event["args"]["Bytes"]) for event in json.loads(data)["traceEvents"] if event["name"] == "[memory]")


def snapshot_changes(data):
    signs = {"alloc": 1, "free_requested": -1}
    for number, entries in enumerate(pickle.loads(data)["device_traces"]):
        yield from ((number, signs[entry["action"]] * entry["size"]) for entry in entries if entry["action"] in signs)


def csv_changes(data):
    return ((row["role"], sign(row) * int(row["bytes"])) for row in csv.DictReader(io.StringIO(data.decode())))


def jsonl_changes(data):
    lines = map(json.loads, data.splitlines())
    return ((line["trace"], sign(line) * line["bytes"]) for line in lines if line["type"] == "memory")


def perfetto_changes(data):
    processes, before = {}, collections.Counter()
    for packet in perfetto_test.decode(data):
        for track in packet["track_descriptor"]:
            if track["name"] and track["name"][0].startswith("memory by category: "):
                processes[track["uuid"][0]] = track["parent_uuid"][0]
        for event in packet["track_event"]:
            if (uuid := event["track_uuid"][0]) in processes:
                yield processes[uuid], event["counter_value"][0] - before[uuid]
                before[uuid] = event["counter_value"][0]


READERS = {"chrome": chrome_changes, "torch-snapshot": snapshot_changes, "csv": csv_changes, "jsonl": jsonl_changes,
           "perfetto": perfetto_changes}


def highest(changes):
    """The highest sum of each role, in the order of roles."""
    now, most = collections.Counter(), {}
    for role, change in changes:
        now[role] += change
        most[role] = max(most.get(role, 0), now[role])
    return list(most.values())

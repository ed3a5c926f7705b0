#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the memory snapshots beside it, as Python objects laid out like those of PyTorch, and what to expect of them.

  make_snapshots.py [DIRECTORY]

A small allocator is played from the very beginning, so that everything is known; then only the last entries are kept, as
PyTorch's ring buffer does. What expected.txt says is counted from the whole play, never from the snapshot. Its lines:
FILE DEVICE MOMENTS PEAK END RESERVED WAITS, where moments are allocations and frees that a reader can know of, with the
births of what was alive before; peak and end are bytes that were asked for and alive, highest and last; reserved is the
highest that the device had given, at a moment; waits counts frees that other streams held up.
"""

import io
import pathlib
import pickle
import sys

MIB = 1 << 20
USER = {"filename": "/home/me/train/model.py", "line": 120, "name": "forward"}
LIBRARY = {"filename": "/usr/lib/python3/dist-packages/torch/nn/modules/module.py", "line": 1501, "name": "_call_impl"}
CPP = {"filename": "??", "line": 0, "name": "at::_ops::empty_memory_format::call(c10::ArrayRef<c10::SymInt>)"}
OUTER = {"filename": "/home/me/train/train.py", "line": 30, "name": "main"}
STACK = [CPP, LIBRARY, USER, OUTER]


class Device:
    """A first-fit allocator that records what it does as PyTorch would. Keeps the truth beside it."""

    def __init__(self, index, start):
        self.index = index
        self.next_address = 0x7F0000000000 + index * (1 << 40)
        self.segments = {}  # address: [size, stream]
        self.blocks = {}    # address: [size, requested, state, segment]
        self.entries = []
        self.truth = []     # per entry: (requested bytes alive, reserved)
        self.now = start

    def note(self, action, address, size, stream=0, frames=STACK, took=7, **more):
        self.now += took
        key = "device_free" if action == "oom" else "addr"
        self.entries.append({"action": action, key: address, "size": size, "stream": stream, "time_us": self.now,
                             "frames": frames, **more})
        alive = sum(block[1] for block in self.blocks.values() if block[2] == "active_allocated")
        self.truth.append((alive, sum(segment[0] for segment in self.segments.values())))

    def gap(self, segment, size):
        taken = sorted((at, block[0]) for at, block in self.blocks.items() if block[3] == segment)
        at = segment
        for start, length in taken:
            if start - at >= size:
                return at
            at = start + length
        return at if segment + self.segments[segment][0] - at >= size else None

    def allocate(self, requested, stream=0, expandable=False):
        size = (requested + 511) // 512 * 512
        for segment, (_, owner) in sorted(self.segments.items()):
            address = self.gap(segment, size) if owner == stream else None
            if address is not None:
                break
        else:
            address = self.next_address
            room = 2 * MIB if size <= MIB else 20 * MIB
            self.next_address += 64 * MIB
            self.segments[address] = [room, stream]
            self.note("segment_map" if expandable else "segment_alloc", address, room, stream)
            segment = address
        self.blocks[address] = [size, requested, "active_allocated", segment]
        self.note("alloc", address, requested, stream)
        return address

    def request_free(self, address):
        self.blocks[address][2] = "active_pending_free"
        self.note("free_requested", address, self.blocks[address][1], self.segments[self.blocks[address][3]][1])

    def complete_free(self, address, took=7):
        block = self.blocks.pop(address)
        self.note("free_completed", address, block[1], self.segments[block[3]][1], took=took)

    def free(self, address):
        """Both entries are made under one lock, within a microsecond."""
        self.request_free(address)
        self.complete_free(address, took=1)

    def empty_cache(self):
        for segment in sorted(set(self.segments) - {block[3] for block in self.blocks.values()}):
            size, stream = self.segments.pop(segment)
            self.note("segment_free", segment, size, stream)

    def state(self, old):
        """The segments as a snapshot has them; `old`: as PyTorch 2.0."""
        segments = []
        for address, (size, stream) in sorted(self.segments.items()):
            blocks, at = [], address

            def add(length, requested, state):
                block = {"size": length, "state": state}
                if old and state != "inactive":
                    block["history"] = [{"addr": at, "real_size": requested, "frames": STACK}]
                elif not old:
                    block.update(address=at, requested_size=requested, frames=STACK if requested else [])
                blocks.append(block)

            for start, block in sorted((a, b) for a, b in self.blocks.items() if b[3] == address):
                if start > at:
                    add(start - at, 0, "inactive")
                    at = start
                add(block[0], block[1], block[2])
                at += block[0]
            if at < address + size:
                add(address + size - at, 0, "inactive")
            segment = {"device": self.index, "address": address, "total_size": size, "stream": stream, "blocks": blocks,
                       "allocated_size": sum(b["size"] for b in blocks if b["state"] == "active_allocated"),
                       "active_size": sum(b["size"] for b in blocks if b["state"] != "inactive"),
                       "segment_type": "small" if size == 2 * MIB else "large"}
            if not old:
                segment.update(segment_pool_id=(0, 0), is_expandable=False, frames=[], requested_size=0)
            segments.append(segment)
        return segments

    def expected(self, kept, times=True):
        """Of the last `kept` entries: moments, peak, end, reserved, waits. Without times, a free that is completed by the
        next entry cannot be told from one that was held up."""
        first = max(0, len(self.entries) - kept)
        window = self.entries[first:]
        known = set()  # who is alive at the start of the window
        for entry in self.entries[:first]:
            if entry["action"] == "alloc":
                known.add(entry["addr"])
            elif entry["action"] == "free_requested":
                known.discard(entry["addr"])
        before = self.truth[first - 1] if first else (0, 0)
        moments = len(known) + sum(entry["action"] in ("alloc", "free_requested") for entry in window)
        peak = max([before[0]] + [alive for alive, _ in self.truth[first:]])
        reserved = [before[1]] if known else []
        for i, entry in enumerate(window):
            if entry["action"] in ("alloc", "free_requested"):
                reserved.append(self.truth[first + i][1])
        waits = 0
        for i, entry in enumerate(window):
            if entry["action"] == "free_requested":
                after = window[i + 1] if i + 1 < len(window) else {}
                at_once = after.get("action") == "free_completed" and after["addr"] == entry["addr"]
                waits += not (at_once and (not times or after["time_us"] <= entry["time_us"] + 1))
        end = sum(block[1] for block in self.blocks.values() if block[2] == "active_allocated")
        return moments, peak, end, max(reserved, default=0), waits


def play(device, layers):
    """Two steps of a training that holds weights, with a buffer that a second stream uses."""
    weights = [device.allocate(size) for size in (3 * MIB, 1000, 40 * 1024)]
    device.allocate(700 * 1024)  # and is never freed
    marks = []
    for step in range(2):
        marks.append((f"ProfilerStep#{step}", "START", device.now + 1))
        side = device.allocate(5 * MIB + 17, stream=94558)
        device.request_free(side)
        activations = [device.allocate(2 * MIB + 100 * i) for i in range(layers)]
        device.note("oom", 123456, 80 << 30)
        device.complete_free(side)
        marks.append(("backward", "START", device.now + 1))
        for address in reversed(activations):
            gradient = device.allocate(100 * 1024)
            device.free(address)
            device.free(gradient)
        marks.append(("backward", "END", device.now + 1))
        device.empty_cache()
        device.note("snapshot", 0, 0)
        marks.append((f"ProfilerStep#{step}", "END", device.now + 1))
    device.free(weights[1])
    held_up = device.allocate(300 * 1024)
    device.request_free(held_up)
    device.complete_free(held_up)
    last = device.allocate(9 * MIB, stream=94558)
    device.request_free(last)  # still pending at the end
    return marks


def snapshot(devices, kept, marks, old=False, times=True):
    def entry(whole):
        return {key: value for key, value in whole.items() if times or key != "time_us"}

    made = {"segments": [segment for device in devices for segment in device.state(old)],
            "device_traces": [[entry(e) for e in device.entries[max(0, len(device.entries) - kept):]] for device in devices]}
    if not old:
        made["allocator_settings"] = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "expandable_segments": False,
                                      "trace_alloc_max_entries": kept, "trace_alloc_overflowed": True,
                                      "garbage_collection_threshold": 0.0, "roundup_power2_divisions": {"1": 0, "2": 0}}
        made["external_annotations"] = [{"name": name, "stage": stage, "device": 0, "time_us": now}
                                        for name, stage, now in marks]
    return made


def without_memo(value, protocol):
    """As a writer does that remembers nothing."""
    out = io.BytesIO()
    pickler = pickle.Pickler(out, protocol)
    pickler.fast = True
    pickler.dump(value)
    return out.getvalue()


def main(folder):
    devices = [Device(0, 1_700_000_000_000_000), Device(1, 1_700_000_000_500_000)]
    marks = play(devices[0], 4)
    play(devices[1], 7)
    whole = max(len(device.entries) for device in devices)
    expected = []

    def write(name, data, rows):
        (folder / name).write_bytes(data)
        expected.extend(f"{name} {device.index} {' '.join(map(str, values))}" for device, values in rows)

    def rows(kept, times=True):
        return [(device, device.expected(kept, times)) for device in devices]

    for protocol in (2, 4, 5):
        write(f"new_{protocol}.pickle", pickle.dumps(snapshot(devices, whole, marks), protocol), rows(whole))
    write("ring.pickle", pickle.dumps(snapshot(devices, 40, marks), 4), rows(40))
    write("plain.pickle", without_memo(snapshot(devices, 40, marks), 2), rows(40))
    write("old.pickle", pickle.dumps(snapshot(devices, 40, marks, old=True, times=False), 4), rows(40, times=False))
    write("state.pickle", pickle.dumps(snapshot(devices, 0, marks), 4), rows(0))
    write("segments.pickle", pickle.dumps([s for device in devices for s in device.state(True)], 4), rows(0))

    expandable = Device(0, 1_700_000_000_000_000)
    first = expandable.allocate(3 * MIB, expandable=True)
    expandable.allocate(MIB, expandable=True)
    expandable.free(first)
    expandable.segments[first][0] -= 16 * MIB  # its tail goes back
    expandable.note("segment_unmap", first + 4 * MIB, 16 * MIB)
    expandable.note("annotate", first, 0, user_metadata="a later PyTorch's")
    expandable.note("quantum_alloc", first, 5)
    expandable.allocate(MIB + 512)
    write("expandable.pickle", pickle.dumps(snapshot([expandable], len(expandable.entries), []), 4),
          [(expandable, expandable.expected(len(expandable.entries)))])
    (folder / "expected.txt").write_text("\n".join(expected) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent))

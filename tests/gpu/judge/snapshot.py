# SPDX-License-Identifier: Apache-2.0
"""A snapshot of the caching allocator on disk: the pickle that memory_viz reads, in gzip."""

import gzip
import pickle

from judge.frames import shortened


def reduced(snapshot):
    """A snapshot that is small: what memory_viz needs, with a few frames for each allocation."""
    known = {}

    def few(frames):
        key = tuple((frame["name"], frame["filename"], frame["line"]) for frame in frames)
        if key not in known:
            known[key] = shortened(frames)
        return known[key]

    traces = [[{**{key: event[key] for key in ("action", "addr", "size", "stream", "time_us") if key in event},
                "frames": few(event.get("frames") or ())} for event in trace] for trace in snapshot["device_traces"]]
    segments = [{**{key: value for key, value in segment.items() if key not in ("frames", "blocks")}, "frames": [],
                 "blocks": [{**{key: value for key, value in block.items() if key not in ("frames", "history")},
                             "frames": []} for block in segment["blocks"]]} for segment in snapshot["segments"]]
    return {"segments": segments, "device_traces": traces, "allocator_settings": snapshot.get("allocator_settings")}


def write_snapshot(snapshot, path):
    with gzip.GzipFile(path, "wb", mtime=0) as file:
        pickle.dump(snapshot, file, protocol=4)


class _PlainData(pickle.Unpickler):
    """A snapshot is lists, dictionaries, text and numbers: whatever names a class is none."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"a snapshot that names {module}.{name}")


def read_snapshot(path):
    with gzip.open(path, "rb") as file:
        return _PlainData(file).load()

# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's caching allocator did on a GPU: peaks of a step, and a snapshot with every event of it."""

import contextlib

import torch

from judge.frames import shortened

MOST_EVENTS = 1_000_000


class CudaRecorder:
    def now(self):
        return self._read("current")

    def release(self):
        """Gives cached memory back, so that reserved memory begins with what lives."""
        torch.cuda.synchronize()
        torch.cuda.empty_cache()

    def begin_step(self):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()

    def peaks(self):
        torch.cuda.synchronize()
        return {**self._read("peak"), "retries": torch.cuda.memory_stats()["num_alloc_retries"]}

    def begin_events(self):
        options = {"enabled": "all", "context": "alloc", "max_entries": MOST_EVENTS}
        try:  # the stacks of C++ say what a backward pass asks memory for
            torch.cuda.memory._record_memory_history(stacks="all", **options)
        except RuntimeError:
            torch.cuda.memory._record_memory_history(stacks="python", **options)

    def snapshot(self):
        torch.cuda.synchronize()
        snapshot = torch.cuda.memory._snapshot()
        torch.cuda.memory._record_memory_history(enabled=None)
        return _reduced(snapshot)

    @staticmethod
    def _read(moment):
        stats = torch.cuda.memory_stats()
        return {f"{kind}_bytes": stats[f"{kind}_bytes.all.{moment}"] for kind in ("requested", "allocated", "reserved")}


def _reduced(snapshot):
    """A snapshot that is small: what memory_viz needs, with a few frames for each allocation."""
    known = {}

    def few(frames):
        key = tuple((frame["name"], frame["filename"], frame["line"]) for frame in frames)
        if key not in known:
            known[key] = shortened(frames)
        return known[key]

    traces = [[{**{key: event[key] for key in ("action", "addr", "size", "stream") if key in event},
                "frames": few(event.get("frames") or ())} for event in trace] for trace in snapshot["device_traces"]]
    segments = [{**{key: value for key, value in segment.items() if key not in ("frames", "blocks")}, "frames": [],
                 "blocks": [{**{key: value for key, value in block.items() if key not in ("frames", "history")},
                             "frames": []} for block in segment["blocks"]]} for segment in snapshot["segments"]]
    return {"segments": segments, "device_traces": traces, "allocator_settings": snapshot.get("allocator_settings")}


@contextlib.contextmanager
def on_gpu():
    yield CudaRecorder()

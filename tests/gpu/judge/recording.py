# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's caching allocator did on a GPU: peaks of a step, and a snapshot with every event of it."""

import contextlib

import torch

from judge.snapshot import reduced

MOST_EVENTS = 1_000_000


class CudaRecorder:
    def now(self):
        """Behind an allocation, which is when the allocator counts what other streams are done with."""
        torch.cuda.synchronize()
        torch.empty(1, device="cuda")
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
        return reduced(snapshot)

    @staticmethod
    def _read(moment):
        stats = torch.cuda.memory_stats()
        return {f"{kind}_bytes": stats[f"{kind}_bytes.all.{moment}"] for kind in ("requested", "allocated", "reserved")}


@contextlib.contextmanager
def on_gpu():
    yield CudaRecorder()

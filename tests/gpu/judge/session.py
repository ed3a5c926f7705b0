# SPDX-License-Identifier: Apache-2.0
"""Runs one case: three steps of a wrapped decoder among ranks that a fake process group makes up."""

import contextlib
import gc

import torch
from torch import distributed

from judge.case import STEPS
from judge.decoder import fused_norm, rotary_tables
from judge.marks import mark_bytes
from judge.wrapping import mesh_of, wrap


def begin_ranks(ranks):
    from torch.testing._internal.distributed.fake_pg import FakeStore  # its import registers the backend

    distributed.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())


class Session:
    def __init__(self, case, device, recorder, is_rehearsal):
        self.case, self.device, self.recorder, self.is_rehearsal = case, device, recorder, is_rehearsal

    def run(self, mesh):
        """(measured, snapshot): the peaks of each step, and the last step's events."""
        if self.is_rehearsal:
            from judge.stand_in import HOST as host
            from judge.stand_in import fused_norm as norm
        else:
            norm, host = fused_norm, "cpu"
            self._use_math_library()
        tables = rotary_tables(self.case.shape, self.device)
        gc.collect()
        self.recorder.release()
        before = self.recorder.now()
        wrapping = wrap(self.case, tables, norm, self.device, mesh, host)
        optimizer = torch.optim.AdamW(wrapping.model.parameters(), lr=1e-4, fused=True)
        gc.collect()
        self.recorder.release()
        measured = {"before_parameters": before, "after_construction": self.recorder.now(), "steps": []}
        gc.disable()  # no collection falls into a step, on no machine
        for step in range(STEPS):
            gc.collect()
            self.recorder.begin_step()
            if step == STEPS - 1:
                self.recorder.begin_events()
            self._step(wrapping, optimizer)
            measured["steps"].append({"peak": self.recorder.peaks(), "after": self.recorder.now()})
        snapshot = self.recorder.snapshot()
        gc.enable()
        return measured, snapshot

    def _step(self, wrapping, optimizer):
        count = self.case.microbatches
        for microbatch in range(count):
            is_last = microbatch == count - 1
            with wrapping.around(is_last):
                self._mark(2 * microbatch)
                loss = wrapping.model(self._tokens(), self._tokens()) / count
                self._mark(2 * microbatch + 1)
                with wrapping.around_backward(is_last):
                    loss.backward()
            del loss
        self._mark(2 * count)
        optimizer.step()
        optimizer.zero_grad(set_to_none=self.case.set_to_none)

    def _tokens(self):
        shape = self.case.shape
        if self.is_rehearsal:
            return torch.empty((shape.batch, shape.sequence), dtype=torch.int64, device=self.device)
        return torch.randint(shape.vocabulary, (shape.batch, shape.sequence)).to(self.device)

    def _mark(self, phase):
        torch.empty(mark_bytes(phase), dtype=torch.uint8, device=self.device)

    def _use_math_library(self):
        """Products of matrices on this thread and on autograd's, whose workspaces are then there before parameters."""
        square = torch.randn((256, 256), dtype=torch.bfloat16, device=self.device, requires_grad=True)
        (square @ square).sum().backward()
        with torch.no_grad():
            torch.mm(square, square)


def run_case(case, is_rehearsal):
    """(measured, snapshot) of one case, in a process that has run none before."""
    begin_ranks(case.ranks)
    device = torch.device("cpu") if is_rehearsal else torch.device("cuda", 0)
    mesh = mesh_of(case, device)  # before tensors are fake: it reads ranks
    if is_rehearsal:
        from judge.stand_in import rehearsal as place
    else:
        from judge.recording import on_gpu as place
    with contextlib.ExitStack() as stack:
        recorder = stack.enter_context(place())
        return Session(case, device, recorder, is_rehearsal).run(mesh)

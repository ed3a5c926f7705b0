# SPDX-License-Identifier: Apache-2.0
"""What Tidemark says of a case: peaks of the first steps, and a steady step's allocations in order."""

import dataclasses
import json
import os
import pathlib
import re
import subprocess
import tempfile

from judge.case import STEPS

BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp64": 8, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1,
         "bool": 1, "fp8": 1}
BUFFER = re.compile(r'  (?:"([^"]+)"(?:\[\d+\])*|(\S+))\s+(\w+)\s+(\d+)\s+(\w+)\s+born on ')
NAMED = re.compile(r'(?:"([^"]+)"|([^\s\[]+))')
PHASE = re.compile(r"begin (\w+)(?: microbatch (\d+))?")


class NoPrediction(Exception):
    """The program refused, or could not run."""


@dataclasses.dataclass(frozen=True)
class Allocation:
    phase: str  # "forward 0", "backward 0" ... "optimizer"
    size: int
    who: str  # a buffer's name, or the operator and functions that asked


@dataclasses.dataclass
class Step:
    """Allocations in order, and for each phase the most bytes above those at the step's beginning."""

    allocations: list = dataclasses.field(default_factory=list)
    peaks: dict = dataclasses.field(default_factory=dict)
    above: int = 0

    def begin(self, phase):
        self.peaks[phase] = max(self.peaks.get(phase, self.above), self.above)

    def allocate(self, allocation):
        self.allocations.append(allocation)
        self.above += allocation.size
        self.begin(allocation.phase)

    def free(self, size):
        self.above -= size


class Program:
    """The tidemark program at `path`, asked about jobs."""

    def __init__(self, path):
        self.path = str(pathlib.Path(path).resolve())

    def check(self):
        """Raises NoPrediction where there is no such program."""
        if not os.access(self.path, os.X_OK) or os.path.isdir(self.path):
            raise NoPrediction(f"--tidemark: there is no program {self.path}")

    def prediction(self, job):
        """tidemark.prediction/1 of the first steps in a row."""
        return json.loads(self._ask("predict", job, "--steps", str(STEPS), "--format", "json", "--exit-zero"))

    def step(self, job):
        return read_program(self._ask("program", job, "--expand", "--step", "steady"))

    def _ask(self, verb, job, *options):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "job.yaml"
            path.write_text(job, encoding="utf-8")
            try:
                done = subprocess.run([self.path, verb, str(path), *options], capture_output=True, text=True,
                                      check=False)
            except OSError as error:
                raise NoPrediction(f"{self.path}: {error.strerror}") from error
        if done.returncode != 0:
            raise NoPrediction(f"tidemark {verb} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout


def read_program(text):
    """The step that a program's text, with every loop written out, describes: what it does to the device's memory."""
    sizes, step, phase = {}, Step(), ""
    on_host = set()
    for line in text.splitlines():
        buffer = BUFFER.match(line)
        words = line.strip()
        if buffer:
            sizes[_family(buffer[1] or buffer[2])] = int(buffer[4]) * BYTES[buffer[5]]
            if ", host memory" in line:
                on_host.add(_family(buffer[1] or buffer[2]))
        elif words.startswith("begin "):
            phase = _phase(words)
            step.begin(phase)
        elif words.startswith(("alloc ", "free ")):
            verb, name = words.split(" ", 1)
            match = NAMED.match(name)
            family = match[1] or match[2]
            if family in on_host:
                continue
            if verb == "alloc":
                step.allocate(Allocation(phase, sizes[family], family))
            else:
                step.free(sizes[family])
    return step


def _family(name):
    """`residual[1][2]` is how a table of buffers writes the sizes of the family `residual`."""
    return name.split("[")[0]


def _phase(line):
    """Inputs belong to the forward pass that reads them, a reduction to the backward pass before it."""
    match = PHASE.match(line)
    kind = {"load": "forward", "reduce": "backward"}.get(match[1], match[1])
    return f"{kind} {match[2]}" if match[2] else kind

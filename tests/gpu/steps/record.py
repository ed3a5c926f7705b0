# SPDX-License-Identifier: Apache-2.0
"""A case's record on disk: what ran where, what was predicted, what was measured, and how the two compare."""

import gzip
import json
import pathlib
import subprocess
import tempfile

from machine import about, now, write

TRACES = ("predicted", "measured")
REFUSALS = {"predict": 2, "run": 3}  # exit codes that are answers about a job, by verb; a wrong set-up fails elsewhere


class Failed(Exception):
    """What the program had to say, in one line."""


class Refused(Failed):
    """The job is none that one rank can be given (exit code 2), or that is executed (3)."""


class Program:
    """The tidemark program at `path`, on one device ("cuda", or "cpu" to rehearse)."""

    def __init__(self, path, device):
        self.path, self.device = str(pathlib.Path(path).resolve()), device

    def ask(self, *words, codes=(0,), folder=None):
        try:
            done = subprocess.run([self.path, *map(str, words), "--format", "json"], capture_output=True, text=True,
                                  check=False, cwd=folder)
        except OSError as error:
            raise Failed(f"{self.path}: {error.strerror}") from error
        if done.returncode not in codes:
            said = done.stderr.strip().splitlines() or ["without a word"]
            kind = Refused if done.returncode == REFUSALS.get(words[0]) else Failed
            raise kind(f"tidemark {words[0]} ended with {done.returncode}: {said[0]}")
        return json.loads(done.stdout)

    def strategies(self):
        return [row["name"] for row in self.ask("list", "strategies")]

    def about(self):
        """Where records come from."""
        return {**about(self.ask("doctor")), "device": self.device}


def execute(case, program, folder, text):
    """The case's `predicted`, `measured`, whose steps take the time of their work alone, `recorded`, whose operations
    are timed as well, and `compared`, of traces that are left in `folder`."""
    (folder / "job.yaml").write_text(case.job, encoding="utf-8")  # results name files as they were named: by no folder
    predicted_trace, measured_trace = (f"{which}.trace" for which in TRACES)

    def run(timed, *words):
        return program.ask("run", "job.yaml", "--device", program.device, "--steps", case.steps, "--timed", timed, *words,
                           folder=folder)

    def predict(*words):
        return program.ask("predict", "job.yaml", "--steps", case.steps, "--exit-zero", *words, folder=folder)

    if case.learns:
        return {"predicted": predict(), "measured": run("steps", "--data", text.resolve()), "recorded": None,
                "compared": None}
    predicted = predict("--trace", predicted_trace)
    measured = run("steps", "--trace", measured_trace)
    recorded = run("operations", "--trace", measured_trace) if case.records_operations else None
    return {"predicted": predicted, "measured": measured, "recorded": recorded,
            "compared": program.ask("compare", predicted_trace, measured_trace, codes=(0, 1), folder=folder)}


def write_case(case, origin, program, out, text):
    """Runs the case and writes its record and, in gzip, its traces. Returns what became of it, in a line."""
    record = {**origin, "date": now(), "job": case.job, "traces": None}
    fine, failed = out / f"{case.name}.json", out / f"{case.name}.failed.json"
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        try:
            record |= execute(case, program, folder, text)
        except Refused as error:
            return f"left out: {error}"
        except Failed as error:
            write(failed, record | {"error": str(error)})
            return str(error)
        if case.keeps_traces:
            record["traces"] = {which: f"{case.name}.{which}.trace.gz" for which in TRACES}
            for which in TRACES:  # small enough for a repository
                whole = (folder / f"{which}.trace").read_bytes()
                (out / record["traces"][which]).write_bytes(gzip.compress(whole, mtime=0))
    write(fine, record)
    failed.unlink(missing_ok=True)  # of an earlier try
    return "recorded"

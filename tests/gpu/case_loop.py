# SPDX-License-Identifier: Apache-2.0
"""Cases one after the other, in a time box, each recorded in a folder."""

import pathlib
import sys
import tempfile
import time

OUT_OF_TIME = 124  # the exit code of a script whose time was over before its cases were, as timeout's
RECORDED = pathlib.Path(__file__).resolve().parent / "recorded"


def folder_of(options, prefix):
    """Where records go: --out, or tests/gpu/recorded, or a new temporary folder for a rehearsal. Raises OSError."""
    folder = options.out or (pathlib.Path(tempfile.mkdtemp(prefix=prefix)) if options.rehearse else RECORDED)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_each(chosen, out, time_box, write):
    """Calls `write(case)`, which returns what became of it in a line, for every case that has no record, and begins none
    after `time_box` seconds. Returns how many were not begun."""
    begin = time.monotonic()
    for i, case in enumerate(chosen):
        if (out / f"{case.name}.json").exists():
            continue
        if time.monotonic() - begin >= time_box:
            print(f"the time is over: {len(chosen) - i} of {len(chosen)} cases were not begun", file=sys.stderr)
            return len(chosen) - i
        outcome = write(case)
        print(f"{time.monotonic() - begin:6.0f} s  {case.name}  {outcome}", flush=True)
    return 0

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Predicts steps, executes them on this machine's GPU, and records both, with their traces.

    tests/gpu/own_steps.py --tidemark PATH [--machine FILE] [--out DIR] [--cases PATTERN] [--time-box SECONDS]
                           [--text FILE] [--rehearse]
    tests/gpu/own_steps.py table DIR [--cases PATTERN]

Cases are networks that people train, six steps and fifty that learn from a text ('real-*', 'learn-*'), and one network
with 1 to 16 microbatches under every strategy that one GPU can hold ('accumulation-*'). Each case writes DIR/<case>.json
and two traces; cases with a record are not run again. --machine is what `tidemark calibrate --device cuda` wrote; without
it step times are those of an H100's data sheet. With --rehearse a small network runs on the processor.
Exit codes: 0 fine, 1 a case failed, took other memory than predicted or did not learn, 2 wrong input, 3 this machine
cannot, 124 the time was over before all cases were.
"""

import argparse
import fnmatch
import pathlib
import sys

from case_loop import OUT_OF_TIME, folder_of, write_each
from steps.case import cases
from steps.record import Failed, Program, write_case
from steps.verdict import is_of_steps, table, verdict_of

WRONG_INPUT, CANNOT = 2, 3


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", nargs="?", choices=("run", "table"), default="run")
    parser.add_argument("folder", nargs="?", type=pathlib.Path, help="of records, for the table")
    parser.add_argument("--tidemark", help="the program that predicts and executes")
    parser.add_argument("--machine", default="h100-sxm-80gb", help="a calibrated machine's file, or a preset")
    parser.add_argument("--out", type=pathlib.Path, help="folder of records; default: tests/gpu/recorded, "
                                                         "for a rehearsal a temporary one")
    parser.add_argument("--cases", default="*", help="a shell pattern of names, such as 'accumulation-*-m4'")
    parser.add_argument("--time-box", type=float, default=540.0, help="begin no case after so many seconds")
    parser.add_argument("--text", type=pathlib.Path, default=pathlib.Path(__file__).resolve(),
                        help="what is learned from, byte by byte; default: this script")
    parser.add_argument("--rehearse", action="store_true", help="on the processor, with a small network")
    return parser.parse_args(words)


def show(folder, pattern):
    """Prints the table of the records in a folder; whether all are right."""
    records = [path for path in sorted(folder.glob("*.json"))
               if fnmatch.fnmatchcase(path.stem.removesuffix(".failed"), pattern) and is_of_steps(path)]
    if not records:
        print(f"{folder} holds no record of a case '{pattern}'", file=sys.stderr)
        return None
    verdicts = [verdict_of(path) for path in records]
    print("\n".join(table(verdicts)))
    return all(verdict.is_right for verdict in verdicts)


def run(options):
    program = Program(options.tidemark, "cpu" if options.rehearse else "cuda")
    origin = program.about()
    if origin["gpu"] is None and not options.rehearse:
        print("tidemark finds no GPU on this machine (tidemark doctor says why); --rehearse needs none",
              file=sys.stderr)
        return CANNOT
    machine = "cpu" if options.rehearse and options.machine == "h100-sxm-80gb" else options.machine
    if pathlib.Path(machine).exists():
        machine = pathlib.Path(machine).resolve()  # jobs lie elsewhere
    chosen = cases(machine, program.strategies(), options.rehearse, options.cases)
    if not chosen:
        print(f"no case is called '{options.cases}'", file=sys.stderr)
        return WRONG_INPUT
    out = folder_of(options, "steps-")
    not_begun = write_each(chosen, out, options.time_box,
                           lambda case: write_case(case, origin, program, out, options.text))
    print(f"records: {out}")
    right = show(out, options.cases)
    if right is None:
        return OUT_OF_TIME if not_begun else WRONG_INPUT  # every case was left out: no job is one for this machine
    return 1 if not right else OUT_OF_TIME if not_begun else 0


def main():
    options = parse(sys.argv[1:])
    if options.verb == "table":
        if options.folder is None or not options.folder.is_dir():
            print("table needs a folder of records", file=sys.stderr)
            return WRONG_INPUT
        right = show(options.folder, options.cases)
        return WRONG_INPUT if right is None else 0 if right else 1
    if options.tidemark is None:
        print("--tidemark PATH: which program runs the steps?", file=sys.stderr)
        return WRONG_INPUT
    try:
        return run(options)
    except (Failed, OSError) as error:
        print(error, file=sys.stderr)
        return WRONG_INPUT


if __name__ == "__main__":
    sys.exit(main())

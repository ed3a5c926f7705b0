#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs PyTorch's DDP, FSDP1 and FSDP2 on one GPU and records what they allocate, to be compared with predictions.

    tests/gpu/pytorch_judge.py [--out DIR] [--tidemark PATH] [--cases PATTERN] [--time-box SECONDS] [--rehearse]
    tests/gpu/pytorch_judge.py compare DIR --tidemark PATH [--cases PATTERN] [--details]

Collectives are those of PyTorch's fake process group, which do nothing: allocations are those of any number of ranks.
Each case writes DIR/<case>.json and DIR/<case>.pickle.gz, a snapshot that memory_viz reads once unpacked; cases with a
record are not run again. With --rehearse nothing needs a GPU: tensors are fake, their births and deaths are counted.
Exit codes: 0 fine, 1 a case failed or an allocation has neither partner nor known reason, 2 wrong input, 3 this machine
cannot, 124 the time was over before all cases were.
"""

import argparse
import importlib.util
import os
import pathlib
import sys

from case_loop import OUT_OF_TIME, folder_of, write_each
from judge.case import cases
from judge.prediction import NoPrediction, Program

CANNOT = 3


class NoRecords(Exception):
    """There is nothing to compare."""


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", nargs="?", choices=("run", "compare", "jobs"), default="run",
                        help="jobs prints each case's Tidemark job")
    parser.add_argument("folder", nargs="?", type=pathlib.Path, help="of records, to compare")
    parser.add_argument("--out", type=pathlib.Path, help="folder of records; default: tests/gpu/recorded, "
                                                         "for a rehearsal a temporary one")
    parser.add_argument("--tidemark", help="the program whose predictions are judged")
    parser.add_argument("--cases", default="*", help="a shell pattern of names, such as 'oracle-*-n4-m4'")
    parser.add_argument("--time-box", type=float, default=540.0, help="begin no case after so many seconds")
    parser.add_argument("--rehearse", action="store_true", help="without a GPU")
    parser.add_argument("--details", action="store_true", help="what stands alone in each case")
    return parser.parse_args(words)


def compare(folder, options):
    """Prints the table; whether every allocation has a partner or a reason."""
    from judge.verdict import case_of, details, judge, table

    wanted = {case.name for case in cases(options.cases)}
    program = Program(options.tidemark)
    program.check()
    records = [path for path in sorted(folder.glob("*.json")) if case_of(path) in wanted]
    if not records:
        raise NoRecords(f"{folder} holds no record of a case '{options.cases}': pytorch_judge.py --out FOLDER makes "
                        "them")
    verdicts = [judge(path, program) for path in records]
    if options.details:
        for verdict in verdicts:
            if verdict.matching:
                print("\n".join(details(verdict)) + "\n")
    print("\n".join(table(verdicts)))
    return all(verdict.error is None and verdict.open == 0 for verdict in verdicts)


def run(options, chosen):
    if importlib.util.find_spec("torch") is None:
        print(f"{sys.executable} has no torch: install it with 'pip install torch numpy', or call an interpreter that "
              "has it", file=sys.stderr)
        return CANNOT
    from judge.record import in_child, machine, write_case

    about = in_child(machine, options.rehearse)
    if about is None:
        print("PyTorch sees no CUDA device on this machine; --rehearse needs none", file=sys.stderr)
        return CANNOT
    out = folder_of(options, "judge-")
    program = Program(options.tidemark) if options.tidemark else None
    failed = []

    def write(case):
        error = write_case(case, about, program, out, options.rehearse)
        if error is not None:
            failed.append(case.name)
        return error or "recorded"

    not_begun = write_each(chosen, out, options.time_box, write)
    print(f"records: {out}")
    has_records = any((out / f"{case.name}{end}").exists() for case in chosen for end in (".json", ".failed.json"))
    all_matched = compare(out, options) if options.tidemark and has_records else True
    if failed or not all_matched:
        return 1
    return OUT_OF_TIME if not_begun else 0


def main():
    options = parse(sys.argv[1:])
    chosen = cases(options.cases)
    if not chosen:
        print(f"no case is called '{options.cases}'; pytorch_judge.py jobs lists them", file=sys.stderr)
        return 2
    if options.verb == "jobs":
        print("---\n".join(f"# {case.name}\n{case.job()}" for case in chosen), end="")
        return 0
    try:
        if options.verb == "run":
            return run(options, chosen)
        if options.folder is None or options.tidemark is None:
            print("compare needs a folder of records and --tidemark PATH", file=sys.stderr)
            return 2
        return 0 if compare(options.folder, options) else 1
    except NoPrediction as error:
        print(f"no prediction: {error}", file=sys.stderr)
        return 2
    except (NoRecords, OSError) as error:  # an --out that is no folder, say
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    os.environ.setdefault("TORCH_SYMBOLIZE_MODE", "dladdr")  # names are enough; source lines take minutes
    sys.exit(main())

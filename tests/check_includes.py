#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what a compiler does not: that every file keeps to the order of the house.

  check_includes.py [ROOT]

Prints one "file:line: what is wrong" per finding; the exit status is 1 where there is one. The rules:
- a folder includes only the folders that MAY_USE gives it, and always by the path from the root;
- a source includes its own header before all others, so that this header is known to compile alone;
- what a test defines is in a namespace named after its file: several are compiled together;
- a source starts with the licence line, a header also says #pragma once, none is longer than LONGEST lines;
- no loop runs over an element of what a call returned: before C++23 it is gone when the body begins.
"""

import re
import sys
from pathlib import Path

EVERYTHING = ("base", "models", "traces", "kernels", "sim", "profiler", "reports", "cli", "tests")

# folder: what it may include besides itself
MAY_USE = {
    "base": (),
    "models": ("base",),
    "traces": ("base",),
    "kernels": ("base",),
    "sim": ("base", "models", "traces"),
    "profiler": ("base", "models", "traces", "kernels", "sim/program", "sim/memory"),
    "reports": ("base", "models", "traces"),
    "cli": EVERYTHING,
    "tests": EVERYTHING,
}

HEADERS = {".h", ".cuh"}
SOURCES = HEADERS | {".cc", ".cu"}
SCRIPTS = {".py", ".sh", ".proto"}
LICENCE = "SPDX-License-Identifier: Apache-2.0"
LONGEST = 400
CALL = r"[\w:]+\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"  # with two levels of parentheses inside
DANGLING = re.compile(r"\bfor \([^;]*[^:;]: \*?" + CALL + r"(?:\.\w+)*\.(?:front|back|at)\(")
INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]+)"')
FIRST_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)


def is_within(path, folder):
    return path == folder or path.startswith(folder + "/")


def check_include(root, folder, target):
    """The fault of one include, or None."""
    if (root / target).is_file():
        allowed = (folder,) + MAY_USE[folder]
        if any(is_within(target, other) for other in allowed):
            return None
        return f'{folder}/ may not include "{target}"; it may use: {", ".join(MAY_USE[folder]) or "nothing"}'
    if target.endswith(".pb.h"):  # generated from the .proto file beside which it is included
        proto = target.removesuffix(".pb.h") + ".proto"
        return check_include(root, folder, proto) if (root / proto).is_file() else f'no {proto} generates "{target}"'
    return f'there is no "{target}" in the repository; includes start at its root, foreign headers stand in <>'


def check_file(root, path):
    """Yields (line number, fault)."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    if not any(LICENCE in line for line in lines[:2]):
        yield 1, f'the first line must say "{LICENCE}"'
    if path.suffix in HEADERS and "#pragma once" not in lines:
        yield 1, "a header says #pragma once"
    if len(lines) > LONGEST:
        yield LONGEST + 1, f"{len(lines)} lines, at most {LONGEST}: is this still one noun?"
    own = path.with_suffix(".h")
    if path.suffix == ".cc" and own.is_file():
        own = str(own.relative_to(root))
        if not (first := FIRST_INCLUDE.search(text)) or first[1] != own:
            yield 1, f'the first include must be its own header, "{own}"'
    if path.name.endswith("_test.cc") and not re.search(rf"^namespace tidemark\S*::{path.stem} {{$", text, re.MULTILINE):
        yield 1, f'a test has a namespace of its own: "namespace tidemark::{path.stem} {{"'
    if path.suffix in SOURCES:
        folder = path.relative_to(root).parts[0]
        for number, line in enumerate(lines, start=1):
            if DANGLING.search(line):
                yield number, "the loop outlives what the call returned: give that a name first"
            if match := INCLUDE.match(line):
                if fault := check_include(root, folder, match[1]):
                    yield number, fault


def check_tree(root):
    """All faults below root, as "file:line: fault", and the number of files read."""
    paths = sorted(
        path
        for folder in MAY_USE
        for path in (root / folder).rglob("*")
        if path.is_file() and path.suffix in SOURCES | SCRIPTS
    )
    faults = [
        f"{path.relative_to(root)}:{number}: {fault}" for path in paths for number, fault in check_file(root, path)
    ]
    return faults, len(paths)


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    faults, count = check_tree(root)
    print("\n".join(faults + [f"{count} files, {len(faults)} faults"]))
    if count == 0:
        print(f"error: {root} holds no sources", file=sys.stderr)
    return 1 if faults or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())

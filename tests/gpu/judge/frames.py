# SPDX-License-Identifier: Apache-2.0
"""Who asked for memory, from a stack of dozens of frames: a few short names."""

import pathlib
import re

TELLING = ("/judge/decoder.py", "/distributed/fsdp/", "/nn/parallel/", "/torch/optim/",
           "/judge/session.py")
OPERATOR = re.compile(r"at::_ops::(\w+)::")
NODE = re.compile(r"\b(\w+)::apply\(")
REDUCER = re.compile(r"c10d::(\w+::\w+)")
UNTOLD = {"PyNode", "Node", "THPFunction", "Engine"}


def is_telling(filename):
    return any(part in filename for part in TELLING)


def short_frame(name, filename, line):
    return {"name": name, "filename": pathlib.PurePath(filename).name, "line": line}


def shortened(frames):
    """At most four frames, innermost first: the operator, autograd's node, the reducer's function, a Python function.

    Of nested operators the outermost is meant: mm, not the empty that it calls.
    """
    found = {}
    for frame in frames:
        name, filename = frame["name"], frame["filename"]
        if filename.endswith(".py"):
            if is_telling(filename):
                found.setdefault("python", short_frame(name, filename, frame["line"]))
                break
            continue
        for kind, pattern in (("operator", OPERATOR), ("node", NODE), ("reducer", REDUCER)):
            match = pattern.search(name)
            if match is None or match[1] in UNTOLD or (kind == "operator" and found.keys() & {"node", "reducer"}):
                continue
            text = f"aten.{match[1]}" if kind == "operator" else match[1]
            if kind == "operator":
                found[kind] = {"name": text, "filename": "", "line": 0}
            else:
                found.setdefault(kind, {"name": text, "filename": "", "line": 0})
    return [found[kind] for kind in ("operator", "node", "reducer", "python") if kind in found]


def as_text(frames):
    return " < ".join(f"{frame['name']} {frame['filename']}:{frame['line']}" if frame["filename"] else frame["name"]
                      for frame in frames)

# SPDX-License-Identifier: Apache-2.0
"""Where a record of tests/gpu/recorded comes from, and how it gets there."""

import datetime
import json


def about(doctor):
    """The head of every record, by what `tidemark doctor --format json` found. Without a GPU `gpu` is null."""
    libraries = {library["name"]: library["version"] for library in doctor["libraries"]}
    runtime = doctor["cuda"]["runtime_version"]
    return {"gpu": doctor["gpus"][0]["name"] if doctor["gpus"] else None, "driver": doctor["driver"],
            "cuda": f"{runtime // 1000}.{runtime % 1000 // 10}" if runtime else None, "nccl": libraries["NCCL"],
            "cublaslt": libraries["cuBLASLt"], "cupti": libraries["CUPTI"], "date": now()}


def write(path, record):
    """Whole or not at all, whatever ends the program."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(record) + "\n", encoding="utf-8")
    part.replace(path)


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")

# SPDX-License-Identifier: Apache-2.0
"""A case's record on disk: what ran where, what was predicted, what was measured."""

import multiprocessing
import shutil
import subprocess
import traceback

from judge.prediction import NoPrediction
from judge.snapshot import write_snapshot
from machine import now, write

LARGEST_SNAPSHOT = 2 << 20  # bytes of a file that a repository may keep
LONGEST_CASE = 300  # seconds; real ones take a few, rehearsals of the largest two minutes


class ChildFailed(Exception):
    """What a child process had to say of its end."""


def in_child(function, *arguments):
    """The function's result in a process of its own: a fresh allocator, and imports that are paid once."""
    import torch  # noqa: F401  before the fork

    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_send, args=(sender, function, arguments))
    child.start()
    sender.close()
    try:
        is_fine, result = receiver.recv() if receiver.poll(LONGEST_CASE) else (False, f"no end in {LONGEST_CASE} s")
    except EOFError:
        is_fine, result = False, "the process ended without a word"
    child.kill()
    child.join()
    if not is_fine:
        raise ChildFailed(result)
    return result


def _send(sender, function, arguments):
    try:
        sender.send((True, function(*arguments)))
    except Exception:
        sender.send((False, traceback.format_exc()))


def machine(is_rehearsal):
    """Where this runs, or None where there is no GPU to run on."""
    import torch

    about = {"gpu": None, "driver": None, "cuda": torch.version.cuda, "nccl": None, "torch": torch.__version__,
             "rehearsal": is_rehearsal}
    if is_rehearsal:
        return about
    if not torch.cuda.is_available():
        return None
    about["gpu"] = torch.cuda.get_device_name(0)
    about["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    if shutil.which("nvidia-smi"):
        asked = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"],
                               capture_output=True, text=True, check=False)
        about["driver"] = asked.stdout.strip() or None
    return about


def write_case(case, about, program, out, is_rehearsal):
    """Runs the case and writes its record. A failure is written as well; returns its last line, or None."""
    record = {**about, "date": now(), "job": case.job(), "predicted": None, "measured": None, "snapshot": None}
    if program is not None:
        try:
            record["predicted"] = program.prediction(case.job())
        except NoPrediction as error:
            record["not_predicted"] = str(error)
    try:
        record["measured"] = in_child(_measure, case, is_rehearsal, out / f"{case.name}.pickle.gz")
        record["snapshot"] = f"{case.name}.pickle.gz"
    except ChildFailed as error:
        record["error"] = str(error)
    # A failure leaves no record in the way of another try.
    fine, failed = out / f"{case.name}.json", out / f"{case.name}.failed.json"
    write(failed if "error" in record else fine, record)
    if "error" in record:
        return record["error"].strip().splitlines()[-1]
    failed.unlink(missing_ok=True)
    return None


def _measure(case, is_rehearsal, path):
    from judge.session import run_case

    measured, snapshot = run_case(case, is_rehearsal)
    write_snapshot(snapshot, path)
    measured["allocator_settings"] = snapshot.get("allocator_settings")
    measured["events"] = sum(map(len, snapshot["device_traces"]))
    if path.stat().st_size > LARGEST_SNAPSHOT:
        measured["snapshot_is_large"] = path.stat().st_size
    return measured

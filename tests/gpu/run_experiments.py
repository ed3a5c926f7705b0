#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs what needs a GPU on a machine that has one, out of a bundle (./dev gpu-bundle).

    run [RESULTS] [--only PATTERN[,PATTERN...]] [--time-box SECONDS] [--pack FILE] [--list]

Parts run in the order of their worth, each in a time box of its own. Results are written to RESULTS as they come (default:
results/ beside this script), and after each part packed into FILE, FILE.1, ... of at most 15 MiB each (.tar.gz), or more
where one file is larger: whatever ends the run, what was measured stays. A part that has ended well is not run again into
the same RESULTS. Where a GPU is to be had for minutes only, --only and --time-box say what of it is run now. CUDA's
libraries are taken from PyTorch's wheels where the loader finds no others; TIDEMARK_TORCH_PYTHON names another interpreter
that has PyTorch.
Exit codes: 0 fine, 1 a part failed, 2 wrong input, 3 no GPU can be used here, or nothing could be run, 124 the time was
over before all parts were, 130 interrupted.
"""

import argparse
import dataclasses
import fnmatch
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
WRONG_INPUT, CANNOT, SKIPPED = 2, 3, 77
OUT_OF_TIME = (124, 137, -9)  # of timeout: told to end, or ended
GRACE = 10  # seconds between the two
NO_TESTS = b"[  PASSED  ] 0 tests."
PATIENCE = 5  # seconds for the end of a part, and of its output
SHORTEST = 20  # seconds: with less a part is not begun
LARGEST_PIECE = 15 << 20  # bytes
MOST_STALE = 100
INTERRUPTED = 130


@dataclasses.dataclass(frozen=True)
class Part:
    name: str
    seconds: int
    command: tuple
    needs: str = ""  # a file among the results, without which the part has nothing to work on


def ranks(count):
    """As torchrun would start them; several on one GPU where NCCL (2.30 and later) takes that."""
    variables = f"WORLD_SIZE={count} MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 NCCL_MULTI_RANK_GPU_ENABLE=1"
    started = " ".join(f'RANK={rank} LOCAL_RANK={rank} {variables} "$0" & pids="$pids $!";' for rank in range(count))
    return ("sh", "-c", f'{started} code=0; for pid in $pids; do wait "$pid" || code=$?; done; exit "$code"',
            HERE / "gpu_ranks")


def parts(results):
    """All of them, in the order of their worth."""
    tidemark, gpu_test, python = HERE / "tidemark", HERE / "gpu_test", torch_python()
    recorded, machine = results / "recorded", results / "machine.yaml"
    small = (HERE / "jobs/demo-small.yaml", "--set", "layout.tp=1", "--set", "layout.sp=false")
    compare = ("--device", "cuda", "--steps", "6", "--format", "json")
    # A kernel that fails ends its process: a process each for steps, kernels, products, and grids. Products and norms, whose
    # truth takes a processor most of a minute each, are parts of their own behind the others.
    slow = ("Multiply", "LinearForward", "LinearInputGradient", "LinearWeightGradient", "NormBackward")
    found = [Part(f"device-{name}", 120, (gpu_test, f"--gtest_filter={tests}"))
             for name, tests in (("probe", "ProbeDevicesOnGpu.*"), ("steps", "*StepOnAGpu.*"), ("pools", "StepInAPool.*"),
                                 ("kernels", "Kernels/CudaOnGpu.*-*Attention*:" + ":".join(f"*/{name}" for name in slow)),
                                 ("attention", "Kernels/CudaOnGpu.*Attention*"), ("grids", "CudaGrids.*"),
                                 ("products", "*CublasLt*-" + ":".join(f"*/{name}" for name in slow)),
                                 *((name, f"Kernels/*/{name}") for name in slow))]
    # Recording begins before a context is made: a process each.
    found += [Part(f"watched-{test}", 60, (gpu_test, f"--gtest_filter=AWatchedGpu.{test}"))
              for test in ("ClosesItsBudget", "ClosesTheBudgetOfAPool", "FindsWhatIsHiddenBehindTheAllocator",
                           "TimesOperationsOnTheProgramsStreams")]
    # Our own step: do predicted and measured memory agree, and are its gradients those of one big batch?
    for strategy in ("ddp-last", "fsdp2-scatter-each", "megatron", "deepspeed-zero2"):
        job = (*small, "--set", f"strategy={strategy}")
        found.append(Part(f"step-{strategy}", 60, (tidemark, "compare", *job, *compare)))
        found.append(Part(f"numbers-{strategy}", 60, (tidemark, "run", *job, "--device", "cuda", "--verify", "--format",
                                                      "json")))
    with_experts = (*small, "--set", "network.experts.count=8", "--set", "network.experts.ffn=256", "--set",
                    "network.experts.shared_ffn=256", "--set", "network.experts.shared_gate=true", "--set", "strategy=megatron")
    found.append(Part("step-experts", 60, (tidemark, "compare", *with_experts, *compare)))
    found.append(Part("numbers-experts", 60, (tidemark, "run", *with_experts, "--device", "cuda", "--verify", "--format", "json")))
    found += [Part(f"memory-{mode}", 60, (HERE / "memory_experiment", mode)) for mode in ("none", "records", "sources")]
    found += [Part(f"ranks-{count}", 150, ranks(count)) for count in (1, 2)]
    # Two ranks on one GPU by the bundle's own mpirun: by NCCL where it takes that, else through the host.
    if (HERE / "mpirun").exists():
        found.append(Part("mpi-ranks-2", 150, (HERE / "mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to",
                                               "none", "-np", "2", HERE / "gpu_ranks")))
        for strategy in ("ddp-last", "fsdp2-scatter-each", "megatron", "deepspeed-zero3"):
            job = (*small, "--set", "layout.dp=2", "--set", f"strategy={strategy}")
            found.append(Part(f"step-{strategy}-2", 60, (tidemark, "compare", *job, *compare)))
        job = (*with_experts, "--set", "layout.dp=2", "--set", "layout.ep=2")
        found.append(Part("step-experts-2", 60, (tidemark, "compare", *job, *compare)))
    found.append(Part("pytorch-judge", 420, (python, HERE / "experiments/gpu/pytorch_judge.py", "--tidemark", tidemark, "--out",
                                             recorded, "--time-box", "390")))
    found.append(Part("calibrate", 240, (tidemark, "calibrate", "--device", "cuda", "-o", machine)))
    ours = (python, HERE / "experiments/gpu/own_steps.py", "--tidemark", tidemark, "--machine", machine, "--out", recorded,
            "--text", HERE / "experiments/CHANGELOG.md")
    found.append(Part("real-sizes", 300, (*ours, "--cases", "[rl]e*", "--time-box", "200"), "machine.yaml"))
    found += [Part(f"against-pytorch-{shape}", 200, (python, HERE / "experiments/bench/against_pytorch.py", "--device",
                                                     "cuda", "--tidemark", tidemark, "--out", recorded, "--shapes", shape))
              for shape in ("124m", "1b", "1b-8k")]
    found.append(Part("accumulation", 420, (*ours, "--cases", "accumulation-*", "--time-box", "390"), "machine.yaml"))
    found += [Part(f"sanitizer-{tool}", 300, ("compute-sanitizer", "--tool", tool, "--error-exitcode", "1", gpu_test,
                                              "--gtest_filter=*CudaOnGpu*:*StepOnAGpu*ddp*"))
              for tool in ("memcheck", "racecheck")]
    return found


class Results:
    """A folder with what parts have printed and written, and which of them have ended how."""

    def __init__(self, folder, pack):
        self.folder, self.pack = folder, pack
        (folder / "recorded").mkdir(parents=True, exist_ok=True)
        self._file = folder / "parts.json"
        try:
            self.ended = {name: {"outcome": str(part["outcome"]), "seconds": part["seconds"]}
                          for name, part in json.loads(self._file.read_text(encoding="utf-8")).items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):  # none yet
            self.ended = {}

    def is_done(self, part):
        return self.ended.get(part.name, {}).get("outcome") == "done"

    def keep(self, part, outcome, seconds):
        self.ended[part.name] = {"outcome": outcome, "seconds": round(seconds, 1)}
        written = self._file.with_suffix(".part")
        written.write_text(json.dumps(self.ended, indent=1) + "\n", encoding="utf-8")
        written.replace(self._file)
        self.pack_all()

    def pack_all(self):
        """What cannot be packed now may be the next time: results lie where they are."""
        if self.pack:
            try:
                self._write_pieces()
            except OSError as error:
                print(f"warning: {self.pack}: {error.strerror}; results are in {self.folder}", file=sys.stderr)

    def _write_pieces(self):
        """Pictures of memory and traces are compressed already, and text becomes smaller: sizes are never exceeded."""
        pieces, size = [[]], 0
        files = [path for path in self.folder.rglob("*") if path.is_file() and not path.name.startswith(self.pack.name)]
        for path in sorted(files, key=lambda path: path.stat().st_mtime):
            if size + path.stat().st_size > LARGEST_PIECE and pieces[-1]:
                pieces.append([])
                size = 0
            pieces[-1].append(path)
            size += path.stat().st_size
        for i, piece in enumerate(pieces):
            whole = self.pack if i == 0 else self.pack.with_name(f"{self.pack.name}.{i}")
            part = whole.with_name(whole.name + ".part")
            with tarfile.open(part, "w:gz") as archive:
                for path in piece:
                    archive.add(path, arcname=pathlib.Path("results") / path.relative_to(self.folder))
            part.replace(whole)
        for i in range(len(pieces), len(pieces) + MOST_STALE):  # of an earlier, longer pack
            self.pack.with_name(f"{self.pack.name}.{i}").unlink(missing_ok=True)


def outcome_of(code):
    """A missing requirement is no failure, and neither is a part that ran out of time: both are told."""
    if code == 0:
        return "done"
    if code in (CANNOT, SKIPPED):
        return "left out, something is missing"
    if code in OUT_OF_TIME:
        return "out of time, what it has written stays"
    return f"failed with exit code {code}"


def execute(part, log, seconds):
    """Runs a part, which prints to `log` as well. Returns its exit code."""
    command = [str(word) for word in part.command]
    if shutil.which(command[0]) is None:
        print(f"there is no program {command[0]}")
        return CANNOT
    with open(log, "wb", buffering=0) as kept:
        interrupts = []  # that come before there is somebody to end are heard once there is
        hear = signal.signal(signal.SIGINT, lambda *_: interrupts.append(True))
        child = subprocess.Popen(["timeout", f"--kill-after={GRACE}", str(seconds), *command], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)

        def show():
            for line in child.stdout:
                kept.write(line)
                sys.stdout.buffer.write(line)
                sys.stdout.flush()

        shown = threading.Thread(target=show, daemon=True)
        shown.start()
        try:
            signal.signal(signal.SIGINT, hear)
            if interrupts:
                raise KeyboardInterrupt
            code = child.wait()
            shown.join(PATIENCE)  # what a part has left running may hold its output open for ever
        finally:  # also where this program is told to end: nobody else uses the GPU then
            end_session(child.pid)
        shown.join(PATIENCE)
    return code


def end_session(leader):
    """Ends whatever is left of a session, and waits for that: what is told to end holds the GPU until it has."""
    until = time.monotonic() + PATIENCE
    while (left := processes_of(leader)) and time.monotonic() < until:
        for process in left:
            try:
                os.kill(process, signal.SIGKILL)
            except OSError:  # it has ended meanwhile
                pass
        time.sleep(0.02)


def processes_of(session):
    """Those that have not ended: ranks may be in process groups of their own."""
    processes = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, its_session = entry.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[:4]
        except (OSError, ValueError):  # it has ended meanwhile
            continue
        if int(its_session) == session and state != "Z":
            processes.append(int(entry.parent.name))
    return processes


def run_all(chosen, results, time_box):
    """Runs what is not done yet. Returns an exit code."""
    begin = time.monotonic()
    for part in chosen:
        left = time_box - (time.monotonic() - begin)
        if results.is_done(part):
            print(f"== {part.name}: done before")
        elif part.needs and not (results.folder / part.needs).exists():
            print(f"== {part.name}: not begun, there is no {part.needs} yet")
        elif left < SHORTEST:
            print(f"== {part.name}: not begun, the time is over")
        else:
            seconds = round(min(part.seconds, left))
            print(f"\n== {part.name}, at most {seconds} s", flush=True)
            started = time.monotonic()
            log = results.folder / f"{part.name}.txt"
            try:
                outcome = outcome_of(execute(part, log, seconds))
            except KeyboardInterrupt:
                results.keep(part, "interrupted, what it has written stays", time.monotonic() - started)
                print(f"== {part.name}: interrupted", flush=True)
                return INTERRUPTED
            if outcome == "done" and NO_TESTS in log.read_bytes():
                outcome = "failed: no test ran"
            results.keep(part, outcome, time.monotonic() - started)
            print(f"== {part.name}: {outcome}", flush=True)
    outcomes = [results.ended.get(part.name, {}).get("outcome", "not begun") for part in chosen]
    counts = {word: sum(outcome.startswith(word) for outcome in outcomes)
              for word in ("done", "failed", "out of time", "left out", "interrupted", "not begun")}
    print(f"\nof {len(chosen)} parts: " + ", ".join(f"{count} {word}" for word, count in counts.items() if count))
    if counts["failed"]:
        return 1
    if counts["out of time"] or counts["interrupted"] or counts["not begun"]:
        return OUT_OF_TIME[0]
    return 0 if counts["done"] else CANNOT


def gpu_is_there(folder):
    """Writes what the machine has into the folder; whether it has a GPU that can be used."""
    doctor = subprocess.run([str(HERE / "tidemark"), "doctor", "--require", "cuda"], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, check=False)
    (folder / "doctor.txt").write_text(doctor.stdout, encoding="utf-8")
    print(doctor.stdout, end="", flush=True)
    if doctor.returncode not in (0, CANNOT):
        print(f"error: tidemark doctor ended with {doctor.returncode}", file=sys.stderr)
    return doctor.returncode == 0


def set_paths():
    """CUDA's libraries may be on this machine as PyTorch's wheels alone, where the loader is to look last."""
    look = ("import importlib.util, os\n"
            "found = importlib.util.find_spec('nvidia')\n"
            "for root in found.submodule_search_locations if found else ():\n"
            "    for part in ('cu13', 'nccl', 'cudnn'):\n"
            "        print(os.path.join(root, part, 'lib'))\n")
    python = torch_python()
    folders = subprocess.run([python, "-c", look], capture_output=True, text=True,
                             check=False).stdout.splitlines() if shutil.which(python) else []
    before = os.environ.get("LD_LIBRARY_PATH")
    os.environ["PATH"] = f"{HERE}:{os.environ['PATH']}:/usr/local/cuda/bin"  # the bundle's mpirun first, if it has one
    path = [*([before] if before else []), *(folder for folder in folders if os.path.isdir(folder))]
    if path:
        os.environ["LD_LIBRARY_PATH"] = ":".join(path)


def torch_python():
    return os.environ.get("TIDEMARK_TORCH_PYTHON", sys.executable)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=pathlib.Path, default=HERE / "results")
    parser.add_argument("--only", default="*", help="shell patterns of parts, between commas: 'device-*,memory-*'")
    parser.add_argument("--time-box", type=float, default=24 * 3600.0, help="seconds for all of them (default: a day)")
    parser.add_argument("--pack", type=pathlib.Path, help="a .tar.gz of the results, written after each part")
    parser.add_argument("--list", action="store_true", help="the parts, and the most seconds that each takes")
    options = parser.parse_args()
    options.results = options.results.resolve()  # parts have folders of their own
    options.pack = options.pack and options.pack.resolve()
    patterns = options.only.split(",")
    every = parts(options.results)
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(part.name, pattern) for part in every):
            print(f"error: no part is called '{pattern}'\nhint: --list names them", file=sys.stderr)
            return WRONG_INPUT
    chosen = [part for part in every if any(fnmatch.fnmatchcase(part.name, one) for one in patterns)]
    if options.list:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # who reads no further than the first lines has what he wants
        print("\n".join(f"{part.name:45} {part.seconds:4} s" for part in chosen))
        return 0
    set_paths()
    try:
        results = Results(options.results, options.pack)
        if options.pack:
            options.pack.parent.mkdir(parents=True, exist_ok=True)
            if options.pack.is_dir():
                raise IsADirectoryError(21, "is a folder", str(options.pack))
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}\nhint: RESULTS is a folder, and --pack a file", file=sys.stderr)
        return WRONG_INPUT
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    results.pack_all()
    if not gpu_is_there(options.results):
        print("error: no GPU can be used here, so there is nothing to run\nhint: the lines above say what is missing; an "
              "NVIDIA driver for CUDA 13 and a GPU are all that a machine needs", file=sys.stderr)
        return CANNOT
    return run_all(chosen, results, options.time_box)


if __name__ == "__main__":
    sys.exit(main())

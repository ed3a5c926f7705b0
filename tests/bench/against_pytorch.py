#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The executor against PyTorch: the same decoder on one rank, in turns.

    tests/bench/against_pytorch.py [--device cpu|cuda] [--tidemark build/tidemark] [--python PYTHON-WITH-TORCH]
                                   [--rounds 5] [--shapes NAME,...] [--out DIR]

On a processor: fp32, one thread each, the fastest step of each. On a GPU: bf16 throughout, the median step behind the
first ones, PyTorch eager and compiled, and with --out one DIR/against-pytorch-<shape>.json for each shape, which is then not
measured again, and the Kineto trace of a small one. Where either side failed, the record is called .failed.json and a
later call tries again. Each line has one ratio for each: PyTorch's time over ours, 1.00 where both are as fast, more
where we are faster. Without torch it says so and exits with 77, as a skipped test does.
Exit codes: 0 fine, 1 a shape could not be compared, 2 wrong input, 3 this machine has no GPU that was asked for.

The decoder (torch_decoder.py) has the fastest operators that PyTorch has for each: rms_norm, scaled_dot_product_attention
and the fused AdamW.
"""

import argparse
import dataclasses
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

SKIPPED, WRONG_INPUT, CANNOT = 77, 2, 3
STEPS = 6  # a round of each; the first ones warm caches
WARM = 3  # steps that are not counted on a GPU: kernels are loaded and chosen, memory is filled with NaNs

# By device. demo is the shape of tests/jobs/demo-small.yaml, 1b that of models/zoo/tinyllama-1.1b.json. On a GPU there is
# one microbatch, so that peaks are of the same tensors: all graphs are kept until one backward pass (single-backward).
# PyTorch's decoder is not wrapped in DDP; ours copies its gradients into buckets and back.
SHAPES = {
    "cpu": {"demo": {"layers": 3, "hidden": 192, "ffn": 768, "heads": 4, "kv_heads": 4, "vocabulary": 1536,
                     "sequence": 128, "batch": 8, "microbatches": 2}},
    "cuda": {"124m": {"layers": 12, "hidden": 768, "ffn": 2048, "heads": 12, "kv_heads": 12, "vocabulary": 50304,
                      "sequence": 1024, "batch": 16, "microbatches": 1},
             "1b": {"layers": 22, "hidden": 2048, "ffn": 5632, "heads": 32, "kv_heads": 4, "vocabulary": 32000,
                    "sequence": 2048, "batch": 4, "microbatches": 1},
             "1b-8k": {"layers": 22, "hidden": 2048, "ffn": 5632, "heads": 32, "kv_heads": 4, "vocabulary": 32000,
                       "sequence": 8192, "batch": 1, "microbatches": 1}},
}
TRACED = {"layers": 2, "hidden": 256, "ffn": 512, "heads": 4, "kv_heads": 4, "vocabulary": 1024, "sequence": 128,
          "batch": 2, "microbatches": 2}

JOB = """
network: {{layers: {layers}, hidden: {hidden}, ffn: {ffn}, heads: {heads}, kv_heads: {kv_heads}, vocabulary: {vocabulary},
          tied_embeddings: true}}
machine: {machine}
sequence_length: {sequence}
micro_batch_size: {batch}
accumulation_steps: {microbatches}
layout: {{dp: 1}}
strategy: single-backward
packing: {{qkv: packed, gate_up: packed}}
precision: {{params: {dtype}, gradients: {dtype}, reduce: {dtype}, accumulate: {dtype}, optimizer: {dtype}}}
"""
PLACES = {"cpu": ("cpu", "fp32"), "cuda": ("h100-sxm-80gb", "bf16")}  # machine, dtype


@dataclasses.dataclass(frozen=True)
class Contender:
    name: str
    compiled: bool = False


CONTENDERS = {"cpu": (Contender("PyTorch"),), "cuda": (Contender("PyTorch eager"), Contender("PyTorch compiled", True))}


def torch_steps(request):
    """Seconds of each step and the most that was allocated. Runs in the interpreter that has torch."""
    import time

    import torch
    from torch_decoder import Shape, Training

    on_gpu = request["device"] == "cuda"
    torch.set_num_threads(1)
    training = Training(Shape(**request["shape"]), request["device"], torch.bfloat16 if on_gpu else torch.float32,
                        request["compiled"])
    seconds = []
    for _ in range(request["steps"]):
        batches = training.batches()
        training.wait()
        start = time.perf_counter()
        training.step(batches)
        training.wait()
        seconds.append(time.perf_counter() - start)
    if request["trace"]:
        with torch.profiler.profile(profile_memory=True, record_shapes=False) as profile:
            training.step(training.batches())
            training.wait()
        profile.export_chrome_trace(request["trace"])
    return {"seconds": seconds, "torch": torch.__version__,
            "allocated_bytes": torch.cuda.max_memory_allocated() if on_gpu else None}


def json_of(*words):
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["it says nothing"]
        said = [line for line in lines if line.startswith("tidemark: error")] or lines[-1:]
        raise RuntimeError(f"{words[0]} ended with {done.returncode}: {said[0][-2000:]}")
    return json.loads(done.stdout)


class Bench:
    def __init__(self, options):
        self.tidemark, self.python, self.device, self.out = options.tidemark, options.python, options.device, options.out

    def torch_of(self, shape, contender, steps, trace=None):
        request = {"shape": shape, "device": self.device, "compiled": contender.compiled, "steps": steps,
                   "trace": trace and str(trace)}
        return json_of(self.python, pathlib.Path(__file__).resolve(), "--torch-steps", json.dumps(request))

    def run_of(self, shape, steps):
        """tidemark.run/1 of the shape's job."""
        machine, dtype = PLACES[self.device]
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as job:
            job.write(JOB.format(**shape, machine=machine, dtype=dtype))
            job.flush()
            return json_of(self.tidemark, "run", job.name, "--device", self.device, "--steps", steps, "--timed", "steps",
                           "--format", "json")

    def measure(self, name, shape, rounds):
        """Prints a line, and keeps a record where there is a folder for it."""
        ours, theirs, peaks = [], {each.name: [] for each in CONTENDERS[self.device]}, {}
        failed = {}
        for _ in range(rounds):
            try:
                run = self.run_of(shape, STEPS)
                ours += self._counted([step["step_ns"] * 1e-9 for step in run["steps"]])
                peaks["tidemark"] = run["peak"]["allocator_bytes"]
            except RuntimeError as error:
                failed["tidemark"] = str(error)
            for contender in CONTENDERS[self.device]:
                try:
                    found = self.torch_of(shape, contender, STEPS)
                except RuntimeError as error:  # no compiler for torch.compile, say: the others are still compared
                    failed[contender.name] = str(error)
                    continue
                theirs[contender.name] += self._counted(found["seconds"])
                peaks[contender.name] = found["allocated_bytes"]
        best = {who: self._of(seconds) for who, seconds in (("tidemark", ours), *theirs.items()) if seconds}
        tokens = shape["batch"] * shape["sequence"] * shape["microbatches"]
        print(f"{name}: " + ", ".join(f"{who} {seconds * 1e3:.1f} ms ({tokens / seconds:,.0f} tokens/s)"
                                      for who, seconds in best.items()))
        ratios = {who: best[who] / best["tidemark"] for who in theirs if who in best and "tidemark" in best}
        print("".join(f"  {who} over ours: ratio {ratio:.2f}\n" for who, ratio in ratios.items()), end="")
        print("".join(f"  {who} failed: {why}\n" for who, why in failed.items()), end="", flush=True)
        if self.out:
            self._keep(name, shape, {"step_seconds": best, "ratios": ratios, "allocator_peak_bytes": peaks,
                                     "failed": failed})
        return bool(ratios)

    def _counted(self, seconds):
        return seconds if self.device == "cpu" else seconds[WARM:]

    def _of(self, seconds):
        return min(seconds) if self.device == "cpu" else statistics.median(seconds)

    def _keep(self, name, shape, found):
        sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))
        from machine import about, write

        machine, dtype = PLACES[self.device]
        record = {**about(json_of(self.tidemark, "doctor", "--format", "json")),
                  "job": JOB.format(**shape, machine=machine, dtype=dtype), **found}
        is_compared = len(found["ratios"]) > 0
        write(self.out / f"against-pytorch-{name}{'' if is_compared else '.failed'}.json", record)
        if is_compared:
            (self.out / f"against-pytorch-{name}.failed.json").unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--device", choices=SHAPES, default="cpu")
    parser.add_argument("--tidemark", default=str(root / "build/tidemark"))
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has torch")
    parser.add_argument("--rounds", type=int, help="default: 5 on a processor, 1 on a GPU")
    parser.add_argument("--shapes", help="default: all of the device")
    parser.add_argument("--out", type=pathlib.Path, help="folder of records")
    parser.add_argument("--torch-steps", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.torch_steps:
        print(json.dumps(torch_steps(json.loads(options.torch_steps))))
        return 0
    if subprocess.run([options.python, "-c", "import torch"], capture_output=True, check=False).returncode != 0:
        print(f"skipped: {options.python} has no torch; give another interpreter with --python")
        return SKIPPED
    shapes = SHAPES[options.device]
    unknown = set(options.shapes.split(",")) - set(shapes) if options.shapes else set()
    if unknown:
        print(f"no shape is called {', '.join(sorted(unknown))}; on {options.device} there are: {', '.join(shapes)}",
              file=sys.stderr)
        return WRONG_INPUT
    try:
        gpus = json_of(options.tidemark, "doctor", "--format", "json")["gpus"]
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
    except (RuntimeError, OSError) as error:
        print(error, file=sys.stderr)
        return WRONG_INPUT
    if options.device == "cuda" and not gpus:
        print("tidemark finds no GPU on this machine (tidemark doctor says why)", file=sys.stderr)
        return CANNOT
    bench = Bench(options)
    fine = True
    for name in options.shapes.split(",") if options.shapes else shapes:
        if options.out and (options.out / f"against-pytorch-{name}.json").exists():
            continue  # of an earlier call
        fine &= bench.measure(name, shapes[name], options.rounds or (5 if options.device == "cpu" else 1))
    if options.out and not (options.out / f"kineto-{options.device}-decoder.json.gz").exists():
        trace = options.out / f"kineto-{options.device}-decoder.json.gz"
        bench.torch_of(TRACED, Contender("PyTorch"), WARM, trace)
        print(f"trace of a small decoder: {trace}")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())

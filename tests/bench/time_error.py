#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How well step times are predicted on this machine, over all strategies that the executor runs.

    tests/bench/time_error.py [--tidemark build/tidemark] [--machine machine.yaml] [--rounds 4]

Calibrates the machine unless a file is given, then predicts and runs the small job below under every strategy on one and
on two ranks, in turns, and takes the fastest steady step of each. Prints each error (predicted less measured, of the
measured), their median and spread, and Kendall's tau of the two orders of strategies by time: 1 where they are the same,
0 where they have nothing to do with each other. Pairs that were measured within 2 % of each other are left out of tau:
noise orders them. Strategies that are not executed are named. DeepSpeed's buckets, of 500 million elements whatever the
model, are made as small as the model: to fill and to reduce as many takes the executor longer than the step. Of the
four steps the fourth alone has the time of its work: in the others the memory that is freed is filled with NaNs.
"""

import argparse
import itertools
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

JOB = """
network: {layers: 3, hidden: 192, ffn: 768, heads: 4, kv_heads: 4, vocabulary: 1536}
sequence_length: 128
micro_batch_size: 8
accumulation_steps: 2
"""
BUCKET = "sync.bucket_elements=2000000"
STEPS = 6
CLOSE = 0.02


def call(program, *words):
    return subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False)


def json_of(program, *words):
    done = call(program, *words, "--format", "json")
    return json.loads(done.stdout) if done.returncode == 0 else None


def tau(pairs):
    """Of (predicted, measured): concordant less discordant, of all pairs that are told apart."""
    score = count = 0
    for a, b in itertools.combinations(pairs, 2):
        if abs(a[1] - b[1]) > CLOSE * min(a[1], b[1]):
            count += 1
            score += 1 if (a[0] - b[0]) * (a[1] - b[1]) > 0 else -1
    return score / count if count else float("nan")


def job_of(program, job_file, strategy, ranks):
    job = (job_file, "--set", f"strategy={strategy}", "--set", f"layout.dp={ranks}")
    small = (*job, "--set", BUCKET)
    return small if strategy.startswith("deepspeed-") and json_of(program, "predict", *small) else job


def measure(program, jobs, rounds):
    """Nanoseconds of the fastest step of its work alone, by job; jobs that are not executed are not there."""
    fastest = {}
    for _ in range(rounds):
        for job in list(jobs):
            run = json_of(program, "run", *job, "--steps", STEPS)
            if run is None:
                jobs.remove(job)
                continue
            step = min(step["step_ns"] for step in run["steps"][3:])
            fastest[job] = min(step, fastest.get(job, step))
    return fastest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--tidemark", default=str(root / "build/tidemark"))
    parser.add_argument("--machine", help="a file that tidemark calibrate wrote")
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        machine = options.machine
        if machine is None:
            machine = f"{folder}/machine.yaml"
            done = call(options.tidemark, "calibrate", "--device", "cpu", "-o", machine)
            if done.returncode != 0:
                print(done.stderr, file=sys.stderr)
                return done.returncode
        job_file = pathlib.Path(folder) / "job.yaml"
        job_file.write_text(JOB + f"machine: {pathlib.Path(machine).resolve()}\n", encoding="utf-8")
        strategies = [row["name"] for row in json_of(options.tidemark, "list", "strategies")]
        all_errors = []
        for ranks in (1, 2):
            jobs = [job_of(options.tidemark, job_file, name, ranks) for name in strategies]
            measured = measure(options.tidemark, jobs, options.rounds)
            pairs = []
            for job, nanoseconds in sorted(measured.items(), key=lambda item: item[1]):
                predicted = json_of(options.tidemark, "predict", *job)["time"]["step_ns"]
                error = predicted / nanoseconds - 1
                pairs.append((predicted, nanoseconds))
                all_errors.append(error)
                print(f"{ranks} ranks  {job[2].removeprefix('strategy='):22}  predicted {predicted / 1e6:7.1f} ms  "
                      f"measured {nanoseconds / 1e6:7.1f} ms  error {error:+.1%}")
            left_out = [name for name in strategies if not any(f"strategy={name}" in job for job in measured)]
            errors = [abs(predicted / nanoseconds - 1) for predicted, nanoseconds in pairs]
            print(f"{ranks} ranks: median of absolute errors {statistics.median(errors):.1%}, Kendall's tau "
                  f"{tau(pairs):.2f}; not executed: {', '.join(left_out) or 'none'}\n")
        print(f"all: median of absolute errors {statistics.median(map(abs, all_errors)):.1%}, "
              f"from {min(all_errors):+.1%} to {max(all_errors):+.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

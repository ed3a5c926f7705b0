#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains one small network four times, with four ways to keep what tensor-parallel ranks gather, and draws the losses.

    docs/curves/curves.py run     runs job.yaml on tide.txt (100 steps each), writes curves.json
    docs/curves/curves.py draw    curves.json to curves.svg; needs matplotlib (Debian: python3-matplotlib)

Three of the ways must give the same losses; the fourth, nanotron's first pool, overwrites values that are read later."""

import argparse
import json
import os
import pathlib
import subprocess

FOLDER = pathlib.Path(__file__).resolve().parent
PROGRAM = os.environ.get("TIDEMARK_PROGRAM", str(FOLDER.parents[1] / "build" / "tidemark"))
STEPS = 100
WAYS = {"fresh": "baseline: gathered into fresh memory", "pooled": "gathered again, one safe pool",
        "cached": "gathered once and kept", "pooled-unsafe": "one pool for gathers and scatters (wrong)"}


def losses(way, steps, program=PROGRAM):
    """Of each step, the mean over its microbatches."""
    done = subprocess.run([program, "run", FOLDER / "job.yaml", "--set", f"buffers.tp_gather={way}", "--steps", str(steps),
                           "--data", FOLDER / "tide.txt", "--seed", "1", "--format", "json"],
                          capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return [step["loss"] for step in json.loads(done.stdout)["steps"]]


def run():
    curves = {way: losses(way, STEPS) for way in WAYS}
    rows = ",\n".join(f' "{way}": [{", ".join(f"{loss:.5f}" for loss in curve)}]' for way, curve in curves.items())
    (FOLDER / "curves.json").write_text("{\n" + rows + "\n}\n", encoding="utf-8")


def draw():
    import matplotlib  # for whoever draws the picture anew

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "tidemark"  # the same bytes each time
    from matplotlib import pyplot

    curves = json.loads((FOLDER / "curves.json").read_text(encoding="utf-8"))
    figure, axes = pyplot.subplots(figsize=(7.2, 3.6), layout="constrained")
    styles = {"fresh": ("#9ecae1", "-", 6), "pooled": ("#3182bd", "-", 3), "cached": ("#08306b", ":", 1.5),
              "pooled-unsafe": ("#d62728", "-", 1.5)}
    for way, curve in curves.items():
        colour, line, width = styles[way]
        axes.plot(range(1, len(curve) + 1), curve, line, color=colour, linewidth=width, label=f"{way}: {WAYS[way]}")
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats per byte)")
    axes.set_xlim(1, len(curves["fresh"]))
    axes.grid(color="#dddddd", linewidth=0.5)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(FOLDER / "curves.svg", metadata={"Date": None})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["run", "draw"])
    {"run": run, "draw": draw}[parser.parse_args().action]()

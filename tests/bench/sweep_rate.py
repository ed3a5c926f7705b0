#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many combinations a second a sweep prices, by the wall clock, on one thread unless --threads says otherwise.

    tests/bench/sweep_rate.py [--tidemark build/tidemark] [--threads N] [--calculon CHECKOUT [--python PYTHON]]

Four spaces of Llama-3 8B to 405B: without pipelines, the same with more numbers of microbatches and networks between
nodes, with pipelines, and one whose combinations share nothing (each is lowered by itself). Only combinations that were priced count: peak memory by category and step time by cause; lowering
them, threads' start and the summary are in the time, the program's own start is not.

With --calculon, a checkout of github.com/calculon-ai/calculon, its model is asked in its own process about layouts of
GPT-3 175B, in turns with the first space, and the last line is the ratio of both rates. PYTHON is an interpreter that
has numpy, pandas and psutil, which it imports. Without --calculon that part is skipped.
"""

import argparse
import json
import pathlib
import resource
import subprocess
import sys
import tempfile

JOB = """network: llama-3-8b
machine: h100-sxm-80gb
sequence_length: 8192
micro_batch_size: 1
accumulation_steps: 8
strategy: fsdp2-scatter-each
layout: {dp: 8}
"""
NETWORKS = "network=llama-3-8b,llama-3-70b,llama-3.1-405b"
MACHINES = ("machine=h100-sxm-80gb,h100-pcie-80gb,h200-sxm-141gb,b200-sxm-180gb,a100-sxm-40gb,a100-sxm-80gb,"
            "a100-pcie-40gb,a100-pcie-80gb,l40s-48gb")
STRATEGIES = "strategy=ddp-last,fsdp2-scatter-each,fsdp2-defer,megatron,deepspeed-zero1,deepspeed-zero2,deepspeed-zero3"
SPACES = {
    "one stage": [NETWORKS, STRATEGIES, "layout.dp=8,32,128", "layout.tp=1,2,4,8", "micro_batch_size=1,2,4,8",
                  "recompute.policy=none,selective,full", "accumulation_steps=1..64", MACHINES],
    "many counts": [NETWORKS, "strategy=ddp-last,fsdp2-scatter-each,megatron", "layout.dp=8,32,128",
                    "layout.tp=1,2,4,8", "micro_batch_size=1,2,4,8", "recompute.policy=none,selective,full",
                    "accumulation_steps=1..256", "machine=h100-sxm-80gb,h200-sxm-141gb,b200-sxm-180gb,a100-sxm-80gb,l40s-48gb",
                    "machine.inter_node.bandwidth=25 GB/s,50 GB/s,100 GB/s"],
    "pipelines": [NETWORKS, "strategy=ddp-last,megatron,nanotron", "layout.pp=1,2,4,8,16", "layout.tp=1,8",
                  "micro_batch_size=1,4", "layout.dp=8", "recompute.policy=none,full", "accumulation_steps=1..64",
                  MACHINES],
    "nothing shared": [NETWORKS, STRATEGIES, "layout.dp=8,32,128", "layout.tp=1,2,4,8", "micro_batch_size=1,2,4,8",
                       "recompute.policy=none,selective,full"],
}
ROUNDS = 3
PEER_SECONDS = 10


def sweep(program, job, space, threads):
    command = [program, "sweep", job, "--threads", str(threads), "--top", "1", "--yes", "--format", "json"]
    for axis in space:
        command += ["--vary", axis]
    output = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
    report = json.loads(output)
    return report["evaluated"] / report["seconds"], report


def calculon_rate(checkout, seconds):
    """Runs in the interpreter that has what the peer imports."""
    import logging
    import time

    sys.path.insert(0, checkout)
    import calculon
    from calculon.llm import Llm, System

    read = calculon.io.read_json_file
    application = Llm.Application(read(f"{checkout}/models/gpt3-175B.json"))
    system = System(read(f"{checkout}/systems/a100_80g.json"))
    logger = logging.Logger("peer")
    far = min(1, system.num_networks - 1)
    asked, start = 0, time.perf_counter()
    while True:
        for tp in (1, 2, 4, 8):
            for pp in (1, 2, 4, 8, 16, 32):
                for micro_batch in (1, 2, 4):
                    for recompute in ("full", "attn_only", "none"):
                        execution = {
                            "num_procs": 512, "tensor_par": tp, "pipeline_par": pp, "data_par": 512 // tp // pp,
                            "tensor_par_net": 0, "pipeline_par_net": far, "data_par_net": far, "batch_size": 2048,
                            "microbatch_size": micro_batch, "datatype": "float16", "fused_activation": True,
                            "attention_type": "multihead", "activation_recompute": recompute,
                            "pipeline_interleaving": 1, "optimizer_sharding": True, "tensor_par_comm_type": "ar",
                            "tensor_par_overlap": "none", "seq_par_ag_redo": False, "data_par_overlap": False,
                            "weight_offload": False, "activations_offload": False, "optimizer_offload": False,
                            "training": True}
                        asked += 1
                        try:
                            model = Llm(application, logger)
                            model.compile(system, Llm.Execution.from_json(execution))
                            model.run(system)
                            model.get_stats_json(False)
                        except Llm.Error:
                            pass  # what does not fit counts for it as well
                        if time.perf_counter() - start > seconds:
                            return asked / (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--tidemark", default=str(root / "build/tidemark"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--calculon", help="a checkout of the peer")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has numpy, pandas and psutil")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        print(calculon_rate(options.peer, PEER_SECONDS))
        return 0
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as job:
        job.write(JOB)
        job.flush()
        best = {}
        theirs = []
        memory = 0
        for turn in range(ROUNDS):
            for name, space in SPACES.items():
                rate, report = sweep(options.tidemark, job.name, space, options.threads)
                best[name] = max(best.get(name, (0, None)), (rate, turn))
                if turn == 0:
                    print(f"{name}: {report['size']:,} combinations, {report['evaluated']:,} priced, "
                          f"{report['refused']:,} refused", flush=True)
            if turn == 0:  # no other process has been a child yet
                memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
            if options.calculon:
                theirs.append(float(subprocess.run([options.python, __file__, "--peer", options.calculon],
                                                   capture_output=True, text=True, check=True).stdout))
    for name, (rate, _) in best.items():
        print(f"{name}: {rate:,.0f} a second on {options.threads} threads (fastest of {ROUNDS})")
    print(f"largest resident set of a sweep: {memory / 1024:,.0f} MiB")
    if not options.calculon:
        print("skipped: without --calculon there is no peer to compare with")
        return 0
    print(f"Calculon: {max(theirs):,.0f} a second; one stage / Calculon: {best['one stage'][0] / max(theirs):,.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

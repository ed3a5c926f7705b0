#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The CPU executor against PyTorch: the same decoder in fp32, one thread each, in turns.

    tests/bench/against_pytorch.py [--tidemark build/tidemark] [--python PYTHON-WITH-TORCH] [--rounds 5]

Prints the fastest step of each and one ratio: PyTorch's time over ours, 1.00 where both are as fast, more where we are
faster. Without torch it says so and exits with 77, as a skipped test does.

The decoder is Llama's: RMSNorm before attention and SwiGLU, rotary embedding in halves, packed projections of q, k, v
and of gate and up, tied embeddings, mean cross-entropy, gradients of the microbatches added up, AdamW. PyTorch gets the
fastest operators it has for each on a CPU: rms_norm, scaled_dot_product_attention and the fused AdamW.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

SHAPE = {"layers": 3, "hidden": 192, "ffn": 768, "heads": 4, "vocabulary": 1536, "sequence": 128, "batch": 8,
         "microbatches": 2}  # that of tests/jobs/demo-small.yaml
STEPS = 6  # a round of each; the first ones warm caches

JOB = """
network: {{layers: {layers}, hidden: {hidden}, ffn: {ffn}, heads: {heads}, kv_heads: {heads}, vocabulary: {vocabulary},
          tied_embeddings: true}}
machine: cpu
sequence_length: {sequence}
micro_batch_size: {batch}
accumulation_steps: {microbatches}
layout: {{dp: 1}}
strategy: single-backward
packing: {{qkv: packed, gate_up: packed}}
precision: {{params: fp32, gradients: fp32, reduce: fp32, accumulate: fp32, optimizer: fp32}}
"""


def torch_steps(shape, steps):
    """Seconds of each step. Runs in the interpreter that has torch."""
    import time

    import torch
    from torch import nn
    from torch.nn import functional

    torch.set_num_threads(1)
    hidden, heads, sequence = shape["hidden"], shape["heads"], shape["sequence"]
    half = hidden // heads // 2
    angles = torch.outer(torch.arange(sequence), 10000.0 ** (-torch.arange(half) / half))
    cosines, sines = angles.cos()[:, None, :], angles.sin()[:, None, :]

    def turn(x):
        low, high = x[..., :half], x[..., half:]
        return torch.cat((low * cosines - high * sines, high * cosines + low * sines), dim=-1)

    def linear(into, out):
        return nn.Linear(into, out, bias=False)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.RMSNorm(hidden, eps=1e-5), nn.RMSNorm(hidden, eps=1e-5)
            self.qkv, self.wo = linear(hidden, 3 * hidden), linear(hidden, hidden)
            self.gate_up, self.down = linear(hidden, 2 * shape["ffn"]), linear(shape["ffn"], hidden)

        def forward(self, x):
            q, k, v = self.qkv(self.norm1(x)).view(*x.shape[:2], 3, heads, 2 * half).unbind(2)
            q, k, v = (part.transpose(1, 2) for part in (turn(q), turn(k), v))
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.wo(mixed.transpose(1, 2).reshape(x.shape))
            gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
            return x + self.down(functional.silu(gate) * up)

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(shape["vocabulary"], hidden)
            self.layers = nn.ModuleList(Layer() for _ in range(shape["layers"]))
            self.norm, self.head = nn.RMSNorm(hidden, eps=1e-5), linear(hidden, shape["vocabulary"])
            self.head.weight = self.table.weight

        def forward(self, tokens):
            x = self.table(tokens)
            for layer in self.layers:
                x = layer(x)
            return self.head(self.norm(x))

    torch.manual_seed(0)
    model = Decoder()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    seconds = []
    for _ in range(steps):
        batches = [torch.randint(shape["vocabulary"], (2, shape["batch"], sequence))
                   for _ in range(shape["microbatches"])]
        start = time.perf_counter()
        optimizer.zero_grad()
        for tokens, labels in batches:
            logits = model(tokens)
            loss = functional.cross_entropy(logits.view(-1, shape["vocabulary"]), labels.view(-1))
            (loss / shape["microbatches"]).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    return seconds


def tidemark_steps(program, job, steps):
    output = subprocess.run([program, "run", job, "--steps", str(steps), "--format", "json"], capture_output=True,
                            text=True, check=True).stdout
    return [step["step_ns"] * 1e-9 for step in json.loads(output)["steps"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--tidemark", default=str(root / "build/tidemark"))
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has torch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--torch-steps", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.torch_steps:
        print(json.dumps(torch_steps(json.loads(options.torch_steps), STEPS)))
        return 0
    if subprocess.run([options.python, "-c", "import torch"], capture_output=True, check=False).returncode != 0:
        print(f"skipped: {options.python} has no torch; give another interpreter with --python")
        return 77
    ours, theirs = [], []
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as job:
        job.write(JOB.format(**SHAPE))
        job.flush()
        for _ in range(options.rounds):
            ours += tidemark_steps(options.tidemark, job.name, STEPS)
            output = subprocess.run([options.python, __file__, "--torch-steps", json.dumps(SHAPE)],
                                    capture_output=True, text=True, check=True).stdout
            theirs += json.loads(output)
    print(f"tidemark {min(ours) * 1e3:.1f} ms, PyTorch {min(theirs) * 1e3:.1f} ms a step (fastest of {len(ours)})")
    print(f"ratio {min(theirs) / min(ours):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records optimizer steps of a small residual network on the CPU: a network that Tidemark has no model of.

Nothing but the passes, the optimizer and zero_grad is annotated; Kineto writes the trace. Prints what was done and the
peak that the profiler measured.
usage: torch_cpu_resnet.py MICROBATCHES out.json.gz
"""
import gzip
import json
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile, record_function

BATCH, STEPS, WIDTHS, BLOCKS = 8, 2, (16, 32, 64), 2


class Block(nn.Module):
    """Two 3 x 3 convolutions and a shortcut (He et al. 2015)."""

    def __init__(self, inner, outer, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outer), nn.BatchNorm2d(outer)
        self.shortcut = nn.Identity()
        if inner != outer:
            self.shortcut = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def network():
    layers, inner = [nn.Conv2d(3, WIDTHS[0], 3, 1, 1, bias=False), nn.BatchNorm2d(WIDTHS[0]), nn.ReLU()], WIDTHS[0]
    for stage, width in enumerate(WIDTHS):
        for block in range(BLOCKS):
            layers.append(Block(inner, width, 2 if stage > 0 and block == 0 else 1))
            inner = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 10))


def train(microbatches):
    with record_function("build"):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    for step in range(STEPS):
        with record_function(f"step {step}"):
            for index in range(microbatches):
                images, labels = torch.randn(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))
                with record_function(f"microbatch {index} forward"):
                    loss = F.cross_entropy(model(images), labels) / microbatches
                with record_function(f"microbatch {index} backward"):
                    loss.backward()
            with record_function("optimizer"):
                optimizer.step()
            with record_function("zero_grad"):
                optimizer.zero_grad(set_to_none=True)
    return model, optimizer


def main(microbatches, out):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        model, _ = train(microbatches)
    recorded.export_chrome_trace(out)
    with gzip.open(out) as packed:
        events = json.load(packed)["traceEvents"]
    parameters = sum(p.numel() for p in model.parameters())
    peak = max(event["args"]["Total Allocated"] for event in events if event["name"] == "[memory]")
    print(json.dumps({"torch": torch.__version__, "microbatches": microbatches, "events": len(events),
                      "parameters": parameters, "peak_bytes": peak}))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])

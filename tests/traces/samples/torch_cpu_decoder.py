#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes torch-1.13-cpu-decoder.json.gz: two optimizer steps of a tiny bf16-free decoder on CPU, four accumulated microbatches each.

The profiler's own event tree (operators and allocations with address, signed bytes, running total) is written in the layout of a
Kineto Chrome trace, because Debian's build of PyTorch has no Kineto. Also prints the peak and cross-checks the running total.
usage: python3 torch_cpu_decoder.py [out.json.gz]
"""
import gzip, json, sys
import torch, torch.nn as nn, torch.nn.functional as F
from torch.profiler import profile, record_function, ProfilerActivity

LAYERS, H, HEADS, FF, V, SEQ, BATCH, M, STEPS = 2, 64, 4, 176, 512, 64, 2, 4, 2


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(H))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = Norm(), Norm()
        self.wqkv, self.wo = nn.Linear(H, 3 * H, bias=False), nn.Linear(H, H, bias=False)
        self.wgu, self.wd = nn.Linear(H, 2 * FF, bias=False), nn.Linear(FF, H, bias=False)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = self.wqkv(self.norm1(x)).view(b, s, 3, HEADS, H // HEADS).permute(2, 0, 3, 1, 4)
        p = torch.softmax(q @ k.transpose(-1, -2) / (H // HEADS) ** 0.5, -1)
        x = x + self.wo((p @ v).transpose(1, 2).reshape(b, s, H))
        g, u = self.wgu(self.norm2(x)).chunk(2, -1)
        return x + self.wd(F.silu(g) * u)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layers = nn.Embedding(V, H), nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = Norm(), nn.Linear(H, V, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for i, l in enumerate(self.layers):
            with record_function(f"layer {i}"):
                x = l(x)
        return self.head(self.norm(x))


def train():
    with record_function("build"):
        m = Decoder()
        opt = torch.optim.AdamW(m.parameters(), lr=1e-3, foreach=False)
    for step in range(STEPS):
        with record_function(f"step {step}"):
            for mb in range(M):
                ids = torch.randint(0, V, (BATCH, SEQ))
                with record_function(f"microbatch {mb} forward"):
                    loss = F.cross_entropy(m(ids).flatten(0, 1), ids.flatten()) / M
                with record_function(f"microbatch {mb} backward"):
                    loss.backward()
                del loss
            with record_function("optimizer"):
                opt.step()
            with record_function("zero_grad"):
                opt.zero_grad(set_to_none=True)
    return m, opt


def main(out):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as p:
        m, opt = train()
    roots = p.profiler.kineto_results.experimental_event_tree()
    flat, stack = [], list(roots)
    while stack:
        n = stack.pop()
        flat.append(n)
        stack.extend(n.children)
    flat.sort(key=lambda n: n.start_time_ns)
    t0 = flat[0].start_time_ns
    us = lambda ns: round((ns - t0) / 1000, 3)
    rows, peak, total = [], (0, 0), 0
    for i, n in enumerate(flat):
        f = n.extra_fields
        if n.name == "[memory]":
            total += f.alloc_size
            assert total == f.total_allocated, (i, total, f.total_allocated)
            peak = max(peak, (total, -n.start_time_ns))
            rows.append({"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": n.name, "pid": 1, "tid": 1, "ts": us(n.start_time_ns), "args": {
                "Device Type": 0, "Device Id": -1, "Addr": f.ptr, "Bytes": f.alloc_size, "Total Allocated": f.total_allocated, "Total Reserved": f.total_reserved, "Ev Idx": i}})
        else:
            mark = n.name.startswith(("build", "layer", "step", "microbatch", "optimizer", "zero_grad"))
            rows.append({"ph": "X", "cat": "user_annotation" if mark else "cpu_op", "name": n.name, "pid": 1, "tid": 1, "ts": us(n.start_time_ns),
                         "dur": round((n.end_time_ns - n.start_time_ns) / 1000, 3), "args": {"Ev Idx": i}})
    at = -peak[1]
    inside = [n.name for n in flat if n.name != "[memory]" and n.start_time_ns <= at <= n.end_time_ns]
    head = {"schemaVersion": 1, "deviceProperties": [], "profile_memory": 1, "record_shapes": 0, "with_stack": 0,
            "tidemark_exporter": "torch_cpu_decoder.py: event tree of torch.profiler, torch " + torch.__version__}
    with gzip.GzipFile(out, "wb", mtime=0) as z:
        z.write(json.dumps({**head, "traceEvents": rows}, separators=(",", ":")).encode())
    params = sum(q.numel() for q in m.parameters()) * 4
    print(json.dumps({"events": len(rows), "memory_events": sum(r["name"] == "[memory]" for r in rows), "parameter_bytes": params,
                      "peak_bytes": peak[0], "peak_ts_us": us(at), "peak_inside": inside, "end_bytes": total}))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "torch-1.13-cpu-decoder.json.gz")

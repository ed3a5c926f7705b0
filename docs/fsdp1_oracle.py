#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Allocations of FSDP1 for one step, listed event by event from the order that docs/fsdp1.md describes.

Independent of the simulator: no code or table of it is used. Prints the numbers that docs/fsdp1.md and
tests/sim/strategy_fsdp1_test.cc quote. Standard library only.
"""

H, F, V, KV, LAYERS = 1024, 2816, 32000, 256, 4
LAYER = 2 * H + 2 * H * H + 2 * H * KV + 2 * F * H + F * H
ROOT = [V * H, V * H + H]  # embedding | final norm and head
ADAM, MASTER, PARAM, GRAD, REDUCE = 8, 4, 2, 2, 4


class Book:
    def __init__(self):
        self.live, self.peak, self.at = {}, 0, ""

    def alloc(self, name, size, when):
        assert name not in self.live, name
        self.live[name] = size
        if sum(self.live.values()) > self.peak:
            self.peak, self.at = sum(self.live.values()), when

    def free(self, name):
        del self.live[name]

    def total(self, *kinds):
        return sum(size for name, size in self.live.items() if not kinds or name[0] in kinds)


def up(elements, step):
    return -(-elements // step) * step


def step(n=4, m=4, no_sync=False, grad_op=False, prefetch="pre", replicas=1, layers=LAYERS):
    shards = n // replicas
    units = {"root": sum(ROOT), **{i: LAYER for i in range(layers)}}
    book, traffic, between, calls = Book(), {"AG": 0, "RS": 0, "AR": 0}, [], []

    def part(u):
        return up(units[u], shards) // shards

    for u in units:
        book.alloc(("shard", u), part(u) * MASTER, "start")
        book.alloc(("adam", u), part(u) * ADAM, "start")

    def unshard(u, when):
        if ("full", u) in book.live:
            return
        book.alloc(("cast", u), part(u) * PARAM, when)
        book.alloc(("full", u), part(u) * shards * PARAM, when)
        book.free(("cast", u))
        traffic["AG"] += part(u) * shards * PARAM
        calls[-1]["AG"] += 1

    def finish(u, parts, sync, when):
        if ("flat", u) in book.live:
            book.alloc(("new", u), units[u] * GRAD, when)
            for p in parts:
                book.free(p)
            book.free(("new", u))
        else:
            book.alloc(("flat", u), units[u] * GRAD, when)
            for p in parts:
                book.free(p)
        if sync or not grad_op:
            book.free(("full", u))
        if prefetch == "post" and u != "root" and u > 0:
            unshard(u - 1, when + " prefetch")
        if not sync:
            return
        book.alloc(("fp32", u), units[u] * REDUCE, when)
        if units[u] % shards:
            book.alloc(("pad", u), part(u) * shards * REDUCE, when)
        again = ("sharded", u) in book.live
        book.alloc(("out" if again else "sharded", u), part(u) * REDUCE, when)
        traffic["RS"] += part(u) * shards * REDUCE
        calls[-1]["RS"] += 1
        traffic["AR"] += part(u) * REDUCE if replicas > 1 else 0
        if again:
            book.free(("out", u))
        book.free(("fp32", u))
        if units[u] % shards:
            book.free(("pad", u))
        book.free(("flat", u))

    for mb in range(m):
        sync = not no_sync or mb == m - 1
        calls.append({"AG": 0, "RS": 0})
        unshard("root", f"mb{mb} forward root")
        for i in range(layers):
            unshard(i, f"mb{mb} forward {i}")
            if not grad_op:
                book.free(("full", i))
        if prefetch == "pre":
            unshard(layers - 1, f"mb{mb} backward root")
        book.alloc(("grad", "head"), ROOT[1] * GRAD, f"mb{mb} backward head")
        for i in reversed(range(layers)):
            unshard(i, f"mb{mb} backward {i}")
            if prefetch == "pre" and i > 0:
                unshard(i - 1, f"mb{mb} backward {i} prefetch")
            book.alloc(("grad", i), units[i] * GRAD, f"mb{mb} backward {i}")
            finish(i, [("grad", i)], sync, f"mb{mb} behind backward {i}")
        book.alloc(("grad", "embedding"), ROOT[0] * GRAD, f"mb{mb} backward embedding")
        finish("root", [("grad", "head"), ("grad", "embedding")], sync, f"mb{mb} behind backward root")
        between.append({"gradients": book.total("flat", "sharded"), "full": book.total("full"), "all": book.total()})
    wire = (traffic["AG"] + traffic["RS"]) * (shards - 1) // shards + 2 * traffic["AR"] * (replicas - 1) // replicas
    return {"peak": book.peak, "at": book.at, "end": book.total(), "traffic": traffic, "wire": wire,
            "between": between, "calls": calls}


def show(title, **settings):
    got = step(**settings)
    print(f"{title}: peak {got['peak']} at {got['at']}; end {got['end']}; {got['traffic']}; wire {got['wire']}")
    print("   gathers and scatters a microbatch", [(c["AG"], c["RS"]) for c in got["calls"]])
    print("   behind each microbatch", got["between"])


if __name__ == "__main__":
    print("root", sum(ROOT), "layer", LAYER, "P", sum(ROOT) + LAYERS * LAYER)
    show("FULL_SHARD", m=4)
    show("FULL_SHARD, M=1", m=1)
    show("FULL_SHARD, no_sync", m=4, no_sync=True)
    show("SHARD_GRAD_OP", m=4, grad_op=True)
    show("SHARD_GRAD_OP, no_sync", m=4, grad_op=True, no_sync=True)
    show("FULL_SHARD, prefetch post", m=4, prefetch="post")
    show("FULL_SHARD, no prefetch", m=4, prefetch="none")
    show("HYBRID_SHARD, R=2", m=4, replicas=2)
    show("HYBRID_SHARD, R=2, no_sync", m=4, replicas=2, no_sync=True)
    show("FULL_SHARD, N=3", m=4, n=3)
    show("twelve layers, FULL_SHARD, no_sync", m=4, no_sync=True, layers=12)
    show("twelve layers, SHARD_GRAD_OP, no_sync", m=4, grad_op=True, no_sync=True, layers=12)
    show("two blocks, N=2, M=3, FULL_SHARD", n=2, m=3, layers=2)
    show("two blocks, N=2, M=3, FULL_SHARD no_sync", n=2, m=3, layers=2, no_sync=True)
    show("two blocks, N=2, M=3, SHARD_GRAD_OP", n=2, m=3, layers=2, grad_op=True)
    show("two blocks, N=2, M=3, SHARD_GRAD_OP no_sync", n=2, m=3, layers=2, grad_op=True, no_sync=True)

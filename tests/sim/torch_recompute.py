#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What PyTorch keeps of a layer between its passes, under torchtitan's policy of recomputation: bytes, without weights.

    python3 tests/sim/torch_recompute.py

Needs PyTorch (2.15 on a processor gave the numbers in recompute_test.cc); no test runs it. A dispatch mode counts the
storages that are alive. The layer is that of recompute_test.cc, Llama's with two tensors for gate and up: two sequences of
2,048 tokens, hidden 1,024, feed-forward 2,816, 16 heads, 4 for keys."""

import collections
import gc
import weakref

import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

BATCH, SEQUENCE, HIDDEN, FFN, HEADS, KV_HEADS = 2, 2048, 1024, 2816, 16, 4
MM = torch.ops.aten.mm.default
# torchtitan/models/llama3/infra/parallelize.py, _op_sac_save_list, and attention's kernel on a processor.
SAVED = {MM, torch.ops.aten._scaled_dot_product_flash_attention.default,
         torch.ops.aten._scaled_dot_product_efficient_attention.default,
         torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default}


class Rotation(torch.autograd.Function):
    """Makes a tensor and keeps none, as rotary embedding does."""

    @staticmethod
    def forward(_, tensor):
        return tensor * 1.0

    @staticmethod
    def backward(_, gradient):
        return gradient * 1.0


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        head = HIDDEN // HEADS
        self.norms = nn.ModuleList(nn.RMSNorm(HIDDEN) for _ in range(2))
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(HIDDEN, width, bias=False)
                                              for width in (HIDDEN, KV_HEADS * head, KV_HEADS * head, HIDDEN))
        self.w1, self.w3 = (nn.Linear(HIDDEN, FFN, bias=False) for _ in range(2))
        self.w2 = nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x):
        y = self.norms[0](x)
        q, k, v = self.wq(y), self.wk(y), self.wv(y)
        q, k, v = (part.view(BATCH, SEQUENCE, -1, HIDDEN // HEADS).transpose(1, 2)
                   for part in (Rotation.apply(q), Rotation.apply(k), v))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.wo(attended.transpose(1, 2).reshape(BATCH, SEQUENCE, HIDDEN))
        y = self.norms[1](x)
        return x + self.w2(functional.silu(self.w1(y)) * self.w3(y))


class Alive(TorchDispatchMode):
    """Bytes of storages that operations have made or touched and that are still there."""

    def __init__(self):
        super().__init__()
        self.sizes = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        def see(value):
            if isinstance(value, torch.Tensor):
                storage = value.untyped_storage()
                if storage._cdata not in self.sizes:
                    self.sizes[storage._cdata] = storage.nbytes()
                    weakref.finalize(storage, self.sizes.pop, storage._cdata, None)

        out = func(*args, **(kwargs or {}))
        tree_map(see, out)
        return out


def per_op():
    """torchtitan/distributed/activation_checkpoint.py, _apply_op_sac."""
    products = collections.Counter()

    def policy(context, func, *_, **__):
        products[context.is_recompute] += func == MM
        kept = func in SAVED and not (func == MM and products[context.is_recompute] % 2 == 0)
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def kept(layers, run):
    stack = nn.ModuleList(Layer() for _ in range(layers)).to(torch.bfloat16)
    with Alive() as alive:
        y = torch.randn(BATCH, SEQUENCE, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
        for layer in stack:
            y = run(layer, y)
        gc.collect()
        total = sum(alive.sizes.values())
        y.sum().backward()
    return total


def main():
    weights = sum(parameter.numel() for name, parameter in Layer().named_parameters() if not name.startswith("norms")) * 2
    ways = {"full": lambda layer, y: checkpoint(layer, y, use_reentrant=False, early_stop=False),
            "per_op": lambda layer, y: checkpoint(layer, y, use_reentrant=False, early_stop=False, context_fn=per_op)}
    for name, run in ways.items():
        print(f"{name}: {kept(3, run) - kept(2, run) - weights:,} bytes a layer")


if __name__ == "__main__":
    main()

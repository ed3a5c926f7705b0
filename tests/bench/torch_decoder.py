# SPDX-License-Identifier: Apache-2.0
"""Llama's decoder in PyTorch, as its users would write it: RMSNorm before attention and SwiGLU, rotary embedding in
halves, packed projections of q, k, v and of gate and up, tied embeddings, mean cross-entropy of logits in fp32.
"""

import dataclasses

import torch
from torch import nn
from torch.nn import functional


@dataclasses.dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    vocabulary: int
    sequence: int
    batch: int
    microbatches: int


def linear(into, out):
    return nn.Linear(into, out, bias=False)


class Layer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.head_size = shape.hidden // shape.heads
        narrow = shape.kv_heads * self.head_size
        self.parts = (shape.hidden, narrow, narrow)
        self.norm1, self.norm2 = (nn.RMSNorm(shape.hidden, eps=1e-5) for _ in range(2))
        self.qkv, self.wo = linear(shape.hidden, sum(self.parts)), linear(shape.hidden, shape.hidden)
        self.gate_up, self.down = linear(shape.hidden, 2 * shape.ffn), linear(shape.ffn, shape.hidden)

    def forward(self, x, cosines, sines):
        q, k, v = (part.unflatten(-1, (-1, self.head_size)) for part in self.qkv(self.norm1(x)).split(self.parts, -1))
        q, k, v = (part.transpose(1, 2) for part in (turned(q, cosines, sines), turned(k, cosines, sines), v))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
        x = x + self.wo(mixed.transpose(1, 2).reshape(x.shape))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate) * up)


def turned(x, cosines, sines):
    low, high = x.chunk(2, dim=-1)
    return torch.cat((low * cosines - high * sines, high * cosines + low * sines), dim=-1)


class Decoder(nn.Module):
    """`forward` returns the loss."""

    def __init__(self, shape):
        super().__init__()
        self.table = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm, self.head = nn.RMSNorm(shape.hidden, eps=1e-5), linear(shape.hidden, shape.vocabulary)
        self.head.weight = self.table.weight
        half = shape.hidden // shape.heads // 2
        angles = torch.outer(torch.arange(shape.sequence), 10000.0 ** (-torch.arange(half) / half))
        self.register_buffer("cosines", angles.cos()[:, None, :])
        self.register_buffer("sines", angles.sin()[:, None, :])
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, labels):
        x = self.table(tokens)
        for layer in self.layers:
            x = layer(x, self.cosines, self.sines)
        return functional.cross_entropy(self.head(self.norm(x)).float().flatten(0, 1), labels.flatten())


class Training:
    """Steps of a decoder on one device with AdamW, gradients of the microbatches added up."""

    def __init__(self, shape, device, dtype, compiled):
        torch.manual_seed(0)
        self.shape, self.device = shape, torch.device(device)
        with self.device:
            self.model = Decoder(shape).to(dtype)
        self.loss = torch.compile(self.model) if compiled else self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)

    def batches(self):
        shape = self.shape
        return [torch.randint(shape.vocabulary, (2, shape.batch, shape.sequence), device=self.device)
                for _ in range(shape.microbatches)]

    def step(self, batches):
        self.optimizer.zero_grad()
        for tokens, labels in batches:
            (self.loss(tokens, labels) / self.shape.microbatches).backward()
        self.optimizer.step()

    def wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

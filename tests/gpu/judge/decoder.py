# SPDX-License-Identifier: Apache-2.0
"""The decoder that Tidemark predicts, in PyTorch: RMSNorm, rotary embedding, flash attention with fewer heads for keys
and values, SwiGLU with gate and up in one weight, an untied head and cross-entropy of logits in fp32.

The forward pass returns the loss, so that nobody holds logits.
"""

import torch
from torch import nn
from torch.nn import functional

EPSILON = 1e-5


def linear(into, out, **where):
    return nn.Linear(into, out, bias=False, **where)


class Norm(nn.Module):
    """`kernel` takes a tensor and a weight."""

    def __init__(self, width, kernel, **where):
        super().__init__()
        self.kernel = kernel
        self.weight = nn.Parameter(torch.ones(width, **where))

    def forward(self, x):
        return self.kernel(x, self.weight)


def fused_norm(x, weight):
    return functional.rms_norm(x, weight.shape, weight, EPSILON)


def turned(x, cosine, sine, sign):
    """Rotates pairs of the two halves of each head; one new tensor, no temporaries."""
    out = torch.empty_like(x)
    low, high = x.chunk(2, dim=-1)
    new_low, new_high = out.chunk(2, dim=-1)
    torch.mul(low, cosine, out=new_low).addcmul_(high, sine, value=-sign)
    torch.mul(high, cosine, out=new_high).addcmul_(low, sine, value=sign)
    return out


class Turn(torch.autograd.Function):
    """Rotary embedding, which keeps nothing but its tables for the backward pass."""

    @staticmethod
    def forward(ctx, x, cosine, sine):
        ctx.tables = cosine, sine
        return turned(x, cosine, sine, 1)

    @staticmethod
    def backward(ctx, gradient):
        return turned(gradient, *ctx.tables, -1), None, None


class Layer(nn.Module):
    def __init__(self, shape, norm, **where):
        super().__init__()
        self.shape = shape
        narrow = shape.kv_heads * shape.head_size
        self.norm1 = Norm(shape.hidden, norm, **where)
        self.wq = linear(shape.hidden, shape.hidden, **where)
        self.wk = linear(shape.hidden, narrow, **where)
        self.wv = linear(shape.hidden, narrow, **where)
        self.wo = linear(shape.hidden, shape.hidden, **where)
        self.norm2 = Norm(shape.hidden, norm, **where)
        self.gate_up = linear(shape.hidden, 2 * shape.ffn, **where)
        self.down = linear(shape.ffn, shape.hidden, **where)

    def forward(self, x, cosine, sine):
        x = x + self.attention(self.norm1(x), cosine, sine)
        return x + self.feed_forward(self.norm2(x))

    def attention(self, x, cosine, sine):
        heads = (*x.shape[:2], -1, self.shape.head_size)
        q = Turn.apply(self.wq(x).view(heads), cosine, sine)
        k = Turn.apply(self.wk(x).view(heads), cosine, sine)
        v = self.wv(x).view(heads)
        # What scaled_dot_product_attention(enable_gqa=True) comes to with the flash backend, whoever is asked first.
        mixed = torch.ops.aten._scaled_dot_product_flash_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), 0.0, True)[0]
        return self.wo(mixed.transpose(1, 2).reshape(x.shape))

    def feed_forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(functional.silu(gate) * up)


class Decoder(nn.Module):
    def __init__(self, shape, tables, norm=fused_norm, **where):
        super().__init__()
        self.tables = tables  # no buffers: DDP would broadcast them
        self.embedding = nn.Embedding(shape.vocabulary, shape.hidden, **where)
        self.layers = nn.ModuleList(Layer(shape, norm, **where) for _ in range(shape.layers))
        self.norm = Norm(shape.hidden, norm, **where)
        self.head = linear(shape.hidden, shape.vocabulary, **where)

    def forward(self, tokens, labels):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, *self.tables)
        return functional.cross_entropy(self.head(self.norm(x)).float().flatten(0, 1), labels.flatten())


def rotary_tables(shape, device):
    """Cosines and sines in bf16, of a shape that fits batch, sequence, heads and half a head."""
    half = shape.head_size // 2
    angles = torch.outer(torch.arange(shape.sequence), 10000.0 ** (-torch.arange(half) / half))
    return tuple(table.to(torch.bfloat16).to(device)[None, :, None, :] for table in (angles.cos(), angles.sin()))

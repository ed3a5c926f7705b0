# SPDX-License-Identifier: Apache-2.0
"""What is judged: a network's shape, a strategy, ranks and microbatches; and the Tidemark job that says the same."""

import dataclasses
import fnmatch

HSDP_REPLICAS = 2
STEPS = 3  # first, second and steady step


@dataclasses.dataclass(frozen=True)
class Shape:
    name: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    vocabulary: int
    sequence: int = 2048
    batch: int = 2

    @property
    def head_size(self):
        return self.hidden // self.heads


# The network of tests/jobs/oracle.yaml, and one of a billion parameters (that of models/zoo/tinyllama-1.1b.json).
ORACLE = Shape("oracle", layers=4, hidden=1024, ffn=2816, heads=16, kv_heads=4, vocabulary=32000)
BILLION = Shape("1b", layers=22, hidden=2048, ffn=5632, heads=32, kv_heads=4, vocabulary=32000)


@dataclasses.dataclass(frozen=True)
class Case:
    shape: Shape
    strategy: str
    ranks: int
    microbatches: int
    bucket_view: bool = False  # DDP's gradient_as_bucket_view
    set_to_none: bool = True  # zero_grad's
    offload: bool = False  # FSDP2's CPUOffloadPolicy

    @property
    def name(self):
        variant = ("-view" if self.bucket_view else "") + ("" if self.set_to_none else "-in-place")
        variant += "-offload" if self.offload else ""
        return f"{self.shape.name}-{self.strategy}{variant}-n{self.ranks}-m{self.microbatches}"

    @property
    def awaits_a_gpu(self):
        """No GPU has a record of it yet."""
        return self.offload or (not self.is_ddp and not self.set_to_none)

    @property
    def is_ddp(self):
        return self.strategy.startswith("ddp-")

    def job(self):
        """The same as Tidemark's job. A gated activation is not fused: PyTorch runs silu and the product apart. Nor is
        rotary embedding, which makes new tensors."""
        shape = self.shape
        lines = [
            f"network: {{name: {shape.name}, layers: {shape.layers}, hidden: {shape.hidden}, ffn: {shape.ffn}, "
            f"heads: {shape.heads}, kv_heads: {shape.kv_heads}, vocabulary: {shape.vocabulary}}}",
            "machine: h100-sxm-80gb",
            f"sequence_length: {shape.sequence}",
            f"micro_batch_size: {shape.batch}",
            f"accumulation_steps: {self.microbatches}",
            f"layout: {{dp: {self.ranks}}}",
            f"strategy: {self.strategy}",
            "packing: {qkv: separate, gate_up: packed}",
            f"buffers: {{fused_glu: false, fused_rope: false{self._gradient_buffers()}}}",
        ]
        if self.offload:
            lines.append("optimizer_step: {offload: true}")
        if self.strategy == "hsdp":
            lines.append(f"shard: {{replicas: {HSDP_REPLICAS}}}")
        return "\n".join(lines) + "\n"

    def _gradient_buffers(self):
        if self.strategy.startswith("fsdp1"):
            return ""
        view = f", gradient_as_bucket_view: {_yaml(self.bucket_view)}" if self.is_ddp else ""
        return f"{view}, set_to_none: {_yaml(self.set_to_none)}"


def _yaml(truth):
    return "true" if truth else "false"


# (strategy, bucket_view, set_to_none, offload), those first that differ most.
VARIANTS = (
    ("fsdp2-scatter-each", False, True, False),
    ("ddp-last", False, True, False),
    ("fsdp2-defer", False, True, False),
    ("fsdp1", False, True, False),
    ("fsdp1-no-sync", False, True, False),
    ("hsdp", False, True, False),
    ("fsdp2-keep-after-backward", False, True, False),
    ("fsdp2-keep-all", False, True, False),
    ("ddp-last", True, True, False),
    ("ddp-last", True, False, False),
    ("ddp-every", False, True, False),
    ("ddp-every", True, True, False),
    ("ddp-every", True, False, False),
    ("ddp-forward-outside", False, True, False),
    ("fsdp2-scatter-each", False, False, False),
    ("hsdp", False, False, False),
    ("fsdp2-scatter-each", False, True, True),
    ("fsdp2-defer", False, True, True),
    ("hsdp", False, True, True),
    ("fsdp2-scatter-each", False, False, True),
)

# (shape, ranks, microbatches), in order of value: a run that is cut short has measured the first.
SIZES = (
    (ORACLE, 4, 4),
    (ORACLE, 4, 1),
    (BILLION, 4, 4),
    (ORACLE, 8, 4),
    (ORACLE, 4, 2),
    (BILLION, 4, 1),
    (BILLION, 4, 2),
    (ORACLE, 8, 1),
    (ORACLE, 8, 2),
)


def cases(pattern="*"):
    """Every case whose name fits the shell pattern, in order of value."""
    found = [Case(shape, strategy, ranks, microbatches, *variant)
             for shape, ranks, microbatches in SIZES for strategy, *variant in VARIANTS]
    return [case for case in found if fnmatch.fnmatchcase(case.name, pattern)]

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program of every mechanism, as text, for a network of a few one-weight blocks: tests/golden/<name>.program.

Not what is right (the worked numbers and the verifier say that), but what a change changes: a diff here is read by eye.
To renew them: TIDEMARK_RENEW=1 TIDEMARK_PROGRAM=build/tidemark python3 tests/cli/golden_test.py
"""

import os
import pathlib
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
# One of each mechanism, and the others where their axes write something else.
STRATEGIES = {
    "ddp-last": [],
    "ddp-every": [],
    "ddp-forward-outside": [],
    "single-backward": [],
    "fsdp1": [],
    "fsdp1-no-sync": [],
    "fsdp2-scatter-each": [],
    "fsdp2-defer": [],
    "fsdp2-keep-after-backward": [],
    "fsdp2-keep-all": [],
    "hsdp": ["shard.replicas=2"],
    "colossalai-ddp": [],
    "colossalai-zero1": ["sync.bucket_elements=10000"],
    "colossalai-zero2": ["sync.bucket_elements=10000"],
    "colossalai-gemini": ["shard.chunk_elements=20480"],
    "deepspeed-zero0": [],
    "deepspeed-zero1": ["sync.bucket_elements=20000"],
    "deepspeed-zero2": ["sync.bucket_elements=20000"],
    "deepspeed-bf16": [],
    "deepspeed-coalesce": ["sync.bucket_elements=20000"],
    "deepspeed-zero3": ["sync.bucket_elements=20000", "shard.reuse_distance=0"],
    "nanotron": [],
    "megatron": ["sync.bucket_elements=20000", "buffers.fused_accumulation=false"],
    "megatron-dist-opt": ["sync.bucket_elements=20000"],
    "alpa": [],
    "alpa-style1": [],
    "alpa-style2": [],
    "alpa-zero2": [],
    "jax-multisteps": [],
    "jax-scan": [],
    "jax-scan-stacked": [],
}


# On two encoders of three blocks each, in two chunks, instead.
CONTRASTIVE = {
    "gradcache": [],
}


# What one layer of attention does over three ranks that share each sequence.
SHARED = {
    "context-parallel": ["layout.cp=3", "sequence_length=24", "network.attention_kernel=flash"],
}


# What one layer does again, by policy.
RECOMPUTED = {
    "recompute-full": ["recompute.policy=full"],
    "recompute-selective": ["recompute.policy=selective", "recompute.norm=true", "recompute.activation=true"],
}


# With the optimizer in host memory.
OFFLOADED = {
    "offload-deepspeed-zero2": ["strategy=deepspeed-zero2", "sync.bucket_elements=20000"],
    "offload-fsdp2": ["strategy=fsdp2-scatter-each"],
    "offload-deepspeed-zero3": ["strategy=deepspeed-zero3", "sync.bucket_elements=20000", "shard.reuse_distance=0"],
}


class Golden(unittest.TestCase):
    def test_programs_are_those_that_were_read(self):
        rows = [("job.yaml", name, [f"strategy={name}", *settings]) for name, settings in STRATEGIES.items()]
        rows += [("dual_encoder.yaml", name, [f"strategy={name}", *settings]) for name, settings in CONTRASTIVE.items()]
        rows += [("decoder.yaml", *row) for row in {**RECOMPUTED, **SHARED}.items()]
        rows += [("job.yaml", name, [*settings, "optimizer_step.offload=true"]) for name, settings in OFFLOADED.items()]
        for job, name, settings in rows:
            arguments = [f"--set={setting}" for setting in settings]
            run = subprocess.run([os.environ["TIDEMARK_PROGRAM"], "program", str(GOLDEN / job), *arguments],
                                 check=False, capture_output=True, text=True)
            self.assertEqual(run.returncode, 0, run.stderr)
            path = GOLDEN / f"{name}.program"
            if os.environ.get("TIDEMARK_RENEW"):
                path.write_text(run.stdout, encoding="utf-8")
            self.assertMultiLineEqual(run.stdout, path.read_text(encoding="utf-8"), name)

    def test_every_golden_program_is_tested(self):
        self.assertEqual({path.stem for path in GOLDEN.glob("*.program")},
                         set(STRATEGIES) | set(CONTRASTIVE) | set(RECOMPUTED) | set(SHARED) | set(OFFLOADED))


if __name__ == "__main__":
    unittest.main()

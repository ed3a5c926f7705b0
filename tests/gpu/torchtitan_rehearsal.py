#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs torchtitan itself on fake tensors, without a GPU, and writes what it allocates into tests/cli/torchtitan_rehearsed.json.

    tests/gpu/torchtitan_rehearsal.py TORCHTITAN [--file FILE] [--case NAME] [--config CONFIG]

TORCHTITAN is a checkout of https://github.com/pytorch/torchtitan whose requirements are installed, PyTorch among them.
Each case of FILE is three steps of a config of torchtitan's (family.name) with the case's fields and its first `layers`
(all of them), as torchtitan's trainer runs them, on rank 0 of as many as the case has; its peak is that of the third
step. With --config one case's config is saved there as torchtitan saves it, and nothing runs. What is not torchtitan's:
flash attention and fused RMSNorm, which allocate what CUDA's do (judge/stand_in.py), casts that autocast would make,
tokens, which are empty, how many of them experts on other ranks are sent, which is as many each, and collectives, which
do nothing.
"""

import argparse
import gc
import importlib
import json
import pathlib
import subprocess
import sys

FILE = pathlib.Path(__file__).resolve().parents[1] / "cli" / "torchtitan_rehearsed.json"
STEPS = 3


def configured(case):
    """torchtitan's config of a case."""
    from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC

    family, name = case["config"].split(".")
    config = getattr(importlib.import_module(f"torchtitan.models.{family}.config_registry"), name)()
    for path, value in case["set"].items():
        section, field = path.split(".")
        setattr(getattr(config, section), field, value)
    layers = config.model_spec.model.layers
    del layers[case.get("layers", len(layers)):]
    policies = {"full": FullAC.Config(), "selective": SelectiveAC.Config(), "none": None}
    config.activation_checkpoint = policies[case["recompute"]]
    if case["loss"] == "dense":
        config.loss = config.loss.loss_fn
    return config


def ranks_of(config):
    parallelism = config.parallelism
    return parallelism.data_parallel_shard_degree * parallelism.tensor_parallel_degree


def mesh_of(config):
    from judge.session import begin_ranks
    from torchtitan.distributed import ParallelDims, parallel_dims, utils

    begin_ranks(ranks_of(config))
    parallel_dims.device_type = "cpu"
    dims = ParallelDims.from_config(config.parallelism, ranks_of(config))
    dims.build_mesh()
    utils.set_spmd_backend(config.parallelism.spmd_backend)
    return dims


def flash_attention(self, q_TNH, k_TNH, v_TNH, **options):
    import torch

    if q_TNH.shape[-1] != v_TNH.shape[-1]:
        return torch.ops.rehearsed.attention(q_TNH, k_TNH, v_TNH)[0]
    q, k, v = (each.unsqueeze(0).transpose(1, 2) for each in (q_TNH, k_TNH, v_TNH))
    mixed = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)[0]
    return mixed.transpose(1, 2).squeeze(0)


def define_attention():
    """The same for values that are narrower than keys, which aten's has not: rehearsed::attention."""
    import torch
    from torchtitan.distributed import activation_checkpoint

    def outputs(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return q.new_empty(*q.shape[:-1], v.shape[-1]), q.new_empty(q.shape[:-1], dtype=torch.float32)

    def keep(ctx, inputs, output):
        ctx.save_for_backward(*inputs, *output)

    def back(ctx, *gradients):
        q, k, v, *_ = ctx.saved_tensors
        return torch.empty_like(q), torch.empty_like(k), v.new_empty(v.shape)

    attend = torch.library.custom_op("rehearsed::attention", outputs, mutates_args=())
    attend.register_fake(outputs)
    attend.register_autograd(back, setup_context=keep)
    kept = activation_checkpoint._get_default_save_ops
    activation_checkpoint._get_default_save_ops = lambda: kept() | {torch.ops.rehearsed.attention.default}


class WideGate:
    """In place of autocast, which a CPU has none of in fp32: a router casts its gate's input and weight."""

    def __init__(self, *_, **__):
        pass

    def __enter__(self):
        import torch.nn.functional

        self.linear = torch.nn.functional.linear
        torch.nn.functional.linear = lambda x, weight, bias=None: self.linear(x.float(), weight.float(), bias)

    def __exit__(self, *_):
        import torch.nn.functional

        torch.nn.functional.linear = self.linear


def stand_in_for_kernels(tokens):
    """Of experts on several ranks each gets as many rows of a microbatch's `tokens`: what they tell each other is empty."""
    import torch.nn.functional
    from judge.stand_in import fused_norm
    from torchtitan.models.common.attention import FlexAttention
    from torchtitan.models.common.token_dispatcher import AllToAllTokenDispatcher
    from torchtitan.protocols.module import Module

    def even_rows(self, own_counts, counts, ranks):
        rows = [tokens * self.top_k // ranks] * ranks
        return counts.reshape(-1), rows, rows

    define_attention()
    torch.autocast = WideGate
    Module._init_self_parameters = lambda self: None  # it asks for numbers
    FlexAttention.forward = flash_attention
    AllToAllTokenDispatcher._sync_token_count_exchange = even_rows
    torch.nn.functional.rms_norm = lambda x, shape, weight=None, eps=None: fused_norm(x, weight)


def built(config, dims):
    """Model, loss and optimizers as Trainer.__init__ makes them."""
    import torch
    from torchtitan.components.loss import ChunkedLossWrapper

    spec = config.model_spec
    with torch.device("meta"):
        model = spec.model.build()
    model = spec.parallelize_fn(model, parallel_dims=dims, training=config.training, parallelism=config.parallelism,
                                compile_config=config.compile, ac_config=config.activation_checkpoint, dump_folder="")
    model.to_empty(device="cpu")
    with torch.no_grad():
        model.init_weights()
    model.train()
    loss = config.loss.build(compile_config=config.compile)
    if isinstance(loss, ChunkedLossWrapper):
        loss.set_lm_head(model.lm_head)
        model._skip_lm_head = True
    return model, loss, config.optimizer.build(model_parts=[model])


def step(config, dims, model, loss_of, optimizers):
    """Trainer.train_step, but for its data and its metrics."""
    import torch
    from torchtitan.distributed import utils

    training = config.training
    tokens = training.num_tokens_per_microbatch_per_dp_rank
    around = utils.get_spmd_context(parallel_dims=dims, spmd_typechecking=False)
    optimizers.zero_grad(set_to_none=training.disable_cuda_graphs)
    for _ in range(training.num_tokens_per_train_step // (tokens * config.parallelism.data_parallel_shard_degree)):
        inputs, labels, positions = (torch.empty(tokens, dtype=torch.int64) for _ in range(3))
        with around():
            predicted = model(inputs, positions=positions)
            loss, _ = loss_of(predicted, labels, torch.ones((), dtype=torch.int64))
            del predicted
            loss.backward()
        del loss
    utils.clip_grad_norm_(list(model.parameters()), training.max_norm, foreach=True,
                         ep_enabled=dims.ep_enabled)
    optimizers.step()


def peak_of(case):
    from judge.stand_in import rehearsal

    config = configured(case)
    dims = mesh_of(config)  # before tensors are fake: it reads ranks
    config.model_spec.model.update_from_config(config=config)
    stand_in_for_kernels(config.training.num_tokens_per_microbatch_per_dp_rank)
    with rehearsal() as recorder:
        model, loss, optimizers = built(config, dims)
        gc.disable()
        for _ in range(STEPS):
            gc.collect()
            recorder.begin_step()
            step(config, dims, model, loss, optimizers)
        return recorder.peaks()["requested_bytes"]


def rehearse_all(options):
    """One process for each case: torchtitan keeps what it was told about ranks."""
    import torch

    record = json.loads(options.file.read_text(encoding="utf-8"))
    commit = subprocess.run(["git", "-C", options.torchtitan, "rev-parse", "HEAD"], capture_output=True, text=True)
    record["torchtitan"] = commit.stdout.strip() or record["torchtitan"]
    record["torch"] = torch.__version__.split("+")[0]
    for case in record["cases"]:
        words = [sys.executable, __file__, options.torchtitan, "--file", options.file, "--case", case["name"]]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{case['name']}: {done.stderr}")
        case["peak"] = int(done.stdout.split()[-1])
        print(f"{case['peak']:15,}  {case['name']}", flush=True)
    options.file.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("torchtitan", help="a checkout")
    parser.add_argument("--file", type=pathlib.Path, default=FILE, help="cases and their record")
    parser.add_argument("--case", help="print the peak of this one alone")
    parser.add_argument("--config", type=pathlib.Path, help="save the case's config there")
    options = parser.parse_args()
    sys.path.insert(0, options.torchtitan)
    if options.case is None:
        rehearse_all(options)
        return
    case = next(each for each in json.loads(options.file.read_text(encoding="utf-8"))["cases"]
                if each["name"] == options.case)
    if options.config:
        options.config.write_text(json.dumps(configured(case).to_dict(), indent=2), encoding="utf-8")
    else:
        print(peak_of(case))


if __name__ == "__main__":
    main()

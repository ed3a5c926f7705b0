# SPDX-License-Identifier: Apache-2.0
"""A strategy's name in PyTorch's terms: how the decoder is wrapped, and what a microbatch does differently."""

import contextlib
import functools

import torch
from torch.distributed.device_mesh import init_device_mesh

from judge.case import HSDP_REPLICAS
from judge.decoder import Decoder, Layer


class Wrapping:
    """`model` is called as the decoder is; `around` a microbatch and `around_backward` its backward pass."""

    def __init__(self, model):
        self.model = model

    def around(self, is_last):
        return contextlib.nullcontext()

    def around_backward(self, is_last):
        return contextlib.nullcontext()


class NoSync(Wrapping):
    """DDP and FSDP1 with all microbatches but the last inside no_sync."""

    def around(self, is_last):
        return contextlib.nullcontext() if is_last else self.model.no_sync()


class ForwardOutside(Wrapping):
    """The published mistake: no_sync is read by the forward pass."""

    def around_backward(self, is_last):
        return contextlib.nullcontext() if is_last else self.model.no_sync()


class Flagged(Wrapping):
    """FSDP2, whose methods are told before each microbatch whether it is the last."""

    def __init__(self, model, *setters):
        super().__init__(model)
        self.setters = setters

    def around(self, is_last):
        for setter in self.setters:
            getattr(self.model, setter)(is_last)
        return contextlib.nullcontext()


def _ddp(case, build, device):
    from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(build(device=device, dtype=torch.bfloat16),
                                    gradient_as_bucket_view=case.bucket_view, init_sync=False)
    # The reducer asks the all-reduce for its result, and the fake one has none. Buckets are filled and read as ever.
    model.register_comm_hook(None, noop_hook)
    return {"ddp-every": Wrapping, "ddp-last": NoSync, "ddp-forward-outside": ForwardOutside}[case.strategy](model)


def _materialise(module, device):
    for name, parameter in list(module.named_parameters(recurse=False)):
        setattr(module, name, torch.nn.Parameter(torch.empty_like(parameter, device=device)))


def _fsdp1(case, build, device):
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    model = FullyShardedDataParallel(
        build(device="meta", dtype=torch.float32), device_id=device, auto_wrap_policy=ModuleWrapPolicy({Layer}),
        param_init_fn=functools.partial(_materialise, device=device),
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
    return (NoSync if case.strategy == "fsdp1-no-sync" else Wrapping)(model)


FSDP2_SETTERS = {
    "fsdp2-scatter-each": (),
    "fsdp2-defer": ("set_requires_gradient_sync",),
    "fsdp2-keep-after-backward": ("set_requires_gradient_sync", "set_reshard_after_backward"),
    "fsdp2-keep-all": ("set_requires_gradient_sync", "set_reshard_after_backward"),
    "hsdp": ("set_requires_all_reduce",),
}


def mesh_of(case, device):
    """The mesh of ranks that FSDP2 shards over, or None."""
    if case.strategy not in FSDP2_SETTERS:
        return None
    if case.strategy == "hsdp":
        sizes = (HSDP_REPLICAS, case.ranks // HSDP_REPLICAS)
        return init_device_mesh(device.type, sizes, mesh_dim_names=("replicas", "shards"))
    return init_device_mesh(device.type, (case.ranks,))


def _fsdp2(case, build, device, mesh, host):
    """Units as in torchtitan: the embedding, each layer, and norm and head together, which stay gathered."""
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

    options = {"mesh": mesh,
               "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)}
    if case.offload:
        options["offload_policy"] = CPUOffloadPolicy()
    reshard = case.strategy != "fsdp2-keep-all"
    model = build(device="meta", dtype=torch.float32)
    fully_shard(model.embedding, reshard_after_forward=reshard, **options)
    for layer in model.layers:
        fully_shard(layer, reshard_after_forward=reshard, **options)
    fully_shard([model.norm, model.head], reshard_after_forward=False, **options)
    fully_shard(model, **options)
    model.to_empty(device=host if case.offload else device)  # whole weights would leave holes between the shards
    return Flagged(model, *FSDP2_SETTERS[case.strategy])


def wrap(case, tables, norm, device, mesh, host):
    """`host`: the device that is called what lies in its memory."""

    def build(**where):
        return Decoder(case.shape, tables, norm, **where)

    if case.is_ddp:
        wrapping = _ddp(case, build, device)
    elif case.strategy.startswith("fsdp1"):
        wrapping = _fsdp1(case, build, device)
    else:
        wrapping = _fsdp2(case, build, device, mesh, host)
    with torch.no_grad():
        for parameter in wrapping.model.parameters():
            getattr(parameter, "_local_tensor", parameter).normal_(std=0.02)
    return wrapping

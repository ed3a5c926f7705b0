# SPDX-License-Identifier: Apache-2.0
"""A rehearsal without a GPU: fake tensors, and births and deaths of their storages in place of a caching allocator.

Fake tensors have sizes but no memory, so that cases run at their real size. Everything above the kernels is
PyTorch's own: autograd, DDP's reducer, FSDP, the optimizer. Not seen: what a CUDA kernel allocates for itself,
reserved memory, streams.
"""

import contextlib
import sys
import weakref

import torch
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.distributed.fsdp._fully_shard import _fsdp_collectives, _fsdp_param_group
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from judge.frames import is_telling, short_frame

ALIGNMENT = 512  # the caching allocator's smallest block, and its rounding
HOST = "cuda"  # tensors of a CPU stand for those of a GPU, and so a GPU's, which are fake as well, for the host's


class FusedNorm(torch.autograd.Function):
    """Allocates what CUDA's fused RMSNorm returns; on a CPU PyTorch runs single operations instead."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight, x.new_empty(x.shape[:-1], dtype=torch.float32))
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx, gradient):
        x, weight, _ = ctx.saved_tensors
        return torch.empty_like(x), torch.empty_like(weight)


def fused_norm(x, weight):
    return FusedNorm.apply(x, weight)


def call_site(operation):
    """The operation, and the innermost Python functions that tell who asked for it."""
    frames = [{"name": operation, "filename": "", "line": 0}]
    frame = sys._getframe(2)
    while frame is not None and len(frames) < 3:
        code = frame.f_code
        if is_telling(code.co_filename):
            frames.append(short_frame(code.co_name, code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return frames


class StandIn(TorchDispatchMode):
    """Peaks as torch.cuda.memory_stats gives them, events as torch.cuda.memory._snapshot does."""

    def __init__(self):
        super().__init__()
        self.sizes = {}  # bytes of each living storage, by its identity
        self.addresses = {}
        self.next_address = 0
        self.requested = self.allocated = 0
        self.events = None
        self.is_watching = True
        self.forget_peaks()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # its local tensors come by again
        kwargs = kwargs or {}
        if self._is_bookkeeping(function, args, kwargs):
            with unset_fake_temporarily():
                return function(*args, **kwargs)
        result = function(*args, **kwargs)
        for leaf in tree_leaves(result) if self.is_watching else ():
            if isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu":
                self._see(leaf.untyped_storage(), str(function).removesuffix(".default"))
        return result

    @staticmethod
    def _is_bookkeeping(function, args, kwargs):
        """DDP's reducer reads back the order of buckets, in the only tensors of int32: these are real ones."""
        if function is torch.ops.aten.empty.memory_format:
            return kwargs.get("dtype") is torch.int32
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        return bool(tensors) and all(tensor.dtype is torch.int32 for tensor in tensors)

    def _see(self, storage, operation):
        key = storage._cdata
        if key not in self.sizes:
            self.sizes[key] = 0
            weakref.finalize(storage, self._die, key)
            self.resize(key, storage.nbytes(), operation)

    def resize(self, key, size, operation):
        """A storage's bytes go and come, as FSDP lets them while tensors stay."""
        if key not in self.sizes or self.sizes[key] == size:
            return
        self._book(key, -self.sizes[key], operation)
        self.sizes[key] = size
        self._book(key, size, operation)

    def _die(self, key):
        self._book(key, -self.sizes.pop(key), "")

    def _book(self, key, change, operation):
        if change == 0:
            return
        sign = 1 if change > 0 else -1
        self.requested += change
        self.allocated += sign * -(-abs(change) // ALIGNMENT) * ALIGNMENT
        self.peak_requested = max(self.peak_requested, self.requested)
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        if sign > 0:
            self.addresses[key] = self.next_address = self.next_address + ALIGNMENT
        if self.events is not None:
            frames = call_site(operation) if sign > 0 else []
            for action in ("alloc",) if sign > 0 else ("free_requested", "free_completed"):
                self.events.append({"action": action, "addr": self.addresses[key], "size": abs(change), "stream": 0,
                                    "frames": frames})

    def forget_peaks(self):
        self.peak_requested, self.peak_allocated = self.requested, self.allocated


class StandInRecorder:
    """What judge.recording.CudaRecorder does, for a StandIn."""

    def __init__(self, stand_in):
        self.stand_in = stand_in

    def now(self):
        return {"requested_bytes": self.stand_in.requested, "allocated_bytes": self.stand_in.allocated,
                "reserved_bytes": None}

    def release(self):
        pass

    def begin_step(self):
        self.stand_in.forget_peaks()

    def peaks(self):
        return {"requested_bytes": self.stand_in.peak_requested, "allocated_bytes": self.stand_in.peak_allocated,
                "reserved_bytes": None, "retries": None}

    def begin_events(self):
        self.stand_in.events = []

    def snapshot(self):
        events, self.stand_in.events = self.stand_in.events, None
        return {"segments": [], "device_traces": [events]}


@contextlib.contextmanager
def _resizes_told_to(stand_in):
    plain = torch.UntypedStorage.resize_

    def resize(storage, size):
        result = plain(storage, size)
        stand_in.resize(storage._cdata, storage.nbytes(), "storage.resize_")
        return result

    torch.UntypedStorage.resize_ = resize
    try:
        yield
    finally:
        torch.UntypedStorage.resize_ = plain


@contextlib.contextmanager
def _unwatched_planning(stand_in):
    """DTensor tries an operation on whole tensors that are always fake, to learn the shape of its result."""
    plain = ShardingPropagator._propagate_tensor_meta_non_cached

    def propagate(self, *args, **kwargs):
        stand_in.is_watching = False
        try:
            return plain(self, *args, **kwargs)
        finally:
            stand_in.is_watching = True

    ShardingPropagator._propagate_tensor_meta_non_cached = propagate
    try:
        yield
    finally:
        ShardingPropagator._propagate_tensor_meta_non_cached = plain


class HostsNames:
    """torch, of which the device "cpu" is the host's, as FSDP2 means it where gradients leave the GPU."""

    @staticmethod
    def device(*_):
        return torch.device(HOST)

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def _a_host_elsewhere():
    plain = torch.Tensor.cpu, torch.Tensor.pin_memory, torch.Tensor.is_pinned
    group = _fsdp_param_group.FSDPParamGroup
    validate, names = group._validate_cpu_offload_params, _fsdp_collectives.torch
    torch.Tensor.cpu = lambda tensor: tensor.to(HOST)
    torch.Tensor.pin_memory = lambda tensor: tensor
    torch.Tensor.is_pinned = lambda tensor: tensor.device.type == HOST
    group._validate_cpu_offload_params = lambda _: None
    _fsdp_collectives.torch = HostsNames()
    try:
        yield
    finally:
        torch.Tensor.cpu, torch.Tensor.pin_memory, torch.Tensor.is_pinned = plain
        group._validate_cpu_offload_params, _fsdp_collectives.torch = validate, names


@contextlib.contextmanager
def rehearsal():
    stand_in = StandIn()
    with (_resizes_told_to(stand_in), _unwatched_planning(stand_in), _a_host_elsewhere(), FakeTensorMode(), stand_in):
        yield StandInRecorder(stand_in)

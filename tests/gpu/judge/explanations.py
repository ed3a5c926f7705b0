# SPDX-License-Identifier: Apache-2.0
"""Allocations that have no partner for a known reason. A reason names who asks, never a size alone."""

import re

SMALLEST_BLOCK = 512  # of the caching allocator

SCALAR = "scalars and counters of at most 512 bytes"

PREDICTED = (
    (r"head\.(row_max|row_sum|target_logit)$", "row statistics of the loss, which CUDA's kernels keep in registers"),
)
MEASURED = (
    (r"^aten\.add_Tensor$",
     "autograd's first sum behind q, k and v, a new tensor since a view is not added to, predicted in place"),
)
# Of what has found no partner: who asks for these asks for tensors that are predicted as well. All are gone by the end
# of the call, and none stands at a peak of a recorded case.
MEASURED_ALONE = (
    (r"^aten\._scaled_dot_product_flash_attention_backward\b",
     "dK and dV of every query head, which PyTorch's flash kernel sums up behind itself, predicted as summed at once"),
    (r"^aten\.embedding_backward\b",
     "sorted tokens and partial sums of the embedding's gradient, workspace of PyTorch's kernel, not predicted"),
    (r"^aten\.(_chunk_cat_out|split_with_sizes_copy_out)\b",
     "tables of addresses that FSDP2's copies take along to the GPU"),
)
# Without a GPU no kernel runs. Autograd adds gradients up in place only where no dispatch mode is on; a CPU without one
# shows three of a layer's four sums in place, and a new tensor for the first of those behind q, k and v.
PREDICTED_REHEARSAL = (
    (r"layer\.(dq_accumulator|delta)$", "workspace of the flash kernel's backward pass, of which a rehearsal has none"),
)
MEASURED_REHEARSAL = (
    (r"aten\.add\.Tensor < _step session\.py", "autograd's sum of two gradients, mostly in place outside a rehearsal"),
)


def predicted_reason(allocation, is_rehearsal):
    return _reason(allocation, PREDICTED + (PREDICTED_REHEARSAL if is_rehearsal else ()))


def measured_reason(allocation, is_rehearsal):
    return _reason(allocation, MEASURED + (MEASURED_REHEARSAL if is_rehearsal else ()))


def lone_reason(allocation):
    return _reason(allocation, MEASURED_ALONE)


def _reason(allocation, reasons):
    if allocation.size <= SMALLEST_BLOCK:
        return SCALAR
    return next((reason for pattern, reason in reasons if re.search(pattern, allocation.who)), None)

# SPDX-License-Identifier: Apache-2.0
"""Where phases begin among allocations: a tensor of an odd size that nothing else has, made and dropped.

Phase 2k is the forward pass of microbatch k, 2k + 1 its backward pass, and the last one the optimizer.
"""

FIRST_MARK = 301  # tensors are of bf16 or wider: no other has an odd size
MOST_PHASES = 105  # a mark fits the allocator's smallest block


def mark_bytes(phase):
    assert phase < MOST_PHASES, f"no mark for phase {phase}"
    return FIRST_MARK + 2 * phase


def phase_of_mark(size):
    """The phase that an allocation of so many bytes begins, or None."""
    is_mark = FIRST_MARK <= size < FIRST_MARK + 2 * MOST_PHASES and size % 2 == 1
    return (size - FIRST_MARK) // 2 if is_mark else None


def phase_name(phase, microbatches):
    if phase == 2 * microbatches:
        return "optimizer"
    return f"{'backward' if phase % 2 else 'forward'} {phase // 2}"

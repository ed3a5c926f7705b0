# SPDX-License-Identifier: Apache-2.0
"""A predicted and a measured step, allocation by allocation: within a phase matched by size in order.

What is left is tried as one allocation against several neighbours of the same sum, then as another order within
the phase. The rest is unmatched; explanations.py says what is not expected to match.
"""

import collections
import dataclasses

from judge.explanations import lone_reason, measured_reason, predicted_reason
from judge.frames import as_text
from judge.marks import phase_name, phase_of_mark
from judge.prediction import Allocation, Step


def measured_step(snapshot, microbatches):
    """What the busiest device of a snapshot did behind the first mark."""
    step, phase, living = Step(), None, {}
    for event in max(snapshot["device_traces"], key=len):
        size = event["size"]
        mark = phase_of_mark(size) if event["action"] == "alloc" else None
        if mark is not None:
            phase = phase_name(mark, microbatches)
            step.begin(phase)
        if phase is None:
            continue
        if event["action"] == "alloc":
            living[event["addr"]] = size
            step.allocate(Allocation(phase, size, as_text(event["frames"])))
        elif event["action"] == "free_requested":
            step.free(living.pop(event["addr"], size))
    return step


@dataclasses.dataclass
class Matching:
    """`parted` and `moved` are matched as well, though not one to one or not in order."""

    matched: int = 0
    parted: int = 0
    moved: int = 0
    explained: collections.Counter = dataclasses.field(default_factory=collections.Counter)  # pairs (reason, bytes)
    predicted_only: list = dataclasses.field(default_factory=list)
    measured_only: list = dataclasses.field(default_factory=list)


def match(predicted, measured, is_rehearsal):
    """Of two lists of allocations. What explains itself by who asked is set aside first: it must not be anyone's partner
    because of its size. What only explains itself beside others of the same operator comes last."""
    result = Matching()
    ours = _by_phase(_unexplained(predicted, lambda one: predicted_reason(one, is_rehearsal), result))
    theirs = _by_phase(_unexplained(measured, lambda one: measured_reason(one, is_rehearsal), result))
    for phase in dict.fromkeys([*ours, *theirs]):
        _match_phase(ours.get(phase, []), theirs.get(phase, []), result)
    result.measured_only = _unexplained(result.measured_only, lone_reason, result)
    return result


def _unexplained(allocations, reason_of, result):
    rest = []
    for each in allocations:
        reason = reason_of(each)
        if reason is None:
            rest.append(each)
        else:
            result.explained[reason, each.size] += 1
    return rest


def _by_phase(allocations):
    phases = collections.defaultdict(list)
    for allocation in allocations:
        phases[allocation.phase].append(allocation)
    return phases


def _match_phase(ours, theirs, result):
    left, right = [], []
    for gap, other, pairs in _gaps(ours, theirs):
        result.matched += pairs
        result.parted += _match_sums(gap, other) + _match_sums(other, gap)
        left += gap
        right += other
    result.moved += _match_sizes(left, right)
    result.predicted_only += left
    result.measured_only += right


def _gaps(ours, theirs):
    """Aligns by size for the most pairs. Yields what stands alone between runs of pairs, and how many come before."""
    longest = _longest(ours, theirs)
    gap, other, pairs, i, j = [], [], 0, 0, 0
    while i < len(ours) or j < len(theirs):
        if i < len(ours) and j < len(theirs) and ours[i].size == theirs[j].size:
            if gap or other:
                yield gap, other, pairs
                gap, other, pairs = [], [], 0
            pairs, i, j = pairs + 1, i + 1, j + 1
        elif j == len(theirs) or (i < len(ours) and longest(i + 1, j) >= longest(i, j + 1)):
            gap.append(ours[i])
            i += 1
        else:
            other.append(theirs[j])
            j += 1
    yield gap, other, pairs


def _longest(ours, theirs):
    """Of (i, j): how many pairs ours[i:] and theirs[j:] can have in order.

    Each row of that table is one number, whose bits are off where theirs[j:] has a pair more than theirs[j + 1:], the
    last j lowest (Hyyrö 2004, "Bit-parallel LCS-length computation revisited").
    """
    places = collections.defaultdict(int)
    for place, each in enumerate(reversed(theirs)):
        places[each.size] |= 1 << place
    rows = [(1 << len(theirs)) - 1]
    for each in reversed(ours):
        alike = rows[-1] & places[each.size]
        rows.append((rows[-1] + alike | rows[-1] - alike) & rows[0])
    return lambda i, j: (~rows[len(ours) - i] & (1 << len(theirs) - j) - 1).bit_count()


def _match_sums(whole, parts):
    """Takes from both lists what is one allocation here and several neighbours of its size there; how many it took."""
    taken = 0
    for one in list(whole):
        found = _run_of_sum(parts, one.size)
        if found is not None:
            whole.remove(one)
            taken += 1 + len(found)
            del parts[found.start:found.stop]
    return taken


def _run_of_sum(parts, size):
    for start in range(len(parts)):
        total = 0
        for end in range(start, len(parts)):
            total += parts[end].size
            if end > start and total == size:
                return range(start, end + 1)
            if total > size:
                break
    return None


def _match_sizes(left, right):
    moved = 0
    for one in list(left):
        other = next((each for each in right if each.size == one.size), None)
        if other is not None:
            left.remove(one)
            right.remove(other)
            moved += 1
    return moved

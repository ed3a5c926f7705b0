# SPDX-License-Identifier: Apache-2.0
"""A recorded case against its prediction, as text."""

import collections
import dataclasses
import json
import pickle
import zlib

from judge.comparison import Matching, match, measured_step
from judge.snapshot import read_snapshot

HEADER = ("case", "predicted peak", "1st", "2nd", "3rd step", "by events", "allocated", "of it", "reserved", "of it",
          "matched", "parts", "moved", "known", "open")
MOST_LINES = 24  # of a case's details


@dataclasses.dataclass
class Verdict:
    """Differences are measured minus predicted bytes. Measured bytes leave out what was there before parameters.

    The allocator counts requested bytes down only when other streams are done with them, allocated bytes (which are
    blocks) and events when they are freed: where FSDP1 leaves tensors to its streams, a prediction means the latter.
    """

    name: str
    predicted: int = 0  # bytes of tensors in the third step
    differences: tuple = ()  # of the peaks of tensors, step by step
    by_events: int = 0  # of the third step's peak, recounted from its events
    allocated: tuple = ()  # (of the highest peak of blocks, that peak as it was measured)
    reserved: tuple = ()  # the same of reserved bytes; both empty in a rehearsal
    phases: dict = dataclasses.field(default_factory=dict)  # kind of phase: (predicted, measured) peak above the start
    matching: Matching | None = None
    error: str | None = None
    lag: int = 0  # bytes that the prediction reserves more where streams give memory back late

    @property
    def open(self):
        """How many allocations stand alone, with no reason known."""
        return len(self.matching.predicted_only) + len(self.matching.measured_only) if self.matching else 0

    def row(self):
        if self.error:
            return (self.name, self.error)
        found = self.matching
        return (self.name, f"{self.predicted:,}", *(f"{each:+,}" for each in self.differences), f"{self.by_events:+,}",
                *_with_share(self.allocated), *_with_share(self.reserved), found.matched, found.parted, found.moved,
                sum(found.explained.values()), self.open)


def _with_share(pair):
    return (f"{pair[0]:+,}", f"{pair[0] / pair[1]:+.2%}") if pair else ("-", "-")


def case_of(path):
    return path.stem.removesuffix(".failed")


def judge(path, program):
    """The verdict on the record at `path`; one that cannot be read is a case that went wrong."""
    try:
        return _judge(path, json.loads(path.read_text(encoding="utf-8")), program)
    except (ValueError, LookupError, TypeError, EOFError, OSError, zlib.error, pickle.UnpicklingError) as error:
        return Verdict(case_of(path), error=f"{path} cannot be read ({error!r}): remove it, and the case runs again")


def _judge(path, record, program):
    if "error" in record:
        return Verdict(case_of(path), error=record["error"].strip().splitlines()[-1])
    predicted = program.prediction(record["job"])  # what it says today; the record keeps what it said then
    measured = record["measured"]
    before = measured["before_parameters"]
    pairs = list(zip(predicted["steps"], measured["steps"], strict=True))
    ours, snapshot = program.step(record["job"]), read_snapshot(path.parent / record["snapshot"])
    theirs = measured_step(snapshot, predicted["job"]["accumulation_steps"])
    if not theirs.peaks:
        return Verdict(case_of(path), error="no marks of phases among its snapshot's allocations")
    by_events = measured["steps"][-2]["after"]["requested_bytes"] + max(theirs.peaks.values())
    last = pairs[-1][0]
    return Verdict(
        path.stem, last["allocated_bytes"],
        tuple(step["peak"]["requested_bytes"] - before["requested_bytes"] - expected["allocated_bytes"]
              for expected, step in pairs),
        by_events - before["requested_bytes"] - last["allocated_bytes"],
        _highest("allocated_bytes", measured, predicted["peak"]["allocator_bytes"]),
        _highest("reserved_bytes", measured, predicted["peak"]["reserved_bytes"]),
        _phases(ours.peaks, theirs.peaks), match(ours.allocations, theirs.allocations, record["rehearsal"]),
        lag=max(0, (predicted["peak"]["reserved_late_bytes"] or 0) - predicted["peak"]["reserved_bytes"]))


def _highest(kind, measured, predicted):
    """(measured minus predicted, measured) of the highest peak of all steps; nothing where it was not counted."""
    peaks = [step["peak"].get(kind) for step in measured["steps"]]
    if None in peaks:
        return ()
    highest = max(peaks) - measured["before_parameters"][kind]
    return highest - predicted, highest


def _phases(ours, theirs):
    highest = {}
    for phase in dict.fromkeys([*ours, *theirs]):
        kind = phase.split()[0]
        pair = highest.get(kind, (0, 0))
        highest[kind] = (max(pair[0], ours.get(phase, 0)), max(pair[1], theirs.get(phase, 0)))
    return highest


def table(verdicts):
    rows = [HEADER, *(verdict.row() for verdict in verdicts)]
    whole = [row for row in rows if len(row) == len(HEADER)]
    widths = [max(len(str(row[column])) for row in whole) for column in range(1, len(HEADER))]
    name_width = max(len(row[0]) for row in rows)
    return ["  ".join([name.ljust(name_width), *(str(cell).rjust(width) for cell, width in zip(cells, widths))])
            for name, *cells in rows]


def details(verdict):
    """Peaks by phase, what stands alone by phase, size and who asked, largest sum first, and what is known."""
    lines = [f"{verdict.name}: highest above the step's beginning"]
    for kind, (ours, theirs) in verdict.phases.items():
        lines.append(f"  {kind:9}  predicted {ours:>15,}  measured {theirs:>15,}  {theirs - ours:>+14,}")
    alone = []
    for side, found in (("predicted", verdict.matching.predicted_only), ("measured", verdict.matching.measured_only)):
        groups = collections.Counter((each.phase.split()[0], each.size, each.who) for each in found)
        alone += [(count * size, side, phase, count, size, who) for (phase, size, who), count in groups.items()]
    for _, side, phase, count, size, who in sorted(alone, reverse=True)[:MOST_LINES]:
        lines.append(f"  only {side:9}  {phase:9}  {count:>4} x {size:>13,}  {who}")
    if len(alone) > MOST_LINES:
        lines.append(f"  and {len(alone) - MOST_LINES} smaller groups")
    known = collections.Counter()
    for (reason, size), count in verdict.matching.explained.items():
        known[reason] += count * size
    lines += [f"  known: {reason}, {size:,} bytes in all" for reason, size in sorted(known.items())]
    return lines

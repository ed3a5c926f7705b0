# SPDX-License-Identifier: Apache-2.0
"""Records as a table: memory and time, predicted and measured."""

import dataclasses
import json
import statistics

HEADER = ("case", "peak", "error", "reserved", "step", "error", "tokens/s", "recording", "residual", "loss")
FIRST_ALIKE = 3  # steps before it are the first of their kind, or fill memory with NaNs
SOME = 5  # losses at either end of a run that are averaged


@dataclasses.dataclass
class Verdict:
    name: str
    peak: int = 0  # predicted bytes of tensors
    peak_error: int = 0  # predicted minus measured
    reserved_error_percent: float | None = None
    step_ns: int = 0  # the median of measured steps of their work alone
    step_error_percent: float = 0
    tokens_per_s: float = 0
    recording_percent: float | None = None  # what timing each operation adds to a step
    residual_percent: float | None = None  # of the closed budget, of what is used of the device
    losses: tuple | None = None  # at the beginning and at the end, of a run that learns
    error: str | None = None

    @property
    def is_right(self):
        """Memory to the byte, and a loss that falls where there is something to learn."""
        exact = self.peak_error == 0 and not self.reserved_error_percent
        return self.error is None and exact and (self.losses is None or self.losses[1] < self.losses[0])

    def row(self):
        if self.error:
            return (self.name, self.error)
        reserved = "-" if self.reserved_error_percent is None else f"{self.reserved_error_percent:+.2f} %"
        loss = "-" if self.losses is None else f"{self.losses[0]:.2f} to {self.losses[1]:.2f}"
        recording, residual = ("-" if percent is None else f"{percent:+.1f} %"
                               for percent in (self.recording_percent, self.residual_percent))
        return (self.name, f"{self.peak:,}", f"{self.peak_error:+,}", reserved, f"{self.step_ns / 1e6:.1f} ms",
                f"{self.step_error_percent:+.1f} %", f"{self.tokens_per_s:,.0f}", recording, residual, loss)


def verdict_of(path):
    """Of the record at `path`; one that cannot be read is a case that went wrong."""
    name = path.stem.removesuffix(".failed")
    try:
        return _verdict_of(name, json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, LookupError, TypeError, statistics.StatisticsError) as error:
        return Verdict(name, error=f"{path} cannot be read ({error!r}): remove it, and the case runs again")


def _verdict_of(name, record):
    if "error" in record:
        return Verdict(name, error=record["error"])
    predicted, measured, compared = record["predicted"], record["measured"], record["compared"]
    expected = max(step["allocated_bytes"] for step in predicted["steps"])
    found = measured["peak"]["allocated_bytes"]
    step_ns = _steady_ns(measured)
    recording = _steady_ns(record["recorded"]) / step_ns - 1 if record["recorded"] else None
    budget = measured["budget"]
    steady_ns = predicted["steps"][-1]["step_ns"]
    job = predicted["job"]
    tokens = job["sequence_length"] * job["micro_batch_size"] * job["accumulation_steps"]
    losses = None
    if compared is None:  # a run that learns
        each = [step["loss"] for step in measured["steps"]]
        losses = (statistics.mean(each[:SOME]), statistics.mean(each[-SOME:]))
    return Verdict(name, expected, expected - found, compared and compared["reserved_error_percent"], round(step_ns),
                   (steady_ns / step_ns - 1) * 100, tokens / (step_ns * 1e-9),
                   None if recording is None else recording * 100,
                   budget and budget["residual_bytes"] / budget["device_used_bytes"] * 100, losses)


def _steady_ns(run):
    """The median of steps that take the time of their work."""
    return statistics.median(step["step_ns"] for step in run["steps"][FIRST_ALIKE:])


def is_of_steps(path):
    """Whether the file at `path` records a step of ours, or no one can say."""
    try:
        return "traces" in json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return True


def table(verdicts):
    rows = [HEADER, *(verdict.row() for verdict in verdicts)]
    whole = [row for row in rows if len(row) == len(HEADER)]
    widths = [max(len(row[column]) for row in whole) for column in range(1, len(HEADER))]
    name_width = max(len(row[0]) for row in rows)
    lines = ["  ".join([name.ljust(name_width), *(cell.rjust(width) for cell, width in zip(cells, widths))])
             for name, *cells in rows]
    errors = [abs(verdict.step_error_percent) for verdict in verdicts if verdict.error is None]
    if errors:
        lines.append(f"median of absolute errors of step times: {statistics.median(errors):.1f} %, of {len(errors)} cases")
    return lines

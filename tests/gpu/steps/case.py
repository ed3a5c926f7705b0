# SPDX-License-Identifier: Apache-2.0
"""What is executed: a job under a strategy, and for how many steps."""

import dataclasses
import fnmatch

STEPS = 6  # first, second, and steady ones, of which the last three take the time of their work alone
LEARNING_STEPS = 50


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    job: str  # YAML
    steps: int = STEPS
    learns: bool = False  # from a text, so that its loss must fall; too long a run for traces
    records_operations: bool = False  # is run once more, with each operation's time, whose cost shows
    keeps_traces: bool = False


@dataclasses.dataclass(frozen=True)
class Network:
    """A network at the size that one GPU holds, under a strategy whose buffers leave it room."""

    name: str
    network: str  # YAML
    sequence: int
    batch: int
    microbatches: int
    strategy: str = "ddp-last"
    more: str = ""

    def job(self, machine, strategy=None, microbatches=None):
        return (f"network: {self.network}\nmachine: {machine}\nsequence_length: {self.sequence}\n"
                f"micro_batch_size: {self.batch}\naccumulation_steps: {microbatches or self.microbatches}\n"
                f"layout: {{dp: 1}}\nstrategy: {strategy or self.strategy}\n{self.more}")


SMALL = Network("gpt2", "gpt2", 1024, 4, 4)
REAL = (
    Network("gpt2", "gpt2", 1024, 16, 4),
    Network("tinyllama-1.1b", "tinyllama-1.1b", 8192, 1, 4),
    Network("gpt2-xl", "gpt2-xl", 1024, 4, 4),
    Network("llama-3-8b", "llama-3-8b", 8192, 1, 2, "jax-scan", "recompute: {policy: full}\nloss: low-precision\n"),
    # A Mixtral of 1.5 billion parameters, of which a token meets 0.5.
    Network("experts-1.5b", "{layers: 16, hidden: 1024, ffn: 3584, heads: 16, kv_heads: 8, vocabulary: 32000, "
                            "experts: {count: 8, per_token: 2, ffn: 3584}}", 4096, 2, 4, "megatron"),
)
# What a processor executes in seconds, in place of all of them.
REHEARSED = Network("rehearsed", "{layers: 2, hidden: 64, ffn: 96, heads: 4, kv_heads: 2, vocabulary: 256}", 32, 2, 2)

COUNTS = (4, 1, 16, 2, 8)  # of microbatches, in order of value: a run that is cut short has the first


def real_sizes(machine, is_rehearsal):
    """Networks that people train, six steps with traces and fifty that learn."""
    found = []
    for network in (REHEARSED,) if is_rehearsal else REAL:
        found.append(Case(f"real-{network.name}", network.job(machine), records_operations=True, keeps_traces=True))
        found.append(Case(f"learn-{network.name}", network.job(machine), LEARNING_STEPS, learns=True))
    return found


def accumulation(machine, strategies, is_rehearsal):
    """The same micro batch and layout, with 1 to 16 microbatches, under every strategy."""
    network = REHEARSED if is_rehearsal else SMALL
    return [Case(f"accumulation-{strategy}-m{count}", network.job(machine, strategy, count), keeps_traces=count == COUNTS[0])
            for count in COUNTS for strategy in strategies]


def cases(machine, strategies, is_rehearsal, pattern="*"):
    """Every case whose name fits the shell pattern, in order of value."""
    found = real_sizes(machine, is_rehearsal) + accumulation(machine, strategies, is_rehearsal)
    return [case for case in found if fnmatch.fnmatchcase(case.name, pattern)]

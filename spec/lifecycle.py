"""The life of a request: phases and edges, as data.

Everything that speaks of a request's life is made from this one table: the
shipped state machine, the specification, the graphs and the pictures in the
docs. A rule number refers to the rules of the machine in
docs/explanation/rules.md.
"""

from typing import Final, Literal, NamedTuple

Phase = Literal["waiting", "prefilling", "decoding", "done"]
Event = Literal["admit", "first_token", "finish", "preempt", "cancel", "expire"]
FinishReason = Literal["eos", "length", "cancelled", "expired"]

WAITING: Final = "waiting"
PREFILLING: Final = "prefilling"
DECODING: Final = "decoding"
DONE: Final = "done"

PHASES: Final[tuple[Phase, ...]] = (WAITING, PREFILLING, DECODING, DONE)
"""Every phase, in the order of an undisturbed life."""

INITIAL: Final[Phase] = WAITING
"""The phase in which an accepted request begins."""

RESIDENT: Final[frozenset[Phase]] = frozenset({PREFILLING, DECODING})
"""The phases in which a request holds KV blocks."""


class Edge(NamedTuple):
    """One way from a phase to another."""

    event: Event
    source: Phase
    dest: Phase
    rule: str
    """The rule it comes from, and what happens, in one sentence."""


EDGES: Final[tuple[Edge, ...]] = (
    Edge("admit", WAITING, PREFILLING, "Rule 3: takes the blocks of its whole known context"),
    Edge("first_token", PREFILLING, DECODING, "Rule 2: the tick that feeds the last prompt token"),
    Edge("finish", PREFILLING, DONE, "Rule 1: the first token may be the last"),
    Edge("finish", DECODING, DONE, "Rule 2: EOS, or the max_tokens-th token"),
    Edge("preempt", PREFILLING, WAITING, "Rule 5: gives up its blocks, keeps its place"),
    Edge("preempt", DECODING, WAITING, "Rule 5: gives up its blocks, keeps its place and tokens"),
    Edge("cancel", WAITING, DONE, "Rule 9: between ticks, at once"),
    Edge("cancel", PREFILLING, DONE, "Rule 9: between ticks, at once; frees its blocks"),
    Edge("cancel", DECODING, DONE, "Rule 9: between ticks, at once; frees its blocks"),
    Edge("expire", WAITING, DONE, "Rule 9: its time has come, as a cancel"),
    Edge("expire", PREFILLING, DONE, "Rule 9: its deadline has come, as a cancel"),
    Edge("expire", DECODING, DONE, "Rule 9: its deadline has come, as a cancel"),
)
"""Every edge there is. Nothing leaves `done`."""


def dest(event: Event, phase: Phase) -> Phase | None:
    """Return the phase after `event` in `phase`, or None if the table has no such edge."""
    return _DEST.get((event, phase))


_DEST: Final[dict[tuple[Event, Phase], Phase]] = {(e.event, e.source): e.dest for e in EDGES}

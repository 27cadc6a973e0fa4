"""What a monitor is told, what it keeps of a live request, and what it reports."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from batchproof.sched.errors import BatchproofError
from batchproof.spec.lifecycle import INITIAL, Phase


class TickFacts(NamedTuple):
    """What was seen of one tick, in the order in which it takes effect."""

    preempt: Sequence[str] = ()
    """Requests that gave up all their blocks."""
    grow: Sequence[tuple[str, int]] = ()
    """Request, and the block that it took."""
    admit: Sequence[tuple[str, Sequence[int]]] = ()
    """Request, and the blocks that it took."""
    decode: Sequence[tuple[str, int]] = ()
    """Request, and the token that it yielded."""
    chunks: Sequence[tuple[str, int, int, int | None]] = ()
    """Request, first position, tokens fed, and the token that it yielded, or None."""
    ended: Sequence[tuple[str, str]] = ()
    """Request, and its finish reason."""
    free: int = 0
    """Free blocks after the tick."""


class Violation(NamedTuple):
    """A property that does not hold of what was seen."""

    tick: int
    """In which tick, from 0; between ticks, that of the next."""
    property: str
    """Its name in the catalog."""
    detail: str
    """What was seen, and what should have been."""


class ViolationError(BatchproofError, AssertionError):
    """A property is violated; `report` holds all that is needed to see how."""

    def __init__(self, violation: Violation, report: dict[str, Any]) -> None:
        super().__init__(
            f"monitor: tick {violation.tick}: {violation.property}: {violation.detail}"
        )
        self.violation = violation
        self.report = report


Times = tuple[float | None, float | None]
"""A request's deadline, and when it must have been admitted, in the executor's seconds."""
NO_TIMES: Final[Times] = (None, None)


class Account:
    """What the monitor knows of a live request."""

    __slots__ = ("admit_by_s", "blocks", "deadline_s", "generated", "max_tokens", "number",
                 "passed", "phase", "prefilled", "priority", "prompt", "request_id", "tick",
                 "user")  # fmt: skip

    def __init__(
        self, user: str, prompt: int, max_tokens: int, number: int, times: Times = NO_TIMES
    ) -> None:
        self.user = user
        self.deadline_s, self.admit_by_s = times
        """When it expires: unless done by the one, unless admitted by the other; None: never."""
        self.prompt = prompt
        self.max_tokens = max_tokens
        self.number = number
        """Its place among the waiting requests of its user."""
        self.request_id = ""
        self.priority = 0
        self.passed = 0
        """How often it was passed; once it is admitted, as often as may be."""
        self.phase: Phase = INITIAL
        self.prefilled = 0
        self.generated = 0
        self.blocks: list[int] = []
        self.tick = -1
        """The last tick that it was in the batch of."""

    def copy(self) -> "Account":
        """Return the same, to be kept."""
        times = (self.deadline_s, self.admit_by_s)
        twin = Account(self.user, self.prompt, self.max_tokens, self.number, times)
        twin.phase, twin.prefilled, twin.generated = self.phase, self.prefilled, self.generated
        twin.blocks, twin.tick = list(self.blocks), self.tick
        twin.priority, twin.passed = self.priority, self.passed
        twin.request_id = self.request_id
        return twin

    def state(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


class Stretch:
    """Some ticks, and the live requests before them."""

    __slots__ = ("events", "start")

    def __init__(self, start: dict[str, Account]) -> None:
        self.start = start
        self.events: list[tuple[Any, ...]] = []

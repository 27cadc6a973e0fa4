"""Whether a recorded run, ours or another engine's, keeps to the rules: line by line."""

from collections.abc import Callable
from typing import Any, cast

import msgspec

from batchproof.sched.config import Admission, Limits
from batchproof.sched.errors import InputError, LimitsError
from batchproof.sched.monitor import Monitor
from batchproof.sched.monitor_facts import TickFacts, Times, Violation
from batchproof.sched.run_recording import (
    Cancel,
    End,
    Expire,
    Header,
    PromptSlice,
    Record,
    Refuse,
    RequestRecord,
    Submit,
    Tick,
    Weight,
)
from batchproof.sched.weights import checked_weight


class Conformance:
    """Holds the records of a run against the rules, in memory bounded by its live requests.

    `where` names a line in errors. Raises `LimitsError` for limits that make no
    sense or an exemption from a property that there is not, and `InputError`,
    while it is told, for ticks that are missing.
    """

    def __init__(self, header: Header, where: Callable[[int], str]) -> None:
        self.monitor = Monitor(
            Limits(**msgspec.structs.asdict(header.limits)),
            cast(Admission, header.admission),
            on_violation="record",
            exempt=header.exempt,
        )
        self._where = where

    def hear(self, line: int, record: Record) -> Violation | None:
        """Take a record; return the first rule that it breaks, if it does."""
        monitor = self.monitor
        match record:
            case Submit(request=request, passes=passes):
                monitor.submitted(
                    request.id,
                    request.user,
                    _length(request),
                    request.max_tokens,
                    _times(request, record.at),
                    request.priority,
                    passes,
                )
            case Refuse(request=RequestRecord() as request):
                monitor.refused(
                    request.id, record.kind, _length(request), request.max_tokens, request.user
                )
            case Cancel():
                monitor.cancelled(record.id)
            case Expire():
                monitor.expired(record.id, record.at)
            case Weight():
                self._check_weight(line, record)
            case Tick():
                if record.tick != monitor.ticks:
                    raise InputError(
                        f"{self._where(line)}: tick {record.tick}, after "
                        f"{monitor.ticks} ticks: ticks are missing or out of order"
                    )
                monitor.ticked(_facts(record))
            case End():
                self._check_end(line, record)
        return monitor.violations[0] if monitor.violations else None

    def _check_weight(self, line: int, record: Weight) -> None:
        try:
            checked_weight(record.user, record.weight)
        except LimitsError as error:
            raise InputError(f"{self._where(line)}: {error}") from None

    def _check_end(self, line: int, end: End) -> None:
        seen = (self.monitor.ticks, self.monitor.live)
        if (end.ticks, end.live) != seen:
            raise InputError(
                f"{self._where(line)}: {end.ticks} ticks and {end.live} live requests at the end, "
                f"where the lines before have {seen[0]} and {seen[1]}"
            )


def _facts(tick: Tick) -> TickFacts:
    fields: Any = {name: getattr(tick, name) for name in TickFacts._fields}
    return TickFacts(**fields)


def _length(request: RequestRecord) -> int:
    prompt = request.prompt
    return prompt.length if isinstance(prompt, PromptSlice) else len(prompt)


def _times(request: RequestRecord, submitted_at: float) -> Times:
    patience = request.max_queue_time_s
    return request.deadline_s, None if patience is None else submitted_at + patience

"""Replaying a recording of a run: held against the rules, run again, compared line by line."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import msgspec

from batchproof.sched.config import Admission, Limits
from batchproof.sched.conformance import Conformance
from batchproof.sched.errors import InputError, RequestError
from batchproof.sched.latency import LatencyModel
from batchproof.sched.monitor_facts import Violation
from batchproof.sched.prompts import PromptRing
from batchproof.sched.recorder import Recorder
from batchproof.sched.recordings import TOKENS_MAX
from batchproof.sched.request import Request
from batchproof.sched.run_recording import (
    Cancel,
    End,
    Expire,
    Gpu,
    Header,
    PromptSlice,
    Record,
    Refuse,
    RequestRecord,
    RunRecording,
    Submit,
    Tick,
    Weight,
)
from batchproof.sched.simulation import Setup


@dataclass(frozen=True)
class Difference:
    """The first line of a recording that its replay does not repeat."""

    line: int
    recorded: Record
    replayed: Record | None
    """None if nothing happened."""

    @property
    def fields(self) -> list[str]:
        """The fields that differ; none if it is another event altogether."""
        if type(self.recorded) is not type(self.replayed):
            return []
        names = type(self.recorded).__struct_fields__
        return [
            name for name in names if getattr(self.recorded, name) != getattr(self.replayed, name)
        ]


@dataclass(frozen=True)
class Outcome:
    """What a replay found."""

    lines: int
    """Lines that keep to the rules and were found the same, after the header."""
    ticks: int
    repeated: bool
    """Whether the run was run again; one of another engine is only held against the rules."""
    exempt: tuple[str, ...] = ()
    """Properties that it was not held against, because the recording says so."""
    difference: Difference | None = None
    broken: "Broken | None" = None
    interrupted: bool = False


class Broken(NamedTuple):
    """The first line of a recording that breaks a rule."""

    line: int
    violation: Violation


class Replay:
    """A recording's run: held against the rules, and run again if the simulated GPU ran it.

    Raises `LimitsError` for limits or a policy that there are not.
    """

    def __init__(self, recording: RunRecording) -> None:
        self._recording = recording
        header = recording.header
        self._conformance = Conformance(header, lambda line: f"{recording.path}: line {line}")
        self._ring = None if header.prompt_seed is None else PromptRing(header.prompt_seed)
        self._replayed: deque[Record] = deque()
        self._repeats = header.gpu is not None
        if header.gpu is not None:
            setup = _setup(header, header.gpu)
            self._gpu = setup.gpu()
            self._recorder = Recorder(
                self._gpu, setup.limits.max_kv_blocks, self._replayed.append, self._ring
            )
            self._scheduler = setup.scheduler(self._recorder, self._recorder)

    def run(
        self,
        *,
        stop: Callable[[], bool] = lambda: False,
        progress: Callable[[int], None] = lambda _: None,
    ) -> Outcome:
        """Check each event and repeat it; stop at the first that is illegal or turns out different.

        `stop` is asked before each line, `progress` told of each line's number.
        Raises `InputError` for a malformed line.
        """
        lines = 0
        for number, record in self._recording:
            if stop():
                return self._outcome(lines, interrupted=True)
            violation = self._conformance.hear(number, record)
            if violation is not None:
                return self._outcome(lines, broken=Broken(number, violation))
            if self._repeats:
                self._repeat(number, record)
                replayed = self._replayed.popleft() if self._replayed else None
                if replayed != record:
                    return self._outcome(lines, difference=Difference(number, record, replayed))
            lines += 1
            progress(number)
        return self._outcome(lines)

    def _outcome(self, lines: int, **what: Any) -> Outcome:
        monitor = self._conformance.monitor
        return Outcome(lines, monitor.ticks, self._repeats, tuple(sorted(monitor.exempt)), **what)

    def _repeat(self, number: int, record: Record) -> None:
        """Do what `record` says was done; the recorder says what came of it."""
        match record:
            case Submit():
                self._gpu.wait_until(record.at)
                self._submit(self._request(number, record.request), record.at)
            case Refuse(request=None):
                self._replayed.append(record)  # it changed nothing, whatever it was
            case Refuse(request=RequestRecord() as request):
                self._gpu.wait_until(record.at)
                self._submit(self._request(number, request), record.at)
            case Cancel():
                self._gpu.wait_until(record.at)
                self._scheduler.cancel(record.id)
            case Expire():
                self._expire(record.at)
            case Weight():
                self._scheduler.set_weight(record.user, record.weight)
            case Tick():
                self._gpu.wait_until(record.start)
                self._scheduler.tick()
            case End():
                self._recorder.end(complete=record.complete)

    def _expire(self, at: float) -> None:
        """Let all expire whose time has come: the first of their lines does it for all."""
        if not self._replayed:
            self._gpu.wait_until(at)
            self._scheduler.abandon(self._scheduler.schedule())

    def _submit(self, request: Request, at: float) -> None:
        try:
            self._scheduler.submit(request, submitted_at=at)
        except RequestError:
            return  # the recorder heard of it

    def _request(self, number: int, record: RequestRecord) -> Request:
        given = record.prompt
        prompt = self._slice(number, given) if isinstance(given, PromptSlice) else given
        return Request(
            record.user,
            prompt,
            record.max_tokens,
            record.id,
            priority=record.priority,
            deadline_s=record.deadline_s,
            max_queue_time_s=record.max_queue_time_s,
        )

    def _slice(self, number: int, prompt: PromptSlice) -> tuple[int, ...]:
        where = f"{self._recording.path}: line {number}"
        if self._ring is None:
            raise InputError(f"{where}: a prompt is a slice, but the header has no prompt_seed")
        if not 0 <= prompt.start < self._ring.size:
            raise InputError(
                f"{where}: a prompt starts at {prompt.start}, not in 0..{self._ring.size - 1}"
            )
        if prompt.length > TOKENS_MAX:
            raise InputError(f"{where}: a prompt of {prompt.length} tokens; at most {TOKENS_MAX}")
        return self._ring.prompt(prompt.start, prompt.length)


def _setup(header: Header, gpu: Gpu) -> Setup:
    return Setup(
        limits=Limits(**msgspec.structs.asdict(header.limits)),
        policy=header.policy,
        admission=cast(Admission, header.admission),
        latency=LatencyModel(**msgspec.structs.asdict(gpu.latency)),
        seed=gpu.seed,
        eos_rate=gpu.eos_rate,
        weights=header.weights,
    )

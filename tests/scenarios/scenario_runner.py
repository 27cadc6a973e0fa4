"""Runs a scenario on the shipped scheduler, and gives its outcome the words of the checks."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from scenarios.scenario_notation import Cancel, Run, Scenario, Step, Submit, Tick, parse
from support.builders import prompt_of
from support.core_checks import Recorder, assert_invariants

from batchproof import Limits, Request, Scheduler, SimulatedGPU
from batchproof.sched.errors import LimitsError, RequestError
from batchproof.sched.policy.protocol import Policy

TICKS_MAX = 20_000
BUILTINS = {f.__name__: f for f in (abs, all, any, len, list, max, min, set, sorted, sum)}
"""Of the language, all that a check may use besides its own words."""
BAD_CONFIG = "BADCONFIG"
"""The check of a scenario whose limits must be refused."""


class DeviceFailedError(RuntimeError):
    """What a failing call raises; anything else that a tick raises is a failure of the test."""


class ScriptedGPU(SimulatedGPU):
    """The simulated GPU, on which EOS comes exactly where the scenario says.

    Of the calls numbered in `failing_calls` (the first is 1), each raises.
    """

    def __init__(self, limits: Limits, failing_calls: Iterable[int] = ()) -> None:
        super().__init__(limits, eos_rate=0)
        self.eos_at: dict[str, int] = {}
        """Id -> how many output tokens are left when EOS comes, it included."""
        self.calls = 0
        self.failing_calls = frozenset(failing_calls)

    def forward(self, batch: Sequence[Any]) -> list[int]:
        self.calls += 1
        if self.calls in self.failing_calls:
            raise DeviceFailedError(f"on call {self.calls}")
        return [
            self.limits.eos_token if self.eos_at.get(seq.request_id) == seq.remaining else token
            for seq, token in zip(batch, super().forward(batch), strict=True)
        ]


def check(text: str, expression: str, **options: Any) -> None:
    """Run a scenario and assert the expression over its outcome."""
    scenario = parse(text)
    if expression == BAD_CONFIG:
        try:
            limits_of(scenario)
        except LimitsError:
            return
        raise AssertionError(f"limits accepted: {scenario}")
    outcome = Outcome(scenario, **options)
    words = {**outcome.words(), "__builtins__": BUILTINS}
    assert eval(expression, words), outcome.summary()


def limits_of(scenario: Scenario) -> Limits:
    return Limits(
        max_kv_blocks=scenario.blocks,
        block_size=scenario.block_size,
        chunk_size=scenario.chunk,
        token_budget=scenario.budget,
        max_batch_size=scenario.batch,
    )


class Outcome:
    """A scenario that was run; every basic invariant held after each of its steps."""

    def __init__(
        self,
        scenario: Scenario,
        policy: str | Policy = "stall-free",
        failing_calls: Iterable[int] = (),
    ) -> None:
        limits = limits_of(scenario)
        self.recorder = Recorder()
        self.gpu = ScriptedGPU(limits, failing_calls)
        self.scheduler = Scheduler(limits, policy, self.gpu, observer=self.recorder)
        self.recorder.watch(self.scheduler)
        self.requests: dict[str, Request] = {}
        self.expected: dict[str, list[int]] = {}
        self.rejected: set[str] = set()
        self.submitted_at: dict[str, int] = {}
        self.token_ticks: dict[str, list[int]] = {}
        """Id -> the tick of each of its output tokens."""
        self.done_at: dict[str, int] = {}
        for step in scenario.steps:
            self._take(step)
            assert_invariants(self.scheduler)
            self._assert_tokens()

    def _take(self, step: Step) -> None:
        match step:
            case Submit():
                self._submit(step)
            case Tick(count):
                for _ in range(count):
                    self._tick()
            case Run():
                while self.scheduler.has_active():
                    assert len(self.recorder.log) < TICKS_MAX, f"no end: {self.summary()}"
                    self._tick()
            case Cancel("*"):
                live = [i for i, request in self.requests.items() if request.phase != "done"]
                assert all(self.scheduler.cancel(request_id) for request_id in live)
            case Cancel(request_id):
                known = self.requests.get(request_id)
                live_now = known is not None and known.phase != "done"
                assert self.scheduler.cancel(request_id) == live_now

    def _submit(self, step: Submit) -> None:
        prompt = prompt_of(step.request_id, step.prompt)
        request = Request(step.user, prompt, step.max_tokens, step.request_id)
        self.submitted_at[step.request_id] = len(self.recorder.log)
        self.token_ticks[step.request_id] = []
        self.done_at.pop(step.request_id, None)
        if step.eos_at is not None:
            self.gpu.eos_at[step.request_id] = step.max_tokens - step.eos_at + 1
        try:
            self.scheduler.submit(request)
        except RequestError:
            self.rejected.add(step.request_id)
            return
        self.requests[step.request_id] = request
        self.expected[step.request_id] = self.gpu.expected_output(request)

    def _tick(self) -> None:
        before = {request_id: len(r.generated) for request_id, r in self.requests.items()}
        try:
            ended = self.scheduler.tick()
        except DeviceFailedError:
            assert_invariants(self.scheduler)
            return  # the tick did not happen
        tick = len(self.recorder.log)
        for request in ended:
            self.done_at[request.request_id] = tick
        for request_id, request in self.requests.items():
            gained = len(request.generated) - before[request_id]
            assert gained in (0, 1)
            self.token_ticks[request_id] += [tick] * gained
        assert_invariants(self.scheduler)

    def _assert_tokens(self) -> None:
        """Rule 8: whatever the company, the tokens are those of a life alone."""
        for request_id, request in self.requests.items():
            got, expected = request.generated, self.expected[request_id]
            if request.finish_reason == "eos":
                assert got[-1] == self.gpu.limits.eos_token
                got = got[:-1]
            assert got == expected[: len(got)], f"{request_id}: tokens differ from a life alone"

    def words(self) -> dict[str, Any]:
        """Return the names that a check may use."""
        live = self.scheduler.stats()["live"]
        preempted = [
            request_id for _, request_id, what in self.recorder.events if what == "preempt"
        ]
        return {
            "st": {i: self._state(i) for i in self.submitted_at},
            "first": {i: next(iter(ticks), None) for i, ticks in self.token_ticks.items()},
            "done": self.done_at,
            "out": {i: len(ticks) for i, ticks in self.token_ticks.items()},
            "pre": {i: preempted.count(i) for i in self.submitted_at},
            "npre": len(preempted),
            "log": self.recorder.log,
            "ev": self.recorder.events,
            "free": live["free_blocks"],
            "nrun": live["prefilling"] + live["decoding"],
            "nwait": live["waiting"],
            "t": len(self.recorder.log),
            "t0": self.submitted_at,
            "stats": self.scheduler.stats(),
            "chunks": self.chunks,
            "start": self.start,
            "gap": self.gap,
            "served": self.served,
            "alternates": self.alternates,
            "abs_dev": self.abs_dev,
        }

    def _state(self, request_id: str) -> str:
        request = self.requests.get(request_id)
        if request is None:
            return "rejected"
        phases = {"waiting": "waiting", "prefilling": "running", "decoding": "running"}
        return phases.get(request.phase or "", request.finish_reason or "?")

    def chunks(self, request_id: str) -> list[int]:
        """Return the tokens fed of its context before its first token, tick by tick."""
        last = next(iter(self.token_ticks[request_id]), len(self.recorder.log))
        fed = (tick.get(request_id) for tick in self.recorder.log[:last])
        return [tokens for tokens in fed if tokens is not None]

    def start(self, request_id: str) -> int:
        """Return the tick in which it is fed first."""
        return next(t for t, fed in enumerate(self.recorder.log, start=1) if request_id in fed)

    def gap(self, request_id: str) -> int:
        """Return the most ticks between two of its tokens."""
        ticks = self.token_ticks[request_id]
        return max(later - earlier for earlier, later in itertools.pairwise(ticks))

    def served(self, user: str) -> int:
        """Return the tokens fed of all requests of a user."""
        return sum(
            tokens
            for fed in self.recorder.log
            for request_id, tokens in fed.items()
            if self.requests[request_id].user_id == user
        )

    def alternates(self) -> bool:
        """Tell whether A# and B# are served in turn, as long as both wait."""
        order = [i[0] for i in sorted(self.done_at, key=self.done_at.__getitem__) if i[0] in "AB"]
        return all(one != other for one, other in itertools.pairwise(order))

    def abs_dev(self, most: int) -> bool:
        """Tell whether B# and E# are at no time more than `most` requests apart."""
        ahead, furthest = 0, 0
        for request_id in sorted(self.done_at, key=self.done_at.__getitem__):
            ahead += {"B": 1, "E": -1}.get(request_id[0], 0)
            furthest = max(furthest, abs(ahead))
        return furthest <= most

    def summary(self) -> str:
        words = self.words()
        shown = ("st", "first", "done", "out", "pre", "free", "t")
        lines = [f"{name} = {words[name]}" for name in shown]
        return "\n".join([*lines, f"log = {self.recorder.log[:12]}", f"ev = {words['ev'][:30]}"])

"""The real scheduler at full scale as a state machine of Hypothesis, and what its runs reached."""

from collections import Counter
from collections.abc import Sequence
from math import inf
from typing import Any
from zlib import crc32

import pytest
from hypothesis import event, target
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from support.builders import prompt_of
from support.core_checks import assert_invariants, blocks_of, live_sequences

from batchproof import Limits, Request, Scheduler, SimulatedGPU
from batchproof.sched.config import ADMISSIONS
from batchproof.sched.errors import ExecutorError, QueueFullError, RequestError
from batchproof.sched.observer import SilentObserver
from batchproof.sched.policy import POLICIES, make_policy

BUDGETS = (100, 512)
SEATS = (40, 64)
USERS = 12
EOS_EVERY = (0, 15, 60)
"""One token in so many is EOS; none for 0."""
NEVER = (inf, inf)
WITHIN_S = ((0.3, inf), (3.0, inf), (inf, 0.2), (4.0, 0.5))
"""Seconds until a request expires, and until it does unless it is admitted."""
QUEUE_BOUNDS: tuple[dict[str, int], ...] = (
    {},
    {"max_waiting_requests": 60, "max_waiting_requests_per_user": 12},
    {"max_waiting_tokens": 9_000, "max_waiting_tokens_per_user": 2_000, "max_passes": 3},
)
SIZES = {"short": (3, 5), "medium": (150, 20), "long": (700, 10), "growing": (30, 110)}
"""Kind -> about how many prompt tokens, and how many output tokens at most."""
FAILURES = ("raises before", "raises after", "too few tokens", "too many tokens", "no token ids")

REACHED: Counter[str] = Counter()
"""What the runs of this process reached: the summary that the test shows and asserts."""


def reached(what: str, times: int = 1) -> None:
    """Sum up something that occurred, and tell Hypothesis."""
    if times:
        REACHED[what] += times
        event(what)


class Model:
    """A simulated GPU whose EOS comes as chosen, and that fails where told."""

    def __init__(self, limits: Limits, now: float = 0.0) -> None:
        self.gpu = SimulatedGPU(limits, eos_rate=0)
        self.gpu.wait_until(now)
        self.eos_every = EOS_EVERY[-1]
        self.failure: str | None = None
        self.chosen: set[str] = set()
        """Requests whose token of the last batch was EOS."""

    def forward(self, batch: Sequence[Any]) -> Any:
        failure, self.failure = self.failure, None
        if failure == "raises before":
            raise ConnectionError(failure)
        tokens = self.gpu.forward(batch)
        if failure == "raises after":
            raise ConnectionError(failure)
        self.chosen = set()
        for index, share in enumerate(batch):
            if not share.yields:
                tokens[index] = 0  # must be thrown away
            elif self._is_eos(share):
                tokens[index] = 0
                self.chosen.add(share.request_id)
        wrong: dict[str | None, Any] = {
            "too few tokens": tokens[:-1],
            "too many tokens": [*tokens, 1],
            "no token ids": [-1] * len(tokens),
        }
        return wrong.get(failure, tokens)

    def now(self) -> float:
        return self.gpu.now()

    def _is_eos(self, share: Any) -> bool:
        """Choose; the first token after a recomputation is EOS more often, being rare."""
        recomputed = share.preemptions and len(share.tokens) > 1
        every = min(self.eos_every, 3) if recomputed else self.eos_every
        return bool(every) and crc32(f"{share.request_id} {self.now()}".encode()) % every == 0


class Seen(SilentObserver):
    """Sums up what the ticks did."""

    def ticked(self, batch: Any, tokens: Sequence[int], ended: Sequence[Any], now: float) -> None:
        reached("preemption", len(batch.preempted))
        reached("growth", len(batch.grown))
        for sequence in batch[batch.chunks_from :]:
            reached("chunk of a longer prefill", sequence.scheduled < sequence.context_len)
        firsts = {id(sequence): sequence for sequence in batch[batch.chunks_from :]}
        for sequence in ended:
            reached(f"end by {'EOS' if sequence.generated[-1] == 0 else 'length'}")
            if sequence.generated[-1] == 0 and sequence.preemptions and id(sequence) in firsts:
                reached("EOS on the first token after a recomputation")


class FullScale(RuleBasedStateMachine):
    """Users and an executor that do as they like, with 256 blocks and chunks of 64 tokens."""

    @initialize(
        policy=st.sampled_from(sorted(POLICIES)),
        admission=st.sampled_from((*ADMISSIONS, "max_utilization")),
        budget=st.sampled_from(BUDGETS),
        seats=st.sampled_from(SEATS),
        bounds=st.sampled_from(QUEUE_BOUNDS),
    )
    def start(
        self, policy: str, admission: Any, budget: int, seats: int, bounds: dict[str, int]
    ) -> None:
        """Make the scheduler, with several users at work already."""
        self.limits = Limits(token_budget=budget, max_batch_size=seats, **bounds)
        self.model = Model(self.limits)
        self.scheduler = Scheduler(
            self.limits,
            make_policy(policy, admission),
            self.model,
            observer=Seen(),
            monitor=True,
        )
        self.names = 0
        self.prompts: dict[str, tuple[list[int], int]] = {}
        """Live request -> its prompt and max_tokens, as submitted."""
        self.times: dict[str, tuple[float, float]] = {}
        """Live request -> its deadline, and when it is to be admitted for the first time."""
        self.lines: dict[str, list[tuple[Request, int]]] = {}
        """User -> its requests never admitted, by place, and how often each was passed."""
        self.unreported: set[str] = set()
        """Requests that have expired, and that no tick has returned yet."""
        self.full = 0
        """Ticks after which no block was free."""
        self.submit("growing", 40, 0, spread=True, within=NEVER, priority=1)
        self.submit("growing", 10, 0, spread=True, within=(1.0, inf), priority=1)

    # --- users ----------------------------------------------------------------

    @rule(
        kind=st.sampled_from(sorted(SIZES)),
        count=st.integers(1, 20),
        user=st.integers(0, USERS - 1),
        spread=st.booleans(),
        within=st.sampled_from((NEVER, NEVER, *WITHIN_S)),
        priority=st.integers(0, 2),
    )
    def submit(
        self,
        kind: str,
        count: int,
        user: int,
        spread: bool,
        within: tuple[float, float],
        priority: int,
    ) -> None:
        """Submit some requests of about one size, of one user or of several."""
        prompt, most = SIZES[kind]
        for index in range(count):
            whose = (user + index * spread) % USERS
            name = f"r{self.names}"
            size = (prompt + 7 * index % 50, most + index % 9)
            self._submit(name, f"u{whose}", *size, within=within, priority=priority)
            self.names += 1
        self._check()

    @precondition(lambda self: self.prompts)
    @rule()
    def submit_bad(self) -> None:
        """Submit what must be refused: the scheduler is as it was, but for the count of it."""
        bad = {
            "infeasible": Request("u0", [1] * 4096, 2, "bad"),
            "empty": Request("u0", [], 1, "bad"),
            "no tokens": Request("u0", [1], 0, "bad"),
            "duplicate": Request("u0", [1], 1, next(iter(self.prompts))),
            "no user": Request("", [1], 1, "bad"),
            "a deadline that is over": Request("u", [1], 1, "bad", deadline_s=self.model.now()),
            "no patience": Request("u", [1], 1, "bad", max_queue_time_s=0),
        }
        before = self._core()
        for what, request in bad.items():
            with pytest.raises(RequestError):
                self.scheduler.submit(request)
            reached(f"refused: {what}")
        assert self._core() == before, "a refused request left a trace"

    @precondition(lambda self: self.prompts)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """Cancel a live request; its id can be used again at once."""
        by_phase: dict[str, list[Request]] = {}
        for live in self.scheduler.active_requests():
            by_phase.setdefault(str(live.phase), []).append(live)
        phase = data.draw(st.sampled_from(sorted(by_phase)), label="phase")
        request = data.draw(st.sampled_from(by_phase[phase]), label="cancelled")
        reached(f"cancelled while {request.phase}")
        assert self.scheduler.cancel(request.request_id)
        assert not self.scheduler.cancel(request.request_id), "cancelled twice"
        assert request.finish_reason == "cancelled"
        self._forget(request)
        if data.draw(st.booleans(), label="again"):
            self._submit(request.request_id, request.user_id, 20, 5)
            reached("an id used again")
        self._check()

    # --- the executor -----------------------------------------------------------

    @precondition(lambda self: self.prompts)
    @rule(ticks=st.sampled_from([2, 15, 60]))
    def tick(self, ticks: int) -> None:
        """Run some iterations."""
        for remaining in reversed(range(ticks)):
            self._tick(check=remaining % 8 == 0)

    @precondition(lambda self: self.prompts)
    @rule(seconds=st.sampled_from([0.25, 2.0]))
    def pause(self, seconds: float) -> None:
        """Let time pass without a tick; who expires then does so in one that is given up."""
        self.model.gpu.wait_until(self.model.now() + seconds)
        self._let_expire()
        self._check()

    @precondition(lambda self: self.prompts)
    @rule(failures=st.permutations(FAILURES))
    def failed_ticks(self, failures: Sequence[str]) -> None:
        """Let the executor fail: nothing of the tick happened, and it can be tried again."""
        for failure in failures[:3]:
            self._let_expire()
            if not self.prompts:
                break
            before = self.scheduler.snapshot()
            self.model.failure = failure
            with pytest.raises((ConnectionError, ExecutorError)):
                self.scheduler.tick()
            reached(f"failed tick: {failure}")
            assert self.scheduler.snapshot() == before, "a failed tick left a trace"
        self._tick()

    @precondition(lambda self: self.prompts)
    @rule(lost=st.booleans())
    def restore(self, lost: bool) -> None:
        """Go on from a snapshot, on the same GPU or on a new one that has forgotten everything."""
        taken = self.scheduler.snapshot()
        residents = sum(bool(request["blocks"]) for request in taken["requests"])
        if lost:
            self.model = Model(self.limits, self.model.now())
        self.scheduler = Scheduler.restore(
            taken, executor=self.model, observer=Seen(), monitor=True, memory_lost=lost
        )
        if not lost:
            assert self.scheduler.snapshot() == taken
        reached("restored, memory lost" if lost else "restored")
        reached("resident recomputed after a restart", residents * lost)
        self._check()

    @precondition(lambda self: self.prompts)
    @rule(every=st.sampled_from(EOS_EVERY), ticks=st.integers(1, 10))
    def change_eos(self, every: int, ticks: int) -> None:
        """Change which requests hit EOS from here on."""
        self.model.eos_every = every
        self.tick(ticks)

    def teardown(self) -> None:
        """Let everybody finish: an accepted request always ends."""
        if not hasattr(self, "scheduler"):
            return
        patience = sum(len(prompt) + most for prompt, most in self.prompts.values()) + 10
        while self.prompts or self.unreported:
            assert patience, f"not at an end: {self.scheduler.stats()['live']}"
            patience -= 1
            self._tick(check=patience % 16 == 0)
        assert not self.scheduler.has_active()
        self._check()
        stats = self.scheduler.stats()
        assert stats["preemptions"] == sum(u["preemptions"] for u in stats["users"].values())
        assert stats["live"]["free_blocks"] == self.limits.max_kv_blocks
        target(float(self.full), label="ticks with a full pool")
        target(float(stats["preemptions"]), label="preemptions")

    # --- what is checked ----------------------------------------------------------

    def _submit(
        self,
        name: str,
        user: str,
        prompt: int,
        most: int,
        within: tuple[float, float] = NEVER,
        priority: int = 0,
    ) -> None:
        tokens = prompt_of(name, prompt)
        now = self.model.now()
        deadline, patience = within
        request = Request(
            user,
            tokens,
            most,
            name,
            priority=priority,
            deadline_s=now + deadline if deadline < inf else None,
            max_queue_time_s=patience if patience < inf else None,
        )
        if self._has_room(user, prompt):
            self.scheduler.submit(request)
            self.prompts[name] = (tokens, most)
            self.times[name] = (now + deadline, now + patience)
            self._take_a_place(request)
            return
        before = self._core()
        with pytest.raises(QueueFullError):
            self.scheduler.submit(request)
        assert self._core() == before, "a request refused by a full queue left a trace"
        reached("refused: queue full")

    def _take_a_place(self, request: Request) -> None:
        """Work out the user's line anew: who was never admitted, and how often each was passed."""
        line = self._line(request.user_id)
        place = len(line)
        while place:
            ahead, passed = line[place - 1]
            if ahead.priority >= request.priority or passed >= self.limits.max_passes:
                break
            line[place - 1] = (ahead, passed + 1)
            place -= 1
        reached("passed by a more urgent one", len(line) - place)
        line.insert(place, (request, 0))

    def _line(self, user: str) -> list[tuple[Request, int]]:
        """Return a user's line without those that were admitted meanwhile."""
        live = live_sequences(self.scheduler)
        fresh = {seq.request_id for seq in live if not seq.was_admitted}
        line = [entry for entry in self.lines.get(user, []) if entry[0].request_id in fresh]
        self.lines[user] = line
        return line

    def _check_lines(self) -> None:
        """Check that who was never admitted waits in the order that priorities give."""
        for user, waiting in self.scheduler._roster.view.waiting_by_user.items():
            found = [seq.request_id for seq in waiting if not seq.was_admitted]
            assert [request.request_id for request, _ in self._line(user)] == found, user

    def _has_room(self, user: str, prompt: int) -> bool:
        """Count what waits, one by one, and say whether one more is within every bound."""
        waiting = [seq for seq in live_sequences(self.scheduler) if seq.phase == "waiting"]
        mine = [seq for seq in waiting if seq.user_id == user]
        would_be = {
            "max_waiting_requests": len(waiting) + 1,
            "max_waiting_requests_per_user": len(mine) + 1,
            "max_waiting_tokens": sum(_context(seq) for seq in waiting) + prompt,
            "max_waiting_tokens_per_user": sum(_context(seq) for seq in mine) + prompt,
        }
        return all(would_be[name] <= most for name, most in self.limits.queue_bounds.items())

    def _tick(self, *, check: bool = True) -> None:
        if not self.scheduler.has_active():
            return
        due = self.unreported | self._due()
        self.model.chosen = set()
        ended = self.scheduler.tick()
        assert {r.request_id for r in ended if r.finish_reason == "eos"} == self.model.chosen
        expired = [r.request_id for r in ended if r.finish_reason == "expired"]
        assert sorted(expired) == sorted(due), "who has expired is returned, once"
        for request in ended:
            if request.request_id in self.unreported:
                continue
            assert request.request_id in self.prompts, f"{request} is reported and not live"
            self._forget(request)
        self.unreported = set()
        for request in self.scheduler.active_requests():
            if request.phase != "waiting":
                self._was_admitted(request.request_id)
        held = sum(map(len, blocks_of(self.scheduler).values()))
        self.full += held == self.limits.max_kv_blocks
        reached("full pool", held == self.limits.max_kv_blocks)
        if check:
            self._check()

    def _due(self) -> set[str]:
        """Look through all live requests for those whose time has come."""
        now = self.model.now()
        return {name for name, times in self.times.items() if min(times) <= now}

    def _was_admitted(self, name: str) -> None:
        deadline, _ = self.times[name]
        self.times[name] = (deadline, inf)

    def _let_expire(self) -> None:
        """Let the requests expire whose time has come, by a tick that is given up."""
        due = self._due()
        requests = {r.request_id: r for r in self.scheduler.active_requests()}
        batch = self.scheduler.schedule()
        assert not due & {share.request_id for share in batch}, "it has expired and is scheduled"
        self.scheduler.abandon(batch)
        for name in due:
            assert requests[name].finish_reason == "expired"
            self._forget(requests[name])
            self.unreported.add(name)
            reached("expired though the tick was given up")

    def _forget(self, request: Request) -> None:
        """Take a request that has ended."""
        self._check_tokens(request)
        if request.finish_reason == "expired":
            reached(f"expired after {'tokens' if request.generated else 'none'}")
        del self.prompts[request.request_id], self.times[request.request_id]
        line = self.lines[request.user_id]
        line[:] = [entry for entry in line if entry[0].request_id != request.request_id]

    def _check_tokens(self, request: Request) -> None:
        """Check the tokens against those of the request alone, which EOS cuts short."""
        prompt, most = self.prompts[request.request_id]
        alone = self.model.gpu.expected_output(Request("u", prompt, most, "alone"))
        by_eos = request.finish_reason == "eos"
        count = len(request.generated) - by_eos
        assert request.generated == alone[:count] + [0] * by_eos, f"{request} is not as if alone"
        assert request.finish_reason != "length" or count == most

    def _check(self) -> None:
        assert_invariants(self.scheduler)
        self._check_lines()
        assert [r.request_id for r in self.scheduler.active_requests()] == list(self.prompts)

    def _core(self) -> dict[str, Any]:
        taken = self.scheduler.snapshot()
        return {name: value for name, value in taken.items() if name not in ("metrics", "digest")}


def _context(sequence: Any) -> int:
    return sequence.prompt_len + len(sequence.generated)

"""One process's part of a soak case: the scheduler driven by the script, and all of it checked."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from zlib import crc32

from batchproof.sched.errors import BatchproofError, ExecutorError, QueueFullError, RequestError
from batchproof.sched.executor import ScheduledSequence
from batchproof.sched.inference_stub import SimulatedGPU
from batchproof.sched.policy.registry import make_policy
from batchproof.sched.request import Request
from batchproof.sched.scheduler import Scheduler
from batchproof.sched.soak_case import Case, Failure, Submission, quiet

_PATIENCE: Final = 20


class SoakFailure(BatchproofError, AssertionError):  # noqa: N818 - it is what is looked for
    """Something was lost, reported twice, wrong, or left a trace: `what`, in a few words."""

    def __init__(self, tick: int, what: str, detail: str) -> None:
        super().__init__(f"tick {tick}: {what}: {detail}")
        self.what = what


class FlakyGPU:
    """A simulated GPU that fails once when told to, and calls `before_forward` first."""

    def __init__(self, case: Case, now: float, before_forward: Callable[[], None]) -> None:
        self.gpu = SimulatedGPU(case.limits, seed=case.seed, eos_rate=case.eos_rate)
        self.gpu.wait_until(now)
        self.failure: Failure | None = None
        self._before_forward = before_forward

    def forward(self, batch: Sequence[ScheduledSequence]) -> list[int]:
        """Run the batch; raise ConnectionError or return what no batch yields, if told to."""
        failure, self.failure = self.failure, None
        self._before_forward()
        if failure == "raises before":
            raise ConnectionError(failure)
        tokens = self.gpu.forward(batch)
        if failure == "raises after":
            raise ConnectionError(failure)
        wrong = {
            "too few tokens": tokens[1:],
            "too many tokens": [*tokens, 1],
            "not ids": [-1 for _ in tokens],
        }
        return tokens if failure is None else wrong[failure]

    def now(self) -> float:
        """Return the virtual time."""
        return self.gpu.now()


class Run:
    """A case from its start, or from what was committed, to its end, one `step` at a time.

    `ticks` cuts the script short. `monitor` holds every tick against the rules;
    `judge` holds tokens, reports and traces against what they should be; `check`
    is asked after every step. Each raises at what it finds.
    """

    def __init__(
        self,
        case: Case,
        ticks: int | None = None,
        *,
        committed: Mapping[str, Any] | None = None,
        monitor: bool = True,
        judge: bool = True,
        check: Callable[[Scheduler], None] = lambda scheduler: None,
        before_forward: Callable[[], None] = lambda: None,
    ) -> None:
        self.case = case
        self.ticks = case.ticks if ticks is None else ticks
        self.tick = 0
        self.accepted: dict[str, Submission] = {}
        self.done: dict[str, str] = {}
        """Request that ended -> its finish reason."""
        self.counts: Counter[str] = Counter()
        self._monitor, self._judge, self._check = monitor, judge, check
        self._before_forward = before_forward
        if committed is None:
            self._gpu = FlakyGPU(case, 0.0, before_forward)
            policy = make_policy(case.policy, case.admission)
            self.scheduler = Scheduler(case.limits, policy, self._gpu, monitor=monitor)
        else:
            self._take_up(committed)

    def _take_up(self, committed: Mapping[str, Any]) -> None:
        self.tick = committed["tick"]
        self.accepted = {name: Submission(*what) for name, what in committed["accepted"].items()}
        self.done = dict(committed["done"])
        self.counts = Counter(committed["counts"])
        self._gpu = FlakyGPU(self.case, committed["now"], self._before_forward)
        self.scheduler = Scheduler.restore(
            committed["scheduler"], executor=self._gpu, memory_lost=True, monitor=self._monitor
        )

    def committed(self) -> dict[str, Any]:
        """Return all that a new process needs to go on: what is told to users, and what is not."""
        return {
            "tick": self.tick,
            "now": self._gpu.now(),
            "scheduler": self.scheduler.snapshot(),
            "accepted": self.accepted,
            "done": self.done,
            "counts": self.counts,
        }

    def to_the_end(self) -> None:
        """Run what is left of the case."""
        while not self.is_over():
            self.step()
        self.finish()

    def is_over(self) -> bool:
        """Tell whether the script has ended and nobody is live."""
        return self.tick >= self.ticks and not self.scheduler.has_active()

    def step(self) -> bool:
        """Do what the script says of one tick; return whether a snapshot is due."""
        script = self.case.script(self.tick) if self.tick < self.ticks else quiet(self.tick)
        for submission in script.submissions:
            self._submit(submission)
        if script.refused:
            self._submit_what_is_refused()
        for place in script.cancels:
            self._cancel(place)
        if script.restarts is not None:
            self._restart(lost=script.restarts == "memory lost")
        if script.failure is not None and self.scheduler.has_active():
            self._fail(script.failure)
        now = self._gpu.now()
        for request in self.scheduler.tick():
            self._report(request)
        self._judge_times(now)
        self.tick += 1
        self.counts["ticks"] += 1
        self._check(self.scheduler)
        work = sum(s.prompt + s.max_tokens for s in self.accepted.values())
        self._claim(
            self.tick <= self.ticks + _PATIENCE * work, "no end", f"live after {self.tick} ticks"
        )
        return script.commits

    def finish(self) -> None:
        """Hold what was reported against what was accepted."""
        lost = [name for name in self.accepted if name not in self.done]
        self._claim(not lost, "lost", ", ".join(lost))
        stats = self.scheduler.stats()
        free = stats["live"]["free_blocks"]
        self._claim(
            free == self.case.limits.max_kv_blocks, "blocks leaked", f"{free} are free at the end"
        )
        self._judge_counts(stats)
        self.counts["preemptions"] = stats["preemptions"]

    def _judge_counts(self, stats: dict[str, Any]) -> None:
        """Hold every count against what was seen (rule 10)."""
        seen, ended = self.counts, Counter(self.done.values())
        finished = ended["eos"] + ended["length"]
        due = {
            "submitted": seen["requests"] + seen["refused"],
            "finished": finished,
            "cancelled": seen["cancelled"],
            "expired": ended["expired"],
            "refused": seen["refused"],
            "live": 0,
            "by eos": ended["eos"],
            "by length": ended["length"],
            "latencies": finished,
            "output tokens": seen["output_tokens"],
            "preemptions": sum(user["preemptions"] for user in stats["users"].values()),
        }
        counted = {
            **stats["requests"],
            "by eos": stats["finish_reasons"]["eos"],
            "by length": stats["finish_reasons"]["length"],
            "latencies": self.scheduler.snapshot()["metrics"]["quantiles"]["latency"]["count"],
            "output tokens": stats["tokens"]["output"],
            "preemptions": stats["preemptions"],
        }
        self._claim(counted == due, "counts", f"counted {counted}, seen {due}")

    def _submit(self, submission: Submission) -> None:
        deadline = submission.deadline_after_s
        request = Request(
            submission.user_id,
            _prompt(submission.request_id, submission.prompt),
            submission.max_tokens,
            submission.request_id,
            priority=submission.priority,
            deadline_s=None if deadline is None else self._gpu.now() + deadline,
            max_queue_time_s=submission.max_queue_time_s,
        )
        try:
            self.scheduler.submit(request)
        except QueueFullError as full:
            bounds = self.case.limits.queue_bounds
            self._claim(full.would_be > bounds[full.limit], "refused", str(full))
            self.counts["refused"] += 1
            return
        self.accepted[submission.request_id] = submission
        self.counts["requests"] += 1

    def _submit_what_is_refused(self) -> None:
        limits = self.case.limits
        bad = [
            Request("u0", [1] * (limits.max_kv_blocks * limits.block_size), 2, "infeasible"),
            Request("u0", [], 1, "empty"),
        ]
        bad += [Request("new", [1], 1, r.request_id) for r in self.scheduler.active_requests()[:1]]
        before = self._trace()
        for request in bad:
            with suppress(RequestError):
                self.scheduler.submit(request)
                self._claim(False, "accepted what is to be refused", repr(request))
            self.counts["refused"] += 1
        self._claim(self._trace() == before, "trace left", "by a refused request")

    def _cancel(self, place: float) -> None:
        live = self.scheduler.active_requests()
        if not live:
            return
        request = live[int(place * len(live))]
        there = self.scheduler.cancel(request.request_id)
        again = self.scheduler.cancel(request.request_id)
        self._claim(there and not again, "cancel", f"{request!r}: {there}, then {again}")
        self._claim(request.finish_reason == "cancelled", "cancel", repr(request))
        self.counts["cancelled"] += 1
        self._report(request)

    def _restart(self, *, lost: bool) -> None:
        taken = self.scheduler.snapshot()
        if lost:
            self._gpu = FlakyGPU(self.case, self._gpu.now(), self._before_forward)
        self.scheduler = Scheduler.restore(
            taken, executor=self._gpu, memory_lost=lost, monitor=self._monitor
        )
        self._claim(lost or self.scheduler.snapshot() == taken, "trace left", "by a restart")
        self.counts["restores"] += 1

    def _fail(self, failure: Failure) -> None:
        self.scheduler.abandon(self.scheduler.schedule())  # whose time has come expires for good
        if not self.scheduler.active_requests():
            return
        before = self.scheduler.snapshot()
        self._gpu.failure = failure
        with suppress(ConnectionError, ExecutorError):
            self.scheduler.tick()
            self._claim(False, "failure unnoticed", failure)
        self._claim(self.scheduler.snapshot() == before, "trace left", f"by an executor: {failure}")
        self.counts["failed_ticks"] += 1

    def _report(self, request: Request) -> None:
        """Take a request that the scheduler says has ended."""
        name = request.request_id
        self._claim(name not in self.done, "reported twice", name)
        self._claim(name in self.accepted, "never submitted", name)
        self.done[name] = str(request.finish_reason)
        self.counts["expired"] += request.finish_reason == "expired"
        self.counts["output_tokens"] += len(request.generated)
        if name in self.accepted:
            self._judge_tokens(request, self.accepted[name])

    def _judge_tokens(self, request: Request, submission: Submission) -> None:
        if not self._judge:
            return
        name, user, length, max_tokens, *_ = submission
        alone = self._gpu.gpu.expected_output(
            Request(user, _prompt(name, length), max_tokens, name)
        )
        seen, reason = request.generated, request.finish_reason
        due = "eos" if alone[-1] == self.case.limits.eos_token else "length"
        if reason in ("cancelled", "expired"):
            right = seen == alone[: len(seen)] and len(seen) < len(alone)
        else:
            right = (seen, reason) == (alone, due)
        self._claim(right, "wrong tokens", f"{name}: {seen} ({reason}); alone {alone} ({due})")

    def _judge_times(self, now: float) -> None:
        """Hold who is live against what the clock said when the tick began (rule 9)."""
        over = [
            request.request_id
            for request in self.scheduler.active_requests()
            if request.deadline_s is not None and request.deadline_s <= now
        ]
        self._claim(not over, "live after its deadline", ", ".join(over))

    def _trace(self) -> dict[str, Any]:
        """Return what a refusal must leave as it was: all but the figures, which count it."""
        taken = self.scheduler.snapshot()
        return {name: value for name, value in taken.items() if name not in ("metrics", "digest")}

    def _claim(self, holds: bool, what: str, detail: str) -> None:
        if self._judge and not holds:
            raise SoakFailure(self.tick, what, detail)


def _prompt(request_id: str, length: int) -> list[int]:
    """Return a prompt that no other request has, so that a mix-up changes tokens."""
    start = crc32(request_id.encode())
    return [1 + (start + 7919 * index) % 30_000 for index in range(length)]

"""The tick coordinator: carries out what the policy planned, and nothing the rules forbid."""

from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from math import inf
from typing import TYPE_CHECKING, Any, cast

from batchproof.sched import lifecycle, snapshot
from batchproof.sched.acceptance import accepted_prompt
from batchproof.sched.backpressure import Backpressure
from batchproof.sched.batch import Batch, checked_tokens
from batchproof.sched.config import ADMISSIONS, Limits
from batchproof.sched.errors import (
    LimitsError,
    MisuseError,
    RequestError,
)
from batchproof.sched.executor import Executor
from batchproof.sched.expiry import Expiry
from batchproof.sched.metrics import Metrics
from batchproof.sched.observer import Observer, Observers
from batchproof.sched.planning import check_plan
from batchproof.sched.policy.protocol import Plan, Policy, stateful
from batchproof.sched.policy.registry import DEFAULT_POLICY, make_policy
from batchproof.sched.request import Request, Sequence
from batchproof.sched.roster import Roster
from batchproof.sched.weights import checked_weight, plain
from batchproof.spec.lifecycle import (
    FinishReason,
)

if TYPE_CHECKING:
    from batchproof.sched.monitor import Monitor


class Scheduler:
    """Continuous batching under a hard KV-memory cap, by the rules of the specification.

    `policy` is the name of a shipped policy or an object of your own; `executor`
    runs the batches (default: a `SimulatedGPU`). With `monitor`, every tick is held
    against the rules while it runs: True raises `ViolationError` at the first
    violation, a `Monitor` of your own does what it was made to do. `weights` are
    users' weights, by id: shares are in proportion to them, under policies that know
    users. Raises `LimitsError` for an unknown policy, and for a weight that is none.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        policy: str | Policy = DEFAULT_POLICY,
        executor: Executor | None = None,
        *,
        observer: Observer | None = None,
        monitor: "bool | Monitor" = False,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        if limits is None:
            limits = Limits()
        elif not isinstance(limits, Limits):
            raise LimitsError(f"limits: {limits!r} is not a Limits")
        if executor is None:
            from batchproof.sched.inference_stub import SimulatedGPU

            executor = SimulatedGPU(limits)
        self.limits = limits
        self.policy = make_policy(policy) if isinstance(policy, str) else policy
        if getattr(self.policy, "admission", None) not in ADMISSIONS:
            raise LimitsError(
                f"policy: {policy!r} is neither a policy's name nor an object with an `admission` "
                f"of {' or '.join(ADMISSIONS)}"
            )
        self.executor = executor
        self._roster = Roster(limits, self.policy.admission)
        self._backpressure = Backpressure(limits, self._roster.waiting)
        self.monitor: Monitor | None = None
        """What holds every tick against the rules, if one was asked for."""
        self._observe(observer, monitor)
        self._stateful = stateful(self.policy)
        self._expiry = Expiry()
        self._unreported: list[Sequence] = []
        """Requests that have expired since the last tick that was completed."""
        self._batch: Batch | None = None
        self._plan = Plan()
        self._submissions = 0
        self._last_tick_at = 0.0
        self._metrics = Metrics(limits.max_kv_blocks)
        for user_id, weight in (weights or {}).items():
            self._roster.users.set_weight(user_id, checked_weight(user_id, weight))

    def submit(self, request: Request, *, submitted_at: float | None = None) -> None:
        """Accept a request, or refuse it and stay as before.

        `submitted_at` is when it reached the system, in the executor's seconds,
        where that was before now: latencies run from there. Raises
        `InvalidRequestError`, `InfeasibleRequestError`, `DuplicateRequestError` or
        `QueueFullError` (rule 4), `MisuseError` for a `submitted_at` that is no time,
        or is yet to come.
        """
        now = self.executor.now()
        if submitted_at is None:
            submitted_at = now
        elif not (isinstance(submitted_at, int | float) and -inf < submitted_at <= now):
            raise MisuseError(
                f"submit: submitted_at is {submitted_at!r}, not a number of seconds, at most the "
                f"{now!r} that it is now; leave it out to mean now"
            )
        try:
            prompt = accepted_prompt(request, self._roster, self._backpressure, now)
        except RequestError as error:
            self._metrics.refused(getattr(request, "user_id", None))
            if self._observer is not None:
                self._observer.refused(request, error)
            raise
        request.generated = []
        request.finish_reason = None
        sequence = Sequence(request, prompt, self._submissions, submitted_at)
        self._submissions += 1
        self._roster.enter(sequence)
        self._roster.advance(sequence)
        self._expiry.enter(sequence)
        self._metrics.submitted(sequence)
        if self._observer is not None:
            self._observer.submitted(sequence)

    def check_room(self, requests: SequenceOf[Request]) -> None:
        """Raise `QueueFullError` unless all these requests of one user could wait now (rule 4)."""
        if self._backpressure and requests:
            self._backpressure.check(requests, sum(len(request.prompt) for request in requests))

    def cancel(self, request_id: str) -> bool:
        """End the live request of this id, at once; return whether there was one (rule 9).

        Raises `MisuseError` while a batch is out: its memory is in use.
        """
        if self._batch is not None:
            raise MisuseError(
                f"cancel({request_id!r}): a batch is out and uses its requests' memory; "
                "complete or abandon it first"
            )
        sequence = self._roster.live.get(request_id)
        if sequence is None:
            return False
        now = self.executor.now()
        self._end(sequence, lifecycle.cancel, "cancelled", now)
        if self._observer is not None:
            self._observer.cancelled(sequence, now)
        return True

    def set_weight(self, user_id: str, weight: float) -> None:
        """Give a user a weight from the next tick on, through leaving and coming back.

        It is kept until it is set again; 1 is every user's to begin with. Raises
        `LimitsError` for one that is no int or float above 0, `MisuseError` while a batch is out.
        """
        if self._batch is not None:
            raise MisuseError(
                f"set_weight({user_id!r}): a batch is out, planned with the weights so far; "
                "complete or abandon it first"
            )
        checked = checked_weight(user_id, weight)
        self._roster.users.set_weight(user_id, checked)
        if self._observer is not None:
            self._observer.weighted(user_id, plain(checked))

    def has_active(self) -> bool:
        """Tell whether any request is live, or has expired and was not returned by a tick yet."""
        return bool(self._roster.live) or bool(self._unreported)

    def tick(self) -> list[Request]:
        """Run one iteration of the model; return the requests that ended in it, or expired before.

        Whatever the executor raises passes through, the tick undone: nothing is
        lost or counted, and it can be tried again. Raises `ExecutorError` for a
        wrong number of tokens, `PolicyError` for an illegal plan.
        """
        batch = self.schedule()
        try:
            tokens = checked_tokens(batch, self.executor.forward(batch)) if batch else []
            now = self.executor.now()
            self._tell_policy(batch, now)
        except BaseException:
            self.abandon(batch)
            raise
        return self._carry_out(batch, tokens, now)

    def schedule(self) -> Batch:
        """Return the next batch, its memory taken; empty when no request is live.

        Requests whose time has come expire first (rule 9): whatever becomes of the
        batch, the next tick that is completed returns them. It must be completed or
        abandoned before the next. Raises `MisuseError`
        while another is out, `PolicyError` for an illegal plan.
        """
        if self._batch is not None:
            raise MisuseError("schedule: a batch is out; complete or abandon it first")
        if self._expiry:
            self._expire()
        self._plan = Plan()
        self._batch = self._next_batch() if self._roster.live else Batch((), self.executor.now())
        return self._batch

    def complete(self, batch: Batch, tokens: SequenceOf[int]) -> list[Request]:
        """Take one token id for each sequence of the batch; return the requests that ended.

        Those that have expired since the tick before are among them. Raises
        `MisuseError` for a batch that is not out, and `ExecutorError` for tokens that
        do not fit it: the batch is then still out.
        """
        self._check_out("complete", batch)
        checked, now = checked_tokens(batch, tokens), self.executor.now()
        self._tell_policy(batch, now)
        return self._carry_out(batch, checked, now)

    def abandon(self, batch: Batch) -> None:
        """Undo `schedule`, but for who expired. Raises `MisuseError` if it is not out."""
        self._check_out("abandon", batch)
        batch.return_blocks(self._roster.pool)
        self._batch = None

    def active_requests(self) -> list[Request]:
        """Return the live requests, in order of submission, whatever their priorities."""
        return [sequence.request for sequence in self._roster.live.values()]

    def snapshot(self) -> dict[str, Any]:
        """Return everything, as plain JSON-ready data, between two ticks.

        Raises `MisuseError` while a batch is out.
        """
        if self._batch is not None:
            raise MisuseError("snapshot: a batch is out; complete or abandon it first")
        this: Any = self  # to a type checker, what comes by the mounted path is another class
        return snapshot.take(this)

    @classmethod
    def restore(
        cls,
        data: Mapping[str, Any],
        *,
        policy: Policy | None = None,
        executor: Executor | None = None,
        observer: Observer | None = None,
        monitor: "bool | Monitor" = False,
        memory_lost: bool = False,
    ) -> "Scheduler":
        """Make the scheduler that `data` is the snapshot of, with new `Request` objects.

        `policy` is needed for one of your own. `memory_lost` says that the executor
        no longer has the KV memory: residents are then preempted, and recomputed.
        Raises `SnapshotError`, nothing made, for data that are not a whole snapshot.
        """
        this: Any = cls
        sched: Scheduler = cast(Any, snapshot.restore(this, data, policy, executor, memory_lost))
        sched._observe(observer, monitor)
        return sched

    def metrics(self) -> dict[str, float]:
        """Return the four headline figures.

        `throughput_tokens_per_sec` (delivered output tokens; 0 before any time has
        passed), `avg_latency_s` and `p99_latency_s` (of finished requests; NaN
        while there is none) and `gpu_utilization` (the fraction of ticks whose
        batch was not empty; 0 before the first).
        """
        return self._metrics.headline()

    def stats(self) -> dict[str, Any]:
        """Return every figure there is, with what is live now; docs/reference/figures.md."""
        roster = self._roster
        live = {
            "waiting": len(roster.waiting),
            "prefilling": len(roster.prefilling),
            "decoding": len(roster.decoding),
            "free_blocks": roster.pool.free,
        }
        return {**self._metrics.summary(), "live": live}

    def _observe(self, observer: Observer | None, monitor: "bool | Monitor") -> None:
        self._observer = observer
        if monitor:
            from batchproof.sched.monitor_live import LiveMonitor

            live = LiveMonitor(self._roster, self.policy.admission, monitor)
            self.monitor = live.monitor
            self._observer = live if observer is None else Observers([live, observer])

    def _check_out(self, call: str, batch: Batch) -> None:
        if self._batch is None:
            raise MisuseError(f"{call}: no batch is out; call schedule first")
        if batch is not self._batch:
            raise MisuseError(f"{call}: this batch is not the one that is out")

    def _next_batch(self) -> Batch:
        """Ask the policy, check its plan, and take the memory that it needs."""
        view = self._roster.look()
        plan: Any = self.policy.plan(view)
        grown: Any = check_plan(self.policy.name, plan, view)

        batch = Batch(plan.decode, self.executor.now())
        for sequence, tokens in plan.prefill:
            sequence.scheduled = tokens
            batch.append(sequence)
            batch.tokens += tokens
        batch.preempted, batch.admitted, batch.grown = plan.preempt, plan.admit, grown
        batch.take_blocks(self._roster.pool)
        self._plan = plan
        if self._observer is not None:
            self._observer.scheduled(batch)
        return batch

    def _tell_policy(self, batch: Batch, now: float) -> None:
        """Let the policy's state follow the plan: the last step of a tick that may raise."""
        if self._stateful is not None:
            self._stateful.completed(self._plan, now - batch.scheduled_at)

    def _carry_out(self, batch: Batch, tokens: list[int], now: float) -> list[Request]:
        """Do all that the batch stands for. Nothing in here can fail."""
        self._batch = None
        self._preempt_and_admit(batch)
        ended, yielded = self._take_decodes(batch, tokens, now)
        if len(batch) > batch.chunks_from:
            yielded += self._take_chunks(batch, tokens, now, ended)
        self._metrics.ticked(len(batch), batch.tokens, yielded, self._roster.pool.held, now)
        for sequence in ended:
            eos = sequence.generated[-1] == self.limits.eos_token
            self._end(sequence, lifecycle.finish, "eos" if eos else "length", now)
        if self._observer is not None:
            self._observer.ticked(batch, tokens, ended, now)
        if self._unreported:
            ended = self._unreported + ended
            self._unreported = []
        return [sequence.request for sequence in ended]

    def _preempt_and_admit(self, batch: Batch) -> None:
        self._metrics.preemptions += len(batch.preempted)
        for sequence, evicted in zip(batch.preempted, batch.evicted, strict=True):
            self._roster.preempt(sequence, len(evicted), batch.scheduled_at)
        for sequence in batch.admitted:
            sequence.queued_s += batch.scheduled_at - sequence.waiting_since
            self._roster.admit(sequence)
        for sequence in batch.grown:
            self._roster.grow(sequence)

    def _take_decodes(
        self, batch: Batch, tokens: list[int], now: float
    ) -> tuple[list[Sequence], int]:
        """Give each decode its token; return those that ended, and how many tokens that was."""
        eos = self.limits.eos_token
        before = self._last_tick_at
        count = steady = batch.chunks_from
        decodes = batch if count == len(batch) else batch[:count]
        turned: list[Sequence] = []
        for sequence, token in zip(decodes, tokens, strict=False):
            sequence.generated.append(token)
            if sequence.last_token_at != before:
                self._metrics.tbt.add(now - sequence.last_token_at)
                steady -= 1
            sequence.last_token_at = now
            sequence.steps_left -= 1
            if token == eos or not sequence.steps_left:
                turned.append(sequence)
        if steady:
            self._metrics.tbt.add(now - before, steady)
        self._last_tick_at = now

        if count < len(self._roster.decoding):
            self._roster.rotate(decodes)
        ended: list[Sequence] = []
        for sequence in turned:
            if sequence.generated[-1] == eos or not sequence.remaining:
                ended.append(sequence)
            else:
                self._roster.growing[sequence] = None
        return ended, count

    def _take_chunks(
        self, batch: Batch, tokens: list[int], now: float, ended: list[Sequence]
    ) -> int:
        """Count each chunk as fed; return how many completed their prefill and yielded a token."""
        yielded = 0
        for index in range(batch.chunks_from, len(batch)):
            sequence = batch[index]
            fed = sequence.prefilled
            sequence.prefilled += sequence.scheduled
            if fed < sequence.computed_max:
                again = min(sequence.prefilled, sequence.computed_max) - fed
                self._metrics.recomputed_tokens += again
            if sequence.prefill_left:
                continue
            yielded += 1
            sequence.generated.append(tokens[index])
            if sequence.first_token_at is None:
                sequence.first_token_at = now
            else:
                self._metrics.tbt.add(now - sequence.last_token_at)
            sequence.last_token_at = now
            if tokens[index] == self.limits.eos_token or not sequence.remaining:
                ended.append(sequence)
            else:
                self._roster.start_decoding(sequence)
        return yielded

    def _end(
        self,
        sequence: Sequence,
        event: lifecycle.Trigger,
        reason: FinishReason,
        now: float,
    ) -> None:
        """End a request: its blocks are free and its id is forgotten at once (rules 2, 9, 10)."""
        if self._roster.end(sequence, event) and self._stateful is not None:
            self._stateful.left(sequence.user_id)
        sequence.request.finish_reason = reason
        self._metrics.ended(sequence, now)
        if self._expiry:
            self._expiry.forget(sequence)

    def _expire(self) -> None:
        """End every request whose time has come: from here on no tick can bring it back."""
        now = self.executor.now()
        while (sequence := self._expiry.next_due(now)) is not None:
            self._end(sequence, lifecycle.expire, "expired", now)
            self._unreported.append(sequence)
            if self._observer is not None:
                self._observer.expired(sequence, now)

"""A stateful test of any scheduler: what users do, what the model yields, and what must hold."""

from collections.abc import Set
from typing import ClassVar

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from batchproof.sched.config import Admission, Limits
from batchproof.sched.contract.adapter import Account, NextToken, SchedulerAdapter
from batchproof.sched.contract.strategies import Submission, submissions
from batchproof.sched.monitor import PROPERTIES

_LIMITS = Limits(max_kv_blocks=8, block_size=4, chunk_size=6, token_budget=10, max_batch_size=4)


class SchedulerContract(RuleBasedStateMachine):
    """Derive from it, say what `make_scheduler` makes, and run its `TestCase`.

    Submissions good and bad, cancellations of whoever is live and of nobody, and
    steps in which the model yields EOS where it likes; after each, every property
    in `properties`. In the end every request has to end, and all memory to be free.
    """

    limits: ClassVar[Limits] = _LIMITS
    """What the scheduler is made with; small limits find more."""
    admission: ClassVar[Admission] = "max_utilization"
    properties: ClassVar[Set[str]] = PROPERTIES
    """The properties that apply: leave out what your scheduler does not promise."""

    def make_scheduler(self) -> SchedulerAdapter:
        """Return a new scheduler under test, made with `limits`."""
        raise NotImplementedError("make_scheduler: return your scheduler behind a SchedulerAdapter")

    @initialize()
    def start(self) -> None:
        """Make the scheduler."""
        self.scheduler = self.make_scheduler()
        self.account = Account(self.limits, self.admission)
        self._sizes: dict[str, tuple[int, int]] = {}
        self._names = 0
        self._yielded = 0

    @rule(data=st.data())
    def submit(self, data: st.DataObject) -> None:
        """Submit a request that could finish: it must be accepted."""
        wanted = data.draw(submissions(self.limits))
        name = f"r{self._names}"
        self._names += 1
        self._submit(name, wanted)

    @rule(more=st.integers(1, 3))
    def submit_infeasible(self, more: int) -> None:
        """Submit a request that could never finish: it must be refused."""
        room = self.limits.max_kv_blocks * self.limits.block_size
        self._submit(f"r{self._names}", Submission("u0", room, 1 + more))
        self._names += 1

    @precondition(lambda self: self._has_live())
    @rule(data=st.data())
    def submit_duplicate(self, data: st.DataObject) -> None:
        """Submit under the id of a live request: it must be refused."""
        self._submit(data.draw(st.sampled_from(sorted(self.account.live))), Submission("u0", 1, 1))

    @precondition(lambda self: self._has_live())
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """Cancel a live request."""
        name = data.draw(st.sampled_from(sorted(self.account.live)))
        assert self.scheduler.cancel(name), f"cancel({name!r}) says that there was nothing"
        self.account.cancelled(name)
        self._check()

    @rule()
    def cancel_nobody(self) -> None:
        """Cancel an id that nobody has."""
        assert not self.scheduler.cancel("nobody"), "cancel('nobody') says that there was something"

    @precondition(lambda self: self._has_live())
    @rule(steps=st.integers(1, 8), eos_every=st.sampled_from([0, 1, 2, 3, 7]))
    def step(self, steps: int, eos_every: int) -> None:
        """Run some iterations; every so many tokens one is EOS."""
        for _ in range(steps):
            if self.account.live:
                self._step(self._model(eos_every))

    def teardown(self) -> None:
        """Let everybody finish, and then a request that needs all the memory: none may be lost."""
        if hasattr(self, "account"):
            self._finish()
            room = self.limits.max_kv_blocks * self.limits.block_size
            self._submit("the last", Submission("u0", room, 1))
            self._finish()

    def _finish(self) -> None:
        # Even one at a time and recomputed after each token, everybody would be done by then.
        patience = sum((prompt + most) * most for prompt, most in self._sizes.values())
        for _ in range(patience):
            if not self.account.live:
                return
            self._step(self._model(0))
        waits = ", ".join(sorted(self.account.live))
        assert not waits, f"every-request-ends: {waits} did not, in {patience} steps"

    def _has_live(self) -> bool:
        return hasattr(self, "account") and bool(self.account.live)

    def _submit(self, name: str, wanted: Submission) -> None:
        request = wanted.request(name)
        accepted = self.scheduler.submit(
            name, wanted.user_id, list(request.prompt), wanted.max_tokens
        )
        monitor = self.account.monitor
        if accepted:
            self._sizes[name] = (wanted.prompt, wanted.max_tokens)
            self.account.submitted(name, wanted.user_id, wanted.prompt, wanted.max_tokens)
        else:
            kind = "duplicate" if name in self.account.live else "infeasible"
            monitor.refused(name, kind, wanted.prompt, wanted.max_tokens)
        self._check()

    def _model(self, eos_every: int) -> NextToken:
        def next_token(_request_id: str) -> int:
            self._yielded += 1
            is_eos = eos_every and self._yielded % eos_every == 0
            return self.limits.eos_token if is_eos else self.limits.eos_token + 1

        return next_token

    def _step(self, next_token: NextToken) -> None:
        report = self.scheduler.step(next_token)
        note(f"{report}")
        self.account.stepped(report)
        self._check()

    def _check(self) -> None:
        found = self.account.violations(frozenset(self.properties))
        assert not found, "; ".join(f"{v.property}: {v.detail}" for v in found)

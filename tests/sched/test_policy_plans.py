"""A policy of one's own: an illegal plan is refused whole, with the rule that it breaks."""

from collections.abc import Callable
from typing import Any

import pytest
from support.builders import a_gpu, a_request, run_to_end, submitted
from support.core_checks import assert_invariants
from support.state_dump import dump

from batchproof import Limits, Scheduler
from batchproof.sched.errors import PolicyError
from batchproof.sched.policy import Plan, View, make_policy
from batchproof.sched.request import Sequence

LIMITS = Limits(max_kv_blocks=9, block_size=4, chunk_size=8, token_budget=9, max_batch_size=3)


class Saboteur:
    """Plans as stall-free does, until it is told to answer something else, once."""

    name = "saboteur"
    admission = "max_utilization"

    def __init__(self) -> None:
        self.inner = make_policy("stall-free")
        self.answer: Callable[[Any], Any] | None = None

    def plan(self, view: View) -> Plan:
        answer, self.answer = self.answer, None
        return self.inner.plan(view) if answer is None else answer(Cast(view))


class Cast:
    """The requests in the view, by name: `a` must grow, `b` decodes, `c` prefills, `d e f` wait."""

    def __init__(self, view: View) -> None:
        self.view = view
        for candidate in (*view.decoding, *view.prefilling, *view.waiting):
            setattr(self, candidate.request_id, candidate)

    a: Any
    b: Any
    c: Any
    d: Any
    e: Any
    f: Any


@pytest.fixture
def scheduler() -> Scheduler:
    scheduler = Scheduler(LIMITS, Saboteur(), a_gpu(LIMITS))
    submitted(
        scheduler,
        [
            a_request("a", 3, 20),
            a_request("b", 2, 9),
            a_request("c", 17, 2),
            a_request("d", 9, 2),
            a_request("e", 1, 1, user="v"),
            a_request("f", 1, 1),
        ],
    )
    scheduler.tick()
    return scheduler


def test_the_stage_is_set(scheduler: Scheduler) -> None:
    def look(cast: Cast) -> Plan:
        view = cast.view
        assert [c.request_id for c in view.decoding] == ["a", "b"]
        assert [c.request_id for c in view.growing] == ["a"]
        assert [c.request_id for c in view.prefilling] == ["c"]
        assert [c.request_id for c in view.waiting] == ["d", "e", "f"]
        assert list(view.waiting_by_user) == ["u", "v"]
        assert view.free_blocks == 2
        assert [view.blocks_to_admit(c) for c in view.waiting] == [3, 1, 1]
        assert cast.c.prefill_left == 13
        return Plan(decode=view.decoding)

    _answer(scheduler, look)
    scheduler.tick()


STRANGER = Sequence(a_request("stranger"), (1, 2, 3), 99, 0.0)

ILLEGAL: dict[str, tuple[str, Callable[[Cast], Any], str]] = {
    "decodes a stranger": ("rule 1", lambda s: Plan(decode=[STRANGER]), "not decoding"),
    "decodes an id": ("rule 1", lambda s: Plan(decode=["a"]), "not decoding"),
    "decodes a prefill": ("rule 1", lambda s: Plan(decode=[s.a, s.c]), "'c'"),
    "decodes a waiting request": ("rule 1", lambda s: Plan(decode=[s.d]), "'d'"),
    "decodes one twice": ("rule 6", lambda s: Plan(decode=[s.b, s.b]), "twice"),
    "prefills a stranger": ("rule 1", lambda s: Plan(prefill=[(STRANGER, 1)]), "not prefilling"),
    "prefills a decode": ("rule 1", lambda s: Plan(prefill=[(s.a, 1)]), "'a'"),
    "prefills who was not admitted": ("rule 1", lambda s: Plan(prefill=[(s.e, 1)]), "'e'"),
    "prefills one twice": ("rule 6", lambda s: Plan(prefill=[(s.c, 1), (s.c, 1)]), "twice"),
    "a chunk over the limit": ("rule 6", lambda s: Plan(prefill=[(s.c, 9)]), "1 to 8 are allowed"),
    "a chunk over the prompt": (
        "rule 6",
        lambda s: Plan(decode=[s.b], admit=[s.d], prefill=[(s.d, 10)]),
        "1 to 8",
    ),
    "a chunk over a short prompt": (
        "rule 6",
        lambda s: Plan(admit=[s.e], prefill=[(s.e, 2)]),
        "1 to 1 are allowed",
    ),
    "a chunk of nothing": ("rule 6", lambda s: Plan([], [s.b], [], [(s.c, 0)]), "chunk of 0"),
    "a negative chunk": ("rule 6", lambda s: Plan([], [s.b], [], [(s.c, -4)]), "chunk of -4"),
    "half a token": ("rule 6", lambda s: Plan(prefill=[(s.c, 1.5)]), "chunk of 1.5"),
    "a chunk of True": ("rule 6", lambda s: Plan(prefill=[(s.c, True)]), "chunk of True"),
    "too many tokens": (
        "rule 6",
        lambda s: Plan(decode=[s.a, s.b], prefill=[(s.c, 8)]),
        "10 tokens, token_budget is 9",
    ),
    "too many sequences": (
        "rule 6",
        lambda s: Plan(decode=[s.a, s.b], admit=[s.e], prefill=[(s.c, 1), (s.e, 1)]),
        "4 sequences, max_batch_size is 3",
    ),
    "preempts and decodes one": (
        "rule 1",
        lambda s: Plan(preempt=[s.b], decode=[s.a, s.b]),
        "preempted and scheduled",
    ),
    "preempts and decodes one of all": (
        "rule 1",
        lambda s: Plan(preempt=[s.b], decode=s.view.decoding),
        "preempted and scheduled",
    ),
    "preempts and prefills one": (
        "rule 1",
        lambda s: Plan(preempt=[s.c], decode=[s.a], prefill=[(s.c, 1)]),
        "preempted and scheduled",
    ),
    "preempts who holds nothing": (
        "rule 1",
        lambda s: Plan(preempt=[s.d], decode=[s.a]),
        "holds no blocks",
    ),
    "preempts a stranger": (
        "rule 1",
        lambda s: Plan(preempt=[STRANGER], decode=[s.a]),
        "holds no blocks",
    ),
    "preempts one twice": (
        "rule 6",
        lambda s: Plan(preempt=[s.c, s.c], decode=[s.a]),
        "twice",
    ),
    "admits the second before the first": (
        "rule 5",
        lambda s: Plan(decode=[s.b], admit=[s.f], prefill=[(s.f, 1)]),
        "'f'",
    ),
    "admits both in the wrong order": (
        "rule 5",
        lambda s: Plan(preempt=[s.c], decode=[s.b], admit=[s.f, s.d]),
        "not the oldest waiting request of user 'u'",
    ),
    "admits past one that it preempts": (
        "rule 5",
        lambda s: Plan(preempt=[s.c], decode=[s.b], admit=[s.d]),
        "'d'",
    ),
    "admits who is in already": ("rule 5", lambda s: Plan(decode=[s.b], admit=[s.a]), "'a'"),
    "admits one that it preempts": (
        "rule 5",
        lambda s: Plan(preempt=[s.c], decode=[s.b], admit=[s.c]),
        "'c'",
    ),
    "admits one twice": ("rule 5", lambda s: Plan(decode=[s.b], admit=[s.e, s.e]), "'e'"),
    "admits a stranger": ("rule 5", lambda s: Plan(decode=[s.b], admit=[STRANGER]), "stranger"),
    "takes more memory than is free": (
        "rule 3",
        lambda s: Plan(decode=[s.b], admit=[s.d], prefill=[(s.d, 1)]),
        "3 blocks to take, 2 free",
    ),
    "does nothing": ("rule 7", lambda s: Plan(), "empty batch"),
    "only preempts": ("rule 7", lambda s: Plan(preempt=[s.c]), "empty batch"),
    "only admits": ("rule 7", lambda s: Plan(admit=[s.e]), "empty batch"),
    "answers None": ("the Policy protocol", lambda s: None, "not a Plan"),
    "answers a list": ("the Policy protocol", lambda s: [s.a], "not a Plan"),
    "answers a text": ("the Policy protocol", lambda s: "a, b", "not a Plan"),
    "decodes None": ("the Policy protocol", lambda s: Plan(decode=None), "not a Plan"),
    "decodes an iterator": (
        "the Policy protocol",
        lambda s: Plan(decode=iter([s.a])),
        "not a Plan",
    ),
    "prefills without a number": (
        "the Policy protocol",
        lambda s: Plan(prefill=[s.c]),
        "not a Plan",
    ),
    "admits a number": ("the Policy protocol", lambda s: Plan(admit=[7]), "not a Plan"),
}


def _answer(scheduler: Scheduler, answer: Callable[[Cast], Any]) -> None:
    assert isinstance(scheduler.policy, Saboteur)
    scheduler.policy.answer = answer


@pytest.mark.parametrize("call", ["tick", "schedule"])
@pytest.mark.parametrize("plan", ILLEGAL)
def test_an_illegal_plan_is_refused_with_the_rule_and_changes_nothing(
    scheduler: Scheduler, plan: str, call: str
) -> None:
    rule, answer, says = ILLEGAL[plan]
    before = dump(scheduler)
    _answer(scheduler, answer)

    with pytest.raises(PolicyError) as refusal:
        getattr(scheduler, call)()

    assert refusal.value.rule == rule
    assert "policy 'saboteur'" in str(refusal.value)
    assert rule in str(refusal.value)
    assert says in str(refusal.value)
    assert dump(scheduler) == before
    assert_invariants(scheduler)
    assert len(run_to_end(scheduler)) == 6, "the next plan is legal, and all goes on"


LEGAL: dict[str, Callable[[Cast], Plan]] = {
    "one decode of several": lambda s: Plan(decode=[s.b]),
    "decodes in another order": lambda s: Plan(decode=[s.b, s.a]),
    "a chunk of one token": lambda s: Plan(prefill=[(s.c, 1)]),
    "another user's younger request": lambda s: Plan(admit=[s.e], prefill=[(s.e, 1)]),
    "an admission whose prefill waits": lambda s: Plan(decode=[s.b], admit=[s.e]),
    "a preemption that was not needed": lambda s: Plan(preempt=[s.c], decode=[s.a]),
    "the memory of the preempted": lambda s: Plan(
        preempt=[s.a], decode=[s.b], admit=[s.e], prefill=[(s.c, 7), (s.e, 1)]
    ),
}


@pytest.mark.parametrize("plan", LEGAL)
def test_an_odd_but_legal_plan_is_carried_out_and_tokens_stay_right(
    scheduler: Scheduler, plan: str
) -> None:
    gpu: Any = scheduler.executor
    _answer(scheduler, LEGAL[plan])
    scheduler.tick()
    assert_invariants(scheduler)
    for request in run_to_end(scheduler):
        assert request.generated == gpu.expected_output(request)


def test_a_policy_that_raises_is_heard_and_changes_nothing(scheduler: Scheduler) -> None:
    def fail(cast: Cast) -> Plan:
        raise ZeroDivisionError("in the policy")

    before = dump(scheduler)
    _answer(scheduler, fail)
    with pytest.raises(ZeroDivisionError, match="in the policy"):
        scheduler.tick()
    assert dump(scheduler) == before


def test_a_policy_is_not_asked_when_nothing_is_live() -> None:
    scheduler = Scheduler(LIMITS, Saboteur(), a_gpu(LIMITS))
    _answer(scheduler, lambda cast: pytest.fail("asked"))
    assert scheduler.tick() == []


def test_a_policy_that_takes_the_peak_at_admission_is_shown_the_peak() -> None:
    seen = []

    class Cautious(Saboteur):
        admission = "guaranteed_no_evict"

        def plan(self, view: View) -> Plan:
            seen.extend(view.blocks_to_admit(candidate) for candidate in view.waiting)
            return super().plan(view)

    scheduler = Scheduler(LIMITS, Cautious(), a_gpu(LIMITS))
    scheduler.submit(a_request("a", 3, 20))
    run_to_end(scheduler)
    assert seen == [6]  # 3 + 20 - 1 = 22 tokens


class Remembering(Saboteur):
    """A policy with state: how many plans were carried out, and who has left."""

    name = "remembering"

    def __init__(self) -> None:
        super().__init__()
        self.carried_out: list[Plan] = []
        self.seconds = 0.0
        self.gone: list[str] = []
        self.fails = False

    def completed(self, plan: Plan, seconds: float = 0.0) -> None:
        if self.fails:
            raise ZeroDivisionError("in the policy")
        self.carried_out.append(plan)
        self.seconds += seconds

    def left(self, user_id: str) -> None:
        self.gone.append(user_id)

    def state(self) -> int:
        return len(self.carried_out)

    def restore(self, state: int) -> None:
        raise NotImplementedError


class TestAPolicyWithState:
    @pytest.fixture
    def policy(self) -> Remembering:
        return Remembering()

    @pytest.fixture
    def scheduler(self, policy: Remembering) -> Scheduler:
        scheduler = Scheduler(LIMITS, policy, a_gpu(LIMITS))
        submitted(scheduler, [a_request("a", 3, 2, "ann"), a_request("b", 3, 4, "bob")])
        return scheduler

    def test_hears_of_a_plan_when_it_is_carried_out_and_not_when_it_is_made(
        self, scheduler: Scheduler, policy: Remembering
    ) -> None:
        scheduler.abandon(scheduler.schedule())
        batch = scheduler.schedule()
        assert policy.carried_out == []
        scheduler.complete(batch, scheduler.executor.forward(batch))
        (plan,) = policy.carried_out
        assert [candidate.request_id for candidate in plan.admit] == ["a", "b"]
        assert policy.seconds == pytest.approx(0.007), "how long the tick took"

    def test_hears_once_when_the_last_live_request_of_a_user_ends_or_is_cancelled(
        self, scheduler: Scheduler, policy: Remembering
    ) -> None:
        scheduler.submit(a_request("a2", 3, 1, "ann"))
        scheduler.cancel("a2")
        assert policy.gone == []
        scheduler.tick()
        scheduler.tick()
        assert policy.gone == ["ann"]
        scheduler.cancel("b")
        assert policy.gone == ["ann", "bob"]

    def test_that_fails_to_follow_undoes_the_tick(
        self, scheduler: Scheduler, policy: Remembering
    ) -> None:
        before = dump(scheduler)
        policy.fails = True
        with pytest.raises(ZeroDivisionError):
            scheduler.tick()
        assert dump(scheduler) == before
        policy.fails = False
        assert len(run_to_end(scheduler)) == 2

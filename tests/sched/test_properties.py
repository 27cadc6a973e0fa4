"""What holds for any workload on any machine under any policy."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.workloads import ARRIVALS, LIMITS, Arrival, Played, play

from batchproof import Limits
from batchproof.sched.config import ADMISSIONS, Admission
from batchproof.sched.policy import POLICIES, Plan, View, make_policy
from batchproof.sched.policy.compose import chunks, decodes_first

WORKLOAD = (LIMITS, ARRIVALS)
EVERY_POLICY = pytest.mark.parametrize("name", sorted(POLICIES))
EVERY_ADMISSION = pytest.mark.parametrize("admission", ADMISSIONS)

# One block of one token each, budget and seats for one: the smallest machine there is.
ONE_OF_EACH = Limits(max_kv_blocks=1, block_size=1, chunk_size=1, token_budget=1, max_batch_size=1)
TWINS = [Arrival(0, 1, 1, "a", None), Arrival(0, 1, 1, "b", None)]


def assert_all_ended_right(played: Played) -> None:
    for request in played.accepted:
        assert request.phase == "done"
        expected = played.gpu.expected_output(request)
        if request.finish_reason == "cancelled":
            assert request.generated == expected[: len(request.generated)]
            continue
        assert request.generated == expected, "rule 8: the company shows in the tokens"
        last = request.generated[-1]
        eos = played.gpu.limits.eos_token
        assert request.finish_reason == ("eos" if last == eos else "length")


@EVERY_POLICY
@EVERY_ADMISSION
@given(limits=LIMITS, arrivals=ARRIVALS)
@example(limits=ONE_OF_EACH, arrivals=TWINS)
def test_every_accepted_request_ends_with_the_tokens_of_a_life_alone(
    name: str, admission: Admission, limits: Limits, arrivals: list[Arrival]
) -> None:
    played = play(limits, arrivals, make_policy(name, admission))
    assert_all_ended_right(played)
    live = played.scheduler.stats()["live"]
    assert live == {
        "waiting": 0,
        "prefilling": 0,
        "decoding": 0,
        "free_blocks": limits.max_kv_blocks,
    }


@EVERY_POLICY
@given(limits=LIMITS, arrivals=ARRIVALS)
def test_the_peak_taken_at_admission_means_no_preemption_and_no_growth(
    name: str, limits: Limits, arrivals: list[Arrival]
) -> None:
    played = play(limits, arrivals, make_policy(name, "guaranteed_no_evict"))
    assert not {"preempt", "grow"} & {what for _, _, what in played.recorder.events}


@EVERY_POLICY
@given(limits=LIMITS, arrivals=ARRIVALS)
def test_a_users_requests_are_first_admitted_in_the_order_of_submission(
    name: str, limits: Limits, arrivals: list[Arrival]
) -> None:
    played = play(limits, arrivals, name)
    user = {request.request_id: request.user_id for request in played.accepted}
    submitted: dict[str, list[str]] = {}
    admitted: dict[str, list[str]] = {}
    for _, request_id, what in played.recorder.events:
        line = {"submit": submitted, "admit": admitted}.get(what)
        if line is not None:
            ids = line.setdefault(user[request_id], [])
            if request_id not in ids:
                ids.append(request_id)
    for name_of_user, ids in admitted.items():
        order = submitted[name_of_user]
        assert ids == sorted(ids, key=order.index)


@EVERY_POLICY
@given(limits=LIMITS, arrivals=ARRIVALS, abandoned=st.frozensets(st.integers(0, 40)))
def test_batches_that_were_abandoned_leave_no_trace(
    name: str, limits: Limits, arrivals: list[Arrival], abandoned: frozenset[int]
) -> None:
    plain, disturbed = (play(limits, arrivals, name, when) for when in (frozenset(), abandoned))
    assert plain.recorder.log == disturbed.recorder.log
    assert plain.recorder.events == disturbed.recorder.events
    assert repr(plain.scheduler.stats()) == repr(disturbed.scheduler.stats())


@given(limits=LIMITS, arrivals=ARRIVALS)
def test_the_figures_add_up(limits: Limits, arrivals: list[Arrival]) -> None:
    played = play(limits, arrivals, "stall-free")
    stats, reasons = played.scheduler.stats(), [r.finish_reason for r in played.accepted]
    counts, finished = stats["requests"], len(reasons) - reasons.count("cancelled")
    assert counts["submitted"] == len(arrivals) == counts["refused"] + len(reasons)
    assert counts["finished"] == finished == played.scheduler._metrics.latency.count
    assert counts["cancelled"] == reasons.count("cancelled")
    assert counts["refused"] == len(played.refused)
    delivered = sum(len(request.generated) for request in played.accepted)
    assert stats["tokens"]["output"] == delivered
    assert stats["tokens"]["fed"] == sum(sum(fed.values()) for fed in played.recorder.log)
    assert stats["ticks"] == len(played.recorder.log)
    started = sum(bool(request.generated) for request in played.accepted)
    assert played.scheduler._metrics.tbt.count == delivered - started


class Watched:
    """Stall-free, each of whose plans is held to rule 7: nothing usable is left idle."""

    name = "watched"

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.inner = make_policy("stall-free", admission)

    def plan(self, view: View) -> Plan:
        plan = self.inner.plan(view)
        budget = view.limits.token_budget - len(plan.decode) - sum(n for _, n in plan.prefill)
        seats = view.limits.max_batch_size - len(plan.decode) - len(plan.prefill)
        if budget and seats:
            self._assert_nobody_was_forgotten(view, plan)
            self._assert_the_next_in_order_does_not_fit(view, plan)
        return plan

    def _assert_nobody_was_forgotten(self, view: View, plan: Plan) -> None:
        chunk = {candidate.request_id: tokens for candidate, tokens in plan.prefill}
        lost = {candidate.request_id for candidate in plan.preempt}
        assert {c.request_id for c in view.decoding} - lost == {c.request_id for c in plan.decode}
        for candidate in (*view.prefilling, *plan.admit):
            if candidate.request_id not in lost:
                whole = min(view.limits.chunk_size, candidate.prefill_left)
                assert chunk[candidate.request_id] == whole

    def _assert_the_next_in_order_does_not_fit(self, view: View, plan: Plan) -> None:
        free = view.free_blocks - sum(map(view.blocks_to_admit, plan.admit))
        free += sum(candidate.block_count for candidate in plan.preempt)
        free -= len({c.number for c in view.growing} & {c.number for c in plan.decode})
        line = [candidate for candidate in view.waiting if candidate not in plan.admit]
        following = min([*line, *plan.preempt], key=lambda c: c.number, default=None)
        if following in plan.preempt:
            prompt, most = following.prompt_len, following.max_tokens
            generated = most - following.remaining
            assert view.limits.blocks_at_admission(prompt, generated, most) > free
        elif following is not None:
            assert view.blocks_to_admit(following) > free


@EVERY_ADMISSION
@given(limits=LIMITS, arrivals=ARRIVALS)
def test_stall_free_leaves_nothing_idle_that_the_next_in_order_could_use(
    admission: Admission, limits: Limits, arrivals: list[Arrival]
) -> None:
    play(limits, arrivals, Watched(admission))


class PromptsFirst:
    """A policy of one's own that ends up with more decodes than a batch can take."""

    name = "prompts-first"
    admission: Admission = "max_utilization"

    def plan(self, view: View) -> Plan:
        limits = view.limits
        oldest = next(iter(view.waiting), None)
        if view.prefilling:
            budget, seats = limits.token_budget, limits.max_batch_size
            return Plan(prefill=chunks(view, view.prefilling, budget, seats))
        if oldest is not None and view.blocks_to_admit(oldest) <= view.free_blocks:
            return Plan(admit=[oldest], prefill=chunks(view, [oldest], limits.token_budget, 1))
        decode, preempt, _ = decodes_first(view)
        return Plan(preempt, decode)


@given(limits=LIMITS, arrivals=ARRIVALS)
def test_more_decodes_than_the_budget_takes_are_served_in_turn_and_all_end(
    limits: Limits, arrivals: list[Arrival]
) -> None:
    assert_all_ended_right(play(limits, arrivals, PromptsFirst()))


class Capricious:
    """Stall-free, but in some ticks it preempts somebody for no reason at all."""

    name = "capricious"
    admission: Admission = "max_utilization"

    def __init__(self, whims: list[int]) -> None:
        self.inner = make_policy("stall-free")
        self.whims = iter(whims)

    def plan(self, view: View) -> Plan:
        plan, whim = self.inner.plan(view), next(self.whims, 0)
        residents = [c for c in (*view.decoding, *view.prefilling) if c not in plan.preempt]
        if not whim or not residents:
            return plan
        victim = residents[whim % len(residents)]
        decode = [candidate for candidate in plan.decode if candidate is not victim]
        prefill = [
            (candidate, tokens)
            for candidate, tokens in plan.prefill
            if candidate is not victim and candidate not in plan.admit
        ]
        if not decode and not prefill:
            return plan
        return Plan([*plan.preempt, victim], decode, prefill=prefill)


@given(limits=LIMITS, arrivals=ARRIVALS, whims=st.lists(st.integers(0, 5), max_size=40))
def test_preemption_at_any_moment_is_invisible_and_what_it_costs_is_counted(
    limits: Limits, arrivals: list[Arrival], whims: list[int]
) -> None:
    patient = [arrival._replace(cancelled_after=None) for arrival in arrivals]
    played = play(limits, patient, Capricious(whims))
    assert_all_ended_right(played)
    tokens = played.scheduler.stats()["tokens"]
    needed = sum(len(r.prompt) + len(r.generated) - 1 for r in played.accepted)
    assert tokens["fed"] - tokens["recomputed"] == needed

"""Each action of the specification by example, and its guard against its enumeration."""

from dataclasses import replace
from itertools import product

import pytest

from batchproof.spec.actions import (
    Work,
    cancel,
    eos_choices,
    objection_to_cancel,
    objection_to_submit,
    objection_to_tick,
    submit,
    tick,
    works,
    yielding,
)
from batchproof.spec.bounds import SIZES
from batchproof.spec.lifecycle import DECODING, PREFILLING, RESIDENT, WAITING
from batchproof.spec.model import Batching
from batchproof.spec.search import Search
from batchproof.spec.state import Live, State, System

GROWTH = SIZES["growth"].system
"""Three requests of 3 prompt tokens and at most 4 new ones; 5 blocks of 2, chunk 2, budget 4."""
EMPTY = State((), 5)


def state(*live: Live, system: System = GROWTH) -> State:
    return State(live, system.limits.max_kv_blocks - sum(one.blocks for one in live))


W0 = Live(0, WAITING, 0, 0, 0)
W1 = Live(1, WAITING, 0, 0, 0)
P0 = Live(0, PREFILLING, 2, 0, 2)
D0 = Live(0, DECODING, 0, 1, 2)
D1 = Live(1, DECODING, 0, 1, 2)


def test_a_submission_joins_the_end_of_the_line() -> None:
    assert submit(GROWTH, state(W0), 1) == state(W0, W1)
    assert objection_to_submit(GROWTH, state(W0), 1) is None
    assert "rule 4" in str(objection_to_submit(GROWTH, state(W0), 0))
    pair = SIZES["pair"].system
    assert "alone" in str(objection_to_submit(pair, EMPTY, 2))


def test_a_cancellation_frees_its_blocks_and_leaves_the_others() -> None:
    assert cancel(state(P0, D1), 0) == state(D1)
    assert cancel(state(W0, D1), 0) == state(D1)
    assert objection_to_cancel(state(D1), 1) is None
    assert "rule 9" in str(objection_to_cancel(state(D1), 0))


def after(before: State, work: Work, *eos: int, system: System = GROWTH) -> State:
    assert objection_to_tick(system, before, work) is None
    return tick(system, before, work, eos)[1]


def test_an_admission_takes_its_blocks_and_its_first_chunk_in_one_tick() -> None:
    assert after(state(W0), Work(admit=(0,), feed=((0, 2),))) == state(P0)


def test_the_tick_that_feeds_the_last_prompt_token_yields_the_first_output_token() -> None:
    work = Work(feed=((0, 1),))
    assert yielding(GROWTH, state(P0), work) == (0,)
    assert after(state(P0), work) == state(D0)


def test_a_decode_that_crosses_a_boundary_grows_before() -> None:
    assert after(state(D0), Work(feed=((0, 1),))) == state(Live(0, DECODING, 0, 2, 3))


def test_the_last_token_needs_no_slot() -> None:
    last = Live(0, DECODING, 0, 3, 3)
    event, left = tick(GROWTH, state(last), Work(feed=((0, 1),)), ())
    assert event.ended == ((0, "length"),)
    assert left == EMPTY


def test_eos_ends_a_request_in_its_own_tick_and_nobody_else() -> None:
    event, left = tick(GROWTH, state(P0, D1), Work(feed=((0, 1), (1, 1))), (0,))
    assert event.ended == ((0, "eos"),)
    assert left == state(Live(1, DECODING, 0, 2, 3))


def test_eos_as_the_last_token_ends_by_eos() -> None:
    last = Live(0, DECODING, 0, 3, 3)
    event, _ = tick(GROWTH, state(last), Work(feed=((0, 1),)), (0,))
    assert event.ended == ((0, "eos"),)


def test_a_preempted_request_keeps_its_tokens_and_its_place_and_recomputes_both() -> None:
    two = Live(0, DECODING, 0, 2, 3)
    waits = after(state(two, D1), Work(preempt=(0,), feed=((1, 1),)), 1)
    assert waits == state(Live(0, WAITING, 0, 2, 0))
    again = after(waits, Work(admit=(0,), feed=((0, 2),)))
    assert again == state(Live(0, PREFILLING, 2, 2, 3))


@pytest.mark.parametrize(
    ("before", "work", "rule"),
    [
        (state(P0), Work(feed=((0, 1), (0, 1))), "rule 1: a request is named twice"),
        (state(P0), Work(feed=((2, 1),)), "rule 1: a request that is not live"),
        (state(W0, P0), Work(preempt=(0,), admit=(0,)), "rule 1: a request is named twice"),
        (state(W0), Work(preempt=(0,)), "rule 1: a request that is not resident is preempted"),
        (state(P0), Work(admit=(0,)), "rule 1: a request that is not waiting is admitted"),
        (state(W0), Work(feed=((0, 1),)), "rule 1: a request without blocks is fed"),
        (state(P0), Work(preempt=(0,), feed=((0, 1),)), "rule 1: a request without blocks is fed"),
        (state(D0, D1), Work(feed=((0, 1), (1, 1))), "rule 3: more blocks are taken than"),
        (state(W0, W1), Work(admit=(1,), feed=((1, 1),)), "rule 5: a request is admitted before"),
        (state(P0), Work(feed=((0, 2),)), "rule 6: a request is fed too many"),
        (state(P0), Work(feed=((0, 0),)), "rule 6: a request is fed too many tokens, or none"),
        (state(P0), Work(), "rule 7: nothing is fed"),
    ],
)
def test_illegal_work_is_objected_to_with_its_rule(before: State, work: Work, rule: str) -> None:
    assert str(objection_to_tick(GROWTH, before, work)).startswith(rule)


def test_budget_seats_and_reservations_are_guarded() -> None:
    both = Work(feed=((0, 1), (1, 1)))
    roomy = replace(GROWTH, limits=GROWTH.limits._replace(max_kv_blocks=9))
    ready = state(D0, D1, system=roomy)
    assert objection_to_tick(roomy, ready, both) is None
    for changes, rule in (
        ({"token_budget": 1}, "rule 6: more tokens"),
        ({"max_batch_size": 1}, "rule 6: more sequences"),
    ):
        tight = replace(roomy, limits=roomy.limits._replace(**changes))
        assert str(objection_to_tick(tight, ready, both)).startswith(rule)
    reserved = replace(GROWTH, admission="guaranteed_no_evict")
    evicting = Work(preempt=(0,), feed=((1, 1),))
    assert str(objection_to_tick(reserved, state(D0, D1), evicting)).startswith("rule 3")


def test_a_request_preempted_in_the_tick_is_not_passed_by_a_younger_one_of_its_user() -> None:
    passing = Work(preempt=(0,), admit=(1,), feed=((1, 1),))
    assert str(objection_to_tick(GROWTH, state(D0, W1), passing)).startswith("rule 5")
    stranger = state(D0, Live(2, WAITING, 0, 0, 0))
    assert objection_to_tick(GROWTH, stranger, Work((0,), (2,), ((2, 1),))) is None


def every_work(before: State) -> set[Work]:
    """Return every work that names live requests, legal or not, with at most a chunk each."""
    found: set[Work] = set()
    shares = (None, 1, 2, 3)
    for preempts in product((False, True), repeat=len(before.live)):
        for admits in product((False, True), repeat=len(before.live)):
            for tokens in product(shares, repeat=len(before.live)):
                ids = [live.request for live in before.live]
                found.add(
                    Work(
                        tuple(i for i, yes in zip(ids, preempts, strict=True) if yes),
                        tuple(i for i, yes in zip(ids, admits, strict=True) if yes),
                        tuple((i, n) for i, n in zip(ids, tokens, strict=True) if n is not None),
                    )
                )
    return found


@pytest.mark.parametrize("bound", ["pair", "reserve", "growth"])
def test_the_works_are_exactly_those_that_nothing_objects_to(bound: str) -> None:
    system = SIZES[bound].system
    states = [
        s for s in Search(Batching(system)).run().states if len(s.live) <= (2 if s.free else 3)
    ]
    seen_resident = False
    for before in states[:: max(1, len(states) // 7)]:
        expected = {w for w in every_work(before) if objection_to_tick(system, before, w) is None}
        listed = list(works(system, before))
        assert set(listed) == expected
        assert len(listed) == len(expected)
        seen_resident |= any(live.phase in RESIDENT for live in before.live)
    assert seen_resident


def test_every_choice_of_eos_is_open() -> None:
    assert list(eos_choices((3, 5))) == [(), (3,), (5,), (3, 5)]

"""A state of the specification, as policies see it; and a plan, as the work of a tick."""

from batchproof.sched.policy.protocol import Plan, View
from batchproof.sched.refinement import SpecView, limits_of, work_of
from batchproof.spec.actions import Work
from batchproof.spec.bounds import SIZES
from batchproof.spec.lifecycle import DECODING, PREFILLING, WAITING
from batchproof.spec.state import History, Live, State

SYSTEM = SIZES["growth"].system
"""Three requests of 3 prompt tokens and at most 4 new ones; 5 blocks of 2."""
STATE = State(
    live=(
        Live(1, DECODING, 0, 1, 2),
        Live(0, PREFILLING, 2, 1, 3),
        Live(2, WAITING, 0, 2, 0),
    ),
    free=0,
    history=History(decoding=(1,), prefilling=(0,), gaps=(0,), users=(1, 0)),
)


def view() -> SpecView:
    return SpecView(SYSTEM, limits_of(SYSTEM), STATE)


def test_candidates_are_shown_as_the_scheduler_would() -> None:
    seen: View = view()
    (decode,), (prefill,), (waiting,) = seen.decoding, seen.prefilling, seen.waiting
    assert (decode.request_id, decode.user_id, decode.number) == ("r1", "u0", 0)
    assert (decode.phase, decode.prefill_left, decode.remaining) == (DECODING, 0, 3)
    assert (prefill.number, prefill.prefill_left, prefill.block_count) == (1, 2, 3)
    assert (waiting.number, waiting.user_id, waiting.prefill_left) == (2, "u1", 5)
    assert (waiting.prompt_len, waiting.max_tokens, waiting.remaining) == (3, 4, 2)
    assert seen.growing == (decode,)
    assert seen.free_blocks == 0
    assert seen.blocks_to_admit(waiting) == 3
    assert seen.limits.max_kv_blocks == 5


def test_users_are_shown_with_what_they_hold_and_want() -> None:
    users = view().users
    assert list(users) == ["u1", "u0"]
    assert len(users) == 2
    u0, u1 = users["u0"], users["u1"]
    assert (u0.live, u0.held, u0.outstanding, u0.load) == (2, 5, 5, 21)
    assert (u1.live, u1.held, u1.outstanding, u1.load) == (1, 0, 3, 11)
    assert [candidate.request_id for candidate in u0.residents] == ["r1", "r0"]
    assert list(users.by_load) == [u1, u0]
    assert list(users.waiting_by_usage) == [u1]
    assert users.heaviest == 21
    assert list(view().waiting_by_user) == ["u1"]


def test_a_plan_is_the_work_of_a_tick_in_its_order() -> None:
    seen = view()
    (decode,), (prefill,), (waiting,) = seen.decoding, seen.prefilling, seen.waiting
    plan = Plan(preempt=[prefill], decode=[decode], admit=[waiting], prefill=[(waiting, 2)])
    assert work_of(plan) == Work(preempt=(0,), admit=(2,), feed=((1, 1), (2, 2)))

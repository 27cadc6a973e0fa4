"""What is kept per user is what a look at all live requests would find, at every moment."""

from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.builders import ConstantExecutor, FailingExecutor, a_request
from support.core_checks import live_sequences

from batchproof import Limits, Scheduler
from batchproof.sched.policy import POLICIES, make_policy
from batchproof.spec.lifecycle import RESIDENT, WAITING

SMALL = Limits(max_kv_blocks=8, block_size=4, chunk_size=8, token_budget=16, max_batch_size=4)


def assert_accounts(scheduler: Scheduler) -> None:
    view: Any = scheduler._roster.view
    users, live = view.users, live_sequences(scheduler)
    assert list(users) == sorted(
        {c.user_id for c in live}, key=lambda user: users[user].arrival
    )  # fmt: skip
    for user_id, user in users.items():
        mine = [c for c in live if c.user_id == user_id]
        residents = sorted(
            (c for c in mine if c.phase in RESIDENT), key=lambda c: c.number
        )  # fmt: skip
        waiting = [c for c in mine if c.phase == WAITING]
        held = sum(c.block_count for c in residents)
        wanted = sum(view.blocks_to_admit(c) for c in waiting)
        assert (user.live, user.held, user.outstanding) == (len(mine), held, held + wanted)
        assert user.load == held + wanted + 8 * len(mine)
        assert user.residents == residents
        assert list(user.waiting) == sorted(waiting, key=lambda c: c.number)
    queued = [user for user in users.values() if list(user.waiting)]
    in_turn = sorted(queued, key=lambda user: (user.held // 2, next(iter(user.waiting)).number))
    assert list(users.waiting_by_usage) == in_turn
    by_load = sorted(users.values(), key=lambda user: (_per_weight(user), user.arrival))
    assert list(users.by_load) == by_load
    assert users.heaviest == (_per_weight(by_load[-1]) if by_load else 0)
    weights = [users.weights.get(user, 1) for user in users]
    assert [user.weight for user in users.values()] == weights
    assert users.weight_sum == sum(weights)
    assert users.weights_differ == (len(set(weights)) > 1)


def _per_weight(user: Any) -> Fraction:
    return Fraction(user.load) / user.weight


steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from("abc"), st.integers(1, 14), st.integers(1, 14)),
        st.integers(0, 30).map(lambda number: ("cancel", number, 0)),
        st.integers(1, 12).map(lambda ticks: ("tick", ticks, 0)),
        st.tuples(st.just("weigh"), st.sampled_from("abc"), st.sampled_from((1, 2, 3, 0.3))),
    ),
    max_size=50,
)


@given(steps, st.sampled_from(sorted(POLICIES)), st.sets(st.integers(1, 20), max_size=5))
def test_accounts_follow_every_move(
    drawn: list[tuple[Any, ...]], policy: str, failing: set[int]
) -> None:
    executor = FailingExecutor(ConstantExecutor(), failing)
    scheduler = Scheduler(SMALL, make_policy(policy), executor)
    for index, (what, first, second) in enumerate(drawn):
        if what == "tick":
            for _ in range(first):
                try:
                    scheduler.tick()
                except RuntimeError:
                    assert executor.calls in failing
                assert_accounts(scheduler)
        elif what == "weigh":
            scheduler.set_weight(first, second)
        elif what == "cancel":
            scheduler.cancel(str(first))
        else:
            scheduler.submit(a_request(str(index), first, second, what))
        assert_accounts(scheduler)

"""Whose turn it is: the history of a run, step by step."""

from batchproof.spec.actions import Cancel, Tick, Work
from batchproof.spec.bounds import SIZES
from batchproof.spec.history import remembered
from batchproof.spec.lifecycle import DECODING, PREFILLING, WAITING
from batchproof.spec.state import LONG_GAP, History, Live, State

SYSTEM = SIZES["users"].system
"""Requests 0 and 1 are of user 0, requests 2 and 3 of user 1."""


def state(history: History | None = None, **phases: str) -> State:
    live = (Live(int(name[1]), phase, 0, 1, 1) for name, phase in phases.items())  # type: ignore[arg-type]
    return State(tuple(live), 0, history)


DECODE = {"r0": DECODING, "r1": DECODING, "r2": DECODING}
ALL = History(decoding=(0, 1, 2), gaps=(0, 0, 0), users=(0, 1))


def test_those_that_decode_go_behind_those_that_do_not() -> None:
    after = remembered(
        SYSTEM, state(ALL, **DECODE), Tick(Work(feed=((0, 1), (1, 1)))), state(**DECODE)
    )
    assert after.decoding == (2, 0, 1)
    assert after.gaps == (1, 0, 0)


def test_the_order_stays_when_all_decode() -> None:
    fed = Tick(Work(feed=((2, 1), (0, 1), (1, 1))))
    assert remembered(SYSTEM, state(ALL, **DECODE), fed, state(**DECODE)) == ALL


def test_a_completed_prefill_comes_last_and_who_leaves_is_forgotten() -> None:
    before = state(
        History(decoding=(0, 1), prefilling=(2,), gaps=(2, 0), users=(0, 1)),
        r0=DECODING, r1=DECODING, r2=PREFILLING, r3=WAITING,
    )  # fmt: skip
    event = Tick(Work(preempt=(1,), admit=(3,), feed=((2, 1), (3, 1))))
    after = state(r0=DECODING, r1=WAITING, r2=DECODING, r3=PREFILLING)
    assert remembered(SYSTEM, before, event, after, memory="kept") == History(
        decoding=(0, 2), prefilling=(3,), gaps=(3, 0), users=(0, 1), memory="kept"
    )


def test_gaps_are_counted_in_ticks_and_up_to_a_point() -> None:
    long = ALL._replace(gaps=(LONG_GAP, 1, 0))
    skipped = remembered(SYSTEM, state(long, **DECODE), Tick(Work(feed=((2, 1),))), state(**DECODE))
    assert skipped.gaps == (LONG_GAP, 2, 0)
    cancelled = remembered(
        SYSTEM, state(long, **DECODE), Cancel(0), state(r1=DECODING, r2=DECODING)
    )
    assert cancelled.gaps == (1, 0)


def test_users_are_in_order_of_arrival() -> None:
    before = state(History(users=(1, 0)), r2=WAITING, r0=WAITING)
    assert remembered(SYSTEM, before, Cancel(2), state(r0=WAITING)).users == (0,)
    both = state(History(users=(0,)), r0=WAITING)
    assert remembered(SYSTEM, both, Cancel(1), state(r2=WAITING, r0=WAITING)).users == (0, 1)

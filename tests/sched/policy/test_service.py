"""Debts: what users were served beyond the least served of those who waited."""

from types import SimpleNamespace
from typing import Any

import pytest

from batchproof.sched.policy.service import UNIT, Debts, least_served, summed


def waiting(*users: str) -> Any:
    """Return a view in which these users wait."""
    return SimpleNamespace(waiting_by_user=dict.fromkeys(users, ()))


@pytest.fixture
def debts() -> Debts:
    """Return the debts after two ticks: `a` was served 7, `b` 3, while both waited."""
    debts = Debts(debt_max=9)
    debts.add((("a", 0), ("b", 0)), (("a", 5),))
    debts.add((("a", 5), ("b", 0)), (("a", 2), ("b", 3)))
    return debts


def test_at_first_nobody_owes_anything() -> None:
    assert Debts().of_waiting(waiting("a", "b")) == {"a": 0, "b": 0}
    assert Debts().of_waiting(waiting()) == {}


def test_until_a_bound_is_given_nobody_owes_anything() -> None:
    debts = Debts()
    debts.add((("a", 0),), (("a", 5),))
    assert debts.state() == (("a", 0),)


def test_what_a_tick_serves_is_added(debts: Debts) -> None:
    assert debts.of_waiting(waiting("a", "b")) == {"a": 7, "b": 3}


def test_who_comes_begins_with_the_least_of_those_who_wait(debts: Debts) -> None:
    assert debts.of_waiting(waiting("a", "new")) == {"a": 7, "new": 7}
    assert debts.of_waiting(waiting("a", "b", "new")) == {"a": 7, "b": 3, "new": 3}
    assert debts.of_waiting(waiting("new")) == {"new": 0}


def test_debts_are_counted_from_the_least_of_those_who_waited(debts: Debts) -> None:
    debts.add((("a", 7),), ())
    assert debts.state() == (("a", 0), ("b", 0))


def test_who_was_served_and_did_not_wait_owes_it(debts: Debts) -> None:
    debts.add((("b", 3),), (("c", 2),))
    assert debts.state() == (("a", 4), ("b", 0), ("c", 2))


def test_where_nobody_waits_nothing_is_counted(debts: Debts) -> None:
    debts.add((), (("a", 5),))
    assert debts.state() == (("a", 7), ("b", 3))


def test_a_debt_is_at_most_so_much(debts: Debts) -> None:
    debts.add((("a", 7), ("b", 3)), (("a", 99),))
    assert debts.state() == (("a", 9), ("b", 0))


def test_who_leaves_is_forgotten(debts: Debts) -> None:
    debts.left("a")
    debts.left("nobody")
    assert debts.state() == (("b", 3),)
    debts.clear()
    assert debts.state() == ()


def test_restored_they_are_the_same(debts: Debts) -> None:
    restored = Debts(debt_max=9)
    restored.restore(debts.state())
    assert restored.of_waiting(waiting("a", "b")) == {"a": 7, "b": 3}


def test_charges_of_one_user_are_one() -> None:
    assert summed([("a", 1), ("b", 2), ("a", 3)]) == (("a", 4), ("b", 2))


def test_of_equal_counts_whoever_holds_less_is_next_as_admissions_add_up() -> None:
    first, second, other = (SimpleNamespace(number=number) for number in range(3))
    view: Any = SimpleNamespace(
        waiting_by_user={"a": [first, second], "b": [other]},
        users={"a": SimpleNamespace(held=0), "b": SimpleNamespace(held=1)},
        blocks_to_admit=lambda candidate: 2,
    )
    free_of_charge = least_served(view, {"a": 0, "b": 0}, lambda candidate: 0)
    assert list(free_of_charge) == [first, other, second]
    charged = least_served(view, {"a": 0, "b": 3}, lambda candidate: 2)
    assert list(charged) == [first, second, other]


@pytest.mark.parametrize("weight", range(1, 17))
def test_service_is_divided_by_whole_weights_without_a_rest(weight: int) -> None:
    assert summed([("a", UNIT // weight)] * weight) == (("a", UNIT),)

"""Credit by examples: it is spent, comes back slowly, and new names make none."""

import pytest

from batchproof.sched.policy.credit import Credit


def test_it_is_spent_and_comes_back_up_to_the_cap() -> None:
    credit = Credit(cap=10, purse=30)
    credit.spend("a", 7)
    assert (credit.of("a"), credit.of("b")) == (3, 10)
    credit.refill(each=2, purse=0)
    assert credit.of("a") == 5
    credit.refill(each=99, purse=0)
    assert credit.of("a") == 10


def test_new_names_make_no_new_credit() -> None:
    credit = Credit(cap=10, purse=30)
    spent = 0
    for index in range(100):
        spent += credit.of(f"u{index}")
        credit.spend(f"u{index}", credit.of(f"u{index}"))
        credit.left(f"u{index}")
    assert spent == 30


def test_what_is_not_spent_goes_back() -> None:
    credit = Credit(cap=10, purse=10)
    credit.spend("a", 1)
    assert credit.of("b") == 0
    credit.left("a")
    assert credit.of("b") == 9


def test_what_came_back_before_it_was_spent_does_not_come_back_again() -> None:
    credit = Credit(cap=10, purse=30)
    credit.spend("a", 7)
    credit.refill(each=2, purse=0)
    credit.spend("a", 1)
    credit.refill(each=1, purse=0)
    assert credit.of("a") == 5


def test_the_purse_is_never_more_than_full() -> None:
    credit = Credit(cap=10, purse=10)
    credit.spend("a", 1)
    credit.refill(each=0, purse=5)
    credit.left("a")
    assert credit.of("b") == 10


def test_it_comes_back_from_its_state() -> None:
    credit = Credit(cap=10, purse=30)
    credit.spend("a", 7)
    credit.refill(each=2, purse=1)
    other = Credit()
    other.restore(credit.state())
    assert other.state() == credit.state()
    assert other.of("a") == 5


@pytest.mark.parametrize("limits", [{}, {"cap": 10}, {"purse": 10}], ids=str)
def test_there_is_none_without_both_a_cap_and_a_purse(limits: dict[str, int]) -> None:
    assert Credit(**limits).of("a") == 0


def test_until_somebody_has_spent_the_limits_are_no_part_of_its_state() -> None:
    restored = Credit(cap=5, purse=5)
    restored.restore(Credit(cap=10, purse=30).state())
    assert (restored.cap, restored.purse) == (0, 0)

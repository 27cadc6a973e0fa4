"""Limits: refused when they make no sense; the block arithmetic that every rule is stated in."""

from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchproof import Limits, Scheduler
from batchproof.sched.errors import LimitsError

SIZES = ("max_kv_blocks", "block_size", "chunk_size", "token_budget", "max_batch_size")
BOUNDS = (
    "max_waiting_requests",
    "max_waiting_tokens",
    "max_waiting_requests_per_user",
    "max_waiting_tokens_per_user",
)


def test_the_defaults_are_those_of_the_rules() -> None:
    assert Limits() == Limits(
        max_kv_blocks=256,
        block_size=16,
        chunk_size=64,
        token_budget=512,
        max_batch_size=64,
        eos_token=0,
        max_passes=16,
        **dict.fromkeys(BOUNDS, None),  # type: ignore[arg-type]
    )
    assert {field.name for field in fields(Limits)} == {*SIZES, "eos_token", *BOUNDS, "max_passes"}


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("value", [0, -1, 1.0, "8", None, True])
def test_a_size_below_1_or_not_an_int_is_refused_with_what_there_is_by_default(
    name: str, value: Any
) -> None:
    with pytest.raises(LimitsError) as refusal:
        Limits(**{name: value})

    message = str(refusal.value)
    assert f"{name}={value!r}" in message
    assert "at least 1" in message
    assert f"default is {getattr(Limits(), name)}" in message


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("value", [0, -1, 1.0, "8", True])
def test_a_bound_of_the_queue_is_none_or_at_least_1(name: str, value: Any) -> None:
    assert Limits().queue_bounds == {}
    assert Limits(**{name: 1}).queue_bounds == {name: 1}
    with pytest.raises(LimitsError, match=f"{name}=.*at least 1.*default is None"):
        Limits(**{name: value})


@pytest.mark.parametrize("value", [-1, 0.0, "0", None, False, 2**64])
def test_an_eos_token_that_is_not_a_token_id_is_refused(value: Any) -> None:
    with pytest.raises(LimitsError, match=r"eos_token=.*at least 0"):
        Limits(eos_token=value)


def test_the_smallest_machine_that_makes_sense_is_one_of_each() -> None:
    assert Limits(**dict.fromkeys(SIZES, 1)).max_kv_blocks == 1


def test_limits_do_not_change() -> None:
    limits = Limits()
    with pytest.raises(FrozenInstanceError):
        limits.max_kv_blocks = 1  # type: ignore[misc]


def test_a_scheduler_takes_limits_and_nothing_that_looks_like_them() -> None:
    with pytest.raises(LimitsError, match="not a Limits"):
        Scheduler({"max_kv_blocks": 4})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tokens", "blocks"), [(0, 0), (1, 1), (15, 1), (16, 1), (17, 2), (4096, 256), (4097, 257)]
)
def test_blocks_are_taken_whole(tokens: int, blocks: int) -> None:
    assert Limits().blocks_for(tokens) == blocks


@pytest.mark.parametrize(
    ("prompt", "generated", "max_tokens", "blocks"),
    [
        (16, 0, 1, 1),  # its only token needs no slot
        (16, 0, 2, 2),  # its first token does
        (15, 0, 9, 1),
        (16, 15, 40, 2),
        (16, 16, 40, 3),  # resumed: prompt and generated, and the one about to come
        (16, 19, 20, 3),  # resumed for its last token
    ],
)
def test_an_admission_covers_the_context_and_the_token_about_to_come(
    prompt: int, generated: int, max_tokens: int, blocks: int
) -> None:
    assert Limits().blocks_at_admission(prompt, generated, max_tokens) == blocks


@given(
    st.integers(1, 40), st.integers(1, 500), st.integers(1, 200), st.integers(0, 199)
)  # fmt: skip
def test_no_admission_takes_more_than_the_peak_or_less_than_the_context(
    block_size: int, prompt: int, max_tokens: int, generated: int
) -> None:
    limits = Limits(block_size=block_size)
    generated %= max_tokens
    taken = limits.blocks_at_admission(prompt, generated, max_tokens)
    assert limits.blocks_for(prompt + generated) <= taken
    assert taken <= limits.blocks_at_peak(prompt, max_tokens)

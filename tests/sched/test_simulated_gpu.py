"""The judge judged: every wrong scheduler here yields other tokens than a right one.

They are in support/wrong_schedulers.py, written out as the shares that they feed.
"""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_request, run_to_end, submitted
from support.wrong_schedulers import (
    LIMITS,
    OUTPUTS,
    PROMPT,
    REQUEST,
    TABLE,
    WRONG,
    Share,
    decode,
    gpu,
    prefill,
    resumed,
    right,
)

from batchproof import Limits, Request, Scheduler, SimulatedGPU
from batchproof.sched.errors import ExecutorError, LimitsError


def test_a_right_scheduler_gets_the_expected_output() -> None:
    assert right(gpu()) == gpu().expected_output(REQUEST)


@given(st.lists(st.integers(1, 9), max_size=6), st.permutations(range(16)))
def test_neither_the_cuts_between_chunks_nor_the_blocks_used_change_the_output(
    cuts: list[int], blocks: list[int]
) -> None:
    edges = sorted({0, *cuts, len(PROMPT)})
    device = gpu()
    first = prefill(device, PROMPT, list(itertools.pairwise(edges)), blocks[:5])
    out = decode(device, [first], OUTPUTS - 1, table=blocks[:5])
    assert out == device.expected_output(REQUEST)


def test_a_right_recomputation_is_invisible() -> None:
    assert resumed(lambda out: PROMPT + out)(gpu()) == gpu().expected_output(REQUEST)


@pytest.mark.parametrize("mistake", WRONG)
@pytest.mark.parametrize("seed", range(5))
def test_every_mistake_changes_the_tokens(mistake: str, seed: int) -> None:
    device = gpu(seed=seed)
    assert WRONG[mistake](device) != device.expected_output(REQUEST)


def test_tokens_written_again_where_they_are_change_nothing() -> None:
    """A chunk that is fed again at its own position costs time, and is no mistake in memory."""
    device = gpu()
    first = prefill(device, PROMPT, [(0, 4), (0, 4), (4, 10)])
    assert decode(device, [first], OUTPUTS - 1) == device.expected_output(REQUEST)


def corrupt(device: SimulatedGPU, position: int) -> None:
    """Overwrite one token of the request's memory, through somebody else's second block."""
    block, offset = TABLE[position // 4], position % 4
    device.forward([Share([99], 4 + offset, [3, block], request_id="other")])


class TestTheContextIsReadBackInFull:
    """So that memory overwritten in between shows at the next such moment, at the latest."""

    @pytest.mark.parametrize("position", range(8))
    def test_when_a_prefill_ends(self, position: int) -> None:
        device = gpu()
        device.forward([Share(PROMPT[:8], 0, yields=False)])
        corrupt(device, position)
        (token,) = device.forward([Share(PROMPT[8:], 8)])
        assert token != device.expected_output(REQUEST)[0]

    @pytest.mark.parametrize("position", range(11))
    def test_at_a_block_boundary(self, position: int) -> None:
        device = gpu()
        out = decode(device, [prefill(device)], 1)  # 11 tokens in memory
        corrupt(device, position)
        decode(device, out, 1)  # now 12: three blocks are full
        assert out != device.expected_output(REQUEST)[: len(out)]

    @pytest.mark.parametrize("position", range(16))
    def test_at_the_last_token(self, position: int) -> None:
        device = gpu()
        out = decode(device, [prefill(device)], OUTPUTS - 2)  # 16 in memory, the last one to come
        corrupt(device, position)
        assert decode(device, out, 1) != device.expected_output(REQUEST)

    def test_and_not_more_often_for_it_must_stay_cheap(self) -> None:
        device = gpu()
        out = decode(device, [prefill(device)], 3)  # 13 in memory
        corrupt(device, 0)
        decode(device, out, 1)
        assert out == device.expected_output(REQUEST)[: len(out)], "seen only two tokens later"


@given(
    st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=40),
    st.integers(1, 24),
    st.integers(1, 11),
)
def test_the_running_hash_is_the_hash_of_a_full_read(
    prompt: list[int], outputs: int, chunk: int
) -> None:
    request = Request("u", prompt, outputs, "r")
    running, full = gpu(), gpu()
    context, table, out = list(prompt), list(range(16)), list[int]()
    while len(out) < outputs:
        fed = 0
        while fed < len(context):
            end = min(fed + chunk, len(context))
            (token,) = full.forward([Share(context[fed:end], fed, table, yields=True)])
            fed = end
        new = context if not out else context[-1:]
        share = Share(new, len(context) - len(new), table, outputs - len(out))
        assert running.forward([share]) == [token]
        out.append(token)
        context.append(token)
    assert out == running.expected_output(request)


class TestRefusals:
    @pytest.mark.parametrize(
        ("batch", "says"),
        [
            ([Share([1], 0, range(16)), Share([1], 0, [3])], "17 blocks, the memory has 16"),
            ([Share([1] * 5, 0, [3])], "up to position 5, its 1 blocks hold 4"),
            ([Share([1], 4, [3])], "up to position 5, its 1 blocks hold 4"),
            ([Share([1], 0, [])], "its 0 blocks hold 0"),
            ([Share([1], 0, [16])], "outside 0..15"),
            ([Share([1], 0, [-1])], "outside 0..15"),
            ([Share([], 0, [])], "feeds 0 tokens at position 0"),
            ([Share([], 3, [1])], "feeds 0 tokens at position 3"),
            ([Share([1, 2], -1, [1])], "feeds 2 tokens at position -1"),
            ([Share([-1], 0, [1])], "not token ids"),
            ([Share([1, 2**64], 0, [1])], "not token ids"),
            ([Share([1.5], 0, [1])], "not token ids"),
            ([Share(["a", "b"], 0, [1])], "not token ids"),
        ],
    )
    def test_nothing_is_written_and_no_time_passes(self, batch: list[Share], says: str) -> None:
        device = gpu()
        out = decode(device, [prefill(device)], 1)
        seconds = device.now()

        innocent = Share([99], 0, [TABLE[0]], request_id="first in the batch")
        with pytest.raises(ExecutorError, match=says):
            device.forward([innocent, *batch] if "17" not in says else batch)

        assert device.now() == seconds
        assert decode(device, out, OUTPUTS - 2) == device.expected_output(REQUEST)

    def test_a_batch_that_takes_all_the_memory_is_served(self) -> None:
        batch = [Share([1], 0, [block], request_id=str(block)) for block in range(16)]
        assert len(gpu().forward(batch)) == 16

    @pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
    def test_an_eos_rate_that_is_no_fraction_is_refused(self, rate: float) -> None:
        with pytest.raises(LimitsError, match="not a fraction"):
            SimulatedGPU(eos_rate=rate)

    def test_a_scheduler_with_more_memory_than_the_gpu_is_found_out(self) -> None:
        scheduler = Scheduler(Limits(max_kv_blocks=32, block_size=4), executor=gpu())
        scheduler.submit(a_request(prompt=64, max_tokens=40))
        with pytest.raises(ExecutorError, match="the memory has 16"):
            run_to_end(scheduler)


class TestDeterminism:
    def test_the_tokens_of_a_seed_are_pinned(self) -> None:
        request = Request("u", [1, 2, 3], 6, "r")
        assert [SimulatedGPU(seed=seed).expected_output(request) for seed in (0, 1)] == [
            [28934, 14442, 24854, 1518, 5632, 27668],
            [13787, 65, 2230, 31777, 31704, 13606],
        ]

    def test_another_seed_is_another_model_and_another_length_another_output(self) -> None:
        outputs = {tuple(gpu(seed=seed).expected_output(REQUEST)) for seed in range(20)}
        assert len(outputs) == 20
        shorter = replace_prompt(REQUEST, PROMPT[:-1])
        assert gpu().expected_output(shorter) != gpu().expected_output(REQUEST)

    def test_more_tokens_allowed_are_more_of_the_same(self) -> None:
        long = Request("u", PROMPT, 60, "r")
        assert gpu().expected_output(long)[:OUTPUTS] == gpu().expected_output(REQUEST)

    @pytest.mark.parametrize(("rate", "low", "high"), [(1 / 64, 0.013, 0.018), (0.25, 0.24, 0.26)])
    def test_eos_comes_as_often_as_asked(self, rate: float, low: float, high: float) -> None:
        device = SimulatedGPU(eos_rate=rate)
        tokens = [device.expected_output(Request("u", [n], 1, "r"))[0] for n in range(1, 20_001)]
        assert low < tokens.count(0) / len(tokens) < high

    def test_at_rate_0_never_and_at_rate_1_always(self) -> None:
        request = Request("u", [1], 500, "r")
        assert 0 not in SimulatedGPU(eos_rate=0).expected_output(request)
        assert SimulatedGPU(eos_rate=1).expected_output(request) == [0]

    @pytest.mark.parametrize("eos", [0, 5, 31_999, 40_000])
    def test_eos_is_the_token_of_the_limits_and_comes_only_as_eos(self, eos: int) -> None:
        device = SimulatedGPU(Limits(eos_token=eos), eos_rate=1 / 8)
        out = device.expected_output(Request("u", [3], 400, "r"))
        assert out.index(eos) == len(out) - 1


def replace_prompt(request: Request, prompt: list[int]) -> Request:
    return Request(request.user_id, prompt, request.max_tokens, request.request_id)


class TestTime:
    def test_is_virtual_and_moves_with_the_batch(self) -> None:
        device = gpu()
        assert device.now() == 0
        device.forward([Share([1], 0)])
        assert device.now() == pytest.approx(0.006)  # 5 ms, and 1 ms a sequence
        device.forward([Share([1], 0, [1]), replace(Share([1], 0, [2]), request_id="s")])
        assert device.now() == pytest.approx(0.013)

    def test_waiting_moves_it_forward_and_never_back(self) -> None:
        device = gpu()
        device.wait_until(2.5)
        device.wait_until(1.0)
        assert device.now() == 2.5

    def test_a_run_takes_the_time_of_its_batches(self) -> None:
        scheduler = Scheduler(LIMITS, executor=gpu())
        submitted(scheduler, [a_request("a", 2, 3), a_request("b", 2, 2)])
        run_to_end(scheduler)
        assert scheduler.executor.now() == pytest.approx(0.007 + 0.007 + 0.006)

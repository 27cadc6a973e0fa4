"""The latency models: the formulas of the rules, with numbers worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchproof import SimulatedGPU
from batchproof.sched.errors import LimitsError
from batchproof.sched.latency import LATENCY_MODELS, LatencyModel, latency_model


@pytest.mark.parametrize(
    ("name", "tokens", "sequences", "context", "ms"),
    [
        ("linear", 1, 1, 1, 6.0),
        ("linear", 512, 64, 9_999, 69.0),
        ("a100-llama3-8b", 1, 1, 0, 1.7 + 10.5),  # the floor
        ("a100-llama3-8b", 27, 1, 0, 1.7 + 10.5),  # 8.7 + 0.0665 * 27 = 10.4955: still the floor
        ("a100-llama3-8b", 512, 64, 0, 1.7 + 8.7 + 0.0665 * 512),
        ("a100-llama3-8b", 1, 1, 12_207, 12.2 + 12_207 * 131_072 / 1.6e9),  # about 1 ms more
        ("h100-llama2-7b", 1, 1, 0, 5.77),
        ("h100-llama2-7b", 512, 9, 9_999, 1.4 + 0.021 * 512),
    ],
)
def test_an_iteration_takes(
    name: str, tokens: int, sequences: int, context: int, ms: float
) -> None:
    assert latency_model(name).seconds(tokens, sequences, context) == pytest.approx(ms / 1e3)


@given(
    st.sampled_from(sorted(LATENCY_MODELS)),
    st.integers(1, 5_000),
    st.integers(1, 500),
    st.integers(0, 10**6),
)
def test_more_work_never_takes_less_time_and_half_more_at_most_half_more(
    name: str, tokens: int, sequences: int, context: int
) -> None:
    seconds = latency_model(name).seconds
    one = seconds(tokens, sequences, context)
    more = seconds(tokens + tokens // 2, sequences + sequences // 2, context + context // 2)
    assert one <= more <= 1.5 * one + 1e-12


def test_an_unknown_model_is_refused_with_those_there_are() -> None:
    with pytest.raises(LimitsError, match=r"'tpu' is unknown; there are: linear, a100-llama3-8b"):
        SimulatedGPU(latency="tpu")


def test_a_model_of_ones_own_is_taken() -> None:
    device = SimulatedGPU(latency=LatencyModel("mine", fixed_ms=250.0))
    device.forward([])
    assert device.now() == 0.25


def test_the_stub_has_the_linear_model_unless_asked() -> None:
    assert SimulatedGPU().latency is LATENCY_MODELS["linear"]

"""Hypothesis strategies for limits, requests and workloads."""

from typing import NamedTuple

from hypothesis import strategies as st

from batchproof.sched.config import Limits
from batchproof.sched.request import Request


class Submission(NamedTuple):
    """A request as it is drawn: sizes, and whose it is."""

    user_id: str
    prompt: int
    """Prompt tokens."""
    max_tokens: int

    def request(self, request_id: str) -> Request:
        """Return the request, its prompt made of token ids that are all different."""
        return Request(self.user_id, list(range(1, self.prompt + 1)), self.max_tokens, request_id)


@st.composite
def limits(draw: st.DrawFn, *, blocks_max: int = 64, budget_max: int = 128) -> Limits:
    """Draw limits that make sense: small ones first, for they shrink and press."""
    return Limits(
        max_kv_blocks=draw(st.integers(1, blocks_max)),
        block_size=draw(st.sampled_from([1, 2, 4, 16])),
        chunk_size=draw(st.integers(1, 64)),
        token_budget=draw(st.integers(1, budget_max)),
        max_batch_size=draw(st.integers(1, 16)),
    )


@st.composite
def submissions(draw: st.DrawFn, within: Limits, *, users: int = 3) -> Submission:
    """Draw a request that could finish alone within these limits (rule 4)."""
    # The last token needs no slot: prompt + max_tokens - 1 are held at the peak.
    room = within.max_kv_blocks * within.block_size
    prompt = draw(st.integers(1, room))
    max_tokens = draw(st.integers(1, room - prompt + 1))
    return Submission(f"u{draw(st.integers(0, users - 1))}", prompt, max_tokens)


def workloads(
    within: Limits, *, users: int = 3, requests_max: int = 20
) -> st.SearchStrategy[list[tuple[int, Submission]]]:
    """Draw requests, each with the tick before which it is submitted, in order of arrival."""
    arrival = st.tuples(st.integers(0, 50), submissions(within, users=users))
    return st.lists(arrival, min_size=1, max_size=requests_max).map(
        lambda drawn: sorted(drawn, key=lambda item: item[0])
    )

"""The steps that policies are composed of, each a pure function of the view."""

from collections.abc import Sequence
from typing import NamedTuple

from batchproof.sched.policy.protocol import Candidate, View


class Decodes(NamedTuple):
    """The decoding half of a plan."""

    decode: Sequence[Candidate]
    preempt: Sequence[Candidate]
    free_blocks: int
    """Blocks free after the preemptions and the growth of `decode`."""


def decodes_first(view: View) -> Decodes:
    """Plan as many decodes as budget and seats allow, least recently scheduled first (rule 6).

    Those at a block boundary take a block, oldest first. Where none is free, the
    youngest resident is preempted, which may be the claimant itself (rule 3):
    the oldest always goes on, so somebody ends.
    """
    limits = view.limits
    seats = min(limits.max_batch_size, limits.token_budget)
    decode = view.decoding
    claimants = view.growing
    if len(decode) > seats:
        decode = decode[:seats]
        chosen = {candidate.number for candidate in decode}
        claimants = [candidate for candidate in claimants if candidate.number in chosen]
    free = view.free_blocks
    if len(claimants) <= free:
        return Decodes(decode, (), free - len(claimants))

    residents = sorted((*view.decoding, *view.prefilling), key=_number)
    preempt: list[Candidate] = []
    for claimant in claimants:
        while not free and residents[-1].number >= claimant.number:
            preempt.append(residents.pop())
            free += preempt[-1].block_count
        if residents[-1:] and residents[-1].number >= claimant.number:
            free -= 1
    lost = {candidate.number for candidate in preempt}
    return Decodes([c for c in decode if c.number not in lost], preempt, free)


def chunks(
    view: View, candidates: Sequence[Candidate], budget: int, seats: int
) -> list[tuple[Candidate, int]]:
    """Give each candidate, in order, a chunk of its prefill while budget and seats last."""
    prefill: list[tuple[Candidate, int]] = []
    for candidate in candidates:
        tokens = min(view.limits.chunk_size, candidate.prefill_left, budget)
        if not tokens or len(prefill) >= seats:
            break
        prefill.append((candidate, tokens))
        budget -= tokens
    return prefill


def _number(candidate: Candidate) -> int:
    return candidate.number

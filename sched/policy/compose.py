"""The steps that policies are composed of, each a pure function of the view."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from batchproof.sched.policy.protocol import Candidate, Plan, View
from batchproof.spec.lifecycle import DECODING


class Decodes(NamedTuple):
    """The decoding half of a plan."""

    decode: Sequence[Candidate]
    preempt: Sequence[Candidate]
    free_blocks: int
    """Blocks free after the preemptions and the growth of `decode`."""


def decodes_first(view: View) -> Decodes:
    """Plan as many decodes as budget and seats allow, least recently scheduled first (rule 6).

    Those at a block boundary each take a block. While there are too few, the
    youngest resident is preempted, which may be one of them (rule 3): the oldest
    always goes on, so somebody ends.
    """
    seats = min(view.limits.max_batch_size, view.limits.token_budget)
    decode = view.decoding if len(view.decoding) <= seats else view.decoding[:seats]
    free = view.free_blocks
    needed = _blocks_to_grow(view, decode)
    if needed <= free:
        return Decodes(decode, (), free - needed)

    residents = sorted((*view.decoding, *view.prefilling), key=_number)
    lost: dict[int, Candidate] = {}
    while needed > free:
        loser = residents.pop()
        lost[loser.number] = loser
        free += loser.block_count
        if loser.phase == DECODING:
            decode = [c for c in view.decoding if c.number not in lost][:seats]
            needed = _blocks_to_grow(view, decode)
    return Decodes(decode, list(lost.values()), free - needed)


def _blocks_to_grow(view: View, decode: Sequence[Candidate]) -> int:
    if decode is view.decoding or not view.growing:
        return len(view.growing)
    return len({c.number for c in view.growing}.intersection(c.number for c in decode))


def chunks(
    view: View, candidates: Iterable[Candidate], budget: int, seats: int
) -> list[tuple[Candidate, int]]:
    """Give each candidate, in order, a chunk of its prefill while budget and seats last."""
    prefill: list[tuple[Candidate, int]] = []
    chunk_size = view.limits.chunk_size
    for candidate in candidates:
        tokens = min(chunk_size, candidate.prefill_left, budget)
        if not tokens or not seats:
            break
        prefill.append((candidate, tokens))
        budget -= tokens
        seats -= 1
    return prefill


def admissions(
    view: View, candidates: Iterable[Candidate], free: int, budget: int, seats: int
) -> tuple[list[Candidate], list[tuple[Candidate, int]]]:
    """Admit in order while memory, budget and seats last; return them, and the first chunks.

    The first that does not fit ends it: nobody passes those before them.
    """
    admit: list[Candidate] = []
    prefill: list[tuple[Candidate, int]] = []
    for candidate in candidates:
        blocks = view.blocks_to_admit(candidate)
        if blocks > free or not budget or not seats:
            break
        tokens = min(view.limits.chunk_size, candidate.prefill_left, budget)
        admit.append(candidate)
        prefill.append((candidate, tokens))
        free -= blocks
        budget -= tokens
        seats -= 1
    return admit, prefill


def running_first(view: View) -> Plan:
    """Serve residents, then admissions, each oldest first, until the budget or the seats end.

    While a decode has no block to grow into, the youngest resident is preempted;
    in a tick with a preemption nobody is admitted.
    """
    limits = view.limits
    budget, seats, free = limits.token_budget, limits.max_batch_size, view.free_blocks
    residents = sorted((*view.decoding, *view.prefilling), key=_number)
    growing = {candidate.number for candidate in view.growing}
    preempt: list[Candidate] = []
    decode: list[Candidate] = []
    prefill: list[tuple[Candidate, int]] = []
    turn = 0
    while turn < len(residents) and budget and seats:
        candidate = residents[turn]
        tokens = 1
        if candidate.phase != DECODING:
            tokens = min(limits.chunk_size, candidate.prefill_left, budget)
            prefill.append((candidate, tokens))
        elif candidate.number not in growing or free:
            free -= candidate.number in growing
            decode.append(candidate)
        else:
            preempt.append(residents.pop())
            free += preempt[-1].block_count
            continue
        budget -= tokens
        seats -= 1
        turn += 1
    if preempt:
        return Plan(preempt, decode, prefill=prefill)
    admit, first_chunks = admissions(view, view.waiting, free, budget, seats)
    return Plan(decode=decode, admit=admit, prefill=prefill + first_chunks)


def without(candidates: Sequence[Candidate], lost: Sequence[Candidate]) -> Sequence[Candidate]:
    """Return the candidates that are not among the lost."""
    if not lost:
        return candidates
    numbers = {candidate.number for candidate in lost}
    return [candidate for candidate in candidates if candidate.number not in numbers]


def has_no_token(candidate: Candidate) -> bool:
    """Tell whether a request has yielded no token so far."""
    return candidate.remaining == candidate.max_tokens


def _number(candidate: Candidate) -> int:
    return candidate.number

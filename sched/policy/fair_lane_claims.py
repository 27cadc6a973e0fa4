"""What fair-lane promises, as predicates: docs/explanation/fair-lane.md.

They know nothing of how the policy decides, so that tests, the model checker and
a monitor can hold it, or another policy, to the same words.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from batchproof.sched.config import Limits
from batchproof.sched.policy.compose import has_no_token
from batchproof.sched.policy.protocol import Candidate, Plan, View
from batchproof.sched.weights import load_per_weight

SHARE = 2
"""The other work in the lane is at most the lane's own divided by this."""


class Resident(NamedTuple):
    """A request that holds memory, and its place."""

    user: str
    number: int


class Work(NamedTuple):
    """What a batch, or a part of it, feeds."""

    tokens: int
    sequences: int


def lane_work(view: View, plan: Plan, lane: Collection[str], heavier: int) -> tuple[Work, Work]:
    """Return the lane's own work in a plan whose lane is that of the users `lane`, and all of it.

    Its own are the first tokens of all who have not `heavier` times the load over
    weight of its lightest user, and the decodes of those of them that have no lane.
    """
    users = view.users
    lightest = min((users[user] for user in lane), key=load_per_weight)

    def is_light(candidate: Candidate) -> bool:
        return load_per_weight(users[candidate.user_id]) < heavier * load_per_weight(lightest)

    first = [fed for c, fed in plan.prefill if has_no_token(c) and is_light(c)]
    beside = [c for c in plan.decode if c.user_id not in lane and is_light(c)]
    own = Work(sum(first) + len(beside), len(first) + len(beside))
    tokens = len(plan.decode) + sum(fed for _, fed in plan.prefill)
    return own, Work(tokens, len(plan.decode) + len(plan.prefill))


def lane_share_is_kept(lane_ticks: Iterable[tuple[Work, Work]]) -> bool:
    """Lane time: each tick of a run of lane ticks is (the lane's own work, the whole batch).

    Other work has at most half of the lane's own tokens in each tick, and at most
    half of its sequences over all ticks so far, rounded up. So a lane tick takes
    at most 3/2 of the time of its own work, on average over the run, if time T
    grows with both and T(x + x/2) <= 3/2 T(x), as every affine time does.
    Where a fit to measured times is used instead, the claim is about those times.
    """
    own_sequences = other_sequences = 0
    for own, whole in lane_ticks:
        own_sequences += own.sequences
        other_sequences += whole.sequences - own.sequences
        if (whole.tokens - own.tokens) * SHARE > own.tokens:
            return False
        if other_sequences * SHARE > own_sequences + 1:
            return False
    return True


def first_token_ticks_max(prompt: int, older: int, limits: Limits) -> int:
    """Ticks to first token: the most from a light user's submission to its first token.

    For the lightest user, by load over weight, with a request waiting for its first
    token, someone heavier, credit left, and memory for its prompts beside what its
    side holds and the oldest request of each heavier user, which may grow. `older` is
    what its side's older prompts have still to feed; they must be fewer than the seats,
    and the budget more than a chunk.
    One tick more than the chunks need: in the first, memory may go to one who asked before.
    """
    short = older // (limits.token_budget - limits.chunk_size + 1)
    return 1 + -(-prompt // limits.chunk_size) + short


def oldest_goes_on(residents: Collection[Resident], preempted: Collection[int]) -> bool:
    """Progress, first half: the oldest resident of all is never preempted."""
    return not residents or min(number for _, number in residents) not in preempted


def heads_go_last(residents: Collection[Resident], preempted: Collection[int]) -> bool:
    """Progress, second half: a user's oldest resident goes only when all others have gone."""
    heads: dict[str, int] = {}
    for user, number in sorted(residents):
        heads.setdefault(user, number)
    followers = {number for _, number in residents} - set(heads.values())
    return not set(heads.values()) & set(preempted) or followers <= set(preempted)

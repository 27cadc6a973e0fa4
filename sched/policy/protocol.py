"""What a policy sees, and what it answers.

A policy never touches memory, phases or counts: the scheduler checks the whole
plan against the rules first, and either carries it out or refuses it and stays
as it was. `plan` is a pure function of the view, and of the policy's own state
if it is a `StatefulPolicy`: a tick may be abandoned and tried again, and the
same plan must come out.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, cast

from batchproof.sched.config import Admission, Limits
from batchproof.sched.weights import Weight
from batchproof.spec.lifecycle import Phase


class Candidate(Protocol):
    """A live request as a policy sees it. Read-only."""

    @property
    def request_id(self) -> str:
        """The request's id."""
        ...

    @property
    def user_id(self) -> str:
        """Whose request it is."""
        ...

    @property
    def number(self) -> int:
        """Its place: lower comes first. Of two users it is the order of first submission."""
        ...

    @property
    def phase(self) -> Phase | None:
        """Where it is in its life."""
        ...

    @property
    def prompt_len(self) -> int:
        """Prompt tokens."""
        ...

    @property
    def max_tokens(self) -> int:
        """The limit on output tokens."""
        ...

    @property
    def remaining(self) -> int:
        """Output tokens still to come, unless EOS comes before."""
        ...

    @property
    def prefill_left(self) -> int:
        """Context tokens still to prefill in this residency."""
        ...

    @property
    def block_count(self) -> int:
        """Blocks that it holds."""
        ...


class UserView(Protocol):
    """A user with live requests, as a policy sees it. Read-only."""

    @property
    def user_id(self) -> str:
        """Who it is."""
        ...

    @property
    def weight(self) -> Weight:
        """What its share is in proportion to: an int or a fraction above 0, 1 if none is set."""
        ...

    @property
    def live(self) -> int:
        """Live requests."""
        ...

    @property
    def held(self) -> int:
        """Blocks that its residents hold."""
        ...

    @property
    def outstanding(self) -> int:
        """Blocks that its residents hold and its waiting requests would take now."""
        ...

    @property
    def load(self) -> int:
        """Blocks outstanding, and 8 for each live request."""
        ...

    @property
    def residents(self) -> Sequence[Candidate]:
        """Its prefilling and decoding requests, in order of place."""
        ...

    @property
    def waiting(self) -> Iterable[Candidate]:
        """Its waiting requests, in order of place."""
        ...


class UsersView(Protocol):
    """The users with live requests, as a policy sees them. Read-only."""

    def __getitem__(self, user_id: str, /) -> UserView:
        """Return a user with live requests."""
        ...

    def __iter__(self) -> Iterator[str]:
        """Iterate over their ids, in order of arrival of the user."""
        ...

    def __len__(self) -> int:
        """Return how many there are."""
        ...

    @property
    def waiting_by_usage(self) -> Iterable[UserView]:
        """Those with a waiting request: least memory held first, then the oldest waiting.

        Memory is compared in steps, each a quarter of all, but at least a block.
        """
        ...

    @property
    def by_load(self) -> Iterable[UserView]:
        """All of them: lightest per weight first, then in order of arrival of the user."""
        ...

    @property
    def heaviest(self) -> Weight:
        """The largest load per weight of any of them."""
        ...

    @property
    def weight_sum(self) -> Weight:
        """The sum of their weights."""
        ...

    @property
    def weights_differ(self) -> bool:
        """Whether they have more than one weight."""
        ...


class View(Protocol):
    """The scheduler between two ticks, as a policy sees it. Read-only."""

    @property
    def limits(self) -> Limits:
        """The limits of the scheduler."""
        ...

    @property
    def free_blocks(self) -> int:
        """Free blocks in the pool."""
        ...

    @property
    def decoding(self) -> Sequence[Candidate]:
        """The decoding requests, least recently scheduled first."""
        ...

    @property
    def growing(self) -> Sequence[Candidate]:
        """Those of them that need one more block before their next token, oldest first."""
        ...

    @property
    def prefilling(self) -> Sequence[Candidate]:
        """The prefilling requests, in order of admission."""
        ...

    @property
    def waiting(self) -> Iterable[Candidate]:
        """The waiting requests, in order of place."""
        ...

    @property
    def waiting_by_user(self) -> Mapping[str, Iterable[Candidate]]:
        """The same by user, for the users that have any, in order of arrival of the user."""
        ...

    @property
    def users(self) -> UsersView:
        """The users with live requests."""
        ...

    def blocks_to_admit(self, candidate: Candidate, /) -> int:
        """Return the blocks that admitting a waiting request would take now."""
        ...


@dataclass(slots=True)
class Plan:
    """What one tick does. It is carried out in the order of the fields."""

    preempt: Sequence[Candidate] = ()
    """Residents that give up their blocks."""
    decode: Sequence[Candidate] = ()
    """Decoding requests that yield a token; those in `growing` get their block first."""
    admit: Sequence[Candidate] = ()
    """Waiting requests that take their blocks; the oldest of each user first."""
    prefill: Sequence[tuple[Candidate, int]] = field(default_factory=list)
    """Prefilling or just admitted requests, and how many tokens each is fed."""
    note: Hashable = None
    """The policy's own: what it wants to know again in `completed`."""


class Policy(Protocol):
    """Decides what the next batch is."""

    @property
    def name(self) -> str:
        """Its name, as `--policy` takes it."""
        ...

    @property
    def admission(self) -> Admission:
        """How much memory its admissions take."""
        ...

    def plan(self, view: View, /) -> Plan:
        """Return the plan of the next tick, for a view with at least one live request."""
        ...


class StatefulPolicy(Policy, Protocol):
    """A policy that remembers, between ticks, what the view does not show.

    Its state changes in the two calls below and nowhere else. It is small,
    bounded by the users with live requests, and made of integers. `left` must
    not raise: the tick has happened by then.
    """

    def completed(self, plan: Plan, seconds: float = 0.0, /) -> None:
        """Hear that a plan is carried out, before anything of it shows in the view.

        `seconds` is how long the tick took; 0 where nobody knows.
        """
        ...

    def left(self, user_id: str, /) -> None:
        """Hear that the last live request of a user has ended."""
        ...

    def state(self) -> Hashable:
        """Return the state, as nested tuples: equal states plan alike for ever."""
        ...

    def restore(self, state: Hashable, /) -> None:
        """Become as a policy was whose `state` returned this."""
        ...


_REMEMBERS: Final = ("completed", "left", "state", "restore")


def stateful(policy: Policy) -> StatefulPolicy | None:
    """Return the policy itself if it is a `StatefulPolicy`, else None."""
    # Not by `isinstance` of a protocol: searches ask in every state, and it is slow.
    if all(hasattr(policy, name) for name in _REMEMBERS):
        return cast(StatefulPolicy, policy)
    return None

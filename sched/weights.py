"""Users' weights: what is shared between users is shared in proportion to them.

All arithmetic on them is exact: a weight is an int, or a `Fraction` that is the
float that was given. So no decision depends on rounding, and weights that are
multiplied by the same number decide alike.
"""

from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, Union

from batchproof.sched.errors import LimitsError

if TYPE_CHECKING:
    from fractions import Fraction

Weight: TypeAlias = Union[int, "Fraction"]
"""A user's weight: an int of at least 1, or a positive fraction that is none."""

WEIGHT_END: Final = 2**63
"""Weights are below this, so that JSON holds them."""


def checked_weight(user_id: Any, weight: Any) -> Weight:
    """Return a user's weight as an exact number; raise `LimitsError` if it is none."""
    if not isinstance(user_id, str) or not user_id:
        raise LimitsError(f"weights: {user_id!r} is not a user id, which is a non-empty str")
    if type(weight) not in (int, float) or not 0 < weight < WEIGHT_END:
        raise LimitsError(
            f"weights: the weight of user {user_id!r} is {weight!r}, not an int or a float above "
            f"0 (and below 2**63); a user without a weight has 1"
        )
    if weight == int(weight):
        return int(weight)
    from fractions import Fraction  # for whoever needs it: importing it takes milliseconds

    return Fraction(weight)


def plain(weight: Weight) -> int | float:
    """Return a weight as it was given."""
    return weight if isinstance(weight, int) else float(weight)


def per_weight(amount: int, weight: Weight) -> Weight:
    """Return `amount` divided by a weight, exactly."""
    if weight == 1:
        return amount
    from fractions import Fraction

    return Fraction(amount) / weight


class Weighted(Protocol):
    """A user: what its requests weigh on the scheduler, and its weight."""

    @property
    def load(self) -> int:
        """Blocks, and something for each request."""
        ...

    @property
    def weight(self) -> Weight:
        """What its share is in proportion to."""
        ...


def load_per_weight(user: Weighted) -> Weight:
    """Return what users are compared by."""
    return per_weight(user.load, user.weight)


def fair_cost(amount: int, users: int, weight_sum: Weight, weight: Weight) -> int:
    """Return what `amount` costs a user: more, the less its weight is of the users' mean.

    Rounded up to an int; just `amount` where all have the same weight.
    """
    return -(-amount * weight_sum // (users * weight))

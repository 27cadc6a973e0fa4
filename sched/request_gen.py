"""Generated workloads: Poisson arrivals of several users, the same on every machine.

Only `Random.random` is used, whose numbers every Python version keeps, and
only arithmetic that IEEE 754 defines to the last bit: no logarithm, no power.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from math import isfinite
from random import Random
from typing import Final, Literal, NamedTuple, get_args

from batchproof.sched.errors import InputError
from batchproof.sched.prompts import PromptRing
from batchproof.sched.request import Request

Assignment = Literal["zipf", "round-robin"]
"""How requests are given users: user k in proportion to 1/k, or each in turn."""
ASSIGNMENTS: Final[tuple[Assignment, ...]] = get_args(Assignment)

DEFAULT_USERS: Final = 8
DEFAULT_REQUESTS: Final = 2_000
DEFAULT_RATE: Final = 12.0
"""Requests a second: nearly what the default limits and latency model can serve."""
SEED_MAX: Final = 2**53 - 1
"""The largest seed: the largest int that every reader of JSON keeps."""


class Arrival(NamedTuple):
    """A request, and when it reaches the system: seconds from the start of the workload."""

    at_s: float
    request: Request


class Kind(NamedTuple):
    """A kind of request: how often it comes, and its lengths in tokens, both ends included."""

    name: str
    percent: int
    prompt: tuple[int, int]
    output: tuple[int, int]


KINDS: Final[tuple[Kind, ...]] = (
    Kind("chat", 60, prompt=(16, 256), output=(16, 192)),
    Kind("document", 25, prompt=(256, 1536), output=(16, 128)),
    Kind("story", 15, prompt=(16, 128), output=(192, 512)),
)
"""The mix of a generated workload; lengths are uniform within a kind."""

# One stream of random numbers for each thing drawn: more users do not change the lengths.
_STREAMS: Final = ("gaps", "kinds", "users", "prompts")


def random_stream(seed: int, purpose: str) -> Random:
    """Return the generator for one purpose; raise `InputError` for a seed out of range."""
    if not 0 <= seed <= SEED_MAX:
        raise InputError(f"seed is {seed}, not an int from 0 to {SEED_MAX}")
    return Random(seed * len(_STREAMS) + _STREAMS.index(purpose))


def user_names(users: int, assign: Assignment, seed: int) -> Iterator[str]:
    """Yield, without end, whose the next request is: `u1` to `u<users>`, padded to sort.

    Raises `InputError` for no users at all or an unknown assignment.
    """
    if users < 1:
        raise InputError(f"users is {users}, not an int of at least 1")
    if assign not in ASSIGNMENTS:
        raise InputError(f"assignment {assign!r} is unknown; there are: {', '.join(ASSIGNMENTS)}")
    width = len(str(users))
    names = [f"u{number:0{width}}" for number in range(1, users + 1)]
    return _in_turn(names) if assign == "round-robin" else _zipf(names, seed)


def _in_turn(names: list[str]) -> Iterator[str]:
    while True:
        yield from names


def _zipf(names: list[str], seed: int) -> Iterator[str]:
    draw = random_stream(seed, "users").random
    upto = list(accumulate(1 / rank for rank in range(1, len(names) + 1)))
    while True:
        yield names[bisect_right(upto, draw() * upto[-1], hi=len(names) - 1)]


@dataclass(frozen=True)
class PoissonWorkload:
    """`requests` requests of several users, `rate` a second on average, of mixed lengths.

    Iterating it yields the same arrivals every time. Raises `InputError` for
    numbers that make no sense.
    """

    requests: int = DEFAULT_REQUESTS
    rate: float = DEFAULT_RATE
    users: int = DEFAULT_USERS
    assign: Assignment = "zipf"
    seed: int = 0
    time_scale: float = 1.0
    """What every gap between arrivals is multiplied by."""

    def __post_init__(self) -> None:
        if self.requests < 1:
            raise InputError(f"requests is {self.requests}, not an int of at least 1")
        check_positive("rate", self.rate)
        check_positive("time_scale", self.time_scale)
        random_stream(self.seed, "gaps")
        user_names(self.users, self.assign, self.seed)

    def __iter__(self) -> Iterator[Arrival]:
        ring = PromptRing(self.seed)
        gaps, kinds, prompts = (
            random_stream(self.seed, purpose) for purpose in ("gaps", "kinds", "prompts")
        )
        users = user_names(self.users, self.assign, self.seed)
        percents = list(accumulate(kind.percent for kind in KINDS))
        at_s = 0.0
        for number in range(1, self.requests + 1):
            at_s += exponential(gaps) / self.rate * self.time_scale
            kind = KINDS[bisect_right(percents, int(kinds.random() * 100))]
            prompt_len, max_tokens = _uniform(kinds, kind.prompt), _uniform(kinds, kind.output)
            prompt = ring.prompt(int(prompts.random() * ring.size), prompt_len)
            request = Request(next(users), prompt, max_tokens, f"r{number}")
            yield Arrival(round(at_s, 6), request)


def stream(n: int, seed: int = 0) -> Iterator[Request]:
    """Yield `n` requests of mixed lengths and several users: the course material's name.

    The requests of a `PoissonWorkload`, without their arrival times. Raises
    `InputError` for an `n` below 1.
    """
    return (arrival.request for arrival in PoissonWorkload(requests=n, seed=seed))


def exponential(rng: Random) -> float:
    """Return an exponential variate of mean 1, exactly, from comparisons alone.

    Von Neumann's method (1951): a run of uniforms falls while each is below the
    one before; its first is the answer if the run's length is odd, otherwise
    1 is added and another run drawn. A logarithm would differ in its last bit
    from one C library to another.
    """
    whole = 0
    while True:
        first = below = rng.random()
        length = 1
        while (drawn := rng.random()) < below:
            below = drawn
            length += 1
        if length % 2:
            return whole + first
        whole += 1


def check_positive(name: str, value: float) -> None:
    """Raise `InputError` unless `value` is a finite number above 0."""
    if not (isfinite(value) and value > 0):
        raise InputError(f"{name} is {value}, not a number above 0")


def _uniform(rng: Random, ends: tuple[int, int]) -> int:
    low, high = ends
    return low + int(rng.random() * (high - low + 1))

"""What a soak case is: limits, a policy, and what happens before each tick; all drawn from a seed.

What happens in a tick depends on the case's seed and number and on the tick
alone, so that a run can go on from any tick, and be cut short, unchanged.
"""

from dataclasses import dataclass
from random import Random
from typing import Final, Literal, NamedTuple, get_args

from batchproof.sched.config import ADMISSIONS, Admission, Limits
from batchproof.sched.policy.registry import POLICIES

Failure = Literal["raises before", "raises after", "too few tokens", "too many tokens", "not ids"]
"""How the executor fails: before or after its memory was written, or by what it returns."""
KillPlace = Literal["during forward", "while a snapshot is written", "between ticks"]
"""Where the process is when it is killed."""

_FAILURES: Final[tuple[Failure, ...]] = get_args(Failure)
_KILL_PLACES: Final[tuple[KillPlace, ...]] = get_args(KillPlace)
_TICKS_MAX: Final = 120
_PROMPT_MAX: Final = 240
_TIMES_S: Final = ((None, None), (None, None), (None, None), (0.2, None), (None, 0.1), (1.0, 0.5))
"""Deadlines, from submission, and the longest times in the queue."""
_TOKENS_MAX: Final = 60


class Submission(NamedTuple):
    """A request that a user submits."""

    request_id: str
    user_id: str
    prompt: int
    """Its length in tokens."""
    max_tokens: int
    deadline_after_s: float | None = None
    """Seconds from its submission to its deadline."""
    max_queue_time_s: float | None = None
    priority: int = 0


class Kill(NamedTuple):
    """The end of a process, by SIGKILL."""

    tick: int
    """Before it ends, if it comes to that place again."""
    place: KillPlace


@dataclass(frozen=True)
class Script:
    """What happens before and in one tick."""

    submissions: tuple[Submission, ...] = ()
    refused: bool = False
    """Whether users also submit what must be refused."""
    cancels: tuple[float, ...] = ()
    """Each the place among the live requests, from 0 to 1, of one that is cancelled."""
    restarts: Literal["memory kept", "memory lost"] | None = None
    """Whether the scheduler is restored from a snapshot first."""
    failure: Failure | None = None
    """How the executor fails, before the tick is tried again."""
    commits: bool = False
    """Whether a snapshot is written after the tick."""


def quiet(tick: int) -> Script:
    """Return what happens in a tick after the script: work, and a snapshot now and then."""
    return Script(commits=tick % 16 == 0)


@dataclass(frozen=True)
class Case:
    """One run of a soak."""

    seed: int
    number: int
    limits: Limits
    policy: str
    admission: Admission
    users: int
    ticks: int
    """Ticks with users at work; after them what is live runs to its end."""
    rate: float
    """The mean number of submissions a tick."""
    eos_rate: float
    fault_rate: float
    """The fraction of ticks in which the executor fails."""
    kills: tuple[Kill, ...]

    @classmethod
    def draw(cls, seed: int, number: int) -> "Case":
        """Return the case of this number."""
        rng = Random(f"soak {seed} {number}")
        limits = Limits(
            max_kv_blocks=rng.choice((8, 24, 48, 256)),
            block_size=rng.choice((1, 4, 16)),
            chunk_size=rng.choice((1, 7, 64)),
            token_budget=rng.choice((5, 16, 64, 512)),
            max_batch_size=rng.choice((1, 4, 16, 64)),
            max_passes=rng.choice((0, 1, 16)),
            max_waiting_requests=rng.choice((None, None, 6)),
            max_waiting_tokens_per_user=rng.choice((None, None, 400)),
        )
        ticks = rng.randint(20, _TICKS_MAX)
        kills = [
            Kill(rng.randrange(ticks), rng.choice(_KILL_PLACES)) for _ in range(rng.randrange(4))
        ]
        return cls(
            seed=seed,
            number=number,
            limits=limits,
            policy=rng.choice(tuple(POLICIES)),
            admission=rng.choice(ADMISSIONS),
            users=rng.choice((1, 3, 9)),
            ticks=ticks,
            rate=rng.choice((0.1, 0.4, 1.0)),
            eos_rate=rng.choice((0.0, 1 / 64, 1 / 8)),
            fault_rate=rng.choice((0.0, 0.05, 0.3)),
            kills=tuple(sorted(kills)),
        )

    def script(self, tick: int) -> Script:
        """Return what happens in a tick."""
        rng = Random(f"soak {self.seed} {self.number} {tick}")
        count = int(rng.random() * 4 * self.rate) if rng.random() < 0.5 else 0
        return Script(
            submissions=tuple(self._submission(rng, f"t{tick}n{n}") for n in range(count)),
            refused=rng.random() < 0.1,
            cancels=tuple(rng.random() for _ in range(int(rng.random() < 0.1))),
            restarts=rng.choice(("memory kept", "memory lost")) if rng.random() < 0.05 else None,
            failure=rng.choice(_FAILURES) if rng.random() < self.fault_rate else None,
            commits=rng.random() < 0.2,
        )

    def _submission(self, rng: Random, request_id: str) -> Submission:
        """Draw a request that could finish alone: rule 4."""
        room = self.limits.max_kv_blocks * self.limits.block_size
        prompt = rng.randint(1, min(room, _PROMPT_MAX))
        max_tokens = rng.randint(1, min(room - prompt + 1, _TOKENS_MAX))
        user_id = f"u{rng.randrange(self.users)}"
        deadline, patience = rng.choice(_TIMES_S)
        priority = rng.choice((0, 0, 1, 5))
        return Submission(request_id, user_id, prompt, max_tokens, deadline, patience, priority)

"""What the adapters of all engines share: who decides what, and what is refused.

The scheduler decides who runs, on which tokens and in which blocks. The engine
runs the model, and decides when a request has ended: it knows the stop tokens
and how long the model's context is. The two must agree, tick by tick, or the
tick is refused.
"""

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from typing import Final, NamedTuple, NoReturn

from batchproof.sched.batch import Batch
from batchproof.sched.config import Limits
from batchproof.sched.errors import ExecutorError, LimitsError, MisuseError
from batchproof.sched.policy.protocol import Policy
from batchproof.sched.request import Request
from batchproof.sched.request import Sequence as ScheduledRequest
from batchproof.sched.scheduler import Scheduler
from batchproof.spec.lifecycle import FinishReason

STOPPED: Final = 2**64 - 1
"""What the scheduler is told instead of the token when the engine says that a request stopped.

No vocabulary has this id, so no real token ends a request by itself. The engine
keeps the real one, and delivers it.
"""

ONE_USER: Final = "default"
"""The user of a request that names none."""

PolicyChoice = str | Callable[[], Policy]
"""The name of a shipped policy, or what makes one of your own."""


class Answer(NamedTuple):
    """What came of one scheduled sequence in the engine."""

    token: int | None = None
    """The token sampled for it; None while its prefill is unfinished."""
    ended: FinishReason | None = None
    """Why its request has ended with that token; None while it goes on."""

    @classmethod
    def while_live(cls, sequence: ScheduledRequest, token: int | None) -> "Answer":
        """Return the answer for a request that no stop token ends."""
        last = sequence.yields and sequence.remaining == 1
        return cls(token, "length" if last else None)


class EngineClock:
    """The executor of a scheduler whose batches an engine runs: it only tells the time."""

    def now(self) -> float:
        """Return the seconds since some moment in the past; they never go back."""
        return time.monotonic()

    def forward(self, _batch: object) -> NoReturn:
        """Raise `MisuseError`: the engine runs the model."""
        raise MisuseError("an engine's scheduler is driven by the engine: do not call tick()")


class EngineScheduler:
    """The verified scheduler as an engine drives it: one batch out at a time, then its answers.

    `limits.eos_token` must be `STOPPED`. Raises `LimitsError` for an unknown policy.
    """

    def __init__(self, limits: Limits, policy: PolicyChoice) -> None:
        chosen = policy if isinstance(policy, str) else policy()
        self.core = Scheduler(limits, chosen, EngineClock())
        self.batch: Batch | None = None
        """The batch that is out."""
        self._cancelled: list[str] = []

    def schedule(self) -> Batch:
        """Return the next batch; raise `PolicyError` for an illegal plan."""
        self.batch = self.core.schedule()
        return self.batch

    def complete(self, answers: Sequence[Answer]) -> list[Request]:
        """Take the engine's answer for each sequence of the batch; return the requests that ended.

        Raises `ExecutorError`, the batch still out, where the engine and the
        scheduler disagree on which request yields a token or has ended.
        """
        if self.batch is None:
            raise MisuseError("complete: no batch is out; call schedule first")
        tokens = [
            _token_for_scheduler(sequence, answer)
            for sequence, answer in zip(self.batch, answers, strict=True)
        ]
        ended = self.core.complete(self.batch, tokens)
        self.batch = None
        for request_id in self._cancelled:
            self.core.cancel(request_id)
        self._cancelled.clear()
        return ended

    def cancel(self, request_id: str) -> None:
        """End a request: at once, or when the batch that is out, and uses its blocks, is back."""
        if self.batch is None:
            self.core.cancel(request_id)
        else:
            self._cancelled.append(request_id)


def _token_for_scheduler(sequence: ScheduledRequest, answer: Answer) -> int:
    """Return the token to complete with; raise `ExecutorError` if the answer cannot be right."""
    if (answer.token is not None) != sequence.yields:
        verb = "completes" if sequence.yields else "does not complete"
        raise ExecutorError(
            f"engine: request {sequence.request_id!r} was fed {len(sequence.tokens)} tokens at "
            f"position {sequence.position}, which {verb} its context; "
            f"the engine sampled {answer.token!r}"
        )
    stopped = sequence.yields and answer.ended == "eos"
    if not stopped and answer.ended != Answer.while_live(sequence, None).ended:
        raise ExecutorError(
            f"engine: request {sequence.request_id!r} has {sequence.remaining} tokens to come, "
            f"but the engine says that it ended by {answer.ended!r}"
        )
    return STOPPED if stopped else answer.token or 0


def refuse_options(engine: str, options: Iterable[tuple[str, str]]) -> None:
    """Raise `LimitsError` if there are any options, naming each and what to do about it."""
    asked = [f"{option}: {remedy}" for option, remedy in options]
    if asked:
        raise LimitsError(
            f"batchproof's scheduler does not support what {engine} is asked for:\n  "
            + "\n  ".join(asked)
        )


def warn_if_untried(engine: str, version: str, tried: Sequence[str]) -> None:
    """Warn when this version of the engine was not tried: its scheduler interface may differ."""
    if version.partition("+")[0] not in tried:
        warnings.warn(
            f"{engine} {version} was not tried with batchproof; tried: {', '.join(tried)}. "
            "Its scheduler interface may have changed: compare its tokens with those of its own "
            "scheduler before you rely on it",
            RuntimeWarning,
            stacklevel=3,
        )


def missing_engine(error: ModuleNotFoundError, engine: str, tried: Sequence[str]) -> ImportError:
    """Return the error to raise when an engine, or the part of it that is needed, is not there."""
    if find_spec(engine) is None or find_spec("torch") is None:
        return ModuleNotFoundError(
            f"this adapter needs {engine} and torch: pip install 'batchproof[{engine}]'",
            name=error.name,
        )
    return ImportError(
        f"this {engine} has no {error.name}; tried with batchproof: {', '.join(tried)}: "
        f"pip install '{engine}=={tried[-1]}'"
    )

"""A request as its user sees it, and as the scheduler keeps it while it lives."""

from array import array
from collections.abc import Sequence as SequenceOf

from batchproof.sched.config import Limits
from batchproof.sched.errors import InfeasibleRequestError, InvalidRequestError
from batchproof.spec.lifecycle import DECODING, WAITING, FinishReason, Phase


class Request:
    """One prompt of one user, with a limit on new tokens.

    The object is the user's own; the scheduler fills `generated`, `phase` and
    `finish_reason`. Nothing is checked before it is submitted.
    """

    __slots__ = (
        "deadline_s",
        "finish_reason",
        "generated",
        "max_queue_time_s",
        "max_tokens",
        "phase",
        "priority",
        "prompt",
        "request_id",
        "user_id",
    )

    def __init__(
        self,
        user_id: str,
        prompt: SequenceOf[int],
        max_tokens: int,
        request_id: str,
        *,
        priority: int = 0,
        deadline_s: float | None = None,
        max_queue_time_s: float | None = None,
    ) -> None:
        self.user_id = user_id
        self.prompt = prompt
        """Token ids: non-negative ints. Read once, at submission."""
        self.max_tokens = max_tokens
        self.request_id = request_id
        self.priority = priority
        """Higher is more urgent, among its user's own requests (rule 5)."""
        self.deadline_s = deadline_s
        """When it expires unless done, in seconds of the executor's clock; None: never."""
        self.max_queue_time_s = max_queue_time_s
        """Seconds from submission after which it expires unless ever admitted; None: never."""
        self.generated: list[int] = []
        """Output token ids so far, EOS included."""
        self.phase: Phase | None = None
        """None until it is submitted."""
        self.finish_reason: FinishReason | None = None
        """None until it is done."""

    def __repr__(self) -> str:
        return (
            f"Request({self.request_id!r}, user_id={self.user_id!r}, prompt={_length(self.prompt)} "
            f"tokens, max_tokens={self.max_tokens!r}, phase={self.phase!r}, "
            f"generated={len(self.generated)} tokens, finish_reason={self.finish_reason!r})"
        )


class Sequence:
    """What the scheduler keeps of a live request; also its share of a batch.

    Executors see it as an `executor.ScheduledSequence`, policies as a
    `policy.Candidate`: both read-only. Only the scheduler writes to it.
    """

    __slots__ = (
        "admission_blocks",
        "blocks",
        "computed_max",
        "context_len",
        "deadline_s",
        "first_token_at",
        "generated",
        "last_token_at",
        "max_queue_time_s",
        "max_tokens",
        "number",
        "passed",
        "passes",
        "preemptions",
        "prefilled",
        "priority",
        "prompt",
        "prompt_len",
        "queued_s",
        "request",
        "request_id",
        "scheduled",
        "steps_left",
        "submitted_at",
        "user_id",
        "waiting_since",
    )

    def __init__(
        self, request: Request, prompt: "array[int]", number: int, submitted_at: float
    ) -> None:
        self.request = request
        self.request_id = request.request_id
        self.user_id = request.user_id
        self.number = number
        """Its place: the order of first submission but for priorities. While it has never been
        admitted, each more urgent request that passes it moves it back by one place of its user."""
        self.prompt = prompt
        self.prompt_len = len(prompt)
        self.max_tokens = request.max_tokens
        self.priority = request.priority
        self.passed = 0
        """How often it was passed, at most `Limits.max_passes` times."""
        self.passes = 0
        """How many it passed itself, at its submission."""
        self.deadline_s = request.deadline_s
        self.max_queue_time_s = request.max_queue_time_s
        self.generated = request.generated
        self.admission_blocks = 0
        """While it waits: the blocks that admitting it takes."""
        self.blocks: list[int] = []
        self.context_len = self.prompt_len
        """Tokens to prefill in this residency: the prompt and what was generated before it."""
        self.prefilled = 0
        """How many of them have been fed in this residency."""
        self.scheduled = 0
        """Tokens fed in the batch that is out; of a decode always 1."""
        self.steps_left = 0
        """Decode steps until it ends by length or needs a block, whichever comes first."""
        self.submitted_at = submitted_at
        self.waiting_since = submitted_at
        self.queued_s = 0.0
        self.first_token_at: float | None = None
        self.last_token_at = submitted_at
        self.preemptions = 0
        self.computed_max = 0
        """The most tokens whose KV it had before a preemption: below it, feeding is recomputing."""

    @property
    def phase(self) -> Phase | None:
        """The request's phase."""
        return self.request.phase

    @property
    def was_admitted(self) -> bool:
        """Whether it was ever admitted: from then on it keeps its place for ever (rule 5)."""
        return self.preemptions > 0 or self.request.phase != WAITING

    @property
    def block_table(self) -> SequenceOf[int]:
        """Its blocks, in order of position."""
        return self.blocks

    @property
    def position(self) -> int:
        """The position in its context of the first token to feed."""
        if self.request.phase == DECODING:
            return self.prompt_len + len(self.generated) - 1
        return self.prefilled

    @property
    def tokens(self) -> SequenceOf[int]:
        """The token ids to feed: the one generated last, or a chunk of the context."""
        if self.request.phase == DECODING:
            return self.generated[-1:]
        start, end = self.prefilled, self.prefilled + self.scheduled
        chunk = self.prompt[start:end].tolist()
        if end > self.prompt_len:
            chunk += self.generated[max(start - self.prompt_len, 0) : end - self.prompt_len]
        return chunk

    @property
    def prefill_left(self) -> int:
        """Tokens of its context that this residency has not been fed yet."""
        return self.context_len - self.prefilled

    @property
    def remaining(self) -> int:
        """Output tokens still to come, unless EOS comes before."""
        return self.max_tokens - len(self.generated)

    @property
    def yields(self) -> bool:
        """Whether the token returned for its share of the batch counts."""
        return self.request.phase == DECODING or self.scheduled == self.prefill_left

    @property
    def block_count(self) -> int:
        """How many blocks it holds."""
        return len(self.blocks)

    def __repr__(self) -> str:
        return f"<Sequence {self.number} of {self.request!r}>"


def checked_prompt(request: Request, limits: Limits) -> "array[int]":
    """Return the prompt; raise a `RequestError` unless the request could finish alone (rule 4)."""
    for name in ("request_id", "user_id"):
        value = getattr(request, name)
        if not isinstance(value, str) or not value:
            raise InvalidRequestError(
                f"request {request.request_id!r}: {name} is {value!r}, not a non-empty string"
            )
    prompt = _token_ids(request)
    max_tokens = request.max_tokens
    if type(max_tokens) is not int or max_tokens < 1:
        raise InvalidRequestError(
            f"request {request.request_id!r}: max_tokens is {max_tokens!r}, "
            "not an int of at least 1"
        )
    if type(request.priority) is not int:
        raise InvalidRequestError(
            f"request {request.request_id!r}: priority is {request.priority!r}, not an int; "
            "higher is more urgent, 0 is what it is if left out"
        )
    need, pool = limits.blocks_at_peak(len(prompt), max_tokens), limits.max_kv_blocks
    if need > pool:
        fits = pool * limits.block_size + 1
        raise InfeasibleRequestError(
            f"request {request.request_id!r}: a prompt of {len(prompt)} tokens and max_tokens="
            f"{max_tokens} need {need} blocks, the pool has {pool}; "
            f"prompt + max_tokens may be at most {fits}"
        )
    return prompt


_NOT_PROMPTS = (bytes, bytearray, set, frozenset, dict)
"""Their elements would pass for token ids, though not in an order that was meant."""


def _token_ids(request: Request) -> "array[int]":
    try:
        if isinstance(request.prompt, _NOT_PROMPTS):
            raise TypeError
        prompt = array("Q", request.prompt)  # copied, and every element checked, at C's speed
    except (TypeError, OverflowError):
        raise InvalidRequestError(_prompt_fault(request)) from None
    if not prompt:
        raise InvalidRequestError(
            f"request {request.request_id!r}: the prompt is empty; give at least one token id"
        )
    return prompt


def _prompt_fault(request: Request) -> str:
    where = f"request {request.request_id!r}: prompt"
    prompt = request.prompt
    if isinstance(prompt, (str, *_NOT_PROMPTS)) or not isinstance(prompt, SequenceOf):
        return f"{where} is a {type(request.prompt).__name__}, not a sequence of token ids"
    for index, token in enumerate(request.prompt):
        if not isinstance(token, int) or not 0 <= token < 2**64:
            return f"{where}[{index}] is {token!r}, not a token id (an int from 0 to 2**64 - 1)"
    return f"{where} is not a sequence of token ids"


def _length(prompt: object) -> object:
    return len(prompt) if isinstance(prompt, SequenceOf) else f"{prompt!r}, not"

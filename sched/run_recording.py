"""Recordings of runs: every tick and event as a line of JSON; docs/reference/recording-format.md.

This file is the format: the records, and how a file of them is read. A file
begins with a `Header` and finishes with an `End`; between are the events in
the order in which they happened.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from batchproof.sched.errors import InputError
from batchproof.sched.text_files import numbered_lines

FORMAT: Final = 1
"""Raised whenever a file of the old format could be misread."""


class _Record(msgspec.Struct, tag_field="event", forbid_unknown_fields=True, frozen=True):
    """One line. Every record has exactly the fields that are documented."""


class Latency(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A latency model, T(n, s, c) in ms, by its coefficients."""

    name: str
    fixed_ms: float
    floor_ms: float
    base_ms: float
    token_ms: float
    sequence_ms: float
    context_ms: float


class Gpu(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The simulated GPU that ran the batches."""

    latency: Latency
    seed: int
    eos_rate: float


class LimitsRecord(msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """The limits of the scheduler. Those of the queue are left out where there is no bound."""

    max_kv_blocks: int
    block_size: int
    chunk_size: int
    token_budget: int
    max_batch_size: int
    eos_token: int
    max_waiting_requests: int | None = None
    max_waiting_tokens: int | None = None
    max_waiting_requests_per_user: int | None = None
    max_waiting_tokens_per_user: int | None = None
    max_passes: int = 16


class Header(_Record, tag="run", frozen=True, kw_only=True, omit_defaults=True):
    """The first line: what the run depended on."""

    format: int
    producer: str
    """What wrote the file, and its version."""
    limits: LimitsRecord
    policy: str
    admission: str
    gpu: Gpu | None = None
    """None if something else ran the batches: such a run cannot be run again."""
    prompt_seed: int | None = None
    """Of the ring that prompts given as slices are slices of."""
    weights: dict[str, int | float] = {}
    """User -> weight, where it is not 1."""
    exempt: list[str] = []
    """Properties that what made the batches does not set out to have: they are not checked."""


class PromptSlice(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A generated prompt: `length` tokens of the prompt ring, from `start` on."""

    start: int
    length: int


Prompt = list[int] | PromptSlice
"""The token ids themselves, or where a generated prompt comes from."""


class RequestRecord(msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """A request as it was submitted. Times that it does not have are left out."""

    id: str
    user: str
    max_tokens: int
    prompt: Prompt
    priority: int = 0
    deadline_s: float | None = None
    """When it expires unless it is done, in seconds of the executor's clock."""
    max_queue_time_s: float | None = None
    """How long after its submission it expires unless it was admitted, in seconds."""


class Submit(_Record, tag="submit", frozen=True, omit_defaults=True):
    """A request was accepted."""

    at: float
    """When it reached the system, in seconds of the executor's clock."""
    request: RequestRecord
    passes: int = 0
    """How many waiting requests of its user it passed, by its priority."""


class Refuse(_Record, tag="refuse", frozen=True):
    """A request was refused; the scheduler is as it was before."""

    at: float
    kind: str
    """`infeasible`, `duplicate`, `queue_full` or `invalid`."""
    reason: str
    """The message of the error."""
    request: RequestRecord | None
    """None for one that is invalid, which may be anything."""


class Cancel(_Record, tag="cancel", frozen=True):
    """A live request was cancelled, between two ticks."""

    at: float
    id: str


class Expire(_Record, tag="expire", frozen=True):
    """A live request expired, between two ticks."""

    at: float
    id: str


class Weight(_Record, tag="weight", frozen=True):
    """A user has another weight from here on."""

    user: str
    weight: int | float


class Tick(_Record, tag="tick", frozen=True, omit_defaults=True):
    """One tick, completed: its parts in the order in which they happen; empty ones are left out."""

    tick: int
    """Counted from 0."""
    start: float
    """When the batch was scheduled, in seconds."""
    end: float
    """When it was completed."""
    free: int
    """Free blocks after it."""
    preempt: list[str] = []
    """Requests that gave up all their blocks."""
    grow: list[tuple[str, int]] = []
    """Request, and the block that it took besides those it had."""
    admit: list[tuple[str, list[int]]] = []
    """Request, and the blocks that it took, in the order of its block table."""
    decode: list[tuple[str, int]] = []
    """Request, and the token that it yielded; it was fed the one before."""
    chunks: list[tuple[str, int, int, int | None]] = []
    """Request, first position, tokens fed, and the token yielded; None within its prefill."""
    ended: list[tuple[str, str]] = []
    """Request, and its finish reason; its blocks are free from here on."""


class End(_Record, tag="end", frozen=True):
    """The last line: a file without it was cut."""

    complete: bool
    """Whether the run came to its end, and was not interrupted."""
    ticks: int
    live: int
    """Requests that had not ended."""


Record = Submit | Refuse | Cancel | Expire | Weight | Tick | End

encode: Final = msgspec.json.Encoder().encode
_decode_header: Final = msgspec.json.Decoder(Header).decode
_decode_record: Final = msgspec.json.Decoder(Record).decode


class _AnyHeader(msgspec.Struct):
    event: str
    format: int


_decode_any_header: Final = msgspec.json.Decoder(_AnyHeader).decode


class RunRecording:
    """A recording of a run as it is read: its header, then its records, one at a time.

    Raises `InputError` for a file that cannot be read, is no recording or of
    another format, and, while it is iterated, for a line that is malformed, for
    lines after the end, and for a file that was cut.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._lines = numbered_lines(path)
        number, line = next(self._lines)
        try:
            known = _decode_any_header(line)
        except msgspec.MsgspecError:
            known = _AnyHeader("", FORMAT)
        if known.event != "run":
            raise InputError(
                f"{path}: line {number} is {line!r:.80}: not the header of a recording of a run; "
                "`batchproof run --record FILE` makes one"
            )
        if known.format != FORMAT:
            raise InputError(
                f"{path}: is of format {known.format}, this version reads format {FORMAT}; "
                "read it with the version that wrote it"
            )
        try:
            self.header = _decode_header(line)
        except msgspec.MsgspecError as error:
            raise InputError(f"{path}: line {number}: {error}") from None

    def __iter__(self) -> Iterator[tuple[int, Record]]:
        record: Record | None = None
        for number, line in self._lines:
            if isinstance(record, End):
                raise InputError(f"{self.path}: line {number} comes after the end of the run")
            try:
                record = _decode_record(line)
            except msgspec.MsgspecError as error:
                raise InputError(f"{self.path}: line {number}: {error}: {line!r:.80}") from None
            yield number, record
        if not isinstance(record, End):
            raise InputError(f"{self.path}: has no `end` line: the file was cut; record it again")

"""The simulated GPU: a judge of schedulers, not a mock.

It has real block memory. The next token of a sequence is a hash of what is read
back through its block table over its whole context, so a chunk fed twice, out
of order or not at all, a block with two owners, a stale block after preemption
or a wrong recomputation each changes the tokens; `expected_output` says what
they should have been.
"""

from collections.abc import Sequence
from struct import error as PackError  # noqa: N812
from struct import pack
from zlib import crc32

from batchproof.sched.config import Limits
from batchproof.sched.errors import ExecutorError, LimitsError
from batchproof.sched.executor import ScheduledSequence
from batchproof.sched.latency import LatencyModel, latency_model
from batchproof.sched.request import Request

VOCABULARY = 32_000
"""Token ids that the simulated model may yield."""
EOS_RATE = 1 / 64
"""How often, by default, the next token is EOS."""

_SLOT = 8  # bytes of one token's memory


class SimulatedGPU:
    """An executor with numbered blocks of memory and a virtual clock.

    `latency` names a latency model or is one; `eos_rate` is the fraction of
    tokens that are EOS; with another `seed` it is another model. Raises
    `LimitsError` for a model or a rate that makes no sense.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        latency: str | LatencyModel = "linear",
        *,
        seed: int = 0,
        eos_rate: float = EOS_RATE,
    ) -> None:
        if not 0 <= eos_rate <= 1:
            raise LimitsError(f"eos_rate is {eos_rate!r}, not a fraction from 0 to 1")
        self.limits = limits or Limits()
        self.latency = latency_model(latency) if isinstance(latency, str) else latency
        self._start = crc32(b"batchproof %d" % seed)
        self._eos_below = int(eos_rate * 2**16)
        self._now = 0.0
        self._memory = bytearray(self.limits.max_kv_blocks * self.limits.block_size * _SLOT)
        # First block of a table -> length, hash, and whether the context there was complete.
        self._running: dict[int, tuple[int, int, bool]] = {}

    def now(self) -> float:
        """Return the virtual time in seconds; it starts at 0."""
        return self._now

    def wait_until(self, seconds: float) -> None:
        """Let virtual time pass, idle, until `seconds`, if that is later than now."""
        self._now = max(self._now, seconds)

    def forward(self, batch: Sequence[ScheduledSequence]) -> list[int]:
        """Write every sequence's tokens, then read each context back; one token for each.

        Raises `ExecutorError`, nothing written, for block tables that do not
        cover the positions or are larger than the memory.
        """
        tables = sum(len(sequence.block_table) for sequence in batch)
        if tables > self.limits.max_kv_blocks:
            raise ExecutorError(
                f"simulated GPU: the batch holds {tables} blocks, "
                f"the memory has {self.limits.max_kv_blocks}"
            )
        shares = [self._share(sequence) for sequence in batch]
        for sequence, data, position in shares:
            self._write(sequence.block_table, position, data)
        fed = context = 0
        out = []
        for sequence, data, position in shares:
            length = position + len(data) // _SLOT
            fed += length - position
            context += length
            out.append(self._next_token(self._hash(sequence, data, position, length), length))
        self._now += self.latency.seconds(fed, len(shares), context)
        return out

    def expected_output(self, request: Request) -> list[int]:
        """Return what `request` yields when every context is right, alone or in a crowd."""
        tokens: list[int] = []
        length = len(request.prompt)
        context = crc32(pack(f"<{length}Q", *request.prompt), self._start)
        while len(tokens) < request.max_tokens and tokens[-1:] != [self.limits.eos_token]:
            tokens.append(self._next_token(context, length))
            context = crc32(tokens[-1].to_bytes(_SLOT, "little"), context)
            length += 1
        return tokens

    def _share(self, sequence: ScheduledSequence) -> tuple[ScheduledSequence, bytes, int]:
        tokens, position, table = sequence.tokens, sequence.position, sequence.block_table
        end = position + len(tokens)
        if position < 0 or end == position:
            raise ExecutorError(
                f"simulated GPU: request {sequence.request_id!r} feeds {len(tokens)} tokens at "
                f"position {position}; at least one is fed, at a position from 0"
            )
        if len(table) * self.limits.block_size < end:
            raise ExecutorError(
                f"simulated GPU: request {sequence.request_id!r} feeds up to position {end}, its "
                f"{len(table)} blocks hold {len(table) * self.limits.block_size} tokens"
            )
        if max(table) >= self.limits.max_kv_blocks or min(table) < 0:
            raise ExecutorError(
                f"simulated GPU: request {sequence.request_id!r} names blocks outside "
                f"0..{self.limits.max_kv_blocks - 1}: {list(table)}"
            )
        try:
            if len(tokens) == 1:
                return sequence, tokens[0].to_bytes(_SLOT, "little"), position
            return sequence, pack(f"<{len(tokens)}Q", *tokens), position
        except (PackError, OverflowError, AttributeError) as fault:
            raise ExecutorError(
                f"simulated GPU: request {sequence.request_id!r} feeds what are not token ids: "
                f"{list(tokens)!r:.200} ({fault})"
            ) from None

    def _write(self, table: Sequence[int], position: int, data: bytes) -> None:
        memory, block_bytes = self._memory, self.limits.block_size * _SLOT
        at, done = position * _SLOT, 0
        while done < len(data):
            entry, offset = divmod(at + done, block_bytes)
            piece = data[done : done + block_bytes - offset]
            start = table[entry] * block_bytes + offset
            memory[start : start + len(piece)] = piece
            done += len(piece)

    def _read(self, table: Sequence[int], length: int) -> int:
        """Return the hash of the first `length` tokens as they stand in memory."""
        memory, block_bytes = self._memory, self.limits.block_size * _SLOT
        context, left = self._start, length * _SLOT
        for block in table:
            if left <= 0:
                break
            start = block * block_bytes
            context = crc32(memory[start : start + min(block_bytes, left)], context)
            left -= block_bytes
        return context

    def _hash(self, sequence: ScheduledSequence, data: bytes, position: int, length: int) -> int:
        """Return the context's hash, read in full where that is due or there is no running one.

        Due: when a prefill ends, at a block boundary, and at the last token.
        """
        table, yields = sequence.block_table, sequence.yields
        known, context, complete = self._running.get(table[0], (-1, 0, False))
        boundary = length % self.limits.block_size == 0 or sequence.remaining == 1
        if known != position or (yields and (boundary or not complete)):
            context = self._read(table, length)
        else:
            context = crc32(data, context)
        self._running[table[0]] = (length, context, yields)
        return context

    def _next_token(self, context: int, length: int) -> int:
        """Return the token that follows a context of this hash and length, EOS or another."""
        mixed = crc32(length.to_bytes(4, "little"), context ^ 0x9E3779B9) * 0x2C1B3C6D
        eos = self.limits.eos_token
        if (mixed >> 16 & 0xFFFF) < self._eos_below:
            return eos
        token = (mixed >> 32) % (VOCABULARY - 1)
        return token + (token >= eos)


# The names of the course material: one model for everybody, with the default limits.
_DEFAULTS = Limits()
MAX_KV_BLOCKS = _DEFAULTS.max_kv_blocks
EOS_TOKEN = _DEFAULTS.eos_token
_SHARED_GPU = SimulatedGPU(_DEFAULTS)


def forward(batch: Sequence[ScheduledSequence]) -> list[int]:
    """Run a batch on the shared simulated GPU; one token id for each sequence."""
    return _SHARED_GPU.forward(batch)


def kv_blocks_for(tokens: int) -> int:
    """Return how many KV blocks hold `tokens` tokens."""
    return _DEFAULTS.blocks_for(tokens)

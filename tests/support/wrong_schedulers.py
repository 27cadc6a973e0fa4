"""Schedulers of one request, one right and many wrong, each as the shares that it feeds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from batchproof import Limits, Request, SimulatedGPU

LIMITS = Limits(max_kv_blocks=16, block_size=4, chunk_size=8)
PROMPT = [11, 12, 13, 14, 15, 16, 17, 18, 19, 20]
OUTPUTS = 8
REQUEST = Request("u", PROMPT, OUTPUTS, "r")
TABLE = [5, 2, 9, 7, 12, 15]


@dataclass(frozen=True)
class Share:
    """One request's share of a batch, as a scheduler right or wrong hands it out."""

    tokens: Sequence[int]
    position: int
    block_table: Sequence[int] = tuple(TABLE)
    remaining: int = OUTPUTS
    yields: bool = True
    request_id: str = "r"


Feed = Callable[[SimulatedGPU], list[int]]
"""A scheduler of one request: feeds it to its end, and returns the tokens that it got."""


def gpu(**options: float) -> SimulatedGPU:
    return SimulatedGPU(LIMITS, eos_rate=0, **options)  # type: ignore[arg-type]


def prefill(
    device: SimulatedGPU,
    context: Sequence[int] = PROMPT,
    chunks: Sequence[tuple[int, int]] | None = None,
    table: Sequence[int] = TABLE,
) -> int:
    """Feed the context in chunks (start, end); return the first token."""
    chunks = chunks or [(0, 4), (4, 8), (8, len(context))]
    for start, end in chunks:
        (token,) = device.forward(
            [Share(context[start:end], start, table, yields=end == len(context))]
        )
    return token


def decode(
    device: SimulatedGPU,
    out: list[int],
    count: int,
    shift: int = 0,
    table: Sequence[int] = TABLE,
) -> list[int]:
    """Feed the last token back, `count` times, at its position (plus `shift`)."""
    for _ in range(count):
        position = len(PROMPT) + len(out) - 1 + shift
        out += device.forward([Share(out[-1:], position, table, OUTPUTS - len(out))])
    return out


def right(device: SimulatedGPU) -> list[int]:
    return decode(device, [prefill(device)], OUTPUTS - 1)


# --- Wrong prefills -----------------------------------------------------------------------------


def chunk_fed_twice(device: SimulatedGPU) -> list[int]:
    """Count the first chunk once too often, so that it stands in memory twice."""
    context = PROMPT[:4] + PROMPT
    return decode(device, [prefill(device, context)], OUTPUTS - 1, shift=4)


def chunk_out_of_order(device: SimulatedGPU) -> list[int]:
    context = PROMPT[4:8] + PROMPT[:4] + PROMPT[8:]
    return decode(device, [prefill(device, context)], OUTPUTS - 1)


def chunk_left_out(device: SimulatedGPU) -> list[int]:
    """Advance the position over a chunk that was never fed."""
    return decode(device, [prefill(device, PROMPT, [(0, 4), (8, 10)])], OUTPUTS - 1)


def chunk_skipped(device: SimulatedGPU) -> list[int]:
    """Go on with the next chunk where the one left out should be."""
    context = PROMPT[:4] + PROMPT[8:]
    return decode(device, [prefill(device, context, [(0, 4), (4, 6)])], OUTPUTS - 1)


def first_token_too_soon(device: SimulatedGPU) -> list[int]:
    """Keep the token of an unfinished prefill."""
    (token,) = device.forward([Share(PROMPT[:8], 0)])
    return decode(device, [token], OUTPUTS - 1)


def last_prompt_token_missing(device: SimulatedGPU) -> list[int]:
    return decode(device, [prefill(device, PROMPT[:-1])], OUTPUTS - 1, shift=-1)


def last_prompt_token_twice(device: SimulatedGPU) -> list[int]:
    """Feed it with the prefill, and once more as if it were the first decode."""
    prefill(device)
    out = device.forward([Share(PROMPT[-1:], len(PROMPT))])
    return decode(device, out, OUTPUTS - 1, shift=1)


def prompt_of_another(device: SimulatedGPU) -> list[int]:
    return decode(device, [prefill(device, [*PROMPT[:-1], 99])], OUTPUTS - 1)


# --- Wrong decodes ------------------------------------------------------------------------------


def position_one_too_far(device: SimulatedGPU) -> list[int]:
    return decode(device, [prefill(device)], OUTPUTS - 1, shift=1)


def position_one_too_low(device: SimulatedGPU) -> list[int]:
    return decode(device, [prefill(device)], OUTPUTS - 1, shift=-1)


def a_token_dropped(device: SimulatedGPU) -> list[int]:
    """Feed the token before the last instead of the last."""
    out = decode(device, [prefill(device)], 2)
    out += device.forward([Share(out[-2:-1], 12, remaining=5)])
    return decode(device, out, OUTPUTS - len(out))


def token_generated_twice(device: SimulatedGPU) -> list[int]:
    """Append the token of one decode twice."""
    out = decode(device, [prefill(device)], 2)
    out.append(out[-1])
    return decode(device, out, OUTPUTS - len(out))


# --- Wrong memory -------------------------------------------------------------------------------


def blocks_swapped(device: SimulatedGPU) -> list[int]:
    """Come back from somewhere with two blocks of the table in the wrong order."""
    out = decode(device, [prefill(device)], 2)
    return decode(device, out, OUTPUTS - len(out), table=[5, 9, 2, 7, 12])


def first_block_another(device: SimulatedGPU) -> list[int]:
    out = decode(device, [prefill(device)], 2)
    return decode(device, out, OUTPUTS - len(out), table=[6, 2, 9, 7, 12])


def block_with_two_owners(device: SimulatedGPU) -> list[int]:
    """Give block 2 to somebody else as well, in the same batches."""
    out = [prefill(device)]
    other = 0
    while len(out) < OUTPUTS:
        remaining, position = OUTPUTS - len(out), len(PROMPT) + len(out) - 1
        mine = Share(out[-1:], position, TABLE, remaining)
        theirs = Share([77], other, [2, 3], 9, request_id="other")
        token, _ = device.forward([mine, theirs])
        out.append(token)
        other += 1
    return out


def one_block_twice_in_the_table(device: SimulatedGPU) -> list[int]:
    table = [5, 2, 2, 7, 12]
    return decode(device, [prefill(device, table=table)], OUTPUTS - 1, table=table)


def stale_blocks_after_preemption(device: SimulatedGPU) -> list[int]:
    """Go on with the old blocks, though they were somebody else's in between."""
    out = decode(device, [prefill(device)], 3)
    device.forward([Share([70, 71, 72], 0, [2], request_id="other")])
    return decode(device, out, OUTPUTS - len(out))


def fresh_blocks_not_filled(device: SimulatedGPU) -> list[int]:
    """Give new blocks after a preemption, and recompute nothing."""
    out = decode(device, [prefill(device)], 3)
    return decode(device, out, OUTPUTS - len(out), table=[0, 1, 3, 4, 6])


# --- Wrong recomputation ------------------------------------------------------------------------


def resumed(context: Callable[[list[int]], list[int]], shift: int = 0) -> Feed:
    """Preempt after four tokens, recompute what `context` says, and go on `shift` further."""

    def feed(device: SimulatedGPU) -> list[int]:
        out = decode(device, [prefill(device)], 3)
        tokens, table = context(out), [1, 3, 4, 6, 8]
        middle = len(tokens) // 2
        out.append(prefill(device, tokens, [(0, middle), (middle, len(tokens))], table))
        return decode(device, out, OUTPUTS - len(out), shift, table)

    return feed


def all_but_last_recomputed(out: list[int]) -> list[int]:
    return PROMPT + out[:-1]


WRONG: dict[str, Feed] = {
    feed.__name__: feed
    for feed in (
        chunk_fed_twice,
        chunk_out_of_order,
        chunk_left_out,
        chunk_skipped,
        first_token_too_soon,
        last_prompt_token_missing,
        last_prompt_token_twice,
        prompt_of_another,
        position_one_too_far,
        position_one_too_low,
        a_token_dropped,
        token_generated_twice,
        blocks_swapped,
        first_block_another,
        block_with_two_owners,
        one_block_twice_in_the_table,
        stale_blocks_after_preemption,
        fresh_blocks_not_filled,
    )
} | {
    "generated_tokens_left_out": resumed(lambda out: PROMPT, shift=-4),
    "generated_tokens_left_out_position_right": resumed(lambda out: PROMPT),
    "last_generated_token_left_out": resumed(all_but_last_recomputed),
    "last_generated_token_left_out_position_shifted": resumed(all_but_last_recomputed, shift=-1),
    "first_generated_token_left_out": resumed(lambda out: PROMPT + out[1:]),
    "recomputation_position_off_by_one": resumed(lambda out: PROMPT + out, shift=1),
    "generated_tokens_before_the_prompt": resumed(lambda out: out + PROMPT),
    "last_generated_token_twice": resumed(lambda out: PROMPT + out + out[-1:], shift=1),
}

"""What the claims about tokens in and out allow, and what they object to."""

from invariants.examples import decoding, prefilling, says, state, tick, told, waiting

from batchproof.spec.actions import Cancel, Submit

SUBMITTED = (state(), Submit(0), state(waiting(0)))
FRESH = state(prefilling(0, 0, 2))
HALF = state(prefilling(0, 2, 2))
RUNS = state(decoding(0, 1, 2))
HOLDS = {
    "fed-once-in-order": {
        "no tick": SUBMITTED,
        "a first chunk": (FRESH, tick({0: 2}), HALF),
        "the last chunk": (HALF, tick({0: 1}), RUNS),
        "a decode": (RUNS, tick({0: 1}), state(decoding(0, 2, 3))),
        "not fed, and where it was": (HALF, tick(), HALF),
        "a recomputation feeds its tokens too": (
            state(prefilling(0, 2, 3, generated=2)),
            tick({0: 2}),
            state(prefilling(0, 4, 3, generated=2)),
        ),
        "admitted in the tick": (
            state(waiting(0)),
            tick({0: 2}, admit=(0,)),
            HALF,
        ),
        "a stranger is another claim's": (HALF, tick({1: 1}), HALF),
        "and so is a newcomer": (state(), tick(), FRESH),
    },
    "tokens-when-due": {
        "no tick": SUBMITTED,
        "the last of the prompt": (HALF, tick({0: 1}), RUNS),
        "a chunk that is not the last": (FRESH, tick({0: 2}), HALF),
        "a decode": (RUNS, tick({0: 1}), state(decoding(0, 2, 3))),
        "a decode that is not fed": (RUNS, tick(), RUNS),
        "the last of a recomputation": (
            state(prefilling(0, 4, 3, generated=2)),
            tick({0: 1}),
            state(decoding(0, 3, 3)),
        ),
        "prompt fed, its own tokens not yet": (
            state(prefilling(0, 1, 3, generated=2)),
            tick({0: 2}),
            state(prefilling(0, 3, 3, generated=2)),
        ),
    },
    "phase-fits-tokens": {
        "it waits with tokens": (state(waiting(0, 2)),),
        "a token of its context is left": (state(prefilling(0, 2, 2)),),
        "a token of a recomputation is left": (state(prefilling(0, 4, 3, generated=2)),),
        "it decodes, with all tokens but the last": (state(decoding(0, 2, 3)),),
    },
    "eos-ends-at-once": {
        "no tick": SUBMITTED,
        "it yields EOS and ends": (RUNS, tick({0: 1}, eos=(0,), ended=((0, "eos"),)), state()),
        "two do": (
            state(decoding(0, 1, 2), decoding(1, 1, 1)),
            tick({0: 1, 1: 1}, eos=(1, 0), ended=((0, "eos"), (1, "eos"))),
            state(),
        ),
        "who ends by length yields none": (
            state(decoding(0, 2, 3)),
            tick({0: 1}, ended=((0, "length"),)),
            state(),
        ),
    },
    "length-is-exact": {
        "no tick": SUBMITTED,
        "its last token": (
            state(decoding(0, 2, 3)),
            tick({0: 1}, ended=((0, "length"),)),
            state(),
        ),
        "its last token is EOS": (
            state(decoding(0, 2, 3)),
            tick({0: 1}, eos=(0,), ended=((0, "eos"),)),
            state(),
        ),
        "not its last": (RUNS, tick({0: 1}), state(decoding(0, 2, 3))),
        "its last is due, and it is not fed": (
            state(decoding(0, 2, 3)),
            tick(),
            state(decoding(0, 2, 3)),
        ),
    },
    "preemption-keeps-tokens": {
        "no tick": SUBMITTED,
        "it waits with its tokens": (RUNS, tick(preempt=(0,)), state(waiting(0, 1))),
        "others go on": (
            state(decoding(0, 1, 2), decoding(1, 1, 1)),
            tick({0: 1}, preempt=(1,)),
            state(decoding(0, 2, 3), waiting(1, 1)),
        ),
    },
}
BROKEN = {
    "fed-once-in-order": {
        "past its context": (HALF, tick({0: 2}), RUNS),
        "past its context, and its own tokens": (
            state(prefilling(0, 4, 3, generated=2)),
            tick({0: 2}),
            state(decoding(0, 3, 3)),
        ),
        "fed, and not counted": (FRESH, tick({0: 2}), FRESH),
        "counted, and not fed": (FRESH, tick(), HALF),
        "counted twice": (
            state(prefilling(2, 0, 3)),
            tick({2: 1}),
            state(prefilling(2, 2, 3)),
        ),
        "past its context, behind a decode": (
            state(decoding(1, 1, 1), prefilling(0, 2, 2)),
            tick({1: 1, 0: 2}),
            state(decoding(0, 1, 2)),
        ),
        "behind a stranger": (HALF, tick({1: 1, 0: 2}), RUNS),
    },
    "tokens-when-due": {
        "a token for an unfinished prefill": (
            FRESH,
            tick({0: 2}),
            state(prefilling(0, 2, 2, generated=1)),
        ),
        "a decode yields none": (RUNS, tick({0: 1}), RUNS),
        "a decode yields two": (state(decoding(0, 0, 2)), tick({0: 1}), state(decoding(0, 2, 3))),
        "a token for nothing": (RUNS, tick(), state(decoding(0, 2, 3))),
        "a token for a cancellation": (
            state(decoding(0, 1, 2), waiting(1)),
            Cancel(1),
            state(decoding(0, 2, 3)),
        ),
        "the last of the prompt yields none": (HALF, tick({0: 1}), state(decoding(0, 0, 2))),
    },
    "phase-fits-tokens": {
        "it decodes without a token": (state(decoding(0, 0, 2)),),
        "it prefills, and nothing is left": (state(prefilling(0, 3, 2)),),
        "it is live with its last token": (state(decoding(0, 3, 3)),),
        "it waits with its last token": (state(waiting(0, 3)),),
        "the second of two": (state(decoding(1, 1, 1), decoding(0, 0, 2)),),
    },
    "eos-ends-at-once": {
        "it yields EOS and goes on": (RUNS, tick({0: 1}, eos=(0,)), state(decoding(0, 2, 3))),
        "it ends by EOS and yielded none": (
            RUNS,
            tick({0: 1}, ended=((0, "eos"),)),
            state(),
        ),
        "another ends by EOS": (RUNS, tick({0: 1}, eos=(0,), ended=((1, "eos"),)), state()),
        "it ends by length": (RUNS, tick({0: 1}, eos=(0,), ended=((0, "length"),)), state()),
        "ended twice": (
            RUNS,
            tick({0: 1}, eos=(0,), ended=((0, "eos"), (0, "eos"))),
            state(),
        ),
    },
    "length-is-exact": {
        "a token too early": (RUNS, tick({0: 1}, ended=((0, "length"),)), state()),
        "it has its last token, and goes on": (
            state(decoding(0, 2, 3)),
            tick({0: 1}),
            state(decoding(0, 3, 3)),
        ),
        "it was not fed": (state(decoding(0, 2, 3)), tick(ended=((0, "length"),)), state()),
        "its last token is EOS": (
            state(decoding(0, 2, 3)),
            tick({0: 1}, eos=(0,), ended=((0, "length"),)),
            state(),
        ),
        "it waits for its last": (
            state(waiting(0, 2)),
            tick(ended=((0, "length"),)),
            state(),
        ),
    },
    "preemption-keeps-tokens": {
        "a token is lost": (RUNS, tick(preempt=(0,)), state(waiting(0))),
        "its next residency does not start afresh": (
            state(prefilling(0, 2, 2)),
            tick(preempt=(0,)),
            state(waiting(0)._replace(prefilled=2)),
        ),
    },
}


@told(HOLDS, BROKEN)
def test_what_is_said_of(claim, case, expected) -> None:
    assert says(claim, *case) is expected

"""What the claims about one batch allow, and what they object to."""

from invariants.examples import decoding, prefilling, says, state, tick, told, waiting

from batchproof.spec.actions import Submit

TWO = state(decoding(1, 1, 1), prefilling(0, 0, 2))
HOLDS = {
    "chunk-bounded": {
        "no tick": (state(), Submit(0), state(waiting(0))),
        "a whole chunk, and a decode's token": (TWO, tick({1: 1, 0: 2}), TWO),
        "one token of a chunk": (TWO, tick({0: 1}), TWO),
        "who is admitted": (state(waiting(0)), tick({0: 2}, admit=(0,)), state(waiting(0))),
    },
    "budget-bounded": {
        "no tick": (state(), Submit(0), state(waiting(0))),
        "the whole budget": (TWO, tick({0: 2, 2: 2}), TWO),
    },
    "batch-bounded": {
        "no tick": (state(), Submit(0), state(waiting(0))),
        "every seat": (TWO, tick({0: 2, 1: 1}), TWO),
    },
    "scheduled-once": {
        "no tick": (state(), Submit(0), state(waiting(0))),
        "two requests": (TWO, tick({0: 2, 1: 1}), TWO),
        "nobody": (TWO, tick(), TWO),
    },
}
BROKEN = {
    "chunk-bounded": {
        "a token more than a chunk": (TWO, tick({0: 3}), TWO),
        "a chunk of nothing": (TWO, tick({0: 0}), TWO),
        "two tokens of a decode": (TWO, tick({1: 2}), TWO),
        "no token of a decode": (TWO, tick({1: 0}), TWO),
        "the second of two": (TWO, tick({1: 1, 0: 3}), TWO),
    },
    "budget-bounded": {"a token too many": (TWO, tick({0: 2, 1: 1, 2: 2}), TWO)},
    "batch-bounded": {"a sequence too many": (TWO, tick({0: 1, 1: 1, 2: 1}), TWO)},
    "scheduled-once": {
        "the same request twice": (
            TWO,
            tick()._replace(work=tick().work._replace(feed=((0, 1), (0, 1)))),
            TWO,
        ),
    },
}


@told(HOLDS, BROKEN)
def test_what_is_said_of(claim, case, expected) -> None:
    assert says(claim, *case) is expected

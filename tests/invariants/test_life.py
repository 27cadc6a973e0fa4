"""What the claims about a request's life allow, and what they object to."""

from invariants.examples import decoding, prefilling, says, state, tick, told, waiting

from batchproof.spec.actions import Cancel, Refuse, Submit

NOBODY = state()
HOLDS = {
    "life-is-legal": {
        "it waits, and a tick leaves it": (state(waiting(0)), tick(), state(waiting(0))),
        "admitted": (
            state(waiting(0)),
            tick({0: 2}, admit=(0,)),
            state(prefilling(0, 2, 2)),
        ),
        "admitted, and the first token in the same tick": (
            state(waiting(1)),
            tick({1: 1}, admit=(1,)),
            state(decoding(1, 1, 1)),
        ),
        "admitted, and done in the same tick": (
            state(waiting(1)),
            tick({1: 1}, admit=(1,), eos=(1,), ended=((1, "eos"),)),
            NOBODY,
        ),
        "the first token": (
            state(prefilling(0, 2, 2)),
            tick({0: 1}),
            state(decoding(0, 1, 2)),
        ),
        "done by its first token": (
            state(prefilling(0, 2, 2)),
            tick({0: 1}, eos=(0,), ended=((0, "eos"),)),
            NOBODY,
        ),
        "decodes on": (state(decoding(0, 1, 2)), tick({0: 1}), state(decoding(0, 2, 3))),
        "done by its last": (
            state(decoding(0, 2, 3)),
            tick({0: 1}, ended=((0, "length"),)),
            NOBODY,
        ),
        "preempted": (state(decoding(0, 1, 2)), tick(preempt=(0,)), state(waiting(0, 1))),
        "cancelled while it waits": (state(waiting(0)), Cancel(0), NOBODY),
        "cancelled while it decodes": (state(decoding(0, 1, 2)), Cancel(0), NOBODY),
        "another is cancelled": (
            state(waiting(0), decoding(1, 1, 1)),
            Cancel(0),
            state(decoding(1, 1, 1)),
        ),
        "another is submitted": (
            state(decoding(0, 1, 2)),
            Submit(1),
            state(decoding(0, 1, 2), waiting(1)),
        ),
    },
    "only-live-are-scheduled": {
        "no tick": (NOBODY, Submit(0), state(waiting(0))),
        "a resident is preempted, a waiting request admitted and fed": (
            state(decoding(0, 1, 2), waiting(1)),
            tick({1: 1}, preempt=(0,), admit=(1,)),
            state(waiting(0, 1), decoding(1, 1, 1)),
        ),
        "a resident is fed": (
            state(prefilling(0, 0, 2)),
            tick({0: 2}),
            state(prefilling(0, 2, 2)),
        ),
    },
    "ids-unique": {"two requests": (state(waiting(0), waiting(1)),)},
    "feasible-or-refused": {
        "its peak is the whole pool": (state(waiting(3)),),
        "the least that can be asked": (state(waiting(7)),),
    },
    "refused-for-cause": {
        "no refusal": (NOBODY, Submit(0), state(waiting(0))),
        "a token too many": (NOBODY, Refuse(4), NOBODY),
        "an empty prompt": (NOBODY, Refuse(5), NOBODY),
        "no token wanted": (NOBODY, Refuse(6), NOBODY),
        "its id is live": (state(waiting(0)), Refuse(0), state(waiting(0))),
    },
    "submitted-to-wait": {
        "submitted": (state(waiting(1)), Submit(0), state(waiting(1), waiting(0))),
        "nobody new in a tick": (
            state(waiting(1)),
            tick({1: 1}, admit=(1,)),
            state(decoding(1, 1, 1)),
        ),
    },
    "ended-once": {
        "cancelled": (state(waiting(0), waiting(1)), Cancel(0), state(waiting(1))),
        "two end": (
            state(decoding(0, 2, 3), decoding(1, 1, 1)),
            tick({0: 1, 1: 1}, ended=((0, "length"), (1, "length"))),
            NOBODY,
        ),
        "reported in another order": (
            state(decoding(0, 2, 3), decoding(1, 1, 1)),
            tick({0: 1, 1: 1}, ended=((1, "length"), (0, "length"))),
            NOBODY,
        ),
        "refused": (state(waiting(0)), Refuse(0), state(waiting(0))),
    },
    "bystanders-untouched": {
        "who is fed changes": (
            state(decoding(0, 1, 2), waiting(1)),
            tick({0: 1}),
            state(decoding(0, 2, 3), waiting(1)),
        ),
        "who is preempted and who is admitted change": (
            state(decoding(0, 1, 2), waiting(1)),
            tick(preempt=(0,), admit=(1,)),
            state(waiting(0, 1), prefilling(1, 0, 1)),
        ),
        "who is cancelled goes": (state(waiting(0), waiting(1)), Cancel(0), state(waiting(1))),
    },
}
BROKEN = {
    "life-is-legal": {
        "admitted by nobody": (state(waiting(0)), tick(), state(prefilling(0, 0, 2))),
        "decodes without having been admitted": (
            state(waiting(1)),
            tick({1: 1}),
            state(decoding(1, 1, 1)),
        ),
        "prefills again": (state(decoding(0, 1, 2)), tick({0: 1}), state(prefilling(0, 2, 2))),
        "a second admission": (
            state(prefilling(0, 0, 2)),
            tick(admit=(0,)),
            state(prefilling(0, 0, 2)),
        ),
        "preempted, and goes on": (
            state(decoding(0, 1, 2)),
            tick(preempt=(0,)),
            state(decoding(0, 1, 2)),
        ),
        "preempted while it waits": (state(waiting(0)), tick(preempt=(0,)), state(waiting(0))),
        "preempted, and lost": (state(decoding(0, 1, 2)), tick(preempt=(0,)), NOBODY),
        "ended while it waits": (state(waiting(0)), tick(), NOBODY),
        "cancelled, and goes on": (state(waiting(0)), Cancel(0), state(waiting(0))),
        "another is cancelled with it": (state(waiting(0), waiting(1)), Cancel(0), NOBODY),
        "another is submitted, and it is lost": (state(waiting(0)), Submit(1), state(waiting(1))),
        "another is submitted, and it starts": (
            state(waiting(0)),
            Submit(1),
            state(prefilling(0, 0, 2), waiting(1)),
        ),
    },
    "only-live-are-scheduled": {
        "a waiting request is preempted": (
            state(waiting(0)),
            tick(preempt=(0,)),
            state(waiting(0)),
        ),
        "a resident is admitted": (
            state(decoding(0, 1, 2)),
            tick(admit=(0,)),
            state(decoding(0, 1, 2)),
        ),
        "a waiting request is fed": (state(waiting(0)), tick({0: 1}), state(waiting(0))),
        "who was preempted is fed": (
            state(decoding(0, 1, 2)),
            tick({0: 1}, preempt=(0,)),
            state(waiting(0, 1)),
        ),
        "a stranger is fed": (state(decoding(0, 1, 2)), tick({1: 1}), state(decoding(0, 1, 2))),
    },
    "ids-unique": {"one id twice": (state(waiting(0), waiting(0)),)},
    "feasible-or-refused": {
        "a token too many": (state(waiting(4)),),
        "an empty prompt": (state(waiting(5)),),
        "no token wanted": (state(waiting(6)),),
        "the second of two": (state(waiting(0), waiting(4)),),
    },
    "refused-for-cause": {
        "it could finish": (NOBODY, Refuse(0), NOBODY),
        "its peak is the whole pool": (NOBODY, Refuse(3), NOBODY),
        "the least that can be asked": (NOBODY, Refuse(7), NOBODY),
        "another is live": (state(waiting(1)), Refuse(0), state(waiting(1))),
        "the refusal leaves a trace": (state(waiting(0)), Refuse(4), NOBODY),
    },
    "submitted-to-wait": {
        "it prefills at once": (NOBODY, Submit(0), state(prefilling(0, 0, 2))),
        "another one waits": (NOBODY, Submit(0), state(waiting(1))),
        "nobody waits": (NOBODY, Submit(0), NOBODY),
        "a tick makes one live": (NOBODY, tick(), state(waiting(0))),
        "it has a token": (NOBODY, Submit(0), state(waiting(0, 1))),
        "it has been fed": (NOBODY, Submit(0), state(waiting(0)._replace(prefilled=1))),
        "it holds a block": (NOBODY, Submit(0), state(waiting(0)._replace(blocks=1))),
    },
    "ended-once": {
        "gone and not reported": (state(decoding(0, 1, 2)), tick({0: 1}), NOBODY),
        "reported and not gone": (
            state(decoding(0, 1, 2)),
            tick({0: 1}, ended=((0, "eos"),)),
            state(decoding(0, 2, 3)),
        ),
        "reported twice": (
            state(decoding(0, 2, 3)),
            tick({0: 1}, ended=((0, "length"), (0, "length"))),
            NOBODY,
        ),
        "cancelled, and another is gone": (
            state(waiting(0), waiting(1)),
            Cancel(0),
            state(waiting(0)),
        ),
        "lost by a submission": (state(waiting(0)), Submit(1), state(waiting(1))),
    },
    "bystanders-untouched": {
        "who is not fed changes": (
            state(decoding(0, 1, 2), decoding(1, 1, 1)),
            tick({0: 1}),
            state(decoding(0, 2, 3), waiting(1, 1)),
        ),
        "another is cancelled, and it is preempted": (
            state(waiting(0), decoding(1, 1, 1)),
            Cancel(0),
            state(waiting(1, 1)),
        ),
        "another is submitted, and it is gone": (
            state(waiting(0)),
            Submit(1),
            state(waiting(1)),
        ),
    },
}


@told(HOLDS, BROKEN)
def test_what_is_said_of(claim, case, expected) -> None:
    assert says(claim, *case) is expected

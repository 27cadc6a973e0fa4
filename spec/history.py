"""How the history of a run goes on: it is kept beside the state, for policies."""

from collections.abc import Hashable

from batchproof.spec.actions import Event, Tick
from batchproof.spec.lifecycle import DECODING, PREFILLING
from batchproof.spec.state import LONG_GAP, History, State, System


def remembered(
    system: System, before: State, event: Event, after: State, memory: Hashable = None
) -> History:
    """Return the history after a step, from the one in `before`; `memory` is the policy's."""
    old = before.history or History()
    users = dict.fromkeys(system.requests[live.request].user for live in after.live)
    phases = {live.request: live.phase for live in after.live}
    admitted, fed = (event.work.admit, event.work.feed) if isinstance(event, Tick) else ((), ())
    scheduled = [i for i, _ in fed]

    # Those that decoded go to the end, unless all did; then come those whose prefill is complete.
    stayed = [i for i in old.decoding if phases.get(i) == DECODING]
    stayed.sort(key=scheduled.__contains__)
    joined = [i for i in scheduled if phases.get(i) == DECODING and i not in old.decoding]
    waits = dict(zip(old.decoding, old.gaps, strict=True))
    gaps = [
        0 if i in scheduled else min(waits[i] + isinstance(event, Tick), LONG_GAP) for i in stayed
    ]
    return History(
        decoding=(*stayed, *joined),
        prefilling=tuple(i for i in (*old.prefilling, *admitted) if phases.get(i) == PREFILLING),
        gaps=(*gaps, *(0 for _ in joined)),
        users=(
            *(user for user in old.users if user in users),
            *(user for user in users if user not in old.users),
        ),
        memory=memory,
    )

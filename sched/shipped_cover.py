"""The transition cover of the shipped scheduler, replayed on it: one scheduler for each walk.

Nothing is copied or rebuilt on the way, so that this is also what holds the
search to account, which does both for every step.
"""

from functools import partial

from batchproof.sched.scheduler import Scheduler
from batchproof.sched.shipped import Shipped, capture, observed
from batchproof.sched.transition_cover import Cover, Step, cover, replay


class CoverError(AssertionError):
    """A scheduler that was led along a walk did not go where the search had gone."""


def covered(model: Shipped) -> tuple[Cover, int]:
    """Return the cover of a model, and how many of its edges the real scheduler took.

    Raises `CoverError` at the first step that leads elsewhere.
    """
    walks = cover(model)
    return walks, replay(walks, model.make, partial(_follow, model, walks))


def _follow(model: Shipped, walks: Cover, sched: Scheduler, step: Step) -> Scheduler:
    happened, sched = model.perform(step.event, sched)
    due = walks.states[step.after]
    seen = observed(sched)
    memory = capture(sched)
    if happened != step.event or (seen.live, seen.free) != (due.live, due.free):
        raise CoverError(f"{step.event}: {happened} happened, to {seen}; the search got to {due}")
    if due.history is None or memory != due.history.memory:
        raise CoverError(f"{step.event}: {memory} remains; the search got to {due}")
    return sched

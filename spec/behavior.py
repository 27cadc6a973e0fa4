"""Whether a recorded run follows the specification, and if not, at which step and which rule.

A behavior is what was seen of a run. What was not seen stays open, and is
searched for: a behavior is allowed if some run of the specification looks like
it, from its first step to its last.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from batchproof.spec import actions
from batchproof.spec.actions import Tick, Work
from batchproof.spec.lifecycle import FinishReason
from batchproof.spec.state import State, System


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step as it was seen. None: not seen, so that any value will do.

    Requests are ids of the system. `held` and `free` are blocks after the step.
    """

    action: Literal["submit", "refuse", "cancel", "expire", "tick"]
    request: int | None = None
    """Whom it concerns; of a tick, nobody."""
    preempt: tuple[int, ...] | None = None
    admit: tuple[int, ...] | None = None
    feed: tuple[tuple[int, int], ...] | None = None
    """Request, and tokens fed."""
    emitted: tuple[int, ...] | None = None
    """Requests that yielded a token."""
    eos: tuple[int, ...] | None = None
    """Requests whose token was EOS."""
    ended: tuple[tuple[int, FinishReason], ...] | None = None
    held: Mapping[int, int] | None = None
    """Request -> blocks; those that are left out hold none."""
    free: int | None = None


class Outcome(NamedTuple):
    """How far a behavior follows the specification."""

    matched: int
    """Steps that do, from the first on."""
    length: int
    """Steps that there are."""
    objections: tuple[str, ...] = ()
    """Why the next one does not: a rule, or what differs; several where several runs fit so far."""

    @property
    def allowed(self) -> bool:
        """Whether the whole behavior was matched, every step of it."""
        return self.matched == self.length


def follow(system: System, behavior: Sequence[Step]) -> Outcome:
    """Follow a behavior through the specification, in all the ways that it may be read.

    Raises ValueError for a behavior without steps: it would say nothing.
    """
    if not behavior:
        raise ValueError("the behavior has no steps: there is nothing to follow")
    states = {State((), system.limits.max_kv_blocks)}
    for number, step in enumerate(behavior):
        found: dict[State, None] = {}
        objections: dict[str, None] = {}
        for state in sorted(states):
            for outcome in _readings(system, state, step):
                if isinstance(outcome, str):
                    objections[outcome] = None
                else:
                    found[outcome] = None
        if not found:
            why = tuple(objections) or ("no work that the rules allow looks like this",)
            return Outcome(number, len(behavior), why)
        states = set(found)
    return Outcome(len(behavior), len(behavior))


def _readings(system: System, state: State, step: Step) -> Iterator[State | str]:
    """Yield each state that the step may have led to, or why it cannot have happened."""
    if step.action == "tick":
        yield from _ticks(system, state, step)
        return
    assert step.request is not None, "only a tick concerns nobody"
    if step.action in ("cancel", "expire"):
        objection = actions.objection_to_cancel(state, step.request)
        after = state if objection else actions.cancel(state, step.request)
    else:
        objection = actions.objection_to_submit(system, state, step.request)
        after = state if objection else actions.submit(system, state, step.request)
        if step.action == "refuse":
            after = state
            objection = None if objection else "rule 4: refused, though it is feasible"
    yield objection or _difference(step, after) or after


def _ticks(system: System, state: State, step: Step) -> Iterator[State | str]:
    if step.preempt is not None and step.admit is not None and step.feed is not None:
        work = Work(step.preempt, step.admit, step.feed)
        objection = actions.objection_to_tick(system, state, work)
        candidates: Iterator[Work] = iter(() if objection else (work,))
        if objection:
            yield objection
    else:
        candidates = (work for work in actions.works(system, state) if _may_be(step, work))
    for work in candidates:
        yielded = actions.yielding(system, state, work)
        if step.emitted is not None and set(step.emitted) != set(yielded):
            yield f"rule 2: tokens of {_ids(step.emitted)}, due are those of {_ids(yielded)}"
            continue
        choices = actions.eos_choices(yielded) if step.eos is None else iter((step.eos,))
        for eos in choices:
            seen, after = actions.tick(system, state, work, eos)
            yield _end_difference(step, seen) or _difference(step, after) or after


def _may_be(step: Step, work: Work) -> bool:
    """Say whether `work` is what was seen, as far as it was seen."""
    return (
        (step.preempt is None or set(step.preempt) == set(work.preempt))
        and (step.admit is None or set(step.admit) == set(work.admit))
        and (step.feed is None or dict(step.feed) == dict(work.feed))
    )


def _end_difference(step: Step, tick: Tick) -> str | None:
    if step.ended is None or dict(step.ended) == dict(tick.ended):
        return None
    return f"rule 2: ended {dict(step.ended)}, the rules say {dict(tick.ended)}"


def _difference(step: Step, after: State) -> str | None:
    if step.free is not None and step.free != after.free:
        return f"rule 3: {step.free} blocks are free, the rules say {after.free}"
    if step.held is not None:
        held = {live.request: live.blocks for live in after.live if live.blocks}
        seen = {request: blocks for request, blocks in step.held.items() if blocks}
        if seen != held:
            return f"rule 3: blocks held are {seen}, the rules say {held}"
    return None


def _ids(requests: Sequence[int]) -> str:
    return ", ".join(f"r{request}" for request in requests) or "nobody"

"""The one state machine that every request's life goes through.

One `transitions` machine serves all requests: events are triggered on unbound
models, so that a request needs neither registration nor methods of its own.
Every change of a phase is one of the five calls at the end of this file.
"""

from typing import Any, Final, Protocol, cast

from transitions import Event, Machine, Transition

from batchproof.sched.errors import IllegalEventError
from batchproof.spec.lifecycle import EDGES, INITIAL, PHASES, Phase


class Model(Protocol):
    """What the machine moves: anything with a phase."""

    phase: Phase | None


class _LeanEvent(Event):  # type: ignore[misc]
    """An event of a machine that has neither conditions nor callbacks.

    The library's own event builds an `EventData` and walks ten empty callback
    lists on each trigger; here a trigger is one look-up.
    """

    def __init__(self, name: str, machine: Machine) -> None:
        super().__init__(name, machine)
        self._dest: dict[Phase | None, Phase] = {}

    def add_transition(self, transition: Transition) -> None:
        """Take a transition of the table; one with conditions or callbacks is not for this class."""
        extras = (transition.conditions, transition.prepare, transition.before, transition.after)
        if any(extras):
            raise ValueError(f"{transition!r} has conditions or callbacks, which would not be run")
        super().add_transition(transition)
        self._dest[transition.source] = transition.dest

    def trigger(self, model: Model, *_args: object, **_kwargs: object) -> bool:
        """Move `model` along this event's edge; raise `IllegalEventError` where there is none."""
        dest = self._dest.get(model.phase)
        if dest is None:
            legal = [event.name for event in self.machine.events.values() if event.leaves(model)]
            raise IllegalEventError(
                f"event {self.name!r} is illegal in phase {model.phase!r}; "
                f"legal there: {', '.join(legal) or 'nothing'}"
            )
        model.phase = dest
        return True

    def leaves(self, model: Model) -> bool:
        """Tell whether this event is legal in the model's phase."""
        return model.phase in self._dest


class Lifecycle(Machine):  # type: ignore[misc]
    """The `transitions` machine of the table in `batchproof.spec.lifecycle`."""

    event_cls = _LeanEvent

    def __init__(self) -> None:
        super().__init__(
            model=None,
            states=list(PHASES),
            initial=INITIAL,
            transitions=[[edge.event, edge.source, edge.dest] for edge in EDGES],
            auto_transitions=False,
            model_attribute="phase",
        )


class _Trigger(Protocol):
    def __call__(self, model: Model, /) -> bool: ...


def _trigger(event: str) -> _Trigger:
    return cast(Any, LIFECYCLE.events[event].trigger)


LIFECYCLE: Final = Lifecycle()

admit: Final = _trigger("admit")
first_token: Final = _trigger("first_token")
finish: Final = _trigger("finish")
preempt: Final = _trigger("preempt")
cancel: Final = _trigger("cancel")

"""The one state machine that every request's life goes through.

One `transitions` machine serves all requests: events are triggered on unbound
models, so that a request needs neither registration nor methods of its own.
Every change of a phase is one of the six calls at the end of this file.
"""

from typing import Any, Final, Protocol, cast

from transitions import Event, Machine, Transition

from batchproof.sched.errors import IllegalEventError
from batchproof.spec.lifecycle import EDGES, INITIAL, PHASES, Phase


class Model(Protocol):
    """What the machine moves: anything with a phase."""

    phase: Phase | None


class LeanEvent(Event):
    """An event of a machine that has neither conditions nor callbacks.

    The library's own event builds an `EventData` and walks ten empty callback
    lists on each trigger; here a trigger is one look-up.
    """

    def __init__(self, name: str, machine: Machine) -> None:
        super().__init__(name, machine)
        self._dest: dict[Any, Any] = {}

    def add_transition(self, transition: Transition) -> None:
        """Take a transition; raise ValueError if it has conditions or callbacks to be run."""
        if transition.conditions or transition.prepare or transition.before or transition.after:
            raise ValueError(f"{transition!r} has conditions or callbacks; a lean event runs none")
        super().add_transition(transition)
        self._dest[transition.source] = transition.dest

    def trigger(self, model: Any, *_args: Any, **_kwargs: Any) -> bool:
        """Move `model` along this event's edge; raise `IllegalEventError` where there is none."""
        dest = self._dest.get(model.phase)
        if dest is None:
            legal = self.machine.get_triggers(model.phase)
            raise IllegalEventError(
                f"event {self.name!r} is illegal in phase {model.phase!r}; "
                f"legal there: {', '.join(legal) or 'nothing'}"
            )
        model.phase = dest
        return True


class Lifecycle(Machine):
    """The `transitions` machine of the table in `batchproof.spec.lifecycle`."""

    event_cls = LeanEvent

    def __init__(self) -> None:
        super().__init__(
            model=None,
            states=list(PHASES),
            initial=INITIAL,
            transitions=[[edge.event, edge.source, edge.dest] for edge in EDGES],
            auto_transitions=False,
            model_attribute="phase",
        )


class Trigger(Protocol):
    """One event of the lifecycle, to be fired on a model."""

    def __call__(self, model: Model, /) -> bool:
        """Move the model; raise `IllegalEventError`, nothing changed, where there is no edge."""
        ...


LIFECYCLE: Final = Lifecycle()


def _trigger(event: str) -> Trigger:
    return cast(Trigger, LIFECYCLE.events[event].trigger)


admit: Final = _trigger("admit")
first_token: Final = _trigger("first_token")
finish: Final = _trigger("finish")
preempt: Final = _trigger("preempt")
cancel: Final = _trigger("cancel")
expire: Final = _trigger("expire")

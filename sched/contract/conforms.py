"""Whether a recording of a run, or a behavior, follows the specification: asserted."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from batchproof.spec.behavior import Step, follow
from batchproof.spec.state import System


class Behavior(NamedTuple):
    """What was seen of a run: the requests that there are, and each step."""

    system: System
    steps: Sequence[Step]


def assert_conforms(behavior: Behavior | str | Path) -> None:
    """Assert that a run follows the specification from its first step to its last.

    A recording is named by its file, in the documented format. What a `Behavior`
    leaves open is searched for, which is meant for small ones. Raises
    `AssertionError` with the step and the rule; `InputError` for a file that is
    malformed, ValueError for a behavior without steps.
    """
    if isinstance(behavior, Behavior):
        outcome = follow(*behavior)
        assert outcome.allowed, (
            f"step {outcome.matched} of {outcome.length}, {behavior.steps[outcome.matched]}: "
            + "; or ".join(outcome.objections)
        )
        return
    from batchproof.sched.conformance import Conformance
    from batchproof.sched.run_recording import RunRecording

    recording = RunRecording(str(behavior))
    conformance = Conformance(recording.header, lambda line: f"{behavior}: line {line}")
    for line, record in recording:
        violation = conformance.hear(line, record)
        assert violation is None, (
            f"{behavior}: line {line}, tick {violation.tick}: "
            f"{violation.property}: {violation.detail}"
        )

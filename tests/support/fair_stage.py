"""A scheduler under fair-lane on which a heavy user is at work."""

from typing import Any, Final

from support.builders import ConstantExecutor, a_request, submitted
from support.core_checks import Recorder

from batchproof import Limits, Scheduler
from batchproof.sched.policy.fair_lane import FairLane

LIMITS: Final = Limits(
    max_kv_blocks=32, block_size=4, chunk_size=8, token_budget=32, max_batch_size=16
)  # fmt: skip


class Stage:
    """`heavy` requests of A are submitted, of 8 prompt tokens each."""

    def __init__(
        self,
        heavy: int = 8,
        output: int = 60,
        executor: Any = None,
        weights: dict[str, float] | None = None,
    ) -> None:
        self.policy, self.recorder = FairLane(), Recorder()
        executor = executor or ConstantExecutor()
        self.scheduler = Scheduler(
            LIMITS, self.policy, executor, observer=self.recorder, weights=weights
        )
        self.recorder.watch(self.scheduler)
        self.submit("A", 8, output, heavy)

    def submit(self, user: str, prompt: int, output: int, count: int = 1) -> None:
        """Submit requests of a user, called by its id and a number."""
        names = [f"{user}{n}" for n in range(count)]
        submitted(self.scheduler, [a_request(name, prompt, output, user) for name in names])

    def ticks(self, count: int) -> list[dict[str, int]]:
        """Run some ticks; return what each fed."""
        for _ in range(count):
            self.scheduler.tick()
        return self.recorder.log[-count:]

    def tick(self) -> dict[str, int]:
        """Run a tick; return what it fed."""
        return self.ticks(1)[0]

    @property
    def state(self) -> Any:
        """What the policy remembers."""
        return self.policy.state()

    @property
    def lane(self) -> tuple[str, ...]:
        """Whose lane the last tick was."""
        plan: Any = self.scheduler._plan
        return tuple(plan.note.lane)

"""The account at the end of a service: what became of every request, and whether it adds up."""

from dataclasses import asdict, dataclass
from typing import Any, Self

from batchproof.sched.scheduler import Scheduler


@dataclass(frozen=True)
class Account:
    """What the scheduler counted, and beside it what the server handed out."""

    submitted: int
    finished: int
    cancelled: int
    expired: int
    refused: int
    live: int
    blocks: int
    free_blocks: int
    delivered: int
    """Finished and expired requests that the server was handed."""
    cancellations: int
    """Cancellations of the server that found their request live."""
    violations: int | None
    """Violations that the monitor noted; None without a monitor."""

    @classmethod
    def of(cls, scheduler: Scheduler, *, delivered: int, cancelled: int) -> Self:
        """Return the account of a scheduler, and of what the server counted beside it."""
        stats = scheduler.stats()
        return cls(
            **stats["requests"],
            blocks=scheduler.limits.max_kv_blocks,
            free_blocks=stats["live"]["free_blocks"],
            delivered=delivered,
            cancellations=cancelled,
            violations=None if scheduler.monitor is None else len(scheduler.monitor.violations),
        )

    def faults(self) -> list[str]:
        """Return what does not add up once nothing is to be live: empty if nothing was lost."""
        ended = self.finished + self.cancelled + self.expired + self.refused
        equal = {
            "submitted = finished + cancelled + expired + refused": (self.submitted, ended),
            "live = 0": (self.live, 0),
            "free blocks = all blocks": (self.free_blocks, self.blocks),
            "delivered = finished + expired": (self.delivered, self.finished + self.expired),
            "cancellations = cancelled": (self.cancellations, self.cancelled),
            "violations = 0": (self.violations or 0, 0),
        }
        return [
            f"{claim}, but {left} is not {right}"
            for claim, (left, right) in equal.items()
            if left != right
        ]

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON-ready object."""
        return {**asdict(self), "faults": self.faults()}

    def __str__(self) -> str:
        return (
            f"{self.submitted} submitted = {self.finished} finished + {self.cancelled} cancelled "
            f"+ {self.expired} expired + {self.refused} refused; "
            f"{self.free_blocks} of {self.blocks} blocks free"
        )

"""What a monitor reported, taken again: to look at a violation anew, where it was not seen."""

from collections.abc import Mapping
from typing import Any

from batchproof.sched.config import Limits
from batchproof.sched.monitor import Monitor
from batchproof.sched.monitor_facts import Account, TickFacts, Violation


def replay(report: Mapping[str, Any]) -> list[Violation]:
    """Return what a monitor finds that is told the ticks of a report again."""
    monitor = Monitor(
        Limits(**report["limits"]),
        report["admission"],
        on_violation="record",
        exempt=report["exempt"],
    )
    for request_id, state in report["start"].items():
        times = (state["deadline_s"], state["admit_by_s"])
        account = Account(
            state["user"], state["prompt"], state["max_tokens"], state["number"], times
        )
        account.phase, account.prefilled = state["phase"], state["prefilled"]
        account.generated, account.blocks = state["generated"], list(state["blocks"])
        account.priority, account.passed = state["priority"], state["passed"]
        monitor.resume(request_id, account)
    ticks = sum(event[0] == "ticked" for event in report["events"])
    monitor.ticks = report["ticks"] - ticks
    for event, *what in report["events"]:
        if event == "ticked":
            monitor.ticked(TickFacts(*what[0]))
        else:
            getattr(monitor, event)(*what)
    return monitor.violations

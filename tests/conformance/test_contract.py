"""The contract holds of what ships, and finds what is wrong with others."""

import pytest
from conformance.own_adapter import OwnScheduler
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from batchproof.sched.config import ADMISSIONS
from batchproof.sched.policy import POLICIES
from batchproof.testing import SchedulerContract, StepReport

QUICK = settings(
    max_examples=15,
    stateful_step_count=12,
    deadline=None,
    derandomize=True,
    database=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("admission", ADMISSIONS)
def test_what_ships_keeps_the_contract(policy, admission) -> None:
    class Ours(SchedulerContract):
        def make_scheduler(self) -> OwnScheduler:
            return OwnScheduler(self.limits, policy, admission)

    Ours.admission = admission
    run_state_machine_as_test(Ours, settings=QUICK)


class Leaky(OwnScheduler):
    """Forgets to give back a block of whoever is cancelled."""

    def cancel(self, request_id: str) -> bool:
        sequence = self.sched._roster.live.get(request_id)
        if sequence is not None and sequence.blocks:
            sequence.blocks.pop()
        return super().cancel(request_id)


class Deaf(OwnScheduler):
    """Accepts nobody twice under one name, and whoever else comes."""

    def submit(self, request_id, user_id, prompt, max_tokens) -> bool:
        return super().submit(request_id, user_id, prompt, max_tokens) or request_id != "r0"


class Late(OwnScheduler):
    """Reports who ended one step later."""

    waits: dict = {}  # noqa: RUF012

    def step(self, next_token) -> StepReport:
        report = super().step(next_token)
        self.waits, ended = dict(report.ended), self.waits
        return StepReport(report.fed, report.emitted, ended, report.held)


class Idle(OwnScheduler):
    """Does nothing from the third step on."""

    steps = 0

    def step(self, next_token) -> StepReport:
        self.steps += 1
        if self.steps < 3:
            return super().step(next_token)
        held = {s.request_id: len(s.blocks) for s in self.sched._roster.live.values()}
        return StepReport(held=held)


class Lying(OwnScheduler):
    """Says that it cancelled whoever it was asked to."""

    def cancel(self, request_id: str) -> bool:
        return super().cancel(request_id) or True


WRONG = {
    Leaky: "every-request-ends|tick-feeds|an empty batch",
    Deaf: "feasible-or-refused",
    Late: "ends-at-once|length-is-exact|ended-once",
    Idle: "tick-feeds",
    Lying: "says that there was something",
}


@pytest.mark.parametrize(
    ("kind", "message"), WRONG.items(), ids=lambda x: getattr(x, "__name__", "")
)
def test_a_wrong_scheduler_is_found_out(kind, message) -> None:
    class Theirs(SchedulerContract):
        def make_scheduler(self) -> OwnScheduler:
            return kind(self.limits, "stall-free")

    with pytest.raises(Exception, match=message):
        run_state_machine_as_test(Theirs, settings=QUICK)


def test_properties_that_do_not_apply_are_left_out() -> None:
    class Theirs(SchedulerContract):
        properties = SchedulerContract.properties - {"tick-feeds"}

        def make_scheduler(self) -> OwnScheduler:
            return Idle(self.limits, "stall-free")

    with pytest.raises(AssertionError, match="every-request-ends"):
        run_state_machine_as_test(Theirs, settings=QUICK)


def test_a_contract_without_a_scheduler_says_what_is_missing() -> None:
    with pytest.raises(NotImplementedError, match="make_scheduler"):
        run_state_machine_as_test(SchedulerContract, settings=QUICK)

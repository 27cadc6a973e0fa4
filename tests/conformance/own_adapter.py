"""The shipped scheduler behind the adapter that the contract drives schedulers through."""

from batchproof import Limits, Request, Scheduler
from batchproof.sched.errors import RequestError
from batchproof.sched.policy import make_policy
from batchproof.testing import NextToken, StepReport


class Model:
    """An executor that asks the test for each token."""

    def __init__(self) -> None:
        self.next_token: NextToken = lambda _: 1
        self.fed: dict[str, int] = {}
        self.emitted: dict[str, int] = {}

    def forward(self, batch) -> list[int]:
        self.fed = {share.request_id: len(share.tokens) for share in batch}
        self.emitted = {s.request_id: self.next_token(s.request_id) for s in batch if s.yields}
        return [self.emitted.get(share.request_id, 0) for share in batch]

    def now(self) -> float:
        return 0.0


class OwnScheduler:
    """A `SchedulerAdapter` of the shipped scheduler."""

    def __init__(self, limits: Limits, policy: str, admission=None) -> None:
        self.model = Model()
        self.sched = Scheduler(limits, make_policy(policy, admission), self.model)

    def submit(self, request_id: str, user_id: str, prompt: list[int], max_tokens: int) -> bool:
        try:
            self.sched.submit(Request(user_id, prompt, max_tokens, request_id))
        except RequestError:
            return False
        return True

    def cancel(self, request_id: str) -> bool:
        return self.sched.cancel(request_id)

    def step(self, next_token: NextToken) -> StepReport:
        self.model.next_token = next_token
        ended = {request.request_id: request.finish_reason for request in self.sched.tick()}
        live = self.sched._roster.live.values()
        held = {sequence.request_id: len(sequence.blocks) for sequence in live}
        return StepReport(self.model.fed, self.model.emitted, ended, held)

"""The waiting line against the obvious one: a list that is sorted again after each change."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.builders import a_request

from batchproof.sched.request import Sequence
from batchproof.sched.waiting import WaitingQueue


class WaitingLine(RuleBasedStateMachine):
    """Submits, admits each user's oldest, preempts anyone, cancels anyone: what schedulers do."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = WaitingQueue()
        self.waiting: list[Sequence] = []
        self.admitted: list[Sequence] = []
        self.submissions = 0

    @rule(user=st.sampled_from("abc"))
    def submit(self, user: str) -> None:
        prompt = (1,) * (self.submissions % 5 + 1)
        sequence = Sequence(a_request(user=user), prompt, self.submissions, 0.0)
        self.submissions += 1
        self.queue.append(sequence)
        self.waiting.append(sequence)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def admit_the_oldest_of_a_user(self, data: Any) -> None:
        user = data.draw(st.sampled_from(sorted({seq.user_id for seq in self.waiting})))
        oldest = min((s for s in self.waiting if s.user_id == user), key=lambda seq: seq.number)
        assert next(iter(self.queue.by_user[user])) is oldest
        self._leave(oldest)
        self.admitted.append(oldest)

    @precondition(lambda self: self.admitted)
    @rule(data=st.data())
    def preempt(self, data: Any) -> None:
        sequence = data.draw(st.sampled_from(self.admitted))
        self.admitted.remove(sequence)
        self.queue.put_back(sequence)
        self.waiting.append(sequence)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def cancel(self, data: Any) -> None:
        self._leave(data.draw(st.sampled_from(self.waiting)))

    def _leave(self, sequence: Sequence) -> None:
        self.queue.remove(sequence)
        self.waiting.remove(sequence)

    @invariant()
    def the_line_is_in_order_of_first_submission(self) -> None:
        expected = sorted(self.waiting, key=lambda seq: seq.number)
        assert list(self.queue) == expected
        assert len(self.queue) == len(expected)
        assert self.queue.tokens == sum(seq.context_len for seq in expected)
        assert {user: line.tokens for user, line in self.queue.by_user.items()} == {
            user: sum(seq.context_len for seq in expected if seq.user_id == user)
            for user in self.queue.by_user
        }

    @invariant()
    def each_user_has_a_line_of_the_same_order_and_nobody_an_empty_one(self) -> None:
        expected = sorted(self.waiting, key=lambda seq: seq.number)
        users = {seq.user_id for seq in expected}
        assert {user: list(line) for user, line in self.queue.by_user.items()} == {
            user: [seq for seq in expected if seq.user_id == user] for user in users
        }
        assert all(len(line) for line in self.queue.by_user.values())


TestWaitingLine = WaitingLine.TestCase
TestWaitingLine.settings = settings(stateful_step_count=30)


def test_of_two_users_the_request_put_back_may_be_younger_than_the_fresh_one() -> None:
    queue = WaitingQueue()
    heavy, light = (Sequence(a_request(user=u), (1,), n, 0.0) for n, u in enumerate("hl"))
    queue.append(heavy)
    queue.append(light)

    queue.remove(light)  # a policy fair to the users may admit the younger one
    queue.put_back(light)

    assert list(queue) == [heavy, light]

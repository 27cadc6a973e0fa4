"""Calls out of order, batches abandoned, executors that fail: the scheduler is as it was before."""

from collections.abc import Callable
from typing import Any

import pytest
from support.builders import (
    AnsweringExecutor,
    ConstantExecutor,
    FailingExecutor,
    a_gpu,
    a_request,
    a_scheduler,
    crowd,
    run_to_end,
    submitted,
)
from support.core_checks import Recorder, assert_invariants
from support.state_dump import dump

from batchproof import Scheduler
from batchproof.sched.errors import ExecutorError, MisuseError


class TestOutOfOrder:
    @pytest.mark.parametrize(
        ("call", "says"),
        [
            (lambda s, b: s.schedule(), "a batch is out"),
            (lambda s, b: s.tick(), "a batch is out"),
            (lambda s, b: s.cancel("r0"), "a batch is out"),
            (lambda s, b: s.cancel("nobody"), "a batch is out"),
            (lambda s, b: s.complete(list(b), [7] * len(b)), "not the one that is out"),
            (lambda s, b: s.abandon(list(b)), "not the one that is out"),
        ],
    )
    def test_while_a_batch_is_out_is_refused_and_changes_nothing(
        self, call: Callable[[Scheduler, Any], object], says: str
    ) -> None:
        scheduler = a_scheduler()
        crowd(scheduler)
        batch = scheduler.schedule()
        before = dump(scheduler)
        with pytest.raises(MisuseError, match=says):
            call(scheduler, batch)
        assert dump(scheduler) == before
        scheduler.complete(batch, scheduler.executor.forward(batch))
        assert len(run_to_end(scheduler)) == 6

    @pytest.mark.parametrize("call", ["complete", "abandon"])
    def test_a_batch_is_taken_back_once(self, call: str) -> None:
        scheduler = a_scheduler()
        crowd(scheduler)
        batch = scheduler.schedule()
        arguments = (batch, [7] * len(batch)) if call == "complete" else (batch,)
        getattr(scheduler, call)(*arguments)
        before = dump(scheduler)
        with pytest.raises(MisuseError, match=f"{call}: no batch is out"):
            getattr(scheduler, call)(*arguments)
        assert dump(scheduler) == before

    def test_the_batch_of_an_earlier_tick_is_not_the_one_that_is_out(self) -> None:
        scheduler = a_scheduler()
        crowd(scheduler)
        stale = scheduler.schedule()
        scheduler.abandon(stale)
        scheduler.schedule()
        with pytest.raises(MisuseError, match="not the one"):
            scheduler.complete(stale, [7] * len(stale))

    def test_an_executor_that_ticks_the_scheduler_is_told_so(self) -> None:
        scheduler = a_scheduler()
        crowd(scheduler)
        before = dump(scheduler)
        scheduler.executor = AnsweringExecutor(lambda count: scheduler.tick())
        with pytest.raises(MisuseError, match="a batch is out"):
            scheduler.tick()
        assert dump(scheduler) == before


class TestSubmittingWhileABatchIsOut:
    def test_is_allowed_and_the_newcomer_is_in_the_next_batch(self) -> None:
        scheduler = a_scheduler()
        scheduler.submit(a_request("a"))
        batch = scheduler.schedule()
        scheduler.submit(a_request("b"))
        scheduler.complete(batch, scheduler.executor.forward(batch))
        assert [seq.request_id for seq in scheduler.schedule()] == ["a", "b"]

    def test_survives_abandoning_the_batch(self) -> None:
        scheduler = a_scheduler()
        scheduler.submit(a_request("a"))
        batch = scheduler.schedule()
        scheduler.submit(a_request("b"))
        scheduler.abandon(batch)
        assert_invariants(scheduler)
        assert {r.request_id for r in run_to_end(scheduler)} == {"a", "b"}


class TestAbandon:
    def test_undoes_schedule_exactly_at_every_point_of_a_run(self) -> None:
        scheduler, recorder = a_scheduler(), Recorder()
        scheduler._observer = recorder
        crowd(scheduler)
        while scheduler.has_active():
            before = dump(scheduler)
            first = scheduler.schedule()
            planned = [(seq.request_id, list(seq.tokens), list(seq.block_table)) for seq in first]
            scheduler.abandon(first)
            assert dump(scheduler) == before
            assert_invariants(scheduler)
            again = scheduler.schedule()
            assert planned == [
                (seq.request_id, list(seq.tokens), list(seq.block_table)) for seq in again
            ]
            scheduler.complete(again, scheduler.executor.forward(again))
        happened = {what for _, _, what in recorder.events}
        assert {"preempt", "admit", "grow", "end"} <= happened, "each was undone at least once"


# What an executor may get wrong -> (what it does, the error, what is said of it).
GARBAGE: dict[str, tuple[Any, type[Exception], str]] = {
    "raises": (RuntimeError("out of memory"), RuntimeError, "out of memory"),
    "is interrupted": (KeyboardInterrupt("by hand"), KeyboardInterrupt, "by hand"),
    "too few": (lambda n: [7] * (n - 1), ExecutorError, "returned 1 tokens for a batch of 2"),
    "too many": (lambda n: [7] * (n + 1), ExecutorError, "returned 3 tokens for a batch of 2"),
    "none at all": (lambda n: [], ExecutorError, "returned 0 tokens"),
    "None": (None, ExecutorError, "None, not a list of token ids"),
    "a number": (7, ExecutorError, "7, not a list"),
    "a negative token": ([7, -1], ExecutorError, "not a list of token ids"),
    "a float token": ([7, 1.0], ExecutorError, "not a list of token ids"),
    "a string token": ([7, "a"], ExecutorError, "not a list of token ids"),
    "None for a token": ([7, None], ExecutorError, "not a list of token ids"),
    "a huge token": ([7, 2**64], ExecutorError, "not a list of token ids"),
    "text": ("ab", ExecutorError, "not a list of token ids"),
    "bytes": (bytes(16), ExecutorError, "not a list of token ids"),
    "bytes of an odd length": (bytes(3), ExecutorError, "not a list of token ids"),
    "a list of lists": ([[7], [7]], ExecutorError, "not a list of token ids"),
}


class TestABadExecutor:
    @pytest.mark.parametrize("wrong", GARBAGE)
    def test_undoes_the_tick_which_can_be_tried_again(self, wrong: str) -> None:
        answer, error, says = GARBAGE[wrong]
        scheduler = a_scheduler(AnsweringExecutor(answer))
        a, b = submitted(scheduler, [a_request("a", 3, 2), a_request("b", 5, 1)])
        before = dump(scheduler)

        with pytest.raises(error, match=says):
            scheduler.tick()

        assert dump(scheduler) == before
        assert_invariants(scheduler)
        assert (a.phase, b.phase, a.generated) == ("waiting", "waiting", [])
        assert run_to_end(scheduler) == [b, a]

    @pytest.mark.parametrize(
        "wrong", [name for name in GARBAGE if GARBAGE[name][1] is ExecutorError]
    )
    def test_handed_to_complete_leaves_the_batch_out(self, wrong: str) -> None:
        answer, error, says = GARBAGE[wrong]
        scheduler = a_scheduler(ConstantExecutor())
        submitted(scheduler, [a_request("a", 3, 2), a_request("b", 5, 1)])
        batch = scheduler.schedule()
        before = dump(scheduler)

        with pytest.raises(error, match=says):
            scheduler.complete(batch, answer(2) if callable(answer) else answer)

        assert dump(scheduler) == before
        scheduler.complete(batch, [7, 7])
        assert len(run_to_end(scheduler)) == 1

    def test_whose_clock_fails_undoes_the_tick_too(self) -> None:
        class StoppedClock(ConstantExecutor):
            stopped = False

            def forward(self, batch: Any) -> list[int]:
                self.stopped = True
                return super().forward(batch)

            def now(self) -> float:
                if self.stopped:
                    raise OSError("no clock")
                return super().now()

        scheduler = a_scheduler(StoppedClock())
        scheduler.submit(a_request())
        before = dump(scheduler)
        with pytest.raises(OSError, match="no clock"):
            scheduler.tick()
        assert dump(scheduler) == before

    @pytest.mark.parametrize("failing", [range(1, 200, 2), range(1, 200, 3), [1, 2, 3, 4, 9]])
    def test_that_fails_now_and_then_gives_the_same_run(self, failing: Any) -> None:
        undisturbed, disturbed = a_scheduler(), a_scheduler(FailingExecutor(a_gpu(), failing))
        crowd(undisturbed)
        crowd(disturbed)
        while undisturbed.has_active():
            undisturbed.tick()
            while True:
                try:
                    disturbed.tick()
                except RuntimeError:
                    continue
                break
            assert dump(disturbed) == dump(undisturbed)
        assert not disturbed.has_active()

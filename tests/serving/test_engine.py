"""The engine alone: who may touch the scheduler when, and what clients are told."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from support.builders import SMALL, FailingExecutor, a_gpu, a_request, submitted
from support.core_checks import assert_invariants

from batchproof import Request, Scheduler
from batchproof.sched.errors import InvalidRequestError, QueueFullError
from batchproof.sched.monitor import Monitor
from batchproof.sched.monitor_facts import ViolationError
from batchproof.sched.serving.account import Account
from batchproof.sched.serving.engine import TICK_TRIES, Engine, StoppedError
from batchproof.sched.serving.metrics import ServingMetrics


def an_engine(executor: Any = None, max_waiting: int = 100) -> Engine:
    limits = replace(SMALL, max_waiting_requests=max_waiting)
    metrics = ServingMetrics(SMALL, "test")
    return Engine(Scheduler(limits, executor=executor or a_gpu(), observer=metrics), metrics)


def run(scenario: Callable[[Engine], Awaitable[None]], engine: Engine) -> None:
    """Run a scenario with the engine entered; nothing may be lost afterwards."""

    async def entered() -> None:
        async with engine:
            await asyncio.wait_for(scenario(engine), 60)

    asyncio.run(entered())
    assert engine.account().faults() == []
    assert_invariants(engine.scheduler)


def requests(count: int) -> list[Request]:
    return [
        a_request(f"r{i}", prompt=3 + i, max_tokens=2 + i, user=f"u{i % 2}") for i in range(count)
    ]


class GatedExecutor:
    """Passes batches on once its gate is open; says when a batch is there."""

    def __init__(self) -> None:
        self.inner = a_gpu()
        self.gate, self.batch_is_there = threading.Event(), threading.Event()
        self.now = self.inner.now

    def forward(self, batch: Sequence[Any]) -> list[int]:
        self.batch_is_there.set()
        assert self.gate.wait(60)
        return self.inner.forward(batch)

    async def holds_a_batch(self) -> None:
        assert await asyncio.to_thread(self.batch_is_there.wait, 60)


class LoggingExecutor:
    """Keeps what each batch feeds, and at which blocks."""

    def __init__(self) -> None:
        self.inner = a_gpu()
        self.now = self.inner.now
        self.log: list[list[Any]] = []

    def forward(self, batch: Sequence[Any]) -> list[int]:
        self.log.append([(s.request_id, s.position, *s.tokens, *s.block_table) for s in batch])
        return self.inner.forward(batch)


def test_every_request_gets_its_own_tokens_whole_and_in_pieces() -> None:
    async def scenario(engine: Engine) -> None:
        async def joined(ticket: Any) -> list[int]:
            pieces = [piece async for piece in ticket.pieces()]
            assert [piece.finish_reason for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
            return [token for piece in pieces for token in piece.tokens]

        wanted = requests(12)
        tickets = [engine.submit([request]) for request in wanted]
        streamed = await asyncio.gather(*map(joined, tickets))
        gpu = a_gpu()
        assert streamed == [gpu.expected_output(request) for request in wanted]
        assert streamed == [request.generated for request in wanted]
        await asyncio.gather(*(ticket.ended() for ticket in tickets))

    run(scenario, an_engine())


def test_who_asks_late_gets_everything_in_one_piece() -> None:
    async def scenario(engine: Engine) -> None:
        ticket = engine.submit(requests(2))
        await ticket.ended()
        pieces = [piece async for piece in ticket.pieces()]
        assert [(p.place, p.tokens, p.finish_reason) for p in pieces] == [
            (place, request.generated, "length") for place, request in enumerate(ticket.requests)
        ]

    run(scenario, an_engine())


def test_the_engine_schedules_as_a_plain_loop_does() -> None:
    served, plain = LoggingExecutor(), LoggingExecutor()

    async def scenario(engine: Engine) -> None:
        await engine.submit(requests(12)).ended()

    run(scenario, an_engine(served))
    scheduler = Scheduler(SMALL, executor=plain)
    submitted(scheduler, requests(12))
    while scheduler.has_active():
        scheduler.tick()
    assert len(plain.log) > 12
    assert served.log == plain.log


def test_a_cancellation_waits_for_the_batch_that_is_out_and_no_longer() -> None:
    executor = GatedExecutor()

    async def scenario(engine: Engine) -> None:
        gone, stays = requests(2)
        ticket, other = engine.submit([gone]), engine.submit([stays])
        await executor.holds_a_batch()
        engine.cancel([gone])
        engine.cancel([gone])
        assert gone.finish_reason is None
        assert engine.metrics.blocks_held > 0
        executor.gate.set()
        await ticket.ended()
        assert (gone.finish_reason, len(gone.generated)) == ("cancelled", 1)
        assert (await anext(ticket.pieces())).finish_reason == "cancelled"
        await other.ended()
        assert stays.finish_reason == "length"
        assert engine.account().cancelled == 1

    run(scenario, an_engine(executor))


def test_a_cancellation_between_batches_is_done_when_the_call_returns() -> None:
    async def scenario(engine: Engine) -> None:
        request = a_request(max_tokens=20)
        engine.submit([request])
        engine.cancel([request])
        assert request.finish_reason == "cancelled"
        assert not engine.scheduler.has_active()

    run(scenario, an_engine())


def test_a_request_submitted_while_a_batch_is_out_is_in_the_next() -> None:
    executor = GatedExecutor()

    async def scenario(engine: Engine) -> None:
        first, second = requests(2)
        engine.submit([first])
        await executor.holds_a_batch()
        ticket = engine.submit([second])
        assert second.phase == "waiting"
        executor.gate.set()
        await ticket.ended()
        assert engine.metrics.registry.get_sample_value(
            "batchproof_iteration_tokens_total_sum", {"model_name": "test"}
        ) == sum(len(r.prompt) + len(r.generated) - 1 for r in (first, second))

    run(scenario, an_engine(executor))


def test_ticks_that_fail_are_tried_again_and_change_nothing() -> None:
    executor = FailingExecutor(a_gpu(), {2, 3, 6})

    async def scenario(engine: Engine) -> None:
        (request,) = requests(1)
        long = a_request("long", max_tokens=9)
        await engine.submit([request, long]).ended()
        assert long.generated == a_gpu().expected_output(long)
        assert engine.failure is None
        assert (
            b'batchproof_failed_ticks_total{model_name="test"} 3.0' in engine.metrics.exposition()
        )

    run(scenario, an_engine(executor))


def test_an_engine_whose_every_tick_fails_gives_up_and_says_so() -> None:
    executor = FailingExecutor(a_gpu(), range(1, 100))

    async def scenario(engine: Engine) -> None:
        (request,) = requests(1)
        await engine.submit([request]).ended()
        assert executor.calls == TICK_TRIES
        assert request.finish_reason == "cancelled"
        assert not engine.alive
        with pytest.raises(StoppedError, match="device lost on call 3"):
            engine.submit(requests(1))

    run(scenario, an_engine(executor))


def test_a_full_queue_turns_a_whole_call_away() -> None:
    executor = GatedExecutor()

    async def scenario(engine: Engine) -> None:
        engine.submit([a_request("runs")])
        await executor.holds_a_batch()
        engine.submit(requests(2))
        with pytest.raises(QueueFullError, match="2 requests: 3 requests wait, it would be 5"):
            engine.submit([a_request("x"), a_request("y")])
        with pytest.raises(InvalidRequestError, match=r"5 requests: .*not even an empty queue"):
            engine.submit([a_request(f"z{i}") for i in range(5)])
        ticket = engine.submit([a_request("fits")])
        executor.gate.set()
        await ticket.ended()
        assert engine.account().submitted == 4
        await engine.submit([a_request("x"), a_request("y")]).ended()

    # The one that runs counts as waiting until its first tick is over.
    run(scenario, an_engine(executor, max_waiting=4))


def test_of_a_call_with_one_bad_prompt_nothing_is_left() -> None:
    async def scenario(engine: Engine) -> None:
        with pytest.raises(InvalidRequestError, match="prompt is empty"):
            engine.submit([*requests(2), a_request("bad", prompt=0)])
        assert not engine.scheduler.has_active()

    engine = an_engine()
    run(scenario, engine)
    account = engine.account()
    assert (account.submitted, account.cancelled, account.refused) == (3, 2, 1)


def test_leaving_the_engine_cancels_what_is_live() -> None:
    wanted = [a_request(f"r{i}", max_tokens=20) for i in range(10)]

    async def scenario(engine: Engine) -> None:
        engine.submit(wanted)
        await asyncio.sleep(0.005)

    engine = an_engine()
    run(scenario, engine)
    assert "cancelled" in {request.finish_reason for request in wanted}
    assert None not in {request.finish_reason for request in wanted}


def test_the_first_violation_of_a_property_ends_the_service() -> None:
    stricter = Monitor(replace(SMALL, token_budget=2), on_violation="record")
    metrics = ServingMetrics(SMALL, "test")
    scheduler = Scheduler(SMALL, executor=a_gpu(), observer=metrics, monitor=stricter)
    engine = Engine(scheduler, metrics)

    async def scenario() -> None:
        async with engine:
            request = a_request(prompt=3, max_tokens=20)
            await engine.submit([request]).ended()
            assert (request.finish_reason, len(request.generated)) == ("cancelled", 1)
            with pytest.raises(StoppedError, match="monitor: tick 0: budget-bounded: 3 tokens"):
                engine.submit(requests(1))

    asyncio.run(scenario())
    assert isinstance(engine.failure, ViolationError)
    assert engine.account().faults() == ["violations = 0, but 1 is not 0"]
    assert_invariants(scheduler)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (
            {"submitted": 11},
            "submitted = finished + cancelled + expired + refused, but 11 is not 10",
        ),
        ({"live": 1}, "live = 0, but 1 is not 0"),
        ({"free_blocks": 7}, "free blocks = all blocks, but 7 is not 8"),
        ({"delivered": 6}, "delivered = finished + expired, but 6 is not 7"),
        ({"violations": 1}, "violations = 0, but 1 is not 0"),
        ({"cancellations": 3}, "cancellations = cancelled, but 3 is not 2"),
    ],
)
def test_an_account_that_does_not_add_up_says_where(change: dict[str, int], fault: str) -> None:
    sound = Account(
        submitted=10, finished=6, cancelled=2, expired=1, refused=1, live=0,
        blocks=8, free_blocks=8, delivered=7, cancellations=2, violations=None,
    )  # fmt: skip
    assert sound.faults() == []
    assert replace(sound, **change).faults() == [fault]

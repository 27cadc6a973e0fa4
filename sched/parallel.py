"""Independent calls, run in several processes, with their results in the order of the calls."""

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing.synchronize import Event
from typing import Any

Stop = Callable[[], bool]
"""Tells whether to end early."""
Call = Callable[[Stop], Any]
"""Something to run; picklable, as it may be run in another process. None: it was ended early."""

_SECONDS_BETWEEN_LOOKS = 0.2


class Workers:
    """`jobs` processes, or this one if `jobs` is 1: what is computed does not depend on it."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._pool: ProcessPoolExecutor | None = None
        self._stopped: Event | None = None

    def __enter__(self) -> "Workers":
        if self._jobs > 1:
            # Not forked: a fork of a process with threads, as a progress bar has, may hang.
            context = multiprocessing.get_context("spawn")
            self._stopped = context.Event()
            self._pool = ProcessPoolExecutor(
                self._jobs, context, initializer=_start_worker, initargs=(self._stopped,)
            )
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._pool is not None and self._stopped is not None:
            self._stopped.set()
            self._pool.shutdown(cancel_futures=True)

    def run(
        self,
        calls: Sequence[Call],
        *,
        stop: Stop = lambda: False,
        finished: Callable[[], None] = lambda: None,
    ) -> list[Any]:
        """Run all calls; return their results, None for those that `stop` prevented.

        `finished` is called after each. Whatever a call raises passes through.
        """
        if self._pool is None:
            return [_run_here(call, stop, finished) for call in calls]
        futures = [self._pool.submit(_run_in_worker, call) for call in calls]
        pending: set[Future[Any]] = set(futures)
        while pending:
            done, pending = wait(pending, _SECONDS_BETWEEN_LOOKS, FIRST_COMPLETED)
            for future in done:
                if not future.cancelled():
                    future.result()  # raises what the call raised
                    finished()
            if stop() and self._stopped is not None:
                self._stopped.set()
                for future in pending:
                    future.cancel()
        return [None if future.cancelled() else future.result() for future in futures]


def _run_here(call: Call, stop: Stop, finished: Callable[[], None]) -> Any:
    result = None if stop() else call(stop)
    finished()
    return result


_is_stopped: Stop = lambda: False  # noqa: E731  # a worker's own, once it has started


def _start_worker(stopped: Event) -> None:
    global _is_stopped  # noqa: PLW0603  # a worker has no other place to keep it
    _is_stopped = stopped.is_set
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer


def _run_in_worker(call: Call) -> Any:
    return call(_is_stopped)

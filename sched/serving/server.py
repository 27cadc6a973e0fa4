"""The server: listens, serves, and drains when it is told to stop."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Final

import uvicorn

from batchproof.sched.errors import InputError
from batchproof.sched.monitor import Monitor
from batchproof.sched.policy.registry import make_policy
from batchproof.sched.scheduler import Scheduler
from batchproof.sched.serving.account import Account
from batchproof.sched.serving.app import Access, make_app
from batchproof.sched.serving.engine import Engine
from batchproof.sched.serving.metrics import ServingMetrics
from batchproof.sched.serving.models import ServedModel
from batchproof.sched.simulation import Setup

STUCK_CLIENT_S: Final = 3
"""Seconds that clients have, once the time to drain is over, to read what they were answered."""

_DAY_S: Final = 86_400


@dataclass(frozen=True)
class ServiceOptions:
    """Where is served, and how much at once."""

    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int = 8000
    """The port to listen on; 0 takes a free one."""
    drain_timeout: float = 30.0
    """Seconds that live requests have to finish once the server is told to stop."""

    monitor: bool = False
    """Hold every tick against the properties of the catalog, and stop at the first violation."""

    def __post_init__(self) -> None:
        for name, value, lowest, highest in (
            ("port", self.port, 0, 2**16 - 1),
            ("drain-timeout", self.drain_timeout, 0, _DAY_S),
        ):
            if not lowest <= value <= highest:
                raise InputError(f"--{name} is {value}, not a number from {lowest} to {highest}")


@dataclass(frozen=True)
class Outcome:
    """How a service ended."""

    account: Account
    cut_short: bool
    """Whether requests were live when the time to drain was over."""
    failure: Exception | None
    """Why the engine gave up; None if it did not."""


class DrainingServer(uvicorn.Server):
    """A uvicorn server that gives live requests some time to finish, then cuts them short.

    Clients that have not read their answer some time after that are hung up on.
    """

    def __init__(self, config: uvicorn.Config, engine: Engine, drain_timeout: float) -> None:
        super().__init__(config)
        self._engine = engine
        self._drain_timeout = drain_timeout
        self._signals = 0
        self.cut_short = False
        self.when_started: Callable[[], None] = lambda: None
        """Called once signals are heard and connections are taken."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to serve."""
        await super().startup(sockets)
        self.when_started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Note a signal to stop: the first one drains, another does not wait for what is live."""
        self._signals += 1
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Tell whether to stop: asked to, or the engine did."""
        return await super().on_tick(counter) or not self._engine.alive

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, and wait for what is live."""
        patience = asyncio.create_task(self._lose_patience())
        try:
            await super().shutdown(sockets)
        finally:
            patience.cancel()

    async def _lose_patience(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._drain_timeout
        while loop.time() < deadline and self._signals < 2:
            await asyncio.sleep(0.05)
        self.cut_short |= self._engine.scheduler.has_active()
        self._engine.stop()
        await asyncio.sleep(STUCK_CLIENT_S)
        self.cut_short |= bool(self.server_state.connections)
        for connection in self.server_state.connections:
            connection.transport.abort()


class Service:
    """A model, a scheduler and a server on it; `run` serves, `stop` makes `run` drain and end.

    `setup` is the scheduler's; its EOS is the model's, if the model has one. Raises
    `LimitsError` for one that makes no sense.
    """

    def __init__(
        self, model: ServedModel, setup: Setup, options: ServiceOptions, access: Access
    ) -> None:
        self._options = options
        if model.eos_token is not None:
            setup = replace(setup, limits=replace(setup.limits, eos_token=model.eos_token))
        metrics = ServingMetrics(setup.limits, model.name)
        policy = make_policy(setup.policy, setup.admission)
        monitor = options.monitor and Monitor(setup.limits, policy.admission, on_violation="record")
        scheduler = Scheduler(
            setup.limits, policy, model.executor, observer=metrics, monitor=monitor
        )
        self.engine = Engine(scheduler, metrics)
        config = uvicorn.Config(
            make_app(self.engine, model, access),
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
        )
        self._server = DrainingServer(config, self.engine, options.drain_timeout)

    def run(self, started: Callable[[str], None] = lambda _url: None) -> Outcome:
        """Serve until `stop`, SIGTERM or SIGINT, then drain; another signal ends that at once.

        `started` hears the URL once connections are taken. Raises
        `InputError` for an address that cannot be listened on.
        """
        with _listening(self._options.host, self._options.port) as listener:
            url = _url_of(listener)
            self._server.when_started = lambda: started(url)
            asyncio.run(self._serve(listener))
        return Outcome(self.engine.account(), self._server.cut_short, self.engine.failure)

    def stop(self) -> None:
        """Ask for the end, from any thread."""
        self._server.should_exit = True

    async def _serve(self, listener: socket.socket) -> None:
        async with self.engine:
            await self._server.serve(sockets=[listener])


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise InputError(f"cannot listen on {host} port {port}: {error}; choose another") from None
    with listener:
        yield listener


def _url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

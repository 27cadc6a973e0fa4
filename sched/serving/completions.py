"""One call of `/v1/completions`, from its requests to its answer, whole or as a stream."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final
from uuid import uuid4

from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from batchproof.sched.request import Request
from batchproof.sched.serving.engine import Engine, StoppedError, Ticket
from batchproof.sched.serving.metrics import FINISHED_REASONS
from batchproof.sched.serving.models import ServedModel
from batchproof.sched.serving.openai_types import CompletionRequest, choice, error_body, usage
from batchproof.sched.serving.text import TextStream

CLIENT_GONE: Final = 499
"""What is answered to nobody: the client went away."""

CUT_SHORT: Final = "the server stopped before the request could be finished; send it again"


class Call:
    """The requests that one call submits, and what is answered of them.

    Raises what `ServedModel.check` and `Engine.submit` raise.
    """

    def __init__(
        self, body: CompletionRequest, user_id: str, model: ServedModel, engine: Engine
    ) -> None:
        self._engine = engine
        self._codec = model.codec
        self._wants_usage = bool(body.stream_options and body.stream_options.include_usage)
        self._head = {
            "id": f"cmpl-{uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model.name,
        }
        requests = [
            Request(
                user_id,
                self._codec.encode(prompt) if isinstance(prompt, str) else prompt,
                body.max_tokens,
                f"{self._head['id']}-{index}",
            )
            for index, prompt in enumerate(body.prompt)
        ]
        for request in requests:
            model.check(request.prompt, request.max_tokens)
        self.ticket: Ticket = engine.submit(requests)

    async def answer(self, receive: Receive) -> Response:
        """Return the whole completion; a client that goes away cancels it at once.

        Raises `StoppedError` if the server cut it short.
        """
        try:
            if not await _ends_before_client(self.ticket, receive):
                return Response(status_code=CLIENT_GONE)
        finally:
            self.cancel()
        requests = self.ticket.requests
        if any(request.finish_reason == "cancelled" for request in requests):
            raise StoppedError(CUT_SHORT)
        choices = [
            choice(
                index,
                self._codec.decode(request.generated),
                FINISHED_REASONS[request.finish_reason or "cancelled"],
            )
            for index, request in enumerate(requests)
        ]
        return JSONResponse({**self._head, "choices": choices, "usage": self._usage()})

    def stream(self) -> Response:
        """Return the completion as a stream; a client that goes away cancels it at once."""
        return _Stream(self)

    def cancel(self) -> None:
        """Cancel those of the requests that are live."""
        self._engine.cancel(self.ticket.requests)

    async def events(self) -> AsyncIterator[str]:
        """Yield the server-sent events of the stream."""
        texts = [TextStream(self._codec) for _ in self.ticket.requests]
        async for index, tokens, reason in self.ticket.pieces():
            if reason == "cancelled":
                yield _event(error_body(CUT_SHORT, "server_error", code="stopped"))
                return
            finish_reason = None if reason is None else FINISHED_REASONS[reason]
            text = texts[index].more(tokens, last=reason is not None)
            chunk = choice(index, text, finish_reason)
            yield self._chunk([chunk], None)
        if self._wants_usage:
            yield self._chunk([], self._usage())
        yield "data: [DONE]\n\n"

    def _chunk(self, choices: list[dict[str, Any]], used: Mapping[str, int] | None) -> str:
        chunk = {**self._head, "choices": choices}
        return _event({**chunk, "usage": used} if self._wants_usage else chunk)

    def _usage(self) -> dict[str, int]:
        requests = self.ticket.requests
        prompts = sum(len(request.prompt) for request in requests)
        return usage(prompts, sum(len(request.generated) for request in requests))


class _Stream(StreamingResponse):
    """A call's events. However it ends, whatever of the call is live then is cancelled."""

    def __init__(self, call: Call) -> None:
        super().__init__(call.events(), media_type="text/event-stream")
        self._call = call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until they end or the client is gone."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._call.cancel()


def _event(data: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(data, separators=(',', ':'))}\n\n"


async def _ends_before_client(ticket: Ticket, receive: Receive) -> bool:
    """Wait until the ticket has ended or its client is gone; return whether it has ended."""
    ended = asyncio.create_task(ticket.ended())
    gone = asyncio.create_task(_client_gone(receive))
    try:
        await asyncio.wait((ended, gone), return_when=asyncio.FIRST_COMPLETED)
        return ended.done()
    finally:
        ended.cancel()
        gone.cancel()


async def _client_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

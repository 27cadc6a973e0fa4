"""The routes, who may use them, and how each error is answered."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal, NamedTuple

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from batchproof.sched.errors import (
    InfeasibleRequestError,
    InputError,
    QueueFullError,
    RequestError,
)
from batchproof.sched.serving.completions import Call
from batchproof.sched.serving.engine import Engine, StoppedError
from batchproof.sched.serving.models import ServedModel
from batchproof.sched.serving.openai_types import CompletionRequest, error_body, model_list

BODY_BYTES_MAX: Final = 4 * 2**20
"""The largest body that is read."""
RETRY_AFTER_S: Final = 1
"""When a client that was turned away may try again."""
ANONYMOUS: Final = "anonymous"
"""The user of a request with neither `user` nor an API key."""


class _Answer(NamedTuple):
    """How an error is answered."""

    status: int
    kind: Literal["invalid_request_error", "rate_limit_error", "server_error"]
    code: str | None


ANSWERS: Final[dict[type[Exception], _Answer]] = {
    RequestError: _Answer(400, "invalid_request_error", None),
    InfeasibleRequestError: _Answer(400, "invalid_request_error", "context_length_exceeded"),
    QueueFullError: _Answer(429, "rate_limit_error", "queue_full"),
    StoppedError: _Answer(503, "server_error", "stopped"),
}
"""Errors of the engine -> how each is answered; the nearest class counts."""


@dataclass(frozen=True)
class Access:
    """Who may use the server, and who they are to the scheduler.

    Raises `InputError` for an empty key.
    """

    api_keys: Sequence[str] = ()
    """The keys that are let in; empty: everybody is."""

    def __post_init__(self) -> None:
        if not all(self.api_keys):
            raise InputError("an API key is empty: it would let in who has none")

    def user_of(self, key: str | None, user: str | None) -> str:
        """Return the user of a request: the one it names, or one made from its API key.

        The key itself goes no further: a user id turns up in statistics and recordings.
        """
        if user is not None:
            return user
        return ANONYMOUS if key is None else f"key-{sha256(key.encode()).hexdigest()[:16]}"

    def check(self, key: str | None) -> None:
        """Raise `HTTPException` unless this API key is let in."""
        given = (key or "").encode()
        if self.api_keys and not any(compare_digest(given, k.encode()) for k in self.api_keys):
            raise HTTPException(401, "this server needs an API key: Authorization: Bearer KEY")


def api_key(request: Request) -> str | None:
    """Return the API key of a request, None if it has none."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() or None if scheme.lower() == "bearer" else None


class LimitedBody:
    """Stops reading a request's body where it gets too large, so that memory stays bounded."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; raise `HTTPException` to the one who reads too much of it."""
        size = 0

        async def limited() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > BODY_BYTES_MAX:
                raise HTTPException(413, f"the body has more than {BODY_BYTES_MAX} bytes")
            return message

        await self._app(scope, limited, send)


def make_app(engine: Engine, model: ServedModel, access: Access) -> FastAPI:
    """Return the application. The engine must be entered before a request is served."""
    app = FastAPI(title="batchproof", openapi_url=None)
    app.add_middleware(LimitedBody)
    started_at = int(time.time())

    def allowed(key: Annotated[str | None, Depends(api_key)]) -> str | None:
        access.check(key)
        return key

    @app.post("/v1/completions")
    async def completions(
        body: CompletionRequest, request: Request, key: Annotated[str | None, Depends(allowed)]
    ) -> Response:
        if body.model != model.name:
            raise HTTPException(404, f"no model {body.model!r} here; there is: {model.name}")
        call = Call(body, access.user_of(key, body.user), model, engine)
        return call.stream() if body.stream else await call.answer(request.receive)

    @app.get("/v1/models", dependencies=[Depends(allowed)])
    async def models() -> dict[str, Any]:
        return model_list(model.name, started_at)

    @app.get("/health")
    async def health() -> Response:
        return Response(status_code=200 if engine.alive else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(engine.metrics.exposition(), media_type=CONTENT_TYPE_LATEST)

    _answer_errors(app)
    return app


_CODES: Final = {401: "invalid_api_key", 413: "body_too_large"}


def _answer_errors(app: FastAPI) -> None:
    """Answer every error in OpenAI's shape."""

    async def engine_error(_: Request, error: Exception) -> Response:
        answer = next(ANSWERS[kind] for kind in type(error).__mro__ if kind in ANSWERS)
        retry = {"Retry-After": str(RETRY_AFTER_S)} if answer.status in (429, 503) else None
        body = error_body(str(error), answer.kind, code=answer.code)
        return JSONResponse(body, answer.status, retry)

    async def http_error(request: Request, error: HTTPException) -> Response:
        message = error.detail
        if message == HTTPStatus(error.status_code).phrase:  # the framework's: no such route
            paths = ", ".join(route.path for route in app.routes if isinstance(route, APIRoute))
            message = f"{request.method} {request.url.path}: {message}; there are: {paths}"
        body = error_body(message, "invalid_request_error", code=_CODES.get(error.status_code))
        return JSONResponse(body, error.status_code, error.headers)

    async def bad_body(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        param = ".".join(str(part) for part in first["loc"][1:])
        message = first["msg"].removeprefix("Value error, ")
        described = f"{param}: {message}" if param else message
        return JSONResponse(
            error_body(described, "invalid_request_error", param=param or None), 400
        )

    for kind in ANSWERS:
        app.add_exception_handler(kind, engine_error)
    app.add_exception_handler(HTTPException, http_error)  # type: ignore[arg-type]
    app.add_exception_handler(RequestValidationError, bad_body)  # type: ignore[arg-type]

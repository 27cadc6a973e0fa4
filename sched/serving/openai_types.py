"""OpenAI's completions API as data: what may be asked, and what is answered.

Source: https://platform.openai.com/docs/api-reference/completions. What this
server cannot do is refused by name, and never left out silently.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

DEFAULT_MAX_TOKENS: Final = 16
"""What OpenAI's API takes when a request does not say."""

USER_CHARACTERS_MAX: Final = 256

Prompt = str | list[int]

NEUTRAL: Final[Mapping[str, tuple[object, ...]]] = {
    "best_of": (1,),
    "echo": (False,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "logprobs": (),
    "n": (1,),
    "presence_penalty": (0,),
    "stop": ([],),
    "suffix": ("",),
}
"""What cannot be asked for -> the values, besides null, that ask for nothing."""


class StreamOptions(BaseModel):
    """`stream_options` of a request."""

    model_config = ConfigDict(extra="forbid", strict=True)

    include_usage: bool = False
    """Whether a last chunk says how many tokens there were."""


class CompletionRequest(BaseModel):
    """The body of `POST /v1/completions`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str
    prompt: list[Prompt]
    """One or several, each a text or a list of token ids."""
    max_tokens: int = DEFAULT_MAX_TOKENS
    """The limit on output tokens, of each prompt."""
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: str | None = Field(default=None, min_length=1, max_length=USER_CHARACTERS_MAX)
    """Whose request it is to the scheduler."""
    temperature: float | None = None
    """Taken and without effect, as `top_p` and `seed`: the simulated GPU knows one answer."""
    top_p: float | None = None
    seed: int | None = None

    @model_validator(mode="before")
    @classmethod
    def _only_what_is_supported(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        for name, neutral in NEUTRAL.items():
            if body.get(name) is not None and body[name] not in neutral:
                raise ValueError(f"{name}={body[name]!r:.80} is not supported; leave it out")
        return {name: value for name, value in body.items() if name not in NEUTRAL}

    @field_validator("max_tokens", "stream", mode="before")
    @classmethod
    def _null_is_default(cls, value: Any, info: Any) -> Any:
        return cls.model_fields[info.field_name].default if value is None else value

    @field_validator("prompt", mode="plain")
    @classmethod
    def _listed(cls, prompt: Any) -> list[Prompt]:
        listed = prompt if isinstance(prompt, list) else [prompt]
        if listed and all(type(token) is int for token in listed):
            return [listed]
        if listed and all(isinstance(one, str) or _is_token_ids(one) for one in listed):
            return listed
        raise ValueError("give a text, a list of token ids, or a list of such; not an empty list")


def _is_token_ids(prompt: object) -> bool:
    return isinstance(prompt, list) and all(type(token) is int for token in prompt)


def error_body(
    message: str,
    kind: Literal["invalid_request_error", "rate_limit_error", "server_error"],
    *,
    param: str | None = None,
    code: str | None = None,
) -> dict[str, Any]:
    """Return an error in OpenAI's shape."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def choice(index: int, text: str, finish_reason: str | None) -> dict[str, Any]:
    """Return one of the `choices` of a completion or a chunk."""
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason}


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """Return the `usage` of a completion; EOS counts as a token."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def model_list(name: str, created: int) -> dict[str, Any]:
    """Return what `/v1/models` answers."""
    model = {"id": name, "object": "model", "created": created, "owned_by": "batchproof"}
    return {"object": "list", "data": [model]}

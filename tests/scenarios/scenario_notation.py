"""The notation of scenarios: `cfg blocks=4 bs=16 ... | submit A p=3 m=2; tick 1; run -- remark`.

Steps, separated by `;`:

- `submit ID p=PROMPT_LENGTH m=MAX_TOKENS [eos@K] [user=U]`: with `eos@K` the K-th output
  token is EOS; without it none is
- `tick N`, `cancel ID` (`*`: all that are live), `run` (tick until nothing is live)
- `repeat N { step; step }`: `#` stands for the index, from 0
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

EXTENSIONS = {"min": "min_tokens", "ignore_eos": "ignore_eos"}
"""What the notation can say and we have not."""


class Submit(NamedTuple):
    request_id: str
    prompt: int
    max_tokens: int
    eos_at: int | None = None
    user: str = "u"


class Cancel(NamedTuple):
    request_id: str
    """`*` stands for every live request."""


class Tick(NamedTuple):
    count: int


class Run(NamedTuple):
    pass


Step = Submit | Cancel | Tick | Run


class Scenario(NamedTuple):
    blocks: int
    block_size: int
    chunk: int
    budget: int
    batch: int
    fair: bool
    steps: tuple[Step, ...]


class UnsupportedError(ValueError):
    """The scenario needs a feature that we do not have."""


def parse(text: str) -> Scenario:
    """Return the scenario; raise `ValueError` for what is not in the notation."""
    config, _, rest = text.partition("|")
    kind, *settings = config.split()
    if kind != "cfg":
        raise ValueError(f"a scenario begins with cfg, not {kind!r}")
    values = dict(setting.split("=") for setting in settings)
    return Scenario(
        blocks=int(values["blocks"]),
        block_size=int(values["bs"]),
        chunk=int(values["chunk"]),
        budget=int(values["budget"]),
        batch=int(values["batch"]),
        fair=values.get("fair") == "1",
        steps=tuple(_steps(rest.partition(" -- ")[0])),
    )


def _steps(text: str) -> Iterator[Step]:
    for step in _split(text):
        repeat = re.fullmatch(r"repeat (\d+) \{(.*)\}", step)
        if repeat is None:
            yield _step(step)
            continue
        for index in range(int(repeat[1])):
            yield from _steps(repeat[2].replace("#", str(index)))


def _split(text: str) -> list[str]:
    """Split at the semicolons that are in no braces."""
    return [step.strip() for step in re.findall(r"(?:\{[^}]*\}|[^;{])+", text) if step.strip()]


def _step(text: str) -> Step:
    match text.split():
        case ["run"]:
            return Run()
        case ["tick", count]:
            return Tick(int(count))
        case ["cancel", request_id]:
            return Cancel(request_id)
        case ["submit", request_id, *options]:
            return _submit(request_id, options)
    raise ValueError(f"not a step: {text!r}")


def _submit(request_id: str, options: list[str]) -> Submit:
    values = dict(re.split("[=@]", option) if option != "ignore_eos" else (option, "1")
                  for option in options)  # fmt: skip
    for name in values.keys() & EXTENSIONS.keys():
        raise UnsupportedError(f"needs {EXTENSIONS[name]}, which requests do not have")
    return Submit(
        request_id,
        prompt=int(values["p"]),
        max_tokens=int(values["m"]),
        eos_at=int(values["eos"]) if "eos" in values else None,
        user=values.get("user", "u"),
    )

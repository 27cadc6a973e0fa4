"""`batchproof serve`: an OpenAI-compatible server over the scheduler."""

import json as json_text
import sys
from dataclasses import replace
from typing import Annotated, Final

from cyclopts import Parameter

from batchproof.sched.commands.options import WEIGHT, parse_weights
from batchproof.sched.config import Admission, Limits
from batchproof.sched.errors import InputError
from batchproof.sched.inference_stub import EOS_RATE
from batchproof.sched.latency import latency_model
from batchproof.sched.policy.registry import DEFAULT_POLICY
from batchproof.sched.simulation import Setup

try:
    from batchproof.sched.serving.app import Access
    from batchproof.sched.serving.models import SIMULATED, load_model
    from batchproof.sched.serving.server import Outcome, Service, ServiceOptions
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] == "batchproof":
        raise
    raise InputError(f"serve needs {missing.name}: pip install 'batchproof[serve]'") from None

_FLAT: Final = Parameter(name="*")
_DEFAULT_OPTIONS: Final = ServiceOptions()
_DEFAULT_LIMITS: Final = Limits()
_WAITING_MAX: Final = 1024
"""Requests that may wait for admission, unless the limits say otherwise; more are answered 429."""


def serve(
    *,
    model: Annotated[
        str, Parameter(help="simulated, or a folder with a transformers model.")
    ] = SIMULATED,
    pace: Annotated[
        float | None,
        Parameter(help="Virtual seconds to a real one, 1 for a GPU's speed; as fast as it goes."),
    ] = None,
    options: Annotated[ServiceOptions, _FLAT] = _DEFAULT_OPTIONS,
    api_key: Annotated[
        tuple[str, ...],
        Parameter(
            env_var="BATCHPROOF_API_KEY",
            negative=(),
            help="A key that is let in; may be given again. Without any, everybody is.",
        ),
    ] = (),
    policy: Annotated[str, Parameter(help="Which policy schedules.")] = DEFAULT_POLICY,
    admission: Annotated[
        Admission | None,
        Parameter(help="How much memory an admission takes; the policy's own way if left out."),
    ] = None,
    latency: Annotated[
        str, Parameter(help="The latency model: linear, a100-llama3-8b or h100-llama2-7b.")
    ] = "linear",
    eos_rate: Annotated[float, Parameter(help="The fraction of tokens that are EOS.")] = EOS_RATE,
    seed: Annotated[int, Parameter(help="Another seed is another simulated model.")] = 0,
    weight: Annotated[tuple[str, ...], WEIGHT] = (),
    limits: Annotated[Limits, _FLAT] = _DEFAULT_LIMITS,
    json: Annotated[bool, Parameter(help="Print the account as JSON.", negative=())] = False,
) -> int:
    """Serve an OpenAI-compatible endpoint until SIGTERM or Ctrl-C; then drain, and account.

    At most 1024 requests wait unless --max-waiting-requests says otherwise.
    Returns the exit code: 0, 1 if a request or a block was lost or a property
    violated, 3 if live requests had to be cut short or the model failed.
    """
    if limits.max_waiting_requests is None:
        limits = replace(limits, max_waiting_requests=_WAITING_MAX)
    weights = parse_weights(weight)
    setup = Setup(limits, policy, admission, latency_model(latency), seed, eos_rate, weights)
    service = Service(load_model(model, setup, pace), setup, options, Access(api_key))
    whom = "who has an API key" if api_key else "everybody"
    outcome = service.run(
        lambda url: print(f"serving {model} to {whom} on {url}/v1", file=sys.stderr, flush=True)
    )
    account = outcome.account
    print(json_text.dumps(account.as_json(), indent=2) if json else account)
    return _exit_code(outcome)


def _exit_code(outcome: Outcome) -> int:
    notes = [f"{fault}: please report it" for fault in outcome.account.faults()]
    code = 1 if notes else 0
    if outcome.failure is not None:
        notes.append(f"gave up: {outcome.failure}")
    if outcome.cut_short:
        notes.append("requests were cut short: --drain-timeout was over, or a second signal came")
    for note in notes:
        print(f"batchproof: {note}", file=sys.stderr)
    return code or (3 if notes else 0)

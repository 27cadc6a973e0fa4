"""The shipped policies by name, imported when asked for."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, cast

from batchproof.sched.config import ADMISSIONS, Admission
from batchproof.sched.errors import LimitsError
from batchproof.sched.policy.protocol import Policy

POLICIES: Final[Mapping[str, str]] = {
    "fair-lane": "batchproof.sched.policy.fair_lane:FairLane",
    "orca": "batchproof.sched.policy.orca:Orca",
    "stall-free": "batchproof.sched.policy.stall_free:StallFree",
    "prefill-first": "batchproof.sched.policy.prefill_first:PrefillFirst",
    "static": "batchproof.sched.policy.static:Static",
    "vllm-v1": "batchproof.sched.policy.vllm_v1:VllmV1",
    "vtc": "batchproof.sched.policy.vtc:Vtc",
}
"""Name -> "module:class"; each class takes `admission=` and no other argument."""

DEFAULT_POLICY: Final = "fair-lane"


def make_policy(name: str, admission: Admission | None = None) -> Policy:
    """Make the shipped policy called `name`; None keeps its own way to admit.

    Raises `LimitsError` for an unknown name or admission, naming those there are.
    """
    if name not in POLICIES:
        raise LimitsError(f"policy {name!r} is unknown; there are: {', '.join(POLICIES)}")
    if admission is not None and admission not in ADMISSIONS:
        raise LimitsError(f"admission {admission!r} is unknown; there are: {', '.join(ADMISSIONS)}")
    module, _, attribute = POLICIES[name].partition(":")
    policy: Any = getattr(import_module(module), attribute)
    return cast(Policy, policy() if admission is None else policy(admission=admission))

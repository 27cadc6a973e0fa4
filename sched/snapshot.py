"""A scheduler between two ticks, as plain data: to recover after a crash, and to search from.

The data are JSON-ready, versioned and signed with a digest. All of it is
checked before anything is made, so that nothing is ever half restored.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from math import inf
from typing import TYPE_CHECKING, Any

from batchproof.sched.config import Limits
from batchproof.sched.errors import BatchproofError, SnapshotError
from batchproof.sched.executor import Executor
from batchproof.sched.expiry import check_times
from batchproof.sched.policy.protocol import Policy, stateful
from batchproof.sched.policy.registry import make_policy
from batchproof.sched.request import Request, Sequence, checked_prompt
from batchproof.sched.weights import plain
from batchproof.spec.lifecycle import DECODING, DONE, PREFILLING, WAITING

if TYPE_CHECKING:
    from batchproof.sched.scheduler import Scheduler

FORMAT = "batchproof-snapshot"
VERSION = 2

CONTENT = (
    "format",
    "version",
    "limits",
    "policy",
    "submissions",
    "last_tick_at",
    "free_blocks",
    "users",
    "weights",
    "waiting_users",
    "requests",
    "expired",
    "prefilling",
    "decoding",
    "metrics",
)
"""Everything that a snapshot holds, besides its digest."""

_SEQUENCE_FIELDS = (
    "number",
    "passed",
    "blocks",
    "context_len",
    "prefilled",
    "submitted_at",
    "waiting_since",
    "queued_s",
    "first_token_at",
    "last_token_at",
    "preemptions",
    "computed_max",
)
"""What is kept of a live request besides the request itself; the rest follows from it."""


def take(sched: "Scheduler") -> dict[str, Any]:
    """Return the snapshot of a scheduler that has no batch out."""
    policy, roster = sched.policy, sched._roster
    remembers = stateful(policy)
    state = None if remembers is None else remembers.state()
    content = {
        "format": FORMAT,
        "version": VERSION,
        "limits": {name: getattr(sched.limits, name) for name in Limits.__slots__},
        "policy": {"name": policy.name, "admission": policy.admission, "state": _thawed(state)},
        "submissions": sched._submissions,
        "last_tick_at": sched._last_tick_at,
        "free_blocks": roster.pool.stack(),
        "users": roster.users.state(),
        "weights": {user: plain(weight) for user, weight in roster.users.weights.items()},
        "waiting_users": list(roster.waiting.by_user),
        "requests": [_request(sequence) for sequence in roster.live.values()],
        "expired": [_request(sequence) for sequence in sched._unreported],
        "prefilling": [sequence.number for sequence in roster.prefilling],
        "decoding": [sequence.number for sequence in roster.decoding],
        "metrics": sched._metrics.state(),
    }
    return {**content, "digest": _digest(content)}


def restore(
    cls: type["Scheduler"],
    data: Mapping[str, Any],
    policy: Policy | None,
    executor: Executor | None,
    memory_lost: bool,
) -> "Scheduler":
    """Make the scheduler that `data` is the snapshot of; see `Scheduler.restore`."""
    content = _checked(data)
    try:
        own = _policy(content["policy"], policy)
        weights = content["weights"]
        sched = cls(Limits(**content["limits"]), own, executor, weights=weights)
        fill(sched, content)
        sched._metrics.restore(content["metrics"])
    except (BatchproofError, KeyError, TypeError, ValueError) as error:
        raise SnapshotError(f"snapshot: its content makes no sense: {error!r}") from error
    if memory_lost:
        _evict_all(sched)
    return sched


def _checked(data: Any) -> Mapping[str, Any]:
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise SnapshotError("snapshot: this is not a snapshot of a batchproof scheduler")
    if data.get("version") != VERSION:
        raise SnapshotError(
            f"snapshot: version {data.get('version')!r}; this batchproof reads version {VERSION}"
        )
    content = {name: value for name, value in data.items() if name != "digest"}
    if content.keys() != set(CONTENT):
        different = sorted(content.keys() ^ set(CONTENT))
        raise SnapshotError(f"snapshot: cut short or altered: {', '.join(different)}")
    if _digest(content) != data.get("digest"):
        raise SnapshotError("snapshot: altered after it was taken: its digest does not fit")
    return content


def _policy(content: Mapping[str, Any], given: Policy | None) -> Policy:
    """Return the policy of the snapshot, with its state."""
    policy = given or make_policy(content["name"], content["admission"])
    if (policy.name, policy.admission) != (content["name"], content["admission"]):
        raise ValueError(f"taken under policy {content['name']!r}, {content['admission']}")
    remembers = stateful(policy)
    if remembers is not None:
        remembers.restore(_frozen(content["state"]))
    return policy


def fill(sched: "Scheduler", content: Mapping[str, Any]) -> None:
    """Bring the roster of a scheduler that was just made to where a snapshot was taken."""
    roster = sched._roster
    sequences = {item["number"]: _sequence(item, sched.limits) for item in content["requests"]}
    phases = {item["number"]: item["phase"] for item in content["requests"]}
    _check_blocks(sched.limits, sequences.values(), content["free_blocks"])
    for phase, numbers in ((PREFILLING, content["prefilling"]), (DECODING, content["decoding"])):
        if sorted(numbers) != sorted(n for n, its_phase in phases.items() if its_phase == phase):
            raise ValueError(f"the list of {phase} requests is not that of the requests")
    roster.pool.restore(content["free_blocks"])
    sched._submissions = content["submissions"]
    sched._last_tick_at = content["last_tick_at"]
    for user_id, _ in content["users"]["turns"]:
        roster.users.arrive(user_id)

    for number in (*content["prefilling"], *content["decoding"]):
        sequence = sequences[number]
        roster.enter(sequence)
        roster.admit(sequence)
        if phases[number] == DECODING:
            roster.start_decoding(sequence)
    roster.waiting.expect(content["waiting_users"])
    for number, sequence in sorted(sequences.items()):
        if phases[number] == WAITING:
            roster.enter(sequence)
    roster.users.restore_turns(content["users"])
    roster.live = {sequence.request_id: sequence for sequence in sequences.values()}
    for sequence in sequences.values():
        sched._expiry.enter(sequence)
    sched._unreported = [_expired(item, sched.limits) for item in content["expired"]]


def _evict_all(sched: "Scheduler") -> None:
    """Make every resident wait for its recomputation: the KV memory is lost."""
    roster = sched._roster
    residents = (*roster.prefilling, *roster.decoding)
    sched._metrics.preemptions += len(residents)
    for sequence in residents:
        blocks, sequence.blocks = sequence.blocks, []
        roster.pool.give(blocks)
        roster.preempt(sequence, len(blocks), sched._last_tick_at)


def _check_blocks(limits: Limits, sequences: Any, free: list[int]) -> None:
    blocks = [*free, *(block for sequence in sequences for block in sequence.blocks)]
    if sorted(blocks) != list(range(limits.max_kv_blocks)):
        raise ValueError("its blocks are not each free or with one owner")


def _request(sequence: Sequence) -> dict[str, Any]:
    request = sequence.request
    return {
        "request_id": request.request_id,
        "user_id": request.user_id,
        "prompt": sequence.prompt.tolist(),
        "max_tokens": request.max_tokens,
        "phase": request.phase,
        "priority": sequence.priority,
        "deadline_s": sequence.deadline_s,
        "max_queue_time_s": sequence.max_queue_time_s,
        "generated": list(request.generated),
        **{name: getattr(sequence, name) for name in _SEQUENCE_FIELDS},
        "blocks": list(sequence.blocks),
    }


def _sequence(item: Mapping[str, Any], limits: Limits) -> Sequence:
    request = Request(
        item["user_id"],
        item["prompt"],
        item["max_tokens"],
        item["request_id"],
        priority=item["priority"],
        deadline_s=item["deadline_s"],
        max_queue_time_s=item["max_queue_time_s"],
    )
    request.generated = list(item["generated"])
    prompt = checked_prompt(request, limits)
    check_times(request, -inf)  # its deadline may have come: it expires then
    sequence = Sequence(request, prompt, item["number"], item["submitted_at"])
    for name in _SEQUENCE_FIELDS:
        setattr(sequence, name, item[name])
    sequence.blocks = list(item["blocks"])
    return sequence


def _expired(item: Mapping[str, Any], limits: Limits) -> Sequence:
    """Return a request that has expired and is to be returned by the next tick."""
    sequence = _sequence(item, limits)
    sequence.request.phase = DONE
    sequence.request.finish_reason = "expired"
    return sequence


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


def _thawed(state: Any) -> Any:
    """Return nested tuples as the lists that JSON makes of them."""
    return [_thawed(part) for part in state] if isinstance(state, tuple) else state


def _frozen(state: Any) -> Any:
    """Return nested lists as tuples."""
    return tuple(_frozen(part) for part in state) if isinstance(state, list) else state

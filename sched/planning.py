"""What a policy is shown, and whether what it answers obeys the rules."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Sequence as SequenceOf
from typing import cast

from batchproof.sched.accounts import Accounts
from batchproof.sched.blocks import BlockPool
from batchproof.sched.config import Admission, Limits
from batchproof.sched.errors import PolicyError
from batchproof.sched.policy.protocol import Candidate, Plan
from batchproof.sched.request import Sequence
from batchproof.sched.waiting import WaitingQueue


class SchedulerView:
    """The scheduler between two ticks, as policies see it: a `policy.View`.

    `decoding` and `growing` are frozen for the tick; the rest is read through.
    """

    __slots__ = (
        "_peak_at_admission",
        "_pool",
        "_prefilling",
        "_waiting",
        "decoding",
        "growing",
        "limits",
        "users",
    )

    def __init__(
        self,
        limits: Limits,
        pool: BlockPool,
        waiting: WaitingQueue,
        prefilling: Collection[Candidate],
        admission: Admission,
    ) -> None:
        self.limits = limits
        self.decoding: tuple[Candidate, ...] = ()
        self.growing: tuple[Candidate, ...] = ()
        self._pool = pool
        self._waiting = waiting
        self._prefilling = prefilling
        self._peak_at_admission = admission == "guaranteed_no_evict"
        self.users = Accounts(waiting, limits.max_kv_blocks)

    @property
    def free_blocks(self) -> int:
        """Free blocks in the pool."""
        return self._pool.free

    @property
    def prefilling(self) -> SequenceOf[Candidate]:
        """The prefilling requests, in order of admission."""
        return tuple(self._prefilling)

    @property
    def waiting(self) -> Iterable[Candidate]:
        """The waiting requests, in order of place."""
        return self._waiting

    @property
    def waiting_by_user(self) -> Mapping[str, Iterable[Candidate]]:
        """The same by user."""
        return self._waiting.by_user

    def blocks_to_admit(self, candidate: Candidate) -> int:
        """Return the blocks that admitting `candidate` would take now (rule 3)."""
        return cast(Sequence, candidate).admission_blocks

    def admission_blocks(self, sequence: Sequence) -> int:
        """Work them out, when a request begins to wait."""
        prompt, most = sequence.prompt_len, sequence.max_tokens
        if self._peak_at_admission:
            return self.limits.blocks_at_peak(prompt, most)
        return self.limits.blocks_at_admission(prompt, len(sequence.generated), most)


class _BrokenRuleError(Exception):
    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(detail)
        self.rule = rule


def check_plan(policy: str, plan: Plan, view: SchedulerView) -> SequenceOf[Candidate]:
    """Return the decodes of the plan that must grow; raise `PolicyError` if it breaks a rule.

    The cost is in proportion to the plan; a plan that decodes exactly
    `view.decoding` is not looked through again.
    """
    try:
        grown = _check_decodes(plan, view)
        if plan.preempt:
            _check_preemptions(plan, view)
        if plan.admit:
            _check_admissions(plan, view)
        if plan.prefill:
            _check_chunks(plan, view)
        _check_totals(plan, view, len(grown))
    except _BrokenRuleError as broken:
        raise PolicyError(policy, broken.rule, str(broken)) from None
    except (TypeError, AttributeError, ValueError) as error:
        raise PolicyError(policy, "the Policy protocol", f"not a Plan ({error})") from error
    return grown


def _check_decodes(plan: Plan, view: SchedulerView) -> SequenceOf[Candidate]:
    if plan.decode is view.decoding:
        return view.growing
    chosen = _distinct(plan.decode, "decodes")
    for candidate in chosen.difference(view.decoding):
        raise _BrokenRuleError("rule 1", f"{candidate!r} is not decoding")
    return [candidate for candidate in view.growing if candidate in chosen]


def _check_preemptions(plan: Plan, view: SchedulerView) -> None:
    chosen = _distinct(plan.preempt, "preempts")
    for candidate in chosen.difference(view.decoding, view.prefilling):
        raise _BrokenRuleError("rule 1", f"{candidate!r} holds no blocks to give up")
    for candidate in chosen.intersection([*plan.decode, *(c for c, _ in plan.prefill)]):
        raise _BrokenRuleError("rule 1", f"{candidate!r} is preempted and scheduled at once")


def _check_admissions(plan: Plan, view: SchedulerView) -> None:
    lines: dict[str, Iterator[Candidate]] = {}
    for candidate in plan.admit:
        user = candidate.user_id
        line = lines.setdefault(user, iter(view.waiting_by_user.get(user, ())))
        in_order = next(line, None) is candidate and not any(
            other.user_id == user and other.number < candidate.number for other in plan.preempt
        )
        if not in_order:
            raise _BrokenRuleError(
                "rule 5", f"{candidate!r} is not the oldest waiting request of user {user!r}"
            )


def _check_chunks(plan: Plan, view: SchedulerView) -> None:
    chosen = _distinct([candidate for candidate, _ in plan.prefill], "prefills")
    for candidate in chosen.difference(view.prefilling, plan.admit):
        raise _BrokenRuleError("rule 1", f"{candidate!r} is not prefilling")
    for candidate, tokens in plan.prefill:
        most = min(view.limits.chunk_size, candidate.prefill_left)
        if type(tokens) is not int or not 1 <= tokens <= most:
            raise _BrokenRuleError(
                "rule 6", f"a chunk of {tokens!r} tokens of {candidate!r}; 1 to {most} are allowed"
            )


def _check_totals(plan: Plan, view: SchedulerView, grown: int) -> None:
    limits = view.limits
    sequences = len(plan.decode) + len(plan.prefill)
    tokens = len(plan.decode) + sum([tokens for _, tokens in plan.prefill])
    if not tokens:
        raise _BrokenRuleError("rule 7", "an empty batch, though requests are live")
    if tokens > limits.token_budget:
        raise _BrokenRuleError("rule 6", f"{tokens} tokens, token_budget is {limits.token_budget}")
    if sequences > limits.max_batch_size:
        raise _BrokenRuleError(
            "rule 6", f"{sequences} sequences, max_batch_size is {limits.max_batch_size}"
        )
    taken = grown + sum(map(view.blocks_to_admit, plan.admit))
    free = view.free_blocks + sum([candidate.block_count for candidate in plan.preempt])
    if taken > free:
        raise _BrokenRuleError("rule 3", f"{taken} blocks to take, {free} free")


def _distinct(candidates: SequenceOf[Candidate], verb: str) -> set[Candidate]:
    distinct = set(candidates)
    if len(distinct) != len(candidates):
        raise _BrokenRuleError("rule 6", f"{verb} the same request twice")
    return distinct

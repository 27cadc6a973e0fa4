"""What a policy is shown, and whether what it answers obeys the rules."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from batchproof.sched.blocks import BlockPool
from batchproof.sched.config import Admission, Limits
from batchproof.sched.errors import PolicyError
from batchproof.sched.policy.protocol import Candidate, Plan
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

    @property
    def free_blocks(self) -> int:
        """Free blocks in the pool."""
        return self._pool.free

    @property
    def prefilling(self) -> Sequence[Candidate]:
        """The prefilling requests, in order of admission."""
        return tuple(self._prefilling)

    @property
    def waiting(self) -> Iterable[Candidate]:
        """The waiting requests, in order of first submission."""
        return self._waiting

    @property
    def waiting_by_user(self) -> Mapping[str, Iterable[Candidate]]:
        """The same by user."""
        return self._waiting.by_user

    def blocks_to_admit(self, candidate: Candidate) -> int:
        """Return the blocks that admitting `candidate` would take now (rule 3)."""
        prompt, most = candidate.prompt_len, candidate.max_tokens
        if self._peak_at_admission:
            return self.limits.blocks_at_peak(prompt, most)
        return self.limits.blocks_at_admission(prompt, most - candidate.remaining, most)


def check_plan(policy: str, plan: Plan, view: SchedulerView) -> Sequence[Candidate]:
    """Return the decodes of the plan that must grow; raise `PolicyError` if it breaks a rule.

    The cost is in proportion to the plan; a plan that decodes exactly
    `view.decoding` is not looked through again.
    """
    try:
        return _PlanCheck(policy, plan, view).run()
    except (TypeError, AttributeError, ValueError) as error:
        raise PolicyError(policy, "the Policy protocol", f"not a Plan ({error})") from error


class _PlanCheck:
    def __init__(self, policy: str, plan: Plan, view: SchedulerView) -> None:
        self.policy = policy
        self.plan = plan
        self.view = view

    def run(self) -> Sequence[Candidate]:
        growing = self._check_decodes()
        if self.plan.preempt:
            self._check_preemptions()
        if self.plan.admit:
            self._check_admissions()
        self._check_chunks()
        self._check_totals(growing)
        return growing

    def _refuse_unless(self, legal: bool, rule: str, detail: str) -> None:
        if not legal:
            raise PolicyError(self.policy, rule, detail)

    def _check_decodes(self) -> Sequence[Candidate]:
        decode, view = self.plan.decode, self.view
        if decode is view.decoding:
            return view.growing
        chosen = self._distinct(decode, "decodes")
        known = set(view.decoding)
        for candidate in decode:
            self._refuse_unless(candidate in known, "rule 1", f"{candidate!r} is not decoding")
        return [candidate for candidate in view.growing if candidate in chosen]

    def _check_preemptions(self) -> None:
        plan, view = self.plan, self.view
        lost = self._distinct(plan.preempt, "preempts")
        residents = {*view.decoding, *view.prefilling}
        for candidate in plan.preempt:
            self._refuse_unless(candidate in residents, "rule 1", f"{candidate!r} holds no blocks")
        used = {*plan.decode, *plan.admit, *(candidate for candidate, _ in plan.prefill)}
        for candidate in plan.preempt:
            self._refuse_unless(
                candidate not in used, "rule 1", f"{candidate!r} is preempted and scheduled"
            )
        assert len(lost) == len(plan.preempt)

    def _check_admissions(self) -> None:
        plan, view = self.plan, self.view
        self._distinct(plan.admit, "admits")
        oldest = (
            {user: iter(line) for user, line in view.waiting_by_user.items()}
            if (len(view.waiting_by_user) <= len(plan.admit))
            else {}
        )
        for candidate in plan.admit:
            user = candidate.user_id
            line = oldest.get(user)
            if line is None:
                line = oldest[user] = iter(view.waiting_by_user.get(user, ()))
            self._refuse_unless(
                next(line, None) is candidate,
                "rule 5",
                f"{candidate!r} is not the oldest waiting request of user {user!r}",
            )

    def _check_chunks(self) -> None:
        plan, view = self.plan, self.view
        if not plan.prefill:
            return
        self._distinct([candidate for candidate, _ in plan.prefill], "prefills")
        legal = {*view.prefilling, *plan.admit}
        for candidate, tokens in plan.prefill:
            self._refuse_unless(candidate in legal, "rule 1", f"{candidate!r} is not prefilling")
            most = min(view.limits.chunk_size, candidate.prefill_left)
            self._refuse_unless(
                type(tokens) is int and 1 <= tokens <= most,
                "rule 6",
                f"a chunk of {tokens!r} tokens of {candidate!r}, where 1 to {most} are allowed",
            )

    def _check_totals(self, growing: Sequence[Candidate]) -> None:
        plan, view, limits = self.plan, self.view, self.view.limits
        tokens = len(plan.decode) + sum(tokens for _, tokens in plan.prefill)
        self._refuse_unless(tokens > 0, "rule 7", "an empty batch, though requests are live")
        self._refuse_unless(
            tokens <= limits.token_budget,
            "rule 6",
            f"{tokens} tokens, token_budget is {limits.token_budget}",
        )
        sequences = len(plan.decode) + len(plan.prefill)
        self._refuse_unless(
            sequences <= limits.max_batch_size,
            "rule 6",
            f"{sequences} sequences, max_batch_size is {limits.max_batch_size}",
        )
        free = view.free_blocks + sum(candidate.block_count for candidate in plan.preempt)
        taken = len(growing) + sum(map(view.blocks_to_admit, plan.admit))
        self._refuse_unless(taken <= free, "rule 3", f"{taken} blocks to take, {free} free")

    def _distinct(self, candidates: Sequence[Candidate], verb: str) -> set[Candidate]:
        distinct = set(candidates)
        self._refuse_unless(
            len(distinct) == len(candidates), "rule 6", f"{verb} the same request twice"
        )
        return distinct

"""Faults of the specification's own actions: each overrides one thing that `Batching` does."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from faults.fault import Fault, wrong

from batchproof.spec import actions
from batchproof.spec.actions import Event, Submit, Tick, Work
from batchproof.spec.lifecycle import DECODING, PREFILLING, WAITING
from batchproof.spec.model import Batching
from batchproof.spec.state import Limits, Live, Request, State, System, completes


def fault(
    name: str, story: str, breaks: str, bound: str = "pair"
) -> Callable[[type[Batching]], Fault]:
    """Return a decorator that makes a wrong `Batching` into a fault."""
    return lambda model: Fault(name, story, breaks, wrong(model), bound)


def limits_off(name: str, story: str, breaks: str, bound: str = "pair", **off: int) -> Fault:
    """Return the fault of working with limits that are off by so much."""

    class OffLimits(Batching):
        def works(self, state: State) -> Iterable[Work]:
            limits = self.system.limits._asdict()
            limits = Limits(**{key: limits[key] + off.get(key, 0) for key in limits})
            extra = off.get("max_kv_blocks", 0)
            state = state._replace(free=state.free + extra)
            return actions.works(replace(self.system, limits=limits), state)

    return Fault(name, story, breaks, wrong(OffLimits), bound)


def only(
    name: str, story: str, breaks: str, keep: Callable[[State, Work], bool], bound: str = "pair"
) -> Fault:
    """Return the fault of never doing some of the legal work."""

    class Restricted(Batching):
        def works(self, state: State) -> Iterable[Work]:
            return [work for work in super().works(state) if keep(state, work)]

    return Fault(name, story, breaks, wrong(Restricted), bound)


def changed(after: State, change: Callable[[Live], Live]) -> State:
    """Return a state with every live request changed."""
    return after._replace(live=tuple(map(change, after.live)))


# --- memory -------------------------------------------------------------------


@fault("leak-on-cancel", "a cancelled request's blocks are not freed", "blocks-conserved")
class LeakOnCancel(Batching):
    def cancel(self, state: State, request: int) -> State:
        return super().cancel(state, request)._replace(free=state.free)


@fault("leak-on-eos", "the blocks of a request that ends by EOS are not freed", "freed-at-once")
class LeakOnEos(Batching):
    def tick(self, state: State, work: Work, eos: tuple[int, ...]) -> tuple[Tick, State]:
        event, after = super().tick(state, work, eos)
        leaked = sum(live.blocks for live in state.live if live.request in eos)
        return event, after._replace(free=after.free - leaked)


@fault("leak-on-finish", "each finish loses a block, until nothing is possible", "tick-possible")
class LeakOnFinish(Batching):
    def tick(self, state: State, work: Work, eos: tuple[int, ...]) -> tuple[Tick, State]:
        event, after = super().tick(state, work, eos)
        return event, after._replace(free=max(0, after.free - len(event.ended)))


@fault("preempted-keeps-blocks", "a preempted request keeps its blocks", "only-residents-hold")
class PreemptedKeepsBlocks(Batching):
    def tick(self, state: State, work: Work, eos: tuple[int, ...]) -> tuple[Tick, State]:
        event, after = super().tick(state, work, eos)
        held = {live.request: live.blocks for live in state.live if live.request in work.preempt}
        after = changed(after, lambda live: live._replace(blocks=held.get(live[0], live.blocks)))
        return event, after._replace(free=after.free - sum(held.values()))


class FirstChunkSystem(System):
    def blocks_to_admit(self, request: int, generated: int) -> int:
        context = self.requests[request].prompt + generated
        return self.blocks_for(min(context, self.limits.chunk_size))


@fault("first-chunk-only", "an admission takes blocks for its first chunk", "blocks-cover-context")
class FirstChunkOnly(Batching):
    def works(self, state: State) -> Iterable[Work]:
        return actions.works(first_chunk(self.system), state)

    def tick(self, state: State, work: Work, eos: tuple[int, ...]) -> tuple[Tick, State]:
        return actions.tick(first_chunk(self.system), state, work, eos)


def first_chunk(system: System) -> System:
    return FirstChunkSystem(system.limits, system.requests, system.admission)


class LateGrowthSystem(System):
    def blocks_to_yield(self, request: int, generated: int) -> int:
        return super().blocks_to_yield(request, generated - 1)


@fault("growth-a-tick-late", "a decode grows after the boundary", "blocks-cover-context")
class LateGrowth(Batching):
    def tick(self, state: State, work: Work, eos: tuple[int, ...]) -> tuple[Tick, State]:
        system = self.system
        late = LateGrowthSystem(system.limits, system.requests, system.admission)
        return actions.tick(late, state, work, eos)


MEMORY = (
    limits_off("one-block-too-many", "a block more is given than there is", "kv-within-cap",
               max_kv_blocks=1),
    LeakOnCancel,
    LeakOnEos,
    LeakOnFinish,
    PreemptedKeepsBlocks,
    FirstChunkOnly,
    LateGrowth,
)  # fmt: skip

# --- limits of a batch ----------------------------------------------------------


@fault("chunk-twice", "the last sequence of a batch is sent twice", "scheduled-once")
class ChunkTwice(Batching):
    def works(self, state: State) -> Iterable[Work]:
        return [w._replace(feed=(*w.feed, w.feed[-1])) for w in super().works(state)]


LIMITS = (
    limits_off("chunk-off-by-one", "a chunk may be one token longer", "chunk-bounded",
               chunk_size=1),
    limits_off("budget-off-by-one", "a batch may feed one token more", "budget-bounded", "budget",
               token_budget=1),
    limits_off("seats-off-by-one", "a batch may have one sequence more", "batch-bounded", "users",
               max_batch_size=1),
    ChunkTwice,
)  # fmt: skip

# --- life -------------------------------------------------------------------------


@fault("preempted-prefills", "a preempted request goes on as prefilling", "life-is-legal")
class PreemptedPrefills(Batching):
    def tick(self, state: State, work: Work, eos: tuple[int, ...]) -> tuple[Tick, State]:
        event, after = super().tick(state, work, eos)
        lost = work.preempt
        return event, changed(
            after, lambda live: live._replace(phase=PREFILLING) if live.request in lost else live
        )


@fault("stale-plan", "a request preempted for the batch is still in it", "only-live-are-scheduled")
class StalePlan(Batching):
    def works(self, state: State) -> Iterable[Work]:
        for work in super().works(state):
            yield work._replace(feed=(*work.feed, *((i, 1) for i in work.preempt)))


@fault("id-twice", "a live request's id is accepted again", "ids-unique")
class IdTwice(Batching):
    def submit(self, state: State, request: int) -> tuple[Event, State]:
        if len(state.live) > 2:
            return super().submit(state, request)
        return Submit(request), actions.submit(self.system, state, request)


@fault("infeasible-accepted", "a request that never fits is accepted", "feasible-or-refused")
class InfeasibleAccepted(Batching):
    def submit(self, state: State, request: int) -> tuple[Event, State]:
        if state.find(request) is None:
            return Submit(request), actions.submit(self.system, state, request)
        return super().submit(state, request)


@fault(
    "refused-when-full", "a request is refused when no block is free", "refused-for-cause", "users"
)
class RefusedWhenFull(Batching):
    def submit(self, state: State, request: int) -> tuple[Event, State]:
        return super().submit(state, request) if state.free else (actions.Refuse(request), state)


@fault("admitted-at-submit", "a request takes blocks when it is submitted", "submitted-to-wait")
class AdmittedAtSubmit(Batching):
    def submit(self, state: State, request: int) -> tuple[Event, State]:
        event, after = super().submit(state, request)
        if isinstance(event, Submit):
            live = actions.admitted(self.system, after.live[-1])
            after = State((*after.live[:-1], live), after.free - live.blocks)
        return event, after


@fault("preempted-is-lost", "a request preempted before its first token is lost", "ended-once")
class PreemptedIsLost(Batching):
    def tick(self, state: State, work: Work, eos: tuple[int, ...]) -> tuple[Tick, State]:
        event, after = super().tick(state, work, eos)
        live = tuple(x for x in after.live if x.generated or x.request not in work.preempt)
        return event, after._replace(live=live)


@fault("reported-twice", "a request that ends by EOS is reported twice", "ended-once")
class ReportedTwice(Batching):
    def tick(self, state: State, work: Work, eos: tuple[int, ...]) -> tuple[Tick, State]:
        event, after = super().tick(state, work, eos)
        return event._replace(ended=event.ended + event.ended[:1]), after


@fault("cancels-the-user", "a cancellation ends all its user's requests", "bystanders-untouched")
class CancelsTheUser(Batching):
    def cancel(self, state: State, request: int) -> State:
        for live in state.live:
            state = super().cancel(state, live.request)
        return state


LIFE = (
    PreemptedPrefills,
    StalePlan,
    IdTwice,
    InfeasibleAccepted,
    RefusedWhenFull,
    AdmittedAtSubmit,
    PreemptedIsLost,
    ReportedTwice,
    CancelsTheUser,
)

# --- tokens -------------------------------------------------------------------------


@fault("token-fed-again", "the last token of a chunk is fed again", "fed-once-in-order")
class TokenFedAgain(Batching):
    def tick(self, state: State, work: Work, eos: tuple[int, ...]) -> tuple[Tick, State]:
        event, after = super().tick(state, work, eos)
        return event, changed(
            after, lambda live: live._replace(prefilled=max(0, live.prefilled - 1))
        )


@fault("token-of-a-chunk", "the token after an unfinished prefill is kept", "tokens-when-due")
class TokenOfAChunk(Batching):
    def tick(self, state: State, work: Work, eos: tuple[int, ...]) -> tuple[Tick, State]:
        event, after = super().tick(state, work, eos)
        fed = dict(work.feed)
        return event, changed(
            after,
            lambda live: (
                live._replace(generated=live.generated + 1)
                if live.phase == PREFILLING and live.request in fed
                else live
            ),
        )


@fault("decodes-too-early", "a request decodes after its first chunk", "phase-fits-tokens")
class DecodesTooEarly(Batching):
    def tick(self, state: State, work: Work, eos: tuple[int, ...]) -> tuple[Tick, State]:
        event, after = super().tick(state, work, eos)
        return event, changed(
            after,
            lambda live: (
                live._replace(phase=DECODING)
                if live.phase == PREFILLING and live.prefilled
                else live
            ),
        )


@fault("eos-a-tick-late", "EOS is seen one tick after it is yielded", "eos-ends-at-once")
class EosATickLate(Batching):
    def tick(self, state: State, work: Work, eos: tuple[int, ...]) -> tuple[Tick, State]:
        event, after = super().tick(state, work, ())
        return event._replace(eos=eos), after


@fault("length-off-by-one", "a request ends one token before its last", "length-is-exact")
class LengthOffByOne(Batching):
    def tick(self, state: State, work: Work, eos: tuple[int, ...]) -> tuple[Tick, State]:
        shorter = tuple(r._replace(max_tokens=r.max_tokens - 1) for r in self.system.requests)
        return actions.tick(replace(self.system, requests=shorter), state, work, eos)


@fault("length-ignored", "a request goes on after its last token", "phase-fits-tokens")
class LengthIgnored(Batching):
    def tick(self, state: State, work: Work, eos: tuple[int, ...]) -> tuple[Tick, State]:
        longer = tuple(r._replace(max_tokens=r.max_tokens + 1) for r in self.system.requests)
        return actions.tick(replace(self.system, requests=longer), state, work, eos)


@fault("preemption-forgets", "a preempted request loses its tokens", "preemption-keeps-tokens")
class PreemptionForgets(Batching):
    def tick(self, state: State, work: Work, eos: tuple[int, ...]) -> tuple[Tick, State]:
        event, after = super().tick(state, work, eos)
        return event, changed(
            after,
            lambda live: live._replace(generated=0) if live.request in work.preempt else live,
        )


TOKENS = (
    TokenFedAgain,
    TokenOfAChunk,
    DecodesTooEarly,
    EosATickLate,
    LengthOffByOne,
    LengthIgnored,
    PreemptionForgets,
)

# --- order ---------------------------------------------------------------------------


@fault("place-lost", "a preempted request goes to the end of the line", "order-is-of-places")
class PlaceLost(Batching):
    def tick(self, state: State, work: Work, eos: tuple[int, ...]) -> tuple[Tick, State]:
        event, after = super().tick(state, work, eos)
        line = sorted(after.live, key=lambda live: live.request in work.preempt)
        return event, after._replace(live=tuple(line))


@fault("any-of-a-user", "any waiting request of a user may be admitted", "fcfs-within-user")
class AnyOfAUser(Batching):
    def works(self, state: State) -> Iterable[Work]:
        strangers = tuple(Request(i, *r[1:]) for i, r in enumerate(self.system.requests))
        return actions.works(replace(self.system, requests=strangers), state)


def swapped(state: State, request: int, ahead: int) -> State:
    """Return the state with a request in the place of another ahead of it, and that behind it."""
    order = [live.request for live in state.live]
    live = list(state.live)
    one, other = order.index(request), order.index(ahead)
    live[one], live[other] = live[other], live[one]
    return state._replace(live=tuple(live))


@fault(
    "passes-its-equals",
    "a request passes those of the same priority too",
    "passed-for-cause",
    "priority",
)
class PassesItsEquals(Batching):
    def submit(self, state: State, request: int) -> tuple[Event, State]:
        event, after = super().submit(state, request)
        line = [live for live in state.live if live.phase == WAITING and not live.passed]
        if isinstance(event, Submit) and line and after.live[-1].request == request:
            after = swapped(after, request, line[-1].request)
        return event, after


@fault("priority-ignored", "no request passes another", "urgent-pass", "priority")
class PriorityIgnored(Batching):
    def submit(self, state: State, request: int) -> tuple[Event, State]:
        alike = replace(self.system, max_passes=0)
        if actions.objection_to_submit(alike, state, request) is None:
            return Submit(request), actions.submit(alike, state, request)
        return super().submit(state, request)


@fault("passed-once", "a request is passed once at most", "can-be-passed", "priority")
class PassedOnce(Batching):
    def submit(self, state: State, request: int) -> tuple[Event, State]:
        once = replace(self.system, max_passes=1)
        if actions.objection_to_submit(once, state, request) is None:
            return Submit(request), actions.submit(once, state, request)
        return super().submit(state, request)


ORDER = (PlaceLost, AnyOfAUser, PassesItsEquals, PriorityIgnored)

# --- nothing ever happens: what only the witnesses notice ------------------------------


@fault("peak-at-admission", "an admission takes the request's peak", "can-grow")
class PeakAtAdmission(Batching):
    def tick(self, state: State, work: Work, eos: tuple[int, ...]) -> tuple[Tick, State]:
        system = replace(self.system, admission="guaranteed_no_evict")
        return actions.tick(system, state, work, eos)


@fault("no-early-eos", "EOS as the first token is not seen", "can-end-at-first-token")
class NoEarlyEos(Batching):
    def yielding(self, state: State, work: Work) -> tuple[int, ...]:
        begun = {live.request for live in state.live if live.generated}
        return tuple(i for i in super().yielding(state, work) if i in begun)


@fault("last-token-is-eos", "the last token always counts as EOS", "can-end-by-length")
class LastTokenIsEos(Batching):
    def tick(self, state: State, work: Work, eos: tuple[int, ...]) -> tuple[Tick, State]:
        last = [
            live.request
            for live in state.live
            if live.generated + 1 == self.system.requests[live.request].max_tokens
        ]
        late = [i for i in self.yielding(state, work) if i in last and i not in eos]
        return super().tick(state, work, (*eos, *late))


@fault("resident-not-cancelled", "only waiting requests can be cancelled", "can-cancel-resident")
class ResidentNotCancelled(Batching):
    def cancel(self, state: State, request: int) -> State:
        live = state.find(request)
        return super().cancel(state, request) if live and live.phase == WAITING else state

    def successors(self, state: State) -> Iterable[tuple[Event, State]]:
        for event, after in super().successors(state):
            if after != state or not isinstance(event, actions.Cancel):
                yield event, after


@fault("nothing-refused", "no request is ever refused as infeasible", "can-refuse")
class NothingRefused(Batching):
    def submit(self, state: State, request: int) -> tuple[Event, State]:
        if state.find(request) is None:
            return Submit(request), actions.submit(self.system, state, request)
        return super().submit(state, request)


def phases_fed(state: State, work: Work) -> set[bool]:
    """Return whether decodes (True) and chunks (False) are in the batch."""
    fed = dict(work.feed)
    return {live.phase == DECODING for live in state.live if live.request in fed}


def admits_all(state: State, work: Work) -> bool:
    """Return whether nobody is left waiting."""
    return all(live.request in work.admit for live in state.in_phase(WAITING))


def not_recomputing(state: State, work: Work) -> bool:
    """Return whether all that are admitted have no tokens yet."""
    return not any(live.generated for live in state.live if live.request in work.admit)


@fault("whole-prompts-only", "a prompt is fed whole or not at all", "can-chunk", "budget")
class WholePrompts(Batching):
    def works(self, state: State) -> Iterable[Work]:
        lives = {live.request: live for live in state.live}
        for work in super().works(state):
            if all(completes(self.system, lives[i], n) for i, n in work.feed):
                yield work


NEVER = (
    only("never-preempts", "nobody is ever preempted", "can-preempt",
         lambda state, work: not work.preempt),
    only("reserve-kept", "a block is always kept in reserve", "can-fill-pool",
         lambda state, work: not work.admit or state.free >= 3 + 2 * len(work.admit)),
    WholePrompts,
    PeakAtAdmission,
    only("never-recomputes", "who was preempted with tokens is not admitted", "can-recompute",
         not_recomputing),
    NoEarlyEos,
    LastTokenIsEos,
    only("one-at-a-time", "a batch has one sequence", "can-end-together",
         lambda state, work: len(work.feed) == 1),
    only("no-mixed-batch", "decodes and chunks are in separate batches", "can-mix",
         lambda state, work: len(phases_fed(state, work)) == 1),
    limits_off("budget-short-by-one", "a token of the budget is never used", "can-use-budget",
               token_budget=-1),
    ResidentNotCancelled,
    NothingRefused,
    PassedOnce,
    only("all-or-nothing", "a tick runs only if it admits all that wait", "can-wait", admits_all),
    only("no-way-back", "who was preempted with tokens can never be admitted again",
         "all-can-end", not_recomputing, "no-cancel"),
)  # fmt: skip

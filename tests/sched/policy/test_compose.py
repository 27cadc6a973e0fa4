"""The steps that policies are composed of, each by examples on a small machine."""

from dataclasses import dataclass
from typing import Any

from batchproof import Limits
from batchproof.sched.policy.compose import (
    admissions,
    chunks,
    decodes_first,
    running_first,
    without,
)
from batchproof.spec.lifecycle import DECODING, PREFILLING, WAITING

LIMITS = Limits(max_kv_blocks=9, block_size=4, chunk_size=8, token_budget=9, max_batch_size=3)


@dataclass(frozen=True)
class Seen:
    """A request as policies see it; the smaller the number, the older it is."""

    number: int
    phase: str = DECODING
    block_count: int = 1
    prefill_left: int = 0
    grows: bool = False


@dataclass(frozen=True)
class Scene:
    """A view; waiting requests need as many blocks as `block_count` says."""

    residents: tuple[Seen, ...] = ()
    waiting: tuple[Seen, ...] = ()
    free_blocks: int = 0
    limits: Limits = LIMITS

    @property
    def decoding(self) -> list[Seen]:
        return [seen for seen in self.residents if seen.phase == DECODING]

    @property
    def prefilling(self) -> list[Seen]:
        return [seen for seen in self.residents if seen.phase == PREFILLING]

    @property
    def growing(self) -> list[Seen]:
        return [seen for seen in self.residents if seen.grows]

    def blocks_to_admit(self, candidate: Seen) -> int:
        return candidate.block_count


def grows(number: int, blocks: int = 1) -> Seen:
    return Seen(number, block_count=blocks, grows=True)


def prefills(number: int, left: int, blocks: int = 1) -> Seen:
    return Seen(number, PREFILLING, blocks, left)


def waits(number: int, prompt: int, blocks: int = 1) -> Seen:
    return Seen(number, WAITING, blocks, prompt)


def numbers(candidates: Any) -> list[int]:
    return [candidate.number for candidate in candidates]


def planned(step: Any, *arguments: Any) -> Any:
    """Call a step; to a type checker a scene is not a view."""
    return step(*arguments)


class TestDecodesFirst:
    def test_all_decode_and_those_at_a_boundary_take_a_block_each(self) -> None:
        scene = Scene((grows(0), Seen(1), grows(2)), free_blocks=5)
        decodes = planned(decodes_first, scene)
        assert (numbers(decodes.decode), decodes.preempt, decodes.free_blocks) == ([0, 1, 2], (), 3)

    def test_the_last_free_block_is_taken_without_a_victim(self) -> None:
        decodes = planned(decodes_first, Scene((grows(0), Seen(1)), free_blocks=1))
        assert (numbers(decodes.decode), decodes.preempt, decodes.free_blocks) == ([0, 1], (), 0)

    def test_only_those_that_decode_in_this_tick_grow(self) -> None:
        scene = Scene((Seen(0), Seen(1), Seen(2), grows(3)), free_blocks=0)
        decodes = planned(decodes_first, scene)
        assert (numbers(decodes.decode), decodes.free_blocks) == ([0, 1, 2], 0)

    def test_the_youngest_gives_way_and_its_blocks_join_those_that_are_free(self) -> None:
        scene = Scene((grows(0), grows(1), prefills(2, 9, blocks=1)), free_blocks=1)
        decodes = planned(decodes_first, scene)
        assert (numbers(decodes.decode), numbers(decodes.preempt)) == ([0, 1], [2])
        assert decodes.free_blocks == 0

    def test_what_is_left_of_its_blocks_is_free(self) -> None:
        scene = Scene((grows(0), prefills(1, 9, blocks=4)))
        assert planned(decodes_first, scene).free_blocks == 3

    def test_a_victim_that_decodes_neither_decodes_nor_grows(self) -> None:
        decodes = planned(decodes_first, Scene((grows(0), grows(1, blocks=2))))
        assert (numbers(decodes.decode), numbers(decodes.preempt)) == ([0], [1])
        assert decodes.free_blocks == 1

    def test_the_seat_of_a_victim_is_the_next_ones(self) -> None:
        limits = Limits(max_kv_blocks=9, block_size=4, token_budget=2, max_batch_size=3)
        scene = Scene((Seen(3), grows(0), Seen(1)), limits=limits)
        decodes = planned(decodes_first, scene)
        assert (numbers(decodes.decode), numbers(decodes.preempt)) == ([0, 1], [3])


class TestChunks:
    def test_each_is_a_chunk_until_the_budget_ends(self) -> None:
        line = [prefills(0, 20), prefills(1, 3), prefills(2, 20)]
        shares = planned(chunks, Scene(), line, 13, 9)
        assert [(seen.number, tokens) for seen, tokens in shares] == [(0, 8), (1, 3), (2, 2)]

    def test_or_until_the_seats_end(self) -> None:
        line = [prefills(0, 1), prefills(1, 1), prefills(2, 1)]
        assert numbers(seen for seen, _ in planned(chunks, Scene(), line, 9, 2)) == [0, 1]
        assert planned(chunks, Scene(), line, 0, 2) == planned(chunks, Scene(), line, 9, 0) == []


class TestAdmissions:
    def admitted(self, free: int, budget: int, seats: int, *line: Seen) -> list[tuple[int, int]]:
        admit, prefill = planned(admissions, Scene(), line, free, budget, seats)
        assert admit == [seen for seen, _ in prefill]
        return [(seen.number, tokens) for seen, tokens in prefill]

    def test_memory_is_used_to_the_last_block(self) -> None:
        line = waits(0, 20, blocks=2), waits(1, 5, blocks=3), waits(2, 1)
        assert self.admitted(5, 99, 9, *line) == [(0, 8), (1, 5)]

    def test_nobody_passes_one_that_does_not_fit(self) -> None:
        assert self.admitted(2, 99, 9, waits(0, 1, blocks=3), waits(1, 1)) == []

    def test_the_budget_shortens_the_last_chunk_and_then_ends_it(self) -> None:
        line = waits(0, 6), waits(1, 6), waits(2, 6)
        assert self.admitted(9, 9, 9, *line) == [(0, 6), (1, 3)]

    def test_seats_end_it(self) -> None:
        line = waits(0, 1), waits(1, 1), waits(2, 1)
        assert self.admitted(9, 9, 2, *line) == [(0, 1), (1, 1)]


class TestRunningFirst:
    def test_residents_are_served_oldest_first_whatever_their_phase_then_others_come(self) -> None:
        scene = Scene((Seen(1), prefills(0, 3)), (waits(2, 20),), free_blocks=9)
        plan = planned(running_first, scene)
        assert numbers(plan.decode) == [1]
        assert numbers(plan.admit) == [2]
        assert [(seen.number, tokens) for seen, tokens in plan.prefill] == [(0, 3), (2, 5)]

    def test_a_chunk_is_no_longer_than_the_budget_that_is_left(self) -> None:
        scene = Scene((prefills(0, 8), prefills(1, 8), prefills(2, 8)))
        plan = planned(running_first, scene)
        assert [(seen.number, tokens) for seen, tokens in plan.prefill] == [(0, 8), (1, 1)]

    def test_seats_end_it_for_residents_and_for_those_who_wait(self) -> None:
        scene = Scene(tuple(map(Seen, range(4))), (waits(4, 1),), free_blocks=9)
        plan = planned(running_first, scene)
        assert (numbers(plan.decode), plan.admit) == ([0, 1, 2], [])

    def test_each_growth_takes_a_block_from_those_who_come(self) -> None:
        scene = Scene((grows(0), Seen(1)), (waits(2, 1, blocks=2),), free_blocks=2)
        assert planned(running_first, scene).admit == []
        scene = Scene((grows(0), Seen(1)), (waits(2, 1, blocks=2),), free_blocks=3)
        assert numbers(planned(running_first, scene).admit) == [2]

    def test_the_youngest_gives_way_to_a_growth_and_nobody_comes_in_that_tick(self) -> None:
        scene = Scene((grows(0), grows(1), prefills(2, 5, blocks=3)), (waits(3, 1),), free_blocks=1)
        plan = planned(running_first, scene)
        assert (numbers(plan.decode), numbers(plan.preempt)) == ([0, 1], [2])
        assert (plan.prefill, plan.admit) == ([], ())

    def test_the_youngest_may_be_the_one_that_grows(self) -> None:
        plan = planned(running_first, Scene((Seen(0), grows(1))))
        assert (numbers(plan.decode), numbers(plan.preempt)) == ([0], [1])

    def test_what_a_victim_held_serves_more_than_one_growth(self) -> None:
        scene = Scene((grows(0), grows(1), prefills(2, 5, blocks=2)))
        plan = planned(running_first, scene)
        assert (numbers(plan.decode), numbers(plan.preempt)) == ([0, 1], [2])

    def test_and_no_more_growths_than_it_held_blocks(self) -> None:
        scene = Scene((grows(0), grows(1), prefills(2, 5), prefills(3, 5)))
        plan = planned(running_first, scene)
        assert (numbers(plan.decode), numbers(plan.preempt)) == ([0, 1], [3, 2])


def test_without_the_lost_the_others_stay_in_order() -> None:
    line = [Seen(2), Seen(0), Seen(1)]
    assert without(line, ()) is line  # type: ignore[arg-type, comparison-overlap]
    assert numbers(without(line, [Seen(0)])) == [2, 1]  # type: ignore[arg-type, list-item]

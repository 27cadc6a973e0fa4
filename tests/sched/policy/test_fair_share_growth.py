"""Growth under fair-lane: who has a block, who gives way to it, and who has the seats."""

from typing import Any

import pytest
from support.draft_scene import Scene, decodes, grows, lost, names, prefills

from batchproof.sched.policy.service import UNIT
from batchproof.sched.weights import Weight


def grown(scene: Scene) -> Any:
    draft = scene.draft()
    draft.grow()
    return draft


def test_each_decode_at_a_block_boundary_has_a_block() -> None:
    draft = grown(Scene(grows("A0"), grows("B1"), decodes("A2"), free=3))
    assert (lost(draft), draft.free) == ([], 1)
    assert dict(draft.charges(draft.decode)) == {"A": UNIT, "B": UNIT}


class TestWhoGivesWay:
    def test_it_is_the_youngest_of_a_heavier_user(self) -> None:
        heavy = [decodes(f"A{number}") for number in range(8)]
        draft = grown(Scene(*heavy, grows("B8"), decodes("B9"), free=0))
        assert (lost(draft), draft.free) == (["A7"], 0)

    def test_else_its_own_users_youngest(self) -> None:
        equals = [decodes(f"A{number}") for number in range(7)]
        draft = grown(Scene(*equals, grows("B8"), prefills("B9", 2), free=0))
        assert (lost(draft), draft.free) == (["B9"], 1)

    @pytest.mark.parametrize(("weight", "loser"), [(1, "A1"), (8, "C3")])
    def test_else_the_youngest_of_who_holds_most_over_its_weight(
        self, weight: Weight, loser: str
    ) -> None:
        scene = Scene(
            decodes("A0", 8),
            decodes("A1", 8),
            decodes("C2", 6),
            decodes("C3", 6),
            grows("D4", 4),
            free=0,
            weights={"A": weight},
        )
        assert lost(grown(scene)) == [loser]

    def test_of_those_that_hold_as_much_it_is_who_has_the_oldest_request(self) -> None:
        scene = Scene(
            decodes("C1"), decodes("C2"), decodes("A0"), decodes("A3"), grows("D4"), free=0
        )
        assert lost(grown(scene)) == ["A3"]

    def test_what_was_lost_before_is_not_held_any_more(self) -> None:
        scene = Scene(
            decodes("A0", 2),
            decodes("C1", 2),
            *(decodes(f"A{number}") for number in (2, 3, 4)),
            *(decodes(f"C{number}") for number in (5, 6, 7)),
            *(grows(name) for name in ("B8", "D9", "E10", "F11")),
            free=0,
        )
        assert lost(grown(scene)) == ["A4", "C7", "A3", "C6"]

    def test_the_next_of_a_user_is_the_next_youngest(self) -> None:
        scene = Scene(
            *(decodes(f"A{number}") for number in range(4)), grows("B4"), grows("C5"), free=0
        )
        assert lost(grown(scene)) == ["A3", "A2"]

    def test_where_only_each_users_oldest_are_left_it_is_the_youngest_of_them(self) -> None:
        draft = grown(Scene(grows("A0"), grows("B1"), grows("C2"), free=0))
        assert lost(draft) == ["C2", "B1"], "B1 finds nobody younger"
        assert dict(draft.charges(draft.decode)) == {"A": UNIT}

    def test_who_gave_way_needs_no_block_itself(self) -> None:
        draft = grown(Scene(grows("A0"), grows("A1"), free=0))
        assert (lost(draft), draft.free) == (["A1"], 0)

    def test_who_had_grown_gives_back_that_block_too_and_is_not_charged(self) -> None:
        heavy = [decodes(f"A{number}") for number in range(3)]
        draft = grown(Scene(*heavy, grows("A3", 2), grows("B4"), free=1))
        assert (lost(draft), draft.free) == (["A3"], 2)
        assert dict(draft.charges(draft.decode)) == {"B": UNIT}


class TestSeats:
    def test_who_has_no_seat_does_not_grow(self) -> None:
        scene = Scene(decodes("A1"), grows("A2"), grows("A0"), free=3, max_batch_size=2)
        draft = grown(scene)
        assert (names(draft.decode), draft.free) == (["A1", "A2"], 2)
        assert dict(draft.charges(draft.decode)) == {"A": UNIT}

    @pytest.mark.parametrize("limit", ["max_batch_size", "token_budget"])
    def test_there_are_as_many_as_sequences_and_tokens_in_a_batch(self, limit: str) -> None:
        scene = Scene(*(decodes(f"A{number}") for number in range(5)), **{limit: 3})
        assert names(scene.draft().decode) == ["A0", "A1", "A2"]

    def test_who_is_preempted_leaves_the_seat_to_the_next_who_may_have_to_grow(self) -> None:
        scene = Scene(
            grows("A0"), decodes("A3", 2), grows("A1"), decodes("A2"), free=0, max_batch_size=2
        )
        draft = grown(scene)
        assert lost(draft) == ["A3"]
        assert (names(draft.decode), draft.free) == (["A0", "A1"], 0)
        assert dict(draft.charges(draft.decode)) == {"A": 2 * UNIT}

    def test_and_so_on(self) -> None:
        scene = Scene(
            grows("A0"), decodes("A4"), grows("A3"), decodes("A1"), free=0, max_batch_size=2
        )
        draft = grown(scene)
        assert lost(draft) == ["A4", "A3"]
        assert (names(draft.decode), draft.free) == (["A0", "A1"], 1)


class TestWhoIsKept:
    """In a lane's tick, since who had to grow has no seat."""

    def test_it_is_who_gave_way_to_growth_that_does_not_come(self) -> None:
        scene = Scene(grows("A0"), decodes("A1", 2), free=0)
        for decode, given_up in ((scene.decoding[:1], ["A1"]), ([], [])):
            draft = grown(scene)
            draft.spare(decode)
            assert lost(draft) == given_up

    def test_who_gave_way_last_is_kept_first(self) -> None:
        scene = Scene(grows("A0"), grows("A1"), decodes("A2"), decodes("A3"), free=0)
        draft = grown(scene)
        assert lost(draft) == ["A3", "A2"]
        draft.spare(scene.decoding[:1])
        assert lost(draft) == ["A3"]

    @pytest.mark.parametrize(("seats", "given_up"), [(0, []), (1, ["B3"]), (2, ["B3", "B2"])])
    def test_nobody_is_kept_before_its_users_oldest(self, seats: int, given_up: list[str]) -> None:
        scene = Scene(grows("C0"), grows("D1"), decodes("B2", 3), decodes("B3"), free=0)
        draft = grown(scene)
        assert lost(draft) == ["B3", "B2"]
        draft.spare(scene.decoding[:seats])
        assert lost(draft) == given_up

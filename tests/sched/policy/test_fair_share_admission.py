"""Admission under fair-lane: who is next, who passes whom, and what is taken from whom for it."""

from typing import Any

import pytest
from support.draft_scene import Scene, Seen, decodes, grows, line, lost, names, prefills, waits

from batchproof.sched.policy.service import UNIT
from batchproof.sched.weights import Weight


def planned(scene: Scene, **options: Any) -> Any:
    draft = scene.draft(**options)
    draft.grow()
    draft.admit()
    return draft


def admitted(scene: Scene, **options: Any) -> list[str]:
    return names(planned(scene, **options).admitted)


class TestWhoIsNext:
    @pytest.mark.parametrize(("held", "order"), [(7, ["A1", "B2"]), (8, ["B2", "A1"])])
    def test_the_user_that_holds_the_least_in_steps_of_a_quarter(
        self, held: int, order: list[str]
    ) -> None:
        assert admitted(Scene(decodes("A0", held), waits("A1"), waits("B2"))) == order

    def test_of_equals_the_oldest_of_each_and_then_by_age(self) -> None:
        scene = Scene(*line("A", (0, 1, 2)), *line("B", (3, 4)))
        assert admitted(scene) == ["A0", "B3", "A1", "A2", "B4"]

    def test_and_not_first_who_was_admitted_last(self) -> None:
        scene = Scene(*line("A", (0, 1)), decodes("B2", 7), waits("B3"))
        assert admitted(scene, latest="A") == ["B3", "A0", "A1"]

    def test_but_first_all_the_same_if_it_holds_less(self) -> None:
        scene = Scene(decodes("B0", 8), waits("A1"), waits("B2"))
        assert admitted(scene, latest="A") == ["A1", "B2"]

    @pytest.mark.parametrize(
        ("blocks", "order"),
        [(3, ["A0", "A1", "A2", "B4"]), (4, ["A0", "A1", "B4", "A2"])],
    )
    def test_what_it_was_given_in_this_tick_counts(self, blocks: int, order: list[str]) -> None:
        scene = Scene(
            waits("A0", 4), waits("A1", blocks), waits("A2"), decodes("B3", 8), waits("B4")
        )
        assert admitted(scene) == order

    def test_where_weights_differ_it_is_who_was_served_least(self) -> None:
        scene = Scene(*line("A", (0, 1, 2)), *line("B", (3, 4)), weights={"B": 2})
        # The mean weight is 3/2: a block is 3/2 of service for A, and 3/4 for B.
        assert admitted(scene, served={"A": 0, "B": UNIT}) == ["A0", "B3", "A1", "B4", "A2"]

    def test_recomputation_is_no_service(self) -> None:
        again = [waits(f"A{number}", generated=1) for number in (0, 1, 2)]
        scene = Scene(*again, waits("B3"), weights={"B": 2})
        assert admitted(scene, served={"A": 0, "B": 1}) == ["A0", "A1", "A2", "B3"]

    @pytest.mark.parametrize("weight", [1, 2])
    def test_who_lost_a_request_in_this_tick_is_not(self, weight: Weight) -> None:
        scene = Scene(
            grows("A0"),
            decodes("A1", 5),
            waits("A2"),
            waits("B3"),
            free=0,
            weights={"B": weight},
        )
        draft = planned(scene)
        assert (lost(draft), names(draft.admitted)) == (["A1"], ["B3"])


class TestWhoPassesWhom:
    def test_nobody_of_its_weight_passes_one_that_finds_no_room(self) -> None:
        assert admitted(Scene(decodes("D0", 20), waits("C1", 13), *line("B", (2, 3)))) == []

    def test_lighter_users_do(self) -> None:
        scene = Scene(
            waits("B0"),
            decodes("D1", 20),
            waits("C2", 13),
            *line("C", range(3, 20)),
            waits("B20"),
        )
        assert admitted(scene) == ["B0", "B20"]

    @pytest.mark.parametrize(("blocks", "passing"), [(1, ["E4", "B2", "B3"]), (4, [])])
    def test_the_lightest_first_until_one_of_them_finds_no_room(
        self, blocks: int, passing: list[str]
    ) -> None:
        scene = Scene(
            decodes("D0", 29),
            waits("C1", 4),
            *line("C", range(5, 30)),
            *line("B", (2, 3)),
            waits("E4", blocks),
        )
        assert admitted(scene) == passing

    def test_a_lighter_one_that_lost_a_request_is_left_out(self) -> None:
        scene = Scene(
            grows("C0"),
            decodes("C1", 3),
            decodes("D2", 4),
            waits("A3", 3),
            *line("A", range(4, 14)),
            waits("D14"),
            free=0,
        )
        draft = planned(scene)
        assert (lost(draft), names(draft.admitted)) == (["C1"], ["D14"])


class TestReserve:
    @pytest.mark.parametrize(
        ("who_asks", "is_admitted"),
        [
            pytest.param(waits("A2", 2), True, id="a block is left for each resident"),
            pytest.param(waits("A2", 3), False, id="one less is left"),
            pytest.param(waits("B2", 3), True, id="within its share"),
            pytest.param(waits("B2", 4), True, id="just its share"),
        ],
    )
    def test_an_ordinary_admission_leaves_it_but_not_one_within_the_users_share(
        self, who_asks: Seen, is_admitted: bool
    ) -> None:
        scene = Scene(decodes("A0", 16), decodes("B1", 12), who_asks)
        assert bool(admitted(scene)) == is_admitted

    @pytest.mark.parametrize(("weight", "is_admitted"), [(2, True), (1, False), (3, True)])
    def test_shares_are_by_weight(self, weight: Weight, is_admitted: bool) -> None:
        # Of the 32 blocks, A's share is 32 * 2/3, 32 * 1/2 or 32 * 3/4.
        scene = Scene(decodes("A0", 14), decodes("B1", 12), waits("A2", 5), weights={"A": weight})
        assert bool(admitted(scene)) == is_admitted

    @pytest.mark.parametrize(("requests", "is_admitted"), [(15, True), (14, False)])
    def test_who_has_somebody_heavier_needs_not_leave_it(
        self, requests: int, is_admitted: bool
    ) -> None:
        # B's load is 22 blocks and 2 times 8; A's is 9 blocks and 8, and 9 for each that waits.
        scene = Scene(
            decodes("A0", 9), decodes("B1", 15), waits("B2", 7), *line("A", range(3, 3 + requests))
        )
        assert ("B2" in admitted(scene)) == is_admitted

    @pytest.mark.parametrize("resident", [decodes("A0", 26), prefills("A0", 26)])
    @pytest.mark.parametrize(("blocks", "order"), [(3, ["B1", "A2"]), (4, ["B1"])])
    def test_it_has_a_block_for_each_resident_and_each_admitted(
        self, resident: Seen, blocks: int, order: list[str]
    ) -> None:
        assert admitted(Scene(resident, waits("B1"), waits("A2", blocks))) == order

    @pytest.mark.parametrize(("blocks", "order"), [(29, ["A2"]), (30, [])])
    def test_but_none_for_who_was_preempted(self, blocks: int, order: list[str]) -> None:
        scene = Scene(grows("C0"), decodes("C1", 31), waits("A2", blocks))
        draft = planned(scene)
        assert (lost(draft), names(draft.admitted)) == (["C1"], order)


class TestBatch:
    @pytest.mark.parametrize(
        ("batch", "prompt", "limits", "count"),
        [
            pytest.param([], 8, {"token_budget": 16}, 2, id="tokens: chunks"),
            pytest.param(["decodes"] * 8, 8, {"token_budget": 16}, 1, id="tokens: and decodes"),
            pytest.param(["prefills"], 8, {"token_budget": 16}, 2, id="tokens: a short chunk"),
            pytest.param(["decodes"] * 8, 1, {"token_budget": 12}, 4, id="tokens: short prompts"),
            pytest.param(["decodes"] * 3, 1, {"max_batch_size": 4}, 1, id="seats: decodes"),
            pytest.param(["prefills"] * 3, 1, {"max_batch_size": 4}, 1, id="seats: chunks"),
            pytest.param(["prefills"] * 4, 1, {"max_batch_size": 4}, 0, id="seats: none"),
            pytest.param([], 1, {"max_batch_size": 2}, 2, id="seats: all"),
        ],
    )
    def test_requests_are_admitted_while_it_has_a_token_and_a_seat_to_spare(
        self, batch: list[str], prompt: int, limits: dict[str, int], count: int
    ) -> None:
        kinds = {"decodes": decodes, "prefills": prefills}
        residents = [kinds[kind](f"A{number}") for number, kind in enumerate(batch)]
        waiting = [waits(f"A{number}", prompt=prompt) for number in range(8, 15)]
        assert len(admitted(Scene(*residents, *waiting, **limits))) == count

    @pytest.mark.parametrize("loser", [decodes("A1", 3), prefills("A1", 3)])
    @pytest.mark.parametrize("limit", ["max_batch_size", "token_budget"])
    def test_who_is_preempted_leaves_its_place(self, loser: Seen, limit: str) -> None:
        draft = planned(Scene(grows("A0"), loser, waits("B2"), free=0, **{limit: 2}))
        assert (lost(draft), names(draft.admitted)) == (["A1"], ["B2"])

    @pytest.mark.parametrize(
        ("others", "spent", "order"),
        [
            pytest.param("A", 0, ["B9"], id="the lane has room"),
            pytest.param("A", 17 * 2**20, [], id="no credit for a lane"),
            pytest.param("C", 0, [], id="those in it are not heavier"),
        ],
    )
    @pytest.mark.parametrize("kind", [decodes, prefills])
    def test_where_it_is_full_who_would_have_a_lane_is_admitted_to_that(
        self, kind: Any, others: str, spent: int, order: list[str]
    ) -> None:
        residents = [kind(f"{others}{number}") for number in (0, 1)]
        scene = Scene(*residents, waits("B9"), *line("A", range(10, 15)), max_batch_size=2)
        assert admitted(scene, spent={"B": spent}) == order


class TestMemoryTaken:
    def test_it_is_that_of_a_heavier_users_youngest_and_no_more_than_is_missing(self) -> None:
        heavy = [decodes(f"A{number}") for number in range(6)]
        draft = planned(Scene(*heavy, waits("B6", 3), free=1))
        assert (lost(draft), names(draft.admitted)) == (["A5", "A4"], ["B6"])
        assert draft.free == 0

    def test_of_several_heavier_users_it_is_the_youngest_of_all(self) -> None:
        scene = Scene(
            decodes("A0", 8),
            decodes("C1", 8),
            *(decodes(name) for name in ("A2", "A3", "C4", "C5", "A6", "C7")),
            *(decodes(name) for name in ("D8", "D9")),
            waits("B10", 2),
            free=0,
        )
        draft = planned(scene)
        assert (lost(draft), names(draft.admitted)) == (["C7", "A6"], ["B10"])

    @pytest.mark.parametrize(
        ("heavy", "blocks"),
        [
            pytest.param([decodes("A0", 30)], 1, id="a user's oldest is spared"),
            pytest.param([decodes("A0", 30), decodes("A1")], 2, id="the others are too few"),
        ],
    )
    def test_where_there_is_not_enough_nobody_is_preempted(
        self, heavy: list[Seen], blocks: int
    ) -> None:
        draft = planned(Scene(*heavy, *line("A", range(2, 9)), waits("B9", blocks), free=0))
        assert (lost(draft), draft.admitted) == ([], [])

    @pytest.mark.parametrize(
        ("held", "blocks", "is_admitted"),
        [
            pytest.param(0, 3, True, id="holds nothing"),
            pytest.param(1, 1, True, id="stays within its share"),
            pytest.param(1, 2, False, id="would hold more"),
        ],
    )
    def test_it_is_for_who_holds_nothing_or_stays_within_an_equal_share(
        self, held: int, blocks: int, is_admitted: bool
    ) -> None:
        # Of four users each has 2 of the 8 blocks.
        own = [decodes("B0", held)] if held else []
        others = (decodes("A1", 3 - held), decodes("C2"), decodes("D3"), decodes("A4", 3))
        draft = planned(
            Scene(*own, *others, waits("B5", blocks), *line("A", range(6, 14)), memory=8)
        )
        taken = (["A4"], ["B5"]) if is_admitted else ([], [])
        assert (lost(draft), names(draft.admitted)) == taken

    @pytest.mark.parametrize(
        ("number", "taken"),
        [
            pytest.param(3, ([], ["A3"]), id="before"),
            pytest.param(5, (["A1"], ["B4"]), id="after"),
        ],
    )
    def test_who_has_one_admitted_loses_none_for_it_would_be_older(
        self, number: int, taken: tuple[list[str], list[str]]
    ) -> None:
        scene = Scene(
            decodes("A0", 3),
            decodes("A1", 4),
            decodes("D2", 24),
            *line("A", (number, 6)),
            waits("B4", 2),
        )
        draft = planned(scene)
        assert (lost(draft), names(draft.admitted)) == taken

    def test_nobody_is_preempted_where_the_policy_must_not(self) -> None:
        scene = Scene(*(decodes(f"A{number}") for number in range(4)), waits("B4"), free=0)
        assert lost(planned(scene)) == ["A3"]
        draft = planned(scene, may_preempt=False)
        assert (lost(draft), draft.admitted) == ([], [])

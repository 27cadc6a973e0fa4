"""A few long walks take every transition, and the shipped scheduler follows them."""

import json
from typing import ClassVar

import pytest

from batchproof.sched.cli import run_cli
from batchproof.sched.shipped import Shipped
from batchproof.sched.shipped_cover import CoverError, _follow, covered
from batchproof.sched.shipped_family import MODEL_FAMILY
from batchproof.sched.transition_cover import Step, cover, replay
from batchproof.spec.search import Search


class Fork:
    """From 0 to 1 and back, by two events; and to 2 or 3, from where there is no way back."""

    name = "fork"
    ways: ClassVar = {0: [("there", 1), ("left", 2), ("right", 3)], 1: [("back", 0), ("home", 0)]}

    def initial(self):
        return [0]

    def successors(self, state):
        return self.ways.get(state, [])


def shipped(policy: str = "stall-free") -> Shipped:
    model = MODEL_FAMILY.build(MODEL_FAMILY.bounds["pair"], policy)
    assert isinstance(model, Shipped)
    return model


def test_every_edge_is_taken_and_a_walk_goes_on_as_long_as_it_can() -> None:
    walks = cover(Fork())
    assert walks.edges == walks.covered == 5
    assert len(walks.walks) == 3
    taken = {step.event for walk in walks.walks for step in walk}
    assert taken == {"there", "left", "right", "back", "home"}


def test_each_walk_begins_with_a_scheduler_of_its_own() -> None:
    def follow(here: int, step: Step) -> int:
        assert (step.event, step.after) in Fork.ways[here]
        return step.after

    started: list[int] = []
    assert replay(cover(Fork()), lambda: started.append(0) or 0, follow) == 5
    assert len(started) == 3


@pytest.mark.parametrize("policy", ["stall-free", "fair-lane"])
def test_the_scheduler_follows_every_edge_that_the_search_found(policy: str) -> None:
    model = shipped(policy)
    search = Search(model, reduce=False).run()
    every = {(s, event, after) for s in search.states for event, after in search.successors(s)}
    walks, edges = covered(model)
    assert edges == walks.edges == len(every)
    assert walks.steps < 5 * edges, "a few long walks, not one per edge"


def test_a_scheduler_that_goes_elsewhere_is_found_out() -> None:
    walks = cover(shipped())
    static = shipped("static")  # admits nobody while a batch is under way
    with pytest.raises(CoverError, match="the search got to"):
        replay(walks, static.make, lambda sched, step: _follow(static, walks, sched, step))


def test_the_command_prints_how_many_edges_were_covered(capsys) -> None:
    assert run_cli(["cover", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["edges_covered"] == said["edges"] > said["states"]
    assert run_cli(["cover", "--bound", "no-such"]) == 2
    assert "unknown bound" in capsys.readouterr().err

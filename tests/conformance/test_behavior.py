"""What was seen of a run is followed through the specification; what was not is searched for."""

import json
from dataclasses import replace
from random import Random

import pytest

from batchproof.sched.cli import run_cli
from batchproof.sched.shipped import Disturbance, Shipped
from batchproof.spec.actions import Cancel, Refuse, Submit, Tick, yielding
from batchproof.spec.behavior import Step, follow
from batchproof.spec.bounds import SIZES
from batchproof.testing import Behavior, assert_conforms

SYSTEM = SIZES["growth"].system


def seen_of_a_run(policy: str = "stall-free", length: int = 30, seed: int = 0) -> list[Step]:
    """Return all that can be seen of a random run of the shipped scheduler."""
    model = Shipped(system=SYSTEM, policy=policy)
    rng, (state,) = Random(seed), model.initial()
    steps: list[Step] = []
    while len(steps) < length:
        choices = [c for c in model.successors(state) if not isinstance(c[0], Disturbance)]
        ticks = [choice for choice in choices if isinstance(choice[0], Tick)]
        event, after = rng.choice(ticks if ticks and rng.random() < 0.6 else choices)
        held = {live.request: live.blocks for live in after.live}
        if isinstance(event, Tick):
            emitted = yielding(SYSTEM, state, event.work)
            work = {name: getattr(event.work, name) for name in event.work._fields}
            seen = {"emitted": emitted, "eos": event.eos, "ended": event.ended}
            steps.append(Step(action="tick", **work, **seen, held=held, free=after.free))
        else:
            name = {Submit: "submit", Refuse: "refuse", Cancel: "cancel"}[type(event)]
            steps.append(Step(action=name, request=event.request, held=held, free=after.free))
        state = after
    return steps


@pytest.mark.parametrize("policy", ["stall-free", "static", "vllm-v1"])
@pytest.mark.parametrize("seed", range(3))
def test_what_ships_follows_the_specification(policy, seed) -> None:
    assert_conforms(Behavior(SYSTEM, seen_of_a_run(policy, seed=seed)))


OPEN = {
    "who was preempted": ("preempt",),
    "who was admitted": ("admit",),
    "how many tokens were fed": ("feed",),
    "the work": ("preempt", "admit", "feed"),
    "whose token was EOS": ("eos",),
    "memory": ("held", "free"),
    "all but who ended": ("preempt", "admit", "feed", "emitted", "eos", "held", "free"),
}


@pytest.mark.parametrize("fields", OPEN.values(), ids=OPEN)
def test_what_was_not_seen_is_searched_for(fields) -> None:
    steps = [replace(step, **dict.fromkeys(fields)) for step in seen_of_a_run(length=14)]
    assert follow(SYSTEM, steps).allowed


def altered(steps: list[Step], **change) -> tuple[int, list[Step]]:
    """Change the first tick in which somebody ends; return its number too."""
    number = next(i for i, step in enumerate(steps) if step.ended)
    return number, [*steps[:number], replace(steps[number], **change), *steps[number + 1 :]]


ALTERATIONS = {
    "a block too many is free": ({"free": 99}, "rule 3: 99 blocks are free"),
    "nobody ended": ({"ended": ()}, "rule 2: ended {}"),
    "somebody holds on": ({"held": {0: 9}}, "rule 3: blocks held are {0: 9}"),
    "nobody yields": ({"emitted": ()}, "rule 2: tokens of nobody"),
    "nothing is fed": ({"feed": ()}, "rule 7: nothing is fed"),
    "somebody unknown is fed": ({"feed": ((77, 1),)}, "rule 1: a request that is not live"),
}


@pytest.mark.parametrize(("change", "objection"), ALTERATIONS.values(), ids=ALTERATIONS)
def test_the_step_and_the_rule_are_named(change, objection) -> None:
    number, steps = altered(seen_of_a_run(), **change)
    outcome = follow(SYSTEM, steps)
    assert (outcome.matched, outcome.allowed) == (number, False)
    assert any(objection in why for why in outcome.objections)
    with pytest.raises(AssertionError, match=f"step {number} of {len(steps)}"):
        assert_conforms(Behavior(SYSTEM, steps))


def test_an_impossible_outcome_is_found_though_the_work_was_not_seen() -> None:
    number, steps = altered(
        seen_of_a_run(length=14), feed=None, ended=((0, "eos"), (1, "length"), (2, "eos"))
    )
    steps = [replace(step, preempt=None, admit=None) for step in steps]
    assert follow(SYSTEM, steps).matched == number


BETWEEN_TICKS = {
    "an infeasible one accepted": (Step(action="submit", request=2), "pair", "rule 4"),
    "a feasible one refused": (Step(action="refuse", request=0), "pair", "rule 4: refused"),
    "nobody cancelled": (Step(action="cancel", request=0), "pair", "rule 9"),
}


@pytest.mark.parametrize(("step", "size", "rule"), BETWEEN_TICKS.values(), ids=BETWEEN_TICKS)
def test_what_users_do_is_held_against_the_rules(step, size, rule) -> None:
    outcome = follow(SIZES[size].system, [step])
    assert outcome.matched == 0
    assert rule in outcome.objections[0]


def test_a_behavior_that_says_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no steps"):
        follow(SYSTEM, [])


def test_a_recording_conforms_from_its_first_line_to_its_last(tmp_path) -> None:
    path = tmp_path / "run.jsonl"
    assert run_cli(["run", "--requests", "30", "--json", "--record", str(path)]) == 0
    assert_conforms(path)
    lines = path.read_text().splitlines()
    tick = next(i for i, line in enumerate(lines) if '"event":"tick"' in line)
    record = json.loads(lines[tick])
    lines[tick] = json.dumps({**record, "free": record["free"] - 1})
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(AssertionError, match=f"line {tick + 1}, tick 0: blocks-conserved"):
        assert_conforms(path)

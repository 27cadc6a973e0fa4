"""Users' weights: what is one, how long it is kept, and where it goes: snapshots, recordings."""

import json
from fractions import Fraction
from math import inf, nan
from typing import Any

import pytest
from support.builders import ConstantExecutor, a_request, run_to_end

from batchproof import Scheduler
from batchproof.sched.cli import run_cli
from batchproof.sched.errors import LimitsError, MisuseError
from batchproof.sched.observer import Observers, SilentObserver
from batchproof.sched.prompts import PromptRing
from batchproof.sched.recorder import Recorder, RecordingFile, header
from batchproof.sched.simulation import Setup
from batchproof.sched.weights import fair_cost


def kept(scheduler: Scheduler) -> dict[str, Any]:
    return dict(scheduler._roster.users.weights)


@pytest.mark.parametrize("weight", [0, -1, -0.5, nan, inf, True, "3", None, 2**63, 1e30])
def test_what_is_no_weight_is_refused_with_what_to_do(weight: Any) -> None:
    scheduler = Scheduler(weights={"u1": 3})
    for call in (
        lambda: Scheduler(weights={"u": weight}),
        lambda: scheduler.set_weight("u", weight),
    ):
        with pytest.raises(
            LimitsError, match=r"weight of user 'u' is .*, not an int or a float ab"
        ):
            call()
    assert kept(scheduler) == {"u1": 3}


@pytest.mark.parametrize("user", ["", 3, None])
def test_a_weight_is_of_a_user(user: Any) -> None:
    with pytest.raises(LimitsError, match="is not a user id"):
        Scheduler(weights={user: 3})


def test_a_weight_is_kept_exactly_and_1_is_not_kept() -> None:
    scheduler = Scheduler(weights={"a": 0.1, "b": 3.0, "c": 1})
    assert kept(scheduler) == {"a": Fraction(0.1), "b": 3}
    scheduler.set_weight("a", 1.0)
    assert kept(scheduler) == {"b": 3}


def test_a_user_that_leaves_and_comes_back_has_its_weight() -> None:
    scheduler = Scheduler(executor=ConstantExecutor(), weights={"u": 3})
    for name in ("r1", "r2"):
        scheduler.submit(a_request(name))
        assert scheduler._roster.users["u"].weight == 3
        run_to_end(scheduler)
        assert len(scheduler._roster.users) == 0


def test_a_weight_is_not_set_while_a_batch_is_out() -> None:
    scheduler = Scheduler(executor=ConstantExecutor())
    batch = scheduler.schedule()
    with pytest.raises(MisuseError, match=r"a batch is out, .* complete or abandon it first"):
        scheduler.set_weight("u", 3)
    assert kept(scheduler) == {}
    scheduler.abandon(batch)
    scheduler.set_weight("u", 3)


def test_observers_hear_of_a_weight() -> None:
    class Ear(SilentObserver):
        heard: list[Any]

        def weighted(self, user_id: str, weight: float) -> None:
            self.heard.append((user_id, weight))

    ears = [Ear(), Ear()]
    for ear in ears:
        ear.heard = []
    Scheduler(observer=Observers(ears)).set_weight("u", 2.5)
    assert [ear.heard for ear in ears] == [[("u", 2.5)]] * 2


def test_a_snapshot_has_the_weights_of_those_who_are_away_too() -> None:
    scheduler = Scheduler(executor=ConstantExecutor(), weights={"u": 3, "away": 0.1})
    scheduler.submit(a_request())
    data = json.loads(json.dumps(scheduler.snapshot()))
    again = Scheduler.restore(data, executor=ConstantExecutor())
    assert kept(again) == kept(scheduler) == {"u": 3, "away": Fraction(0.1)}
    assert again._roster.users.weight_sum == 3
    assert again.snapshot() == data


@pytest.mark.parametrize("policy", ["fair-lane", "vtc"])
def test_a_restored_scheduler_goes_on_as_the_other_under_weights(policy: str) -> None:
    scheduler = Scheduler(policy=policy, executor=ConstantExecutor(), weights={"u1": 3, "u2": 0.3})
    for number in range(60):
        scheduler.submit(a_request(f"r{number}", 100 + number, 60, f"u{number % 3}"))
    for _ in range(40):
        scheduler.tick()
    data = json.loads(json.dumps(scheduler.snapshot()))
    again = Scheduler.restore(data, executor=ConstantExecutor())
    while scheduler.has_active():
        ended = [request.request_id for request in scheduler.tick()]
        assert [request.request_id for request in again.tick()] == ended
    assert not again.has_active()


def test_a_cost_is_over_the_weight_and_exact_where_weights_are_equal() -> None:
    assert fair_cost(7, users=3, weight_sum=6, weight=2) == 7
    assert fair_cost(6, users=2, weight_sum=4, weight=3) == 4
    assert fair_cost(6, users=2, weight_sum=4, weight=1) == 12
    assert fair_cost(1, users=2, weight_sum=Fraction(5, 2), weight=2) == 1, "rounded up"


def recorded(path: Any, change: float) -> None:
    """Record a run at whose start u1 has weight 3; later u2 has `change`."""
    setup = Setup(weights={"u1": 3})
    gpu, ring = setup.gpu(), PromptRing(0)
    with open(path, "wb") as file:
        first = header(setup, "max_utilization", 0, "a test")
        recorder = Recorder(gpu, 256, RecordingFile(file, first).write, ring)
        scheduler = setup.scheduler(recorder, recorder)
        for number in range(60):
            scheduler.submit(a_request(f"r{number}", 200, 60, f"u{number % 2 + 1}"))
        for _ in range(20):
            scheduler.tick()
        scheduler.set_weight("u2", change)
        run_to_end(scheduler)
        recorder.end(complete=True)


def test_a_recording_repeats_with_its_weights_and_not_without(tmp_path, capsys) -> None:
    path = tmp_path / "run.jsonl"
    recorded(path, 9)
    assert run_cli(["replay", str(path)]) == 0
    text = path.read_text()
    for weight, other in (
        ('"weights":{"u1":3}', '"weights":{"u1":4}'),
        ('"weight":9}', '"weight":1}'),
    ):
        assert weight in text
        path.write_text(text.replace(weight, other))
        assert run_cli(["replay", str(path)]) == 1, other
    path.write_text(text.replace('"weight":9}', '"weight":-9}'))
    capsys.readouterr()
    assert run_cli(["replay", str(path)]) == 2
    assert "weight of user 'u2' is -9" in capsys.readouterr().err


def test_run_takes_weights(capsys) -> None:
    small = ["run", "--requests", "40", "--rate", "40", "--users", "2", "--json"]
    assert run_cli([*small, "--weight", "u1=3", "--weight", "u2=0.5"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["weights"] == {"u1": 3, "u2": 0.5}


def test_compare_takes_weights(capsys) -> None:
    words = "compare --requests 12 --users 2 --policy vtc --latency linear --load 1 --jobs 1 --json"
    assert run_cli([*words.split(), "--weight", "u1=3"]) == 0
    assert json.loads(capsys.readouterr().out)["weights"] == {"u1": 3}


@pytest.mark.parametrize("command", ["run", "compare", "serve"])
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (["u1"], "--weight 'u1' is not USER=NUMBER; give it like u1=3"),
        (["=3"], "--weight '=3' is not USER=NUMBER"),
        (["u1=three"], "--weight 'u1=three' is not USER=NUMBER"),
        (["u1=nan"], "--weight 'u1=nan' is not USER=NUMBER"),
        (["u1=0"], "the weight of user 'u1' is 0.0, not an int or a float above 0"),
        (["u1=2", "u1=3"], "--weight 'u1=3': user 'u1' has a weight already; leave out one"),
    ],
)
def test_a_wrong_weight_is_one_line(capsys, command, weights, message) -> None:
    options = [word for weight in weights for word in ("--weight", weight)]
    assert run_cli([command, *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1

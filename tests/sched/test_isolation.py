"""`batchproof run --isolation`: each user's times with everybody, over those alone."""

import json
from typing import Any

import pytest

from batchproof.sched.cli import run_cli
from batchproof.sched.commands import run as run_command
from batchproof.sched.config import Limits
from batchproof.sched.isolation import TIMES, alone, isolation
from batchproof.sched.request_gen import PoissonWorkload
from batchproof.sched.simulation import Setup, Simulation

WORKLOAD = PoissonWorkload(requests=60, rate=30.0, users=3)
SMALL = ("run", "--requests", "60", "--rate", "30", "--users", "3", "--jobs", "1")


@pytest.fixture
def result(capsys) -> dict[str, Any]:
    assert run_cli([*SMALL, "--isolation", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_user_is_compared_with_a_run_of_its_requests_only(result) -> None:
    assert list(result["isolation"]) == ["u1", "u2", "u3"]
    requests = [a for a in WORKLOAD if a.request.user_id == "u2"]
    setup = Setup()
    gpu = setup.gpu()
    scheduler = setup.scheduler(gpu)
    assert Simulation(scheduler, gpu, requests).run()
    figures = scheduler.stats()["users"]["u2"]
    for name, (time, quantile) in TIMES.items():
        times = result["isolation"]["u2"][name]
        assert times["together_s"] == result["users"]["u2"][time][quantile]
        assert times["alone_s"] == pytest.approx(figures[time][quantile], abs=1e-6)
        assert times["slowdown"] == pytest.approx(times["together_s"] / times["alone_s"], rel=1e-3)
        assert times["slowdown"] > 1


def test_a_user_that_is_alone_is_not_slower(capsys) -> None:
    words = ["run", "--requests", "20", "--users", "1", "--isolation", "--jobs", "1", "--json"]
    assert run_cli(words) == 0
    (user,) = json.loads(capsys.readouterr().out)["isolation"].values()
    assert {times["slowdown"] for times in user.values()} == {1.0}


def test_the_number_of_processes_changes_nothing(capsys, result) -> None:
    assert run_cli([*SMALL[:-1], "2", "--isolation", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == result


def test_the_table_has_a_line_for_each_user(capsys, result) -> None:
    assert run_cli([*SMALL, "--isolation"]) == 0
    table = capsys.readouterr().out.partition("slowdown")[2]
    assert [line.split()[0] for line in table.splitlines()[2:]] == ["u1", "u2", "u3"]
    ttft = result["isolation"]["u1"]["ttft_p50"]
    assert f"{ttft['slowdown']:.2f} = {ttft['together_s']:.3f} / {ttft['alone_s']:.3f}" in table


def test_without_it_nothing_is_said_of_it(capsys) -> None:
    assert run_cli(["run", "--requests", "20", "--json"]) == 0
    assert "isolation" not in json.loads(capsys.readouterr().out)


def test_a_run_in_which_nobody_finished_has_nothing_to_compare(capsys) -> None:
    assert run_cli([*SMALL, "--isolation", "--max-kv-blocks", "1"]) == 2
    captured = capsys.readouterr()
    assert "no request finished: give a workload with requests that fit" in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--jobs", "2"), "--jobs is for --isolation: add it, or leave out --jobs"),
        (("--isolation", "--jobs", "0"), "jobs is 0, not an int of at least 1"),
    ],
)
def test_wrong_jobs_are_one_line(capsys, options, message) -> None:
    assert run_cli(["run", "--requests", "20", *options]) == 2
    assert message in capsys.readouterr().err


def test_what_is_stopped_is_left_out_and_the_run_is_not_complete(capsys, monkeypatch) -> None:
    stops = iter([False])
    users = {"u1": {"finished": 1}, "u2": {"finished": 1}}
    assert alone(Setup(), lambda: WORKLOAD, "u1", lambda: True) is None
    assert isolation(Setup(), lambda: WORKLOAD, users, stop=lambda: next(stops, True)) == {}

    def of_one(*_: Any, **__: Any) -> dict[str, Any]:
        return {}

    monkeypatch.setattr(run_command, "slowdowns", of_one)
    assert run_cli([*SMALL, "--isolation", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["complete"] is False


def test_the_same_limits_hold_alone() -> None:
    setup = Setup(limits=Limits(max_batch_size=1))
    figures = alone(setup, lambda: WORKLOAD, "u1", lambda: False)
    wide = alone(Setup(), lambda: WORKLOAD, "u1", lambda: False)
    assert figures is not None
    assert wide is not None
    assert figures["ttft_s"]["p99"] > wide["ttft_s"]["p99"]

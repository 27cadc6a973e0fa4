"""What `make fairness` says of the goals, met or not, and where."""

from typing import Any

import pytest

from batchproof.sched.bench import fairness


def results(**worse: float) -> dict[str, Any]:
    """Return results in which all goals are met, but for what is `worse` in the second scenario."""

    def figures(**changed: float) -> dict[str, Any]:
        return {"runs": 10, "ratio_over_2": 0, "throughput_min": 0.98, **changed}

    def of_run(**changed: float) -> dict[str, Any]:
        return {"fair-lane": figures(**changed)}

    off = worse.pop("off", 0.05)
    over = worse.pop("trials_over", 0)
    return {
        "scenarios": {"A first": of_run(), "mixed": of_run(**worse)},
        "equal_users": {"8 equal users": of_run()},
        "off_shares": {"chats": {"fair-lane": 0.02}, "long": {"fair-lane": off}},
        "random_trials": {"fair-lane": figures(ratio_over_2=over)},
    }


def test_all_goals_are_met() -> None:
    lines = fairness.goals(results()).splitlines()
    assert len(lines) == 4
    assert all(line.startswith("met: ") for line in lines)


@pytest.mark.parametrize(
    ("worse", "line"),
    [
        (
            {"ratio_over_2": 1},
            "NOT MET: first tokens of a light user at most 2x later than alone: 1 of 20 runs over",
        ),
        (
            {"throughput_min": 0.966},
            "NOT MET: 97% of stall-free's throughput in every run: lowest 96.6%, mixed",
        ),
        (
            {"off": 0.11},
            "NOT MET: within 10% of shares by weights of 3 and 1: at most 11.0% off, long",
        ),
        ({"trials_over": 2}, "NOT MET: the same in random trials: 2 of 10 over"),
    ],
)
def test_a_goal_that_is_not_met_says_by_how_much_and_where(
    worse: dict[str, float], line: str
) -> None:
    lines = fairness.goals(results(**worse)).splitlines()
    assert [text for text in lines if not text.startswith("met: ")] == [line]


def test_shares_are_measured_against_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fairness, "BACKLOG_REQUESTS", {"short": 40})
    off = fairness._share_run("short", 0)
    assert set(off) == {"vtc", "fair-lane"}
    assert all(0 < value < 0.2 for value in off.values())
    monkeypatch.setattr(fairness, "tokens_while_all_wait", lambda *_: {"A": 100, "B": 100})
    assert fairness._share_run("short", 0)["vtc"] == 1.0

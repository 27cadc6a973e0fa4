"""Scenarios reduced from the bug reports of real engines, where the checkout has them beside it."""

import json
from pathlib import Path

import pytest
from scenarios.scenario_runner import check
from scenarios.shared_case_table import FAIR_POLICIES, NOT_APPLICABLE, NOT_PROMISED, OPTIONS, OURS

from batchproof.sched.policy import POLICIES

CASES = Path(__file__).parents[3] / "shared" / "cases" / "cases.jsonl"
if not CASES.exists():
    pytest.skip(f"the shared cases are not at {CASES}", allow_module_level=True)

_ALL = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
FCFS = [case for case in _ALL if "fair=1" not in case["scenario"]]
FAIR = [case for case in _ALL if "fair=1" in case["scenario"]]


def _id(case: dict[str, str]) -> str:
    return f"{case['id']}-{case['fit']}"


@pytest.mark.parametrize("case", FCFS, ids=_id)
def test_the_promise_that_another_engine_broke_holds_here(case: dict[str, str]) -> None:
    name = case["id"]
    if name in NOT_APPLICABLE:
        pytest.skip(f"{name}: {NOT_APPLICABLE[name]}")
    expression = OURS[name].check if name in OURS else case["check"]
    check(case["scenario"], expression, **OPTIONS.get(name, {}))


@pytest.mark.parametrize("policy", FAIR_POLICIES)
@pytest.mark.parametrize("case", FAIR, ids=_id)
def test_the_promise_between_users_holds_under_a_fair_policy(
    case: dict[str, str], policy: str
) -> None:
    if policy not in POLICIES:
        pytest.skip(f"{case['id']}: needs a policy that is fair between users; no {policy!r} yet")
    if (policy, case["id"]) in NOT_PROMISED:
        pytest.skip(f"{case['id']}: {NOT_PROMISED[policy, case['id']]}")
    check(case["scenario"], case["check"], policy=policy)


def test_the_tables_speak_of_cases_that_exist() -> None:
    ids = {case["id"] for case in _ALL}
    assert {*NOT_APPLICABLE, *OURS, *OPTIONS, *(name for _, name in NOT_PROMISED)} <= ids

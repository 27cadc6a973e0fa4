"""`batchproof check` as it is called: exit codes, tables, counterexamples, files, and bad input."""

import json
import subprocess
import sys
from dataclasses import dataclass, replace

import pytest

from batchproof.sched.cli import run_cli
from batchproof.spec import mini_batch_family, registry
from batchproof.spec.mini_batch import MiniBatch, Request, State, Tick
from batchproof.spec.property import Property


@dataclass(frozen=True)
class Leaky(MiniBatch):
    """Admits one request more than there is memory for."""

    reduction: str = "none"

    def successors(self, state):
        for event, after in super().successors(state):
            if isinstance(event, Tick) and len(after.running) == 1 and after.queue:
                yield event, _admit(after)
            else:
                yield event, after


def _admit(state):
    i, *rest = state.queue
    requests = list(state.requests)
    requests[i] = Request(2, 1, 0)
    return State(tuple(requests), tuple(rest), (*state.running, i))


TINY = registry.Bound(
    name="tiny",
    about="3 requests, memory for one",
    parameters=replace(mini_batch_family.BOUNDS["C1"].parameters, cap=4),
    properties=mini_batch_family.properties_of(
        replace(mini_batch_family.BOUNDS["C1"].parameters, cap=4)
    ),
)
PROMISED = Property(
    name="quick",
    claim="the first request is done by the first tick",
    source="test",
    kind="liveness",
    predicate=lambda state: False,
    promised_by=frozenset({"hasty"}),
)
LEAKY = registry.ModelFamily(
    name="leaky",
    bounds={"tiny": TINY},
    default_bounds=("tiny",),
    build=lambda bound, policy: Leaky(bound.parameters),
    properties=(*mini_batch_family.PROPERTIES, PROMISED),
    policies=("calm", "hasty"),
)


@pytest.fixture(autouse=True)
def _leaky_is_known(monkeypatch):
    known = {
        "mini-batch": registry.LOCATIONS["mini-batch"],
        "leaky": f"{__name__}:LEAKY",
    }
    monkeypatch.setattr(registry, "LOCATIONS", known)
    monkeypatch.setattr("batchproof.sched.commands.check.LOCATIONS", known)
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])


COUNTEREXAMPLE = """\
step   event       fed    queue   running                               blocks
──────────────────────────────────────────────────────────────────────────────
0      start                                                            0/4
1      submit r0          r0                                            0/4
2      submit r1          r0 r1                                         0/4
3      tick        r0:2           r0:prefilling 2+0 r1:prefilling 1+0   8/4

memory-within-cap: the blocks taken by the running requests are at most CAP (mini-batch) \
- broken by the last state.

"""


def run(capsys, *arguments):
    code = run_cli(["check", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_all_hold(capsys):
    code, out, err = run(capsys, "mini-batch", "--bound", "C1")
    assert (code, err) == (0, "")
    assert out.startswith("mini-batch C1: 64 states, 210 steps, depth 9, ")
    table = [line.split() for line in out.splitlines()[3:] if line]
    assert [(row[0], row[1]) for row in table] == [
        (name, "holds")
        for name in (
            "no-deadlock",
            "lists-match",
            "life-is-legal",
            "first-come-first-served",
            "tick-feeds",
            "can-end-at-once",
            "can-chunk",
            "can-wait",
            "memory-within-cap",
            "batch-within-max",
            "tokens-within-budget",
            "all-end",
            "all-can-end",
        )
    ]


def test_default_bounds(capsys):
    code, out, _ = run(capsys, "mini-batch")
    assert code == 0
    assert [line.split(":")[0] for line in out.splitlines() if "states," in line] == [
        "mini-batch C1",
        "mini-batch C2",
    ]


@pytest.mark.parametrize(("arguments", "states"), [((), "64"), (("--full",), "1,040")])
def test_full_search(capsys, arguments, states):
    code, out, _ = run(capsys, "mini-batch", "--bound", "C1", *arguments)
    assert code == 0
    assert f"mini-batch C1: {states} states" in out


def test_full_search_without_numpy_says_the_same(capsys, monkeypatch):
    with_numpy = run(capsys, "mini-batch", "--bound", "C1", "--full", "--json")[1]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    without = run(capsys, "mini-batch", "--bound", "C1", "--full", "--json")[1]
    (fast,), (plain,) = json.loads(with_numpy), json.loads(without)
    keep = ("name", "outcome", "depth", "note")
    assert [[p[k] for k in keep] for p in fast["properties"]] == [
        [p[k] for k in keep] for p in plain["properties"]
    ]
    assert fast["states"] == plain["states"] == 1_040


def test_counterexample_is_a_table_that_ends_in_the_claim(capsys):
    code, out, _ = run(capsys, "leaky", "--policy", "calm")
    assert code == 1
    assert out[out.index("step   event") :] == COUNTEREXAMPLE


def test_property_that_only_some_promise(capsys):
    calm = run(capsys, "leaky", "--policy", "calm")
    hasty = run(capsys, "leaky", "--policy", "hasty")
    assert "quick" not in calm[1]
    assert "quick" in hasty[1]
    asked = run(capsys, "leaky", "--policy", "calm", "--property", "quick")
    assert asked[0] == 1
    assert asked[1].rstrip().endswith("(test) - not so after that, the run may end there.")


def test_only_the_properties_asked_for(capsys):
    code, out, _ = run(capsys, "mini-batch", "--bound", "C1", "--property", "all-can-end")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[3:] if line] == [
        "no-deadlock",
        "all-can-end",
    ]


def test_json(capsys):
    code, out, _ = run(capsys, "leaky", "--policy", "calm", "--json")
    assert code == 1
    (report,) = json.loads(out)
    assert (report["model"], report["bound"], report["policy"]) == ("leaky", "tiny", "calm")
    assert report["outcome"] == "violated"
    broken = next(p for p in report["properties"] if p["name"] == "memory-within-cap")
    steps = broken["trace"]["steps"]
    assert [step["event"] for step in steps[:3]] == [
        None,
        "Submit(request=0)",
        "Submit(request=1)",
    ]
    assert steps[-1]["state"]["running"] == [0, 1]


def test_itf(capsys, tmp_path):
    file = tmp_path / "trace.itf.json"
    code, _, _ = run(capsys, "leaky", "--policy", "calm", "--itf", str(file))
    assert code == 1
    itf = json.loads(file.read_text())
    assert itf["#meta"]["format"] == "ITF"
    assert itf["vars"] == ["requests", "queue", "running"]
    assert all(set(itf["vars"]) | {"#meta"} == set(state) for state in itf["states"])
    assert itf["states"][-1]["running"] == {"#tup": [{"#bigint": "0"}, {"#bigint": "1"}]}
    assert itf["states"][0]["requests"]["#tup"][0] == {
        "status": {"#bigint": "0"},
        "prefilled": {"#bigint": "0"},
        "generated": {"#bigint": "0"},
    }


def test_pytest_file_is_red_while_the_fault_is_there_and_green_when_it_is_not(
    capsys, tmp_path, monkeypatch
):
    file = tmp_path / "test_counterexample.py"
    run(capsys, "leaky", "--policy", "calm", "--pytest", str(file))
    source = file.read_text()
    assert "Claim: " in source
    namespace: dict = {}
    exec(compile(source, str(file), "exec"), namespace)
    (test,) = [value for name, value in namespace.items() if name.startswith("test_")]
    with pytest.raises(AssertionError):
        test()
    mended = replace(LEAKY, build=lambda bound, policy: MiniBatch(bound.parameters, "none"))
    monkeypatch.setattr(sys.modules[__name__], "LEAKY", mended)
    test()


def test_witness_is_written_when_nothing_is_violated(capsys, tmp_path):
    file = tmp_path / "witness.itf.json"
    arguments = ("--bound", "C1", "--property", "can-chunk", "--itf", str(file))
    assert run(capsys, "mini-batch", *arguments)[0] == 0
    assert len(json.loads(file.read_text())["states"]) == 3


def test_limits_end_incomplete(capsys):
    code, out, _ = run(capsys, "mini-batch", "--bound", "C3", "--max-states", "50")
    assert code == 3
    assert "INCOMPLETE: limit of 50 states reached" in out
    verdicts = {row.split()[0]: row.split()[1] for row in out.splitlines()[3:] if row}
    held = {name for name, verdict in verdicts.items() if verdict != "incomplete"}
    assert held == {"can-end-at-once", "can-chunk", "can-wait"}
    assert run(capsys, "mini-batch", "--max-memory", "1")[0] == 3
    assert run(capsys, "mini-batch", "--max-seconds", "1e-9")[0] == 3


def test_interrupt_is_incomplete_and_says_what_was_covered(capsys, monkeypatch):
    def interrupt(self, state):
        raise KeyboardInterrupt

    monkeypatch.setattr(MiniBatch, "may_end", interrupt)
    code, out, _ = run(capsys, "mini-batch", "--bound", "C1")
    assert code == 3
    assert "INCOMPLETE: interrupted" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mini-bach"], "unknown model 'mini-bach': did you mean 'mini-batch'? there are: "),
        (["mini-batch", "--bound", "C9"], "unknown bound 'C9': there are: C1, C2, C3, C4, R30"),
        (["mini-batch", "--property", "all-ends"], "did you mean 'all-end'? there are: "),
        (["mini-batch", "--policy", "fair"], "unknown policy 'fair': there are: none"),
        (["mini-batch", "--max-states", "0"], "--max-states must be above 0, not 0"),
        (["mini-batch", "--max-seconds", "-1"], "--max-seconds must be above 0, not -1"),
        (["mini-batch", "--bound", "R30", "--full"], "need more than 63 bits at this bound"),
        (["mini-batch", "--itf", "/nowhere/x"], "/nowhere/x: cannot be written (No such file"),
        (
            ["mini-batch", "--bound", "C1", "--property", "all-end", "--itf", "x"],
            "nothing to write",
        ),
        (["mini-batch", "--max-states", "many"], "many"),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line(capsys, arguments, message):
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1


def test_property_at_fault_is_one_line(capsys, monkeypatch):
    bad = replace(PROMISED, name="bad", kind="invariant", predicate=lambda s: 1 // 0)
    monkeypatch.setattr(
        sys.modules[__name__], "LEAKY", replace(LEAKY, properties=(replace(bad, promised_by=None),))
    )
    code, _, err = run(capsys, "leaky")
    assert code == 2
    assert "property 'bad' raised ZeroDivisionError" in err
    assert "State(requests=" in err


def test_nothing_goes_to_stderr_when_it_is_no_terminal():
    done = subprocess.run(
        [sys.executable, "-m", "batchproof", "check", "mini-batch", "--bound", "C1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")

"""`batchproof compare`: what it prints, what it draws, and how it ends."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from batchproof.sched.cli import run_cli
from batchproof.sched.commands import compare as command
from batchproof.sched.policy import POLICIES

SMALL = ("compare", "--requests", "24", "--users", "3", "--jobs", "1", "--latency", "linear")
TWO_RUNS = (*SMALL, "--policy", "fair-lane,static", "--load", "1.2")


@pytest.fixture
def batchproof(capsys):
    """Run a command; return its exit code and what it printed."""

    def call(*argv):
        code = run_cli(list(argv))
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def trace_file(tmp_path):
    def write(*rows, name="trace.csv"):
        path = tmp_path / name
        path.write_text("\n".join(("TIMESTAMP,ContextTokens,GeneratedTokens", *rows, "")))
        return str(path)

    return write


def a_trace(trace_file, output=9, **options):
    rows = (f"2023-11-16 18:00:{second:02},{20 + second},{output}" for second in range(20))
    return trace_file(*rows, **options)


def test_the_table_shows_the_figures_of_every_run(batchproof):
    code, out, err = batchproof(*TWO_RUNS, "--slo", "ttft_p50=200ms")
    assert (code, err) == (0, "")
    result = json.loads(batchproof(*TWO_RUNS, "--slo", "ttft_p50=200ms", "--json")[1])
    rate = result["capacities"][0]["requests_per_s"]
    assert f"generated: 24 requests of 3 users, latency model linear: load 1 is {rate:.2f}" in out
    lines = [line.split() for line in out.splitlines()]
    for run in result["runs"]:
        row = next(line for line in lines if line[:2] == ["1.2", run["policy"]])
        slowdown = run["ttft_slowdown"]
        assert row[2:] == [
            f"{run['throughput_of_limit']:.1%}",
            *(f"{run['ttft_s'][name]:,.3f}" for name in ("p50", "p99")),
            *(f"{run['tbt_s'][name] * 1e3:,.1f}" for name in ("p50", "p99")),
            f"{slowdown['median']:,.2f}",
            f"{slowdown['max']:,.2f}",
            f"({slowdown['of']})",
            f"{slowdown['jain']:.3f}",
            f"{run['preemptions']:,}",
            f"{run['recomputed_tokens']:,}",
        ]
    for rate in result["slo_rates"]:
        row = next(line for line in lines if line[:3] == ["generated", "linear", rate["policy"]])
        assert row[3:5] == [f"{rate['requests_per_s']:.2f}", f"{rate['load']:.2f}"]


def test_an_slo_that_no_rate_meets_is_said(batchproof):
    out = batchproof(*TWO_RUNS, "--slo", "ttft_p50=1us")[1]
    assert out.count(" none ") == 2


def test_json_has_all_that_was_promised(batchproof):
    result = json.loads(batchproof(*TWO_RUNS, "--json")[1])
    assert result["complete"]
    assert result["workloads"][0]["requests"] == 24
    assert {
        "workload", "latency", "load", "policy", "requests_per_s", "throughput_tokens_per_s",
        "limit_tokens_per_s", "throughput_of_limit", "ttft_s", "tbt_s", "latency_s",
        "ttft_slowdown", "latency_slowdown", "preemptions", "recomputed_tokens", "users",
    } == set(result["runs"][0]) - {"ticks", "elapsed_s"}  # fmt: skip
    assert [run["policy"] for run in result["runs"]] == ["fair-lane", "static"]
    assert set(result["runs"][0]["users"]) == {"u1", "u2", "u3"}


def test_several_traces_and_the_generated_workload_in_one_table(batchproof, trace_file):
    azure = a_trace(trace_file)
    mooncake = azure.replace(".csv", ".jsonl")
    with open(mooncake, "w") as file:
        for n in range(9):
            file.write(f'{{"timestamp": {n * 1000}, "input_length": 33, "output_length": 4}}\n')
    argv = [*TWO_RUNS, "--json", azure, "generated", mooncake]
    result = json.loads(batchproof(*argv)[1])
    facts = [(w["name"], w["source"], w["requests"]) for w in result["workloads"]]
    assert facts == [  # two stems are alike, so that their paths tell them apart
        (azure, "azure-csv", 20),
        ("generated", "generated", 24),
        (mooncake, "mooncake-jsonl", 9),
    ]
    assert len(result["runs"]) == 3 * 2


def test_outputs_of_a_trace_are_as_long_as_it_says(batchproof, trace_file):
    result = json.loads(batchproof(*TWO_RUNS, "--json", a_trace(trace_file))[1])
    assert result["workloads"][0]["output_tokens"] == 20 * 9


def test_where_nothing_has_two_tokens_there_is_no_tbt(batchproof, trace_file):
    code, out, err = batchproof(*TWO_RUNS, a_trace(trace_file, output=1))
    assert (code, err) == (0, "")
    assert next(line for line in out.splitlines() if "static" in line).split()[5:7] == ["-", "-"]


def test_what_can_never_fit_is_said_to_be_left_out(batchproof, trace_file):
    rows = (f"2023-11-16 18:00:0{n},{length},9" for n, length in enumerate((9000, 10, 10)))
    out = batchproof(*TWO_RUNS, trace_file(*rows))[1]
    assert "trace: 2 requests of 2 users (1 that could not fit even alone left out)" in out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--policy", "fair-lan"], "unknown policy 'fair-lan': did you mean 'fair-lane'?"),
        (["--policy", "static,"], "unknown policy ''"),
        (["--latency", "b200"], "unknown latency model 'b200': there are: linear, a100"),
        (["--load", "0"], "load is 0.0, not a number above 0"),
        (["--load", "0.5,-1"], "load is -1.0, not a number above 0"),
        (["--load", "nan"], "load is nan, not a number above 0"),
        (["--load", "high"], "load 'high' is not a number; give loads like 0.5,0.8,1.0,1.2"),
        (["--slo", "fast"], "SLO 'fast' cannot be parsed; write it like tbt_p99=100ms,ttft_p50=2s"),
        (["--slo", "ttft_p50=2s,"], "SLO '' cannot be parsed"),
        (["--slo", "tpt_p50=2s"], "figure 'tpt' is unknown; there are: ttft, tbt, latency"),
        (["--slo", "ttft_p98=2s"], "statistic 'p98' is unknown; there are: p50, p90, p99"),
        (["--slo", "ttft_p50=2"], "'2' is not a number with a unit of us, ms, s"),
        (["--slo", "ttft_p50=2h"], "unit 'h' is unknown; there are: us, ms, s"),
        (["--slo", "ttft_p50=0s"], "0s is not a time above 0"),
        (["--requests", "0"], "requests is 0, not an int of at least 1"),
        (["--requests", "1"], "generated: all 1 requests arrive at the same moment"),
        (["--users", "0"], "users is 0"),
        (["--jobs", "0"], "jobs is 0, not an int of at least 1"),
        (["--max-kv-blocks", "1"], "generated: is an empty workload: none of its 400 requests"),
        (["nowhere.csv"], "nowhere.csv: there is no such file"),
        (["--plot", "/dev/null/plots"], "--plot /dev/null/plots: cannot be made (Not a directory)"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line(batchproof, argv, message):
    code, out, err = batchproof("compare", *argv)
    assert (code, out) == (2, "")
    assert err.startswith("batchproof: ")
    assert err.count("\n") == 1
    assert message in err


@pytest.mark.parametrize("rows", [(), ("2023-11-16 18:00:00,9000,1",)], ids=["no row", "too long"])
def test_an_empty_workload_is_an_error(batchproof, trace_file, rows):
    code, out, err = batchproof(*SMALL, trace_file(*rows))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "has no requests" in err or "is an empty workload" in err


def test_plots_are_the_same_bytes_every_time(batchproof, tmp_path):
    digests = []
    for folder in (tmp_path / "one" / "deep", tmp_path / "two"):
        argv = (*SMALL, "--policy", "static", "--load", "1", "--plot", str(folder))
        assert batchproof(*argv)[0] == 0
        files = sorted(folder.iterdir())
        digests.append({f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in files})
    assert digests[0] == digests[1]
    assert set(digests[0]) == {
        f"generated-linear-{name}.{kind}"
        for name in ("throughput", "tbt-p99", "ttft-by-user", "share-over-time")
        for kind in ("svg", "png")
    }
    svg = (tmp_path / "two" / "generated-linear-throughput.svg").read_text()
    assert "<dc:date>" not in svg
    assert (tmp_path / "two" / "generated-linear-tbt-p99.png").read_bytes().startswith(b"\x89PNG")


def test_every_policy_has_a_look_of_its_own():
    from batchproof.sched.report.plots import POLICY_LOOKS

    assert set(POLICY_LOOKS) == set(POLICIES)
    for place in (0, 1):  # told apart by colour, and without it
        assert len({look[place] for look in POLICY_LOOKS.values()}) == len(POLICIES)


@pytest.mark.parametrize(
    ("wanted", "heights"),
    [
        ([0.1, 0.5], [0.1, 0.5]),
        ([0.1, 0.11, 0.12], [0.1, 0.2, 0.3]),
        ([0.95, 0.97, 1.0], [0.8, 0.9, 1.0]),
    ],
)
def test_labels_are_moved_apart_and_stay_inside(wanted, heights):
    from batchproof.sched.report.plots import apart

    assert apart(wanted, gap=0.1) == pytest.approx(heights)


def test_without_matplotlib_plots_are_refused_before_anything_is_run(
    batchproof, monkeypatch, tmp_path
):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "batchproof.sched.report.plots", raising=False)
    monkeypatch.setattr(command, "compare_policies", lambda *_, **__: pytest.fail("it was run"))
    code, out, err = batchproof(*SMALL, "--plot", str(tmp_path))
    assert (code, out) == (2, "")
    assert err == "batchproof: --plot needs matplotlib: pip install 'batchproof[plot]'\n"


def test_matplotlib_is_imported_for_plots_alone():
    code = (
        "import sys; from batchproof.sched.cli import run_cli; "
        f"run_cli({[*SMALL, '--policy', 'static', '--load', '1']!r}); "
        "sys.exit('matplotlib' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)


def test_ctrl_c_ends_it_with_what_there_is():
    argv = ["compare", "--requests", "4000", "--policy", "static", "--load", "1", "--jobs", "2"]
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; print('up', flush=True)\n" + RUN_CLI, *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    assert process.stdout.readline() == "handled\n"
    time.sleep(0.2)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (3, "")
    assert out.endswith("interrupted: these are the results so far\n")


RUN_CLI = """
from contextlib import contextmanager
from batchproof.sched.commands import compare, terminal

@contextmanager
def told():
    with terminal.until_interrupted() as stop:
        print("handled", flush=True)
        yield stop

if __name__ == "__main__":
    compare.until_interrupted = told
    from batchproof.sched.cli import run_cli
    sys.exit(run_cli(sys.argv[1:]))
"""

"""`batchproof run`: what it prints, as text and as JSON, and how it ends."""

import gzip
import json
import os
import pty
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from batchproof import Limits, Scheduler
from batchproof.sched.cli import run_cli
from batchproof.sched.metrics import REQUEST_ENDS
from batchproof.sched.request_gen import PoissonWorkload

CONVERSATION = Path(__file__).parents[3] / "shared/traces/AzureLLMInferenceTrace_conv.csv"

SMALL = ("run", "--requests", "60", "--rate", "30")
STALL_FREE = (*SMALL, "--policy", "stall-free")


@pytest.fixture
def batchproof(capsys):
    """Run a command; return its exit code and what it printed."""

    def call(*argv):
        code = run_cli(list(argv))
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def trace_file(tmp_path):
    def write(*rows):
        path = tmp_path / "trace.csv"
        header = "TIMESTAMP,ContextTokens,GeneratedTokens"
        path.write_text("\n".join((header, *(f"2023-11-16 {row}" for row in rows), "")))
        return str(path)

    return write


def json_of(batchproof, *argv, code=0):
    exit_code, out, err = batchproof(*argv, "--json")
    assert (exit_code, err) == (code, "")
    return json.loads(out)


def test_the_default_run_is_worth_looking_at(batchproof):
    result = json_of(batchproof, "run")
    assert result["requests"] == {
        "submitted": 2000,
        "finished": 2000,
        "cancelled": 0,
        "expired": 0,
        "refused": 0,
    }
    assert len(result["users"]) == 8
    assert result["preemptions"] > 100
    assert result["kv"]["blocks_max"] == 256


def test_json_is_one_object_with_all_that_was_promised(batchproof):
    result = json_of(batchproof, *SMALL)
    assert set(result["requests"]) == {"submitted", *REQUEST_ENDS}
    assert set(result["metrics"]) == {
        "throughput_tokens_per_sec",
        "avg_latency_s",
        "p99_latency_s",
        "gpu_utilization",
    }
    for name in ("ttft_s", "tbt_s", "latency_s"):
        assert set(result[name]) == {"p50", "p90", "p99", "mean", "max"}
    assert result["limits"] == asdict(Limits())
    assert {"kv", "users", "policy", "seed", "version"} <= set(result)


def test_the_figures_are_those_of_the_scheduler(batchproof):
    result = json_of(batchproof, "run", "--requests", "1", "--eos-rate", "0")
    _, request = next(iter(PoissonWorkload(requests=1)))
    ticks = -(-len(request.prompt) // 64) + request.max_tokens - 1
    assert result["ticks"] == ticks
    assert result["latency_s"]["max"] == pytest.approx(ticks * 0.006)
    assert result["tokens"]["output"] == request.max_tokens


@pytest.mark.parametrize("options", [("--json",), ()], ids=["json", "table"])
def test_the_same_seed_prints_the_same_bytes(batchproof, options):
    first = batchproof(*SMALL, "--seed", "5", *options)
    assert batchproof(*SMALL, "--seed", "5", *options) == first
    assert batchproof(*SMALL, "--seed", "6", *options) != first


def test_the_table_shows_the_figures_and_every_user(batchproof):
    code, out, err = batchproof(*SMALL, "--users", "3")
    result = json_of(batchproof, *SMALL, "--users", "3")
    assert (code, err) == (0, "")
    assert "submitted 60 = finished 60 + cancelled 0 + expired 0 + refused 0\n" in out
    assert f"throughput          {result['metrics']['throughput_tokens_per_sec']:.1f} tok" in out
    latency = next(line.split() for line in out.splitlines() if line.startswith("latency"))
    names = ("p50", "p90", "p99", "mean", "max")
    assert latency[1:] == [f"{result['latency_s'][name]:.3f}" for name in names]
    for user, figures in result["users"].items():
        line = next(line.split() for line in out.splitlines() if line.startswith(user))
        assert line[1:5] == [
            f"{figures[name]:,}" for name in ("submitted", "finished", "refused", "output_tokens")
        ]
    assert "Traceback" not in out


def test_many_users_are_cut_in_the_table_and_whole_in_json(batchproof):
    options = ("run", "--requests", "40", "--users", "20", "--assign", "round-robin")
    out = batchproof(*options)[1]
    assert "... and 4 more users: --json has all" in out
    assert ("u16 " in out, "u17 " in out) == (True, False)
    assert len(json_of(batchproof, *options)["users"]) == 20


def test_what_can_never_fit_is_refused_and_counted(batchproof, trace_file):
    path = trace_file("18:00:00,10,5", "18:00:01,4000,98", "18:00:02,4000,97")
    result = json_of(batchproof, "run", path)
    assert result["requests"] == {
        "submitted": 3,
        "finished": 2,
        "cancelled": 0,
        "expired": 0,
        "refused": 1,
    }
    assert result["refusals"] == {"infeasible": 1}
    out = batchproof("run", path)[1]
    assert "submitted 3 = finished 2 + cancelled 0 + expired 0 + refused 1\n" in out
    assert "refused 1: could not fit even alone in 256 blocks\n" in out


def test_lengths_of_a_trace_are_what_the_trace_says(batchproof, trace_file):
    path = trace_file(*(f"18:00:{second:02},20,100" for second in range(60)))
    result = json_of(batchproof, "run", path)
    assert result["finish_reasons"] == {"eos": 0, "length": 60, "cancelled": 0, "expired": 0}
    assert result["tokens"]["output"] == 6000
    assert json_of(batchproof, "run", path, "--eos-rate", "1")["tokens"]["output"] == 60


def test_nothing_is_a_figure_where_nothing_happened(batchproof, trace_file):
    result = json_of(batchproof, "run", trace_file("18:00:00,9000,1"))
    assert result["latency_s"] == dict.fromkeys(("p50", "p90", "p99", "mean", "max"))
    assert result["metrics"]["avg_latency_s"] is None
    assert " - " in batchproof("run", trace_file("18:00:00,9000,1"))[1]


def test_idle_time_passes_at_once(batchproof, trace_file):
    result = json_of(batchproof, "run", trace_file("01:00:00,10,1", "23:00:00,10,1"))
    assert result["ticks"] == 2
    assert result["elapsed_s"] == pytest.approx(22 * 3600 + 0.006)
    assert result["ttft_s"]["max"] == pytest.approx(0.006)


def test_a_request_that_arrives_within_a_tick_waits_for_its_end(batchproof, trace_file):
    rows = ("18:00:00.000,10,1", "18:00:00.002,10,1")
    result = json_of(batchproof, "run", trace_file(*rows))
    assert result["ttft_s"]["max"] == pytest.approx(0.006 - 0.002 + 0.006)


def test_time_scale_is_load(batchproof):
    slow = json_of(batchproof, *SMALL, "--time-scale", "10")
    fast = json_of(batchproof, *SMALL, "--time-scale", "0.01")
    assert slow["queue_time_s"]["mean"] < fast["queue_time_s"]["mean"]


def test_bad_rows_are_named_or_counted(batchproof, trace_file):
    path = trace_file("18:00:00,10,5", "18:00:01,ten,5", "18:00:02,10,5")
    code, out, err = batchproof("run", path)
    assert (code, out) == (2, "")
    assert err.startswith(f"batchproof: {path}: line 3, column 2 (ContextTokens): found 'ten'")
    result = json_of(batchproof, "run", path, "--skip-bad-rows")
    assert result["workload"]["bad_rows"] == 1
    assert result["requests"]["submitted"] == 2
    assert "bad rows skipped: 1" in batchproof("run", path, "--skip-bad-rows")[1]


@pytest.mark.parametrize(
    ("options", "limits"),
    [
        (("--max-kv-blocks", "128", "--chunk-size", "32"), Limits(128, chunk_size=32)),
        (("--max-waiting-tokens", "99999"), Limits(max_waiting_tokens=99_999)),
        (("--token-budget", "100", "--max-batch-size", "4"), Limits(256, 16, 64, 100, 4)),
    ],
)
def test_limits_are_options(batchproof, options, limits):
    result = json_of(batchproof, *SMALL, *options)
    assert Limits(**result["limits"]) == limits
    assert result["batch"]["sequences_max"] <= limits.max_batch_size
    assert result["kv"]["blocks"] == limits.max_kv_blocks


def test_policy_admission_and_latency_are_options(batchproof):
    plain = json_of(batchproof, *SMALL)
    static = json_of(batchproof, *SMALL, "--policy", "static")
    assert (static["policy"], static["admission"]) == ("static", "guaranteed_no_evict")
    assert static["metrics"] != plain["metrics"]
    sure = json_of(batchproof, "run", "--admission", "guaranteed_no_evict")
    assert (sure["admission"], sure["preemptions"]) == ("guaranteed_no_evict", 0)
    a100 = json_of(batchproof, *SMALL, "--latency", "a100-llama3-8b")
    assert a100["metrics"] != plain["metrics"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--policy", "magic"), "policy 'magic' is unknown; there are: "),
        (("--latency", "b200"), "latency model 'b200' is unknown; there are: linear, "),
        (("--max-kv-blocks", "0"), "limits: max_kv_blocks=0 is not an int of at least 1"),
        (("--max-kv-blocks", "9" * 11), "the simulated GPU has room for 67108864"),
        (("--eos-rate", "1.5"), "eos_rate is 1.5, not a fraction from 0 to 1"),
        (("--rate", "nan"), "rate is nan, not a number above 0"),
        (("--seed", "-1"), "seed is -1, not an int from 0 to "),
        (("--users", "0"), "users is 0, not an int of at least 1"),
        (("--limit", "5"), "--limit is for a FILE, and none was given"),
        (("--skip-bad-rows",), "--skip-bad-rows is for a FILE, and none was given"),
        (("t.csv", "--rate", "5"), "--rate is for a generated workload, and a FILE was given"),
        (("t.csv", "--requests", "5"), "--requests is for a generated workload, and a FILE was"),
        (("none.csv",), "none.csv: there is no such file"),
        ((os.curdir,), ".: is a directory; give a file"),
        (("--record", "no/such/folder/x"), "no/such/folder/x: cannot be written (No such file"),
        (("--record", os.curdir), ".: exists and is not a regular file; give another name"),
        (("--record", os.devnull), "exists and is not a regular file; give another name"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_run_is_one_line(batchproof, options, message):
    code, out, err = batchproof("run", *options)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("batchproof: ")
    assert err.count("\n") == 1


@pytest.fixture
def ctrl_c_at(monkeypatch):
    """Press Ctrl-C when so many requests of a generated workload have arrived."""

    def press(number, times=1):
        arrive = PoissonWorkload.__iter__

        def arrivals(self):
            for count, arrival in enumerate(arrive(self), start=1):
                if count == number:
                    for _ in range(times):
                        signal.raise_signal(signal.SIGINT)
                yield arrival

        monkeypatch.setattr(PoissonWorkload, "__iter__", arrivals)

    return press


def test_ctrl_c_ends_with_the_results_so_far(batchproof, ctrl_c_at):
    ctrl_c_at(30)
    before = signal.getsignal(signal.SIGINT)
    result = json_of(batchproof, *STALL_FREE, code=3)
    requests = result["requests"]
    assert not result["complete"]
    assert requests["submitted"] == 29
    assert result["unfinished"] > 0
    assert requests["submitted"] == requests["finished"] + result["unfinished"]
    assert result["lost"] == 0
    assert signal.getsignal(signal.SIGINT) == before
    code, out, err = batchproof(*STALL_FREE)
    assert (code, err) == (3, "")
    assert "interrupted: these are the results so far" in out
    assert f"refused 0 + unfinished {result['unfinished']}\n" in out


def test_ctrl_c_twice_ends_at_once(batchproof, ctrl_c_at, tmp_path):
    ctrl_c_at(30, times=2)
    recording = tmp_path / "run.jsonl"
    assert batchproof(*SMALL, "--record", str(recording)) == (3, "", "batchproof: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_a_lost_request_is_said(batchproof, monkeypatch):
    submit = Scheduler.submit

    def forgetful(self, request, *, submitted_at=None):
        if request.request_id != "r7":
            submit(self, request, submitted_at=submitted_at)

    monkeypatch.setattr(Scheduler, "submit", forgetful)
    code, out, err = batchproof(*SMALL)
    assert code == 1
    assert "submitted 59 = finished 59 + cancelled 0 + expired 0 + refused 0 + LOST 1\n" in out
    assert err == "batchproof: 1 requests were lost: please report it\n"


def test_progress_is_shown_on_a_terminal_only_and_never_in_the_results(batchproof):
    expected = batchproof("run", "--requests", "300")[1]
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "batchproof", "run", "--requests", "300"],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
        timeout=60,
        check=True,
    )
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode(errors="replace")  # the read may end within a character
    os.close(ours)
    assert done.stdout.decode() == expected
    assert "ticks" in shown


def test_a_compressed_trace_runs_as_the_plain_one(batchproof, trace_file, tmp_path):
    path = trace_file("18:00:00,100,50", "18:00:01,200,20")
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(Path(path).read_bytes()))
    assert batchproof("run", str(packed)) == batchproof("run", path)


def conversation():
    if not CONVERSATION.exists():
        pytest.skip("the Azure trace is not here: docs/how-to/run-a-trace.md says where to get it")
    return str(CONVERSATION)


def test_the_beginning_of_the_conversation_trace_runs_to_its_end(batchproof):
    path = conversation()
    result = json_of(batchproof, "run", path, "--limit", "400")
    rows = [line.split(",") for line in Path(path).read_text().splitlines()[1:401]]
    fitting = [int(output) for _, prompt, output in rows if int(prompt) + int(output) <= 4097]
    assert result["requests"] == {
        "submitted": 400,
        "finished": len(fitting),
        "cancelled": 0,
        "expired": 0,
        "refused": 400 - len(fitting),
    }
    assert result["tokens"]["output"] == sum(fitting)
    assert result["lost"] == 0


@pytest.mark.deep
def test_the_whole_conversation_trace_runs_to_its_end(batchproof):
    result = json_of(batchproof, "run", conversation())
    assert result["requests"] == {
        "submitted": 19_366,
        "finished": 17_755,
        "cancelled": 0,
        "expired": 0,
        "refused": 1_611,
    }
    assert result["tokens"]["output"] == 3_977_321
    assert (result["lost"], result["unfinished"], result["complete"]) == (0, 0, True)


def test_a_run_that_breaks_a_rule_stops_and_names_it(batchproof, monkeypatch):
    """The monitor is on: a leak shows in the tick in which it happens."""
    from batchproof.sched.blocks import BlockPool

    give = BlockPool.give
    monkeypatch.setattr(BlockPool, "give", lambda pool, blocks: give(pool, blocks[1:]))
    code, out, err = batchproof("run", "--requests", "20")
    assert (code, out) == (1, "")
    assert "blocks-conserved: " in err
    assert "Traceback" not in err

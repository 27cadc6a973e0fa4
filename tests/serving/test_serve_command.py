"""`batchproof serve` as a process: how it starts, drains and ends."""

import signal
import socket
import subprocess
import sys
import time

import openai
import pytest
from serving.serve_process import serve_process

from batchproof.sched.cli import run_cli

PACED = ("--pace", "1", "--eos-rate", "0")
CUT_SHORT = (
    "batchproof: requests were cut short: --drain-timeout was over, or a second signal came\n"
)
ASKED = {"model": "simulated", "prompt": "Hello"}


def client_of(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, timeout=30)


def ask_for_ever(client: openai.OpenAI) -> None:
    while True:
        client.models.list()
        time.sleep(0.02)


def test_sigterm_drains_what_is_live_finishes_and_no_more_is_accepted() -> None:
    with serve_process(*PACED) as served, client_of(served.url) as client:
        stream = client.completions.create(**ASKED, max_tokens=300, stream=True)
        first = next(iter(stream)).choices[0].text
        served.process.send_signal(signal.SIGTERM)
        with pytest.raises(openai.APIConnectionError):
            ask_for_ever(client)
        assert served.process.poll() is None, "it ended at once"
        rest = list(stream)
        ended = served.end()
    assert len((first + "".join(chunk.choices[0].text for chunk in rest)).split()) == 300
    assert rest[-1].choices[0].finish_reason == "length"
    assert (ended.code, ended.err) == (0, "")
    assert ended.account["finished"] == ended.account["submitted"] == 1
    assert ended.account["faults"] == []


def test_what_is_live_when_the_time_to_drain_is_over_is_told_and_cut_short() -> None:
    with serve_process(*PACED, "--drain-timeout", "0.3") as served, client_of(served.url) as client:
        assert served.whom == "everybody"
        stream = client.completions.create(**ASKED, max_tokens=4000, stream=True)
        next(iter(stream))
        served.process.send_signal(signal.SIGTERM)
        started_at = time.monotonic()
        with pytest.raises(openai.APIError, match="the server stopped before the request"):
            list(stream)
        assert time.monotonic() - started_at < 8, "undisturbed it takes 24 seconds"
        ended = served.end()
    assert ended.code == 3
    assert ended.err == CUT_SHORT
    assert ended.account["cancelled"] == ended.account["submitted"] == 1
    assert ended.account["faults"] == []


def test_a_second_signal_does_not_wait_for_what_is_live() -> None:
    with serve_process(*PACED) as served, client_of(served.url) as client:
        stream = client.completions.create(**ASKED, max_tokens=4000, stream=True)
        next(iter(stream))
        served.process.send_signal(signal.SIGINT)
        with pytest.raises(openai.APIConnectionError):
            ask_for_ever(client)
        served.process.send_signal(signal.SIGINT)
        with pytest.raises(openai.APIError, match="the server stopped before the request"):
            list(stream)
        ended = served.end()
    assert ended.code == 3
    assert ended.err == CUT_SHORT


def test_an_idle_server_ends_at_once_and_reads_keys_from_the_environment(monkeypatch) -> None:
    monkeypatch.setenv("BATCHPROOF_API_KEY", "sk-one sk-two")
    with serve_process() as served:
        assert served.whom == "who has an API key"
        with client_of(served.url) as client, pytest.raises(openai.AuthenticationError):
            client.models.list()
        ended = served.end(signal.SIGTERM)
    assert (ended.code, ended.err, ended.account["submitted"]) == (0, "", 0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--max-waiting-requests", "0"], "limits: max_waiting_requests=0 is not an int"),
        (["--drain-timeout", "inf"], "--drain-timeout is inf, not a number from 0 to 86400"),
        (["--port", "-1"], "--port is -1, not a number from 0 to 65535"),
        (["--port", "70000"], "--port is 70000, not a number from 0 to 65535"),
        (["--pace", "0"], "pace is 0.0, not a positive number"),
        (["--api-key", ""], "an API key is empty: it would let in who has none"),
        (["--policy", "best"], "policy 'best' is unknown"),
        (
            ["--model", "/a/path"],
            "model '/a/path': no folder that holds a config.json; give",
        ),
        (["--max-kv-blocks", "0"], "limits: max_kv_blocks=0 is not"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(options: list[str], says: str, capsys) -> None:
    assert run_cli(["serve", *options]) == 2
    printed = capsys.readouterr()
    assert says in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)


def test_a_model_without_what_runs_it_is_the_command_to_type(tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "config.json").write_text("{}")
    for name in ("torch", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "batchproof.sched.adapters.huggingface_model", raising=False)
    assert run_cli(["serve", "--model", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert "pip install 'batchproof[transformers]'" in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)


def test_an_address_that_is_taken_is_named(capsys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run_cli(["serve", "--port", str(port)]) == 2
    printed = capsys.readouterr()
    assert f"cannot listen on 127.0.0.1 port {port}: [Errno" in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)


def python(*lines: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_without_the_extra_it_says_what_to_install() -> None:
    run = python(
        "import sys",
        "sys.modules['fastapi'] = None",
        "from batchproof.sched.cli import run_cli",
        "sys.exit(run_cli(['serve']))",
    )
    assert run.returncode == 2
    assert run.stderr == "batchproof: serve needs fastapi: pip install 'batchproof[serve]'\n"


def test_the_package_and_the_command_line_import_no_server() -> None:
    run = python(
        "import sys, batchproof, batchproof.sched.cli",
        "print({'fastapi', 'uvicorn', 'prometheus_client', 'pydantic'} & set(sys.modules))",
    )
    assert run.stdout == "set()\n"

"""docs/how-to/serve.md: its server is started, its client is run, its tables are complete."""

import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from batchproof.sched.serving.app import BODY_BYTES_MAX
from batchproof.sched.serving.engine import TICK_TRIES
from batchproof.sched.serving.metrics import METRICS
from batchproof.sched.serving.openai_types import NEUTRAL, CompletionRequest

DOCUMENT = Path(__file__).parents[2] / "docs/how-to/serve.md"
TEXT = DOCUMENT.read_text()


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    return found


def wait_until_free(port: int) -> None:
    """Wait until nobody, such as this test in another checkout, listens on the document's port."""
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(0.2)
    pytest.fail(f"port {port} is taken")


def test_the_server_and_the_client_of_the_document_work(capsys) -> None:
    command = shlex.split(block("sh"))
    assert command[:2] == ["batchproof", "serve"]
    wait_until_free(int(command[command.index("--port") + 1]))
    command[0] = str(Path(sys.executable).parent / "batchproof")
    namespace: dict[str, Any] = {}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stderr is not None
            assert server.stderr.readline().startswith("serving simulated to everybody on")
            exec(compile(block("py"), "serve.md", "exec"), namespace)
            namespace["client"].close()
            server.send_signal(signal.SIGTERM)
            account, errors = server.communicate(timeout=30)
        finally:
            server.kill()
    assert (server.returncode, errors) == (0, "")
    shape = re.sub(r"\d+", r"\\d+", re.escape(block("text").strip()))
    assert re.fullmatch(shape, account.strip()), account
    words, _, rest = capsys.readouterr().out.partition("\n")
    assert len(words.split()) == 5
    assert rest.partition("\n")[2].startswith(words), "a longer answer begins as the shorter one"


def test_the_document_names_every_metric_and_no_other() -> None:
    named = set(
        re.findall(
            r"`(\w+)`", TEXT[TEXT.index("| metric |") : TEXT.index("## Serve a transformers model")]
        )
    )
    named -= {"finished_reason", "reason", "stop", "length", "abort", "waiting"}
    named -= {"invalid", "infeasible", "queue_full"}
    counters = {"num_preemptions", "prompt_tokens", "generation_tokens", "request_success"}
    counters |= {"requests_refused", "failed_ticks"}
    exposed = {f"{name}_total" if name in counters else name for name in METRICS}
    assert named == exposed - {"cache_config"} | {"cache_config_info"}


def test_the_document_names_every_field_of_a_request() -> None:
    penalties = {"frequency_penalty", "presence_penalty"}
    for name in {*CompletionRequest.model_fields, *NEUTRAL} - penalties - {"model"}:
        assert f"`{name}`" in TEXT or f"`{name}." in TEXT, name


def test_the_numbers_in_the_document_are_those_of_the_code() -> None:
    assert f"a body of more than {BODY_BYTES_MAX // 2**20} MiB" in TEXT
    assert f"failed {['', 'one', 'two', 'three'][TICK_TRIES]} times in a row" in TEXT

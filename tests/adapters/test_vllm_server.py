"""vLLM's API server, in a process of its own, on the verified scheduler."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from adapters.tiny_model import llama

pytest.importorskip("torch", reason="make test-engines runs it: torch is not here")
pytest.importorskip("vllm", reason="make test-engines runs it: vllm is not here")

pytestmark = pytest.mark.engines

HOST = "127.0.0.1"
START_S = 300
"""After this long a server that has not started will not."""
OPTIONS = {
    "--scheduler-cls": "batchproof.sched.adapters.vllm.BatchproofScheduler",
    "--additional-config": json.dumps({"batchproof": {"policy": "fair-lane"}}),
    "--block-size": "32",
    "--dtype": "float32",
    "--max-model-len": "256",
    "--max-num-batched-tokens": "256",
    "--max-num-seqs": "4",
    "--num-gpu-blocks-override": "13",
}
FLAGS = ("--no-async-scheduling", "--no-enable-prefix-caching", "--enforce-eager")
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",  # the engine names a scheduler that is not its own
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """Yield the URL of a server of the tiny model, once it is healthy; then it is stopped."""
    with socket.create_server((HOST, 0)) as probe:
        port = probe.getsockname()[1]
    # The module, not the command `vllm serve`: that looks up the version of a package `vllm`,
    # which the one of the CPU build, `vllm-cpu`, is not.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += ["--host", HOST, "--port", str(port), "--skip-tokenizer-init", *FLAGS]
    command += [word for option in OPTIONS.items() for word in option]
    log = folder / "server.log"
    with (
        open(log, "w") as out,
        subprocess.Popen(
            command, env={**os.environ, **ENVIRONMENT}, stdout=out, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            url = f"http://{HOST}:{port}"
            deadline = time.monotonic() + START_S
            while not is_healthy(url):
                assert process.poll() is None, log.read_text()[-3000:]
                assert time.monotonic() < deadline, log.read_text()[-3000:]
                time.sleep(1)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


def is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def complete(url: str, **body: Any) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def alone(prompt: list[int], max_tokens: int) -> list[int]:
    """Return what `generate()` makes of a prompt on its own."""
    import torch

    ids = torch.tensor([prompt])
    with torch.no_grad():
        out = llama().generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=max_tokens,
            pad_token_id=0,
        )
    return list(out[0, len(prompt) :].tolist())


def test_a_completion_over_http_is_that_of_generate(tmp_path) -> None:
    llama().save_pretrained(tmp_path)
    prompt = list(range(3, 100))
    with server(tmp_path) as url:
        answer = complete(
            url,
            model=str(tmp_path),
            prompt=prompt,
            max_tokens=8,
            temperature=0,
            return_token_ids=True,
            vllm_xargs={"user_id": "ann"},
        )
        log = (tmp_path / "server.log").read_text()
    (choice,) = answer["choices"]
    assert choice["token_ids"] == alone(prompt, 8)
    assert choice["finish_reason"] == "length"
    assert answer["usage"]["prompt_tokens"] == len(prompt)
    assert "Using custom scheduler class batchproof.sched.adapters.vllm.BatchproofScheduler" in log

"""The endpoint, as the official client sees it, and as sockets do."""

import gc
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families
from serving.running_service import RunningService, expected_text, running, until
from support.builders import FailingExecutor

from batchproof import Limits, SimulatedGPU
from batchproof.sched.serving import server
from batchproof.sched.serving.app import BODY_BYTES_MAX
from batchproof.sched.serving.completions import Call
from batchproof.sched.serving.models import ServedModel
from batchproof.sched.serving.text import PseudoWords

PATH = "/v1/completions"
BODY = {"model": "simulated", "prompt": [1, 2, 3]}


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    """A server that nobody loads, on a model whose EOS comes as it likes."""
    with running() as running_service:
        yield running_service


@pytest.fixture(scope="module")
def client(service: RunningService) -> Iterator[openai.OpenAI]:
    with service.client() as one:
        yield one


@pytest.fixture(scope="module")
def slow() -> Iterator[RunningService]:
    """A server at a GPU's own pace, for one request at a time; two more may wait."""
    limits = Limits(max_batch_size=1, max_waiting_requests=2)
    with running(limits, pace=1.0, eos_rate=0) as running_service:
        yield running_service


# Answers


def test_a_completion_is_what_the_model_answers(service: RunningService, client) -> None:
    answer = client.completions.create(model="simulated", prompt="Hello", max_tokens=20)
    prompt = PseudoWords().encode("Hello")
    assert answer.choices[0].text == expected_text(service, prompt, 20) != ""
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.model_dump(exclude_none=True) == {
        "prompt_tokens": 5,
        "completion_tokens": 20,
        "total_tokens": 25,
    }
    assert (answer.object, answer.model) == ("text_completion", "simulated")


def test_without_a_limit_a_completion_has_16_tokens(client) -> None:
    for limit in ({}, {"max_tokens": None}):
        answer = client.completions.create(model="simulated", prompt="Hello", **limit)
        assert answer.usage.completion_tokens == 16


def test_a_completion_that_ends_by_eos_says_stop(service: RunningService, client) -> None:
    answer = client.completions.create(model="simulated", prompt=[7], max_tokens=1000)
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens < 1000
    assert answer.choices[0].text == expected_text(service, [7], 1000)


@pytest.mark.parametrize("prompt", ["Hello", [5, 6, 7], ["one", "two"], [[1, 2], [3], [4, 5]]])
def test_a_stream_joins_to_the_whole_answer(client, prompt: Any) -> None:
    asked: Any = {"model": "simulated", "prompt": prompt, "max_tokens": 9}
    whole = client.completions.create(**asked)
    chunks = list(
        client.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    )
    last = chunks.pop()
    assert (last.choices, last.usage) == ([], whole.usage)
    assert {chunk.usage for chunk in chunks} == {None}
    for one in whole.choices:
        own = [c for chunk in chunks for c in chunk.choices if c.index == one.index]
        assert "".join(c.text for c in own) == one.text
        assert [c.finish_reason for c in own] == [None] * (len(own) - 1) + [one.finish_reason]
    assert len(chunks) > len(whole.choices), "it did not come in pieces"


def test_a_stream_is_sent_while_it_is_generated(slow: RunningService) -> None:
    with slow.client() as one:
        stream = one.completions.create(**BODY, max_tokens=3000, stream=True)
        next(iter(stream))
        assert slow.scheduler.has_active()
        stream.close()
    until(lambda: not slow.scheduler.has_active())


def test_models_and_health(service: RunningService, client) -> None:
    assert [model.id for model in client.models.list()] == ["simulated"]
    with service.call("GET", "/health") as response:
        assert response.status == 200


# Refusals


@pytest.mark.parametrize(
    ("asked", "param", "code", "says"),
    [
        ({"max_tokens": 4095}, None, "context_length_exceeded", "need 257 blocks, the pool has"),
        ({"prompt": [1] * 5000}, None, "context_length_exceeded", "5000 tokens and max_tokens=16"),
        ({"prompt": ""}, None, None, "the prompt is empty"),
        ({"prompt": []}, "prompt", None, "not an empty list"),
        ({"prompt": [[1], "two", 3]}, "prompt", None, "give a text, a list of token ids"),
        ({"prompt": [1, True]}, "prompt", None, "give a text, a list of token ids"),
        ({"prompt": [1, -1]}, None, None, "prompt[1] is -1, not a token id"),
        ({"prompt": [[1]] * 2000}, None, None, "2000 requests: 0 requests wait, it would be 2000"),
        ({"max_tokens": 0}, None, None, "max_tokens is 0, not an int of at least 1"),
        ({"max_tokens": "9"}, "max_tokens", None, "max_tokens: Input should be a valid integer"),
        ({"user": ""}, "user", None, "user: String should have at least 1 character"),
        ({"user": "u" * 257}, "user", None, "user: String should have at most 256 characters"),
        ({"n": 2}, None, None, "n=2 is not supported; leave it out"),
        ({"stop": ["\n"]}, None, None, "stop=['\\n'] is not supported"),
        ({"extra_body": {"best": 1}}, "best", None, "best: Extra inputs are not permitted"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_with_the_reason(
    service: RunningService, client, asked: Any, param: str | None, code: str | None, says: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        client.completions.create(**{**BODY, **asked})
    error: Any = refusal.value.body
    assert says in error["message"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code)
    assert not service.scheduler.has_active()


def test_what_asks_for_nothing_is_taken(client) -> None:
    neutral: Any = {"n": 1, "best_of": 1, "echo": False, "stop": None, "logit_bias": {}}
    sampling: Any = {"temperature": 0, "top_p": 0.5, "seed": 1}
    assert client.completions.create(**BODY, **neutral, **sampling).choices[0].text


def test_another_model_is_not_there(client) -> None:
    with pytest.raises(openai.NotFoundError, match="no model 'gpt' here; there is: simulated"):
        client.completions.create(model="gpt", prompt="Hello")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "says"),
    [
        ("POST", PATH, b"{", 400, "JSON decode error"),
        ("POST", PATH, b"[1]", 400, "valid dictionary"),
        ("POST", PATH, b"x" * (BODY_BYTES_MAX + 1), 413, "the body has more than"),
        ("GET", PATH, None, 405, "GET /v1/completions: Method Not Allowed"),
        ("POST", "/v1/chat/completions", {}, 404, "there are: /v1/completions, /v1/models"),
    ],
)
def test_what_no_client_would_send_is_answered_in_the_same_shape(
    service: RunningService, method: str, path: str, body: Any, status: int, says: str
) -> None:
    with service.call(method, path, body) as response:
        assert response.status == status
        error = json.loads(response.read())["error"]
    assert says in error["message"]
    assert set(error) == {"message", "type", "param", "code"}


def test_a_body_without_a_length_is_read_no_further_than_the_limit(
    service: RunningService,
) -> None:
    with socket.create_connection(service.address, timeout=10) as connection:
        head = f"POST {PATH} HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        for _ in range(BODY_BYTES_MAX // 2**16 + 1):
            connection.sendall(b"10000\r\n" + b"x" * 2**16 + b"\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


def test_a_full_queue_answers_429_and_when_to_come_back(slow: RunningService) -> None:
    with slow.client() as one:
        streams = []
        for waiting in (0, 1, 2):
            streams.append(one.completions.create(**BODY, max_tokens=3000, stream=True))
            until(lambda n=waiting: slow.scheduler.stats()["live"]["waiting"] == n)
        with pytest.raises(
            openai.RateLimitError, match="max_waiting_requests is 2; try again"
        ) as full:
            one.completions.create(**BODY)
        assert full.value.response.headers["retry-after"] == "1"
        assert full.value.type == "rate_limit_error"
        for stream in streams:
            stream.close()
    until(lambda: not slow.scheduler.has_active())


# Users


def test_the_user_is_the_one_named_or_made_from_the_key(service: RunningService) -> None:
    before = set(service.scheduler.stats()["users"])
    with service.client("sk-secret") as one, service.client("sk-other") as other:
        for who, user in ((one, {"user": "alice"}), (one, {}), (one, {}), (other, {})):
            who.completions.create(**BODY, **user)
    with service.call("POST", PATH, BODY) as response:
        assert response.status == 200
    users = set(service.scheduler.stats()["users"]) - before
    keys = {user for user in users if user.startswith("key-")}
    assert users - keys == {"alice", "anonymous"}
    assert len(keys) == 2
    assert not any("sk-" in user for user in users)


def test_with_api_keys_only_those_are_let_in() -> None:
    with running(api_keys=("sk-one", "sk-two")) as service:
        for key in ("sk-one", "sk-two"):
            with service.client(key) as client:
                assert client.completions.create(**BODY).choices
        with service.client("sk-three") as client:
            for call in (client.models.list, lambda: client.completions.create(**BODY)):
                with pytest.raises(openai.AuthenticationError, match="needs an API key") as refusal:
                    call()
                assert refusal.value.code == "invalid_api_key"
        with service.call("POST", PATH, BODY) as response:
            assert response.status == 401
        for path in ("/health", "/metrics"):
            with service.call("GET", path) as response:
                assert response.status == 200


# Clients that go away


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_frees_its_blocks_at_once(
    slow: RunningService, stream: bool
) -> None:
    before = slow.scheduler.stats()["requests"]["cancelled"]
    body = {**BODY, "max_tokens": 4000, "stream": stream}
    hang_up = threading.Event()

    def call() -> None:
        if not stream:
            hang_up_without_an_answer(slow, body, hang_up)
            return
        with slow.call("POST", PATH, body) as response:
            response.readline()
            hang_up.wait(60)

    caller = threading.Thread(target=call)
    caller.start()
    until(lambda: slow.scheduler.stats()["live"]["free_blocks"] < 256)
    hang_up.set()
    # Undisturbed, 4000 tokens at this pace would take 24 seconds.
    assert until(lambda: slow.scheduler.stats()["live"]["free_blocks"] == 256) < 5
    caller.join()
    assert slow.scheduler.stats()["requests"]["cancelled"] == before + 1


def hang_up_without_an_answer(service: RunningService, body: Any, when: threading.Event) -> None:
    with asked_without_reading(service, body):
        when.wait(60)


@contextmanager
def asked_without_reading(service: RunningService, body: Any) -> Iterator[None]:
    data = json.dumps(body).encode()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(service.address)
        head = f"POST {PATH} HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        yield


def test_a_client_that_never_reads_costs_little_and_holds_up_nobody(monkeypatch) -> None:
    monkeypatch.setattr(server, "STUCK_CLIENT_S", 0.2)
    roomy = Limits(max_kv_blocks=2560)
    with running(roomy, eos_rate=0, drain_timeout=0.2) as service:
        body = {**BODY, "prompt": [[1]] * 64, "max_tokens": 600, "stream": True}
        with asked_without_reading(service, body):
            until(lambda: service.scheduler.stats()["requests"]["finished"] == 64)
            (connection,) = service.service._server.server_state.connections
            assert 0 < connection.transport.get_write_buffer_size() < 2**17
            service.service.stop()
            assert until(lambda: bool(service.outcome)) < 5
    assert service.outcome[0].cut_short


def test_a_client_that_goes_away_while_it_waits_leaves_the_queue(slow: RunningService) -> None:
    with slow.client() as one:
        first = one.completions.create(**BODY, max_tokens=3000, stream=True)
        next(iter(first))
        second = one.completions.create(**BODY, stream=True)
        until(lambda: slow.scheduler.stats()["live"]["waiting"] == 1)
        second.close()
        assert until(lambda: slow.scheduler.stats()["live"]["waiting"] == 0) < 2
        assert slow.scheduler.stats()["live"]["decoding"] == 1
        first.close()
    until(lambda: not slow.scheduler.has_active())


def test_nothing_is_kept_of_calls_that_are_over() -> None:
    with running() as service:
        for i in range(24):
            body = {**BODY, "max_tokens": 100, "stream": i % 2 == 0}
            with service.call("POST", PATH, body) as response:
                if i % 3:
                    response.read()
        until(lambda: not service.scheduler.has_active())

        def calls_kept() -> int:
            gc.collect()
            calls: Any = [thing for thing in gc.get_objects() if type(thing) is Call]
            return sum(call._engine is service.service.engine for call in calls)

        until(lambda: calls_kept() == 0)
        assert service.service.engine._tickets == {}


# Figures


def test_metrics_are_what_prometheus_reads(service: RunningService, client) -> None:
    client.completions.create(**BODY, max_tokens=5)
    with service.call("GET", "/metrics") as response:
        assert response.headers["content-type"].startswith("text/plain; version=")
        text = response.read().decode()
    samples = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.items() >= {("model_name", "simulated")}
    }
    assert samples["batchproof_num_requests_running"] == 0
    assert samples["batchproof_kv_cache_usage_perc"] == 0
    finished = service.scheduler.stats()["requests"]["finished"]
    assert samples["batchproof_e2e_request_latency_seconds_count"] == finished > 0
    assert samples["batchproof_time_to_first_token_seconds_count"] >= finished


def test_health_says_when_the_engine_has_given_up() -> None:
    broken = FailingExecutor(SimulatedGPU(), range(1, 10))
    with running(model=ServedModel("simulated", broken, PseudoWords())) as service:
        with service.client() as one, pytest.raises(openai.InternalServerError, match="stopped"):
            one.completions.create(**BODY)
        until(lambda: bool(service.outcome))
    assert str(service.outcome[0].failure) == "device lost on call 3"
    assert service.outcome[0].cut_short is False

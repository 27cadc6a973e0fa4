"""A transformers model behind the scheduler and behind `batchproof serve`."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest
from adapters.tiny_model import STOP_TOKENS, VOCABULARY, Ask, llama, mixed_asks, sliding

pytest.importorskip("torch", reason="make test-engines runs it: torch is not here")
pytest.importorskip("transformers", reason="make test-engines runs it: transformers is not here")

import torch
from serving.running_service import RunningService, running, until
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from batchproof import Limits, Request, Scheduler
from batchproof.sched.adapters.engine import STOPPED
from batchproof.sched.adapters.huggingface_model import PagedModel, load
from batchproof.sched.cli import run_cli
from batchproof.sched.errors import InputError
from batchproof.sched.policy.registry import POLICIES
from batchproof.sched.serving.models import load_model
from batchproof.sched.simulation import Setup

pytestmark = pytest.mark.engines

LIMITS = Limits(
    max_kv_blocks=24, chunk_size=16, token_budget=64, max_batch_size=6, eos_token=STOP_TOKENS[0]
)
"""So little that prompts are chunked, requests preempted, and seats and budget run out."""

SPECIAL = {"<s>": 1, "</s>": STOP_TOKENS[0]}


def byte_tokenizer() -> Any:
    """A tokenizer of single bytes, as many as the tiny model's vocabulary has room for.

    Non-ASCII text takes several tokens a character, as with the tokenizers of real models.
    """
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet(), key=lambda s: (s not in "ĠÃ©", s))
    places = [place for place in range(VOCABULARY) if place not in SPECIAL.values()]
    vocabulary = SPECIAL | dict(zip(symbols, places, strict=False))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    folder = str(tmp_path_factory.mktemp("model"))
    model = llama()
    model.generation_config.eos_token_id = STOP_TOKENS
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def model() -> Any:
    return llama()


def alone(model: Any, prompt: Sequence[int], max_tokens: int) -> list[int]:
    """Return what `generate()` makes of a prompt on its own."""
    ids = torch.tensor([list(prompt)])
    with torch.no_grad():
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=max_tokens,
            eos_token_id=STOP_TOKENS,
            pad_token_id=0,
        )
    return list(out[0, len(prompt) :].tolist())


def one_stop(made: Sequence[int]) -> list[int]:
    """Return the tokens with any that ends a request written as the scheduler's one."""
    return [STOP_TOKENS[0] if token in STOP_TOKENS else token for token in made]


@pytest.fixture(scope="module")
def expected(model) -> dict[str, list[int]]:
    return {
        ask.request_id: one_stop(alone(model, ask.prompt, ask.max_tokens)) for ask in mixed_asks()
    }


def scheduled(executor: Any, asks: Sequence[Ask], policy: str = "stall-free") -> Scheduler:
    scheduler = Scheduler(LIMITS, policy, executor, monitor=True)
    for ask in asks:
        scheduler.submit(Request(ask.user_id, ask.prompt, ask.max_tokens, ask.request_id))
    return scheduler


def run_to_end(scheduler: Scheduler) -> dict[str, list[int]]:
    made = {}
    while scheduler.has_active():
        made |= {request.request_id: request.generated for request in scheduler.tick()}
    return made


@pytest.mark.parametrize("policy", POLICIES)
def test_tokens_are_those_of_generate_whatever_the_policy(model, expected, policy) -> None:
    scheduler = scheduled(PagedModel(model, LIMITS, STOP_TOKENS), mixed_asks(), policy)
    assert run_to_end(scheduler) == expected


def test_memory_was_short_enough_to_chunk_and_to_preempt(model) -> None:
    scheduler = scheduled(PagedModel(model, LIMITS, STOP_TOKENS), mixed_asks())
    run_to_end(scheduler)
    stats = scheduler.stats()
    assert stats["preemptions"] > 0
    assert stats["kv"]["blocks_max"] == LIMITS.max_kv_blocks
    assert any(len(ask.prompt) > LIMITS.chunk_size for ask in mixed_asks())


class TwoOwners:
    """A scheduled sequence whose blocks are shared in pairs."""

    def __init__(self, sequence: Any) -> None:
        self._sequence = sequence
        self.block_table = [block - block % 2 for block in sequence.block_table]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sequence, name)


class Wrong(PagedModel):
    def forward(self, batch: Any) -> list[int]:
        return super().forward([TwoOwners(sequence) for sequence in batch])


def test_a_block_with_two_owners_changes_tokens(model, expected) -> None:
    assert run_to_end(scheduled(Wrong(model, LIMITS, STOP_TOKENS), mixed_asks())) != expected


def test_any_token_that_ends_a_request_does_and_without_one_it_goes_on(model) -> None:
    def made(stops: list[int]) -> list[int]:
        limits = Limits(eos_token=stops[0] if stops else STOPPED)
        scheduler = Scheduler(limits, executor=PagedModel(model, limits, stops))
        scheduler.submit(Request("u", [5, 6, 7], 60, "r"))
        return run_to_end(scheduler)["r"]

    endless = made([])
    assert len(endless) == 60
    fourth = endless.index(endless[3])
    assert made([endless[3]]) == endless[: fourth + 1]
    never = min(set(range(VOCABULARY)) - set(endless))
    assert made([never, endless[3]]) == [*endless[:fourth], never]


def test_what_is_loaded_says_what_the_model_knows(folder) -> None:
    loaded = load(folder, LIMITS)
    assert (loaded.eos_token, loaded.context_max, loaded.vocabulary) == (STOP_TOKENS[0], 512, 128)
    assert loaded.codec.decode(loaded.codec.encode("To be, né or not")) == "To be, né or not"
    assert loaded.codec.decode([*loaded.codec.encode("To be"), *STOP_TOKENS[:1]]) == "To be"
    assert loaded.codec.encode("\ud800") == loaded.codec.encode("?")


# Served


@pytest.fixture(scope="module")
def service(folder) -> Iterator[RunningService]:
    limits = replace(LIMITS, eos_token=5)  # the model's own takes its place
    with running(limits, model=load_model(folder, Setup(limits)), monitor=True) as service:
        yield service


@pytest.fixture
def client(service) -> Iterator[openai.OpenAI]:
    with service.client() as client:
        yield client


def test_a_completion_is_what_generate_makes_of_the_prompt(service, client, model, folder) -> None:
    tokenizer = byte_tokenizer()
    reasons = set()
    for prompt in ("Once upon a time", "Call me Ishmael.", "x", "It was the best of times"):
        answer = client.completions.create(model=folder, prompt=prompt, max_tokens=40)
        ids = tokenizer(prompt)["input_ids"]
        made = alone(model, ids, 40)
        text = tokenizer.decode(one_stop(made), skip_special_tokens=True)
        assert answer.choices[0].text == text
        assert answer.usage.prompt_tokens == len(ids)
        assert answer.usage.completion_tokens == len(made)
        reasons.add(answer.choices[0].finish_reason)
        assert answer.choices[0].finish_reason == ("stop" if made[-1] in STOP_TOKENS else "length")
    assert "stop" in reasons


def test_many_at_once_are_answered_as_each_alone(service, client, model, folder) -> None:
    asks = mixed_asks(12)
    answer = client.completions.create(
        model=folder, prompt=[ask.prompt for ask in asks], max_tokens=20
    )
    tokenizer = byte_tokenizer()
    for ask, choice in zip(asks, answer.choices, strict=True):
        made = one_stop(alone(model, ask.prompt, 20))
        assert choice.text == tokenizer.decode(made, skip_special_tokens=True)


@pytest.mark.parametrize("prompt", [[5, 6, 7], "Once upon a time"])
def test_a_stream_joins_to_the_whole_answer(client, folder, prompt) -> None:
    asked: Any = {"model": folder, "prompt": prompt, "max_tokens": 60}
    whole = client.completions.create(**asked).choices[0].text
    pieces = [chunk.choices[0].text for chunk in client.completions.create(**asked, stream=True)]
    assert "".join(pieces) == whole
    assert len(pieces) > 5


def test_a_client_that_goes_away_frees_its_blocks(service, client, folder) -> None:
    stream = client.completions.create(model=folder, prompt=[5] * 40, max_tokens=300, stream=True)
    next(iter(stream))
    stream.close()
    until(lambda: not service.scheduler.has_active())
    live = service.scheduler.stats()["live"]
    assert live["free_blocks"] == LIMITS.max_kv_blocks


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"prompt": [5, 128]}, "token id 128 is not in the vocabulary of"),
        ({"prompt": [5] * 500, "max_tokens": 13}, "more than the 512 positions that"),
        ({"prompt": ""}, "the prompt is empty"),
    ],
)
def test_what_the_model_cannot_answer_is_refused(client, folder, asked, message) -> None:
    with pytest.raises(openai.BadRequestError, match=message):
        client.completions.create(model=folder, **asked)


# What cannot be served


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (["--pace", "1"], "--pace"),
        (["--latency", "a100-llama3-8b", "--seed", "3"], "--latency, --seed"),
        (["--eos-rate", "0"], "--eos-rate"),
    ],
)
def test_options_of_the_simulated_gpu_are_refused(folder, options, name, capsys) -> None:
    assert run_cli(["serve", "--model", folder, *options]) == 2
    assert f"{name} is for the simulated GPU only" in capsys.readouterr().err


def test_more_blocks_than_there_is_memory_for_are_refused(folder, capsys) -> None:
    assert run_cli(["serve", "--model", folder, "--max-kv-blocks", str(2**40)]) == 2
    message = capsys.readouterr().err
    assert "1099511627776 blocks of 16 tokens of 1024 bytes do not fit in memory" in message


def test_a_folder_without_a_tokenizer_is_refused(tmp_path, capsys) -> None:
    llama().save_pretrained(tmp_path)
    assert run_cli(["serve", "--model", str(tmp_path)]) == 2
    assert "transformers cannot load it" in capsys.readouterr().err


def test_a_config_of_no_model_is_refused(tmp_path, capsys) -> None:
    Path(tmp_path / "config.json").write_text(json.dumps({"model_type": "nobodys"}))
    assert run_cli(["serve", "--model", str(tmp_path)]) == 2
    assert "transformers cannot load it" in capsys.readouterr().err


def test_a_model_that_forgets_its_context_is_refused() -> None:
    with pytest.raises(InputError, match="model 'sliding': layers with a cache of another kind"):
        PagedModel(sliding(), LIMITS, [], name="sliding")

"""Text and tokens of the model that has no tokenizer."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from batchproof.sched.inference_stub import VOCABULARY
from batchproof.sched.serving.text import Codec, PseudoWords, TextStream, word


def test_a_prompt_is_its_bytes_and_never_eos() -> None:
    assert PseudoWords().encode("Aé") == [0x41 + 1, 0xC3 + 1, 0xA9 + 1]
    assert PseudoWords().encode("\0") == [1]
    assert PseudoWords().encode("\ud800") == [ord("?") + 1]


def test_every_token_has_a_word_of_its_own() -> None:
    words = [word(token) for token in range(VOCABULARY)]
    assert len(set(words)) == VOCABULARY
    assert {len(one) for one in words} == {6}
    assert word(2**64 - 1) not in words


def test_texts_of_consecutive_runs_join_to_the_text_of_the_whole() -> None:
    codec, tokens = PseudoWords(), [5, 31_999, 7, 0]
    assert codec.decode(tokens[:2]) + codec.decode(tokens[2:]) == codec.decode(tokens)
    assert codec.decode(tokens).split() == [word(5), word(31_999), word(7)]
    assert codec.decode([0]) == ""


class Bytes:
    """A token is a byte of UTF-8, as with the tokenizers of real models."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(tokens).decode(errors="replace")


def pieces(codec: Codec, tokens: list[int]) -> list[str]:
    stream = TextStream(codec)
    return [stream.more([t], last=i == len(tokens)) for i, t in enumerate(tokens, start=1)]


def test_a_stream_holds_back_a_character_until_it_is_whole() -> None:
    assert pieces(Bytes(), Bytes().encode("aé!–")) == ["a", "", "é", "!", "", "", "–"]


def test_a_stream_that_ends_amid_a_character_says_all_of_it() -> None:
    tokens = Bytes().encode("a–")[:-1]
    assert "".join(pieces(Bytes(), tokens)) == Bytes().decode(tokens)


@given(st.lists(st.integers(0, 255)), st.lists(st.integers(0, 9)))
def test_the_pieces_of_a_stream_join_to_the_whole_text(tokens, cuts) -> None:
    stream, said, left = TextStream(Bytes()), "", list(tokens)
    for cut in cuts:
        said += stream.more(left[:cut], last=False)
        del left[:cut]
    assert said + stream.more(left, last=True) == Bytes().decode(tokens)


class SpaceBetween:
    """Joins words, so that how a token is written depends on whether one is before it."""

    def encode(self, text: str) -> list[int]:
        return [len(word) for word in text.split()]

    def decode(self, tokens: Sequence[int]) -> str:
        return " ".join("x" * token for token in tokens)


def test_a_token_is_written_as_after_the_one_before() -> None:
    assert pieces(SpaceBetween(), [1, 2, 3]) == ["x", " xx", " xxx"]

"""Text and tokens of the model that has no tokenizer."""

from batchproof.sched.inference_stub import VOCABULARY
from batchproof.sched.serving.text import PseudoWords, word


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

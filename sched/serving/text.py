"""How text and tokens map to each other for a model that has no tokenizer."""

from collections.abc import Sequence
from typing import Final, Protocol


class Codec(Protocol):
    """Maps text to the tokens of a model and back."""

    def encode(self, text: str, /) -> list[int]:
        """Return the prompt tokens of a text."""
        ...

    def decode(self, tokens: Sequence[int], /) -> str:
        """Return the text of output tokens; texts of consecutive runs join to that of the whole."""
        ...


SYLLABLES: Final = tuple(f"{consonant}{vowel}" for consonant in "bdgklmnr" for vowel in "aeio")
"""32 of them: three make a word for each of the simulated GPU's 32,000 token ids."""


class PseudoWords:
    """Bytes in, words out: the simulated GPU's text.

    A prompt token is a byte of the UTF-8 text, plus one, so that none is EOS. An
    output token is a space and a word that stands for its id alone; EOS is no text.
    """

    def __init__(self, eos_token: int = 0) -> None:
        self.eos_token = eos_token

    def encode(self, text: str) -> list[int]:
        """Return one token for each byte; half of a surrogate pair counts as a `?`."""
        return [byte + 1 for byte in text.encode(errors="replace")]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return one word for each token that is not EOS."""
        return "".join(f" {word(token)}" for token in tokens if token != self.eos_token)


def word(token: int) -> str:
    """Return the word of a token id: its digits in base 32, three at least, as syllables."""
    digits: list[str] = []
    while token or len(digits) < 3:
        token, digit = divmod(token, len(SYLLABLES))
        digits.append(SYLLABLES[digit])
    return "".join(reversed(digits))

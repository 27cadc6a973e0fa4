"""How text and tokens map to each other: streams of text, and a model without a tokenizer."""

from collections.abc import Sequence
from typing import Final, Protocol


class Codec(Protocol):
    """Maps text to the tokens of a model and back."""

    def encode(self, text: str, /) -> list[int]:
        """Return the prompt tokens of a text."""
        ...

    def decode(self, tokens: Sequence[int], /) -> str:
        """Return the text of output tokens."""
        ...


class TextStream:
    """The text of one request's output, token by token: the pieces join to the whole text.

    A character may take several tokens, and how a token is written may depend on
    the one before. So what was said last is decoded again with what is new, and
    text that ends amid a character is held back until the character is there.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._tokens: list[int] = []
        self._said = 0

    def more(self, tokens: Sequence[int], *, last: bool) -> str:
        """Return the text that these tokens add; all of it if they are the last ones."""
        self._tokens += tokens
        text = self._codec.decode(self._tokens)
        if text.endswith(AMID_A_CHARACTER) and not last:
            return ""
        before = self._codec.decode(self._tokens[: self._said])
        del self._tokens[: self._said]
        self._said = len(self._tokens)
        return text[len(before) :]


AMID_A_CHARACTER: Final = "\N{REPLACEMENT CHARACTER}"
"""What a codec makes of the first tokens of a character that takes several."""

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

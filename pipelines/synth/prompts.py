"""Message bodies of the example week: harmless text of exact size, one token to four bytes.

Belongs here: making text and messages as the gateway logs them. Does not belong here: which messages a call
sends (`traffic.py`, `sessions.py`). All text is ASCII without characters that JSON escapes, so bytes,
characters and the share of a message in its prompt agree.
"""

from __future__ import annotations

import numpy as np

BYTES_PER_TOKEN = 4
REDACTED = '[{"role":"user","content":"redacted-by-litellm"}]'
"""What LiteLLM puts in place of the messages when message logging is off."""

_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstv" for vowel in "aeio"]
_POOL_WORDS = 120_000
_VOCABULARY = 3_000


class TextPool:
    """A stretch of made-up words from which texts are cut; the same seed gives the same words."""

    def __init__(self, seed: int) -> None:
        """Make about 700 KB of words."""
        rng = np.random.default_rng([seed, 0])
        lengths = rng.integers(1, 5, _VOCABULARY)
        words = ["".join(rng.choice(_SYLLABLES, length)) for length in lengths]
        self._text = " ".join(words[number] for number in rng.integers(0, _VOCABULARY, _POOL_WORDS))

    def text(self, head: str, tokens: int, place: int) -> str:
        """Text of exactly `tokens` tokens that begins with `head`, the rest cut from the pool at `place`.

        Raises:
            ValueError: `head` alone is longer than the text asked for.

        """
        room = tokens * BYTES_PER_TOKEN - len(head)
        if room < 0:
            raise ValueError(f"{tokens} tokens do not hold {head!r}")
        rest = self._text[place % len(self._text) :][:room]
        while len(rest) < room:
            rest += self._text[: room - len(rest)]
        return head + rest


def messages(*parts: tuple[str, str]) -> str:
    """JSON of messages, each given as (role, content)."""
    return "[" + ",".join(f'{{"role":"{role}","content":"{content}"}}' for role, content in parts) + "]"

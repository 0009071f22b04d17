"""Secret: a text that no repr, log line, error message or pickle shows."""

from __future__ import annotations

import base64
import re
from typing import NoReturn
from urllib.parse import quote

_HIDDEN = "[key]"
_LOOKS_LIKE_KEY = re.compile(r"\bsk-[\w*.-]{4,}|(?<=Bearer )[\w*.+/=-]{4,}")
_SHORTEST = 4


class Secret:
    """A key. Its text leaves only through `reveal`, and `scrub` removes it from texts of others."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the one place that must send it."""
        return self._text

    def scrub(self, text: str) -> str:
        """`text` without the secret in plain, URL-quoted or base64 form, and without anything that looks like
        a key.

        A secret shorter than four characters is not searched for: it would blank ordinary words.
        """
        if len(self._text) >= _SHORTEST:
            encoded = base64.b64encode(self._text.encode()).decode()
            for form in (self._text, quote(self._text, safe=""), encoded, encoded.rstrip("=")):
                text = text.replace(form, _HIDDEN)
        return _LOOKS_LIKE_KEY.sub(_HIDDEN, text)

    def __bool__(self) -> bool:
        return bool(self._text)

    def __repr__(self) -> str:
        return "Secret([key])" if self._text else "Secret()"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A secret cannot be pickled.")

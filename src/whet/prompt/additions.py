"""The new content of a changed text, found by the syntax of addresses and fences alone."""

from __future__ import annotations

import re
from ipaddress import ip_address

_SCHEME = r"\b[a-z][a-z0-9+.-]{1,20}://[^\s<>\"'`\])}]+"
_PROTOCOL_FREE = r"(?<![:\w/])//[\w-]+(?:\.[\w-]+)+[^\s<>\"'`\])}]*"
_HOST = r"\bwww\.[^\s<>\"'`\])}]+"
_MAIL = r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+"
_OTHER = r"\b(?:mailto|tel|javascript|data):[^\s<>\"'`\])}]+"
_NUMBERS = (
    r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\d)|(?<![\w:])(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}(?![\w:])"
)
_ADDRESS = re.compile(f"{_SCHEME}|{_PROTOCOL_FREE}|{_HOST}|{_OTHER}|{_MAIL}|{_NUMBERS}", re.IGNORECASE)
_NUMERIC = re.compile(r"[0-9a-f:.]+", re.IGNORECASE)
_FENCE = re.compile(r"[ \t]*(`{3,}+|~{3,}+)([^`\n]*)$")


def new_addresses(text: str, known: str) -> list[str]:
    """Addresses of a text (URL, e-mail, IP) that another one does not hold, in order, each once.

    >>> new_addresses("Ask a@b.org or https://c.org/x. At 10.0.0.1, 12:30.", "Ask a@b.org.")
    ['https://c.org/x', '10.0.0.1']
    """
    folded = known.casefold()
    addresses = (match.group().rstrip(".,;:!?") for match in _ADDRESS.finditer(text))
    return [a for a in dict.fromkeys(addresses) if a.casefold() not in folded and _is_address(a)]


def _is_address(text: str) -> bool:
    """Whether what looks like an address is one: numbers between dots or colons must be an IP address."""
    return _NUMERIC.fullmatch(text) is None or _is_ip(text)


def _is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def has_open_fence(text: str) -> bool:
    """Whether a code fence of a text is never closed, as Markdown reads it.

    >>> has_open_fence("Answer:\\n```json\\n{}\\n```"), has_open_fence("Answer:\\n```json\\n{}")
    (False, True)
    """
    opened = ""
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if mark is None:
            continue
        if not opened:
            opened = mark.group(1)
        elif not mark.group(2).strip() and mark.group(1).startswith(opened):
            opened = ""
    return bool(opened)

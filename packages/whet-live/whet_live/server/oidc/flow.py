"""The binding of a sign-in to the browser that began it, without a row in the database: one secret in a cookie.

State, nonce and the PKCE verifier are hashes of the cookie's whole value under different names. So the state that comes back
through the provider vouches for every part of the cookie, also for the time and the page; and any server of an installation
can finish what another one began.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from dataclasses import dataclass
from hmac import compare_digest

LONGEST_PAGE = 1_500
"""Characters of the page in the cookie, encoded; a browser keeps 4,096 of a cookie."""


@dataclass(frozen=True, slots=True)
class SignInFlow:
    """A sign-in that a browser began. `cookie` is the value of its cookie, `page` where it goes on, `began` in microseconds."""

    cookie: str
    page: str
    began: int

    @property
    def state(self) -> str:
        """The value that comes back with the browser, 43 characters."""
        return self._derive(b"state")

    @property
    def nonce(self) -> str:
        """The value that comes back in the ID token."""
        return self._derive(b"nonce")

    @property
    def verifier(self) -> str:
        """The secret that goes to the provider with the code: a party that only saw the code does not know it."""
        return self._derive(b"verifier")

    @property
    def challenge(self) -> str:
        """The hash of the verifier, which the provider gets first."""
        return _encode(hashlib.sha256(self.verifier.encode()).digest())

    def matches(self, state: str) -> bool:
        """Whether the state is that of this browser's sign-in."""
        return compare_digest(self.state.encode(), state.encode("utf-8", "replace"))

    def _derive(self, name: bytes) -> str:
        return _encode(hashlib.sha256(b"whet sign-in " + name + b" " + self.cookie.encode()).digest())


def begin_flow(page: str, moment: int) -> SignInFlow:
    """A new sign-in at that moment. A page whose address is very long is the first page."""
    encoded = _encode(page.encode())
    if len(encoded) > LONGEST_PAGE:
        page, encoded = "/", _encode(b"/")
    return SignInFlow(f"{moment}.{secrets.token_urlsafe(32)}.{encoded}", page, moment)


def read_flow(cookie: str) -> SignInFlow | None:
    """The sign-in in a cookie; None for a text that is none."""
    parts = cookie.split(".")
    if len(parts) != 3 or not (parts[0].isascii() and parts[0].isdecimal()) or len(parts[0]) > 18:
        return None
    try:
        page = base64.urlsafe_b64decode(parts[2] + "=" * (-len(parts[2]) % 4)).decode()
    except (binascii.Error, ValueError):
        return None
    return SignInFlow(cookie, page, int(parts[0]))


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

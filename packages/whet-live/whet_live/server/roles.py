"""Callers, their roles, and the permissions of endpoints."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final


class Role(IntEnum):
    """The rights of a person; each role has all rights of the roles below it.

    VIEWER reads. ANNOTATOR also rates answers. EDITOR also writes versions, proposals and experiments. APPROVER also
    decides about what others wrote. ADMIN also gives and takes access, and deletes a user's data.
    """

    VIEWER = 1
    ANNOTATOR = 2
    EDITOR = 3
    APPROVER = 4
    ADMIN = 5

    @property
    def word(self) -> str:
        """The role in lower case, as people write it."""
        return self.name.lower()

    @classmethod
    def of(cls, word: str) -> Role | None:
        """The role of that name, or None."""
        return cls.__members__.get(word.upper())


class SpecialPermission(Enum):
    """Permissions beside the roles. PUBLIC: health, the login page, style sheets. PROGRAMS: what only programs may do, whatever
    the role of a person: record what an application did. PAGES: what a public key may do, which anybody can read in a page."""

    PUBLIC = "public"
    PROGRAMS = "programs"
    PAGES = "pages"


PUBLIC: Final = SpecialPermission.PUBLIC
PROGRAMS: Final = SpecialPermission.PROGRAMS
PAGES: Final = SpecialPermission.PAGES
PAGE: Final = "page"
"""The role of a public key, as people write it and as it is stored."""
Permission = Role | SpecialPermission


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller.

    `app`: a program, which may only fetch prompts and send what it saw; its role then does not count. `page`: a program
    whose token is a public key, which may only add feedback from pages. `token` is the id of the token that it came with,
    and `prompts` are the prompts which that is for, None for all. `csrf` is the secret that its forms carry, empty unless
    it came with a session cookie.
    """

    name: str
    role: Role
    app: bool = False
    page: bool = False
    token: str = ""
    csrf: str = ""
    prompts: frozenset[str] | None = None

    def reaches(self, prompt: str) -> bool:
        """Whether its token is for this prompt."""
        return self.prompts is None or prompt in self.prompts

    def may(self, needs: Permission, app: bool) -> bool:
        """Whether it may use what needs this permission, and is (`app`) or is not meant for programs."""
        if needs is PUBLIC:
            return True
        if needs is PAGES or self.page:
            return needs is PAGES and self.page
        if needs is PROGRAMS:
            return self.app
        return app if self.app else self.role >= needs


@dataclass(frozen=True, slots=True)
class ProviderIdentity:
    """Somebody whom the identity provider vouches for: the subject of an issuer, with an e-mail address in lower case. `role` is
    what the rules of the server give, and `ruled` says whether there are rules."""

    issuer: str
    subject: str
    email: str
    role: Role
    ruled: bool

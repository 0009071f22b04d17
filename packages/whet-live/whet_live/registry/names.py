"""Names, labels, addresses and actors: what they may be, and how they are read."""

from __future__ import annotations

import re
from dataclasses import dataclass

from whet.errors import UsageError
from whet.instructions.guard import visible
from whet_client.prompt.document import AUTO
from whet_client.records import prompt_name_fault
from whet_live.registry.registry_tables import LONGEST_ACTOR, LONGEST_LABEL

DEFAULT_LABEL, NEWEST = "production", "latest"
ANY_PROMPT = "*"
LONGEST_TEXT = 4000
ROLE = re.compile(r"[a-z]{1,20}")
"""The pattern of a message's role: it becomes a part of a file's name."""
_SCHEME = "prompts:/"
_LABEL = re.compile(r"[a-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class Address:
    """One version of a prompt: by its number, or by the label that stands on it. Exactly one of them is given."""

    name: str
    label: str | None = None
    version: int | None = None

    def __str__(self) -> str:
        return f"{self.name}/{self.version}" if self.label is None else f"{self.name}@{self.label}"


def parse_address(text: str) -> Address:
    """An address as people write it; without label or number it means `production`.

    >>> parse_address("prompts:/shop/greeting@staging")
    Address(name='shop/greeting', label='staging', version=None)
    >>> parse_address("prompts:/shop/greeting/3") == parse_address("shop/greeting:3")
    True

    Raises UsageError.
    """
    rest = text.removeprefix(_SCHEME).strip("/") if text.startswith(_SCHEME) else text
    for mark in "@:":
        name, separator, which = rest.rpartition(mark)
        if separator:
            return _address(check_name(name), which)
    name, slash, last = rest.rpartition("/")
    if slash and _is_number(last):
        return _address(check_name(name), last)
    return Address(check_name(rest), DEFAULT_LABEL)


def _address(name: str, which: str) -> Address:
    if not _is_number(which):
        return Address(name, label=which if which == NEWEST else check_label(which))
    if len(which) > 9 or int(which) < 1:
        raise UsageError(f"{name} has no version {which[:20]}; versions count from 1.")
    return Address(name, version=int(which))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def check_name(name: str) -> str:
    """The name of a prompt, as given. Raises UsageError for one that cannot be a name (`prompt_name_fault`)."""
    refusal = f'"{visible(name[:80])}" cannot be the name of a prompt: '
    if not name:
        raise UsageError("The name of the prompt is empty.")
    if fault := prompt_name_fault(name):
        raise UsageError(f"{refusal}{fault}")
    return name


def check_label(label: str) -> str:
    """A label that can be set, as given. Raises UsageError, also for `latest`, which is always the newest version."""
    if label == NEWEST:
        raise UsageError(f"The label {NEWEST} is reserved: it is always the newest version.")
    if not _LABEL.fullmatch(label) or len(label) > LONGEST_LABEL or not any(map(str.isalpha, label)):
        raise UsageError(
            f'"{visible(label[:80])}" cannot be a label: use 1 to {LONGEST_LABEL} of a-z 0-9 _ . - with a letter among them.'
        )
    return label


def check_actor(actor: str) -> str:
    """Check the name of an actor: 1 to 200 visible characters. Raises UsageError."""
    legible = visible(actor) == actor and "\n" not in actor and "\t" not in actor
    if not actor.strip() or len(actor) > LONGEST_ACTOR or not legible:
        raise UsageError(
            f'"{visible(actor[:80])}" cannot be who acts: give a name of 1 to {LONGEST_ACTOR} visible characters.'
        )
    return actor


def check_text(text: str, what: str) -> str:
    """A reason or message, as given: at most 4,000 characters that a database can hold. Raises UsageError."""
    if len(text) > LONGEST_TEXT:
        raise UsageError(f"The {what} has {len(text)} characters; at most {LONGEST_TEXT} are allowed.")
    if "\x00" in text or any("\ud800" <= c <= "\udfff" for c in text):
        raise UsageError(f"The {what} holds a character that cannot be stored: {visible(text)[:80]}")
    return text


def check_role(role: str, *, alone: bool) -> str:
    """The role of a message, once it is one; `auto`, that of a prompt of one text, stands `alone`. Raises UsageError."""
    if not ROLE.fullmatch(role) or (role == AUTO and not alone):
        raise UsageError(
            f'A message cannot have the role "{visible(role[:40])}". Use system, user or assistant.'
        )
    return role

"""Text from outside: how a terminal shows it, and which signs of an attack, a strange address or a secret it carries.

The guard is advisory. It knows the form of a conversation, invisible characters and a list of known attack strings
(`attack_strings.txt`), so it catches what is crude. It proves nothing about a text that it lets through: a harmful demand
in innocent words passes. The protection rests on the quorum, the approval by a person and the gate. Every check takes time
that is linear in the length of the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from functools import cache
from importlib.resources import files

from whet.instructions.personal_data import MAIL, personal_data
from whet.search.copies import compatible, normalize_wording
from whet_client.prompt.fence import LOOKS_LIKE_MARKER
from whet_client.prompt.slots import SLOT

LONGEST = 4000
_LONG_CODE = 160
_SEVERAL = 3
_HOLDS_SLOT = "it holds a slot in double braces"
_HARMLESS = frozenset("\u00ad\u200c\u200d\u200e\u200f\ufeff")

_TAGS = "system|assistant|user|developer|tool|instructions?|prompt|context|feedback|critiques?|requirements?"
_TURN = r"^[ \t#*]*(?:system(?: prompt| message)?|assistant|developer)[ \t#*]*:"
_CONVERSATION = re.compile(
    rf"<\|[\w-]{{2,30}}\|>|\[/?INST\]|<</?SYS>>|</?(?:{_TAGS})\b[^<>]{{0,80}}>|{_TURN}",
    re.IGNORECASE | re.MULTILINE,
)
_KEYS = re.compile(
    r"\"(?:op|operations|instruction_id|no_demand|to_the_reader)\"\s*:|\"requirements\"\s*:\s*\["
)
_CODE = re.compile(r"[A-Za-z0-9+/]+")
_OWN_MARKER = re.compile(r"whet\s*:\s*(?:begin|end)", re.IGNORECASE)
_ADDRESS = re.compile(rf"https?://[^\s<>\"']+|\bwww\.[^\s<>\"']+|{MAIL}", re.IGNORECASE)


def visible(text: str) -> str:
    """A text as a terminal may show it: invisible, bidirectional and control characters by their code point.

    >>> visible("a\\u202eb\\x1b[2J")
    'a⟨U+202E⟩b⟨U+001B⟩[2J'
    """
    return "".join(f"⟨U+{ord(c):04X}⟩" if _is_hidden(c) and c not in "\n\t" else c for c in text)


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


def suspicions(text: str) -> list[str]:
    """Why a text from outside must not be learned unseen; empty when no check objects."""
    hidden = sorted({c for c in text if _is_hidden(c) and c not in _HARMLESS and c not in "\n\r\t"})
    plain = compatible("".join(c for c in text if not _is_hidden(c) or c in "\n\t"))
    named = ", ".join(f"U+{ord(c):04X}" for c in hidden[:5])
    signs = {
        f"it holds invisible characters ({named})": hidden,
        "it holds a fence marker": LOOKS_LIKE_MARKER.search(plain) or _OWN_MARKER.search(plain),
        _HOLDS_SLOT: SLOT.search(plain),
        f"it is longer than {LONGEST} characters": len(text) > LONGEST,
        "it imitates the form of a conversation": _CONVERSATION.search(plain),
        "it imitates an answer of the optimizer": _KEYS.search(plain),
        "it holds a long code that nobody can read": any(len(c) >= _LONG_CODE for c in _CODE.findall(plain)),
    }
    reasons = [reason for reason, sign in signs.items() if sign]
    folded = normalize_wording(plain)
    reasons += [reason for reason, phrase in attack_strings() if phrase in folded]
    return list(dict.fromkeys(reasons))


def find_reasons_to_withhold(critique: str) -> list[str]:
    """Why a critique is not shown to the model that reads critiques; empty when no check objects.

    A slot is no reason: the model is shown critiques as data, no slot of them is filled, and an instruction that holds one is
    refused.
    """
    return [reason for reason in suspicions(critique) if reason != _HOLDS_SLOT]


@cache
def attack_strings() -> tuple[tuple[str, str], ...]:
    """The known attack strings, each as its reason and a phrase in comparable form."""
    data = files("whet.instructions").joinpath("attack_strings.txt").read_text(encoding="utf-8")
    pairs = (line.split("\t", 1) for line in data.splitlines())
    return tuple((reason, normalize_wording(phrase)) for reason, phrase in pairs)


def strange_addresses(text: str, known: str) -> list[str]:
    """Why an instruction must not enter a prompt unseen although its critiques were harmless: it brings a web
    or mail address that the prompt (`known`) does not hold."""
    folded = known.casefold()
    new = [a for a in dict.fromkeys(_ADDRESS.findall(text)) if a.casefold() not in folded]
    return [f"it brings the address {', '.join(new[:3])} into the prompt"] if new else []


def harmless(text: str, known: str, critiques: int) -> bool:
    """Whether an instruction that so many critiques demand holds no secret and no known attack, and brings an address that the
    prompt (`known`) does not hold only where three or more do."""
    strange = critiques < _SEVERAL and strange_addresses(text, known)
    return not (strange or suspicions(text) or secrets(text))


def secrets(text: str, canaries: Collection[str] = ()) -> list[str]:
    """Why a text must not stand in a prompt: it looks like a secret or a person's data, or holds a canary."""
    reasons = [f"it holds {name}" for name in personal_data(text)]
    plain = normalize_wording(text)
    if any(normalize_wording(canary) in plain for canary in canaries):
        reasons.append("it holds a canary")
    return reasons

"""What a stranger's words may do: who counts as a source, how many must agree, and which words reach a model.

Free text from outside is *quarantined*: rules of this package read it, no model does. A sentence leaves the quarantine when
it is one of our own (an idiom that was recognized), when enough independent sources vouch for it word by word, or when a
person accepts it by name. Whatever becomes an instruction is then searched for secrets and for long pieces of other
people's data.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from whet.errors import UsageError, did_you_mean
from whet.online.wishes import CANONICAL
from whet.search.copies import comparable
from whet.search.lexicon import NAME, NUMBER, QUOTED, content, tokens

ANONYMOUS = "anonymous"
_HOUR = 3_600_000_000


@dataclass(frozen=True)
class Policy:
    """How much it takes until something is learned.

    `quorum`: independent sources that must demand the same; `share`: and at least this share of all sources that were
    heard lately, in [0, 1]. `per_source`: demands that one source can support at once. `probation`: hours until the
    words of a new source count. `annotator`: what the word of a reviewer weighs, in sources. `span`: characters in a
    row that may reach a model from fewer sources than the quorum. `canaries`: texts that must never stand in a prompt.
    """

    quorum: float = 3.0
    share: float = 0.02
    per_source: int = 5
    probation: float = 0.0
    annotator: float = 1.0
    span: int = 40
    canaries: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checks: Mapping[str, bool] = {
            "quorum": self.quorum >= 1,
            "share": 0 <= self.share <= 1,
            "per_source": self.per_source >= 1,
            "probation": self.probation >= 0,
            "annotator": self.annotator >= 0,
            "span": self.span >= 8,
            "canaries": all(len(text) >= 6 for text in self.canaries),
        }
        for name, good in checks.items():
            if not good:
                raise UsageError(f"{name} cannot be {getattr(self, name)!r}; see `whet.online.trust.Policy`.")

    @classmethod
    def read(cls, values: Mapping[str, Any], base: Policy | None = None) -> Policy:
        """A policy from JSON values, the rest as in `base`. Raises UsageError for an unknown or impossible one."""
        start = base or cls()
        known = {f.name: getattr(start, f.name) for f in fields(cls)}
        for name, value in values.items():
            if name not in known:
                raise UsageError(f'There is no rule "{name}".{did_you_mean(name, known)}')
            known[name] = _typed(name, value, known[name])
        return cls(**known)

    def as_json(self) -> dict[str, Any]:
        """The policy as JSON values."""
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"canaries": list(self.canaries)}


PROPOSE = Policy()
"""When a person decides about every proposal."""
AUTO = Policy(quorum=5.0, share=0.1, probation=24.0)
"""When nobody does."""


def _typed(name: str, value: Any, standard: Any) -> Any:
    if isinstance(standard, tuple):
        if isinstance(value, list | tuple) and all(isinstance(v, str) for v in value):
            return tuple(value)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        pass
    elif isinstance(standard, float) or float(value).is_integer():
        return type(standard)(value)
    raise UsageError(f"{name} cannot be {value!r}; write a value such as {standard!r}.")


def principal(source: str, user: str | None) -> str:
    """Who speaks, for counting: `user:ID`, `annotator:ID`, `model:NAME`, `code:NAME`, or `anonymous`.

    Everybody who gives no name is one source together: names are free, so a missing one must not count more. Names that
    differ only in case, blanks, width or invisible characters are one.
    """
    name = comparable(user or "")
    return f"{source}:{name}" if name else ANONYMOUS


def weight(who: str, policy: Policy, first: int, clock: int) -> float:
    """What one source counts at the time `clock`; it was first heard at `first` (microseconds)."""
    if clock - first < policy.probation * _HOUR:
        return 0.0
    return policy.annotator if who.startswith("annotator:") else 1.0


# The way out of the quarantine


def vouched(
    text: str, spoken: Mapping[str, Sequence[str]], weights: Mapping[str, float], known: str, policy: Policy
) -> bool:
    """Whether a sentence may reach a model although it is made of strangers' words.

    `spoken` are the texts of each source that demands the same, `weights` what the sources count, `known` the prompt's own
    text. Every word that says something, every number and every quoted value must stand in the texts of sources that
    together make the quorum; and so must every piece that is longer than `policy.span` characters and not in `known`.
    """
    if text in CANONICAL:
        return True
    if support(text, spoken, weights) < policy.quorum:
        return False
    plain, background = comparable(text), comparable(known)
    said = {who: [comparable(t) for t in texts] for who, texts in spoken.items()}
    for at in range(len(plain) - policy.span):
        piece = plain[at : at + policy.span + 1]
        backing = sum(weights.get(who, 0.0) for who, texts in said.items() if any(piece in t for t in texts))
        if piece not in background and backing < policy.quorum:
            return False
    return True


def support(text: str, spoken: Mapping[str, Sequence[str]], weights: Mapping[str, float]) -> float:
    """What the sources of a text count together: those that say its rarest word, number or quoted value, or, if they are
    fewer, those that say more than half of it.

    A word that stands in the prompt already counts like any other: else a demand could put the prompt's own words into the
    mouths of people who asked for something else. Nor does a source count that wants it the other way round, as `feet instead
    of metres` when the text says `metres instead of feet`.
    """
    marks, order = _marks(text), _contrasts(text)
    alike = {who: texts for who, texts in spoken.items() if not _reversed(order, texts)}
    voices = {who: _marks(" ".join(texts)) & marks for who, texts in alike.items()}
    said = [{who for who, own in voices.items() if word in own} for word in marks]
    most = {who for who, own in voices.items() if 2 * len(own) > len(marks) or not marks}
    return min(sum(weights.get(who, 0.0) for who in group) for group in (*said, most))


_CONTRAST = re.compile(
    r"\b(?:instead of|rather than|in place of|not|than|over|before|after|from|into)\b", re.IGNORECASE
)


def _contrasts(text: str) -> frozenset[tuple[str, str]]:
    """Pairs of words on the two sides of a word that sets them against each other, in one sentence of the text."""
    found: set[tuple[str, str]] = set()
    for sentence in re.split(r"[.!?\n]+", text):
        for match in _CONTRAST.finditer(sentence):
            left, right = _marks(sentence[: match.start()]), _marks(sentence[match.end() :])
            found |= {(one, other) for one in left - right for other in right - left}
    return frozenset(found)


def _reversed(order: frozenset[tuple[str, str]], texts: Sequence[str]) -> bool:
    """Whether texts set words against each other the other way round, and nowhere this way."""
    if not order:
        return False
    own = frozenset(pair for text in texts for pair in _contrasts(text))
    return any((b, a) in own and (a, b) not in own for a, b in order)


def _marks(text: str) -> frozenset[str]:
    return content(text) | _values(text)


def _values(text: str) -> frozenset[str]:
    return frozenset(f"{t.kind} {t.value}" for t in tokens(text) if t.kind in (NUMBER, QUOTED, NAME))


def self_judged(writer: str, judge: str | None) -> str:
    """Why a verdict promotes nothing: the model that judged is the one that wrote the instructions. Empty where it is not.

    Both are addresses; `judge` is None where no model judged. What follows a `?` in them does not make another model.
    """
    if judge is None or writer.split("?", 1)[0] != judge.split("?", 1)[0]:
        return ""
    return f"the judge of the gate, {judge}, is the model that wrote the instructions"


# What must not stand in a prompt


def secrets(text: str, canaries: Collection[str] = ()) -> list[str]:
    """Why a text must not stand in a prompt: it looks like a secret or a person's data, or holds a canary."""
    found = [reason for pattern, reason in _SECRETS if pattern.search(text)]
    if any(_is_card(match.group()) for match in _DIGITS.finditer(text)):
        found.append("it holds what looks like a card number")
    plain = comparable(text)
    if any(comparable(canary) in plain for canary in canaries):
        found.append("it holds a canary")
    return found


_SECRETS = tuple(
    (re.compile(pattern), reason)
    for pattern, reason in (
        (
            r"\b(?:sk|pk|rk|ghp|gho|ghs|glpat|xox[abprs]|hf|npm|pypi|AIza|AKIA|ASIA)[-_]?[A-Za-z0-9_-]{14,}",
            "it holds what looks like a key",
        ),
        (r"-----BEGIN [A-Z ]*PRIVATE KEY-----", "it holds a private key"),
        (r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*", "it holds what looks like a token"),
        (r"(?i)\b(?:password|passwd|api[ _-]?key|secret|token)\b\s*(?:is|=|:)\s*\S{6,}", "it holds what looks like a password"),
        (r"\b[A-Fa-f0-9]{32,}\b", "it holds a long code"),
        (r"[\w.+-]+@[\w-]+\.[\w.]+", "it holds a mail address"),
        (r"(?<![\w.])\+?\d(?:[ ./()-]{0,2}\d){8,14}(?!\w|\.\d)", "it holds what looks like a telephone number"),
        (r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}\b", "it holds what looks like an account number"),
    )
)  # fmt: skip
_DIGITS = re.compile(r"\b\d(?:[ -]?\d){12,18}\b")


def _is_card(text: str) -> bool:
    """Whether digits pass the check of card numbers (Luhn)."""
    digits = [int(c) for c in reversed(text) if c.isdigit()]
    doubled = [d * 2 - 9 * (d > 4) for d in digits[1::2]]
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0

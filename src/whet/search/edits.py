"""Phrase edits: discrete changes of a text by position. No phrase holds a slot, so no edit can lose one."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from whet.errors import EditRejected
from whet.prompt import Prompt
from whet_client.prompt.slots import SLOT

Level = Literal["word", "phrase", "sentence"]
Kind = Literal["delete", "swap", "substitute", "insert", "duplicate"]

PHRASE_WORDS = 4

_EDGE = " \t\r\n,;:.!?"
_SENTENCE = re.compile(r"[^.!?\n]+(?:[.!?](?![\s\"')\]])[^.!?\n]*)*[.!?]*")
_CLAUSE = re.compile(r"[^,;:]+")
_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class PhraseSpan:
    """A phrase: text[start:stop], without outer space and punctuation."""

    start: int
    stop: int

    def of(self, text: str) -> str:
        """The phrase itself."""
        return text[self.start : self.stop]


@dataclass(frozen=True, slots=True)
class Edit:
    """A changed text, with the phrase that it lost or gained, if any."""

    text: str
    kind: Kind
    deleted: str | None = None
    added: str | None = None


def spans(text: str, level: Level = "phrase") -> list[PhraseSpan]:
    """Disjoint phrases of a text, in order.

    A sentence ends at `.`, `!`, `?` or a line break; a phrase is a clause (up to a comma, semicolon or
    colon), clauses of more than PHRASE_WORDS words cut into equal parts; a word stands between spaces.
    """
    return list(_find_spans(text, level))


@lru_cache(maxsize=64)  # a search draws hundreds of edits of the same few texts
def _find_spans(text: str, level: Level) -> tuple[PhraseSpan, ...]:
    pieces: list[PhraseSpan] = []
    at = 0
    for stop, following in [*((m.start(), m.end()) for m in SLOT.finditer(text)), (len(text), len(text))]:
        for sentence in _SENTENCE.finditer(text, at, stop):
            pieces += _inside(text, PhraseSpan(sentence.start(), sentence.end()), level)
        at = following
    return tuple(span for span in pieces if any(c.isalnum() for c in span.of(text)))


def _inside(text: str, sentence: PhraseSpan, level: Level) -> list[PhraseSpan]:
    if level == "sentence":
        return _trim_span(text, sentence.start, sentence.stop)
    if level == "word":
        each = _WORD.finditer(text, sentence.start, sentence.stop)
        return [span for word in each for span in _trim_span(text, word.start(), word.end())]
    pieces = []
    for clause in _CLAUSE.finditer(text, sentence.start, sentence.stop):
        words = list(_WORD.finditer(text, clause.start(), clause.end()))
        parts = -(-len(words) // PHRASE_WORDS)
        cuts = [round(i * len(words) / parts) for i in range(parts + 1)] if parts else []
        for first, last in pairwise(cuts):
            pieces += _trim_span(text, words[first].start(), words[last - 1].end())
    return pieces


def _trim_span(text: str, start: int, stop: int) -> list[PhraseSpan]:
    inner = text[start:stop].lstrip(_EDGE)
    start = stop - len(inner)
    stop = start + len(inner.rstrip(_EDGE))
    return [PhraseSpan(start, stop)] if start < stop else []


def delete(text: str, span: PhraseSpan) -> str:
    """The text without a phrase; space and punctuation that would stand doubled at the seam are dropped."""
    return _join(text[: span.start], text[span.stop :])


def _join(before: str, after: str) -> str:
    head, tail = before.rstrip(" \t"), after.lstrip(" \t")
    if head[-1:] + tail[:1] in ("()", "[]", '""', "''"):
        head, tail = head[:-1].rstrip(" \t"), tail[1:].lstrip(" \t")
    if tail[:1] in (",", ";", ":") and (not head or head[-1] in _EDGE):
        tail = tail[1:].lstrip(" \t")
    elif tail[:1] in (".", "!", "?"):
        if not head or head[-1] in "\n.!?":
            tail = tail[1:].lstrip(" \t")
        elif head[-1] in ",;:":
            head = head[:-1]
    open_seam = head and tail and not head[-1].isspace() and not tail[0].isspace() and tail[0] not in ",;:.!?"
    return f"{head} {tail}" if open_seam else head + tail


def swap(text: str, first: PhraseSpan, second: PhraseSpan) -> str:
    """The text with two phrases exchanged, each by position."""
    a, b = sorted((first, second), key=lambda span: span.start)
    return text[: a.start] + b.of(text) + text[a.stop : b.start] + a.of(text) + text[b.stop :]


def substitute(text: str, span: PhraseSpan, phrase: str) -> str:
    """The text with one phrase replaced where it stands; other places that read the same stay."""
    return text[: span.start] + phrase + text[span.stop :]


def insert(text: str, after: PhraseSpan | None, phrase: str) -> str:
    """The text with a phrase put after another one, or at the start."""
    if after is None:
        return phrase + " " + text if text else phrase
    return text[: after.stop] + " " + phrase + text[after.stop :]


def random_edit(
    rng: random.Random,
    text: str,
    kinds: Sequence[Kind],
    additions: Sequence[str] = (),
    level: Level = "phrase",
) -> Edit | None:
    """One random edit of a kind that is possible here; None when none is.

    delete and swap need two phrases, insert something to insert (`additions`), duplicate one phrase. A substitute is not
    random: a model writes it.
    """
    pieces = spans(text, level)
    possible: Mapping[Kind, bool] = {
        "delete": len(pieces) > 1,
        "swap": len({span.of(text) for span in pieces}) > 1,
        "insert": bool(additions),
        "duplicate": bool(pieces),
    }
    open_kinds = [kind for kind in kinds if possible.get(kind)]
    if not open_kinds:
        return None
    kind = rng.choice(open_kinds)
    if kind == "delete":
        span = rng.choice(pieces)
        return Edit(delete(text, span), kind, deleted=span.of(text))
    if kind == "swap":
        first = rng.choice(pieces)
        return Edit(swap(text, first, rng.choice([s for s in pieces if s.of(text) != first.of(text)])), kind)
    phrase = rng.choice(additions) if kind == "insert" else rng.choice(pieces).of(text)
    return Edit(insert(text, rng.choice([None, *pieces]), phrase), kind, added=phrase)


def move_region(start: Prompt, prompt: Prompt, region: str, source: Prompt) -> Prompt:
    """A prompt with the text that a region has in another one; itself where it refuses that. Both descend from `start`."""
    text = text_in(start.with_focus(region), source)
    return replace_region(prompt.restore(region, start), text, region) or prompt


def text_in(start: Prompt, prompt: Prompt) -> str:
    """Editable text of a prompt that descends from `start` by edits of its first region, or of that in focus.

    The region of a prompt without a fence depends on its text; here it is found by what surrounds it in
    `start`. A message that was replaced as a whole is editable as a whole.
    """
    region = start.region()
    if start.parts:
        part, inner = start.part_of(region.name)
        return text_in(start.parts[part].with_focus(inner), prompt.parts[part])
    if start.fenced:
        return prompt.region_text(region.name)
    old, new = start.messages[region.message].content, prompt.messages[region.message].content
    before, after = old[: region.start], old[region.stop :]
    if len(new) >= len(before) + len(after) and new.startswith(before) and new.endswith(after):
        return new[len(before) : len(new) - len(after)]
    return new


def with_words(start: Prompt, words: Sequence[str]) -> Prompt | None:
    """`start` with its editable text replaced by words, followed by the slots that stood in it."""
    kept = [match.group(0) for match in SLOT.finditer(start.region_text())]
    return replace_region(start, " ".join([*words, *kept]))


def replace_region(start: Prompt, text: str, region: str | None = None) -> Prompt | None:
    """`start` with the text of a region (None: the first, or that in focus) replaced; None when the prompt refuses the text."""
    try:
        return start.edit(text, region)
    except EditRejected:
        return None


PHRASES: tuple[str, ...] = (
    "Read the input carefully.",
    "Look for evidence in the text.",
    "Answer with a single word.",
    "Be brief.",
    "Mind the tone.",
    "Think step by step.",
    "Check the answer before giving it.",
    "Do not explain.",
    "Weigh both sides first.",
    "When in doubt, take the more likely answer.",
    "Ignore names and numbers.",
    "Use exactly the form that is asked for.",
    "You are an expert in this task.",
    "Decide by the overall meaning.",
    "Pay attention to the last sentence.",
    "Pay attention to negations.",
    "Judge only what is written.",
    "Be precise.",
    "Leave out everything that was not asked for.",
    "State the most important point first.",
    "Keep to the facts that are given.",
    "Follow the instructions literally.",
    "Give one answer, never several.",
    "Take irony into account.",
)

"""The lessons of a judge from people's scores: guidelines with the answers that they come from, and scored answers, of which
the most similar are shown. MemAlign, Databricks 2026 (mlflow, genai/judges/optimizers): semantic and episodic memory."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import msgspec

from whet._util.words import character_trigrams, share_in_common
from whet.errors import UsageError

NEAR = 5
"""Scored answers that are shown, as in mlflow."""
GUIDELINES, EXAMPLES = "Guidelines from people's judgements:", "Judgements of people:"


@dataclass(frozen=True)
class Guideline:
    """A sentence, and the keys of the labelled texts that it comes from."""

    text: str
    sources: tuple[str, ...]


@dataclass(frozen=True)
class LabelledText:
    """A text as the judge sees it, what a person said of it (a score, or another label) and why; may be ''."""

    key: str
    shown: str
    label: str
    reason: str = ""

    @property
    def text(self) -> str:
        """The note as a judge reads it."""
        reason = f"\nReason: {self.reason}" if self.reason else ""
        return f"{self.shown}\nA person's judgement: {self.label}{reason}"


@dataclass(frozen=True)
class JudgeMemory:
    """Guidelines (semantic memory) and judgements (episodic memory), of which the `near` most alike are shown."""

    guidelines: tuple[Guideline, ...] = ()
    judgements: tuple[LabelledText, ...] = ()
    near: int = NEAR

    def extend(self, rubric: str, shown: str) -> str:
        """The rubric with the guidelines and the judgements of the texts most like the one to judge."""
        parts = [rubric.strip()]
        if self.guidelines:
            parts.append("\n".join([GUIDELINES, *(f"- {one.text}" for one in self.guidelines)]))
        if alike := self.nearest(shown):
            parts.append("\n\n".join([EXAMPLES, *(one.text for one in alike)]))
        return "\n\n".join(parts)

    def nearest(self, shown: str) -> list[LabelledText]:
        """The judgements of the texts most alike by their character trigrams (Jaccard), the most alike first; not its own."""
        own = character_trigrams(shown)
        others = [one for one in self.judgements if one.shown != shown]
        alike = [(-share_in_common(own, character_trigrams(one.shown)), at) for at, one in enumerate(others)]
        return [others[at] for _, at in sorted(alike)[: self.near]]

    def without(self, keys: Collection[str]) -> JudgeMemory:
        """The memory without these texts and every guideline all of whose sources are gone."""
        guidelines = [
            replace(one, sources=left)
            for one in self.guidelines
            if (left := tuple(source for source in one.sources if source not in keys))
        ]
        judgements = tuple(one for one in self.judgements if one.key not in keys)
        return replace(self, guidelines=tuple(guidelines), judgements=judgements)

    def to_json(self) -> str:
        """The memory as a file that people can read."""
        return json.dumps(msgspec.to_builtins(self), ensure_ascii=False, indent=1) + "\n"


def read_memory(text: str) -> JudgeMemory:
    """The memory that `to_json` wrote. Raises UsageError for another text."""
    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogatepass"), type=JudgeMemory)
    except msgspec.MsgspecError as error:
        raise UsageError(f"this is not the memory of a judge: {error}.") from None


def sourced_guidelines(
    proposed: Sequence[tuple[str, Sequence[str]]], keys: Collection[str]
) -> list[Guideline]:
    """Guidelines of which at least one source is a key; other sources are dropped, and equal texts are put together."""
    sources: dict[str, dict[str, None]] = {}
    for text, named in proposed:
        valid = [key for key in named if key in keys]
        if valid and text.strip():
            sources.setdefault(" ".join(text.split()), {}).update(dict.fromkeys(valid))
    return [Guideline(text, tuple(names)) for text, names in sources.items()]

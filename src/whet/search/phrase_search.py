"""Search by phrase edits, which GrIPS and Plum share: chains of random edits, what they deleted, and the score of both papers."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

from whet.environments.environment import Environment
from whet.run import Run
from whet.search.edits import Edit, Kind, Level, random_edit, spans, substitute
from whet.types import Example, Rollout, mean_score

KINDS: tuple[Kind, ...] = ("delete", "swap", "insert")


class Rephrase(Protocol):
    """Has a model write wordings for a part of a text, as `LanguagePolicy.rephrase` does."""

    async def __call__(self, run: Run, text: str, part: str, *, sample: int = 0) -> list[str]:
        """Wordings; none when the reply was of no use. `sample` numbers the request."""
        ...


async def edit_chains(
    run: Run,
    rephrase: Rephrase | None,
    text: str,
    deleted: Sequence[str],
    numbers: Sequence[int],
    length: int = 1,
    level: Level = "phrase",
) -> list[list[Edit]]:
    """For each number a chain of `length` edits of the text: delete, swap, insert one of the `deleted` phrases; with an optimizer
    model substitute. Shorter, or empty, where no edit is possible. The numbers tell the requests apart."""

    async def chain(branch: Run, number: int) -> list[Edit]:
        edits, now = list[Edit](), text
        for link in range(length):
            if rephrase is not None and branch.rng.random() * (4 if deleted else 3) < 1:
                edit = await substitute_phrase(branch, rephrase, now, level, number * length + link)
            else:
                edit = random_edit(branch.rng, now, KINDS, deleted, level)
            if edit is not None:
                edits, now = [*edits, edit], edit.text
        return edits

    return await run.map(chain, numbers)


async def substitute_phrase(
    run: Run, rephrase: Rephrase, text: str, level: Level, sample: int
) -> Edit | None:
    """A random phrase replaced by one of several wordings that the optimizer model offers."""
    if not (phrases := spans(text, level)):
        return None
    span = run.rng.choice(phrases)
    wordings = await rephrase(run, text, span.of(text), sample=sample)
    return Edit(substitute(text, span, run.rng.choice(wordings)), "substitute") if wordings else None


def balanced_score(
    env: Environment, examples: Sequence[Example], rollouts: Sequence[Rollout], entropy: float
) -> float:
    """100 x balanced accuracy + `entropy` x entropy of the predicted labels.

    Without labels, the mean reward on a scale from 0 to 100.
    """
    if not env.labels:
        low, width = env.reward.low, env.reward.high - env.reward.low
        return 100 * (mean_score(rollouts).mean - low) / (width or 1.0)
    right: dict[str, list[bool]] = {}
    for wanted, rollout in zip((str(example.target) for example in examples), rollouts, strict=True):
        right.setdefault(wanted, []).append(rollout.error is None and rollout.output == wanted)
    balanced = sum(sum(hits) / len(hits) for hits in right.values()) / len(right)
    counts = Counter(r.output for r in rollouts if r.error is None).values()
    return 100 * balanced - entropy * sum(n / sum(counts) * math.log(n / sum(counts)) for n in counts)


def remember(deleted: Sequence[str], chain: Sequence[Edit]) -> tuple[str, ...]:
    """The deleted phrases after a chain was accepted: without what it added, with what it dropped."""
    kept = list(deleted)
    for edit in chain:
        if edit.added in kept:
            kept.remove(edit.added)
    return (*kept, *(edit.deleted for edit in chain if edit.deleted is not None))


def segments(text: str, k: int, level: Level = "phrase") -> list[str]:
    """The text cut before phrases into `k` pieces with nearly as many phrases each; fewer where there are not as many phrases."""
    starts = [0, *(span.start for span in spans(text, level)[1:])]
    k = max(1, min(k, len(starts)))
    cuts = [*(starts[round(i * len(starts) / k)] for i in range(k)), len(text)]
    return [text[first:last] for first, last in pairwise(cuts)]


def crossed_texts(rng: random.Random, first: str, second: str, level: Level = "phrase") -> str:
    """One-point crossover: the phrases of one text up to a random place, and those of another one from that place on."""
    heads, tails = (segments(text, len(text), level) for text in (first, second))
    cut = rng.randint(1, max(1, min(len(heads), len(tails)) - 1))
    return join_pieces([*heads[:cut], *tails[cut:]])


def join_pieces(pieces: Sequence[str]) -> str:
    """Pieces of texts as one text, with a space where one would run into the next."""
    text = ""
    for piece in pieces:
        gap = " " if text and piece and not text[-1].isspace() and not piece[0].isspace() else ""
        text += gap + piece
    return text

"""A simulated rater with three preferences, a judge that knows none of them, and a writer that finds some in the rater's scores.

An answer is short or long, thanks or does not, and is plain or playful. The rater likes short answers and thanks; which style is
liked depends on the topic, which no single sentence says. The judge follows a guideline that it reads, and infers the style that
is liked from judgements of the same topic and style.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, ClassVar

from whet.environments.environment import Environment
from whet.models.scripted import Scripted, chance, shuffle
from whet.models.scripted_replies import request_text
from whet.prompt import Prompt
from whet.rewards.human_score import HumanScore
from whet.testing.simulated_task import Answers
from whet.types import Example, Request

START = Prompt.parse("<!-- whet:begin -->\nScore the answer.\n<!-- whet:end -->\n{{shown}}")
TOPICS = ("beds", "boats", "bread", "bicycles")
SHORT, THANKS = "Short answers are good.", "Thanks are good."
TEXT = re.compile(r"About (\w+), letter \d+: an? (short|long), (thankful|blunt), (plain|playful) answer\.")
LABEL = re.compile(TEXT.pattern + r"(?:\nWanted: |\nA person's judgement: )([\d.]+)")


def taste(seed: int, topic: str) -> str:
    """The style that the rater likes in answers about a topic."""
    return "plain" if chance(seed, "taste", topic) < 0.5 else "playful"


def score(seed: int, topic: str, length: str, thanks: str, style: str) -> int:
    """What the rater gives, from 1 to 5."""
    return 1 + (length == "short") + (thanks == "thankful") + 2 * (style == taste(seed, topic))


def row(number: int, seed: int) -> Example:
    """A scored answer."""
    topic = TOPICS[int(4 * chance(seed, "topic", number))]
    features = [
        pair[int(2 * chance(seed, pair[0], number))]
        for pair in (("short", "long"), ("thankful", "blunt"), ("plain", "playful"))
    ]
    text = f"About {topic}, letter {number}: a {', '.join(features)} answer."
    label = f"{score(seed, topic, *features)}"
    return Example(f"row-{number}", {"shown": text}, label, {"shown": text}, text)


def judged(prompt: str, text: str) -> float:
    """What the judge gives a text under a prompt."""
    topic, length, thanks, style = TEXT.findall(text)[-1]
    value = (
        1
        + ((length == "short") if SHORT in prompt else 0.5)
        + ((thanks == "thankful") if THANKS in prompt else 0.5)
    )
    seen = [
        float(given) - 1 - (a == "short") - (b == "thankful")
        for about, a, b, c, given in LABEL.findall(prompt)
        if (about, c) == (topic, style)
    ]
    return value + (1.0 if not seen else 2.0 * (fmean(seen) >= 1))


def answer(question: str, sample: int = 0) -> str:
    """The judge's reply to a rendered prompt: the last text is the one to judge."""
    prompt, _, text = question.rpartition("\n")
    return json.dumps({"explanation": "So.", "score": judged(prompt, text)})


class GuidelineWriter(Scripted):
    """Compares the mean labels of texts with and without a quality, and writes a guideline where they differ by half a point;
    its sources are the rows that show it. It adds one guideline without a source."""

    OPTIONS: ClassVar[Mapping[str, str]] = {}

    def answer(self, request: Request, sample: int) -> str:
        rows = re.findall(r"\[(R\d+)\] Input: " + LABEL.pattern, request_text(request))
        made: list[dict[str, Any]] = [{"guideline": "Long answers are good.", "sources": ["R9999"]}]
        for text, place, word in ((SHORT, 2, "short"), (THANKS, 3, "thankful")):
            have = [float(one[5]) for one in rows if one[place] == word]
            lack = [float(one[5]) for one in rows if one[place] != word]
            if have and lack and fmean(have) - fmean(lack) > 0.5:
                made.append(
                    {"guideline": text, "sources": [one[0] for one in rows if one[place] == word][:5]}
                )
        return f"<GUIDELINES>{json.dumps(made)}</GUIDELINES>"


@dataclass(frozen=True)
class Taste:
    """The world of a seed: scored answers, the judge and the writer."""

    seed: int
    env: Environment
    writer: Scripted


def tastes(seed: int, *, shuffled: bool = False, train: int = 60, validation: int = 40) -> Taste:
    """The world of a seed; `shuffled`: the scores are dealt out anew among the answers."""
    rows = [row(number, seed) for number in [*range(train), *range(1000, 1000 + validation)]]
    if shuffled:
        labels = shuffle([one.target for one in rows], seed, "labels")
        rows = [replace(one, target=label) for one, label in zip(rows, labels, strict=True)]
    env = Environment(Answers(answer), HumanScore(), tuple(rows[:train]), tuple(rows[train:]))
    return Taste(seed, env, GuidelineWriter("writer", {"seed": str(seed)}))

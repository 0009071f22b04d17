"""A judge that sees an answer in a list beside others, and scores all of them by principles.

RewardAnything (Yu et al. 2025, arXiv:2506.03637, section 3): the model is given a principle in words, an input and k
answers under
masked names in random order; it explains, scores every answer from 1 to 5, and the scores rank them. Principles are followed as
they stand: what makes an answer good is said, and not learned.

Differences: the list of one rollout holds its answer and the others that its row gives; the list is shown `samples` times, every
second time in the reverse order of the time before, so that a liking for a place cancels; the ranking is that of the scores; the
judge is any model, not one that was trained for this.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from whet.errors import UsageError
from whet.replies import closed_object
from whet.rewards.asking import (
    OF_EVERY_JUDGE,
    REASONS,
    RULES,
    JudgeQuestion,
    RewardOptions,
    ask,
    enclose_in_markers,
    first_of,
)
from whet.rewards.judge_reply import agree_on, lower_keys, parse_place, read_reply
from whet.rewards.reward import JUDGE, TARGET
from whet.rewards.score_reading import fits_stated_scale, score_number
from whet.rewards.text import targets_of
from whet.run import Run
from whet.types import Completion, Example, Reward
from whet_client.storable import show_value

SCALE = (1.0, 5.0)
RANK, SCORE = "rank", "score"
MOST = 12
"""Answers of a list at most."""


class Placed(NamedTuple):
    """The score of the answer, those of the others, and why."""

    score: float
    others: tuple[float, ...]
    explanation: str


@dataclass(frozen=True)
class Listwise:
    """The rank of an answer among others of its row, by principles, in [0, 1].

    `against` names the column with the others, a text or a list of texts, at most 11 (default: the targets). With
    `value` rank the
    reward is the share of the others with a lower score, ties one half; with `score` it is the answer's own score, mapped from 1
    to 5. Both are means over `samples` lists. The explanation of the worst list is the critique of an answer below the
    best value.
    """

    principles: str
    against: str = TARGET
    value: str = RANK
    samples: int = 2
    human: str | None = None
    human_output: str = "output"
    human_good: str | None = None
    files: tuple[Path, ...] = ()
    name: str = "listwise"
    low: float = 0.0
    high: float = 1.0

    @property
    def needs(self) -> frozenset[str]:
        """judge; target too, where the others are the targets."""
        return frozenset({JUDGE, TARGET} if self.against == TARGET else {JUDGE})

    @property
    def judge_calls(self) -> int:
        """Calls of the judge for one rollout, repeats of unreadable answers aside."""
        return self.samples

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        """Raises UsageError for a row without other answers."""
        others = self.others(example)
        answers = [completion.text, *others]

        async def one(branch: Run, sample: int) -> Placed:
            order = draw_order(example.user_text, len(answers), sample)
            question = self.question(example, [answers[place] for place in order])
            return await ask(
                branch,
                question,
                lambda r, w: read_placement(r, order, whole=w),
                sample=sample,
                of=self.samples,
            )

        lists = await run.map(one, list(range(self.samples)))
        value = fmean(self._value(one) for one in lists)
        if value >= 1.0:
            return Reward(1.0)
        return Reward(value, critique=min(lists, key=self._value).explanation or None)

    def _value(self, one: Placed) -> float:
        if self.value == SCORE:
            return (one.score - SCALE[0]) / (SCALE[1] - SCALE[0])
        return fmean(0.5 if other == one.score else float(other < one.score) for other in one.others)

    def check(self, example: Example) -> None:
        """Raises UsageError for a row without other answers, before anything is paid."""
        self.others(example)

    def others(self, example: Example) -> list[str]:
        """The other answers of a row, different ones, in order. Raises UsageError where there are none, or too many."""
        if self.against == TARGET:
            texts: object = [] if example.target is None else list(targets_of(example))
        else:
            texts = example.row.get(self.against)
        listed = [texts] if isinstance(texts, str) else texts
        if not isinstance(listed, list) or not all(isinstance(text, str) and text.strip() for text in listed):
            raise UsageError(
                f"The reward {self.name} compares with the column {show_value(self.against)}, which holds a text or a "
                "list of texts; "
                f"in {example.place} it is {show_value(texts)}."
            )
        different = list(dict.fromkeys(listed))
        if not 1 <= len(different) < MOST:
            raise UsageError(
                f"The reward {self.name} compares with 1 to {MOST - 1} other answers of a row; {example.place} has "
                f"{len(different)} in {show_value(self.against)}."
            )
        return different

    def question(self, example: Example, answers: Sequence[str]) -> JudgeQuestion:
        """The question about a list of answers, in the order in which they are shown."""
        shown = [enclose_in_markers("The task's input", example.user_text)]
        shown += [
            enclose_in_markers(f"{_HEADING.capitalize()} {n}", text) for n, text in enumerate(answers, 1)
        ]
        rules = "\n\n".join((_TASK, f"The principles:\n{self.principles.strip()}", RULES, _FORM))
        return JudgeQuestion(rules, "\n\n".join(shown), _SCHEMA)


def draw_order(text: str, answers: int, sample: int) -> list[int]:
    """The places of so many answers to an input as they are shown; every second sample is the reverse of the one before.

    The answer of every prompt stands in the same place of a row, and in another one of another row, so that a judge's liking for
    a place is no difference between prompts.
    """
    seed = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    order = random.Random(f"{seed} {sample // 2}").sample(range(answers), answers)
    return order[::-1] if sample % 2 else order


def read_placement(reply: str, order: Sequence[int], *, whole: bool = True) -> Placed | None:
    """The reply's score of the answer at place 0, shown in `order`; None where it does not score each answer of the list once,
    on the scale, or scores them twice and not alike."""
    placements: list[Placed] = []
    for value in read_reply(reply, whole).objects:
        rows = (
            first_of(value, "answers", "items", "scores") if fits_stated_scale(value.items(), SCALE) else None
        )
        scores: dict[int, tuple[float, str]] = {}
        for row in rows if isinstance(rows, list) else ():
            number, score, reason = _read_row(row)
            if number is None or score is None or number in scores:
                break
            scores[number] = score, reason
        else:
            if scores.keys() == {*range(1, len(order) + 1)}:
                by_place = {place: scores[number] for number, place in enumerate(order, 1)}
                others = tuple(by_place[place][0] for place in range(1, len(order)))
                placements.append(Placed(by_place[0][0], others, " ".join(by_place[0][1].split())))
    return agree_on(placements, lambda one: (one.score, one.others))


def _read_row(row: object) -> tuple[int | None, float | None, str]:
    """Number, score and explanation of one answer."""
    if not isinstance(row, Mapping):
        return None, None, ""
    keys = lower_keys(row)
    score = score_number(first_of(keys, "score", "rating", "grade", "value"), SCALE)
    reason = first_of(keys, *REASONS)
    if score is not None and not (SCALE[0] <= score <= SCALE[1] and fits_stated_scale(keys.items(), SCALE)):
        score = None
    name = first_of(keys, "answer", "number", "name", "id")
    heading = isinstance(name, str) and name.casefold().startswith(_HEADING)
    number = parse_place(str(name)[len(_HEADING) :].strip() if heading else name)
    return number, score, reason if isinstance(reason, str) else ""


_HEADING = "answer"
"""The text before the number of each answer."""


def build_listwise(options: RewardOptions) -> Listwise:
    """A listwise judge from its options in a task file. Raises UsageError with file and line."""
    options.only("principles", "against", "value", "samples", *OF_EVERY_JUDGE)
    principles, files = options.file_or_text("principles")
    return Listwise(
        principles,
        options.text("against", TARGET),
        options.choice("value", (RANK, SCORE)),
        options.whole("samples", 2),
        files=files,
        **options.of_every_judge(),
    )


_ROW = closed_object(answer={"type": "integer"}, explanation={"type": "string"}, score={"type": "number"})
_SCHEMA = closed_object(answers={"type": "array", "items": _ROW})
_TASK = """\
You judge answers of other systems to one input by principles. The principles alone say what makes an answer good: \
follow them as they stand, also where you would judge otherwise, and weigh them as they say. The order of the \
answers means nothing."""
_FORM = """\
For each answer, first explain in one to three sentences what is wrong with it by the principles, as a demand that \
holds for every answer of this kind ("must", "must not"), or what makes it right, without mentioning other answers. \
Then score it from 1 (goes against the principles) to 5 (fulfils them completely); of two answers the better one has \
the higher score. Answer with JSON only: {"answers": [{"answer": 1, "explanation": "...", "score": ...}, \
{"answer": 2, "explanation": "...", "score": ...}, ...]}, each answer once."""

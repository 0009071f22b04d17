"""A model with a rubric as the reward: it writes an explanation, then a score on a scale."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from whet._util.storable import read_file
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
from whet.rewards.judge_memory import JudgeMemory, read_memory
from whet.rewards.judge_reply import agree_on, lower_keys, parse_place, read_reply
from whet.rewards.reward import JUDGE
from whet.rewards.score_reading import (
    ScoreInReply,
    find_lone_score,
    find_marked_scores,
    fits_stated_scale,
    labelled_lines,
    names_scale,
    score_number,
)
from whet.rewards.text import targets_of
from whet.rewards.verifiers.reading import flag_option
from whet.rewards.verifiers.svg_pixels import need_painting, see_pixels
from whet.rewards.verifiers.svg_shapes import NoPicture
from whet.run import Run
from whet.types import Completion, Example, Message, Reward

COMPARE, SHOW, IGNORE = "compare", "show", "ignore"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A score on the judge's scale, and why."""

    score: float
    explanation: str


@dataclass(frozen=True)
class Judge:
    """Mean score of `samples` judgements, mapped from `scale` to [0, 1].

    Where the example has a target and `reference` is `compare`, the judge sees answer and reference without
    knowing which is which, once in each order, and scores both; the answer's two scores are averaged, which
    cancels a liking for the first or the second place. `show` gives the target as a known good answer,
    `ignore` leaves it out. The explanation of the lowest score is the critique of an answer below the full
    score. With `pixels`, the judge sees an SVG picture as it looks, painted into a PNG file, and not its source; an answer
    without a picture that can be painted has the lowest score. `human` and `human_output` name the columns that hold a person's
    score and the answer that it was given for, `human_good` is the better one of two values that are words. With a `memory`
    (`whet align`) the rubric has its guidelines and the judgements of people on the answers most like the one to judge.
    """

    rubric: str
    scale: tuple[float, float] = (1.0, 5.0)
    samples: int = 1
    reference: str = COMPARE
    human: str | None = None
    human_output: str = "output"
    human_good: str | None = None
    files: tuple[Path, ...] = ()
    memory: JudgeMemory | None = None
    pixels: bool = False
    name: str = "judge"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset({JUDGE})

    @property
    def judge_calls(self) -> int:
        """Calls of the judge for one rollout, repeats of unreadable answers aside."""
        return self.samples * (2 if self.reference == COMPARE else 1)

    @property
    def judge_calls_without_target(self) -> int:
        """The judge calls for a row without a target, with which nothing is compared."""
        return self.samples

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        try:
            verdicts = await self.judge_answer(
                run, example, completion.text, range(self.samples), self.samples
            )
        except NoPicture as error:
            return Reward(0.0, critique=f"The answer holds no picture: {error}.")
        low, high = self.scale
        value = fmean((v.score - low) / (high - low) for v in verdicts)
        if value >= 1.0:
            return Reward(1.0)
        worst = min(verdicts, key=lambda v: v.score)
        return Reward(value, critique=worst.explanation or None)

    async def judge_answer(
        self, run: Run, example: Example, answer: str, samples: Sequence[int], of: int
    ) -> list[Verdict]:
        """The verdicts number `samples` of `of` on an answer; of each, two where a target is compared. Raises NoPicture where the
        judge should see one, and RewardFailed."""
        target = None if example.target is None or self.reference == IGNORE else targets_of(example)[0]
        places = (0, 1) if target is not None and self.reference == COMPARE else (None,)
        shown = await see_pixels(run, example.id, answer) if self.pixels else answer

        async def one(branch: Run, pair: tuple[int, int | None]) -> Verdict:
            sample, place = pair
            question = self._question(example, shown, target, place)
            return await ask(
                branch, question, lambda r, w: self.read(r, place, whole=w), sample=sample, of=of
            )

        return await run.map(one, [(sample, place) for sample in samples for place in places])

    def _question(
        self, example: Example, answer: str, target: str | None, place: int | None
    ) -> JudgeQuestion:
        shown = [enclose_in_markers("The task's input", example.user_text)]
        if place is None:
            shown += [] if target is None else [enclose_in_markers("A known good answer", target)]
            shown.append(enclose_in_markers("The answer to judge", answer))
            form, schema = _ONE, _VERDICT
        else:
            first, second = (answer, target) if place == 0 else (target, answer)
            shown += [enclose_in_markers("Answer 1", str(first)), enclose_in_markers("Answer 2", str(second))]
            form, schema = _TWO, closed_object(answer_1=_VERDICT, answer_2=_VERDICT)
        rubric = self.rubric.strip()
        if self.memory is not None:
            rubric = self.memory.extend(rubric, self.shows(example, answer))
        return JudgeQuestion(self._rules(rubric, form), "\n\n".join(shown), schema)

    def _rules(self, rubric: str, form: str) -> str:
        low, high = (f"{end:g}" for end in self.scale)
        scale = f"The scale goes from {low} (fails the rubric) to {high} (fulfils it completely)."
        return "\n\n".join((_TASK, f"The rubric:\n{rubric}", scale, RULES, form))

    def as_messages(self, fenced: Callable[[str], str], shown: str) -> list[Message]:
        """The question about an answer alone as the messages of a prompt, the rubric as `fenced` writes it, `shown` as the user's
        part; what `shows` gives for a row goes there."""
        return [Message("system", self._rules(fenced(self.rubric.strip()), _ONE)), Message("user", shown)]

    @staticmethod
    def shows(example: Example, answer: str) -> str:
        """An input and an answer as the judge sees them."""
        parts = ("The task's input", example.user_text), ("The answer to judge", answer)
        return "\n\n".join(enclose_in_markers(name, text) for name, text in parts)

    def read(self, reply: str, place: int | None = None, *, whole: bool = True) -> Verdict | None:
        """The verdict that a reply holds on the answer at `place` (None: there is one answer); None when it holds none, two that
        differ, a score outside the scale, or one on another scale: out of another number than the best one (5/10 where the best
        is 5), or beside other ends (`"max_score": 10`). JSON without an explanation does not count beside JSON with one: it is
        quoted. True and false are the ends of a scale from 0 to 1. Of a reply that is not `whole`, the last line without JSON
        is not read: its number may be half of one.
        """
        answer = read_reply(reply, whole)
        if not fits_stated_scale(labelled_lines(answer.own), self.scale):
            return None
        entries = [(one, one if place is None else _entry(one, place + 1)) for one in answer.objects]
        verdicts = [
            self._with_scale_of(one, verdict)
            for one, entry in entries
            if (verdict := self._verdict(entry)) is not None
        ]
        verdicts = [verdict for verdict in verdicts if verdict.explanation] or verdicts
        if place is None:
            verdicts += map(self._of_text, find_marked_scores(answer.own, self.scale))
        if verdicts or place is not None:
            return self._on_scale(agree_on(verdicts, lambda verdict: verdict.score))
        if len(answer.objects) == 1 and _WHOLLY.fullmatch(answer.full.strip()):
            return self._read_unnamed(answer.objects[0])
        lone = find_lone_score(answer.own, self.scale)
        return None if lone is None else self._on_scale(self._of_text(lone))

    @staticmethod
    def _of_text(score: ScoreInReply) -> Verdict:
        return Verdict(score.value, " ".join(re.sub(_LABEL, "", score.rest.strip()).split()))

    def _with_scale_of(self, keys: Mapping[str, object], verdict: Verdict) -> Verdict:
        """A verdict as it stands; its score is not a number where the object around it states another scale."""
        return verdict if fits_stated_scale(keys.items(), self.scale) else replace(verdict, score=math.nan)

    def _verdict(self, value: object) -> Verdict | None:
        """The verdict of an object; its score is not a number where it is one on another scale."""
        if not isinstance(value, Mapping):
            return None
        keys = lower_keys(value)
        score = first_of(keys, "score", "rating", "grade", "value")
        explanation = first_of(keys, *REASONS)
        if isinstance(score, Mapping):
            return self._verdict(
                {**keys, **lower_keys(score), "score": first_of(lower_keys(score), "score", "value")}
            )
        if score is None:
            inner = [self._verdict(one) for one in keys.values()]
            verdicts = [one for one in inner if one is not None]
            return self._with_scale_of(keys, verdicts[0]) if len(verdicts) == 1 else None
        number = score_number(score, self.scale)
        if number is None and score_number(score) is None:
            return None
        reason = " ".join(explanation.split()) if isinstance(explanation, str) else ""
        return self._with_scale_of(keys, Verdict(math.nan if number is None else number, reason))

    def _read_unnamed(self, value: Mapping[str, object]) -> Verdict | None:
        """The verdict of an object with other names, such as those of another language: one number beside texts."""
        scores = {key: n for key, one in value.items() if (n := score_number(one, self.scale)) is not None}
        texts = [one for key, one in value.items() if key not in scores]
        if len(scores) != 1 or not all(isinstance(text, str) for text in texts):
            return None
        if not all(names_scale(key, self.scale) for key in scores):
            return None
        return self._on_scale(
            Verdict(next(iter(scores.values())), " ".join(" ".join(map(str, texts)).split()))
        )

    def _on_scale(self, verdict: Verdict | None) -> Verdict | None:
        low, high = self.scale
        return verdict if verdict is not None and low <= verdict.score <= high else None


def _entry(answer: Mapping[str, object], which: int) -> object:
    """The entry of an object for answer number `which`: under its name, or the list entry with its number."""
    named = first_of(answer, f"answer_{which}", f"answer {which}", f"answer{which}", f"{which}")
    rows = [
        row for one in answer.values() if isinstance(one, list) for row in one if isinstance(row, Mapping)
    ]
    numbered = [
        row for row in rows if parse_place(first_of(lower_keys(row), "answer", "number", "id")) == which
    ]
    return numbered[0] if named is None and len(numbered) == 1 else named


def build_judge(options: RewardOptions) -> Judge:
    """A judge from its options in a task file. Raises UsageError with file and line."""
    options.only("rubric", "scale", "samples", "reference", "memory", "pixels", *OF_EVERY_JUDGE)
    rubric, files = options.file_or_text("rubric")
    memory = read_memory_file(options) if "memory" in options.values else None
    if pixels := flag_option(options, "pixels", False):
        need_painting()
    return Judge(
        rubric,
        read_scale(options),
        options.whole("samples", 1),
        options.choice("reference", (COMPARE, SHOW, IGNORE)),
        files=files if memory is None else (*files, options.folder / options.text("memory").strip()),
        memory=memory,
        pixels=pixels,
        **options.of_every_judge(),
    )


def read_memory_file(options: RewardOptions) -> JudgeMemory:
    """The memory in the file of the task folder that the options name. Raises UsageError with the place."""
    path = options.folder / options.text("memory").strip()
    try:
        return read_memory(read_file(path).decode("utf-8"))
    except (OSError, UnicodeDecodeError, UsageError) as error:
        options.refuse(
            f"memory: the file {path} cannot be read: {error} Write it with: whet align --take RUN --memory memory.json"
        )


def read_scale(options: RewardOptions) -> tuple[float, float]:
    """The lowest and the highest score. Raises UsageError with the place."""
    scale = options.values.get("scale", [1, 5])
    ends = scale if isinstance(scale, list) else []
    if len(ends) != 2 or any(isinstance(e, bool) or not isinstance(e, int | float) for e in ends):
        options.refuse(f"the option scale is a list of two numbers, such as [1, 5]; this is {scale!r}.")
    low, high = float(ends[0]), float(ends[1])
    if not low < high < float("inf") or low == float("-inf"):
        options.refuse(f"the option scale must go from a lower to a higher number; this is {scale!r}.")
    return low, high


_VERDICT = closed_object(explanation={"type": "string"}, score={"type": "number"})
_WHOLLY = re.compile(r"[\[{`].*[\]}`]", re.DOTALL)
"""A reply that is JSON, bare or in a fence, and not prose that quotes some."""
_LABEL = re.compile(
    r"^\W{0,20}(?:explanation|reason(?:ing)?|critique)\W{0,20}?:\s*|</?explanation>", re.IGNORECASE
)

_TASK = """\
You judge answers of another system by a rubric. Judge by the rubric alone; length and tone count only where \
it says so."""
_ONE = """\
First explain in one to three sentences what is wrong with the answer, as a demand that holds for every \
answer of this kind ("must", "must not"), or what makes it right. Then give the score. Answer with JSON \
only: {"explanation": "...", "score": ...}"""
_TWO = """\
Judge the two answers separately; which stands first means nothing. For each, first explain in one to three \
sentences what is wrong with it, as a demand that holds for every answer of this kind ("must", "must not"), \
or what makes it right, without mentioning the other answer or its place. Then give its score. Answer with \
JSON only: {"answer_1": {"explanation": "...", "score": ...}, \
"answer_2": {"explanation": "...", "score": ...}}"""

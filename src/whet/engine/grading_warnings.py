"""Warnings about how answers were graded: numbers whose size is in doubt or that may be alternatives, and targets inside
words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whet._util.words import fold
from whet.errors import quantity, show_reward
from whet.rewards import ProgramReward, RewardFunction, Weighted
from whet.rewards.judge import Judge
from whet.rewards.numbers import BESIDE, HUNDREDTH, MULTIPLIED, Number
from whet.rewards.numerals import powers_of
from whet.rewards.text import INSIDE, Contains
from whet.types import Example, Rollout

_QUOTED = 120
_FEWEST, _LONG_SCALE, _NEAR = 3, 5.0, 1e-6
"""Scores, and the end of a scale, from which on scores between 0 and 1 are a sign of another scale; what rounding makes."""
_MEANINGS = {
    MULTIPLIED: "contain the right number apart from a power of ten, followed by a word. They count as wrong, because whet does "
    "not know words for numbers. If such words multiply, name them: reward: {number: {multiples: {million: 1000000}}}. "
    "Otherwise ask for the number in digits only.",
    HUNDREDTH: "are the target if a percent sign divides by 100. They count as wrong, because the sign is left aside. If it "
    "divides, say so: reward: {number: {percent: true}}. Else let the prompt say how a share is written.",
    BESIDE: "count as right for the last of two numbers with a single word between them. whet cannot read whether these are "
    "alternatives. If so, let the prompt ask for the result in \\boxed{}: an answer with several results there is wrong.",
}
"""The meaning of rollouts with each part of the reward `number`, and the advice about them."""


def grading_warnings(
    reward: RewardFunction, rows: Sequence[Example], evaluated: Mapping[str, Sequence[Rollout]]
) -> list[str]:
    """The warnings on the rollouts of each prompt by its name ("baseline", "best"), which answered these rows."""
    examples = {row.id: row for row in rows}
    return [
        warning
        for name, rollouts in evaluated.items()
        for warning in (
            *_marked_warnings(MULTIPLIED, name, rollouts),
            *_numeral_warnings(reward, examples, name, rollouts),
            *_unit_warnings(reward, examples, name, rollouts),
            *_marked_warnings(HUNDREDTH, name, rollouts),
            *_marked_warnings(BESIDE, name, rollouts),
            *_inside_warnings(reward, name, rollouts),
            *_part_warnings(reward, name, rollouts),
            *_scale_warnings(reward, name, rollouts),
        )
    ]


def _marked_warnings(part: str, name: str, rollouts: Sequence[Rollout]) -> list[str]:
    """A warning when some rollouts have a part of `_MEANINGS`: how many, the answer of the first, what it means, a remedy."""
    marked = [r for r in rollouts if r.parts.get(part)]
    if not marked:
        return []
    output = marked[0].output[-_QUOTED:] if part == BESIDE else marked[0].output
    return [
        f'{len(marked)} of {len(rollouts)} rollouts of the {name} prompt, such as "{_short(output)}", {_MEANINGS[part]}'
    ]


def _numeral_warnings(
    reward: RewardFunction, examples: Mapping[str, Example], name: str, rollouts: Sequence[Rollout]
) -> list[str]:
    """A warning when answers count as right although a word behind their number multiplies it in some language."""
    number = next((part for part in _parts_of(reward) if isinstance(part, Number)), None)
    if number is None or number.multiples is not None:
        return []
    words: dict[str, Rollout] = {}
    right = 0
    for rollout in rollouts:
        example = examples.get(rollout.example_id)
        if example is not None and rollout.has_reward and rollout.reward > reward.low:
            words_behind = number.words_of_equal_numbers(example, rollout.output)
            behind = [word for word in words_behind if word != fold(number.unit).strip() and powers_of(word)]
            right += bool(behind)
            words |= {word: rollout for word in behind if word not in words}
    if not words:
        return []
    word, shown = next(iter(words.items()))
    powers = sorted(powers_of(word))
    factor = f"{10 ** powers[0]}" if len(powers) == 1 else " or ".join(f"{10**power}" for power in powers)
    return [
        f'{right} of {len(rollouts)} rollouts of the {name} prompt, such as "{_short(shown.output)}", count as right for a '
        f'number with "{word}" behind it, which multiplies in some language. whet compared the number alone. If the '
        f"word multiplies, name it with its power of ten ({factor}): "
        f"reward: {{number: {{multiples: {{{word}: {10 ** powers[0]}}}}}}}. Else name none: multiples: {{}}."
    ]


def _unit_warnings(
    reward: RewardFunction, examples: Mapping[str, Example], name: str, rollouts: Sequence[Rollout]
) -> list[str]:
    """A warning when answers count as right whose number has another word behind it than the unit that the task names."""
    number = next((part for part in _parts_of(reward) if isinstance(part, Number)), None)
    unit = "" if number is None else fold(number.unit).strip()
    if number is None or not unit:
        return []
    others: list[tuple[str, Rollout]] = []
    for rollout in rollouts:
        example = examples.get(rollout.example_id)
        if example is not None and rollout.has_reward and rollout.reward > reward.low:
            words = number.words_of_equal_numbers(example, rollout.output)
            others += [(words[-1], rollout)] if words and unit not in words else []
    if not others:
        return []
    word, shown = others[0]
    return [
        f'{len(others)} of {len(rollouts)} rollouts of the {name} prompt, such as "{_short(shown.output)}", count as right with '
        f'the word "{word}" behind their number, and not the unit {number.unit}: units are left aside, and not converted. Let '
        "the prompt name the unit."
    ]


def _inside_warnings(reward: RewardFunction, name: str, rollouts: Sequence[Rollout]) -> list[str]:
    """A warning when answers count as right that hold their target only inside of longer words, with the mean without them."""
    if not any(isinstance(part, Contains) and not part.words for part in _parts_of(reward)):
        return []
    answered = [r for r in rollouts if r.answered]
    inside = [r for r in answered if r.parts.get(INSIDE)]
    if not inside:
        return []
    without = ""
    if isinstance(reward, Contains):
        means = [
            sum(r.reward for r in some) / len(answered)
            for some in (answered, [r for r in answered if r not in inside])
        ]
        without = f" If none of them counted, the mean would be {show_reward(means[1])} in place of {show_reward(means[0])}."
    return [
        f'{len(inside)} of {len(rollouts)} rollouts of the {name} prompt, such as "{_short(inside[0].output)}", hold their '
        f"target only inside of a longer word, and count as right.{without} If a target must stand as a word of its own: reward: "
        "{contains: {words: true}}."
    ]


def _part_warnings(reward: RewardFunction, name: str, rollouts: Sequence[Rollout]) -> list[str]:
    """A warning when a program names a part for some answers only: in its mean, the others count as 0."""
    if not isinstance(reward, ProgramReward):
        return []
    answered = [r for r in rollouts if r.answered]
    values = {
        part: [r.parts[part] for r in answered if part in r.parts] for r in answered for part in r.parts
    }
    lacking = {part: some for part, some in values.items() if len(some) < len(answered)}
    if not lacking:
        return []
    part, some = min(lacking.items(), key=lambda item: (len(item[1]), item[0]))
    more = f" (and so with {quantity(len(lacking) - 1, 'other part')})" if len(lacking) > 1 else ""
    return [
        f"{len(answered) - len(some)} of {len(answered)} rollouts of the {name} prompt have no part {part}{more}. They count as "
        f"0 in its mean, which is {show_reward(sum(some) / len(answered))}; of the others alone it is "
        f"{show_reward(sum(some) / len(some))}. Let the reward return every part for every answer."
    ]


def _scale_warnings(reward: RewardFunction, name: str, rollouts: Sequence[Rollout]) -> list[str]:
    """A warning when every score of a judge lies from 0 to 1, with fractions, on a scale that is much longer: .8 of 100."""
    judges = [part for part in _parts_of(reward) if isinstance(part, Judge)]
    return [text for judge in judges for text in _scale_warning(judge, name, rollouts)]


def _scale_warning(judge: Judge, name: str, rollouts: Sequence[Rollout]) -> list[str]:
    low, high = judge.scale
    values = [r.parts.get(judge.name, r.reward) for r in rollouts if r.answered and r.has_reward]
    scores = [low + value * (high - low) for value in values]
    of_averages = 1 / judge.judge_calls
    fractions = [score for score in scores if abs(score / of_averages - round(score / of_averages)) > _NEAR]
    if (
        high < _LONG_SCALE
        or len(scores) < _FEWEST
        or not fractions
        or not all(-_NEAR < s < 1 + _NEAR for s in scores)
    ):
        return []
    return [
        f"All {len(scores)} scores of the judge for the {name} prompt lie between 0 and 1, such as {fractions[0]:g}, on its "
        f"scale from {low:g} to {high:g}. The judge may have answered on a scale from 0 to 1; these rewards are then {high:g} "
        "times too low. Read a reply of the judge in the report. Name the scale in the rubric, or write scale: [0, 1]."
    ]


def _parts_of(reward: RewardFunction) -> list[RewardFunction]:
    return [part for _, part in reward.parts] if isinstance(reward, Weighted) else [reward]


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _QUOTED else f"{plain[:_QUOTED]} ..."

"""A simulated task that demonstrations teach: each kind of question has a secret digit.

The task model answers a question as the rules and demonstrations of its kind say; without one it knows the digit for some
questions, by chance, and guesses wrongly for the others. So a demonstration is worth something, a wrong one does harm, and two
that say the same are worth one.
"""

from __future__ import annotations

import re
from statistics import fmean

from tests.methods.readers import SHOWN

from whet.environments.environment import Environment
from whet.models.scripted import chance, choose_by_luck, shuffle
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.testing.paired_benchmark import KnownWorld
from whet.testing.simulated_task import Answers
from whet.types import Completion, Example

KINDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "haven")
KNOWS = 0.15
START = Prompt.parse(
    "Name the digit.\n<!-- whet:begin -->\nAnswer with a digit.\n<!-- whet:end -->\n"
    "<!-- whet:begin demonstrations -->\nNone yet.\n<!-- whet:end -->\nQuestion: {{input}}"
)
DEMONSTRATIONS_ALONE = Prompt.parse(
    "Answer with a digit.\n<!-- whet:begin demonstrations -->\nNone yet.\n<!-- whet:end -->\nQuestion: {{input}}"
)
_RULE = re.compile(r"^(\w+) means (\d)$", re.MULTILINE)
_CONTRAST = re.compile(r"Input: (\w+).*?Answered: (\d)\nReward: 1\b", re.DOTALL)
_SHOWN = re.compile(r"^(?:Input|Question): (.*)\nAnswer: (.*)$", re.MULTILINE)


def shown_rows(text: str) -> list[tuple[str, str]]:
    """The inputs and answers of the demonstrations in a text."""
    return _SHOWN.findall(text)


def taught(text: str) -> list[tuple[str, str]]:
    """The kinds and digits of the demonstrations and rules in a text, the rules last."""
    return [*((q.split()[0], a) for q, a in shown_rows(text)), *_RULE.findall(text)]


def contrasting(question: str, sample: int) -> str:
    """An optimizer that says what the answer at the full reward had right; without one it says something vague."""
    right = _CONTRAST.search(question)
    return f"<RULE>{' means '.join(right.groups()) if right else 'Take care.'}</RULE>"


def digit(seed: int, kind: str) -> str:
    """The secret digit of a kind."""
    return str(int(10 * chance(seed, "digit", kind)))


def codes_world(seed: int, answers: bool = True) -> KnownWorld:
    """Questions of eight kinds; the worth of a prompt is its expected share of right answers.

    Without `answers` no row says what an answer looks like: its target is a list.
    """

    def answer(question: str, sample: int) -> str:
        prompt, _, text = question.rpartition("Question: ")
        kind = text.split()[0]
        like = [a for k, a in taught(prompt) if k == kind]
        if like:
            return like[-1]
        right = digit(seed, kind)
        knows = chance(seed, "knows", text, sample) < KNOWS
        return right if knows else str((int(right) + 1 + int(9 * chance(seed, "wrong", text, sample))) % 10)

    def rows(first: int, n: int) -> tuple[Example, ...]:
        made = []
        for i in range(first, first + n):
            kind = KINDS[i % len(KINDS)]
            text = f"{kind} number {i}?"
            right = digit(seed, kind)
            made.append(
                Example(f"q{i}", {"input": text}, right if answers else [right], {"input": text}, text)
            )
        return tuple(made)

    def worth(prompt: Prompt) -> float:
        lessons = dict(taught(prompt.text))
        return fmean(float(lessons[k] == digit(seed, k)) if k in lessons else KNOWS for k in KINDS)

    env = Environment(Answers(answer), ExactMatch(), rows(0, 120), rows(1000, 40))
    return KnownWorld(env, START, worth, Answers(contrasting))


def writing(seed: int, right: float = 0.5, rules: int = 3) -> Answers:
    """An optimizer that writes instructions with a few rules, each right with the probability `right`."""

    def answer(question: str, sample: int) -> str:
        if "<SUMMARY>" in question:
            return "<SUMMARY>Questions with a digit as the answer.</SUMMARY>"
        kinds = shuffle(KINDS, seed, "rules", sample)[:rules]
        lines = [
            f"{kind} means {digit(seed, kind) if chance(seed, 'right', kind, sample) < right else 'x'}"
            for kind in kinds
        ]
        return (
            "<INSTRUCTION>"
            + "\n".join(line.replace("x", str(len(line) % 10)) for line in lines)
            + "</INSTRUCTION>"
        )

    return Answers(answer)


def joining(seed: int) -> Answers:
    """An optimizer that knows no digit: it writes three rules, half of them right, joins the rules of two texts, and of one text
    it changes a rule."""
    writer = writing(seed)

    def answer(question: str, sample: int) -> Completion | str:
        texts = SHOWN.findall(question)
        if not texts:
            return writer.answer(question, sample)
        rules: dict[str, str] = {}
        for text in shuffle(texts, seed, "order", sample, question):
            rules = dict(_RULE.findall(text)) | rules
        if len(texts) == 1:
            kind, right = (
                choose_by_luck(KINDS, seed, "kind", sample, question),
                chance(seed, "new", sample, question),
            )
            drawn = str(int(10 * chance(seed, "drawn", sample, question)))
            rules[kind] = digit(seed, kind) if right < 0.3 else drawn
        lines = ["Answer with a digit.", *(f"{kind} means {value}" for kind, value in rules.items())]
        return "<INSTRUCTION>" + "\n".join(lines) + "</INSTRUCTION>"

    return Answers(answer)

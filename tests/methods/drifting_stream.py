"""A simulated stream of inputs of many kinds, each with a digit as its answer; in its middle the digits of all kinds change."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from tests.methods.rule_worlds import CODE, KNOWS, LESSON

from whet.environments.environment import Environment
from whet.models.scripted import Scripted, chance
from whet.models.scripted_replies import request_text
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.testing.simulated_task import Answers
from whet.types import Example, Request

START = Prompt.parse("<!-- whet:begin -->\nAnswer with a digit.\n<!-- whet:end -->\nQuestion: {{input}}")
KINDS, ROWS, WARM = 12, 300, 60
"""Kinds; rows of the stream; rows before those that count."""
SHOWN = re.compile(r"Input: (k\d+) \S+ (\d+)\?\nWanted: (\d)\nAnswered: (\d)\nReward: ([01])")


def digit(seed: int, kind: str, number: int, drift: bool) -> int:
    """The right answer to a row of a kind: another one from the middle of the stream on. Validation rows are older."""
    return int(10 * chance(seed, "digit", kind, drift and ROWS // 2 <= number < ROWS))


class LessonWriter(Scripted):
    """Says of each kind of input that it sees fail which digit was wanted, and of each lesson whether the answers agree."""

    def answer(self, request: Request, sample: int) -> str:
        question = request_text(request)
        answers = SHOWN.findall(question)
        if "<REFLECTION>" not in question:
            new = re.findall(r"^- (k\d+ means \d)$", question.partition("New insights:\n")[2], re.MULTILINE)
            known = [text for _, text in LESSON.findall(question.partition("New insights:\n")[0])]
            return "".join(f"<LESSON>{text}</LESSON>\n" for text in new if text not in known)
        wanted = {kind: target for kind, _, target, *_ in answers}
        failed = {kind: target for kind, _, target, _, reward in answers if reward == "0"}
        judged: dict[bool, list[str]] = {True: [], False: []}
        for key, text in LESSON.findall(question):
            kind, _, meant = text.split()
            if kind in wanted:
                judged[wanted[kind] == meant].append(key)
        insights = [f"{kind} means {target}" for kind, target in failed.items()]
        reflection = {"insights": insights, "helped": judged[True], "harmed": judged[False]}
        return f"<REFLECTION>{json.dumps(reflection)}</REFLECTION>"


@dataclass(frozen=True)
class Stream:
    """The stream of a seed, its first rows apart, and the model that writes lessons."""

    env: Environment
    writer: LessonWriter
    rows: tuple[Example, ...]


def stream(seed: int, drift: bool = True) -> Stream:
    """The stream of a seed. The task model follows a lesson about the kind, one of them by chance where several contradict."""

    def answer(question: str, sample: int) -> str:
        prompt, _, text = question.rpartition("Question: ")
        kind, number = text.split()[0], int(text.split()[-1].rstrip("?"))
        lessons = [str(meant) for about, meant in CODE.findall(prompt) if about == kind]
        if lessons:
            return lessons[int(len(lessons) * chance(seed, "which", number))]
        right = digit(seed, kind, number, drift)
        return str(right if chance(seed, "knows", number) < KNOWS else (right + 1) % 10)

    def rows(first: int, n: int) -> tuple[Example, ...]:
        made = []
        for number in range(first, first + n):
            kind = f"k{int(KINDS * chance(seed, 'kind', number))}"
            text = f"{kind} number {number}?"
            target = str(digit(seed, kind, number, drift))
            made.append(Example(text, {"input": text}, target, {"input": text}, text))
        return tuple(made)

    model = Answers(answer)
    env = Environment(model, ExactMatch(), rows(0, ROWS), rows(10_000, 24))
    return Stream(env, LessonWriter("writer", {"seed": str(seed)}), env.train)

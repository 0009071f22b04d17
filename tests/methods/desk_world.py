"""A simulated desk: a customer with four wishes, one due in each turn. Who does not ask for a wish guesses, and guesses wrong.

Each turn has wishes of its own. That something went wrong shows only at the end. With `late`, all wishes are due in the last
turn. The reader of conversations (the optimizer) notices what happened in the last turn that it is shown far more often than
what happened before.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from whet.environments import Conversation, Return, WorldStep
from whet.environments.environment import Environment
from whet.environments.multiturn import multiturn
from whet.models.scripted import chance, choose_by_luck, shuffle
from whet.prompt import Prompt
from whet.run import Run
from whet.search.edits import PHRASES
from whet.testing.paired_benchmark import KnownWorld
from whet.testing.simulated_task import Answers
from whet.types import Example

WISHES = ("colour", "size", "price", "date", "place", "payment", "gift", "wrap")
TURNS = 4
START = Prompt.parse("You sell shoes.\n<!-- whet:begin -->\nBe polite.\n<!-- whet:end -->\n{{input}}")
ASK = re.compile(r"Ask for the (\w+)\.")
NOTICED_LAST, NOTICED_EARLIER = 0.9, 0.1


@dataclass(frozen=True)
class Desk:
    """Conversations with customers, whose four wishes the row lists. The reward is the share of wishes that were asked for."""

    late: bool = False
    name: str = "desk"
    turns: int = TURNS
    graded: bool = False
    range: tuple[float, float] = (0.0, 1.0)

    def check(self, example: Example) -> None:
        """Every row will do."""

    def observe(self, example: Example) -> Example:
        """The first turn."""
        return Example(example.id, {"input": self.says(example.user_text.split(","), 0)})

    def says(self, wishes: list[str], turn: int) -> str:
        """What the customer says before a turn, which tells what is due in it."""
        due = wishes if self.late else wishes[turn : turn + 1]
        if self.late and turn < TURNS - 1:
            return "Customer: hm."
        return f"Customer: go on. (due: {', '.join(due)})"

    def reset(self, example: Example, opening: Conversation) -> DeskEpisode:
        return DeskEpisode(self, opening, TURNS, example.user_text.split(","))


@dataclass
class DeskEpisode:
    """A conversation on its way."""

    desk: Desk
    opening: Conversation
    turns: int
    wishes: list[str]
    turn: int = 0

    async def step(self, run: Run, text: str) -> WorldStep:
        self.turn += 1
        reward = text.count("asked for") / TURNS
        if self.turn == TURNS:
            return WorldStep("Customer: that is not what I wanted." if reward < 1 else "", reward, done=True)
        return WorldStep(self.desk.says(self.wishes, self.turn), reward)


def clerk(question: str, sample: int) -> str:
    """Asks for what is due where the prompt says so, and guesses it otherwise."""
    due = re.findall(r"\(due: ([^)]*)\)", question)
    if "Customer: hm." in question.rpartition("Customer:")[1] + question.rpartition("Customer:")[2]:
        return "Well."
    rules = set(ASK.findall(question))
    wishes = due[-1].split(", ") if due else []
    return (
        " ".join(f"asked for {wish}." if wish in rules else f"guessed {wish}." for wish in wishes) or "Well."
    )


def reader(seed: int, change: Callable[[str], str]) -> Callable[[str, int], str]:
    """Comments on guesses, those of the last turn shown far more often than earlier ones; writes rules from what it reads."""

    def notice(question: str, sample: int) -> list[str]:
        wishes = []
        for number, talk in enumerate(re.split(r"Conversation \d+\n", question)[1:]):
            turns = re.findall(r"Answered: ([^\n]*)", talk.split("\n\n")[0])
            for at, turn in enumerate(turns):
                for wish in re.findall(r"guessed (\w+)", turn):
                    rate = NOTICED_LAST if at == len(turns) - 1 else NOTICED_EARLIER
                    if chance(seed, sample, number, at, wish) < rate:
                        wishes.append(wish)
        return sorted(set(wishes))

    def answer(question: str, sample: int) -> str:
        question = change(question)
        if "<COMMENT>" in question:
            shown = notice(question.split("What was said of earlier")[0], sample)
            return f"<COMMENT>It guessed {', '.join(shown) or 'nothing'}; it should ask.</COMMENT>"
        text = re.findall(r"<INSTRUCTION>\n(.*?)\n</INSTRUCTION>", question, re.DOTALL)[0]
        heard = {
            wish for said in re.findall(r"It guessed ([^;]*);", question) for wish in said.split(", ")
        } - {"nothing"}
        read = {*heard, *(() if heard else notice(question, sample))}
        news = [wish for wish in sorted(read & {*WISHES}) if f"Ask for the {wish}." not in text]
        phrase = shuffle(PHRASES, seed, sample)[0]
        return (
            f"<INSTRUCTION>{text} {' '.join(f'Ask for the {wish}.' for wish in news) or phrase}</INSTRUCTION>"
        )

    return answer


def worth(prompt: Prompt) -> float:
    """The mean reward of a prompt over all customers."""
    return len(set(ASK.findall(prompt.source)) & {*WISHES}) / len(WISHES)


def desk(seed: int, late: bool = False, change: Callable[[str], str] = str) -> KnownWorld:
    """The world of a seed; `change` makes of a question to the reader what it reads."""
    rows = [
        Example(
            f"customer-{n}",
            {
                "input": ",".join(
                    choose_by_luck(WISHES[2 * turn : 2 * turn + 2], seed, n, turn) for turn in range(TURNS)
                )
            },
        )
        for n in range(60)
    ]
    env: Any = Environment(Answers(clerk), Return(0.0, 1.0), tuple(rows[:40]), tuple(rows[40:]))
    return KnownWorld(multiturn(env, Desk(late)), START, worth, Answers(reader(seed, change)))

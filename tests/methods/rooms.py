"""A simulated task of several steps: doors that open to one action each, which the prompt may name, and phrases that distract."""

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

DOORS, IN_A_ROW = 9, 3
ACTIONS = ("push", "pull", "turn")
DISTRACTING = PHRASES[:12]
HINT = re.compile(r"At door (\d): (\w+)\.")
START = Prompt.parse("Go through the doors.\n<!-- whet:begin -->\nOpen them.\n<!-- whet:end -->\n{{input}}")


def opens(door: int, seed: int) -> str:
    """The action to which a door opens."""
    return choose_by_luck(ACTIONS, seed, "door", door)


def attention(prompt: str) -> float:
    """With what chance an agent does what its prompt says of a door: each distracting phrase takes an eighth of it."""
    return float(0.875 ** sum(phrase in prompt for phrase in DISTRACTING))


@dataclass(frozen=True)
class Rooms:
    """Three doors one behind the other; the row numbers them. The reward is the share of the doors that were opened."""

    seed: int
    name: str = "rooms"
    turns: int = 9
    graded: bool = False
    range: tuple[float, float] = (0.0, 1.0)

    def check(self, example: Example) -> None:
        """Every row will do."""

    def observe(self, example: Example) -> Example:
        """The first door."""
        return Example(example.id, {"input": f"You stand before door {example.user_text[0]}."})

    def reset(self, example: Example, opening: Conversation) -> RoomsEpisode:
        return RoomsEpisode(opening, self.turns, self.seed, example.user_text)


@dataclass
class RoomsEpisode:
    """An episode on its way."""

    opening: Conversation
    turns: int
    seed: int
    left: str

    async def step(self, run: Run, text: str) -> WorldStep:
        door = int(self.left[0])
        if text not in (*ACTIONS, "wait"):
            return WorldStep(f"Nothing happens. You stand before door {door}.", notes={"wasted": 1.0})
        if text != opens(door, self.seed):
            return WorldStep(f"You stand before door {door}.")
        self.left = self.left[1:]
        seen = f"You stand before door {self.left[0]}." if self.left else "You are through."
        return WorldStep(seen, 1.0 / IN_A_ROW, done=not self.left)


def agent(seed: int) -> Callable[[str, int], str]:
    """Does what the prompt says of a door; else it talks, waits, or tries what does not open the door, each door its own way."""

    def act(question: str, sample: int) -> str:
        prompt, row = question.split("You stand before")[0], question.split("You stand before")[1]
        door = int(re.findall(r"before door (\d)", question)[-1])
        hints = [action for number, action in HINT.findall(prompt) if int(number) == door]
        if hints and chance(seed, row[:10], door, "heeds") < attention(prompt):
            return str(hints[-1])
        wrong = [action for action in ACTIONS if action != opens(door, seed)]
        return ("Let me think about it.", "wait", wrong[0])[door % 3]

    return act


Reader = Callable[[str], str]


def writer(seed: int, right: float, change: Reader) -> Callable[[str, int], str]:
    """Reads which door stayed shut in the episodes that it is shown, and writes what opens it, or something else; and phrases."""

    def write(question: str, sample: int) -> str:
        question = change(question)
        for tag in ("FEEDBACK", "AUDIT"):
            if f"<{tag}>" in question:
                shut = re.findall(r"Seen: [^\n]*door (\d)\.\nReward", question) or ["0"]
                return f"<{tag}>Door {' and door '.join(sorted(set(shut)))} stayed shut.</{tag}>"
        text = re.findall(r"<INSTRUCTION>\n(.*?)\n</INSTRUCTION>", question, re.DOTALL)[0]
        said = re.split("how many of them|was wrong in it", question)[-1]
        door = choose_by_luck(sorted(set(re.findall(r"oor (\d)", said))) or ["0"], seed, sample, "which")
        good = chance(seed, sample, door, "right") < right
        action = opens(int(door), seed) if good else choose_by_luck(ACTIONS, seed, sample, "action")
        phrases = shuffle(PHRASES, seed, sample, "phrases")[:2]
        return f"<INSTRUCTION>{text} At door {door}: {action}. {' '.join(phrases)}</INSTRUCTION>"

    return write


def worth(seed: int) -> Callable[[Prompt], float]:
    """The mean reward of a prompt over all episodes."""

    def of(prompt: Prompt) -> float:
        heeds = attention(prompt.source)
        hints = {int(door): action for door, action in HINT.findall(prompt.source)}
        q = heeds * sum(hints.get(door) == opens(door, seed) for door in range(DOORS)) / DOORS
        return float(q + q**2 + q**3) / 3

    return of


def rooms(seed: int, right: float = 0.7, change: Reader = str) -> KnownWorld:
    """The world of a seed; `change` makes of a question to the writer what it reads."""
    rows = [
        Example(f"rooms-{n}", {"input": "".join(map(str, shuffle(range(DOORS), seed, n)[:IN_A_ROW]))})
        for n in range(50)
    ]
    env: Any = Environment(Answers(agent(seed)), Return(0.0, 1.0), tuple(rows[:30]), tuple(rows[30:]))
    return KnownWorld(multiturn(env, Rooms(seed)), START, worth(seed), Answers(writer(seed, right, change)))

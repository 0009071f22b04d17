"""A simulated workshop: twelve of twenty-four machines make an item each, and the agent makes what it was shown or told.

The agent explores machines that its memory does not name. The maker of tasks proposes what it saw, and things that nobody can
make beside it. The writer learns a rule from a failure beside the actions that worked. The reward needs no target.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from whet.environments import Conversation, WorldStep
from whet.environments.environment import Environment
from whet.environments.multiturn import multiturn
from whet.models.scripted import chance, choose_by_luck, shuffle
from whet.prompt import Prompt
from whet.run import Run
from whet.testing.paired_benchmark import KnownWorld
from whet.testing.simulated_task import Answers
from whet.types import Completion, Example, Reward

MACHINES, ITEMS, TURNS = 24, 12, 4
START = Prompt.parse("You make things.\n<!-- whet:begin -->\nMake it.\n<!-- whet:end -->\n{{input}}")
RULE = re.compile(r"Item (\d+): use (m\d+)\.")


def items(seed: int) -> dict[str, int]:
    """The item that a machine makes, by its name."""
    return {f"m{n}": place for place, n in enumerate(shuffle(range(MACHINES), seed)[:ITEMS])}


class Made:
    """1 for an answer that says that the item of the query was made."""

    name, low, high, needs = "made", 0.0, 1.0, frozenset[str]()

    async def grade(self, run: Any, example: Example, completion: Completion) -> Reward:
        wanted = re.findall(r"item (\d+)", example.user_text)
        return Reward(float(bool(wanted) and completion.text == f"made item {wanted[0]}"))


@dataclass(frozen=True)
class Workshop:
    """Machines that can be used; any other text is the answer."""

    seed: int
    name: str = "workshop"
    turns: int = TURNS
    graded: bool = True

    def check(self, example: Example) -> None:
        """Every row will do."""

    def observe(self, example: Example) -> Example:
        """The query."""
        return example

    def reset(self, example: Example, opening: Conversation) -> WorkshopEpisode:
        return WorkshopEpisode(opening, items(self.seed))


@dataclass
class WorkshopEpisode:
    """An episode on its way."""

    opening: Conversation
    items: dict[str, int]
    turns: int = TURNS

    async def step(self, run: Run, text: str) -> WorldStep:
        used = re.fullmatch(r"use (m\d+)", text)
        if used is None:
            return WorldStep(done=True, answer=text)
        made = self.items.get(used[1])
        return WorldStep(f"{used[1]} does nothing" if made is None else f"{used[1]} makes item {made}")


def agent(seed: int) -> Any:
    """Explores what it does not know of; or does what it was told of the item, and says whether it came."""

    def act(question: str, sample: int) -> str:
        seen = re.findall(r"(m\d+) (?:makes|does)", question)
        if "There is no task" in question:
            known = {*re.findall(r"m\d+", question.partition("Tried before:")[2]), *seen}
            left = [f"m{n}" for n in range(MACHINES) if f"m{n}" not in known]
            return f"use {choose_by_luck(left, seed, sample, len(seen))}" if left else "I know it all."
        wanted = re.findall(r"[Mm]ake item (\d+)", question)
        if not wanted:
            return "What?"
        if f"makes item {wanted[-1]}" in question:
            return f"made item {wanted[-1]}"
        rules = dict(RULE.findall(question))
        hint = re.findall(r"answered it before:\nuse (m\d+)", question)
        machine = hint[0] if hint else rules.get(wanted[-1], "")
        return f"use {machine}" if machine and machine not in seen else f"cannot make item {wanted[-1]}"

    return act


def writer(seed: int) -> Any:
    """The optimizer: the keeper of the memory, the maker of tasks and the writer of prompts."""

    def write(question: str, sample: int) -> str:
        if "<MEMORY>" in question:
            return f"<MEMORY>{', '.join(sorted(set(re.findall(r'm[0-9]+', question))))}</MEMORY>"
        if "<TASK>" in question:
            tasks = []
            for machine, item in re.findall(r"Then: (m\d+) (?:makes item (\d+)|does nothing)", question):
                wanted = item or str(100 + int(machine[1:]))
                if item or chance(seed, machine, "dreams") < 0.5:
                    tasks.append(
                        {"query": f"Make item {wanted}.", "actions": [f"use {machine}"], "confidence": 0.9}
                    )
                tasks.append(
                    {"query": f"Paint item {wanted}.", "actions": [f"use {machine}"], "confidence": 0.3}
                )
            return "".join(f"<TASK>{json.dumps(task)}</TASK>" for task in tasks) or "<TASK>none</TASK>"
        text = re.findall(r"<INSTRUCTION>\n(.*?)\n</INSTRUCTION>", question, re.DOTALL)[0]
        worked = re.findall(
            r"item (\d+)\.(?:(?!Input:).)*?Actions that worked: use (m\d+)", question, re.DOTALL
        )
        rules = "".join(f" Item {item}: use {machine}." for item, machine in worked)
        return f"<INSTRUCTION>{text}{rules or ' Be careful.'}</INSTRUCTION>"

    return write


def workshop(seed: int) -> KnownWorld:
    """The world of a seed: training rows want two of the items, validation rows all."""
    texts = [f"Make item {n % 2}." for n in range(8)] + [f"Make item {n % ITEMS}." for n in range(24)]
    rows = [Example(f"order-{n}", {"input": text}, text=text) for n, text in enumerate(texts)]
    env = Environment(Answers(agent(seed)), Made(), tuple(rows[:8]), tuple(rows[8:]))

    def worth(prompt: Prompt) -> float:
        known, rules = items(seed), dict(RULE.findall(prompt.source))
        return sum(known.get(machine) == int(item) for item, machine in rules.items()) / ITEMS

    return KnownWorld(multiturn(env, Workshop(seed)), START, worth, Answers(writer(seed)))

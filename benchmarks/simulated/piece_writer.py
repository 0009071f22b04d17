"""A simulated writer of pieces for MultiPrompter, and a world in which a prompt needs one right piece of each of several lists.

The writer is a softmax over the pieces that it may choose from in a turn, by turn; `divided`: in turn i from list i only, else
from all lists. `whole`: one that writes a piece of each list at once, a softmax over all combinations.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch

from whet.environments.environment import Environment
from whet.methods.multiprompter import OF, TURN
from whet.models.scripted import chance
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.rl.policy_model import Sample
from whet.rl.policy_model.critic import Critic
from whet.rl.policy_model.optimizer import Update
from whet.types import Completion, Example, Message, Request, Usage

Menu = Literal["divided", "all", "whole"]
START = Prompt.parse("<!-- whet:begin -->\nDo it.\n<!-- whet:end -->\n{{input}}")
PIECE = re.compile(r"L(\d+)P(\d+)")
MISSED = 0.4
TURNS = re.compile(f"{TURN} (\\d+) {OF}")


@dataclass(frozen=True)
class PieceWorld:
    """`lists` lists of `size` pieces, of which one each is right; every list whose right piece lacks leaves `MISSED` of the
    probability of a right answer."""

    seed: int
    lists: int = 3
    size: int = 8
    address = "scripted/pieces"
    simulated = local = can_generate = True
    can_score = False

    @property
    def right(self) -> set[tuple[int, int]]:
        """The right piece of each list."""
        rng = random.Random(f"pieces|{self.seed}")
        return {(i, rng.randrange(self.size)) for i in range(self.lists)}

    def worth(self, text: str) -> float:
        """The probability of a right answer under a text; a piece too many costs nothing."""
        held = {(int(i), int(k)) for i, k in PIECE.findall(text)}
        return float(MISSED ** len(self.right - held))

    async def generate(self, request: Request) -> list[Completion]:
        text = request.messages[-1].content
        said = "yes" if chance(self.seed, text) < self.worth(text) else "no"
        return [Completion(said, usage=Usage(1, 1))]

    def count_tokens(self, text: str) -> int:
        return len(text)

    async def close(self) -> None:
        return None

    def environment(self, rows: int = 200) -> Environment:
        """The task over `rows` training rows and a few for validation."""
        examples = [Example(f"e{i}", {"input": f"row {i}"}, "yes", {}, f"row {i}") for i in range(rows + 8)]
        model: Any = self
        return Environment(model, ExactMatch(), tuple(examples[:rows]), tuple(examples[rows:]))


@dataclass
class PieceWriter:
    """A softmax over the pieces of a turn, with a critic that sees the turn and which pieces stand already."""

    world: PieceWorld
    menu: Menu
    notes: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=lambda: {"sampling": 0.0, "update": 0.0})

    def __post_init__(self) -> None:
        lists, size = self.world.lists, self.world.size
        own = [[f"L{i}P{k}" for k in range(size)] for i in range(lists)]
        every = [piece for one in own for piece in one]
        self.menus = {
            "divided": own,
            "all": [every] * lists,
            "whole": [[" ".join(pieces) for pieces in itertools.product(*own)]],
        }[self.menu]
        self.logits = [np.zeros(len(menu)) for menu in self.menus]
        self.critic = Critic(len(every) + lists + 1)
        self._states: list[tuple[int, torch.Tensor]] = []
        self._places = {piece: place for place, piece in enumerate(every)}

    def _read(self, conversation: Sequence[Message]) -> int:
        text = conversation[-1].content
        turn = int(found[0]) - 1 if (found := TURNS.findall(text)) else 0
        state = torch.zeros(len(self._places) + self.world.lists + 1)
        for i, k in PIECE.findall(text):
            state[self._places[f"L{i}P{k}"]] = 1.0
        state[len(self._places) + turn] = 1.0
        self._states.append((turn, state))
        return turn

    def sample(
        self, conversations: Sequence[Sequence[Message]], n: int = 1, *, temperature: float = 1.0,
        seed: int = 0, **how: Any,
    ) -> list[list[Sample]]:  # fmt: skip
        rng, groups = np.random.default_rng(seed), []
        for conversation in conversations:
            turn = self._read(conversation)
            chances = self.chances(turn)
            menu = self.menus[turn]
            drawn = rng.choice(len(menu), n, p=chances) if temperature else [int(chances.argmax())] * n
            at = (len(self._states) - 1,)
            groups.append(
                [Sample(menu[i], at, (int(i),), (float(np.log(chances[i])),), (True,), True) for i in drawn]
            )
        return groups

    def chances(self, turn: int) -> Any:
        """The probabilities of the pieces of a turn."""
        weights = np.exp(self.logits[turn] - self.logits[turn].max())
        return weights / weights.sum()

    def with_critic(self) -> Critic:
        return self.critic

    def states(self, samples: Sequence[Sample]) -> list[torch.Tensor]:
        return [self._states[sample.prompt[0]][1][None] for sample in samples]

    def update(
        self, samples: Sequence[Sample], advantages: Sequence[Any], settings: Update
    ) -> dict[str, float]:
        flat = [float(a[0]) if isinstance(a, Sequence) else float(a) for a in advantages]
        before = [self.chances(turn) for turn in range(len(self.menus))]
        for sample, advantage in zip(samples, flat, strict=True):
            turn = self._states[sample.prompt[0]][0]
            step = -before[turn]
            step[sample.tokens[0]] += 1.0
            self.logits[turn] = self.logits[turn] + settings.lr * advantage / len(samples) * step
        return {"loss": 0.0}

    def save(self) -> bytes:
        return json.dumps([[row.tolist() for row in self.logits], self.notes]).encode()

    def load(self, blob: bytes) -> None:
        logits, self.notes = json.loads(blob)
        self.logits = [np.array(row) for row in logits]

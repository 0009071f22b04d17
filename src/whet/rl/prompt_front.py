"""Prompts that evolve beside the weights of the policy that answers under them: a front of those that are best on some row.

A light round of GEPA (Agrawal et al. 2025, arXiv:2507.19457): a prompt of the front is drawn, a writer sees answers under it that
failed and writes it anew, and all are measured with the weights as they are now, because a prompt's worth moves with the weights.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from whet.environments.multiturn import MultiTurn
from whet.prompt import Prompt
from whet.rl.language import LanguagePolicy, show_instruction
from whet.rl.score_book import NoteKeeper, rewrite_of, written_text
from whet.rl.training import Trainer
from whet.run import Run
from whet.search.example_front import front
from whet.search.minibatch import mistakes, show_rollout
from whet.types import Example, Message, Rollout

Writer = Literal["policy", "optimizer"]
SHOWN = 3
LONGEST = 400
NOTE = "front"


@dataclass
class PromptFront:
    """Texts of the editable region with their rewards on the rows of the last round, in the notes of a learner, where a resume
    finds them. The start is in it from the first; at most `most` stay."""

    learner: NoteKeeper
    start: Prompt
    most: int

    def __post_init__(self) -> None:
        self.learner.notes[NOTE] = {self.start.region_text(): []}

    @property
    def texts(self) -> list[str]:
        """The texts, in the order in which they came."""
        held: dict[str, list[float]] = self.learner.notes[NOTE]  # type: ignore[assignment]
        return list(held)

    @property
    def best(self) -> str:
        """The text with the highest mean reward in the last round; of equals the older one."""
        held: dict[str, list[float]] = self.learner.notes[NOTE]  # type: ignore[assignment]
        return max(held, key=lambda text: fmean(held[text] or [0.0]))

    def prompt(self, text: str) -> Prompt:
        """The start with a text of the front."""
        return self.start if text == self.start.region_text() else self.start.edit(text)

    def draw(self, rng: random.Random, n: int) -> list[str]:
        """`n` texts, each with the chance of its share of the rows on which it is best; before a round the start."""
        held: dict[str, list[float]] = self.learner.notes[NOTE]  # type: ignore[assignment]
        known = {text: rewards for text, rewards in held.items() if rewards}
        if not known:
            return [self.texts[0]] * n
        shares = front(known)
        return rng.choices(list(shares), list(shares.values()), k=n)

    def settle(self, rewards: dict[str, list[float]]) -> None:
        """Keep the texts that are best on some row, the highest means first, and the start."""
        shares = front(rewards)
        kept = sorted(shares, key=lambda text: -fmean(rewards[text]))[: self.most]
        first = self.start.region_text()
        self.learner.notes[NOTE] = {text: rewards[text] for text in dict.fromkeys([first, *kept])}


async def evolve(
    run: Run,
    system: MultiTurn,
    trainer: Trainer,
    prompts: PromptFront,
    rows: Sequence[Example],
    new: int,
    writer: Writer,
) -> float:
    """One round: up to `new` rewrites of texts of the front, all measured on `rows`; the best mean reward afterwards.

    It costs (texts of the front + new) x rows answers of the policy.
    """
    rollouts = {text: await system.evaluate(run, prompts.prompt(text), rows) for text in prompts.texts}
    prompts.settle({text: [r.reward for r in one] for text, one in rollouts.items()})
    parents = prompts.draw(run.rng, new)
    written = [
        await _rewrite(run, system, trainer, prompts, parent, rows, rollouts[parent], writer)
        for parent in parents
    ]
    children = {child.region_text(): child for child in written if child is not None}
    for text, child in children.items():
        if text not in rollouts:
            rollouts[text] = await system.evaluate(run, child, rows)
    prompts.settle({text: [r.reward for r in one] for text, one in rollouts.items()})
    return max(fmean(r.reward for r in rollout) for rollout in rollouts.values())


async def _rewrite(
    run: Run,
    system: MultiTurn,
    trainer: Trainer,
    prompts: PromptFront,
    parent: str,
    rows: Sequence[Example],
    rollouts: Sequence[Rollout],
    writer: Writer,
) -> Prompt | None:
    """A text written anew after some of its failures; None without failures and for a text that cannot be used."""
    by_id = {row.id: row for row in rows}
    wrong = mistakes(rollouts, system.reward.high)
    shown = run.rng.sample(wrong, min(SHOWN, len(wrong)))
    if not shown:
        return None
    failures = "\n\n".join(show_rollout(by_id[one.example_id], one, LONGEST) for one in shown)
    question = f"{show_instruction(system.description, prompts.start, parent)}\n\n{FAILURES}\n\n{failures}\n\n{REQUEST}"
    if writer == "optimizer":
        rewrites = await LanguagePolicy().rewrite(
            run, prompts.start, question, sample=run.rng.getrandbits(30), text=parent
        )
        return rewrites[0] if rewrites else None
    ((sample,),) = await trainer.sample(run, [[Message("user", f"{question} {ONLY}")]], n=1)
    return rewrite_of(prompts.start, written_text(sample))


FAILURES = "Answers under this instruction that were not right:"
REQUEST = "Rewrite the instruction so that such answers become right."
ONLY = "Write the instruction only."

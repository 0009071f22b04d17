"""Demonstrations: inputs with answers that earned their reward, as text in a prompt.

They stand in the region named `demonstrations`; in a prompt without one, behind the text of its first region. A
demonstration is taken from a training row, and refused where it would give away what validation measures.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from whet.environments.environment import Environment
from whet.prompt import Prompt
from whet.prompt.fence import LOOKS_LIKE_MARKER
from whet.prompt.slots import SLOT
from whet.rewards.text import targets_of
from whet.search.copies import Copies, comparable
from whet.search.edits import apply, text_in
from whet.types import Example, Rollout

REGION = "demonstrations"
LONGEST = 4000
"""Characters of a demonstration at most."""


@dataclass(frozen=True)
class Demonstration:
    """An input and an answer to it, from the row with the id `row`."""

    row: str
    question: str
    answer: str

    @property
    def text(self) -> str:
        """As it stands in a prompt."""
        return f"{INPUT} {self.question.strip()}\n{ANSWER} {self.answer.strip()}"


def demonstrations(
    env: Environment,
    known: Prompt,
    rollouts: Sequence[Rollout],
    threshold: float = 1.0,
    objections: Callable[[str], Sequence[str]] = lambda text: (),
) -> list[Demonstration]:
    """A demonstration of each training row with a rollout whose reward reaches `threshold`, a share of the reward's range: of
    its best one. Without those that are `refused`, or that `objections` (such as `guard.secrets`) has something against."""
    rows = {row.id: row for row in env.train}
    least = env.reward.low + threshold * (env.reward.high - env.reward.low)
    best: dict[str, Rollout] = {}
    for rollout in rollouts:
        if rollout.error is None and rollout.reward >= least - 1e-9:
            best[rollout.example_id] = max(
                best.get(rollout.example_id, rollout), rollout, key=lambda r: r.reward
            )
    made = [Demonstration(name, rows[name].user_text, rollout.output) for name, rollout in best.items()]
    refuse = refused(env, known)
    return [demo for demo in made if not refuse(demo) and not objections(demo.text)]


def labelled(env: Environment, known: Prompt, rows: Sequence[Example]) -> list[Demonstration]:
    """Demonstrations of rows whose target is a text, with the target as the answer; under the same rules."""
    refuse = refused(env, known)
    made = [Demonstration(r.id, r.user_text, targets_of(r)[0]) for r in rows if isinstance(r.target, str)]
    return [demonstration for demonstration in made if not refuse(demonstration)]


def refused(env: Environment, known: Prompt) -> Callable[[Demonstration], bool]:
    """Whether a demonstration must not be shown.

    It is empty, too long, holds a slot or a fence marker; its input is that of a validation row; or it has 32 characters in a
    row in common with a validation row and with no other training row (what several training rows hold is the form of
    the task). Test rows are out of a method's reach; the report warns of what the best prompt copies from them.
    """
    same = {comparable(row.user_text) for row in env.validation}
    private = [text for row in env.validation for text in _texts(row)]
    texts = {row.id: "\x00".join(_texts(row)) for row in env.train}
    copies = Copies(private, known.source)

    def refuse(demonstration: Demonstration) -> bool:
        text = demonstration.text
        if not demonstration.answer.strip() or len(text) > LONGEST:
            return True
        if SLOT.search(text) or LOOKS_LIKE_MARKER.search(text) or "\x00" in text:
            return True
        if comparable(demonstration.question) in same:
            return True
        if not copies.piece(text):
            return False
        others = "\x00".join(text for row, text in texts.items() if row != demonstration.row)
        return bool(Copies(private, f"{known.source}\x00{others}").piece(text))

    return refuse


def _texts(row: Example) -> list[str]:
    return [row.user_text, *([row.target] if isinstance(row.target, str) else [])]


def with_demonstrations(
    start: Prompt, demos: Sequence[Demonstration], instruction: Prompt | None = None
) -> Prompt | None:
    """A prompt with demonstrations: `start`, or `instruction`, which descends from it by edits of the other regions.

    None where the prompt refuses the text. Without demonstrations the region stays as it is in `start`.
    """
    base = instruction or start
    if not demos:
        return base
    block = "\n\n".join(demo.text for demo in demos)
    own = next((region.name for region in start.regions if holds_demonstrations(region.name)), None)
    if own is not None:
        return apply(base, block, own)
    name = editable(start)[0]
    text = text_in(start.focused(name), base).rstrip()
    return apply(base.restored(name, start), f"{text}\n\n{HEAD}\n\n{block}\n".lstrip(), name)


def holds_demonstrations(region: str) -> bool:
    """Whether a region is that of demonstrations, of the prompt or of one of a program's."""
    return region.rpartition(".")[2] == REGION


def editable(start: Prompt) -> list[str]:
    """The names of the regions that a method may write instructions into: the one in focus, or all but demonstrations."""
    if start.focus is not None:
        return [start.focus]
    names = [region.name for region in start.regions]
    return [name for name in names if not holds_demonstrations(name)] or names


def random_set(rng: random.Random, pool: Sequence[Demonstration], most: int) -> list[Demonstration]:
    """One to `most` demonstrations in random order."""
    return rng.sample(list(pool), rng.randint(1, min(most, len(pool))))


HEAD = "Examples:"
INPUT = "Input:"
ANSWER = "Answer:"

"""The edits that may be made to a prompt for one input: demonstrations, words for the labels, phrases.

TEMPERA (Zhang et al., ICLR 2023, arXiv:2211.11890, section 3.2). A state says which demonstrations of a pool stand in
the prompt and in which order, which words stand for the labels, and which phrases of the instruction are kept, in which
order, and which others are added. An action changes one of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.prompt import Prompt
from whet.search.edits import delete, replace_region, spans
from whet.types import Example
from whet_client.prompt.document import MASK
from whet_client.prompt.fence import without_markers
from whet_client.prompt.slots import SLOT, fill, slots

Kind = Literal["stop", "exchange", "words", "keep", "turn"]
KINDS: tuple[Kind, ...] = ("stop", "exchange", "words", "keep", "turn")


@dataclass(frozen=True, slots=True)
class Action:
    """One edit. exchange: the demonstrations at places `first` < `second` change places, the first of them stands in the
    prompt. words: set number `first` for the labels. keep: drop or bring back phrase `first`. turn: phrases `first` and
    `second` change places. stop: nothing more."""

    kind: Kind
    first: int = 0
    second: int = 0


@dataclass(frozen=True, slots=True)
class EditState:
    """The parts of the prompt. `pool`: demonstrations in order, the first ones in the prompt. `words`: number of the set for
    the labels. `order`: the instruction's own phrases in order; `kept`: which of all phrases are in the prompt. `edits` were
    made so far."""

    pool: tuple[int, ...]
    words: int
    order: tuple[int, ...]
    kept: tuple[bool, ...]
    edits: int = 0
    stopped: bool = False


@dataclass(frozen=True)
class Space:
    """All edits of one prompt."""

    start: Prompt
    labels: tuple[str, ...]
    pool: tuple[Example, ...]
    """P examples."""
    shots: int
    """The number of demonstrations in the prompt."""
    words: tuple[tuple[str, ...], ...]
    """M sets of words, each in the order of the labels; the first set is the task's own."""
    phrases: tuple[str, ...]
    """The phrases of the editable text, then those that may be added."""
    own: int
    """Phrases of the editable text."""
    actions: tuple[Action, ...]

    @classmethod
    def of(
        cls,
        start: Prompt,
        env: Environment,
        pool: Sequence[Example],
        shots: int,
        words: Sequence[Sequence[str]],
        additions: Sequence[str],
    ) -> Space:
        """The edits of a prompt."""
        text = start.region_text()
        own = [span.of(text) for span in spans(text)]
        places, sets = len(pool), list(dict.fromkeys([tuple(env.labels.values()), *map(tuple, words)]))
        actions = [
            Action("stop"),
            *(Action("exchange", i, j) for i in range(shots) for j in range(i + 1, places)),
            *(Action("words", m) for m in range(len(sets)) if len(sets) > 1),
            *(Action("keep", k) for k in range(len(own) if len(own) > 1 else 0)),
            *(Action("keep", len(own) + k) for k in range(len(additions))),
            *(Action("turn", k, k + 1) for k in range(len(own) - 1)),
        ]
        return cls(
            start,
            tuple(env.labels),
            tuple(pool),
            shots,
            tuple(sets),
            (*own, *additions),
            len(own),
            tuple(actions),
        )

    def first(self) -> EditState:
        """The start with the first demonstrations of the pool in front or behind."""
        kept = tuple(k < self.own for k in range(len(self.phrases)))
        return EditState(tuple(range(len(self.pool))), 0, tuple(range(self.own)), kept)

    def mask_actions(self, state: EditState) -> NDArray[np.bool_]:
        """Mark the actions that change something and leave a phrase of the start's own in the prompt; stop is always allowed."""
        last = sum(state.kept[: self.own]) == 1

        def may(action: Action) -> bool:
            if action.kind == "words":
                return action.first != state.words
            alone = action.kind == "keep" and action.first < self.own and last
            return not (alone and state.kept[action.first])

        return np.array([may(action) for action in self.actions])

    def after(self, state: EditState, number: int) -> EditState:
        """The state after action `number`."""
        action = self.actions[number]
        state = replace(state, edits=state.edits + 1)
        if action.kind == "stop":
            return replace(state, stopped=True)
        if action.kind == "exchange":
            return replace(state, pool=_exchange(state.pool, action.first, action.second))
        if action.kind == "words":
            return replace(state, words=action.first)
        if action.kind == "turn":
            places = state.order.index(action.first), state.order.index(action.second)
            return replace(state, order=_exchange(state.order, *places))
        kept = [on != (k == action.first) for k, on in enumerate(state.kept)]
        return replace(state, kept=tuple(kept))

    def prompt(self, state: EditState) -> Prompt:
        """The prompt of a state. Raises UsageError when the start refuses its text."""
        parts = [*self._demonstrations(state), self._instruction(state)]
        region = self.start.region()
        before = self.start.messages[region.message].content[: region.start]
        if not slots(before) and len(parts) > 1 and not slots(parts[-1]):
            parts = [parts[-1], *parts[:-1]]
        made = replace_region(self.start, "\n".join(parts))
        if made is None:
            raise UsageError(f"the prompt refuses the demonstrations {parts[:-1]!r}.")
        return made

    def verbalizer(self, state: EditState) -> dict[str, str]:
        """The word of each label in a state."""
        return dict(zip(self.labels, self.words[state.words], strict=True))

    def _demonstrations(self, state: EditState) -> list[str]:
        words = self.verbalizer(state)
        return [demonstration(self.start, self.pool[i], words) for i in state.pool[: self.shots]]

    def _instruction(self, state: EditState) -> str:
        text = self.start.region_text()
        phrases = spans(text)
        for at in range(self.own - 1, -1, -1):
            phrase = state.order[at]
            text = text[: phrases[at].start] + self.phrases[phrase] + text[phrases[at].stop :]
            if not state.kept[phrase]:
                text = delete(text, replace(phrases[at], stop=phrases[at].start + len(self.phrases[phrase])))
        added = [p for p, on in zip(self.phrases[self.own :], state.kept[self.own :], strict=True) if on]
        return " ".join([text.strip(), *added])


def demonstration(start: Prompt, example: Example, words: Mapping[str, str]) -> str:
    """An example as the prompt shows an input, with the word of its label where the answer goes; one line."""
    word = words[str(example.target)]
    region = start.region()
    content = start.messages[region.message].content
    frame = without_markers(content[: region.start] + content[region.stop :]) if start.fenced else ""
    shown = fill(frame, {**example.values, MASK: word}) if slots(frame) & example.values.keys() else ""
    text = shown or example.user_text
    if not shown or MASK not in slots(frame):
        text = f"{text} {word}"
    return " ".join(text.split())


def usable_as_demonstration(start: Prompt, env: Environment, example: Example) -> bool:
    """Whether an example can be a demonstration: its text brings no slot and no fence marker."""
    shown = demonstration(start, example, env.labels)
    return not SLOT.search(shown) and replace_region(start, f"{start.region_text()}\n{shown}") is not None


def _exchange(order: tuple[int, ...], first: int, second: int) -> tuple[int, ...]:
    exchanged = list(order)
    exchanged[first], exchanged[second] = exchanged[second], exchanged[first]
    return tuple(exchanged)


async def label_probabilities(
    env: Environment, space: Space, states: Sequence[EditState], examples: Sequence[Example]
) -> NDArray[np.float64]:
    """Probabilities of the labels of each example under its own state's prompt and words, (N, L).

    One batch where the model can score pairs; else inputs that share prompt and words are scored together.
    """
    if not states:
        return np.zeros((0, len(env.labels)))
    prompts = [space.prompt(state) for state in states]
    pairs = getattr(env.model, "score_pairs", None)
    if pairs is not None:
        words = [space.words[state.words] for state in states]
        logits: NDArray[np.float64] = await pairs(prompts, [e.values for e in examples], words)
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True))
    groups: dict[tuple[Prompt, int], list[int]] = {}
    for at, (prompt, state) in enumerate(zip(prompts, states, strict=True)):
        groups.setdefault((prompt, state.words), []).append(at)
    probabilities = np.zeros((len(states), len(env.labels)))
    for (prompt, _), members in groups.items():
        own = replace(env, labels=space.verbalizer(states[members[0]]))
        probabilities[members] = (await own.label_probs([prompt], [examples[at] for at in members]))[0]
    return probabilities

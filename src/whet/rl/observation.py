"""What an editor sees: frozen embeddings of the input and of everything that an edit could concern."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whet.environments.environment import Environment
from whet.rl.editing import KINDS, Action, EditState, Space

Embed = Callable[[Sequence[str]], Tensor]
"""Frozen embeddings of texts, float32 (n, d)."""

QUERY, EXAMPLE, WORDS, PHRASE = range(4)
KINDS_OF_BLOCKS = 8  # each kind in the prompt and out of it
PLACES = 32  # places that are told apart; those further back are alike


def embedder(env: Environment) -> Embed:
    """The task model's own embeddings of whole texts where it has them, else those of the embedded encoder.

    Raises UsageError when neither is installed.
    """
    own: Embed | None = getattr(env.model, "embed", None)
    if own is not None:
        return own
    from whet.models.embedded import load

    embed: Embed = load("encoder").embed  # type: ignore[attr-defined]
    return embed


@dataclass(frozen=True)
class EditObservation:
    """Of n states, each with B blocks: `blocks` (n, B, 3 d), their `kinds` and `places` (n, B), the number of `edits`
    made so far (n,), and which actions are `allowed` (n, A). Block 0 is the input's."""

    blocks: Tensor
    kinds: Tensor
    places: Tensor
    edits: Tensor
    allowed: Tensor

    def part(self, rows: Tensor) -> EditObservation:
        """Some of the states."""
        fields = (self.blocks, self.kinds, self.places, self.edits, self.allowed)
        return EditObservation(*(field[rows] for field in fields))


class Observer:
    """Observations of a space's states. `concerned`: for each action its kind and the two blocks that it concerns, int64
    (A, 3). Embeddings of inputs are computed once."""

    def __init__(self, space: Space, embed: Embed) -> None:
        shown = [f"{e.user_text} {space.words[0][space.labels.index(str(e.target))]}" for e in space.pool]
        self.space, self._embed = space, embed
        self._items = embed([*shown, *(" ".join(words) for words in space.words), *space.phrases]).clone()
        self._texts: dict[str, Tensor] = {}
        self.concerned = torch.tensor([self._concerned(action) for action in space.actions])

    @property
    def inputs(self) -> int:
        """Numbers of a block: three times the width of an embedding."""
        return 3 * self._items.shape[1]

    def see(self, states: Sequence[EditState], texts: Sequence[str]) -> EditObservation:
        """The observation of states, each for an input."""
        new = [text for text in dict.fromkeys(texts) if text not in self._texts]
        if new:
            self._texts.update(zip(new, self._embed(new).clone(), strict=True))
        query = torch.stack([self._texts[text] for text in texts])[:, None]
        index, kinds, places = (torch.tensor(part) for part in zip(*map(self._row, states), strict=True))
        items = torch.cat([query, self._items[index]], 1)  # (n, B, d)
        blocks = torch.cat([items, query.expand_as(items), items * query], -1)
        front = torch.zeros(len(states), 1, dtype=torch.long)
        allowed = torch.tensor([self.space.allowed(state).tolist() for state in states])
        edits = torch.tensor([float(state.edits) for state in states])
        return EditObservation(
            blocks, torch.cat([front + 1, kinds], 1), torch.cat([front, places], 1), edits, allowed
        )

    def _row(self, state: EditState) -> tuple[list[int], list[int], list[int]]:
        """Of the blocks behind the input's: number of the item, kind, place."""
        space = self.space
        pool, sets, phrases = len(space.pool), len(space.words), len(space.phrases)
        index = [*state.pool, *range(pool, pool + sets + phrases)]
        on = [
            *(at < space.shots for at in range(pool)),
            *(m == state.words for m in range(sets)),
            *state.kept,
        ]
        roles = [EXAMPLE] * pool + [WORDS] * sets + [PHRASE] * phrases
        order = [state.order.index(k) if k < space.own else k for k in range(phrases)]
        places = [*range(pool), *range(sets), *order]
        kinds = [2 * role + shown for role, shown in zip(roles, on, strict=True)]
        return index, kinds, [min(place, PLACES - 1) for place in places]

    def _concerned(self, action: Action) -> tuple[int, int, int]:
        pool, sets = len(self.space.pool), len(self.space.words)
        before = {"exchange": 1, "words": 1 + pool, "keep": 1 + pool + sets, "turn": 1 + pool + sets}
        kind = KINDS.index(action.kind)
        if action.kind == "stop":
            return kind, 0, 0
        second = action.first if action.kind in ("words", "keep") else action.second
        return kind, before[action.kind] + action.first, before[action.kind] + second

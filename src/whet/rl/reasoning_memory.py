"""A bank of what earlier answers taught: items with the input that they come from, recalled for inputs that are alike."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.instructions.neighbours import normal
from whet.models.embeddings import NONE, pack_vectors, unpack_vectors
from whet.prompt import Prompt
from whet.replies import json_values
from whet.rl.prompt_router import Routed, features_of, routed_environment
from whet.rl.reward_log import Array
from whet.run import Run, convert_record
from whet.search.copies import normalize_wording
from whet.search.edits import replace_region, text_in
from whet.types import JSON, Example, Message, content_hash

Recall = Literal["nearest", "random", "all", "none"]
HEAD = "Lessons from earlier answers:"
LONGEST = 1000
"""Characters of an item at most."""


@dataclass(frozen=True)
class Memory:
    """The items that one input taught, its vector, and how often an answer was right or wrong for which they were recalled."""

    row: str
    items: tuple[str, ...]
    vector: Array = field(compare=False)
    right: int = 0
    wrong: int = 0

    def count(self, right: bool) -> Memory:
        """The memory after one more use."""
        return replace(self, right=self.right + right, wrong=self.wrong + (not right))


@dataclass
class MemoryBank:
    """Memories, and how they are recalled below the text of `start`.

    `nearest`: those of the `near` most alike inputs; `random`: as many, whatever the input; `all`; `none`. The memory of an input
    is not recalled for itself.
    """

    start: Prompt
    how: Recall = "nearest"
    near: int = 1
    embedding: str = NONE
    memories: list[Memory] = field(default_factory=list)

    def prompt_with(self, items: Sequence[str]) -> Prompt:
        """The prompt with these items, equal ones once; the start without any, and where it refuses them."""
        if not items:
            return self.start
        lines = "\n".join(
            "- " + item.replace("\n", "\n  ")
            for item in {normalize_wording(item): item for item in items}.values()
        )
        text = f"{text_in(self.start, self.start).rstrip()}\n\n{HEAD}\n{lines}\n".lstrip()
        return replace_region(self.start, text) or self.start

    def admits(self, item: str) -> bool:
        """Whether an item can stand in the prompt."""
        return 0 < len(item) <= LONGEST and self.prompt_with([item]) != self.start

    async def recall(self, run: Run, examples: Sequence[Example]) -> list[list[int]]:
        """The places of the memories for each row. Which are nearest is recorded: a machine's arithmetic plays no part."""
        own = [[at for at, one in enumerate(self.memories) if one.row == e.id] for e in examples]
        if self.how == "none" or not self.memories:
            return [[] for _ in examples]
        if self.how == "nearest":
            features = await features_of(run, [example.user_text for example in examples], self.embedding)

            async def places() -> JSON:
                alike: JSON = _nearest(features, self.vectors, self.near, own)  # type: ignore[assignment]
                return alike

            args = content_hash([example.id for example in examples])
            return convert_record(await run.effect("recall", places, args), list[list[int]])
        rest = [[at for at in range(len(self.memories)) if at not in gone] for gone in own]
        if self.how == "all":
            return rest
        return [
            sorted(places, key=lambda at: content_hash([example.id, self.memories[at].row]))[: self.near]
            for example, places in zip(examples, rest, strict=True)
        ]

    async def route(self, run: Run, examples: Sequence[Example]) -> list[Prompt]:
        """The prompt for each row, with the items that are recalled for it."""
        return [self.compose(places) for places in await self.recall(run, examples)]

    def compose(self, places: Sequence[int]) -> Prompt:
        """The prompt with the items of the memories at these places."""
        return self.prompt_with([item for at in places for item in self.memories[at].items])

    @property
    def vectors(self) -> Array:
        """The vectors of all memories (n, width)."""
        return np.stack([one.vector for one in self.memories])

    def save(self) -> bytes:
        """The bank as JSON. Vectors are in single precision; inputs themselves are not in it."""
        facts: dict[str, Any] = {
            "start": [m.as_list() for m in self.start.messages],
            "how": self.how,
            "near": self.near,
            "embedding": self.embedding,
            "memories": [[one.row, one.items, one.right, one.wrong] for one in self.memories],
            "vectors": pack_vectors(self.vectors) if self.memories else "",
        }
        return json.dumps(facts).encode()

    def load(self, blob: bytes) -> None:
        """Restore what `save` returned. Raises UsageError for anything else."""
        self.__dict__.update(read_bank(blob).__dict__)


def read_bank(blob: bytes) -> MemoryBank:
    """The bank in a blob. Raises UsageError for anything else."""
    facts = next(iter(json_values(blob.decode(errors="replace"))), None)
    if not isinstance(facts, dict) or facts.keys() != {
        "start", "how", "near", "embedding", "memories", "vectors"
    }:  # fmt: skip
        raise UsageError(
            "this is not a checkpoint of a bank of lessons: it holds no memories and how to recall them."
        )
    start = Prompt(tuple(Message(*message) for message in facts["start"]))
    count = len(facts["memories"])
    vectors = unpack_vectors(facts["vectors"], count) if count else np.zeros((0, 0))
    memories = [
        Memory(row, tuple(items), vector, right, wrong)
        for (row, items, right, wrong), vector in zip(facts["memories"], vectors, strict=True)
    ]
    return MemoryBank(start, facts["how"], facts["near"], facts["embedding"], memories)


def deploy_bank(env: Environment, blob: bytes) -> Routed:
    """The task in which the bank of a blob is recalled for every input. Raises UsageError for another blob."""
    return routed_environment(env, read_bank(blob))


_DIGITS = 9


def _nearest(
    queries: Array, held: Array, k: int, barred: Sequence[Collection[int]] | None = None
) -> list[list[int]]:
    """For each query (queries, width) the places of up to `k` of the vectors held (n, width), the most alike first; of equals the
    newer one. `barred`: for each query the places that are left out.

    >>> _nearest(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0], [2.0, 0.0], [1.0, 1.0]]), 2)
    [[1, 2]]
    """
    if not len(held):
        return [[] for _ in queries]
    alike = np.round(normal(queries) @ normal(held).T, _DIGITS)
    out = barred or [()] * len(queries)
    return [
        [at for at in sorted(range(len(held)), key=lambda at: (-row[at], -at)) if at not in gone][:k]
        for row, gone in zip(alike, out, strict=True)
    ]

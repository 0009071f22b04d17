"""Which prompt to learn from next: the newest, or one of a tree or of a Pareto front."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Generic, Literal, TypeVar

from whet.search.archive import Candidate
from whet.types import Rollout

S = TypeVar("S")

LOOP, MCTS, PARETO = "loop", "mcts", "pareto"
Search = Literal["loop", "mcts", "pareto"]


@dataclass
class Node(Generic[S]):
    """A prompt, what is known about it (`state`), its parent, and its rewards: one list per roll-out, and by example."""

    candidate: Candidate
    state: S
    parent: Node[S] | None = None
    means: list[float] = field(default_factory=list)
    by_example: dict[str, float] = field(default_factory=dict)

    def visit(self, rollouts: Sequence[Rollout]) -> None:
        """Take in a roll-out; its mean counts for all ancestors as well."""
        if not rollouts:
            return
        self.by_example |= {r.example_id: r.reward for r in rollouts}
        node: Node[S] | None = self
        while node is not None:
            node.means.append(fmean(r.reward for r in rollouts))
            node = node.parent


def select(nodes: Sequence[Node[S]], search: Search, rng: random.Random, explore: float = 0.5) -> Node[S]:
    """The node to expand next. A node that was never rolled out comes first, the newest of them.

    `mcts`: the node with the highest upper confidence bound, mean + explore * sqrt(ln N / n) (UCT, Kocsis and
    Szepesvari 2006). `pareto`: a node that is best on some example, as likely as it is best on many.
    """
    fresh = [node for node in nodes if not node.by_example]
    if search == LOOP or fresh:
        return (fresh or nodes)[-1]
    if search == MCTS:
        total = sum(len(node.means) for node in nodes)
        return max(nodes, key=lambda n: fmean(n.means) + explore * math.sqrt(math.log(total) / len(n.means)))
    shared = set.intersection(*(set(node.by_example) for node in nodes)) or set(nodes[0].by_example)
    wins = [0] * len(nodes)
    for example in sorted(shared):
        rewards = [node.by_example.get(example, -math.inf) for node in nodes]
        for i, reward in enumerate(rewards):
            wins[i] += reward == max(rewards)
    return rng.choices(nodes, weights=wins if any(wins) else None)[0]

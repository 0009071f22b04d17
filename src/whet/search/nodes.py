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
_WIDTH, _EXPLORE = 2, 0.5


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


def select(nodes: Sequence[Node[S]], search: Search, rng: random.Random) -> Node[S]:
    """The node to expand next; the first of `nodes` is the root.

    `loop`: the newest. `mcts`: descend from the root to a node that was never rolled out or has fewer than two
    children, by the upper confidence bound mean + 0.5 * sqrt(ln N / n) (UCT, Kocsis and Szepesvari 2006). `pareto`: the newest if
    it was never rolled out, else one that is best on some example, as likely as it is best on many.
    """
    if search == LOOP or (search == PARETO and not nodes[-1].by_example):
        return nodes[-1]
    return _descend(nodes) if search == MCTS else _from_front(nodes, rng)


def _descend(nodes: Sequence[Node[S]]) -> Node[S]:
    node = nodes[0]
    while node.by_example:
        children = [child for child in nodes if child.parent is node]
        if len(children) < _WIDTH:
            return node
        fresh = [child for child in children if not child.means]
        total = math.log(len(node.means))
        node = (
            fresh[0]
            if fresh
            else max(children, key=lambda c: fmean(c.means) + _EXPLORE * math.sqrt(total / len(c.means)))
        )
    return node


def _from_front(nodes: Sequence[Node[S]], rng: random.Random) -> Node[S]:
    shared = set.intersection(*(set(node.by_example) for node in nodes)) or set(nodes[0].by_example)
    wins = [0] * len(nodes)
    for example in sorted(shared):
        rewards = [node.by_example.get(example, -math.inf) for node in nodes]
        for i, reward in enumerate(rewards):
            wins[i] += reward == max(rewards)
    return rng.choices(nodes, weights=wins if any(wins) else None)[0]

"""A tree of prompts, searched as by Monte Carlo tree search: which prompt to change next, and what is known below it.

Kocsis and Szepesvári: Bandit based Monte-Carlo Planning. ECML 2006 (UCT). The rules of depth are those of PromptAgent (Wang et
al., ICLR 2024, arXiv:2310.16427).

    UCT(child) = Q + c sqrt(ln(N_parent + 1) / max(1, N_child))

N counts the paths that were backed up through a node. A path gives each of its nodes the mean reward from there to its end. Q is
the mean of what the paths gave, and before the first one the node's own reward.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Protocol

from whet.environments.environment import Environment
from whet.prompt import Prompt
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.from_zero import Objections, leave_zero
from whet.search.minibatch import answered_rollouts, minibatch, mistakes
from whet.search.plan import SearchPlan, fit, validate_finalists, validate_leader
from whet.types import Example, Rollout, mean_score


@dataclass(eq=False)
class PromptNode:
    """A prompt with the rollouts that it was scored on. `reward` is their mean on a scale from 0 to 1."""

    candidate: Candidate
    rollouts: Sequence[Rollout]
    reward: float
    parent: PromptNode | None = None
    children: list[PromptNode] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)

    @property
    def path(self) -> list[PromptNode]:
        """The nodes from the root to this one."""
        return [*(self.parent.path if self.parent else []), self]

    @property
    def depth(self) -> int:
        """Steps from the root."""
        return 0 if self.parent is None else self.parent.depth + 1

    @property
    def value(self) -> float:
        """The mean reward of the paths through the node (Q)."""
        return fmean(self.returns) if self.returns else self.reward

    def errors(self, run: Run, env: Environment, size: int) -> list[Rollout]:
        """Errors of the prompt, drawn at random; where there are none, rollouts that are right."""
        known = mistakes(self.rollouts, env.reward.high) or answered_rollouts(self.rollouts)
        return run.rng.sample(known, min(size, len(known)))


Expand = Callable[[Run, PromptNode], Awaitable[list[PromptNode]]]
"""Makes the children of a node and scores them."""


@dataclass
class Tree:
    """A tree under its root. `depth` is the deepest level, `least` the level up to which no path ends early, `c` the exploration
    of UCT. One that is `flat` grows at its root only: the control, in which nothing is built on what was found."""

    root: PromptNode
    depth: int
    least: int
    c: float
    flat: bool = False

    def __post_init__(self) -> None:
        self.nodes = [self.root, *self.root.children]

    def uct(self, node: PromptNode) -> float:
        """The upper confidence bound of a child."""
        visits = len(node.parent.returns) if node.parent else 0
        return node.value + self.c * math.sqrt(math.log(visits + 1) / max(1, len(node.returns)))

    def is_terminal(self, node: PromptNode) -> bool:
        """Whether a node is not changed further: it is deep enough, or below the mean of its parent and the root."""
        if node.parent is None or node.depth >= (1 if self.flat else self.depth):
            return node.parent is not None
        return node.depth > self.least and node.reward < (self.root.reward + node.parent.reward) / 2

    def select(self) -> PromptNode:
        """The leaf that UCT leads to from the root; of a flat tree the root."""
        node = self.root
        while node.children and not self.flat:
            node = max(node.children, key=self.uct)
        return node

    def back_up(self, end: PromptNode) -> None:
        """Give each node of a path the mean reward from there to its end."""
        path = end.path
        for at, node in enumerate(path):
            node.returns.append(fmean(one.reward for one in path[at:]))

    def best(self) -> PromptNode:
        """The best node of the path with the best mean reward; of equals the one that is nearer to the root."""
        ends = [node for node in self.nodes if not node.children]
        path = max((end.path for end in ends), key=lambda path: fmean(one.reward for one in path))
        return max(path, key=lambda node: node.reward)


async def grow(run: Run, tree: Tree, iterations: int, expansions: int, expand: Expand) -> None:
    """Search: select a leaf, expand it and follow its best child to the end of a path, back up; again and again.

    A path ends at a terminal node, at one below `tree.least` that is better than all before it, at one that cannot be expanded,
    or where `expansions`, those of the whole search, are used up.
    """
    for _ in range(expansions if tree.flat else iterations):
        if expansions <= 0:
            break
        node, best = tree.select(), math.inf
        while (
            expansions > 0
            and not tree.is_terminal(node)
            and (node.depth <= tree.least or node.reward <= best)
        ):
            best, expansions = max(node.reward for node in tree.nodes), expansions - 1
            children = await expand(run, node)
            if not children:
                break
            node.children += children
            tree.nodes += children
            node = max(children, key=lambda child: child.reward)
        tree.back_up(node)


class TreeSettings(Protocol):
    """The settings that every method has which grows a tree."""

    @property
    def iterations(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def depth(self) -> int: ...
    @property
    def least(self) -> int: ...
    @property
    def c(self) -> float: ...
    @property
    def examples(self) -> int: ...
    @property
    def tree(self) -> bool: ...
    @property
    def finalists(self) -> int: ...


def fit_tree(
    run: Run,
    env: Environment,
    settings: TreeSettings,
    *,
    asks: float,
) -> SearchPlan:
    """A plan for the paths of a tree, `rounds` being the expansions.

    Within a limit the width is cut, but not below 2, so that there are as many expansions as levels.
    """
    iterations, width, depth = settings.iterations, settings.width, settings.depth
    plan = fit(
        run, env, iterations * depth, width, settings.examples, finalists=settings.finalists, asks=asks
    )
    total = plan.rounds * plan.width
    if total < iterations * depth * width:
        plan = replace(plan, width=max(1, min(width, max(min(2, total), total // depth))))
    return replace(plan, rounds=total // plan.width if total else 0)


@dataclass
class Growth:
    """Makes the nodes of a tree: each new prompt is scored on the same training rows and enters the archive."""

    env: Environment
    archive: Archive
    train: Sequence[Example]
    questions: int = 0

    def number(self, samples: int) -> int:
        """The number of the first of so many new questions to a model."""
        self.questions += samples
        return self.questions - samples

    def node(
        self, candidate: Candidate, rollouts: Sequence[Rollout], parent: PromptNode | None = None
    ) -> PromptNode:
        """A node of a candidate with its rollouts."""
        low, high = self.env.reward.low, self.env.reward.high
        score = mean_score(rollouts)
        return PromptNode(
            replace(candidate, score=score), rollouts, (score.mean - low) / ((high - low) or 1.0), parent
        )

    async def plant(self, run: Run, candidate: Candidate) -> PromptNode:
        """The root."""
        root = self.node(candidate, await self.env.evaluate(run, candidate.prompt, self.train))
        self.archive.add(run, root.candidate)
        return root

    async def children(
        self, run: Run, parent: PromptNode, written: Sequence[Sequence[Candidate]]
    ) -> list[PromptNode]:
        """Nodes of those prompts that are new, scored."""
        new = {c.id: c for family in written for c in family if c.prompt not in self.archive}

        async def score_node(branch: Run, candidate: Candidate) -> PromptNode:
            rollouts = await self.env.evaluate(branch, candidate.prompt, self.train)
            return self.node(candidate, rollouts, parent)

        nodes = await run.map(score_node, list(new.values()))
        for node in nodes:
            self.archive.add(run, node.candidate)
        return nodes


Write = Callable[[Run, PromptNode, Growth, int], Awaitable[Sequence[Sequence[Candidate]]]]
"""Writes prompts from a node, in so many families."""


async def search_tree(
    run: Run,
    env: Environment,
    start: Prompt,
    settings: TreeSettings,
    write: Write,
    objections: Objections,
    *,
    asks: float,
) -> Candidate:
    """Grow a tree from `start`, whose nodes get as children what `write` makes of them; the best on validation examples.

    `asks`: calls of the optimizer model that one new prompt takes. Prompts that leave a start which earns nothing become
    children of the root.
    """
    plan = fit_tree(run, env, settings, asks=asks)
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    train = minibatch(run.rng, env.train, plan.examples, balanced=True)
    growth = Growth(env, archive, train)
    root = await growth.plant(run, Candidate(start))
    plan, firsts = await leave_zero(run, plan, archive, start, objections, train)
    root.children = [growth.node(first.candidate, first.rollouts, root) for first in firsts]
    tree = Tree(root, settings.depth, settings.least, settings.c, flat=not settings.tree)

    async def expand(run: Run, node: PromptNode) -> list[PromptNode]:
        children = await growth.children(run, node, await write(run, node, growth, plan.width))
        await validate_leader(run, plan, archive, archive.top(1)[0])
        return children

    await grow(run, tree, settings.iterations, plan.rounds, expand)
    best = [tree.best().candidate, *archive.top(settings.finalists)]
    return await validate_finalists(run, plan, archive, best)

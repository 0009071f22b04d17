"""The search tree: UCT by hand, what a path gives, when a path ends, and a flat tree."""

from __future__ import annotations

import math

import pytest

from whet.prompt import Prompt
from whet.run import MemoryRun, Run
from whet.search.archive import Candidate
from whet.search.tree import PromptNode, Tree, grow


def node(reward: float, parent: PromptNode | None = None) -> PromptNode:
    made = PromptNode(Candidate(Prompt.parse(f"{reward}")), (), reward, parent)
    if parent is not None:
        parent.children.append(made)
    return made


def tree(root: PromptNode, depth: int = 5, least: int = 2, c: float = 1.0, *, flat: bool = False) -> Tree:
    return Tree(root, depth, least, c, flat)


def test_uct_by_hand() -> None:
    root = node(0.5)
    child = node(0.4, root)
    searched = tree(root, c=2.5)
    assert searched.uct(child) == 0.4, "before any path the bonus is sqrt(ln 1)"
    searched.back_up(child)
    searched.back_up(node(0.8, child))
    assert root.returns == [0.45, (0.5 + 0.4 + 0.8) / 3]
    assert child.returns == [0.4, pytest.approx(0.6)]
    assert searched.uct(child) == pytest.approx(0.5 + 2.5 * math.sqrt(math.log(3) / 2))


@pytest.mark.parametrize("length", [1, 2, 4])
def test_what_a_path_gives_does_not_grow_with_its_length(length: int) -> None:
    root = node(0.6)
    end = root
    for _ in range(length):
        end = node(0.6, end)
    tree(root).back_up(end)
    assert root.value == pytest.approx(0.6)


def test_a_node_without_paths_is_worth_its_own_reward_zero_included() -> None:
    root = node(0.5)
    worthless, better = node(0.0, root), node(0.1, root)
    assert worthless.value == 0.0
    assert tree(root).select() is better


def test_a_path_ends_at_the_depth_and_where_a_prompt_falls_behind() -> None:
    root = node(0.6)
    chain = [root]
    for reward in (0.2, 0.2, 0.2):
        chain.append(node(reward, chain[-1]))
    searched = tree(root, depth=4, least=2)
    assert [searched.is_terminal(one) for one in chain] == [False, False, False, True]
    assert [tree(root, depth=2).is_terminal(one) for one in chain] == [False, False, True, True]
    assert [tree(root, flat=True).is_terminal(one) for one in chain] == [False, True, True, True]


async def grown(flat: bool, rewards: dict[int, float], expansions: int = 6, least: int = 2) -> Tree:
    """A tree whose children at each depth have a known reward, and the half of it."""
    searched = tree(node(0.1), depth=4, least=least, flat=flat)

    async def expand(run: Run, parent: PromptNode) -> list[PromptNode]:
        reward = rewards[parent.depth + 1]
        prompts = (Candidate(Prompt.parse(f"{len(searched.nodes)} {i}")) for i in range(2))
        return [PromptNode(p, (), r, parent) for p, r in zip(prompts, (reward / 2, reward), strict=True)]

    await grow(MemoryRun(), searched, 10, expansions, expand)
    return searched


@pytest.mark.parametrize(("flat", "deepest"), [(False, 4), (True, 1)])
async def test_a_tree_builds_on_what_it_found_and_a_flat_one_does_not(flat: bool, deepest: int) -> None:
    searched = await grown(flat, {1: 0.2, 2: 0.4, 3: 0.3, 4: 0.9})
    assert max(one.depth for one in searched.nodes) == deepest
    assert len(searched.nodes) == 1 + 6 * 2, "every expansion is used"
    assert searched.best().depth == deepest


@pytest.mark.parametrize(("least", "paths"), [(0, 3), (2, 1)])
async def test_a_path_ends_early_with_the_best_so_far_but_not_above_a_level(least: int, paths: int) -> None:
    searched = await grown(False, {1: 0.2, 2: 0.4, 3: 0.5, 4: 0.9}, expansions=3, least=least)
    assert len(searched.root.returns) == paths


async def test_a_node_that_cannot_be_expanded_ends_its_path() -> None:
    searched = tree(node(0.5))

    async def nothing(run: Run, parent: PromptNode) -> list[PromptNode]:
        return []

    await grow(MemoryRun(), searched, 3, 9, nothing)
    assert searched.nodes == [searched.root]
    assert searched.best() is searched.root

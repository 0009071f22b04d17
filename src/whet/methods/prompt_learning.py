"""Prompt learning: English critiques become managed instructions in the fence of a prompt.

A method of this tool's own. That the error term of a prompt can be English instead of a number is the idea of prompt
learning as published by Arize AI (2025), whose method rewrites the whole prompt in one call per loop. Here, per loop:

1. roll out the current prompt on fresh training examples;
2. split the critiques into single demands and group these by what they demand;
3. ask the optimizer model about many small packs of groups at once, for typed operations on instructions; what it
   drops or garbles is asked again, then distilled from the complaints themselves;
4. roll out again: a demand that is still violated gets another text, one that is met keeps it, and of two that may
   be one a roll-out does without the second.

The result is the prompt that is best on all evidence, fresh roll-outs and validation together. With `search` the
same step expands a tree (mcts) or a Pareto front (pareto). `docs/prompt-learning.md` tells the rest. Run it with

    whet optimize TASK --method prompt_learning --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whet.env import Environment
from whet.policies.curator import Curator
from whet.policies.explain import explain
from whet.policies.language import LanguagePolicy
from whet.policies.upkeep import doubtful, learn, measure
from whet.prompt import Prompt
from whet.prompt.events import to_json
from whet.run import Run
from whet.search.answers import without_answers
from whet.search.archive import Archive, Candidate
from whet.search.critiques import human_complaints
from whet.search.evidence import Evidence
from whet.search.loops import LoopPlan, draw, plan_loops
from whet.search.nodes import LOOP, PARETO, Node, Search, select
from whet.types import Example, Rollout


@dataclass(frozen=True)
class Config:
    """`loops` of roll-out and learning at most, each with `rollouts` examples at most; `points` per optimizer call;
    `tokens` that all instructions together may cost (none: no bound); `optimizer` false uses the distiller only;
    after `clean` roll-outs in a row without anything to learn the search ends; `search` is loop, mcts or pareto."""

    loops: int = 5
    rollouts: int = 40
    points: int = 10
    tokens: int | None = None
    optimizer: bool = True
    clean: int = 2
    search: Search = "loop"


async def prompt_learning(
    run: Run, env: Environment, policy: LanguagePolicy | None, start: Prompt, config: Config
) -> Candidate:
    """See the module. Without a policy only the extractive distiller writes instructions."""
    writer = policy is not None and config.optimizer
    plan = plan_loops(run, env, config.loops, config.rollouts, writes=writer)
    archive, evidence, fresh, clean = Archive(), Evidence(), draw(run, env), 0
    curator = Curator(start, writer, config.points, config.tokens)
    curator.hear(human_complaints(env.train))
    nodes, histories = [Node(Candidate(start), curator)], {start.id: curator.history()}

    for loop, size in enumerate(plan.rollouts):
        node = select(nodes, config.search, run.rng)
        examples = env.train[:size] if config.search == PARETO else [next(fresh) for _ in range(size)]
        rollouts = await roll_out(run, plan, archive, node.candidate, examples, loop)
        node.visit(rollouts)
        evidence.add(node.candidate, rollouts)

        curator = node.state if config.search == LOOP else node.state.copy(curator.asked)
        found = await explained(run, env, curator, rollouts, plan.asks_left(loop, curator.asked))
        curator.observe(found, env.reward.high)
        changed = await learn(run, curator, plan.asks_left(loop, curator.asked), f"loop {loop + 1}")
        clean = 0 if changed else clean + 1
        if clean >= config.clean:
            break
        if clean and loop + 2 < len(plan.rollouts):
            curator.held_out = doubtful(curator)
        child = Candidate(curator.prompt, (node.candidate.prompt.id,), f"loop {loop + 1}")
        nodes.append(Node(child, curator, node))
        archive.add(run, child)
        histories[child.prompt.id] = curator.history()

    measure(curator, "end")
    histories[curator.prompt.id] = curator.history()
    evidence.add(Candidate(curator.prompt, (nodes[-1].candidate.prompt.id,), "end"))
    rows = len(plan.env.validation)
    await archive.validate(run, plan.env, [evidence.best(archive, rows)])
    best = evidence.best(archive, rows, validated=True)
    run.log("ledger", [to_json(event) for event in histories[best.prompt.id]])
    return best


async def roll_out(
    run: Run, plan: LoopPlan, archive: Archive, current: Candidate, examples: Sequence[Example], loop: int
) -> list[Rollout]:
    """Roll-outs of the current prompt; its validation, where one is planned, runs at the same time."""

    async def work(branch: Run, task: str) -> list[Rollout]:
        if task == "validate":
            await archive.validate(branch, plan.env, [current])
            return []
        return await plan.env.evaluate(branch, current.prompt, examples, loop)

    tasks = ["validate", "roll out"] if loop in plan.validated else ["roll out"]
    return (await run.map(work, tasks))[-1]


async def explained(
    run: Run, env: Environment, curator: Curator, rollouts: list[Rollout], most: int | None
) -> list[Rollout]:
    """Roll-outs as they are when the reward gives critiques that teach more than one example's answer; else the
    optimizer model explains the wrong ones, for half of the calls that may be spent, ten at most."""
    rollouts = without_answers(rollouts, {example.id: example for example in env.train})
    if any(r.critique for r in rollouts) or not curator.writer:
        return rollouts
    calls = 10 if most is None else min(10, -(-most // 2))
    found, asked = await explain(run, rollouts, env.train, curator.start.source, env.reward.high, calls)
    curator.asked += asked
    return found

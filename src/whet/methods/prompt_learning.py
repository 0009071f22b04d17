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

import copy
from collections.abc import Sequence
from dataclasses import dataclass

from whet.env import Environment
from whet.policies.curator import Curator
from whet.policies.explain import explain
from whet.policies.language import LanguagePolicy
from whet.policies.upkeep import doubtful, judge_trial, measure, tidy
from whet.prompt import Prompt
from whet.prompt.events import to_json
from whet.run import Run
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
    archive, evidence, fresh, asked, clean = Archive(), Evidence(), draw(run, env), 0, 0
    curator = Curator(start, writer, config.points, config.tokens)
    curator.hear(human_complaints(env.train))
    nodes = [Node(Candidate(start), curator)]

    for loop, size in enumerate(plan.rollouts):
        at = f"loop {loop + 1}"
        node = select(nodes, config.search, run.rng)
        examples = env.train[:size] if config.search == PARETO else [next(fresh) for _ in range(size)]
        rollouts = await roll_out(run, plan, archive, node.candidate, examples, loop)
        node.visit(rollouts)
        evidence.add(node.candidate, rollouts)
        rollouts, explained = await with_critiques(
            run, env, start, rollouts, plan.asks_left(loop, asked) if writer else 0
        )
        curator = node.state if config.search == LOOP else copy.deepcopy(node.state)
        curator.observe(rollouts, env.reward.high)
        expired = judge_trial(curator, at)
        before = curator.asked
        changed = await curator.learn(run, plan.asks_left(loop, asked + explained), at)
        asked += explained + curator.asked - before
        tidy(curator, run, at)
        run.log(
            "loop",
            {
                "loop": loop + 1,
                "groups": len(curator.board.groups),
                "changed": changed,
                "expired": len(expired),
            },
        )
        clean = 0 if changed or expired else clean + 1
        if clean >= config.clean:
            break
        if clean and loop + 2 < len(plan.rollouts):
            curator.held_out = doubtful(curator)
        nodes.append(Node(Candidate(curator.prompt, (node.candidate.prompt.id,), at), curator, node))
        archive.add(run, nodes[-1].candidate)

    measure(curator, "end")
    run.log("ledger", [to_json(event) for event in curator.events])
    last = Candidate(curator.prompt, (nodes[-1].candidate.prompt.id,), "end")
    evidence.add(last)
    await archive.validate(run, plan.env, [last])
    return evidence.best(archive, len(plan.env.validation))


async def roll_out(
    run: Run, plan: LoopPlan, archive: Archive, current: Candidate, examples: Sequence[Example], loop: int
) -> list[Rollout]:
    """Roll-outs of the current prompt; its validation, where one is planned, runs at the same time."""

    async def work(branch: Run, task: str) -> list[Rollout]:
        if task == "validate":
            await archive.validate(branch, plan.env, [current])
            return []
        return await plan.env.evaluate(branch, current.prompt, examples, loop)

    tasks = ["roll out", "validate"] if loop in plan.validated else ["roll out"]
    return (await run.map(work, tasks))[0]


async def with_critiques(
    run: Run, env: Environment, start: Prompt, rollouts: list[Rollout], most: int | None
) -> tuple[list[Rollout], int]:
    """Roll-outs as they are when the reward gives critiques, else explained by the optimizer model; and its calls."""
    if any(r.critique for r in rollouts) or most == 0:
        return rollouts, 0
    examples = {example.id: example for example in env.train}
    return await explain(
        run, rollouts, examples, start.source, env.reward.high, 5 if most is None else -(-most // 2)
    )

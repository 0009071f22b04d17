"""Prompt learning: English critiques become managed instructions in the fence of a prompt.

A method of this tool's own. That the error term of a prompt can be English instead of a number is the idea of prompt
learning as published by Arize AI (2025), whose method rewrites the whole prompt in one call per loop. Here, per loop:

1. roll out the current prompt on fresh training examples;
2. split the critiques into single demands and group these by what they demand;
3. ask the optimizer model about many small packs of groups at once, for typed operations on instructions; what it
   drops or garbles is asked again, then distilled from the complaints themselves;
4. roll out again: a demand that is still violated gets another text, one that is met keeps it.

The result is the prompt that is best on all evidence, fresh roll-outs and validation together. `docs/prompt-learning.md`
tells the rest. Run it with

    whet optimize TASK --method prompt_learning --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from whet.env import Environment
from whet.policies.curator import Curator
from whet.policies.critique import human_complaints
from whet.policies.language import LanguagePolicy, frame
from whet.prompt import Prompt
from whet.prompt.instructions import to_json
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.evidence import Evidence
from whet.search.packing import plan_loops
from whet.types import Example, Rollout


@dataclass(frozen=True)
class Config:
    """`loops` of roll-out and learning at most, each with `rollouts` examples at most; `points` per optimizer call;
    `tokens` that the instructions may cost (none: no bound); `optimizer` none uses the distiller only; `clean`
    roll-outs in a row without anything to learn end the search."""

    loops: int = 5
    rollouts: int = 40
    points: int = 10
    tokens: int | None = None
    optimizer: Literal["model", "none"] = "model"
    clean: int = 2


async def prompt_learning(
    run: Run, env: Environment, policy: LanguagePolicy | None, start: Prompt, config: Config
) -> Candidate:
    """See the module. Needs a reward that gives critiques; without any, the start is returned."""
    writer = policy is not None and config.optimizer == "model"
    plan = plan_loops(run, env, config.loops, config.rollouts, writer)
    curator = Curator(start, frame(start), writer, config.points, config.tokens)
    curator.hear(human_complaints(env.train))
    archive, evidence, fresh = Archive(), Evidence(), draw(run, env)
    candidate, clean = Candidate(start), 0

    for loop, size in enumerate(plan.rollouts):
        current, examples = candidate, [next(fresh) for _ in range(size)]

        async def work(branch: Run, task: str) -> list[Rollout]:
            if task == "validate":
                await archive.validate(branch, plan.env, [current])
                return []
            return await env.evaluate(branch, current.prompt, examples, sample=loop)

        tasks = ["roll out", "validate"] if loop in plan.validated else ["roll out"]
        rollouts = (await run.map(work, tasks))[0]
        evidence.add(current, rollouts)
        curator.observe(rollouts, env.reward.high)
        events = await curator.learn(run, plan.asks_left(loop, curator.asked), at=f"loop {loop + 1}")
        candidate = Candidate(curator.prompt, (current.prompt.id,), f"loop {loop + 1}")
        archive.add(run, candidate)
        run.log("loop", {"loop": loop + 1, "groups": len(curator.board.groups), "events": len(events)})
        clean = clean + 1 if candidate.prompt.id == current.prompt.id else 0
        if clean >= config.clean:
            break

    evidence.add(candidate)
    await archive.validate(run, plan.env, [candidate])
    return evidence.best(archive, len(plan.env.validation))

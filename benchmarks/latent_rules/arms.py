"""What the benchmark compares: prompt learning in its forms, the control, and the prompt that states every rule.

Each arm is a method for the same engine, so that limits, validation, the sealed test and the counting of calls
are the same for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.latent_rules.build import stating_all
from benchmarks.latent_rules.control import read_rewrite, rewrite_request

from whet.env import Environment
from whet.errors import EditRejected
from whet.methods import OPTIMIZER, Entry, Method, configure, get_method
from whet.policies.language import LanguagePolicy
from whet.prompt import Prompt
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.evidence import Evidence
from whet.search.loops import LoopPlan, draw, plan_loops
from whet.types import Example, Rollout

LEARN = "prompt_learning"
MOST = "most"


@dataclass(frozen=True)
class Arm:
    """One line of the tables. `settings` are the method's; a number of loops may be MOST, the optimizer calls of
    the budget. `optimizer` says whether there is an optimizer model."""

    title: str
    method: str = LEARN
    settings: Mapping[str, Any] = field(default_factory=dict)
    optimizer: bool = True


ARMS: dict[str, Arm] = {
    "stated": Arm("all rules stated (ceiling)", "stated", optimizer=False),
    "rewrite-1": Arm("one-call rewrite, 1 loop", "rewrite", {"loops": 1}),
    "rewrite-5": Arm("one-call rewrite, 5 loops", "rewrite", {"loops": 5}),
    "rewrite-most": Arm("one-call rewrite, most loops", "rewrite", {"loops": MOST}),
    "learn-1": Arm("prompt learning, 1 loop", settings={"loops": 1}),
    "learn-5": Arm("prompt learning, 5 loops", settings={"loops": 5}),
    "distil-5": Arm("the same without optimizer", settings={"loops": 5}, optimizer=False),
    "mcts": Arm("the same, search=mcts", settings={"loops": 5, "search": "mcts"}),
    "pareto": Arm("the same, search=pareto", settings={"loops": 5, "search": "pareto"}),
}


@dataclass(frozen=True)
class Rewrite:
    """`loops` of roll-out and rewriting, each with `rollouts` pages at most, as in prompt learning."""

    loops: int = 5
    rollouts: int = 40


@dataclass(frozen=True)
class Stated:
    """The prompt that states the first `rules` rules in wordings drawn by `seed`."""

    rules: int
    seed: int


def method_of(arm: Arm, rules: int, seed: int, optimizer_calls: int) -> tuple[Method, Any]:
    """The method of an arm and its config for one run."""
    settings = {k: optimizer_calls if v == MOST else v for k, v in arm.settings.items()}
    if arm.method == "stated":
        return Method(Entry("stated", arm.title, "-", "-"), stated, Stated), Stated(rules, seed)
    if arm.method == "rewrite":
        entry = Entry("rewrite", "One-call rewrite: the control", "-", "-", needs=(OPTIMIZER,))
        method = Method(entry, rewrite, Rewrite)
    else:
        method = get_method(arm.method)
    return method, configure(method, settings)


async def stated(
    run: Run, env: Environment, policy: LanguagePolicy | None, start: Prompt, config: Stated
) -> Candidate:
    """Nothing is learned: the start prompt with every rule in its fence."""
    return Candidate(start.edit(stating_all(config.rules, config.seed)), (start.id,), "stated")


async def rewrite(
    run: Run, env: Environment, policy: LanguagePolicy | None, start: Prompt, config: Rewrite
) -> Candidate:
    """The control: one call per loop gets every critique and writes the whole prompt anew.

    Pages of each loop, validations and the choice among the prompts are those of prompt learning; only what
    is done with the critiques differs. A reply that cannot be read, or that the prompt refuses, changes nothing.
    """
    plan = plan_loops(run, env, config.loops, config.rollouts, writes=True)
    archive, evidence, fresh = Archive(), Evidence(), draw(run, env)
    current = Candidate(start)
    for loop, size in enumerate(plan.rollouts):
        examples = [next(fresh) for _ in range(size)]
        rollouts = await roll_out(run, plan, archive, current, examples, loop)
        evidence.add(current, rollouts)
        critiques = [r.critique for r in rollouts if r.critique]
        if not critiques:
            break
        answer = (await run.generate("optimizer", rewrite_request(current.prompt.text(), critiques)))[0]
        current = Candidate(replaced(current.prompt, answer.text), (current.prompt.id,), f"loop {loop + 1}")
    evidence.add(current)
    await archive.validate(run, plan.env, [current])
    return evidence.best(archive, len(plan.env.validation))


async def roll_out(
    run: Run, plan: LoopPlan, archive: Archive, current: Candidate, examples: list[Example], loop: int
) -> list[Rollout]:
    """Pages under the current prompt; its validation, where one is planned, at the same time."""

    async def work(branch: Run, task: str) -> list[Rollout]:
        if task == "validate":
            await archive.validate(branch, plan.env, [current])
            return []
        return await plan.env.evaluate(branch, current.prompt, examples, loop)

    tasks = ["roll out", "validate"] if loop in plan.validated else ["roll out"]
    return (await run.map(work, tasks))[0]


def replaced(prompt: Prompt, reply: str) -> Prompt:
    """The prompt with the instructions of a reply, or as it is when there are none or it refuses them."""
    text = read_rewrite(reply)
    try:
        return prompt if text is None else prompt.edit(text)
    except EditRejected:
        return prompt

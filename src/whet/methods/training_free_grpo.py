"""Training-Free GRPO: groups of answers to the same input are compared in words; what the good ones did becomes an experience.

Training-Free Group Relative Policy Optimization. Tencent, 2025. arXiv:2510.08191. Code: github.com/TencentCloudADP/youtu-agent.

    experiences <- empty
    for each step, a batch of queries:
        answer each query `group` times with the experiences in the prompt;  grade all
        for each query whose answers got different rewards: the advantage in words, insights from the better against the worse
        add, update or delete experiences by the insights
    return the experiences

Differences from the paper:
1. The start and the lists of the steps compete on validation examples. The paper returns the last list, whatever it is worth.
2. Answers stand beside each other as they are, with reward and critique; a call reads up to `together` groups. The code first
   retells each answer in a call of its own and compares one group a call.
3. One call turns the insights of a step into operations. The code asks once for each group and once more to merge.
4. A deletion needs no text, an update of an unknown key changes nothing, and dropped operations are counted (`operations` in the
   log). In the code the first is skipped, the second adds, and a foreign key is lost without a word.
5. The number of experiences is bounded (`most`). One that reads the same as another, copies 32 characters in a row from a
   single input, or holds private data, is not taken in.
6. Samples are numbered, so that a cache never makes one of several answers.
7. There is no mode without rewards.
8. If the start prompt has a reward of zero, two other prompts are tried first (`whet.search.from_zero`).
9. Under a limit on calls, queries, steps and groups are reduced to fit (`whet.search.plan`).

Run it:  whet optimize TASK --method training_free_grpo --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl import LanguagePolicy, show_instruction
from whet.rl.principles import operations_or_lines
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.lessons import LessonList, begin_lessons
from whet.search.minibatch import answered_rollouts, infinite_batches, next_rows, show_answer, show_example
from whet.search.plan import fit, validate_finalists, validate_leader
from whet.types import Example, Rollout, mean_score

ENTRY = MethodEntry(
    "training_free_grpo",
    "Training-Free GRPO: the advantage of a group in words",
    version=1,
    rank=92,
    when="the model answers the same input correctly only some of the time, and short lessons should describe the good answers",
    paper="Tencent, 2025",
    arxiv="2510.08191",
    needs=("optimizer",),
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of Training-Free GRPO."""

    steps: NonNegativeInt = 6
    """Batches: 3 epochs of 100 queries in batches of 50, as for mathematics in the paper."""
    queries: PositiveInt = 50
    """Training examples of a batch."""
    group: PositiveInt = 5
    """Answers to each query (G)."""
    temperature: NonNegativeFloat = 0.7
    """Temperature of the answers."""
    insights: PositiveInt = 2
    """Insights from one group at most (e)."""
    together: PositiveInt = 4
    """Groups that are read in one call."""
    reads: PositiveInt = 8
    """Calls of a step that read groups at most."""
    most: PositiveInt = 30
    """Experiences at most."""
    finalists: PositiveInt = 3
    """Lists measured on validation examples at the end."""


async def training_free_grpo(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Group-relative advantages in words; see the module."""
    each = 2 / config.group
    plan = fit(
        run, env, config.steps, config.group, config.queries, finalists=config.finalists, asks=each, least=2
    )
    archive, rows = Archive(), infinite_batches(run.rng, env.train)
    plan, current, experiences = await begin_lessons(run, plan, archive, start, config.most, secrets)
    for step in range(plan.rounds):
        policy = policy.adapt()
        queries = next_rows(rows, plan.examples)
        groups = await sample_groups(run, env, current.prompt, queries, plan.width, step, config.temperature)
        current = replace(current, score=mean_score([rollout for group in groups for rollout in group]))
        archive.add(run, current)
        await validate_leader(run, plan, archive, current)
        mixed = [(q, group) for q, group in zip(queries, groups, strict=True) if differs(group)]
        reads = config.reads if plan.asks is None else max(1, plan.asks // plan.rounds - 1)
        shown = mixed[: config.together * min(reads, config.reads)]
        insights = await advantages(run, env, policy, experiences, shown, step, config)
        experiences = await update(run, env, policy, experiences, insights, step)
        prompt = experiences.prompt or current.prompt
        current = (
            current if prompt == current.prompt else Candidate(prompt, (current.id,), f"step {step + 1}")
        )
    return await validate_finalists(run, plan, archive, [current, *archive.top(plan.finalists)])


async def sample_groups(
    run: Run,
    env: Environment,
    prompt: Prompt,
    queries: Sequence[Example],
    size: int,
    step: int,
    temperature: float,
) -> list[list[Rollout]]:
    """`size` answers to each query, none a copy of another one's sample."""
    warm = replace(env, generation=replace(env.generation, temperature=temperature))

    async def sample(branch: Run, number: int) -> list[Rollout]:
        return await warm.evaluate(branch, prompt, queries, step * size + number)

    return [list(group) for group in zip(*await run.map(sample, range(size)), strict=True)]


def differs(group: Sequence[Rollout]) -> bool:
    """Whether the answers of a group got different rewards; calls that failed at the provider do not count."""
    return len({rollout.reward for rollout in answered_rollouts(group)}) > 1


async def advantages(
    run: Run,
    env: Environment,
    policy: LanguagePolicy,
    experiences: LessonList,
    mixed: Sequence[tuple[Example, Sequence[Rollout]]],
    step: int,
    config: Config,
) -> list[str]:
    """Insights from groups, a few of them in one call: what the better answers did that the worse ones did not."""
    packs = [mixed[at : at + config.together] for at in range(0, len(mixed), config.together)]

    async def compare(branch: Run, at: int) -> list[str]:
        shown = [show_group(query, group) for query, group in packs[at]]
        question = f"{COMPARE} {config.insights * len(shown)}"
        question = "\n\n".join([about(env, experiences), GROUPS, *shown, question])
        made = await policy.write(branch, question, "INSIGHT", sample=step * 100 + at, many=True)
        return made[: config.insights * len(shown)]

    return [insight for made in await run.map(compare, range(len(packs))) for insight in made]


def show_group(query: Example, group: Sequence[Rollout]) -> str:
    """A query with the different answers to it, the best first."""
    different = {(r.output, r.reward): r for r in reversed(answered_rollouts(group))}.values()
    best = sorted(different, key=lambda r: -r.reward)
    return "\n".join([show_example(query), *(show_answer(rollout) for rollout in best)])


async def update(
    run: Run,
    env: Environment,
    policy: LanguagePolicy,
    experiences: LessonList,
    insights: Sequence[str],
    step: int,
) -> LessonList:
    """The experiences after the operations that follow from the insights."""
    if not insights:
        return experiences
    listed = "\n".join([INSIGHTS, *(f"- {' '.join(insight.split())}" for insight in insights)])
    question = "\n\n".join([about(env, experiences), listed, OPERATE])
    replies = await policy.write(run, question, "OPERATIONS", sample=step)
    operations = [one for reply in replies for one in operations_or_lines(reply, "add")]
    experiences, dropped = experiences.apply_operations(operations)
    counts = {"proposed": len(operations), "dropped": dropped, "lessons": len(experiences.lessons)}
    run.log("operations", {**counts})
    return experiences


def about(env: Environment, experiences: LessonList) -> str:
    """The head of every question: the task, the instruction, the experiences."""
    instruction = show_instruction(env.description, experiences.start, experiences.base)
    return f"{instruction}\n\n{EXPERIENCES}\n{experiences.shown or NONE}"


EXPERIENCES = "The lessons that stand below it:"
NONE = "(none yet)"
GROUPS = "The model answered each of these inputs several times, better and worse:"
COMPARE = (
    "Compare the answers to the same input: what do the better ones do that the worse ones do not? Write insights that help with "
    "other inputs of this kind too: when they hold, and what to do then. Copy no input. Insights at most:"
)
INSIGHTS = "New insights:"
OPERATE = (
    "Bring the lessons up to date with these insights. Write a JSON list of operations: "
    '{"op": "add", "text": "..."}, {"op": "update", "id": "L1", "text": "..."} or {"op": "delete", "id": "L1"}. '
    "A lesson is one short sentence: when it holds, and what to do then. Join insights that say the same."
)

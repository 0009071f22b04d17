"""ACE: a playbook of counted lessons grows by small additions and is never written anew.

Agentic Context Engineering: Evolving Contexts for Self-Improving Language Models. 2025. arXiv:2510.04618.
Code: github.com/ace-agent/ace.

    playbook <- empty
    for each sample:
        the generator answers with the playbook
        the reflector says what went wrong, what was right, and which lessons helped or did harm;  counters += its verdicts
        the curator reads the reflection and the playbook, and adds lessons: deltas, merged by rule
    now and then: validate;  return the best playbook
    online: the samples come once, in windows; each window is answered with the playbook of the ones before, and then learned from

Differences from the paper:
1. The start and the playbooks are validated alike. The published code compares with 0, so that its best playbook may be worse
   than the start.
2. Counters decide: a lesson goes when more verdicts speak against it than for it (`removal`). In the code playbooks only grow,
   and counters are shown and never used.
3. A reflection reads several answers of a batch, wrong and right ones, instead of one; it gives verdicts on all lessons, because
   the task model is not asked which it used. It is not repeated until its answer is right.
4. A lesson that reads the same as another is not added; whether two mean the same the curator decides, not embeddings.
5. Lessons stand in one list instead of seven sections. Their number is bounded (`most`); the code's bound on tokens is a wish.
6. `merge` of `rewrite` lets the curator write the whole list anew each time, as Dynamic Cheatsheet does (arXiv:2504.07952): the
   control for the paper's claim that this loses what was known.
7. Only training rows with rewards teach: there is no mode without them. Lessons that copy 32 characters in a row from a single
   input, or hold private data, are dropped.
8. If the start prompt has a reward of zero, two other prompts are tried first (`whet.search.from_zero`).
9. Under a limit on calls, steps, batches and reflections are reduced to fit (`whet.search.plan`).

10. Online, counters are halved before each window, so that a lesson which stopped being true goes after few verdicts. The code's
   are never used. Rows come in the order of the training split; the last playbook and the start are compared on validation rows.

Run it:  whet optimize TASK --method ace --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from whet._util.fields import NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.replies import json_values, list_items
from whet.rl import LanguagePolicy, show_instruction
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.lessons import LessonList, begin_lessons
from whet.search.minibatch import answered_rollouts, infinite_batches, next_rows, show_rollout
from whet.search.plan import SearchPlan, fit, validate_finalists, validate_leader
from whet.types import Example, Rollout, mean_score

ENTRY = MethodEntry(
    "ace",
    "ACE: a playbook of counted lessons",
    version=1,
    rank=24,
    when="there are many small facts to learn, and learning some must not make the model forget others",
    paper="ACE, 2025",
    arxiv="2510.04618",
    needs=("optimizer",),
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of ACE."""

    steps: NonNegativeInt = 20
    """Rounds of answering, reflecting and curating."""
    batch: PositiveInt = 20
    """Training examples answered in a round."""
    shown: PositiveInt = 8
    """Answers that a reflection reads."""
    reflections: PositiveInt = 3
    """Reflections in a round at most, each on other answers."""
    most: PositiveInt = 60
    """Lessons of a playbook at most."""
    removal: bool = True
    """Whether a lesson goes whose counters speak against it."""
    merge: Literal["delta", "rewrite"] = "delta"
    """Whether the curator adds single lessons, or rewrites the whole list."""
    finalists: PositiveInt = 3
    """Playbooks measured on validation examples at the end."""
    online: bool = False
    """Whether the training rows are a stream: each is answered once, in windows of `batch`, and then learned from."""


async def ace(run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config) -> Candidate:
    """A playbook that grows by additions; see the module."""
    if config.online:
        return await adapt_online(run, env, policy, start, config)
    plan = fit(run, env, config.steps, 1, config.batch, finalists=config.finalists, asks=2.0)
    archive, rows = Archive(), infinite_batches(run.rng, env.train)
    plan, current, playbook = await begin_lessons(run, plan, archive, start, config.most, secrets)
    for step in range(plan.rounds + 1):
        batch = next_rows(rows, plan.examples)
        rollouts = await env.evaluate(run, current.prompt, batch)
        current = replace(current, score=mean_score(rollouts))
        archive.add(run, current)
        await validate_leader(run, plan, archive, archive.top(1)[0])
        if step < plan.rounds:
            policy = policy.adapt()
            groups = shared_out(rollouts, env.reward.high, config.shown, number_of_reflections(plan, config))
            playbook = await learn(run, env, policy, playbook, batch, groups, config, step)
            current = next_candidate(current, playbook, step)
    return await validate_finalists(run, plan, archive, [current, *archive.top(plan.finalists)])


async def adapt_online(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Answer the training rows once, window by window, with what was learned from the windows before; log the reward so far."""
    plan = fit(run, env, -(-len(env.train) // config.batch), 1, config.batch, finalists=1, asks=2.0)
    archive = Archive()
    plan, current, playbook = await begin_lessons(run, plan, archive, start, config.most, secrets)
    stream, earned = env.train[: plan.payable(len(env.train), 1)], list[float]()
    size = -(-len(stream) // max(1, plan.rounds))
    for step, first in enumerate(range(0, len(stream), max(1, size))):
        window = stream[first : first + size]
        rollouts = await env.evaluate(run, current.prompt, window)
        earned += [rollout.reward for rollout in rollouts]
        figures = {"reward": mean_score(rollouts).mean, "cumulative": sum(earned), "answered": len(earned)}
        run.log("step", {"step": step, **figures, "lessons": len(playbook.lessons)})
        if step < plan.rounds:
            policy = policy.adapt()
            groups = shared_out(rollouts, env.reward.high, config.shown, number_of_reflections(plan, config))
            playbook = await learn(run, env, policy, playbook.halve_counts(), window, groups, config, step)
            current = next_candidate(current, playbook, step)
    archive.add(run, current)
    return await validate_finalists(run, plan, archive, [current])


async def learn(
    run: Run,
    env: Environment,
    policy: LanguagePolicy,
    playbook: LessonList,
    batch: Sequence[Example],
    groups: Sequence[Sequence[Rollout]],
    config: Config,
    step: int,
) -> LessonList:
    """The playbook after reflections on groups of answers to a batch, their verdicts, and the curator."""
    replies = await reflect(run, env, policy, playbook, batch, groups, step)
    insights = [insight for reply in replies for insight in reply.insights]
    for reply in replies:
        playbook = playbook.count_verdicts(reply.helped, reply.harmed)
    if config.removal:
        playbook = playbook.without([one.key for one in playbook.lessons if one.harms])
    return await curate(run, env, policy, playbook, insights, config.merge, step)


def next_candidate(current: Candidate, playbook: LessonList, step: int) -> Candidate:
    """The candidate with a playbook; the current one where that makes no other prompt."""
    prompt = playbook.prompt or current.prompt
    return current if prompt == current.prompt else Candidate(prompt, (current.id,), f"step {step + 1}")


def number_of_reflections(plan: SearchPlan, config: Config) -> int:
    """Reflections of a round: what a limit on the optimizer's calls pays beside the curator."""
    if plan.asks is None:
        return config.reflections
    return max(1, min(config.reflections, plan.asks // max(1, plan.rounds) - 1))


def shared_out(rollouts: Sequence[Rollout], high: float, shown: int, groups: int) -> list[list[Rollout]]:
    """Groups of answers for the reflections: one right answer for three wrong ones, each answer in one group; none without a
    wrong one."""
    known = answered_rollouts(rollouts)
    wrong, right = [r for r in known if r.reward < high], [r for r in known if r.reward >= high]
    good = min(len(right), groups * max(1, shown // 4))
    mixed = [wrong[: groups * shown - good][i::groups] + right[:good][i::groups] for i in range(groups)]
    return [group for group in mixed if any(r.reward < high for r in group)]


@dataclass(frozen=True)
class Reflection:
    """The result of a reflection: insights, and the keys of lessons that helped or harmed."""

    insights: Sequence[str] = ()
    helped: Sequence[object] = ()
    harmed: Sequence[object] = ()

    @classmethod
    def read(cls, reply: str) -> Reflection:
        """The reflection in a reply: the first JSON object with one of its three lists; without JSON, items as insights."""
        if not (values := json_values(reply)):
            return cls(list_items(reply) or [reply])
        for value in values:
            lists = [
                value.get(name) if isinstance(value, dict) else None
                for name in ("insights", "helped", "harmed")
            ]
            if any(isinstance(one, list) for one in lists):
                insights, helped, harmed = (one if isinstance(one, list) else [] for one in lists)
                return cls([str(insight) for insight in insights], helped, harmed)
        return cls()


async def reflect(
    run: Run,
    env: Environment,
    policy: LanguagePolicy,
    playbook: LessonList,
    batch: Sequence[Example],
    groups: Sequence[Sequence[Rollout]],
    step: int,
) -> list[Reflection]:
    """One reflection for each group of answers."""
    rows = {row.id: row for row in batch}

    async def one(branch: Run, at: int) -> list[Reflection]:
        shown = [show_rollout(rows[rollout.example_id], rollout) for rollout in groups[at]]
        question = "\n\n".join([about(env, playbook), ANSWERS, *shown, REFLECT])
        replies = await policy.write(branch, question, "REFLECTION", sample=step * 100 + at)
        return [Reflection.read(reply) for reply in replies]

    return [reflection for several in await run.map(one, range(len(groups))) for reflection in several]


async def curate(
    run: Run,
    env: Environment,
    policy: LanguagePolicy,
    playbook: LessonList,
    insights: Sequence[str],
    merge: str,
    step: int,
) -> LessonList:
    """The playbook after the curator read the insights."""
    if not insights:
        return playbook
    question = "\n\n".join([about(env, playbook), "\n".join([INSIGHTS, *(f"- {one}" for one in insights)])])
    if merge == "rewrite":
        long = replace(policy, max_tokens=policy.max_tokens + len(playbook.shown.encode()))
        texts = await long.write(run, f"{question}\n\n{REWRITE}", "LESSON", sample=step, many=True)
        new = replace(playbook, lessons=())
        for text in texts:
            new = new.add(text)
        return new if new.lessons else playbook
    texts = await policy.write(run, f"{question}\n\n{CURATE}", "LESSON", sample=step, many=True)
    additions = [{"op": "add", "text": text} for text in texts]
    playbook, dropped = playbook.apply_operations(additions)
    run.log("operations", {"proposed": len(additions), "dropped": dropped, "lessons": len(playbook.lessons)})
    return playbook


def about(env: Environment, playbook: LessonList) -> str:
    """The head of every question: the task, the instruction, the playbook."""
    instruction = show_instruction(env.description, playbook.start, playbook.base)
    return f"{instruction}\n\n{PLAYBOOK}\n{playbook.shown or NONE}"


PLAYBOOK = "The lessons that stand below it, with what is known about them:"
NONE = "(none yet)"
ANSWERS = "Answers of the model with this instruction and these lessons:"
REFLECT = (
    "Why are some answers wrong and others right? Write a JSON object: "
    '{"insights": ["what the model should know or do, for which inputs"], "helped": ["L1"], "harmed": ["L2"]}. '
    "Insights are short and hold for all inputs of this kind; copy no input. Name a lesson by its key under helped or harmed "
    "only where the answers show it."
)
INSIGHTS = "New insights:"
CURATE = (
    "Add what is new in these insights and in none of the lessons, one thing a lesson, with all details that matter. Write "
    "the new lessons only."
)
REWRITE = "Write the whole list of lessons anew, with the new insights in it. Keep every lesson that is still needed."

"""CuES: an agent explores, a model makes tasks of what it did, and the tasks that can be done again join the training rows.

Mai, Zhai, Z. Chen, C. Chen, Zou, Tao, Liu, Ding: CuES: A Curiosity-driven and Environment-grounded Synthesis Framework for
Agentic RL. 2025. arXiv:2512.01311. Code: modelscope/AgentEvolver, research/CuES.

    memory <- empty
    for each of `explorations` explorations:
        steps <- the agent tries what is not in the memory;  memory <- LM(steps so far)
    T <- LM(batches of steps): a query, the actions that answer it, a confidence; sure ones that are like no other
    T <- those of T that the agent does again when it is shown the actions
    learn from T and the training rows: rewrite the prompt from failures, where that earns more

Differences from the paper and its code:
1. The paper trains weights on the tasks; here they teach a prompt. A rewrite is taken where it earns more on the same rows.
2. The code explores in parallel; here explorations follow each other, each with the memory of those before.
3. What accepts a task is the reward of yours, not the model that proposed it. A reward that compares with targets takes the
   answer on which two attempts agree as the target; any other reward must be above the middle of its range.
4. Duplicates are looked for among all tasks and training rows; the code looks in a batch of 12 only. Copies of validation rows
   are dropped.
5. Concept pool and rewordings of queries are left out: three of the paper's five stages are in its code.
6. `memory: false` and `verify: false` (which finds no target) are the controls. The result is chosen on validation examples.
7. If the start prompt has a reward of zero, two other prompts are tried first (`whet.search.from_zero`). Within a limit
   on calls, all numbers are reduced to fit.

Run it:  whet optimize TASK --method cues --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt, Probability
from whet.environments.environment import Environment
from whet.environments.multiturn import MultiTurn, trajectories
from whet.errors import UsageError, named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.replies import json_values
from whet.rewards import TARGET
from whet.rl import LanguagePolicy, show_instruction
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.copies import normalize_wording
from whet.search.edits import text_in
from whet.search.from_zero import leave_zero
from whet.search.minibatch import gains, infinite_batches, mistakes, next_rows, shorten, show_rollout
from whet.search.plan import SearchPlan, share_out, validate_finalists, validate_leader
from whet.search.written_rows import written_row
from whet.types import Example, Rollout, mean_score

ENTRY = MethodEntry(
    "cues",
    "CuES: tasks made from exploring an environment, which teach the prompt",
    version=1,
    rank=98,
    when="there is an environment with tools, and few rows or none like those to come",
    paper="Mai et al., 2025",
    arxiv="2512.01311",
    needs=("optimizer",),
)

LONGEST, REMEMBERED, SHOWN = 600, 50, 4


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of CuES."""

    explorations: NonNegativeInt = 8
    """Episodes of exploring, one after the other."""
    memory: bool = True
    """Whether an exploration sees a summary of the earlier explorations."""
    batch: PositiveInt = 12
    """Steps that a question for tasks shows."""
    confidence: Probability = 0.7
    """Confidence that a proposed task must have."""
    similar: Probability = 0.8
    """Share of common words from which on two queries are the same."""
    tasks: NonNegativeInt = 24
    """Tasks that are tried again at most."""
    verify: bool = True
    """Whether a task must be done again."""
    rounds: NonNegativeInt = 8
    """Rewrites of the prompt."""
    rows: PositiveInt = 12
    """Rows of a round, half of them made."""
    temperature: NonNegativeFloat = 1.0
    """Of the agent that explores."""
    finalists: PositiveInt = 3
    """Prompts measured on validation examples at the end."""


@dataclass(frozen=True)
class ExploredStep:
    """The agent's observation, its action, and the next observation."""

    before: str
    action: str
    after: str

    @property
    def text(self) -> str:
        """The text that a model reads."""
        parts = ("Seen", self.before), ("Done", self.action), ("Then", self.after)
        return "\n".join(f"{name}: {shorten(text, LONGEST)}" for name, text in parts)


@dataclass(frozen=True)
class MadeTask:
    """A row that was made, and the actions that answer it."""

    row: Example
    actions: str


async def cues(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Explore, make tasks, learn from them; see the module."""
    plan = share_out(run, env, config.rounds, config.finalists)
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    plan, firsts = await leave_zero(run, plan, archive, start, secrets)
    current = firsts[0].candidate if firsts else Candidate(start)
    third = max(config.explorations, config.tasks, config.rounds) if plan.asks is None else plan.asks // 3
    maker = TaskMaker(env, policy, start, config)
    steps = await maker.explore(run, plan.payable(min(config.explorations, third), 8))
    proposed = await maker.propose(run, steps, min(config.tasks, third))
    made = await maker.do_again(run, proposed[: plan.payable(config.tasks, 8)])
    for task in made:
        run.log(
            "made_task", {"input": task.row.user_text, "target": task.row.target, "actions": task.actions}
        )
    run.log("tasks", {"steps": len(steps), "proposed": len(proposed), "made": len(made)})
    left = replace(plan, rounds=min(config.rounds, third))
    if plan.rollouts is not None:
        left = replace(left, rollouts=plan.rollouts * 5 // 8)
    current = await learn(run, policy, start, current, made, left, archive, config)
    return await validate_finalists(run, plan, archive, [current, *archive.top(config.finalists)])


@dataclass(frozen=True)
class TaskMaker:
    """The generator of an environment's tasks."""

    env: Environment
    policy: LanguagePolicy
    start: Prompt
    config: Config

    async def explore(self, run: Run, episodes: int) -> list[ExploredStep]:
        """The steps of the explorations, in order."""
        warm = replace(self.env, generation=replace(self.env.generation, temperature=self.config.temperature))
        steps, memory = list[ExploredStep](), ""
        for number in range(episodes):
            tried = f"\n\n{TRIED}\n{memory}" if memory else ""
            row = Example(f"exploration-{number}", dict.fromkeys(self.env.train[0].values, EXPLORE + tried))
            ((played, _),) = await trajectories(run, warm, [(self.start, row)], number)
            seen = [*(turn.observation for turn in played.turns), played.last]
            steps += [ExploredStep(seen[i], turn.text, seen[i + 1]) for i, turn in enumerate(played.turns)]
            if self.config.memory and number + 1 < episodes:
                question = "\n\n".join([*(step.text for step in steps[-REMEMBERED:]), REMEMBER])
                texts = await self.policy.write(run, question, "MEMORY", sample=number)
                memory = shorten(texts[0], 4000) if texts else memory
        return steps

    async def propose(self, run: Run, steps: Sequence[ExploredStep], most: int) -> list[MadeTask]:
        """Tasks that a model makes of batches of steps, `most` batches: sure ones with actions, that are like no other query."""
        size = self.config.batch
        cuts = [steps[i : i + size] for i in range(0, len(steps), size)][:most]

        async def one(branch: Run, item: tuple[int, Sequence[ExploredStep]]) -> list[str]:
            question = "\n\n".join([STEPS, *(step.text for step in item[1]), MAKE])
            return await self.policy.write(branch, question, "TASK", sample=item[0], many=True)

        known, tasks = [row.user_text for row in self.env.train], list[MadeTask]()
        for text in chain.from_iterable(await run.map(one, list(enumerate(cuts)))):
            query, actions, sure = read_task(text)
            row = written_row(query, self.env.train[0], self.env, self.start.text)
            if row is None or not actions or sure < self.config.confidence or secrets(query):
                continue
            if all(common_words(query, other) < self.config.similar for other in known):
                known.append(query)
                tasks.append(MadeTask(row, actions))
        return tasks

    async def do_again(self, run: Run, tasks: Sequence[MadeTask]) -> list[MadeTask]:
        """The tasks that the agent does again when it is shown the actions, with their target where the reward needs one."""
        reward = self.env.reward
        by_target, middle = TARGET in reward.needs, (reward.low + reward.high) / 2
        if not self.config.verify:
            return [] if by_target else list(tasks)

        async def one(branch: Run, task: MadeTask) -> MadeTask | None:
            hinted = {key: f"{text}\n\n{HINT}\n{task.actions}" for key, text in task.row.values.items()}
            row = Example(task.row.id, hinted, "" if by_target else None, task.row.row)
            outputs = []
            for attempt in range(2):
                ((played, rollout),) = await trajectories(branch, self.env, [(self.start, row)], attempt)
                if rollout.error is None and not by_target and rollout.reward > middle:
                    return task
                outputs.append((played.answer or "").strip() if rollout.error is None else "")
            if (
                not by_target
                or not outputs[0]
                or normalize_wording(outputs[0]) != normalize_wording(outputs[1])
            ):
                return None
            target = {"input": task.row.user_text, "target": outputs[0]}
            return replace(task, row=replace(task.row, target=outputs[0], row=target))

        return [task for task in await run.map(one, tasks) if task is not None]


async def learn(
    run: Run,
    policy: LanguagePolicy,
    start: Prompt,
    current: Candidate,
    made: Sequence[MadeTask],
    plan: SearchPlan,
    archive: Archive,
    config: Config,
) -> Candidate:
    """The prompt rewritten from failures on made and on training rows, where a rewrite earns more on the same rows."""
    env, actions = plan.env, {task.row.id: task.actions for task in made}
    size = max(2, min(config.rows, plan.payable(2 * config.rows, 2) // 2))
    rounds = plan.payable(plan.rounds, 2 * size)
    run.note_rounds(rounds, config.rounds)
    olds, news = infinite_batches(run.rng, env.train), infinite_batches(run.rng, [task.row for task in made])
    for number in range(rounds):
        policy = policy.adapt()
        own = next_rows(news, size // 2) if made else []
        rows = [*own, *next_rows(olds, size - len(own))]
        before, text = await env.evaluate(run, current.prompt, rows), text_in(start, current.prompt)
        parts = [PURPOSE, show_instruction(env.description, start, text), FAILED]
        parts += show_failures(rows, mistakes(before, env.reward.high)[:SHOWN], actions)
        question = "\n\n".join([*parts, REQUEST])
        for prompt in await policy.rewrite(run, start, question, sample=number, text=text):
            if prompt in archive or secrets(prompt.region_text()):
                continue
            after = await env.evaluate(run, prompt, rows)
            child = Candidate(prompt, (current.id,), f"round {number + 1}", mean_score(after))
            archive.add(run, child)
            if sum(gains(before, after)) > 0:
                current = await validate_leader(run, plan, archive, child)
    return current


def show_failures(
    rows: Sequence[Example], failures: Sequence[Rollout], actions: Mapping[str, str]
) -> list[str]:
    """Failures as a model reads them, with the actions of those rows that were made."""
    by_id, shown = {row.id: row for row in rows}, []
    for failure in failures:
        known = actions.get(failure.example_id)
        text = show_rollout(by_id[failure.example_id], failure, LONGEST)
        shown.append(f"{text}\n{WORKED} {shorten(known, LONGEST)}" if known else text)
    return shown


def read_task(text: str) -> tuple[str, str, float]:
    """The query, the actions and the confidence of a proposed task; empty and 0 where there are none."""
    for value in json_values(text):
        if isinstance(value, dict):
            query, actions, sure = (value.get(name) for name in ("query", "actions", "confidence"))
            steps = [str(action) for action in actions] if isinstance(actions, list) else []
            number = isinstance(sure, int | float) and not isinstance(sure, bool)
            return str(query or "").strip(), "\n".join(steps).strip(), float(sure or 0) if number else 0.0
    return "", "", 0.0


def common_words(one: str, other: str) -> float:
    """The share of the words of two texts that both have, from 0 to 1."""
    first, second = set(normalize_wording(one).split()), set(normalize_wording(other).split())
    return len(first & second) / max(1, len(first | second))


def check(env: Environment, config: Config) -> None:
    """Raises UsageError for a program, several tasks, rows of several values, and tasks that could have no target."""
    if type(env) not in (Environment, MultiTurn):
        raise UsageError("cues explores one environment; this task is a program or is made of several tasks.")
    if len(env.train[0].values) > 1:
        raise UsageError(
            "cues writes queries, and the rows of this task have several values. Give rows with one `input`."
        )
    if isinstance(env, MultiTurn) and env.world is not None and not env.world.graded:
        raise UsageError(f"cues writes queries, and an episode of {env.world.name} begins without one.")


EXPLORE = (
    "There is no task. Find out what can be done here: try what has not been tried, one step at a time, and look at what comes "
    "of it. When you have learned something, say what."
)
TRIED = "Tried before:"
REMEMBER = (
    "This is what an explorer did and saw. Summarise in 500 words at most what was tried and what came of it, so that the next "
    "explorer can try something else."
)
STEPS = "An explorer did this:"
MAKE = (
    "Make tasks that a user could have set and that these steps show can be done: a query that says what is wanted and not how, "
    "the actions that answer it, in order, and your confidence from 0 to 1 that they do. Write each as JSON: "
    '{"query": "...", "actions": ["..."], "confidence": 0.9}'
)
HINT = "These actions have answered it before:"
PURPOSE = "You improve the instruction of an agent."
FAILED = "What it failed at:"
WORKED = "Actions that worked:"
REQUEST = (
    "Write the instruction anew, so that the agent would have done these. Say how the environment works and what to do in it. "
    "Keep what works. It must hold for other tasks of this kind too."
)

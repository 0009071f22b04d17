"""Prompting policies: a small model learns to write the prompt for a frozen one, first with its experience in view, then without.

Prompting Policies with iterative distillation of experience. 2026. arXiv:2605.14443. Only the abstract and summaries by
others could be read: sizes and wording are ours.

    H <- {}                                     experience: texts with rewards and remarks, by context
    for step in 1..steps:
        for each context c of a batch:
            h <- some of the better and some of the worse of H[c]
            p_1..p_G ~ pi(. | c, h)
            r_g <- mean reward of the frozen model under p_g on m rows of c;  remark_g <- what went wrong
            H[c] += (p_g, r_g, remark_g)
        A_g <- r_g - mean r;  policy gradient on pi, with a divergence from its first weights
        every `distil` steps: raise log pi(p* | c) without h for the best p* of each context
    in use: p ~ pi(. | c), once, without experience

The context is the task's description and its prompt. With `column` it is also the value of that column: then there are as many
contexts as values, the result is a system that writes a prompt for each of them, those that it has never seen included, and the
sealed test asks it. Without, the result is a text.

Differences from the paper, as far as it could be read:
1. The remark is by default the worst row with its answer. With `remarks=optimizer` the run's optimizer model says in a
   sentence what is wrong with the text; the paper's critic is a language model.
2. A text that comes again gets the mean of all its rewards. Experience stays after a distillation (`forget=true` empties it);
   of a context at most 64 texts are kept, the best and the worst.
3. A text that the prompt cannot take gets the lowest reward, costs no call and is not remembered.
4. Without a column the greedy text and `rewrites` samples are compared on validation examples; the start is a candidate.
5. Low-rank adapters instead of all weights (`rank=0`).
6. Under a limit on calls, steps and rows are reduced to fit.
7. `shown=none`, `good` and `shuffled`, `distil=0` and `steps=0` are the controls.

Run it:  whet optimize TASK --method prompting_policies --lm openai/NAME --policy hf/PATH
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import UsageError, named_fields
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl.experience import Experience, ExperienceBuffer, Shown
from whet.rl.language import LanguagePolicy, show_instruction
from whet.rl.policy_model import PolicyModel, Sample
from whet.rl.policy_model.model import Conversation
from whet.rl.row_selection import CHOSEN, refuse_selectors
from whet.rl.score_book import (
    Leaders,
    TrainedCandidates,
    due,
    plan_without_training,
    rewrite_of,
    written_text,
)
from whet.rl.training import Advantage, Trainer, Training
from whet.rl.written_prompts import WrittenPrompts, with_writer
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.minibatch import minibatch, show_rollout
from whet.search.plan import fit
from whet.types import Example, Message, Rollout

ENTRY = MethodEntry(
    "prompting_policies",
    "Prompting policies: a trained prompter with experience in view",
    version=2,
    rank=205,
    when="one small prompter should serve many contexts, including new ones, for a frozen larger model",
    paper="2026",
    arxiv="2605.14443",
    needs=("policy", "optimizer_optional"),
    trains="a language model that writes the prompt (LoRA)",
    extra="train",
)

ROUNDING = 1e-9  # what equal rewards and their mean may differ by
LONGEST = 300  # characters of an input, an answer and a target in a remark


@named_fields
@dataclass(frozen=True)
class Config(Training):
    """Settings of prompting policies; the others are those of every training."""

    steps: NonNegativeInt = 60
    """Updates of the prompter; 0: the prompter stays untrained."""
    group: PositiveInt = 8
    """Texts sampled for a context in a step (G)."""
    advantage: Advantage = "dr_grpo"
    """The estimator of the advantages; the default subtracts the mean and does not divide."""
    kl: NonNegativeFloat = 0.01
    """Weight of the divergence from the first weights."""
    max_tokens: PositiveInt = 128
    """Bound on a text."""
    examples: PositiveInt | None = 16
    """Rows of a context that the texts of a step are scored on (m)."""
    column: str = ""
    """The column of the rows that names their context; if empty, there is a single context."""
    contexts: PositiveInt = 4
    """The number of contexts in a step, if there are several."""
    experiences: PositiveInt = 2
    """The number of better experiences that the prompter sees, and of worse experiences."""
    shown: Shown = "both"
    """The experiences that the prompter sees; all values except both are controls."""
    remarks: Literal["row", "optimizer", "none"] = "row"
    """The remark about a text: its worst row, a sentence of the optimizer model, or none."""
    distil: NonNegativeInt = 10
    """Steps from one distillation to the next; 0 for none."""
    imitated: PositiveInt = 2
    """Best texts of a context that a distillation imitates."""
    forget: bool = False
    """Whether a distillation empties the experience."""
    rewrites: PositiveInt = 10
    """The number of texts from which the result is chosen, if there is a single context."""
    checks: NonNegativeInt = 4
    """Times that the greedy text, or the system, is validated on the way."""

    @property
    def deploys(self) -> bool:
        """Whether the result is more than a text."""
        return bool(self.column)


async def prompting_policies(
    run: Run, env: Environment, policy: PolicyModel, start: Prompt, config: Config
) -> Candidate:
    """Policy gradient on prompts written with experience in view, and its distillation; see the module."""
    check(env, config)
    rows = by_context(env.train, config.column)
    writer = Prompter(Trainer(policy, config), env.description, config.column)
    together = min(config.contexts, len(rows)) * config.group if config.steps else config.rewrites
    finalists = 1 if config.column else config.rewrites
    least = config.smallest_group if config.steps else 1
    asks = 1.0 if config.remarks == "optimizer" else 0.0
    rounds = config.steps + 1
    plan = fit(run, env, rounds, together, config.examples, finalists=finalists, asks=asks, least=least)
    plan = plan if config.steps else plan_without_training(plan)
    group = max(1, min(config.group, plan.width))
    steps = max(0, plan.rounds - 1) if config.steps else 0  # the last round is that of the finalists
    archive, buffer = Archive(), ExperienceBuffer(policy)
    await archive.validate(run, plan.env, [Candidate(start)])
    leaders = Leaders(policy, start, "prompter")
    checks = min(steps or 1, max(1, config.checks), plan.validations - 1)
    systems = TrainedCandidates(policy, start, "prompter", max(1, steps), checks) if config.column else None

    async def step(run: Run, number: int) -> None:
        batch = run.rng.sample(sorted(rows), min(len(rows), max(1, plan.width // group)))
        shown = [buffer.contrast(run.rng, c, config.experiences, config.shown) for c in batch]
        questions = [writer.question(start, c, h) for c, h in zip(batch, shown, strict=True)]
        groups = await writer.trainer.draw_groups(run, questions, n=group)
        drawn = [minibatch(run.rng, rows[c], plan.examples) for c in batch]
        tried = list(zip(batch, groups, drawn, strict=True))
        rewards = [await try_texts(run, env, start, config, buffer, *one) for one in tried]
        figures = writer.trainer.learn(groups, rewards)
        if config.distil and (number + 1) % config.distil == 0:
            figures["imitated"] = distil(policy, writer, start, config, buffer, list(rows))
        run.log("step", {"step": number, "best": max(map(max, rewards)), **figures})
        if systems is not None and systems.due(number):
            written = writing(plan.env, policy, config)
            await systems.validate(run, archive, written, await run.keep(policy))
        elif systems is None and due(number, steps, config.checks):
            await leaders.check(run, plan, archive, (await writer.write_all(run, start, [""]))[0])

    if steps:
        await run.train(steps, step, policy)
    if systems is not None:
        if not steps and config.steps == 0:
            await systems.validate(run, archive, writing(plan.env, policy, config), await run.keep(policy))
        return systems.recall(archive)
    leaders.recall(archive)
    first = (await writer.write_all(run, start, [""]))[0]
    (samples,) = await writer.trainer.sample(run, [writer.question(start, "", [])], n=plan.finalists)
    rewrites = [rewrite_of(start, written_text(sample)) for sample in samples]
    return await leaders.best_of(run, env, plan, archive, rewrites, first)


async def try_texts(
    run: Run,
    env: Environment,
    start: Prompt,
    config: Config,
    buffer: ExperienceBuffer,
    context: str,
    group: Sequence[Sample],
    rows: Sequence[Example],
) -> list[float]:
    """Rewards of the texts of a group on rows of a context; each is remembered with what is said about it."""
    rewrites = [rewrite_of(start, written_text(sample)) for sample in group]
    usable = list({rewrite.id: rewrite for rewrite in rewrites if rewrite is not None}.values())

    async def answer(branch: Run, prompt: Prompt) -> tuple[float, str]:
        rollouts = await env.evaluate(branch, prompt, rows)
        remark = await remark_on(branch, env, prompt, config, rows, rollouts)
        return fmean(rollout.reward for rollout in rollouts), remark

    answered = dict(
        zip([prompt.id for prompt in usable], await run.map(answer, usable) if usable else [], strict=True)
    )
    for prompt in usable:
        buffer.add(context, prompt.region_text().strip(), *answered[prompt.id])
    return [env.reward.low if rewrite is None else answered[rewrite.id][0] for rewrite in rewrites]


async def remark_on(
    run: Run,
    env: Environment,
    prompt: Prompt,
    config: Config,
    rows: Sequence[Example],
    rollouts: Sequence[Rollout],
) -> str:
    """A remark on a text: its worst row, or a sentence of the optimizer model about it; '' if every row is right."""
    worst = min(range(len(rows)), key=lambda i: rollouts[i].reward)
    if config.remarks == "none" or rollouts[worst].reward >= env.reward.high:
        return ""
    shown = show_rollout(rows[worst], rollouts[worst], LONGEST)
    if config.remarks == "row":
        return shown
    question = f"{show_instruction(env.description, prompt, prompt.region_text())}\n\n{shown}\n\n{WHY}"
    return "".join((await LanguagePolicy().write(run, question, "REMARK"))[:1])


def distil(
    policy: PolicyModel,
    writer: Prompter,
    start: Prompt,
    config: Config,
    buffer: ExperienceBuffer,
    contexts: Sequence[str],
) -> float:
    """Imitate the best texts of each context without experience in view; the number of texts.

    Only texts that earned more than the mean of their context teach anything.
    """
    pairs: list[tuple[Conversation, str]] = []
    for context in contexts:
        known = buffer.of(context)
        mean = fmean(one.reward for one in known) if known else 0.0
        best = [one.text for one in known[: config.imitated] if one.reward > mean + ROUNDING]
        pairs += [(writer.question(start, context, []), text) for text in best]
    if pairs:
        policy.imitate(pairs, config.update())
    if config.forget:
        buffer.clear()
    return float(len(pairs))


@dataclass(frozen=True)
class Prompter:
    """The policy as a writer of prompts; `column` names the context of a row."""

    trainer: Trainer
    description: str
    column: str

    def question(self, start: Prompt, context: str, shown: Sequence[Experience]) -> Conversation:
        """The policy's input: the task, the context and earlier attempts."""
        parts = [f"{CONTEXT}\n{context}"] if context else []
        if shown:
            tried = [f"Reward: {round(one.reward, 2)}\n{one.text}\n{one.remark}".strip() for one in shown]
            parts.append("\n\n".join([TRIED, *tried]))
        known = show_instruction(self.description, start, start.region_text())
        return (Message("user", "\n\n".join([known, *parts, REQUEST])),)

    async def write_all(self, run: Run, start: Prompt, contexts: Sequence[str]) -> list[Prompt | None]:
        """The greedy prompt of each context, without experience; None where it cannot be used."""
        questions = [self.question(start, context, []) for context in contexts]
        groups = await self.trainer.sample(run, questions, n=1, greedy=True)
        return [rewrite_of(start, written_text(sample)) for (sample,) in groups]

    async def write(
        self, run: Run, prompt: Prompt, examples: Sequence[Example]
    ) -> list[tuple[Prompt, Example]]:
        """The prompt of each example's context; `prompt` where what was written cannot be used."""
        names = [context_of(example, self.column) for example in examples]
        contexts = list(dict.fromkeys(names))
        written = dict(zip(contexts, await self.write_all(run, prompt, contexts), strict=True))
        return [(written[name] or prompt, example) for name, example in zip(names, examples, strict=True)]


def context_of(example: Example, column: str) -> str:
    """The context of a row."""
    return str(example.row.get(column, "")) if column else ""


def by_context(examples: Sequence[Example], column: str) -> dict[str, list[Example]]:
    """Rows by context."""
    rows: dict[str, list[Example]] = {}
    for example in examples:
        rows.setdefault(context_of(example, column), []).append(example)
    return rows


def check(env: Environment, config: Config) -> None:
    """Refuse a column that rows lack, and one where the task is more than one question and one answer; and a choice of rows."""
    refuse_selectors(config.rows, CHOSEN, "a text is about all rows of its context, not about one.")
    if not config.column:
        return
    lacking = [e for e in (*env.train, *env.validation) if config.column not in e.row]
    if lacking:
        raise UsageError(
            f"column={config.column} names the context of a row, and {len(lacking)} rows have none: {lacking[0].place}."
        )
    if type(env) is not Environment:
        raise UsageError(
            "column= writes a prompt for each context of one question with one answer; this task has several turns."
        )


def writing(env: Environment, policy: PolicyModel, config: Config) -> WrittenPrompts:
    """The system: the policy, greedy, writes the prompt of each context."""
    writer = Prompter(Trainer(policy, config), env.description, config.column)
    return with_writer(env, writer, "prompting_policies")


def deploy(env: Environment, policy: PolicyModel, blob: bytes, config: Config) -> Environment:
    """The environment in which trained weights write the prompt of each context."""
    policy.load(blob)
    return writing(env, policy, config)


CONTEXT = "Context:"
TRIED = "Tried before in this context, with the reward of each:"
WHY = "Say in one sentence what is wrong with the instruction."
REQUEST = "Write an instruction that earns more. Write nothing else."

"""CALM: an evolution of prompts whose writer learns on the way, from how much better its children are than their parents.

Huang et al.: CALM: Co-evolution of Algorithms and Language Model for Automatic Heuristic Design. ICLR 2026. arXiv:2505.12285.
Only the abstract and summaries of the method could be read: the requests, sizes and the size of a reward are ours.

    pool <- [start]
    for each step, `questions` times: an operator, and parents from the best `top` of the pool
        `group` children ~ pi(. | operator, parents)
        r <- child - best parent, all on the same rows; -1 for a text that the prompt cannot take
    update of pi by GRPO over the children of the step;  pool <- the best of pool and children
    no new best for `collapse` steps: the pool is its best text and the start
    in the end the best of the pool on validation examples

The requests are verbal guidance, the update is numerical guidance: what the writer learns in the search serves the rest of it.

Differences from the paper:
1. What evolves are prompts. The paper evolves the code of heuristics.
2. The children of a step are compared with each other (`compare=step`). Compared with those of the same parents
   (`compare=question`, as in GRPO), what the parents earned cancels, and `reward=absolute` is the same as `relative`.
3. A gain over bad parents is cheap, so parents are drawn from the best of the pool only. They are measured again, on the rows of
   their children.
4. Three operators: to combine two texts, to add to one, to rewrite one. The paper has more, and counts what was added before.
5. Low-rank adapters. `lr=0` is evolution with a frozen writer: the control.
6. Under a limit on calls, steps, examples and questions are reduced to fit.

Run it:  whet optimize TASK --method calm --lm openai/NAME --policy hf/PATH
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from whet._util.fields import NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl.policy_model import PolicyModel, Sample
from whet.rl.row_selection import refuse_selectors
from whet.rl.score_book import Leaders, plan_without_training, rewrite_of, score_rewrites, written_text
from whet.rl.training import Trainer, Training
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.minibatch import minibatch
from whet.search.plan import fit
from whet.types import Message

ENTRY = MethodEntry(
    "calm",
    "CALM: an evolution whose writer learns from the gain of its children",
    version=1,
    rank=206,
    when="a long evolution of prompts is paid for, and the model that writes the children may be trained",
    paper="Huang et al., ICLR 2026",
    arxiv="2505.12285",
    needs=("policy",),
    trains="a language model that writes children of prompts (LoRA)",
    extra="train",
)


@named_fields
@dataclass(frozen=True)
class Config(Training):
    """Settings of CALM; the others are those of every training."""

    steps: NonNegativeInt = 60
    """Updates of the writer, and generations of the pool."""
    questions: PositiveInt = 4
    """Requests of a step, each with an operator and parents of its own."""
    group: PositiveInt = 4
    """Children of a request."""
    max_tokens: PositiveInt = 128
    """Bound on a child."""
    examples: PositiveInt | None = 16
    """Training examples that the parents and children of a step are tried on."""
    reward: Literal["relative", "absolute"] = "relative"
    """The writer's reward: the gain of a child over the better of its parents, or the reward of the child."""
    compare: Literal["step", "question"] = "step"
    """The children that are compared with each other: all of a step, or those of the same question."""
    pool: PositiveInt = 12
    """Texts that survive a step."""
    top: PositiveInt = 4
    """The number of best texts from which parents are drawn."""
    collapse: NonNegativeInt = 15
    """Steps without a new best after which the pool is its best and the start; 0 for never."""
    finalists: PositiveInt = 4
    """Prompts measured on validation examples at the end."""


async def calm(run: Run, env: Environment, policy: PolicyModel, start: Prompt, config: Config) -> Candidate:
    """Evolution with a trained writer; see the module."""
    refuse_selectors(config.rows, ROWS, "a child is about all rows, not about one.")
    wanted = config.questions * (config.group + PARENTS)
    least = PARENTS + config.smallest_group
    plan = fit(
        run, env, config.steps, wanted, config.examples, finalists=config.finalists, asks=0, least=least
    )
    plan = plan if config.steps else plan_without_training(plan)
    group = max(config.smallest_group, min(config.group, plan.width - PARENTS))
    questions = max(1, min(config.questions, plan.width // (group + PARENTS)))
    archive, trainer, pool = Archive(), Trainer(policy, config), ParentPool(policy, start, config)
    await archive.validate(run, plan.env, [Candidate(start)])

    async def step(run: Run, number: int) -> None:
        requests = [pool.ask(run) for _ in range(questions)]
        groups = await trainer.draw_groups(run, [question(*one) for one in requests], n=group)
        children = [[rewrite_of(start, written_text(sample)) for sample in one] for one in groups]
        parents = {text: pool.prompt(text) for _, texts in requests for text in texts}
        tried = [*parents.values(), *(child for one in children for child in one)]
        rows = minibatch(run.rng, env.train, plan.examples)
        scores = await score_rewrites(run, env, tried, rows)
        earned = dict(zip(parents, scores, strict=False))
        rest = iter(scores[len(parents) :])
        rewards = [
            [reward_of(env, config, child, next(rest), [earned[text] for text in texts]) for child in one]
            for (_, texts), one in zip(requests, children, strict=True)
        ]
        best = pool.settle(tried, scores)
        figures = trainer.learn(*form_groups(groups, rewards, config))
        run.log("step", {"step": number, "pool": len(pool.texts), "best": best, **figures})

    await run.train(plan.rounds, step, policy)
    leaders = Leaders(policy, start, "child")
    finalists = [pool.prompt(text) for text in pool.texts[: plan.finalists] if text != start.region_text()]
    return await leaders.best_of(run, env, plan, archive, finalists)


def reward_of(
    env: Environment, config: Config, child: Prompt | None, score: float, parents: Sequence[float]
) -> float:
    """The reward of the writer for a child, as a share of the range of the task's reward."""
    span = (env.reward.high - env.reward.low) or 1.0
    if config.reward == "absolute":
        return (score - env.reward.low) / span
    return -1.0 if child is None else (score - max(parents)) / span


def form_groups(
    groups: Sequence[Sequence[Sample]], rewards: Sequence[Sequence[float]], config: Config
) -> tuple[list[list[Sample]], list[list[float]]]:
    """The samples and rewards in the groups in which they are compared."""
    if config.compare == "question":
        return [list(one) for one in groups], [list(one) for one in rewards]
    return [[sample for one in groups for sample in one]], [[reward for one in rewards for reward in one]]


class ParentPool:
    """Texts with the mean of what they earned and how often that was measured, the best first, in the notes of the writer."""

    def __init__(self, policy: PolicyModel, start: Prompt, config: Config) -> None:
        self.policy, self.start, self.config = policy, start, config
        policy.notes["pool"] = {start.region_text(): [0.0, 0]}
        policy.notes["stuck"] = 0

    @property
    def texts(self) -> list[str]:
        """The texts, the best first."""
        return list(self.policy.notes["pool"])

    def prompt(self, text: str) -> Prompt:
        """The start with a text of the pool."""
        return self.start if text == self.start.region_text() else self.start.edit(text)

    def ask(self, run: Run) -> tuple[str, list[str]]:
        """An operator, and the parents that it is applied to."""
        best = self.texts[: self.config.top]
        operator = run.rng.choice([COMBINE, ADD, REWRITE] if len(best) > 1 else [ADD, REWRITE])
        return operator, run.rng.sample(best, PARENTS if operator == COMBINE else 1)

    def settle(self, tried: Sequence[Prompt | None], scores: Sequence[float]) -> float:
        """Take in what was tried, and let the worst go; the mean of the best text."""
        notes: Any = self.policy.notes
        known, first = dict(notes["pool"]), self.texts[0]
        measured = {
            one.region_text(): score for one, score in zip(tried, scores, strict=True) if one is not None
        }
        for text, score in measured.items():
            mean, times = known.get(text, (0.0, 0))
            known[text] = [(mean * times + score) / (times + 1), times + 1]
        order = sorted(known, key=lambda text: (-known[text][0], len(text)))
        notes["stuck"] = 0 if order[0] != first else notes["stuck"] + 1
        kept = order[: self.config.pool]
        if self.config.collapse and notes["stuck"] >= self.config.collapse:
            notes["stuck"], kept = 0, list(dict.fromkeys([order[0], self.start.region_text()]))
        notes["pool"] = {text: known.get(text, [0.0, 0]) for text in kept}
        return float(known[order[0]][0])


def question(operator: str, parents: Sequence[str]) -> list[Message]:
    """The writer's input."""
    shown = "\n\n".join(f"Instruction: {text}" for text in parents)
    return [Message("user", f"{operator}\n\n{shown}\n\nRewritten:")]


PARENTS = 2
ROWS = ("dynamic", "mopps", "pcl", "erpo", "easy-first")
COMBINE = "Combine the following instructions into one that takes the best parts of each."
ADD = "Add one requirement to the following instruction that is not in it yet."
REWRITE = "Rewrite the following instruction: change the part of it that helps least."

"""ExIt: a model learns single improvements, from starting points that it has reached itself and whose next step is unsure.

Jiang, Lupu, Bachrach: Bootstrapping Task Spaces for Self-Improvement. 2025. arXiv:2509.04575.

    buffer <- empty
    for each of `steps` steps:
        x <- with probability `fresh` the start, else drawn from the buffer by the spread of the returns of its last group
        Y <- a group of improvements of x (with probability `diverge`: of quite different texts)
        policy gradient on the rewards of Y, compared within the group (GRPO)
        buffer <- buffer + x with its new spread, and + y with the spread of the group that it comes from, for y in Y
    in the end: improve `depth` times, one step after the other, which may be further than training went

Differences from the paper:
1. What is improved is a prompt: x is a text in the fence, the return of y is the mean reward of its prompt on a minibatch. The
   paper improves answers; its histories are the attempts so far, here the last one.
2. All texts of a group are tried on the same rows. What the prompt refuses has the lowest return and does not enter the buffer.
3. A group of equal returns has no spread, so that what it has written is drawn only where nothing else is left.
4. The bonus for variety in an embedding is left out. `draw: uniform` draws from the buffer without looking, and `reach: 1`
   trains from the start only: the controls.
5. The result is chosen on validation examples among the texts of the last improvements and the best that were tried.
6. Under a limit on calls, steps and examples are reduced to fit.

Run it:  whet optimize TASK --method exit --lm openai/NAME --policy hf/PATH
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import pstdev
from typing import Any, Literal

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt, Probability
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl.policy_model import PolicyModel
from whet.rl.row_selection import refuse_selectors
from whet.rl.score_book import Leaders, plan_without_training, rewrite_of, score_rewrites, written_text
from whet.rl.training import Trainer, Training
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.minibatch import minibatch
from whet.search.plan import fit
from whet.types import Message

ENTRY = MethodEntry(
    "exit",
    "ExIt: a model learns single improvements, from starting points that it reached itself",
    version=2,
    rank=205,
    when="a good prompt takes several improvements, and a model with trainable weights may learn to make them",
    paper="Jiang et al., 2025",
    arxiv="2509.04575",
    needs=("policy",),
    trains="a language model that improves prompts (LoRA)",
    extra="train",
)


@named_fields
@dataclass(frozen=True)
class Config(Training):
    """Settings of ExIt; the others are those of every training."""

    steps: NonNegativeInt = 60
    """Updates of the model."""
    group: PositiveInt = 8
    """Improvements of a starting point."""
    kl: NonNegativeFloat = 0.01
    """Weight of the divergence from the frozen model."""
    max_tokens: PositiveInt = 128
    """Bound on an improved text."""
    examples: PositiveInt | None = 16
    """Training examples that a group is tried on."""
    fresh: Probability = 0.3
    """Probability of the start as the starting point."""
    diverge: Probability = 0.1
    """Probability of asking for quite different texts."""
    draw: Literal["spread", "uniform"] = "spread"
    """The draw of starting points from the buffer: by the spread of their last group, or uniform."""
    buffer: PositiveInt = 100
    """Starting points that are kept, the newest."""
    reach: NonNegativeInt = 0
    """Improvements in a row that training makes at most; 0: no bound."""
    depth: PositiveInt = 8
    """The number of improvements at the end, one after the other."""
    finalists: PositiveInt = 4
    """Prompts measured on validation examples at the end."""


async def exit(run: Run, env: Environment, policy: PolicyModel, start: Prompt, config: Config) -> Candidate:
    """Policy gradient on single improvements of a growing space of texts; see the module."""
    refuse_selectors(
        config.rows,
        ("dynamic", "mopps", "pcl", "erpo", "easy-first"),
        "an improvement is about all rows, not about one.",
    )
    plan = fit(
        run,
        env,
        config.steps + 1,
        config.group,
        config.examples,
        finalists=config.finalists,
        asks=0,
        least=config.smallest_group,
    )
    plan = plan if config.steps else plan_without_training(plan)
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    trainer, steps = Trainer(policy, config), max(0, plan.rounds - 1)
    leaders = Leaders(policy, start, "improvement")
    first = start.region_text()
    policy.notes["buffer"] = {}

    async def step(run: Run, number: int) -> None:
        space: dict[str, list[float]] = policy.notes["buffer"]
        text = choose(run, space, first, config)
        ask = DIVERGE if run.rng.random() < config.diverge else IMPROVE
        (group,) = await trainer.draw_groups(run, [question(ask, text)], n=plan.width)
        rewrites = [rewrite_of(start, written_text(sample)) for sample in group]
        rewards = await score_rewrites(run, env, rewrites, minibatch(run.rng, env.train, plan.examples))
        figures = trainer.learn([group], [rewards])
        depth, spread = space.get(text, [0.0])[0], pstdev(rewards)
        if text != first:
            space[text] = [depth, spread, space[text][2]]
        for prompt, reward in zip(rewrites, rewards, strict=True):
            if prompt is not None and prompt != start and (not config.reach or depth + 1 < config.reach):
                space.setdefault(prompt.region_text(), [depth + 1, spread, reward])
        for old in list(space)[: max(0, len(space) - config.buffer)]:
            del space[old]
        run.log("step", {"step": number, "depth": depth, "spread": spread, "best": max(rewards), **figures})

    if config.steps:
        await run.train(steps, step, policy)
    leaders.recall(archive)
    texts = [first]
    for _ in range(config.depth):
        ((sample,),) = await trainer.sample(run, [question(IMPROVE, texts[-1])], n=1, greedy=True)
        prompt = rewrite_of(start, written_text(sample))
        if prompt is None or prompt.region_text() in texts:
            break
        texts.append(prompt.region_text())
    tried: Mapping[str, Any] = policy.notes["buffer"]
    best = sorted(tried, key=lambda text: (-tried[text][2], len(text)))[: config.finalists]
    last, *others = [rewrite_of(start, text) for text in dict.fromkeys([*texts[:0:-1], *best])] or [None]
    return await leaders.best_of(run, env, plan, archive, others, last)


def choose(run: Run, space: Mapping[str, list[float]], first: str, config: Config) -> str:
    """The next starting point: the start, or a text of the buffer by the spread of the group that it had or comes from."""
    if not space or run.rng.random() < config.fresh:
        return first
    spreads = [1.0 if config.draw == "uniform" else facts[1] for facts in space.values()]
    return run.rng.choices(list(space), spreads if any(spreads) else None)[0]


def question(ask: str, text: str) -> list[Message]:
    """The model's input: the text that it is to improve."""
    return [Message("user", f"{ask}\n\nInstruction: {text}\n\nRewritten:")]


IMPROVE = "Improve the following instruction in one respect."
DIVERGE = (
    "Write an instruction for the same purpose that is quite different from the following one, and better."
)

"""IPO: a model reads earlier prompts with two figures each, the score and a finer one beside it, and captions of what is seen.

Du, Sun, Snoek: IPO: Interpretable Prompt Optimization for Vision-Language Models. NeurIPS 2024. arXiv:2410.15397. There the
prompt is the text around a class name in CLIP, the score its accuracy and the finer figure its cross-entropy.

    H <- {(start, accuracy, loss)}
    c <- captions of one training image of each class, by a multimodal model
    for step in 1..steps:
        show c, and the best `memory` of H in ascending order of accuracy, those from `threshold` on, with their losses
        sample 8 short texts at temperature 1 that should have a higher accuracy and a lower loss
        measure the new ones on the training subset; add them to H
    return the text with the highest accuracy; of equals the one with the lowest loss

Accuracy is coarse where few rows are right, or where rows are right as a whole only; the loss tells texts of one accuracy apart.

Differences from the paper:
1. The finer figure is `signal`: a part of the reward's score, more of which is better (`met` of `svg_scene`, `likelihood` where a
   model scores labels: minus the paper's loss). `none` shows the score alone.
2. Captions come from the task model itself, and only of rows that hold an image; other rows are shown as they are.
3. The result is chosen on validation examples among the leaders of the steps and the best few at the end.
4. Texts are bounded by `longest` characters instead of 40 tokens, but never below twice the start or the best of H.
5. Where no text reaches the threshold, the best of all are shown.
6. Under a limit on calls, steps, samples and examples are reduced to fit.

Run it:  whet optimize TASK --method ipo --set signal=met --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import UsageError, named_fields
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rewards.cases import place_in_range
from whet.rl import LanguagePolicy, setting
from whet.rl.language import TAG
from whet.run import Run
from whet.search.archive import Archive, Candidate, preference
from whet.search.edits import text_in
from whet.search.minibatch import head_examples, minibatch, show_example
from whet.search.plan import fit, validate_finalists, validate_leader
from whet.types import Example, Message, Request
from whet_client.media import count_marks

ENTRY = MethodEntry(
    "ipo",
    "IPO: a model reads scores with a finer figure beside them",
    version=1,
    rank=42,
    when="the reward is coarse, and one of its parts tells more; rows may hold images",
    paper="Du et al., NeurIPS 2024",
    arxiv="2410.15397",
    needs=("optimizer",),
)

AUTO, NONE, LIKELIHOOD = "auto", "none", "likelihood"


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of IPO."""

    steps: NonNegativeInt = 100
    """Rounds of writing and measuring."""
    samples: PositiveInt = 8
    """Texts written in a step."""
    memory: PositiveInt = 30
    """Texts shown to the optimizer, the best ones, in ascending order."""
    threshold: NonNegativeFloat = 20.0
    """Texts are shown from this score on, of 100."""
    signal: str = AUTO
    """The part of the reward that is shown beside the score; auto: the likelihood if a model scores labels, else none."""
    exemplars: NonNegativeInt | None = None
    """Training rows shown to the optimizer, with captions of their images; none: one for each label, or 3."""
    examples: PositiveInt = 50
    """Training examples that each text is measured on."""
    longest: PositiveInt = 200
    """Longer texts, in characters, are dropped unless the start is more than half as long."""
    finalists: PositiveInt = 3
    """Texts measured on validation examples at the end."""


async def ipo(run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config) -> Candidate:
    """Optimisation by a history with two figures; see the module."""
    plan = fit(run, env, config.steps, config.samples, config.examples, finalists=config.finalists)
    history, signal = Archive(), signal_of(env, config)
    await history.validate(run, plan.env, [Candidate(start)])
    train = minibatch(run.rng, env.train, plan.examples, balanced=True)
    history.add(run, Candidate(start, score=(await env.score(run, [start], train))[0]))
    check_signal(history.top(1)[0], signal)
    count = max(3, len(env.labels)) if config.exemplars is None else config.exemplars
    exemplars = minibatch(run.rng, train, count, balanced=True)
    captions = await caption(run, exemplars)
    plan = plan.without(sum(map(bool, captions)))
    for step in range(plan.rounds):
        policy, shown = policy.adapt(), history_view(env, history, signal, config)
        question = meta_prompt(env, start, shown, list(zip(exemplars, captions, strict=True)), signal)
        text = text_in(start, shown[-1].prompt)
        written = await policy.rewrite(run, start, question, plan.width, sample=step * plan.width, text=text)
        most = max(config.longest, 2 * len(start.region_text()), len(text))
        new = {p.id: p for p in written if p not in history and len(text_in(start, p)) <= most}
        scores = await env.score(run, list(new.values()), train)
        for prompt, score in zip(new.values(), scores, strict=True):
            history.add(run, Candidate(prompt, (shown[-1].prompt.id,), f"step {step + 1}", score))
        await validate_leader(run, plan, history, ascending(history, signal)[-1])
    return await validate_finalists(
        run, plan, history, ascending(history, signal)[: -config.finalists - 1 : -1]
    )


def signal_of(env: Environment, config: Config) -> str:
    """The name of the finer figure; empty for none."""
    if config.signal == AUTO:
        return LIKELIHOOD if env.scores else ""
    return "" if config.signal == NONE else config.signal


def check(env: Environment, config: Config) -> None:
    """Raises UsageError for a signal that the reward lacks, where its parts are known before any grade."""
    if (known := env.part_names) is not None:
        refuse_unknown(signal_of(env, config), known)


def check_signal(measured: Candidate, signal: str) -> None:
    """Raises UsageError where the start's score has no part of that name."""
    refuse_unknown(signal, {} if measured.score is None else measured.score.parts)


def refuse_unknown(signal: str, parts: Collection[str]) -> None:
    """Raises UsageError where the signal is none of these parts."""
    if signal and signal not in parts:
        raise UsageError(
            f"signal={signal}: the reward has no such part. It has: {', '.join(sorted(parts)) or 'none'}. Name one of these, or "
            "signal=none."
        )


def finer(candidate: Candidate, signal: str) -> float:
    """The finer figure of a text, more of which is better; 0 without one."""
    return candidate.score.parts.get(signal, 0.0) if candidate.score is not None and signal else 0.0


def ascending(history: Archive, signal: str) -> list[Candidate]:
    """All texts by score, of equal ones by the finer figure, then the shorter one last."""
    key = lambda c: (c.mean, finer(c, signal), preference(0.0, c.prompt.source))  # noqa: E731
    return sorted(history.members.values(), key=key)


def percent(env: Environment, value: float) -> float:
    """A reward as a number from 0 (worst possible) to 100."""
    return 100.0 * place_in_range(value, env.reward)


def history_view(env: Environment, history: Archive, signal: str, config: Config) -> list[Candidate]:
    """The texts that the optimizer is shown, in ascending order; one at least."""
    order = ascending(history, signal)
    good = [one for one in order if percent(env, one.mean) >= config.threshold]
    return (good or order)[-config.memory :]


async def caption(run: Run, examples: Sequence[Example]) -> list[str]:
    """The captions of the images of each row, by the task model; empty for a row without an image."""

    async def describe(branch: Run, example: Example) -> str:
        message = Message("user", f"{CAPTION}\n\n{example.user_text}")
        (answer, *_) = await branch.generate("task", Request((message,), max_tokens=100))
        return " ".join(answer.text.split())

    held = [example for example in examples if count_marks(example.user_text)]
    texts = dict(zip([e.id for e in held], await run.map(describe, held), strict=True))
    return [texts.get(example.id, "") for example in examples]


def meta_prompt(
    env: Environment,
    start: Prompt,
    shown: Sequence[Candidate],
    exemplars: Sequence[tuple[Example, str]],
    signal: str,
) -> str:
    """The question to the optimizer: purpose, surroundings, rows with captions, texts with their figures, request."""
    parts = [f"{PURPOSE}\n\n{setting(env.description, start)}{HISTORY}"]
    for one in shown:
        finer_line = f"\n{signal}: {finer(one, signal):.3f}" if signal else ""
        parts.append(
            f"<{TAG}>\n{text_in(start, one.prompt)}\n</{TAG}>\nScore: {percent(env, one.mean):.1f}{finer_line}"
        )
    if exemplars:
        parts.append(head_examples([example for example, _ in exemplars]))
        parts += [show_example(e) + (f"\n{SEEN}: {text}" if text else "") for e, text in exemplars]
    return "\n\n".join([*parts, REQUEST_FINER.replace("[SIGNAL]", signal) if signal else REQUEST])


PURPOSE = "You improve short instructions for a model that reads images and texts."
HISTORY = "Instructions tried so far, from lower to higher. The score goes from 0 to 100."
SEEN = "What the image shows"
CAPTION = "Describe in one sentence what this image shows."
REQUEST = "Write one new short instruction that should have a higher score than all of these."
REQUEST_FINER = (
    "Write one new short instruction that should have a higher score than all of these and a higher [SIGNAL]. Where scores are "
    "equal, [SIGNAL] tells which instruction is better."
)

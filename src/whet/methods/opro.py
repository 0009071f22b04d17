"""OPRO: a language model reads the scores of earlier prompts and writes better ones.

Yang, Wang, Lu, Liu, Le, Zhou, Chen: Large Language Models as Optimizers. ICLR 2024. arXiv:2309.03409.

    H <- {(start, score of start)}
    for step in 1..steps:
        show the best `memory` of H in ascending order of score, with 3 training exemplars
        sample 8 texts at temperature 1; score the new ones on the training subset; add them to H
    return the best of H

Differences from the paper:
1. The result is chosen on validation examples: the leader of each step and the best few at the end are
   measured there. The paper returns the maximum of H, which is the luckiest of up to 1600 noisy means.
2. The training subset is drawn once, balanced over targets, and has `examples` rows for every task. Exemplars are balanced too.
3. A text equal to one already in H is dropped, as in the paper; one longer than `longest` characters too,
   but never when it is shorter than twice the start or than the best of H. There is no ban on digits.
4. All texts are shown, bad ones too while the memory has room; the thresholds of the paper's code (0.3, 0.0)
   belong to its models.
5. A prompt has one place for the text, its fence. What surrounds it is shown to the optimizer.
6. The optimizer is asked for each text in a call of its own.
7. While the best of H has the lowest score possible, its scores teach nothing: the request says so, and asks for the
   question that the exemplars answer instead of a comparison, or, where none has a target, for what an answer must hold.
8. If the start prompt has a reward of zero, two prompts more join H (`whet.search.from_zero`).
9. `history` shows the scores with intervals and numbers of rows (`summary`), or no earlier text and no score but the best text
   alone (`none`).
10. Under a limit on calls, steps, samples and examples are reduced to fit (`whet.search.plan`).

Run it:  whet optimize TASK --method opro --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whet._util.fields import NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl import LanguagePolicy, setting
from whet.rl.language import TAG
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.edits import text_in
from whet.search.from_zero import leave_zero
from whet.search.history import History, show_score
from whet.search.minibatch import head_examples, minibatch, show_example, wanted_answers_known
from whet.search.plan import fit, rounds_of, validate_finalists, validate_leader
from whet.types import Example, Score

ENTRY = MethodEntry(
    "opro",
    "OPRO: a model reads the score history",
    version=5,
    rank=40,
    when="the reward is only a number, and a strong model may write",
    paper="Yang et al., ICLR 2024",
    arxiv="2309.03409",
    needs=("optimizer",),
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of OPRO."""

    steps: NonNegativeInt = 200
    """Rounds of writing and scoring."""
    samples: PositiveInt = 8
    """Texts written in a step."""
    memory: PositiveInt = 20
    """Scored texts shown to the optimizer, the best ones, in ascending order."""
    exemplars: NonNegativeInt = 3
    """Training examples shown to the optimizer, drawn again in each step."""
    examples: PositiveInt = 50
    """Training examples that each text is scored on (about the paper's fifth of a BBH task)."""
    buckets: PositiveInt = 100
    """Scores are shown as whole numbers from 0 to this."""
    longest: PositiveInt = 500
    """Longer texts, in characters, are dropped unless the start is more than half as long."""
    finalists: PositiveInt = 3
    """Texts measured on validation examples at the end."""
    history: History = "raw"
    """The history that the optimizer sees: earlier texts with their scores (raw); also with intervals and numbers of rows
    (summary); or only the best text, without a score (none)."""


async def opro(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Optimisation by score history; see the module."""
    plan = fit(run, env, config.steps, config.samples, config.examples, finalists=config.finalists)
    history = Archive()
    await history.validate(run, plan.env, [Candidate(start)])
    train = minibatch(run.rng, env.train, plan.examples, balanced=True)
    history.add(run, Candidate(start, score=(await env.score(run, [start], train))[0]))
    plan, _ = await leave_zero(run, plan, history, start, secrets, train)
    async for step, width in rounds_of(run, plan, history):
        policy, shown = policy.adapt(), history.top(config.memory)[::-1]
        exemplars = minibatch(run.rng, train, config.exemplars, balanced=True)
        question = meta_prompt(env, start, shown, exemplars, config)
        text = text_in(start, shown[-1].prompt)
        written = await policy.rewrite(run, start, question, width, sample=step * plan.width, text=text)
        new = polish(written, start, history, max(config.longest, len(text)))
        scores = await env.score(run, new, train)
        for prompt, score in zip(new, scores, strict=True):
            history.add(run, Candidate(prompt, (shown[-1].prompt.id,), f"step {step + 1}", score))
        await validate_leader(run, plan, history, history.top(1)[0])
    return await validate_finalists(run, plan, history, history.top(config.finalists))


def polish(written: Sequence[Prompt], start: Prompt, history: Archive, longest: int) -> list[Prompt]:
    """Different new prompts whose text is not too long, in the order in which they were written."""
    most = max(longest, 2 * len(start.region_text()))
    new = {p.id: p for p in written if p not in history and len(text_in(start, p)) <= most}
    return list(new.values())


def bucket(value: float, low: float, high: float, buckets: int) -> int:
    """A score as a whole number from 0 (worst possible) to `buckets` (best possible)."""
    return round(buckets * (value - low) / ((high - low) or 1.0))


def meta_prompt(
    env: Environment, start: Prompt, shown: Sequence[Candidate], exemplars: Sequence[Example], config: Config
) -> str:
    """The question to the optimizer: purpose, surroundings, scored texts, exemplars, request."""
    low, high, buckets = env.reward.low, env.reward.high, config.buckets

    def in_buckets(value: float) -> int:
        return bucket(value, low, high, buckets)

    head = f"{PURPOSE}\n\n{setting(env.description, start)}"
    earning = max(in_buckets(c.mean) for c in shown) > 0
    if config.history == "none":
        parts = [f"{head}{CURRENT}", f"<{TAG}>\n{text_in(start, shown[-1].prompt)}\n</{TAG}>"]
    else:
        parts = [f"{head}{HISTORY} (0 is worst, {buckets} is best)"]
        for one in shown:
            score = Score(one.mean, 0) if one.score is None else one.score
            line = show_score(config.history, score, low, high, in_buckets)
            parts.append(f"<{TAG}>\n{text_in(start, one.prompt)}\n</{TAG}>\nScore: {line}")
    if exemplars:
        parts += [head_examples(exemplars), *map(show_example, exemplars)]
    request = REQUEST_ALONE if config.history == "none" else REQUEST
    at_zero = REQUEST_AT_ZERO if wanted_answers_known(exemplars) else REQUEST_AT_ZERO_UNANSWERED
    return "\n\n".join([*parts, request if earning else at_zero])


PURPOSE = (
    "You improve instructions for a language model. Your goal is an instruction with which it scores higher."
)
HISTORY = "Instructions tried so far with the scores they reached, from lower to higher"
CURRENT = "The instruction in use:"
REQUEST = (
    "Write one new instruction that should score higher than all of these. Build on what the higher-scoring ones say and the "
    "lower-scoring ones do not. It must work for any input of this kind, not only for those above."
)
REQUEST_ALONE = (
    "Write one new instruction that should score higher than this one. It must work for any input of this kind, not only for "
    "those above."
)
REQUEST_AT_ZERO = (
    "These instructions earn nothing: with them the model gives none of the wanted answers. Write one new instruction that asks "
    "the model the question to which the answers above are right, and tells it to answer with nothing else. Where the same few "
    "answers are wanted again and again, name each of them exactly as it is spelt above, with or without capital letters. It "
    "must serve any input of this kind, not only the ones above."
)
REQUEST_AT_ZERO_UNANSWERED = (
    "These instructions earn nothing: no answer that the model gave under them was of any worth. Write one new instruction that "
    "says in full what the model has to do with an input and in which form it has to answer. It must serve any input of this "
    "kind."
)

"""AutoPrompt: a frozen model's own gradients say which word to put where.

Shin, Razeghi, Logan IV, Wallace, Singh: AutoPrompt: Eliciting Knowledge from Language Models with Automatically
Generated Prompts. EMNLP 2020. arXiv:2010.15980. Sections 2.2 and 2.3.

    with label_words = m: a logistic classifier learns the labels from the states at the mask
        V_y <- the m words whose output embeddings it is surest to be of label y;  p(y) = sum of p(v) over V_y
    words <- T words
    for it in 1..iterations:
        g <- mean over a batch of d loss / d embedding of each word;  loss = -log p(wanted answer)
        j <- one of the T places;  C <- the k words v with the largest -E_v . g_j
        on the next batch: score the present words, and each of these with c in place of word j
        if the best of them scores higher than the present words: take it
    validation examples -> the best

Differences from the paper:
1. Words are whole words of small letters, so that the result is a text like any other and can be compared as such. As
   in the paper, special tokens, the labels' words and capitalised pieces are left out: they would give the answer away.
2. The search begins at random words instead of mask tokens, which no text can name.
3. The score on a batch is accuracy + mean log-probability of the right label where labels are scored; the paper takes
   accuracy. Else it is the log-probability of the target, as in the paper; the task's reward then only validates.
4. Words for the labels are searched for with `label_words` alone; else a label has that of the task's verbalizer. The states
   are those under the prompt as written instead of under mask tokens, the classifier is fitted to the end with a penalty
   (C = 1) instead of by some steps of Adam, and the words are whole words as in 1.
5. The result is the best on validation examples among the start, some leaders on the way and the last ones.
6. A row that a gradient is taken of is charged as one task call, although the way back costs about two more.
7. Under a limit on calls, iterations, candidates and batches are reduced to fit.

Run it:  whet optimize TASK --method autoprompt --lm embedded/mlm
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from whet._util.fields import NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import UsageError, named_fields
from whet.methods.method import MethodEntry
from whet.models.gradients import MARK, MarkedPrompt, MaskStates, Wanted, WordGradients, word_gradients
from whet.prompt import Prompt
from whet.rewards import isinstance_label_reward
from whet.rewards.text import targets_of
from whet.run import Run, convert_record
from whet.search.archive import Archive, Candidate
from whet.search.edits import with_words
from whet.search.minibatch import minibatch
from whet.search.plan import share_out, validate_finalists, validate_leader
from whet.types import JSON, Example, Score, content_hash

if TYPE_CHECKING:
    from whet.rl.label_words import LabelWords, LabelWordsEnvironment

ENTRY = MethodEntry(
    "autoprompt",
    "AutoPrompt: gradients choose the words of the prompt",
    version=1,
    rank=260,
    when="you want to know how well words chosen by gradients can do on one model",
    paper="Shin et al., EMNLP 2020",
    arxiv="2010.15980",
    needs=("local",),
)

LEAST, FEWEST = 16, 8  # examples of a batch and candidates, as far as a limit on calls allows


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of AutoPrompt."""

    iterations: NonNegativeInt = 60
    """Rounds (the paper: 180 for sentiment, 1,000 for facts)."""
    length: PositiveInt = 5
    """Words of a prompt (T; the paper: 3 to 7)."""
    k: PositiveInt = 20
    """Words tried in a round: those that the gradient ranks first (the paper: 10 to 100)."""
    batch: PositiveInt = 128
    """Examples of a gradient, and of the scores that follow."""
    finalists: PositiveInt = 8
    """Prompts validated at the end."""
    label_words: NonNegativeInt = 0
    """Words searched for each label (the paper: 3 for sentiment); 0 keeps those of the task."""

    @property
    def deploys(self) -> bool:
        """Whether the result is more than a text."""
        return self.label_words > 0


async def autoprompt(run: Run, env: Environment, policy: object, start: Prompt, config: Config) -> Candidate:
    """HotFlip on the words of the editable text; see the module. `policy` is not used."""
    model = word_gradients(env.model)
    allowed = _allowed_positions(model, env)
    if not 1 <= config.length <= len(allowed) or config.k < 1:
        raise UsageError(f"length must be 1 to {len(allowed)} and k 1 or more: {config.length}, {config.k}.")
    share = share_out(run, env, config.iterations, config.finalists, writes=False)
    archive = Archive()
    await archive.validate(run, share.env, [Candidate(start)])
    system, payable = None, share.rollouts
    if config.label_words:
        chosen = await _label_words(run, env, model, start, config.label_words)
        system, env = await run.keep(chosen), _with_label_words(env, chosen)
        share = replace(share, env=_with_label_words(share.env, chosen))
        payable = None if payable is None else max(0, payable - len(env.train))
        allowed = _allowed_positions(model, env)
        await validate_leader(run, share, archive, Candidate(start, (), "label words", system=system))
    iterations, k, size = sizes(config, len(env.train), payable)
    words = [model.words[w] for w in run.rng.sample(list(allowed), config.length)]
    leaders: list[Candidate] = []
    for it in range(iterations):
        place = run.rng.randrange(config.length)
        batch = minibatch(run.rng, env.train, size, balanced=bool(env.labels))
        flips = await _flips(run, env, model, allowed, _Query(start, words, place, k, batch))
        batch = minibatch(run.rng, env.train, size, balanced=bool(env.labels))
        tried = [words, *([*words[:place], flip, *words[place + 1 :]] for flip in flips)]
        prompts = [_prompt(start, one) for one in tried]
        worths, scores = await _worths(run, env, prompts, batch)
        best = max(range(len(tried)), key=lambda i: (worths[i], -i))
        run.log("step", {"step": it, "reward": worths[best], "place": place})
        if best > 0 or not leaders:
            present = Candidate(prompts[best], (start.id,), "flip", scores[best], system)
            words, leaders = tried[best], [present, *leaders]
            archive.add(run, present)
            await validate_leader(run, share, archive, present)
    return await validate_finalists(run, share, archive, leaders[: config.finalists])


def check(env: Environment, config: Config) -> None:
    """Raise UsageError where words for labels are asked for and there are no labels that are scored at a mask."""
    if config.label_words and not (env.labels and env.scores):
        raise UsageError(
            f"label_words={config.label_words} needs a task with labels that the model scores. Leave it at 0 here."
        )


def deploy(env: Environment, policy: object, blob: bytes, config: Config) -> LabelWordsEnvironment:
    """The environment in which the words that were found stand for the labels."""
    from whet.rl.label_words import LabelWords

    return _with_label_words(env, LabelWords.restore(blob))


def _with_label_words(env: Environment, label_words: LabelWords) -> LabelWordsEnvironment:
    from whet.rl.label_words import with_label_words

    return with_label_words(env, label_words)


async def _label_words(run: Run, env: Environment, model: WordGradients, start: Prompt, k: int) -> LabelWords:
    """The `k` words of each label that a classifier of the states at the mask finds; a call for each training row."""
    if not isinstance(model, MaskStates):
        raise UsageError(
            f"label_words={k} needs a masked model, and {env.model.address} is none. Use embedded/mlm, hf/PATH of a masked "
            "model, or label_words=0."
        )
    from whet.rl.label_words import LabelWords, fit_logistic, surest_words

    labels = list(env.labels)

    async def compute() -> JSON:
        states = model.mask_states(start, [row.values for row in env.train])
        right = [labels.index(str(row.target)) for row in env.train]
        surest = surest_words(fit_logistic(states, right, len(labels)), model.outputs, model.words, k)
        return [list[JSON](words) for words in surest]

    args = content_hash([start.id, k])
    record = await run.effect("label_words", compute, args, role="task", calls=len(env.train))
    by_label = convert_record(record, list[list[str]])
    run.log("label_words", {label: list[JSON](words) for label, words in zip(labels, by_label, strict=True)})
    return LabelWords(dict(zip(labels, by_label, strict=True)))


def sizes(config: Config, train: int, rollouts: int | None) -> tuple[int, int, int]:
    """Iterations, candidates and examples of a batch that `rollouts` pay: first batches shrink, to LEAST examples, then
    candidates, to FEWEST, then iterations, and last of all the candidates again."""
    iterations, k, size = config.iterations, config.k, min(config.batch, train)
    if rollouts is None:
        return iterations, k, size
    size = min(size, max(LEAST, rollouts // (iterations * (k + 2))))
    k = min(k, max(FEWEST, rollouts // (iterations * size) - 2))
    k = min(k, max(1, rollouts // size - 2))
    return min(iterations, rollouts // ((k + 2) * size)), k, size


async def _worths(
    run: Run, env: Environment, prompts: Sequence[Prompt], batch: Sequence[Example]
) -> tuple[list[float], Sequence[Score | None]]:
    """The score of each prompt on a batch: accuracy + log-probability of the right label, or that of the target."""
    if env.scores and isinstance_label_reward(env.reward):
        scores = await env.score(run, prompts, batch)
        return [s.parts["accuracy"] + s.parts["likelihood"] for s in scores], scores

    async def compute() -> JSON:
        rows = [competing_answers(env, example) for example in batch]
        answers = [[row.choices[row.right]] for row in rows]
        table = await env.model.score(prompts, [row.values for row in rows], answers)
        means: JSON = table.logprobs[:, :, 0].mean(axis=1).tolist()
        return means

    args = content_hash([[p.id for p in prompts], [e.id for e in batch]])
    means = await run.effect("likelihood", compute, args, role="task", calls=len(prompts) * len(batch))
    return convert_record(means, list[float]), [None] * len(prompts)


def competing_answers(env: Environment, example: Example) -> Wanted:
    """An example with the answers that compete: the labels' words, or its target alone."""
    if example.target is None:
        raise UsageError(f"{example.place} has no target, and a gradient needs one.")
    if not env.labels:
        return Wanted(example.values, targets_of(example)[:1], 0)
    words, label = _searched_words(env), str(example.target)
    first = {**env.labels, **{name: own[0] for name, own in words.items()}}
    return Wanted(example.values, list(first.values()), list(first).index(label), words.get(label, ())[1:])


def _searched_words(env: Environment) -> Mapping[str, Sequence[str]]:
    """The words that were found for the labels; none where they have those of the task."""
    words: Mapping[str, Sequence[str]] = getattr(env, "words", {})
    return words


def _allowed_positions(model: WordGradients, env: Environment) -> Any:
    """Positions of the words that may stand in a prompt."""
    answers = _answers(env)
    return np.array([w for w, word in enumerate(model.words) if word not in answers])


@dataclass(frozen=True)
class _Query:
    """The question which `k` words should stand at a `place` of `words`, by the gradient on a batch."""

    start: Prompt
    words: Sequence[str]
    place: int
    k: int
    batch: Sequence[Example]


async def _flips(run: Run, env: Environment, model: WordGradients, allowed: Any, query: _Query) -> list[str]:
    async def compute() -> JSON:
        placed = MarkedPrompt(_prompt(query.start, query.words), _prompt(query.start, [MARK]), query.words)
        slope = model.gradient(placed, [competing_answers(env, example) for example in query.batch]).words[
            query.place
        ]
        gains = -(model.embeddings[allowed] @ slope)
        order = allowed[np.argsort(-gains, kind="stable")[: query.k + 1]]
        return [model.words[w] for w in order if model.words[w] != query.words[query.place]][: query.k]

    args = content_hash([list(query.words), query.place, [e.id for e in query.batch]])
    words = await run.effect("gradient", compute, args, role="task", calls=len(query.batch))
    return convert_record(words, list[str])


def _prompt(start: Prompt, words: Sequence[str]) -> Prompt:
    prompt = with_words(start, words)
    if prompt is None:
        raise UsageError(f"the prompt refuses the words {' '.join(words)!r} in its editable text.")
    return prompt


def _answers(env: Environment) -> set[str]:
    """Words that would give the answer away: those of the labels' names and of what stands for them."""
    texts = [
        *env.labels,
        *env.labels.values(),
        *(word for words in _searched_words(env).values() for word in words),
    ]
    return {word for text in texts for word in text.casefold().split()}

"""Random search: the control that every other method is compared with.

No publication. It draws prompts from the same space as the method it is compared with, without learning
from the scores, and keeps the best:

    repeat n times: draw a prompt, score it on the training examples
    validate the best few, return the best of these

Three spaces. *tokens*: `length` words drawn independently and uniformly from a vocabulary replace the editable
text (the space of RLPrompt). *phrases*: one to `edits` random phrase edits of the start (delete, swap,
duplicate, or insert a stock phrase), the space of phrase-edit methods and, coarsely, of rewriters. *definitions*:
`length` words for each label, drawn uniformly from the words that may define it (the space of BDPL).

Differences from plain random search:
1. Prompts are drawn without replacement, as far as the space allows.
2. The result is chosen on validation examples among the best on training examples and the start, so
   that the luckiest of n noisy scores does not win by its luck.
3. Where phrases are drawn and the start earns nothing, two prompts are scored first that take no model to write
   (`whet.search.from_zero`), as in other methods: who does not beat them has learned nothing.
4. Under a limit on calls, n and the number of examples are reduced to fit (`whet.search.plan`).

Run it:  whet optimize TASK --method random_search --set n=400
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from whet._util.fields import PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.definitions import Definitions, defining_words
from whet.search.edits import PHRASES, Kind, random_edit, replace_region, with_words
from whet.search.from_zero import leave_zero
from whet.search.minibatch import minibatch
from whet.search.plan import fit, rounds_of, validate_finalists, validate_leader
from whet.search.vocabulary import vocabulary

ENTRY = MethodEntry(
    "random_search",
    "Random search: the control",
    version=3,
    rank=140,
    when="you want a control: a method that does not beat it has learned nothing",
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of random search."""

    n: PositiveInt = 400
    """Prompts to score."""
    space: Literal["auto", "tokens", "phrases", "definitions"] = "auto"
    """The space of prompts; auto means tokens if the task model scores labels, and phrases otherwise."""
    length: PositiveInt = 5
    """Words of a token prompt, or of a definition."""
    vocabulary: PositiveInt = 1000
    """Words to draw tokens, or each definition, from."""
    edits: PositiveInt = 4
    """The largest number of phrase edits in one prompt."""
    examples: PositiveInt | None = None
    """Training examples that each prompt is scored on; none means all of them."""
    batch: PositiveInt = 64
    """Prompts scored at once."""
    finalists: PositiveInt = 5
    """Prompts validated at the end."""

    @property
    def edits_all(self) -> bool:
        """Definitions stand in one region, whatever other regions there are: they are drawn once."""
        return self.space == "definitions"


async def random_search(
    run: Run, env: Environment, policy: LanguagePolicy | None, start: Prompt, config: Config
) -> Candidate:
    """The best of many random prompts; see the module."""
    width = min(config.batch, config.n)
    plan = fit(run, env, -(-config.n // width), width, config.examples, finalists=config.finalists, asks=0)
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    examples = minibatch(run.rng, env.train, plan.examples, balanced=bool(env.labels))
    archive.add(run, Candidate(start, score=(await env.score(run, [start], examples))[0]))
    space = ("tokens" if env.scores else "phrases") if config.space == "auto" else config.space
    draw = {"tokens": _tokens, "phrases": _phrases, "definitions": _definitions}[space](
        run, env, start, config
    )
    if space == "phrases":
        plan, _ = await leave_zero(run, plan, archive, start, secrets, examples)
    plan, left = replace(plan, wanted_rounds=-(-config.n // max(1, plan.width))), config.n
    async for _, width in rounds_of(run, plan, archive):
        if not (prompts := _distinct(draw, archive, min(left, width))):
            break
        left -= len(prompts)
        scores = await env.score(run, prompts, examples)
        for prompt, score in zip(prompts, scores, strict=True):
            archive.add(run, Candidate(prompt, (start.id,), "random", score))
        await validate_leader(run, plan, archive, archive.top(1)[0])
    return await validate_finalists(run, plan, archive, archive.top(config.finalists))


BuildPrompt = Callable[[], Prompt | None]
"""Builds the prompt of a draw. A draw takes random numbers; building its prompt takes none, and most of the time."""


def _tokens(run: Run, env: Environment, start: Prompt, config: Config) -> Callable[[], BuildPrompt]:
    words = vocabulary(env, config.vocabulary)
    if not words:
        return lambda: lambda: None
    return lambda: partial(with_words, start, run.rng.choices(words, k=config.length))


def _definitions(run: Run, env: Environment, start: Prompt, config: Config) -> Callable[[], BuildPrompt]:
    space = Definitions(start, defining_words(env, config.vocabulary))
    words = list(space.words.values())
    return lambda: partial(space.prompt, [run.rng.sample(own, min(config.length, len(own))) for own in words])


def _phrases(run: Run, env: Environment, start: Prompt, config: Config) -> Callable[[], BuildPrompt]:
    kinds: tuple[Kind, ...] = ("delete", "swap", "duplicate", "insert")

    def draw() -> BuildPrompt:
        text = start.region_text()
        for _ in range(run.rng.randint(1, config.edits)):
            edit = random_edit(run.rng, text, kinds, PHRASES)
            text = text if edit is None else edit.text
        return partial(replace_region, start, text)

    return draw


def _distinct(draw: Callable[[], BuildPrompt], archive: Archive, k: int) -> list[Prompt]:
    """Up to `k` different prompts that the archive does not hold; fewer when the space seems used up.

    It always makes `20 k` draws, also after the k-th prompt, so that later rounds draw the same prompts for a seed as ever.
    """
    distinct: dict[str, Prompt] = {}
    for _ in range(20 * k):
        build = draw()
        if len(distinct) == k:
            continue
        prompt = build()
        if prompt is not None and prompt not in archive:
            distinct[prompt.id] = prompt
    return list(distinct.values())

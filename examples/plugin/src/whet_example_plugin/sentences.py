"""Greedy sentences: add one sentence after another to the instruction, keep each one that helps.

    text <- start
    for each sentence: score text + sentence on training examples, keep it when the score rises
    return the best on validation examples

Run it:  whet optimize TASK --method sentences --set sentences="Think first.|Answer briefly."
"""

from __future__ import annotations

from dataclasses import dataclass

from whet import Candidate, Environment, Method, Prompt, Run
from whet.methods import MethodEntry
from whet.rl import LanguagePolicy
from whet.search import Archive, fit, minibatch, validate_finalists, validate_leader


@dataclass(frozen=True)
class Config:
    """Settings of greedy sentences."""

    sentences: str = "Think first.|Halve the range with every guess.|Answer with one number."
    """What is tried, in this order, separated by |."""
    examples: int = 20
    """Training examples that each text is scored on."""


async def sentences(
    run: Run, env: Environment, policy: LanguagePolicy | None, start: Prompt, config: Config
) -> Candidate:
    """The start with the sentences that help; see the module."""
    choices = [sentence.strip() for sentence in config.sentences.split("|") if sentence.strip()]
    plan = fit(run, env, len(choices), 1, config.examples, asks=0)
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    examples = minibatch(run.rng, env.train, plan.examples, balanced=bool(env.labels))
    best = Candidate(start, score=(await env.score(run, [start], examples))[0])
    archive.add(run, best)
    for sentence in choices[: plan.rounds]:
        prompt = start.edit(f"{best.prompt.region_text().strip()} {sentence}")
        score = (await env.score(run, [prompt], examples))[0]
        archive.add(run, Candidate(prompt, (best.id,), "sentence", score))
        best = archive.top(1)[0]
        await validate_leader(run, plan, archive, best)
    return await validate_finalists(run, plan, archive, archive.top(2))


METHOD = Method(
    MethodEntry("sentences", "Greedy sentences: keep each sentence that helps"), sentences, Config
)

"""ProTeGi: criticise errors, edit the prompt against the criticism, select with a bandit.

Pryzant, Iter, Li, Lee, Zhu, Zeng: Automatic Prompt Optimization with "Gradient Descent" and Beam Search.
EMNLP 2023. arXiv:2305.03495. Algorithm 1 (beam search), 2 (expansion), 3 (UCB), 4 (successive rejects).

    beam <- {start}
    for round in 1..rounds:
        draw a minibatch
        for each prompt of the beam:
            evaluate it on the minibatch
            repeat `gradients` times: sample errors, ask why they happen, edit the prompt accordingly
            paraphrase the prompt and its edits; keep `successors` of the new prompts at random
        beam <- the best `beam` of the old beam and all new prompts, chosen by a bandit
    return the best of the beam

Differences from the paper:
1. The result is chosen on validation examples among the start, the leader of each round and the last beam.
2. UCB counts pulls of arms, not examples, and starts when every arm was pulled once. The reference code
   divides by the number of examples and starts at time 0: a random first pick, no bonus for the second.
3. Successive halving drops the lower half; the reference code drops all below the mean. Successive rejects
   drops down to the width of the beam and spends the budget on it. A beam without rivals is still measured.
4. No prompt is evaluated twice on one example within a selection; all see the examples in the same order.
5. Any reward will do: an error is a rollout below the full reward and not above the minibatch's mean.
   Critiques of the reward are shown to the critic. A minibatch without errors leads to paraphrases only.
6. Paraphrases and edits are asked for one a call.
7. Before a start that earns nothing stand in the first beam those of two prompts that earn something, had without the
   optimizer (`whet.search.from_zero`).
8. Within a limit on calls all sizes are cut to what the limit pays (`within`).

Run it:  whet optimize TASK --method protegi --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl import LanguagePolicy, show_instruction
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.bandits import Rule, select_prompts
from whet.search.edits import text_in
from whet.search.from_zero import leave_zero
from whet.search.minibatch import minibatch, mistakes, show_rollout
from whet.search.plan import SearchPlan, count_purse, share_out, validate_finalists, validate_leader
from whet.types import Example, Rollout

ENTRY = MethodEntry(
    "protegi",
    "ProTeGi: textual gradients and a beam",
    version=5,
    rank=30,
    when="wrong answers show what the prompt lacks",
    paper="Pryzant et al., EMNLP 2023",
    arxiv="2305.03495",
    needs=("optimizer",),
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of ProTeGi."""

    rounds: NonNegativeInt = 6
    """Rounds of expansion and selection (r)."""
    beam: PositiveInt = 4
    """Prompts that survive a round (b)."""
    minibatch: PositiveInt = 64
    """Training examples on which errors are looked for, the same for all prompts of a round."""
    gradients: PositiveInt = 4
    """Criticisms of each prompt, each leading to one edit (m)."""
    errors: PositiveInt = 4
    """Errors shown to the critic at once."""
    paraphrases: NonNegativeInt = 2
    """Paraphrases of each edit and of the prompt itself (p)."""
    successors: PositiveInt = 8
    """New prompts kept of each prompt, at random."""
    bandit: Rule = "ucb"
    """The selection of the beam: ucb, ucb_e, successive_rejects, successive_halving or brute_force."""
    budget: PositiveInt = 2048
    """Evaluations of one example that a selection may cost (B)."""
    c: NonNegativeFloat = 1.0
    """Exploration of the two UCB rules."""


async def protegi(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Beam search over textual gradients; see the module."""
    share = share_out(run, env, config.rounds, finalists=config.beam)
    archive, beam = Archive(), [Candidate(start)]
    run.note_rounds(within(config, share).rounds, config.rounds)
    await archive.validate(run, share.env, beam)
    share, firsts = await leave_zero(run, share, archive, start, secrets)
    wanted, config = config, within(config, share)
    beam = [*(first.candidate for first in firsts), *beam][: config.beam]
    for number in range(wanted.rounds if config.rounds else 0):
        if number >= config.rounds:
            config = await last_round(run, share, archive, wanted)
            if not config.rounds:
                break
            config, beam = replace(config, rounds=number + 1), beam[: config.beam]
        batch = minibatch(run.rng, env.train, config.minibatch)
        editor = _Editor(env, policy.adapt(), start, config, batch, number * 100)
        children = [child for family in await run.map(editor.expand, beam) for child in family]
        arms = list({c.prompt.id: c for c in [*beam, *children]}.values())
        order, prompts = minibatch(run.rng, env.train, len(env.train)), [arm.prompt for arm in arms]
        rule, keep, budget, c = config.bandit, config.beam, config.budget, config.c
        selected = await select_prompts(run, env, prompts, order, rule=rule, keep=keep, budget=budget, c=c)
        ranked = [replace(arms[arm], score=score) for arm, score in selected]
        for candidate in ranked:
            archive.add(run, candidate)
        beam = ranked[: config.beam]
        await validate_leader(run, share, archive, beam[0])
    return await validate_finalists(run, share, archive, beam)


@dataclass(frozen=True)
class _Editor:
    """The expansion of one round. `sample` numbers its requests, so that no round repeats another's."""

    env: Environment
    policy: LanguagePolicy
    start: Prompt
    config: Config
    batch: Sequence[Example]
    sample: int

    async def expand(self, run: Run, parent: Candidate) -> list[Candidate]:
        """New prompts made of one: edits against criticisms of its errors, and paraphrases of both."""
        rollouts = await self.env.evaluate(run, parent.prompt, self.batch)
        wrong = mistakes(rollouts, self.env.reward.high)
        shown = min(self.config.errors, len(wrong))
        groups = [(i, run.rng.sample(wrong, shown)) for i in range(self.config.gradients) if wrong]
        criticised = await run.map(lambda branch, group: self.edit(branch, parent.prompt, *group), groups)
        edits = [prompt for prompts in criticised for prompt in prompts]
        restated = await run.map(self.paraphrase, [*edits, parent.prompt])
        new = {p.id: Candidate(p, (parent.prompt.id,), "edit") for p in edits}
        for paraphrase in (p for prompts in restated for p in prompts):
            new.setdefault(paraphrase.id, Candidate(paraphrase, (parent.prompt.id,), "paraphrase"))
        new.pop(parent.prompt.id, None)
        return run.rng.sample(list(new.values()), min(self.config.successors, len(new)))

    async def edit(self, run: Run, parent: Prompt, number: int, errors: Sequence[Rollout]) -> list[Prompt]:
        """The prompt edited against one criticism of some errors, its gradient; none without a criticism."""
        text, sample = text_in(self.start, parent), self.sample + number
        rows = {example.id: example for example in self.batch}
        shown = [show_rollout(rows[error.example_id], error) for error in errors]
        about = "\n\n".join([self.about(text), FAILED, *shown])
        reasons = await self.policy.write(run, f"{about}\n\n{CRITICISE}", "REASON", sample=sample)
        question = "\n\n".join([about, CRITICISED, *reasons, EDIT])
        return await self.policy.rewrite(run, self.start, question, len(reasons), sample=sample, text=text)

    async def paraphrase(self, run: Run, prompt: Prompt) -> list[Prompt]:
        """Other wordings of a prompt (the paper's Monte Carlo successors)."""
        text = text_in(self.start, prompt)
        question, n = f"{self.about(text)}\n\n{PARAPHRASE}", self.config.paraphrases
        return await self.policy.rewrite(run, self.start, question, n, sample=self.sample, text=text)

    def about(self, text: str) -> str:
        """The head of every question: the task, what surrounds the instruction, the instruction."""
        return f"{PURPOSE}\n\n{show_instruction(self.env.description, self.start, text, INSTRUCTION)}"


def within(config: Config, share: SearchPlan) -> Config:
    """The paper's sizes where the budget pays them, else fewer rounds (not below 2), then smaller ones."""
    left = share.rollouts
    if left is not None and left < config.rounds * (config.beam * config.minibatch + config.budget):
        rounds = min(config.rounds, max(min(2, left // 8), left // 400))
        each = left // max(1, rounds)
        beam = max(1, min(config.beam, each // 100))
        batch = max(1, min(config.minibatch, math.isqrt(each), each // 4))
        budget = min(config.budget, each - beam * batch)
        kept = max(1, min(config.successors, budget // (8 * beam) - 1))
        gradients = min(config.gradients, (kept + 1) // 2)
        paraphrases = min(config.paraphrases, -(-(kept - gradients) // (gradients + 1)))
        config = replace(config, rounds=rounds, beam=beam, minibatch=batch, budget=budget, successors=kept)
        config = replace(config, gradients=gradients, paraphrases=paraphrases)
    while share.asks is not None and config.rounds and _asks(config) > share.asks:
        if config.paraphrases:
            config = replace(config, paraphrases=config.paraphrases - 1)
        elif config.gradients > 1:
            config = replace(config, gradients=config.gradients - 1)
        else:
            config = replace(config, beam=max(1, config.beam - 1), rounds=config.rounds - (config.beam == 1))
    return config


async def last_round(run: Run, share: SearchPlan, archive: Archive, wanted: Config) -> Config:
    """The sizes of one more round that what is left pays for, beside validating the best that it finds; no rounds where it pays
    for too few rollouts to tell prompts apart."""
    if not share.limited:
        return replace(wanted, rounds=0)
    purse = await count_purse(run, share.env)
    asks = None if share.asks is None else int(purse.questions) * 3 // 4
    payable = purse.payable(asks or 0) - len(share.env.validation)
    rollouts = None if share.rollouts is None else max(0, int(payable))
    if rollouts is not None and rollouts < FEWEST:
        return replace(wanted, rounds=0)
    return within(replace(wanted, rounds=1), replace(share, rollouts=rollouts, asks=asks))


def _asks(config: Config) -> int:
    each = 2 * config.gradients + config.paraphrases * (config.gradients + 1)
    return config.rounds * config.beam * each


FEWEST = 16
"""Rollouts of a round at least: two prompts on eight rows."""
PURPOSE = "You improve the instruction of a language model."
INSTRUCTION = "The instruction now:"
FAILED = "With this instruction the model failed on these inputs:"
CRITICISE = (
    "Name one fault of the instruction that made the model fail here: something that the instruction leaves out, says wrongly or "
    "says too vaguely. Be concrete. Do not write a new instruction."
)
CRITICISED = "The fault of the instruction:"
EDIT = (
    "Write the instruction anew without this fault. Keep what works. Write rules that hold for all inputs of this kind. Do not "
    "copy the inputs above."
)
PARAPHRASE = "Write the same instruction in other words. Do not change what it asks for."

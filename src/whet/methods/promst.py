"""PROMST: prompts for tasks of several steps, by a person's rules of failure and a learned predictor of scores.

Chen, Arkin, Hao, Zhang, Roy, Fan: PRompt Optimization in Multi-Step Tasks (PROMST): Integrating Human Feedback and
Heuristic-based Sampling. EMNLP 2024. arXiv:2402.08702.

    evolve(n):
        return where n is `least` levels deep and the best score of a level fell twice in a row
        rules that a person wrote say of each episode under n how it failed; a model summarises each kind of failure
        a model rewrites n by the summaries and by the prompts on the way to n, several times
        once enough scores are known, a predictor that learned from them keeps the most promising rewrites
        the children of n are those that are left, each scored by its mean reward over the episodes
        evolve the `kept` best children, the best one first
    evolve(start); return the best prompt

Differences from the paper and its code:
1. The predictor is a ridge regression on embeddings (`embedding`; without one, hashed character trigrams, which know no
   language), fitted anew for each expansion: the code has none, and the paper fine-tunes language models. It learns once
   `known` scores are there. Then `candidates` rewrites are written, and the `width` of the best predictions are played.
   What it keeps is recorded in the run. `predictor` of none writes `width` rewrites: the control.
2. The rules of `rules` are three of the code (a step that cannot be read, the same step in the same situation more than four
   times, no end within the turns) and a fourth for what else earns less than it could; or a function of yours.
3. A kind of failure is summarised once for all rewrites of a prompt. Errors of the provider are no failures.
4. A prompt deeper than `depth` is not rewritten. The paper's rule alone never ends where scores stay the same.
5. The result is chosen on validation examples among the start, the leaders and the best by training score.
6. If the start prompt has a reward of zero, two other prompts are tried first, if targets are answers (`whet.search.from_zero`).
7. Under a limit on calls, episodes, expansions and their width are reduced to fit (`whet.search.plan`).

Run it:  whet optimize TASK --method promst --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from whet._util.fields import NonNegativeInt, PositiveFloat, PositiveInt
from whet.environments.environment import Environment
from whet.environments.episodes import Trajectory
from whet.environments.multiturn import trajectories
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.instructions.neighbours import trigrams
from whet.methods.method import MethodEntry
from whet.models.embeddings import NONE, embedder
from whet.prompt import Prompt
from whet.rl import LanguagePolicy, in_tags, show_instruction
from whet.run import Run, convert_record
from whet.search.archive import Archive, Candidate
from whet.search.edits import text_in
from whet.search.failure_rules import BUILT_IN, EpisodeFailure, check_rules, failures_of
from whet.search.from_zero import leave_zero
from whet.search.minibatch import minibatch
from whet.search.plan import SearchPlan, fit, validate_finalists, validate_leader
from whet.stats.ridge import predict_by_ridge
from whet.types import JSON, Example, Rollout, mean_score

ENTRY = MethodEntry(
    "promst",
    "PROMST: rules of failure and a predictor of scores, for tasks of several steps",
    version=1,
    rank=49,
    when="episodes of several steps fail in a few ways that a rule can recognise, and playing costs more than writing prompts",
    paper="Chen et al., EMNLP 2024",
    arxiv="2402.08702",
    needs=("optimizer",),
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of PROMST."""

    depth: NonNegativeInt = 4
    """Levels of rewrites at most."""
    width: PositiveInt = 8
    """Children of a prompt that are played."""
    kept: PositiveInt = 2
    """Children of a prompt that are rewritten in their turn."""
    least: PositiveInt = 2
    """Levels before the search may end because scores fall."""
    episodes: PositiveInt = 16
    """Training examples that each prompt is played on."""
    rules: str | Callable[..., Any] = BUILT_IN
    """The rules that name the kind of an episode's failure: `built-in`, or a Python file with `def failure(steps, reward)`, or
    such a function. The function returns None if the episode did not fail."""
    shown: PositiveInt = 4
    """Episodes of each kind of failure that the model reads."""
    predictor: Literal["ridge", "none"] = "ridge"
    """The predictor of scores that chooses the rewrites to play, or none."""
    candidates: PositiveInt = 24
    """Rewrites from which the predictor chooses the children of a prompt."""
    known: PositiveInt = 12
    """Scores from which the predictor learns, at least."""
    noise: PositiveFloat = 0.3
    """Share of the spread of scores that texts do not explain."""
    embedding: str = NONE
    """Vectors of prompts: none (character trigrams), embedded/encoder, or openai/NAME, ollama/NAME, ... at its endpoint."""
    finalists: PositiveInt = 3
    """Prompts measured on validation examples at the end."""


def check(env: Environment, config: Config) -> None:
    """Raises UsageError for rules or an embedding that there are not."""
    check_rules(config.rules)
    embedder(config.embedding)


async def promst(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Evolution of a prompt for tasks of several steps; see the module."""
    expansions = sum(config.kept**level for level in range(config.depth))
    asks = (KINDS + config.candidates) / config.width
    plan = fit(run, env, expansions, config.width, config.episodes, finalists=config.finalists, asks=asks)
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    train = minibatch(run.rng, env.train, plan.examples, balanced=True)
    plan, firsts = await leave_zero(run, plan, archive, start, secrets, train)
    search = Evolution(env, policy, start, config, plan, archive, train, plan.rounds)
    root = firsts[0].candidate if firsts else Candidate(start)
    await search.evolve(run, (await search.play(run, [root]))[0])
    return await validate_finalists(run, plan, archive, archive.top(config.finalists))


@dataclass(eq=False)
class PlayedPrompt:
    """A prompt, the one that it came from, and its episodes."""

    candidate: Candidate
    episodes: Sequence[tuple[Trajectory, Rollout]]
    parent: PlayedPrompt | None = None

    @property
    def path(self) -> list[PlayedPrompt]:
        """The prompts from the start to this one."""
        return [*(self.parent.path if self.parent else []), self]


@dataclass
class Evolution:
    """The search: its expansions that are `left`, the best score of each level, every text with its score."""

    env: Environment
    policy: LanguagePolicy
    start: Prompt
    config: Config
    plan: SearchPlan
    archive: Archive
    train: Sequence[Example]
    left: int
    bests: list[float] = field(default_factory=list)
    rewrites: int = 0

    async def evolve(self, run: Run, node: PlayedPrompt) -> None:
        """Rewrite a prompt, then its best children, the best one first."""
        level = len(node.path) - 1
        self.bests[level:] = [
            max([node.candidate.mean, *self.bests[level : level + 1]]),
            *self.bests[level + 1 :],
        ]
        if self.left <= 0 or level >= self.config.depth or (level >= self.config.least and self.falls(level)):
            return
        self.left -= 1
        children = await self.expand(run, node)
        await validate_leader(run, self.plan, self.archive, self.archive.top(1)[0])
        for child in sorted(children, key=lambda child: -child.candidate.mean)[: self.config.kept]:
            await self.evolve(run, child)

    def falls(self, level: int) -> bool:
        """Whether the best score fell from level to level, twice in a row."""
        return self.bests[level - 2] > self.bests[level - 1] > self.bests[level]

    async def expand(self, run: Run, node: PlayedPrompt) -> list[PlayedPrompt]:
        """Children of a prompt: rewrites by what failed, those that the predictor keeps, played."""
        failed = await failures_of(run, node.episodes, self.config.rules, self.env.reward.high)
        if not failed:
            return []
        kinds = list(dict.fromkeys(one.kind for one in failed))
        rest = (
            kinds
            if len(kinds) <= KINDS
            else sorted(kinds, key=lambda kind: -sum(f.kind == kind for f in failed))
        )
        groups = [[one for one in failed if one.kind == kind] for kind in rest[:KINDS]]
        number, policy = self.rewrites, self.policy.adapt()
        summaries = await run.map(partial(self.summarise, node=node, policy=policy, sample=number), groups)
        scored = [one for one in self.archive.members.values() if one.score is not None]
        learned = self.config.predictor == "ridge" and len(scored) >= self.config.known
        numbers = range(
            number, number + (max(self.config.candidates, self.plan.width) if learned else self.plan.width)
        )
        self.rewrites += len(numbers)
        rewrite = partial(
            self.rewrite, node=node, policy=policy, summaries=[text for text in summaries if text]
        )
        families = await run.map(rewrite, numbers)
        new = [
            one for one in {c.id: c for f in families for c in f}.values() if one.prompt not in self.archive
        ]
        if learned and len(new) > self.plan.width:
            kept = await run.effect("screen", partial(self.screen, run, scored, new))
            new = [new[place] for place in convert_record(kept, list[int])]
        return await self.play(run, new[: self.plan.width], node)

    async def screen(self, run: Run, scored: Sequence[Candidate], new: Sequence[Candidate]) -> JSON:
        """The places of the new prompts, the best predicted score first."""
        texts, embed = (
            [text_in(self.start, one.prompt) for one in (*scored, *new)],
            embedder(self.config.embedding),
        )
        vectors = np.asarray(trigrams(texts) if embed is None else await embed(run, texts), float)
        n, scores = len(scored), np.array([one.mean for one in scored])
        expected = predict_by_ridge(vectors[:n], scores, vectors[n:], self.config.noise).round(9).tolist()
        return [*sorted(range(len(new)), key=lambda place: -expected[place])]

    async def summarise(
        self,
        run: Run,
        failed: Sequence[EpisodeFailure],
        node: PlayedPrompt,
        policy: LanguagePolicy,
        sample: int,
    ) -> str:
        """The model's description of one kind of failure; empty without a usable reply."""
        about = [PURPOSE, self.show(node), f"{FAILED} {failed[0].kind}"]
        episodes = [one.evidence for one in failed[: self.config.shown]]
        replies = await policy.write(
            run, "\n\n".join([*about, *episodes, SUMMARISE]), "FEEDBACK", sample=sample
        )
        return "".join(f"{len(failed)} of {len(node.episodes)}: {failed[0].kind}\n{text}" for text in replies)

    async def rewrite(
        self, run: Run, sample: int, node: PlayedPrompt, policy: LanguagePolicy, summaries: Sequence[str]
    ) -> list[Candidate]:
        """A rewrite by summaries of failures; none without a usable reply."""
        way = [
            f"{in_tags(text_in(self.start, one.candidate.prompt))}\nScore: {one.candidate.mean:.3f}"
            for one in node.path[:-1]
        ]
        parts = [
            PURPOSE,
            self.show(node),
            *([TRAJECTORY, *way] if way else []),
            FEEDBACK,
            *summaries,
            REWRITE,
        ]
        text = text_in(self.start, node.candidate.prompt)
        written = await policy.rewrite(run, self.start, "\n\n".join(parts), sample=sample, text=text)
        return [Candidate(prompt, (node.candidate.id,), f"level {len(node.path)}") for prompt in written]

    async def play(
        self, run: Run, candidates: Sequence[Candidate], parent: PlayedPrompt | None = None
    ) -> list[PlayedPrompt]:
        """The prompts with their episodes and scores."""

        async def one(branch: Run, candidate: Candidate) -> PlayedPrompt:
            pairs = [(candidate.prompt, row) for row in self.train]
            episodes = await trajectories(branch, self.env, pairs)
            score = mean_score([rollout for _, rollout in episodes])
            scored = Candidate(candidate.prompt, candidate.parents, candidate.operator, score)
            return PlayedPrompt(scored, episodes, parent)

        nodes = await run.map(one, candidates)
        for node in nodes:
            self.archive.add(run, node.candidate)
        return nodes

    def show(self, node: PlayedPrompt) -> str:
        """A prompt as the model sees it."""
        text = text_in(self.start, node.candidate.prompt)
        return show_instruction(self.env.description, self.start, text, INSTRUCTION)


KINDS = 4
PURPOSE = "You improve the instruction of a language model that works on a task in several steps."
INSTRUCTION = "The instruction now:"
FAILED = "With this instruction some attempts failed in this way:"
SUMMARISE = (
    "Say in a few sentences what goes wrong here, and in which situation. Do not write a new instruction."
)
TRAJECTORY = "Earlier versions of the instruction, the oldest first:"
FEEDBACK = "How attempts with the instruction failed, and how many of them:"
REWRITE = (
    "Write a new version of the instruction with which these failures do not happen again. Keep what works. Write rules that "
    "hold for all tasks of this kind."
)

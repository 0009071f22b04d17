"""Agent-Pro: beliefs about itself and the world, checked after lost games; policies are searched depth-first.

Zhang, Tang, Wu, Wang, Song, Tang, Li, Zhuang, Lu: Agent-Pro: Learning to Evolve via Policy-Level Reflection and Optimization.
ACL 2024. arXiv:2402.17574.

    policy <- start, with the request to write beliefs about oneself and the world before each action
    dfs(policy, level):
        for each of `width` lost games of the policy:
            a model checks the beliefs of the game against what came of it
            child <- a model writes the policy's guideline and its description of the world anew
            play child and policy on the same fresh games, and on old games of the policy
            if child earns more than policy: return dfs(child, level + 1)
        return policy
    return dfs(policy, 0)

Differences from the paper and its code:
1. The code holds play, beliefs and reflection, but no search. Width, depth and the numbers of games are ours.
2. Policy and child play the same games, drawn once for each comparison; the paper also swaps the seats.
3. Old games (`replay`) are those that the policy has played: a child that forgets is not taken. 0 leaves them out: the control.
4. A game is lost where it earned less than it could; the worst games come first. What is no game is shown by its answer.
5. The result is chosen on validation examples among the start, and the policies on the way.
6. If the start prompt has a reward of zero, two other prompts are tried first, if targets are answers (`whet.search.from_zero`).
7. Under a limit on calls, games and comparisons are reduced to fit (`whet.search.plan`).

Run it:  whet optimize TASK --method agentpro --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from whet._util.fields import NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.environments.episodes import Trajectory
from whet.environments.multiturn import MultiTurn, trajectories
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl import LanguagePolicy, show_instruction
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.edits import replace_region, text_in
from whet.search.failure_rules import show_end
from whet.search.from_zero import leave_zero
from whet.search.minibatch import answered_rollouts, gains, infinite_batches, next_rows
from whet.search.plan import SearchPlan, fit, validate_finalists, validate_leader
from whet.types import Example, Rollout, mean_score

ENTRY = MethodEntry(
    "agentpro",
    "Agent-Pro: beliefs checked after lost games, policies searched depth-first",
    version=1,
    rank=51,
    when="the task is a game of several turns, and lost games show the player's false beliefs",
    paper="Zhang et al., ACL 2024",
    arxiv="2402.17574",
    needs=("optimizer",),
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of Agent-Pro."""

    depth: NonNegativeInt = 8
    """The largest number of policies one after the other."""
    width: PositiveInt = 3
    """Lost games of a policy that are reflected on, until a child is better."""
    games: PositiveInt = 20
    """Fresh training examples that a child and its policy are compared on."""
    replay: NonNegativeInt = 20
    """Old games of the policy that the child plays too."""
    beliefs: bool = True
    """Whether the player writes its beliefs before each action."""
    turns: PositiveInt = 12
    """Last turns of a lost game that the model reads."""
    finalists: PositiveInt = 3
    """Policies measured on validation examples at the end."""


async def agentpro(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Depth-first search over policies; see the module."""
    trials = config.depth * config.width
    plan = fit(run, env, trials, 3, config.games, finalists=config.finalists, asks=2 / 3, least=3)
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    plan, firsts = await leave_zero(run, plan, archive, start, secrets)
    root = firsts[0].candidate if firsts else Candidate(start)
    believing = replace_region(start, f"{text_in(start, root.prompt).rstrip()}\n\n{BELIEFS}\n")
    if config.beliefs and isinstance(env, MultiTurn) and env.world is not None and believing is not None:
        root = Candidate(believing, (root.id,), "beliefs")
    search = PolicySearch(env, policy, start, config, plan, archive, infinite_batches(run.rng, env.train))
    if plan.rounds:
        games = await search.play(run, root, next_rows(search.rows, plan.examples))
        await search.descend(run, PlayedPolicy(root, games), 0)
    return await validate_finalists(run, plan, archive, [*search.ends, *archive.top(config.finalists)])


@dataclass(frozen=True)
class PlayedGame:
    """A training example with what was played of it."""

    row: Example
    played: Trajectory
    rollout: Rollout


@dataclass
class PlayedPolicy:
    """A policy and its games."""

    candidate: Candidate
    games: list[PlayedGame]


@dataclass
class PolicySearch:
    """The search: its rows without end, the trials that are used up, the policy at its end."""

    env: Environment
    policy: LanguagePolicy
    start: Prompt
    config: Config
    plan: SearchPlan
    archive: Archive
    rows: Iterator[Example]
    trials: int = 0
    ends: list[Candidate] = field(default_factory=list)

    async def descend(self, run: Run, current: PlayedPolicy, level: int) -> None:
        """Go on with the first child that is better, or end here."""
        score = mean_score([game.rollout for game in current.games])
        candidate = Candidate(
            current.candidate.prompt, current.candidate.parents, current.candidate.operator, score
        )
        self.archive.add(run, candidate)
        self.ends = [candidate]
        await validate_leader(run, self.plan, self.archive, candidate)
        high = self.env.reward.high
        lost = [g for g in current.games if answered_rollouts([g.rollout]) and g.rollout.reward < high]
        worst = sorted(lost, key=lambda game: game.rollout.reward)[: self.config.width]
        for game in worst if level < self.config.depth else ():
            if self.trials >= self.plan.rounds:
                return
            self.trials += 1
            for child in await self.reflect(run, candidate, game):
                if (better := await self.compare(run, current, child)) is not None:
                    return await self.descend(run, better, level + 1)

    async def compare(self, run: Run, current: PlayedPolicy, child: Candidate) -> PlayedPolicy | None:
        """The child with its games where it earns more than the policy on the same games, fresh and old; else None."""
        fresh = next_rows(self.rows, self.plan.examples)
        rest = [game for game in current.games if game.row.id not in {row.id for row in fresh}]
        old = run.rng.sample(rest, min(self.config.replay, self.plan.examples, len(rest)))
        mine = await self.play(run, current.candidate, fresh)
        theirs = await self.play(run, child, [*fresh, *(game.row for game in old)])
        before = [game.rollout for game in (*mine, *old)]
        if sum(gains(before, [game.rollout for game in theirs])) <= 0:
            return None
        return PlayedPolicy(child, theirs)

    async def reflect(self, run: Run, current: Candidate, game: PlayedGame) -> list[Candidate]:
        """A policy that a model writes after it has checked the beliefs of a lost game; none without a usable reply."""
        text, policy = text_in(self.start, current.prompt), self.policy.adapt()
        about = [PURPOSE, show_instruction(self.env.description, self.start, text, POLICY)]
        shown = [LOST, show_end(game.played, game.rollout, self.config.turns)]
        question = "\n\n".join([*about, *shown, CHECK])
        checked = await policy.write(run, question, "AUDIT", sample=self.trials)
        request = "\n\n".join([*about, *shown, CHECKED, *checked, REWRITE])
        written = await policy.rewrite(run, self.start, request, sample=self.trials, text=text)
        new = [
            prompt for prompt in written if prompt not in self.archive and not secrets(prompt.region_text())
        ]
        return [Candidate(prompt, (current.id,), "reflection") for prompt in new]

    async def play(self, run: Run, candidate: Candidate, rows: Sequence[Example]) -> list[PlayedGame]:
        """The games of a policy on rows."""
        played = await trajectories(run, self.env, [(candidate.prompt, row) for row in rows])
        return [PlayedGame(row, *pair) for row, pair in zip(rows, played, strict=True)]


BELIEFS = (
    "Before each action write one line with what you believe about your own position and one with what you believe about the "
    "world and the others in it. Write the action alone on the last line."
)
PURPOSE = "You improve the policy of a player: the instruction with which a language model plays."
POLICY = "The policy now:"
LOST = "A game that was lost with it, and what the player wrote in its turns:"
CHECK = (
    "Check what the player believed and did against what came of it. Which beliefs were wrong, which contradict each other, and "
    "which action did not follow from them? Do not write a new policy."
)
CHECKED = "What a check of the game says was wrong in it:"
REWRITE = (
    "Write a new policy. Keep what works, and keep a request to write beliefs if there is one. Add to it, or make better, a "
    "guideline (what to do, and what not) and a description of the world (how it works, and how the others behave). It must hold "
    "for all games of this kind."
)

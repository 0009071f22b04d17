"""Feedback Descent: a champion, challengers, and the reason of each defeat, which the next challenger is written from.

Feedback Descent: Open-Ended Text Optimization via Pairwise Comparison. 2025. arXiv:2511.07919. Only its abstract and an open
re-implementation for pictures could be read.

    champion <- start;  R <- []
    for round in 1..rounds:
        challenger <- the model writes one from the champion and R
        (verdict, reason) <- evaluator(champion, challenger), in both orders
        verdicts differ: the round is skipped
        the challenger wins:  champion <- challenger;  R <- [] (or R as it was)
        it loses:             R <- R + (challenger, reason)
    return the champion

The reason is advice, not a comparison: it says what would make the answers better.

Differences from the paper, as far as it could be read:
1. The evaluator compares answers to the same training rows, drawn anew in each round. With `evaluator=reward` it is the reward of
   the task: the larger sum wins, and the reason is what the reward says of the challenger's answers that lack most. With `judge`
   it is the optimizer model, which sees answers to the same inputs as the systems 1 and 2, and reads no target and no reward.
2. The order of the two matters to a judge only. A judge whose verdicts differ by the order decides nothing.
3. What the evaluator says of a challenger that wins is shown with it while it is the champion.
4. `after_win` says what becomes of R: the re-implementation empties it, the paper by what others say of it lets it grow. The
   latest `shown` challengers of R are shown with their texts; the re-implementation shows their reasons alone.
5. A challenger that was tried before, or that copies 32 characters in a row from an input, is not compared.
6. The result is chosen on validation rows, by the reward of the task, among the start and the latest champions: a judge alone can
   be pleased by what is no better.
7. If the start prompt has a reward of zero, two other prompts are tried first (`whet.search.from_zero`).
8. Within a limit on calls rounds are cut to what it pays. Where the optimizer's calls are the narrower limit, the two answer more
   rows. A judge is shown `questions` of them, those first that the two answered differently.

Run it:  whet optimize TASK --method feedback_descent --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from whet._util.fields import NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl import LanguagePolicy, in_tags, show_instruction
from whet.rl.answer_duels import ASKS, duel_with_advice, what_is_wanted, without_reward
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.copies import copied_input
from whet.search.edits import text_in
from whet.search.from_zero import leave_zero
from whet.search.minibatch import answered_rollouts, gains, minibatch, mistakes, show_rollout
from whet.search.plan import SearchPlan, share_out, validate_finalists, validate_leader
from whet.types import Example, Rollout

ENTRY = MethodEntry(
    "feedback_descent",
    "Feedback Descent: challengers, and why each of them lost",
    version=1,
    rank=67,
    when="one prompt is improved step by step, and why earlier attempts failed matters",
    paper="Feedback Descent, 2025",
    arxiv="2511.07919",
    needs=("optimizer",),
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of Feedback Descent."""

    rounds: NonNegativeInt = 30
    """Rounds, one challenger in each (T)."""
    evaluator: Literal["reward", "judge"] = "reward"
    """The evaluator of a comparison: the reward of the task with its critiques, or the optimizer model, without targets and
    rewards."""
    questions: PositiveInt = 8
    """The number of rows on which the two are compared in a round, more if a limit leaves calls; a judge sees at most this
    number."""
    after_win: Literal["reset", "keep"] = "reset"
    """Whether the challengers that lost are forgotten (reset) or kept when a challenger wins."""
    shown: NonNegativeInt = 8
    """The largest number of losing challengers that are shown, the latest ones."""
    requirements: str = ""
    """A description of a good answer, for writer and judge."""
    finalists: PositiveInt = 3
    """The latest champions, measured on validation examples at the end."""


async def feedback_descent(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Challengers written from reasons; see the module."""
    plan = share_out(run, env, config.rounds, finalists=config.finalists)
    archive, champions = Archive(), [Candidate(start)]
    run.note_rounds(within(config, plan)[0], config.rounds)
    await archive.validate(run, plan.env, champions)
    plan, firsts = await leave_zero(run, plan, archive, start, secrets)
    champions += [first.candidate for first in firsts[:1]]
    rounds, questions = within(config, plan)
    evaluator, beaten, advice = Evaluator(env, policy, start, config), list[Defeat](), ""
    for number in range(rounds):
        champion = champions[-1].prompt
        text, shown = text_in(start, champion), beaten[-config.shown :] if config.shown else []
        question = proposal(env, start, text, advice, shown, config.requirements)
        written = await policy.adapt().rewrite(run, start, question, sample=number, text=text)
        for prompt in [one for one in written if one not in archive and one not in (start, champion)]:
            archive.add(run, Candidate(prompt, (champion.id,), f"round {number + 1}"))
            if copied_input(text_in(start, prompt), env.train, start.source):
                continue
            rows = minibatch(run.rng, env.train, questions)
            won, reason = await evaluator.compare(run, champion, prompt, rows, number)
            run.log("duel", {"round": number + 1, "prompt": prompt.id, "won": won, "reason": reason})
            if won > 0.5:
                champions.append(await validate_leader(run, plan, archive, archive.members[prompt.id]))
                beaten, advice = beaten if config.after_win == "keep" else [], reason
            elif won < 0.5:
                beaten.append(Defeat(text_in(start, prompt), reason))
    return await validate_finalists(run, plan, archive, champions[::-1])


@dataclass(frozen=True)
class Defeat:
    """The text of a challenger that lost, and why."""

    text: str
    reason: str


@dataclass
class Evaluator:
    """The comparison of champion and challenger. A prompt is not asked again for a row that it has answered."""

    env: Environment
    policy: LanguagePolicy
    start: Prompt
    config: Config
    answers: dict[tuple[str, str], Rollout] = field(default_factory=dict)

    async def compare(
        self, run: Run, champion: Prompt, challenger: Prompt, rows: Sequence[Example], number: int
    ) -> tuple[float, str]:
        """1 where the challenger wins, 0 where it loses, 0.5 where nobody can tell; and the reason."""
        olds, news = await run.map(
            lambda branch, prompt: self.answer(branch, prompt, rows), [champion, challenger]
        )
        for rollout in (*olds, *news):
            self.answers[rollout.prompt_id, rollout.example_id] = rollout
        if self.config.evaluator == "reward":
            return self.compare_rewards(rows, olds, news)
        wanted = what_is_wanted(self.env, self.start, self.config.requirements)
        seen = sorted(zip(rows, news, olds, strict=True), key=lambda one: one[1].output == one[2].output)
        shown = [list(part) for part in zip(*seen[: self.config.questions], strict=True)]
        return await duel_with_advice(run, (shown[0], shown[1], shown[2]), self.policy, wanted, number)

    def compare_rewards(
        self, rows: Sequence[Example], olds: Sequence[Rollout], news: Sequence[Rollout]
    ) -> tuple[float, str]:
        """Compare what both earned: the difference, and the challenger's answers that lack most, those first that the champion
        gave better."""
        if not answered_rollouts(news):
            return 0.5, ""
        by_id, before = {row.id: row for row in rows}, {old.example_id: old.reward for old in olds}
        wrong = sorted(mistakes(news, self.env.reward.high), key=lambda r: r.reward - before[r.example_id])
        reason = "\n\n".join(show_rollout(by_id[r.example_id], r) for r in wrong[:SHOWN_ANSWERS])
        return float(sum(gains(olds, news)) > 0), reason

    async def answer(self, run: Run, prompt: Prompt, rows: Sequence[Example]) -> list[Rollout]:
        """The answers of a prompt to rows; a judge is shown them ungraded."""
        env = self.env if self.config.evaluator == "reward" else without_reward(self.env)
        new = [row for row in rows if (prompt.id, row.id) not in self.answers]
        fresh = {r.example_id: r for r in await env.evaluate(run, prompt, new)} if new else {}
        return [fresh.get(row.id) or self.answers[prompt.id, row.id] for row in rows]


def within(config: Config, plan: SearchPlan) -> tuple[int, int]:
    """Rounds that the plan pays for, and the rows of one: more, where the optimizer's calls are the narrower limit."""
    questions = min(config.questions, len(plan.env.train))
    rounds = plan.payable(config.rounds, 2 * questions)
    if plan.asks is not None:
        rounds = min(rounds, plan.asks // (1 + (ASKS if config.evaluator == "judge" else 0)))
    if rounds and plan.rollouts is not None:
        questions = min(len(plan.env.train), max(questions, plan.rollouts // (2 * rounds)))
    return rounds, questions


def proposal(
    env: Environment, start: Prompt, text: str, advice: str, beaten: Sequence[Defeat], requirements: str
) -> str:
    """The question to the model: the task, the champion and what was said of it, each that lost with its reason, the request."""
    shown = [show_instruction(env.description, start, text, INSTRUCTION)]
    shown += [f"{ADVICE}\n{advice}"] if advice else []
    shown += [BEATEN] if beaten else []
    shown += [f"{in_tags(one.text)}\n{REASON}\n{one.reason or NO_REASON}" for one in beaten]
    required = [f"{REQUIRED}\n{requirements.strip()}"] if requirements.strip() else []
    return "\n\n".join([PURPOSE, *shown, *required, REQUEST])


SHOWN_ANSWERS = 4
PURPOSE = "You improve the instruction of a language model."
INSTRUCTION = "The best instruction so far:"
ADVICE = "What was said of the answers under it:"
BEATEN = "These instructions were tried in its place and were no better. Each stands with what was said of its answers:"
REASON = "What was said:"
NO_REASON = "(nothing)"
REQUIRED = "What a good answer is:"
REQUEST = (
    "Write a better instruction: keep what works in the best one, mend what was said to be missing, and do not repeat what was "
    "tried. It must work for any input of this kind. Do not copy the inputs."
)

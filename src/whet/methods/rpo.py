"""Reinforced Prompt Optimisation: conversations are commented on turn by turn, and earlier comments are replayed to the rewriter.

Lin, Lubis, Ruppik, van Niekerk, Shen, Heck, Vukovic, Feng, Gasic: Prompt Reinforcing for Long-Term Planning of Large Language
Models. 2025. arXiv:2510.05921.

    p <- start; buffer <- empty
    for epoch in 1..epochs:
        D <- conversations with p for a batch of users
        F <- for each turn j: feedback_j = LM(turns 1..j of each conversation, feedback_1..j-1)     (td, section 3)
             or LM(whole conversations)                                                              (mc)
        p' <- LM(p, F, `replay` entries of the buffer)
        buffer <- buffer + (p, F)
        p <- p' if its mean reward with fresh users is no lower, else p

Differences from the paper:
1. Conversations of an epoch, epochs, and the entries that are replayed (the best, the latest, one at random) are ours.
2. One call comments on the same turn of all conversations of an epoch; the paper asks for each conversation alone.
3. A rewrite is taken only where it earns no less than the prompt before with the same fresh users (`gate` rows; 0: always).
   The paper takes each.
4. The result is chosen on validation examples. `feedback: none` shows the conversations without a comment: the control.
5. A task without turns is a conversation of one turn.
   If the start prompt has a reward of zero, two other prompts are tried first (`whet.search.from_zero`).
6. Under a limit on calls, conversations and epochs are reduced to fit (`whet.search.plan`).

Run it:  whet optimize TASK --method rpo --lm openai/NAME --judge-lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, TypeAlias

from whet._util.fields import NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.environments.episodes import Trajectory
from whet.environments.multiturn import trajectories
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl import LanguagePolicy, show_instruction
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.edits import text_in
from whet.search.from_zero import leave_zero
from whet.search.minibatch import gains, infinite_batches, next_rows, shorten
from whet.search.plan import fit, validate_finalists, validate_leader
from whet.types import Rollout, mean_score

ENTRY = MethodEntry(
    "rpo",
    "RPO: conversations commented on turn by turn, earlier comments replayed",
    version=1,
    rank=97,
    when="answers belong to conversations of several turns, and an early turn may spoil a late one",
    paper="Lin et al., 2025",
    arxiv="2510.05921",
    needs=("optimizer",),
)

LONGEST = 600
Talk: TypeAlias = tuple[Trajectory, Rollout]


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of RPO."""

    epochs: NonNegativeInt = 5
    """Epochs of talking, commenting and rewriting."""
    conversations: PositiveInt = 10
    """Training examples of an epoch."""
    shown: PositiveInt = 4
    """Conversations that are commented on, those with the lowest rewards."""
    feedback: Literal["td", "mc", "none"] = "td"
    """Comments after each turn, after the conversation, or none."""
    replay: NonNegativeInt = 3
    """Earlier prompts with their comments that the rewriter sees at most."""
    gate: NonNegativeInt = 10
    """Fresh users with whom a rewrite must earn no less; 0 takes every rewrite."""
    finalists: PositiveInt = 3
    """Prompts measured on validation examples at the end."""


@dataclass(frozen=True)
class TalkedPrompt:
    """A prompt of an earlier epoch: its text, what it earned, and the comments on its conversations."""

    text: str
    reward: float
    comments: str


async def rpo(run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config) -> Candidate:
    """Rewriting from comments on conversations; see the module."""
    turns = int(getattr(getattr(env, "world", None), "turns", 1)) if config.feedback == "td" else 1
    asks = 1 + (turns if config.feedback != "none" else 0)
    width = 1 + 2 * bool(config.gate)
    plan = fit(
        run,
        env,
        config.epochs,
        width,
        config.conversations,
        finalists=config.finalists,
        asks=asks / width,
        least=width,
    )
    archive, users, buffer = Archive(), infinite_batches(run.rng, env.train), list[TalkedPrompt]()
    await archive.validate(run, plan.env, [Candidate(start)])
    plan, firsts = await leave_zero(run, plan, archive, start, secrets)
    current = firsts[0].candidate if firsts else Candidate(start)
    for epoch in range(plan.rounds):
        policy = policy.adapt()
        rows = next_rows(users, plan.examples)
        talks = await trajectories(run, env, [(current.prompt, row) for row in rows])
        worst = sorted(talks, key=lambda talk: talk[1].reward)[: config.shown]
        text, reward = text_in(start, current.prompt), fmean(talk[1].reward for talk in talks)
        about = [PURPOSE, show_instruction(env.description, start, text, NOW)]
        comments = await comment(run, policy, about, worst, epoch, config)
        question = "\n\n".join(
            [*about, *entries_to_replay(run, buffer, config.replay), HERE, *show(worst), *comments, REQUEST]
        )
        written = await policy.rewrite(run, start, question, sample=epoch, text=text)
        buffer.append(TalkedPrompt(text, reward, "\n".join(comments)))
        for prompt in [one for one in written if one not in archive and not secrets(one.region_text())]:
            child = Candidate(prompt, (current.id,), f"epoch {epoch + 1}")
            if config.gate:
                fresh = next_rows(users, min(config.gate, plan.examples))
                before = await env.evaluate(run, current.prompt, fresh)
                after = await env.evaluate(run, prompt, fresh)
                child = Candidate(prompt, child.parents, child.operator, mean_score(after))
                archive.add(run, child)
                if sum(gains(before, after)) < 0:
                    continue
            current = await validate_leader(run, plan, archive, child)
    return await validate_finalists(run, plan, archive, [current, *archive.top(config.finalists)])


async def comment(
    run: Run, policy: LanguagePolicy, about: Sequence[str], talks: Sequence[Talk], epoch: int, config: Config
) -> list[str]:
    """Comments on conversations: after each turn, which knows no later one; or after the last; none where that is set."""
    most = max(len(played.turns) for played, _ in talks)
    comments: list[str] = []
    for turn in {"td": range(1, most + 1), "mc": range(most, most + 1), "none": range(0)}[config.feedback]:
        going = [talk for talk in talks if len(talk[0].turns) >= turn or config.feedback == "mc"]
        shown = show(going, turn if config.feedback == "td" else None)
        before = [f"{BEFORE}\n" + "\n".join(comments)] if comments else []
        request = TURN if config.feedback == "td" else WHOLE
        question = "\n\n".join([*about, SO_FAR, *shown, *before, request])
        sample = epoch * (most + 1) + turn
        for text in (await policy.write(run, question, "COMMENT", sample=sample))[:1]:
            comments.append(f"After turn {turn}: {text}" if config.feedback == "td" else text)
    return comments


def show(talks: Sequence[Talk], turns: int | None = None) -> list[str]:
    """Conversations as a model reads them: their first `turns` turns, or all with the reward and its critique."""
    shown = []
    for number, (played, rollout) in enumerate(talks, 1):
        lines = [f"Conversation {number}"]
        for turn in played.turns[:turns]:
            lines += [
                f"Seen: {shorten(turn.observation, LONGEST)}",
                f"Answered: {shorten(turn.text, LONGEST)}",
            ]
        if turns is None:
            last = [f"Seen: {shorten(played.last, LONGEST)}"] if played.last.strip() else []
            critique = [f"Critique: {shorten(rollout.critique, LONGEST)}"] if rollout.critique else []
            lines += [*last, f"Reward: {rollout.reward:.3g}", *critique]
        shown.append("\n".join(lines))
    return shown


def entries_to_replay(run: Run, buffer: Sequence[TalkedPrompt], most: int) -> list[str]:
    """Earlier prompts with their comments: the best, the latest, and others at random, `most` at most."""
    if not buffer or not most:
        return []
    chosen = dict.fromkeys([max(range(len(buffer)), key=lambda n: buffer[n].reward), len(buffer) - 1])
    rest = [number for number in range(len(buffer)) if number not in chosen]
    numbers = sorted([*chosen][:most] + run.rng.sample(rest, min(len(rest), max(0, most - len(chosen)))))
    entries = [
        f"Mean reward {buffer[n].reward:.3g}:\n{buffer[n].text}\n{buffer[n].comments}".strip()
        for n in numbers
    ]
    return [EARLIER, *entries]


PURPOSE = "You improve the instruction of an assistant that has conversations of several turns."
NOW = "The instruction now:"
SO_FAR = "Conversations that the assistant had with it:"
BEFORE = "What was said of earlier turns:"
TURN = (
    "Comment on the last turn shown. In two sentences at most: how will the user react next, and will the conversation succeed? "
    "Then say what the assistant should have done in this turn, as a rule that holds for other conversations too."
)
WHOLE = (
    "Comment on these conversations. Why did they succeed or fail, and in which turn was that decided? Say what the assistant "
    "should do, as rules that hold for other conversations too."
)
EARLIER = "Earlier instructions, and what was said of their conversations:"
HERE = "Conversations with the instruction now, and comments on them:"
REQUEST = (
    "Write the instruction anew, so that the comments would be heeded from the first turn on. Keep what works. It must hold for "
    "all conversations of this kind: name no single one."
)

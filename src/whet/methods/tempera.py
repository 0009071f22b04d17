"""TEMPERA: a small actor-critic learns to edit the prompt anew for every input.

Zhang, Wang, Zhou, Schuurmans, Gonzalez: TEMPERA: Test-Time Prompting via Reinforcement Learning. ICLR 2023.
arXiv:2211.11890. Section 3.

    pool <- P examples;  prompt <- instruction and the first S of them
    for update in 1..steps:
        for each of N inputs:
            for t in 1..T:
                a <- policy(embeddings of input, demonstrations, label words, phrases)
                apply a: exchange demonstrations, other label words, drop, bring back, add or turn phrases, or stop
                r <- scale x (score after - score before);   score = gap x (2.0 if right else 1.8)
        advantages by GAE, normalised; PPO
    use: for each input the likeliest edits, then one answer

Differences from the paper:
1. An action is scored from the embeddings of what it concerns, by attention over blocks, instead of by one output per
   action: what is learned about one demonstration serves for others.
2. The observation holds embeddings of the items, not of whole prompts, and nothing of the task model's answers: an
   input costs one task call when the editor is used.
3. Edits of the instruction are in (the published environment leaves them out); whole words may also be added, and label
   words are set for the whole prompt.
4. Demonstrations are exchanged by place, i < j, so that no exchange is mistaken for a stop.
5. Ties of label probabilities are masked by index, so that a uniform distribution is not rewarded.
6. Examples of the pool are not learned from as inputs: they would see their own answer.
7. `scale` is 1 instead of 100: it reaches the value loss only. Adam's rate is 2e-3 instead of 6e-4, because there are tens
   of updates instead of 1,500.
8. The state of the weights is chosen on validation examples, among some checks on the way, the start, and the start
   with its first demonstrations. Within a limit on calls, updates are cut.

Run it:  whet optimize TASK --method tempera --lm embedded/mlm
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.prompt import Prompt
from whet.rl.blob import read
from whet.rl.edited import edited, play
from whet.rl.editing import Space, usable
from whet.rl.editor import Editor, EditorSettings
from whet.rl.observation import Observer, embedder
from whet.rl.trained_candidates import TrainedCandidates
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.minibatch import minibatch
from whet.search.plan import share_out
from whet.search.vocabulary import vocabulary
from whet.types import Example, Message

CHECKS = 6  # times that the weights are validated on the way


@dataclass(frozen=True)
class Config:
    """Settings of TEMPERA."""

    steps: int = 60
    """Updates of the actor-critic."""
    n: int = 32
    """Inputs of an update, each edited once (N)."""
    edits: int = 4
    """Edits of a prompt at most (T; the paper: 8)."""
    shots: int = 2
    """Demonstrations in a prompt (S; the paper: 4)."""
    pool: int = 8
    """Demonstrations to choose from (P; the paper: 16)."""
    words: str = ""
    """Other words for the labels: sets separated by `;`, each with one word for every label, separated by `,`."""
    additions: int = 0
    """Words that may be added to the instruction: the most useful ones of the vocabulary."""
    scale: float = 1.0
    """Reward for one unit of score."""
    lr: float = 2e-3
    """Adam's rate."""
    entropy: float = 0.01
    """Weight of the entropy bonus."""


async def tempera(run: Run, env: Environment, policy: object, start: Prompt, config: Config) -> Candidate:
    """PPO over edits of the prompt, input by input; see the module. `policy` is not used."""
    if min(config.n, config.edits, config.shots + 1) < 1:
        raise UsageError(
            f"n and edits must be 1 or more, shots 0 or more: {config.n}, {config.edits}, {config.shots}."
        )
    fit = [e for e in env.train if usable(start, env, e)]
    most = min(config.pool, len(env.train) // 2) if config.shots else 0
    pool = minibatch(run.rng, fit, most, balanced=True)
    inputs = [e for e in env.train if e.id not in {p.id for p in pool}]
    observer = Observer(_space(env, start, pool, config), embedder(env))
    editor = Editor(observer.inputs, settings(config), run.rng.getrandbits(63))
    n = min(config.n, len(inputs))
    share = share_out(run, env, CHECKS - 1, 2, writes=False)
    each = n * (config.edits + 1)
    steps = config.steps if share.rollouts is None else min(config.steps, share.rollouts // each)
    archive = Archive()
    await archive.validate(run, share.env, [Candidate(start)])
    if observer.space.shots and share.validations > 2:
        shown = observer.space.prompt(observer.space.first())
        await archive.validate(run, share.env, [Candidate(shown, (start.id,), "demonstrations")])
    systems = TrainedCandidates(
        editor, start, "tempera", steps, min(steps, share.validations - len(archive.validated))
    )
    editor.notes.update(pool=[e.id for e in pool], start=[[m.role, m.content] for m in start.messages])

    async def step(run: Run, number: int) -> None:
        episodes = await play(run, env, editor, observer, minibatch(run.rng, inputs, n), config.scale)
        figures = editor.update(observer, episodes, run.rng.getrandbits(63))
        gain = sum(sum(e.rewards) for e in episodes) / len(episodes)
        run.log(
            "step", {"step": number, "reward": gain, **figures, "update_seconds": editor.seconds["update"]}
        )
        if systems.due(number):
            digest = await run.keep(editor)
            await systems.check(run, archive, edited(share.env, editor, observer, digest), digest)

    await run.train(steps, step, editor)
    return systems.recall(archive)


def settings(config: Config) -> EditorSettings:
    """Shape and update of the actor-critic."""
    return EditorSettings(config.edits, config.lr, config.entropy)


def deploy(env: Environment, policy: object, blob: bytes, config: Config) -> Environment:
    """The task with a trained editor at work. Raises UsageError when the blob or its demonstrations do not fit."""
    notes = read(blob, "an editor")[0]["notes"]
    known = {e.id: e for e in env.train}
    if not set(notes["pool"]) <= known.keys():
        raise UsageError("the editor's demonstrations are not among the task's training rows.")
    space = _space(
        env, Prompt(tuple(Message(*m) for m in notes["start"])), [known[one] for one in notes["pool"]], config
    )
    observer = Observer(space, embedder(env))
    editor = Editor(observer.inputs, settings(config), 0)
    editor.load(blob)
    return edited(env, editor, observer, hashlib.sha256(blob).hexdigest())


def _space(env: Environment, start: Prompt, pool: Sequence[Example], config: Config) -> Space:
    sets = [[word.strip() for word in one.split(",")] for one in config.words.split(";") if one.strip()]
    if wrong := [one for one in sets if len(one) != len(env.labels) or not all(one)]:
        raise UsageError(
            f"words: {','.join(wrong[0])} are {len(wrong[0])} words; there must be one for each of the "
            f"{len(env.labels)} labels: {', '.join(env.labels)}."
        )
    additions = vocabulary(env, config.additions) if config.additions else []
    return Space.of(start, env, pool, min(config.shots, len(pool)), sets, additions)

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

import numpy as np

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt
from whet.environments.environment import Environment, as_environment_type
from whet.errors import UsageError, named_fields
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rewards.scored import Gap
from whet.rl.blob import read_blob
from whet.rl.edit_space import EditState, Space, label_probabilities, usable_as_demonstration
from whet.rl.prompt_editor import (
    EditEpisode,
    EditorSettings,
    Observer,
    PromptEditor,
    SampledEdit,
    text_embedder,
)
from whet.rl.score_book import TrainedCandidates
from whet.run import Run, convert_record
from whet.search.archive import Archive, Candidate
from whet.search.minibatch import minibatch
from whet.search.plan import share_out
from whet.search.vocabulary import vocabulary
from whet.types import JSON, Completion, Example, Message, Rollout, Score, content_hash, mean_score

ENTRY = MethodEntry(
    "tempera",
    "TEMPERA: each input gets its own edits of the prompt",
    version=1,
    rank=80,
    when="the best prompt differs from input to input, and a small model scores labels",
    paper="Zhang et al., ICLR 2023",
    arxiv="2211.11890",
    needs=("label_scores",),
    trains="a small actor-critic on frozen embeddings",
    extra="embedded",
)

CHECKS = 6  # times that the weights are validated on the way
GAP = Gap(wrong=1.8, right=2.0)
"""The score of an answer: gap of the label probabilities, weighed by whether it is right (TEMPERA, section 3.3)."""


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of TEMPERA."""

    steps: NonNegativeInt = 60
    """Updates of the actor-critic."""
    n: PositiveInt = 32
    """Inputs of an update, each edited once (N)."""
    edits: PositiveInt = 4
    """Edits of a prompt at most (T; the paper: 8)."""
    shots: NonNegativeInt = 2
    """Demonstrations in a prompt (S; the paper: 4)."""
    pool: PositiveInt = 8
    """Demonstrations to choose from (P; the paper: 16)."""
    words: str = ""
    """Other words for the labels: sets separated by `;`, each with one word for every label, separated by `,`."""
    additions: NonNegativeInt = 0
    """Words that may be added to the instruction: the most useful ones of the vocabulary."""
    scale: NonNegativeFloat = 1.0
    """Reward for one unit of score."""
    lr: NonNegativeFloat = 2e-3
    """Adam's rate."""
    entropy: NonNegativeFloat = 0.01
    """Weight of the entropy bonus."""


async def tempera(run: Run, env: Environment, policy: object, start: Prompt, config: Config) -> Candidate:
    """PPO over edits of the prompt, input by input; see the module. `policy` is not used."""
    if min(config.n, config.edits, config.shots + 1) < 1:
        raise UsageError(
            f"n and edits must be 1 or more, shots 0 or more: {config.n}, {config.edits}, {config.shots}."
        )
    fit = [e for e in env.train if usable_as_demonstration(start, env, e)]
    most = min(config.pool, len(env.train) // 2) if config.shots else 0
    pool = minibatch(run.rng, fit, most, balanced=True)
    inputs = [e for e in env.train if e.id not in {p.id for p in pool}]
    observer = Observer(_space(env, start, pool, config), text_embedder(env))
    editor = PromptEditor(observer.inputs, settings(config), run.rng.getrandbits(63))
    n = min(config.n, len(inputs))
    share = share_out(run, env, CHECKS - 1, 2, writes=False)
    steps = share.payable(config.steps, n * (config.edits + 1))
    archive = Archive()
    await archive.validate(run, share.env, [Candidate(start)])
    if observer.space.shots and share.validations > 2:
        shown = observer.space.prompt(observer.space.first())
        await archive.validate(run, share.env, [Candidate(shown, (start.id,), "demonstrations")])
    systems = TrainedCandidates(
        editor, start, "tempera", steps, min(steps, share.validations - len(archive.validated))
    )
    editor.notes.update(pool=[e.id for e in pool], start=[m.as_list() for m in start.messages])

    async def step(run: Run, number: int) -> None:
        episodes = await play(run, env, editor, observer, minibatch(run.rng, inputs, n), config.scale)
        figures = editor.update(observer, episodes, run.rng.getrandbits(63))
        gain = sum(sum(e.rewards) for e in episodes) / len(episodes)
        run.log(
            "step", {"step": number, "reward": gain, **figures, "update_seconds": editor.seconds["update"]}
        )
        if systems.due(number):
            digest = await run.keep(editor)
            await systems.validate(
                run, archive, edited_environment(share.env, editor, observer, digest), digest
            )

    await run.train(steps, step, editor)
    return systems.recall(archive)


def settings(config: Config) -> EditorSettings:
    """Shape and update of the actor-critic."""
    return EditorSettings(config.edits, config.lr, config.entropy)


def deploy(env: Environment, policy: object, blob: bytes, config: Config) -> Environment:
    """The task with a trained editor at work. Raises UsageError when the blob or its demonstrations do not fit."""
    notes = read_blob(blob, "an editor")[0]["notes"]
    known = {e.id: e for e in env.train}
    if not set(notes["pool"]) <= known.keys():
        raise UsageError("the editor's demonstrations are not among the task's training rows.")
    space = _space(
        env, Prompt(tuple(Message(*m) for m in notes["start"])), [known[one] for one in notes["pool"]], config
    )
    observer = Observer(space, text_embedder(env))
    editor = PromptEditor(observer.inputs, settings(config), 0)
    editor.load(blob)
    return edited_environment(env, editor, observer, hashlib.sha256(blob).hexdigest())


def _space(env: Environment, start: Prompt, pool: Sequence[Example], config: Config) -> Space:
    sets = [[word.strip() for word in one.split(",")] for one in config.words.split(";") if one.strip()]
    if wrong := [one for one in sets if len(one) != len(env.labels) or not all(one)]:
        raise UsageError(
            f"words: {','.join(wrong[0])} are {len(wrong[0])} words; there must be one for each of the "
            f"{len(env.labels)} labels: {', '.join(env.labels)}."
        )
    additions = vocabulary(env, config.additions) if config.additions else []
    return Space.of(start, env, pool, min(config.shots, len(pool)), sets, additions)


async def play(
    run: Run,
    env: Environment,
    editor: PromptEditor,
    observer: Observer,
    batch: Sequence[Example],
    scale: float,
) -> list[EditEpisode]:
    """Edit the prompt for each example, by the policy's chance; a reward is `scale` x the change of its score.

    Every state that an edit leads to costs one task call.
    """
    space, texts = observer.space, [example.user_text for example in batch]
    states = [space.first()] * len(batch)
    scores = await _scores(run, env, space, states, batch)
    paths: list[list[tuple[EditState, int, float, float, float]]] = [[] for _ in batch]
    for _ in range(editor.settings.edits):
        going = [i for i, state in enumerate(states) if not state.stopped]
        actions = await _actions(run, editor, observer, [states[i] for i in going], [texts[i] for i in going])
        before, old = [states[i] for i in going], [scores[i] for i in going]
        for i, edit in zip(going, actions, strict=True):
            states[i] = space.after(states[i], edit.action)
        moved = [i for i in going if not states[i].stopped]
        rewards = await _scores(run, env, space, [states[i] for i in moved], [batch[i] for i in moved])
        for i, score in zip(moved, rewards, strict=True):
            scores[i] = score
        for i, edit, state, score in zip(going, actions, before, old, strict=True):
            reward = scale * (scores[i] - score)
            paths[i].append((state, edit.action, reward, edit.logprob, edit.value))
    return [
        EditEpisode(text, *map(list, zip(*path, strict=True)))
        for text, path in zip(texts, paths, strict=True)
    ]


async def _actions(
    run: Run, editor: PromptEditor, observer: Observer, states: Sequence[EditState], texts: Sequence[str]
) -> list[SampledEdit]:
    seed = run.rng.getrandbits(63)

    async def draw() -> JSON:
        edits = editor.sample(observer, states, texts, seed) if states else []
        return [[edit.action, edit.logprob, edit.value] for edit in edits]

    edits = convert_record(await run.effect("edit", draw), list[tuple[int, float, float]])
    return [SampledEdit(*edit) for edit in edits]


async def _scores(
    run: Run, env: Environment, space: Space, states: Sequence[EditState], examples: Sequence[Example]
) -> list[float]:
    """The piecewise gap of each example under its own state."""

    async def compute() -> JSON:
        probs = await label_probabilities(env, space, states, examples)
        right = np.array([space.labels.index(str(e.target)) for e in examples], dtype=np.int64)
        scores: JSON = GAP.from_labels(probs[None], right)[0].tolist() if examples else []
        return scores

    args = content_hash([[space.prompt(s).id, s.words, e.id] for s, e in zip(states, examples, strict=True)])
    gaps = await run.effect("gaps", compute, args, role="task", calls=len(examples))
    return convert_record(gaps, list[float])


@dataclass(frozen=True)
class Edited(Environment):
    """A task that scores labels, each input under the prompt that `editor` makes for it by its likeliest edits.

    `system` is the digest of the editor's weights. An input costs one task call: the editor asks for nothing.
    """

    editor: PromptEditor | None = None
    observer: Observer | None = None
    system: str = ""

    async def evaluate(
        self, run: Run, prompt: Prompt, examples: Sequence[Example], sample: int = 0
    ) -> list[Rollout]:
        """One rollout per example, in order; its prompt id is that of the edited prompt."""
        editor, observer = self.editor, self.observer
        assert editor is not None and observer is not None
        if not examples:
            return []
        space = observer.space
        states = editor.greedy(observer, [example.user_text for example in examples])

        async def compute() -> JSON:
            probs = await label_probabilities(self, space, states, examples)
            rows: JSON = np.round(probs, 6).tolist()
            return rows

        args = content_hash([self.system, prompt.id, [e.id for e in examples]])
        record = await run.effect("edited", compute, args, role="task", calls=len(examples))
        rows = convert_record(record, list[list[float]])
        rollouts = []
        for example, state, row in zip(examples, states, rows, strict=True):
            answer = space.labels[int(np.argmax(row))]
            completion = Completion(answer, label_probs=dict(zip(space.labels, row, strict=True)))
            rollouts.append(await self._grade(run, space.prompt(state), example, completion))
        return rollouts

    async def texts(self, run: Run, prompt: Prompt, examples: Sequence[Example]) -> list[str]:
        """The editable text that each example is given, in order."""
        assert self.editor is not None and self.observer is not None
        states = self.editor.greedy(self.observer, [example.user_text for example in examples])
        return [self.observer.space.prompt(state).region_text() for state in states]

    async def score(self, run: Run, prompts: Sequence[Prompt], examples: Sequence[Example]) -> list[Score]:
        """Mean reward over the examples, once for each prompt."""
        return [mean_score(await self.evaluate(run, prompt, examples)) for prompt in prompts]


def edited_environment(
    env: Environment, editor: PromptEditor, observer: Observer, digest: str
) -> Environment:
    """The task with an editor at work; `digest` is that of its saved weights."""
    return as_environment_type(env, Edited, editor=editor, observer=observer, system=digest)

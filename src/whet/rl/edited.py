"""Edits at work: episodes to learn from, and an environment in which every input gets its own edits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from whet.environments.environment import Environment
from whet.prompt import Prompt
from whet.rewards.scored import Gap
from whet.rl.editing import EditState, Space, label_probabilities
from whet.rl.editor import EditEpisode, Editor
from whet.rl.observation import Observer
from whet.run import Run
from whet.types import JSON, Completion, Example, Rollout, Score, content_hash, mean_score

GAP = Gap(wrong=1.8, right=2.0)
"""The score of an answer: gap of the label probabilities, weighed by whether it is right (TEMPERA, section 3.3)."""


async def play(
    run: Run, env: Environment, editor: Editor, observer: Observer, batch: Sequence[Example], scale: float
) -> list[EditEpisode]:
    """Edit the prompt for each example, by the policy's chance; a reward is `scale` x the change of its score.

    Every state that an edit leads to costs one task call.
    """
    space, texts = observer.space, [example.user_text for example in batch]
    states = [space.first()] * len(batch)
    scores = await _scores(run, env, space, states, batch)
    paths: list[list[tuple[EditState, int, float]]] = [[] for _ in batch]
    for _ in range(editor.settings.edits):
        going = [i for i, state in enumerate(states) if not state.stopped]
        actions = await _actions(run, editor, observer, [states[i] for i in going], [texts[i] for i in going])
        before, old = [states[i] for i in going], [scores[i] for i in going]
        for i, action in zip(going, actions, strict=True):
            states[i] = space.after(states[i], action)
        moved = [i for i in going if not states[i].stopped]
        rewards = await _scores(run, env, space, [states[i] for i in moved], [batch[i] for i in moved])
        for i, score in zip(moved, rewards, strict=True):
            scores[i] = score
        for i, action, state, score in zip(going, actions, before, old, strict=True):
            paths[i].append((state, action, scale * (scores[i] - score)))
    return [
        EditEpisode(text, *map(list, zip(*path, strict=True)))
        for text, path in zip(texts, paths, strict=True)
    ]


async def _actions(
    run: Run, editor: Editor, observer: Observer, states: Sequence[EditState], texts: Sequence[str]
) -> list[int]:
    seed = run.rng.getrandbits(63)

    async def draw() -> JSON:
        return [*editor.sample(observer, states, texts, seed)] if states else []

    actions: Any = await run.effect("edit", draw)
    return [int(action) for action in actions]


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
    gaps: Any = await run.effect("gaps", compute, args, role="task", calls=len(examples))
    return [float(score) for score in gaps]


@dataclass(frozen=True)
class Edited(Environment):
    """A task that scores labels, each input under the prompt that `editor` makes for it by its likeliest edits.

    `system` is the digest of the editor's weights. An input costs one task call: the editor asks for nothing.
    """

    editor: Editor | None = None
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
        rows: Any = await run.effect("edited", compute, args, role="task", calls=len(examples))
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


def edited(env: Environment, editor: Editor, observer: Observer, digest: str) -> Environment:
    """The task with an editor at work; `digest` is that of its saved weights."""
    kept = {f.name: getattr(env, f.name) for f in fields(Environment)}
    return Edited(**kept, editor=editor, observer=observer, system=digest)

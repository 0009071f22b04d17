"""The actor-critic that edits a prompt for one input; TEMPERA (Zhang et al., ICLR 2023, arXiv:2211.11890), section 3.

It sees frozen embeddings: a block for the input, and one for each demonstration of the pool, set of words and phrase,
made of the item's embedding, the input's and their product, normalised by running mean and variance, with what the state
says of the item. Attention mixes the blocks. An action is scored from the blocks that it concerns, so that what is learned
about one demonstration serves for others.

Update: PPO (Schulman et al. 2017, arXiv:1707.06347) on advantages by GAE, with a clipped value loss.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from whet.environments.environment import Environment
from whet.rl.advantages import gae
from whet.rl.edit_space import KINDS, Action, EditState, Space
from whet.rl.losses import ppo
from whet.rl.network import TrainedNetwork
from whet.rl.policy_model.learning import memory

DISCOUNT = 0.999  # within an episode, the paper's
FARTHEST = 10.0  # standard deviations of a normalised observation
QUERY, EXAMPLE, WORDS, PHRASE = range(4)
KINDS_OF_BLOCKS = 8  # each kind in the prompt and out of it
DISTINCT_POSITIONS = 32  # places that are told apart; those further back are alike

Embed = Callable[[Sequence[str]], Tensor]
"""Frozen embeddings of texts, float32 (n, d)."""


def text_embedder(env: Environment) -> Embed:
    """The task model's own embeddings of whole texts where it has them, else those of the embedded encoder.

    Raises UsageError when neither is installed.
    """
    own: Embed | None = getattr(env.model, "embed", None)
    if own is not None:
        return own
    from whet.models.embedded import load

    embed: Embed = load("encoder").embed  # type: ignore[attr-defined]
    return embed


@dataclass(frozen=True)
class EditObservation:
    """Of n states, each with B blocks: `blocks` (n, B, 3 d), their `kinds` and `places` (n, B), the number of `edits`
    made so far (n,), and which actions are `allowed` (n, A). Block 0 is the input's."""

    blocks: Tensor
    kinds: Tensor
    places: Tensor
    edits: Tensor
    allowed: Tensor

    def part(self, rows: Tensor) -> EditObservation:
        """Some of the states."""
        fields = (self.blocks, self.kinds, self.places, self.edits, self.allowed)
        return EditObservation(*(field[rows] for field in fields))


class Observer:
    """Observations of a space's states. `concerned`: for each action its kind and the two blocks that it concerns, int64
    (A, 3). Embeddings of inputs are computed once."""

    def __init__(self, space: Space, embed: Embed) -> None:
        shown = [f"{e.user_text} {space.words[0][space.labels.index(str(e.target))]}" for e in space.pool]
        self.space, self._embed = space, embed
        self._items = embed([*shown, *(" ".join(words) for words in space.words), *space.phrases]).clone()
        self._texts: dict[str, Tensor] = {}
        self.concerned = torch.tensor([self._parameters_of(action) for action in space.actions])

    @property
    def inputs(self) -> int:
        """Numbers of a block: three times the width of an embedding."""
        return 3 * self._items.shape[1]

    def see(self, states: Sequence[EditState], texts: Sequence[str]) -> EditObservation:
        """The observation of states, each for an input."""
        new = [text for text in dict.fromkeys(texts) if text not in self._texts]
        if new:
            self._texts.update(zip(new, self._embed(new).clone(), strict=True))
        query = torch.stack([self._texts[text] for text in texts])[:, None]
        index, kinds, places = (torch.tensor(part) for part in zip(*map(self._row, states), strict=True))
        items = torch.cat([query, self._items[index]], 1)  # (n, B, d)
        blocks = torch.cat([items, query.expand_as(items), items * query], -1)
        front = torch.zeros(len(states), 1, dtype=torch.long)
        allowed = torch.tensor([self.space.mask_actions(state).tolist() for state in states])
        edits = torch.tensor([float(state.edits) for state in states])
        return EditObservation(
            blocks, torch.cat([front + 1, kinds], 1), torch.cat([front, places], 1), edits, allowed
        )

    def _row(self, state: EditState) -> tuple[list[int], list[int], list[int]]:
        """Of the blocks behind the input's: number of the item, kind, place."""
        space = self.space
        pool, sets, phrases = len(space.pool), len(space.words), len(space.phrases)
        index = [*state.pool, *range(pool, pool + sets + phrases)]
        on = [
            *(at < space.shots for at in range(pool)),
            *(m == state.words for m in range(sets)),
            *state.kept,
        ]
        roles = [EXAMPLE] * pool + [WORDS] * sets + [PHRASE] * phrases
        order = [state.order.index(k) if k < space.own else k for k in range(phrases)]
        places = [*range(pool), *range(sets), *order]
        kinds = [2 * role + shown for role, shown in zip(roles, on, strict=True)]
        return index, kinds, [min(place, DISTINCT_POSITIONS - 1) for place in places]

    def _parameters_of(self, action: Action) -> tuple[int, int, int]:
        pool, sets = len(self.space.pool), len(self.space.words)
        before = {"exchange": 1, "words": 1 + pool, "keep": 1 + pool + sets, "turn": 1 + pool + sets}
        kind = KINDS.index(action.kind)
        if action.kind == "stop":
            return kind, 0, 0
        second = action.first if action.kind in ("words", "keep") else action.second
        return kind, before[action.kind] + action.first, before[action.kind] + second


@dataclass(frozen=True)
class EditorSettings:
    """Shape and update of an editor."""

    edits: int
    """Edits of an input at most."""
    lr: float
    """Adam's rate."""
    entropy: float = 0.01
    """Weight of the entropy bonus."""
    value: float = 0.5
    """Weight of the value loss."""
    width: int = 64
    """Numbers of a block."""
    layers: int = 2
    """Layers of attention."""
    max_norm: float = 0.5
    """The norm at which a gradient is clipped."""
    epochs: int = 4
    """Passes over the episodes."""
    minibatches: int = 4
    """Parts of a pass."""
    clip: float = 0.2
    """PPO's clip range."""
    lam: float = 0.95
    """GAE's lambda."""


@dataclass(frozen=True)
class EditEpisode:
    """The edits for one input."""

    text: str
    """The input."""
    states: Sequence[EditState]
    """The states in which the actions were taken."""
    actions: Sequence[int]
    rewards: Sequence[float]
    logprobs: Sequence[float]
    """Log-probabilities of the actions under the policy that took them."""
    values: Sequence[float]
    """Values of the states by the policy that took them."""


@dataclass(frozen=True)
class SampledEdit:
    """An action with its log-probability (natural), and the value of the state that it was taken in."""

    action: int
    logprob: float
    value: float


class Network(nn.Module):
    """Logits of the actions (n, A) and values of the states (n,) from blocks; nearly uniform at first."""

    def __init__(self, inputs: int, settings: EditorSettings) -> None:
        super().__init__()
        width = settings.width
        self.edits = settings.edits
        self.project = nn.Linear(inputs, width)
        self.kind = nn.Embedding(KINDS_OF_BLOCKS, width)
        self.place = nn.Embedding(DISTINCT_POSITIONS, width)
        self.progress = nn.Linear(1, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, 4, 2 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(settings.layers)
        )
        self.first, self.second, self.whole = (nn.Linear(width, width) for _ in range(3))
        self.doing = nn.Embedding(len(KINDS), width)
        self.logit, self.value = (
            nn.Linear(width, 1),
            nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)),
        )
        nn.init.zeros_(self.logit.weight)

    def forward(self, seen: EditObservation, blocks: Tensor, concerned: Tensor) -> tuple[Tensor, Tensor]:
        """`blocks`: the normalised blocks of what is seen, (n, B, 3 d); `concerned` (A, 3): see `Observer`."""
        progress = self.progress(seen.edits[:, None, None] / self.edits)
        x = self.project(blocks) + self.kind(seen.kinds) + self.place(seen.places) + progress
        for layer in self.layers:
            x = layer(x)
        first, second = x[:, concerned[:, 1]], x[:, concerned[:, 2]]
        mixed = self.first(first) + self.second(second) + self.whole(x[:, :1]) + self.doing(concerned[:, 0])
        logits = self.logit(mixed.tanh())[..., 0]
        return logits.masked_fill(~seen.allowed, -torch.inf), self.value(x[:, 0])[..., 0]


class PromptEditor(TrainedNetwork):
    """A policy over edits with its critic, optimiser, normaliser, and a place for bookkeeping.

    `inputs`: numbers of a block, three times the width of an embedding. `seed` decides the first weights.
    """

    def __init__(self, inputs: int, settings: EditorSettings, seed: int) -> None:
        self.settings = settings
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._network = Network(inputs, settings).train()
        self._norm = {"count": torch.zeros(1), "mean": torch.zeros(inputs), "square": torch.ones(inputs)}
        super().__init__("editor", dict(self._network.named_parameters()), settings.lr, {"norm": self._norm})

    def _judge(self, observer: Observer, seen: EditObservation) -> tuple[Tensor, Tensor]:
        deviation = (self._norm["square"] - self._norm["mean"].square()).clamp_min(1e-8).sqrt()
        blocks = ((seen.blocks - self._norm["mean"]) / deviation).clamp(-FARTHEST, FARTHEST)
        judgement: tuple[Tensor, Tensor] = self._network(seen, blocks, observer.concerned)
        return judgement

    @torch.no_grad()
    def sample(
        self, observer: Observer, states: Sequence[EditState], texts: Sequence[str], seed: int
    ) -> list[SampledEdit]:
        """An action for each state and input. The seed is all the chance there is."""
        logits, values = self._judge(observer, observer.see(states, texts))
        generator = torch.Generator().manual_seed(seed)
        actions = torch.multinomial(logits.softmax(-1), 1, generator=generator)
        logprobs = logits.log_softmax(-1).gather(1, actions)[:, 0]
        rows = zip(actions[:, 0].tolist(), logprobs.tolist(), values.tolist(), strict=True)
        return [SampledEdit(*row) for row in rows]

    @torch.no_grad()
    def greedy(self, observer: Observer, texts: Sequence[str]) -> list[EditState]:
        """The state that the likeliest edits lead to, for each input."""
        space = observer.space
        states = [space.first()] * len(texts)
        for _ in range(self.settings.edits):
            open_ = [i for i, state in enumerate(states) if not state.stopped]
            if not open_:
                break
            seen = observer.see([states[i] for i in open_], [texts[i] for i in open_])
            for i, action in zip(open_, self._judge(observer, seen)[0].argmax(-1).tolist(), strict=True):
                states[i] = space.after(states[i], action)
        return states

    def update(self, observer: Observer, episodes: Sequence[EditEpisode], seed: int) -> dict[str, float]:
        """PPO on the edits of some episodes; mean entropy in nats, value loss, share of clipped ratios, `memory` (GiB).

        The normaliser learns what was seen first, so that the old policy is the one that was recorded, not what the new
        normaliser makes of its weights. The seed decides the minibatches.
        """
        began = time.perf_counter()
        states = [state for episode in episodes for state in episode.states]
        seen = observer.see(states, [e.text for e in episodes for _ in e.states])
        self._notice(seen.blocks)
        taken = torch.tensor([action for episode in episodes for action in episode.actions])
        old = torch.tensor([logprob for episode in episodes for logprob in episode.logprobs])
        before = torch.tensor([value for episode in episodes for value in episode.values])
        advantages, returns = self._advantages(episodes)
        figures: list[list[float]] = []
        generator = torch.Generator().manual_seed(seed)
        for _ in range(self.settings.epochs):
            order = torch.randperm(len(taken), generator=generator)
            for part in order.tensor_split(min(self.settings.minibatches, len(order))):
                logits, values = self._judge(observer, seen.part(part))
                logp = logits.log_softmax(-1)
                chosen = logp.gather(1, taken[part][:, None])[:, 0]
                clip = self.settings.clip
                surrogate = ppo(chosen, old[part], advantages[part], clip, clip).mean()
                entropy = -(logp.exp() * logp.clamp_min(-100.0)).sum(-1).mean()
                error = self._value_loss(values, before[part], returns[part])
                loss = surrogate - self.settings.entropy * entropy + self.settings.value * error
                gradients = torch.autograd.grad(loss, list(self._weights.values()), materialize_grads=True)
                self._adam.step(gradients, self.settings.max_norm)
                moved = ((chosen - old[part]).exp() - 1).abs() > clip
                figures.append([float(entropy.detach()), float(error.detach()), float(moved.float().mean())])
        self.seconds["update"] += time.perf_counter() - began
        names = ("entropy", "value_loss", "clipped")
        means = dict(zip(names, torch.tensor(figures).mean(0).tolist(), strict=True))
        return {**means, "memory": memory("cpu")}

    def _value_loss(self, values: Tensor, before: Tensor, returns: Tensor) -> Tensor:
        near = before + (values - before).clamp(-self.settings.clip, self.settings.clip)
        return 0.5 * torch.max((values - returns).square(), (near - returns).square()).mean()

    def _advantages(self, episodes: Sequence[EditEpisode]) -> tuple[Tensor, Tensor]:
        """Advantages with mean 0 and standard deviation 1 over all edits, and returns; both (n,)."""
        advantages: list[float] = []
        returns: list[float] = []
        for episode in episodes:
            a, r = gae(episode.rewards, episode.values, DISCOUNT, self.settings.lam)
            advantages, returns = [*advantages, *a], [*returns, *r]
        estimates = torch.tensor(advantages)
        return (estimates - estimates.mean()) / (estimates.std(correction=0) + 1e-8), torch.tensor(returns)

    @torch.no_grad()
    def _notice(self, blocks: Tensor) -> None:
        """Running mean and mean square of the entries of all blocks seen so far."""
        rows = blocks.flatten(0, 1)
        self._norm["count"] += len(rows)
        share = len(rows) / float(self._norm["count"])
        self._norm["mean"].lerp_(rows.mean(0), share)
        self._norm["square"].lerp_(rows.square().mean(0), share)

"""A policy over prompt tokens: a small trained network between a frozen encoder and its frozen output matrix.

RLPrompt (Deng et al., EMNLP 2022, arXiv:2205.12548) and its update, soft Q-learning by path consistency
(Guo et al. 2021, arXiv:2106.07704). The logit of a word is its soft Q-value, the log-sum-exp of all logits is
the value of a state, and their difference is the log-probability of the word.

    logits_t = head @ MLP(normalise(state_t))        MLP: d -> hidden -> d, ReLU, no residual connection

The state is that behind the words written so far; of a policy that is conditioned on an input, behind the input and these words.

Only the MLP is trained, and only the MLP has a target copy (a Polyak average). The frozen states of sampled
words are computed once and serve the sampling, the loss and the target alike.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from whet.errors import UsageError
from whet.rl.network import TrainedNetwork, Weights

INIT_GAIN = 1e-4
INIT_BIAS = -1e-4
MOST_READ = 128
"""Pieces of an input that a policy reads at most: the first ones."""


class TokenBackbone(Protocol):
    """A frozen model that reads words: what a policy stands on. d is its width.

    `embeddings`: float32 (pieces, d), the output matrix of all its pieces.
    """

    embeddings: Tensor

    def vocabulary(self, n: int) -> list[str]:
        """`n` whole words that are single pieces, the most useful first."""
        ...

    def ids(self, words: Sequence[str]) -> Tensor:
        """Piece numbers of words, int64 (len(words),). Raises UsageError for one that is no single piece."""
        ...

    def read(self, text: str) -> list[int]:
        """Piece numbers of any text."""
        ...

    def hidden(self, pieces: Tensor) -> Tensor:
        """State after the pieces: int64 (k, t), t >= 0, to float32 (k, d), without gradient."""
        ...


@dataclass(frozen=True)
class TokenPolicySettings:
    """Shape and update of a token policy."""

    length: int = 5
    """Words of a prompt (T)."""
    vocabulary: int = 1000
    """Words to choose from."""
    top_k: int = 256
    """A word is drawn among so many likeliest ones."""
    lr: float = 2e-3
    """Adam's rate."""
    hidden: int = 512
    """Hidden units."""
    polyak: float = 0.05
    """The share by which the target moves at each update."""
    clip: float = 5.0
    """The norm at which a gradient is clipped."""
    centre: bool = True
    """Whether the target's values move to a mean residual of zero."""


@dataclass(frozen=True)
class Visits:
    """Prompts `ids` (k, T), the distinct `states` (n, d) before their words, and which one stands before each
    word: `place` (k, T)."""

    ids: Tensor
    states: Tensor
    place: Tensor


class TokenPolicy(TrainedNetwork):
    """Distribution over prompts of `settings.length` words, with its optimiser and a place for bookkeeping.

    `words`: the vocabulary, the `preferred` ones that the backbone knows first; a word is named by its position.
    `seconds`: time that this process spent in the backbone and in updates. `seed` decides the first weights.

    Raises UsageError when the backbone has fewer words than the settings ask for.
    """

    def __init__(
        self,
        backbone: TokenBackbone,
        settings: TokenPolicySettings,
        seed: int,
        preferred: Sequence[str] = (),
    ) -> None:
        self.settings = settings
        self.words = _words(backbone, preferred, settings.vocabulary)
        self._place = {word: i for i, word in enumerate(self.words)}
        self._backbone = backbone
        self._pieces = backbone.ids(self.words)
        self._head = _unit_scale(backbone.embeddings[self._pieces].float())
        weights = _first_weights(self._head.shape[1], settings.hidden, seed)
        self._target = {name: weight.clone() for name, weight in weights.items()}
        super().__init__("a token policy", weights, settings.lr, {"target": self._target})
        self.seconds["backbone"] = 0.0
        self._start: Tensor | None = None
        self._last: Visits | None = None

    def text(self, ids: list[int]) -> str:
        """The words of a prompt, joined by single spaces."""
        return " ".join(self.words[i] for i in ids)

    def places(self, text: str) -> list[int]:
        """The prompt that `text` made this text of."""
        return [self._place[word] for word in text.split(" ")]

    def sample(self, k: int, seed: int, source: str = "") -> list[list[int]]:
        """`k` prompts as positions in `words`, (k, T): temperature 1 among the `top_k` likeliest words. They are for the
        input `source`, if it is not empty.

        The seed is all the chance there is: the same weights and seed give the same prompts.
        """
        generator = torch.Generator().manual_seed(seed)
        most = min(self.settings.top_k, len(self.words))

        def draw(logits: Tensor) -> Tensor:
            top = logits.topk(most, sorted=False)
            return top.indices.gather(1, torch.multinomial(top.values.softmax(-1), 1, generator=generator))

        visits = self._roll(k, draw, source)
        if not source:
            self._last = visits
        ids: list[list[int]] = visits.ids.tolist()
        return ids

    def greedy(self, source: str = "") -> list[int]:
        """The prompt of the likeliest word at each place, (T,); for the input `source`, if it is not empty."""
        ids: list[int] = self._roll(1, lambda logits: logits.argmax(-1, keepdim=True), source).ids[0].tolist()
        return ids

    def update(
        self,
        prompts: list[list[int]],
        rewards: list[float],
        temperature: float,
        sources: Sequence[str] = (),
    ) -> float:
        """One step of soft Q-learning on `prompts` (k, T) with shaped rewards (k,).

        `temperature` weighs the entropy against the reward: rewards are divided by it and the loss is
        multiplied by it, so that the reward's share of the gradient stays the same. With `settings.centre` the target's
        values are moved to a mean residual of zero (see `centre_values`). The prompts may be earlier ones: path consistency holds
        for every sequence of words, whoever chose it. `sources` has the input of each prompt, where the policy reads
        one. Returns the mean entropy of a word in nats.
        """
        ids = torch.tensor(prompts, dtype=torch.long)
        visits = self._visits_of_inputs(ids, sources) if sources else self._visits(ids)
        began = time.perf_counter()
        with torch.no_grad():
            for name, target in self._target.items():
                target.lerp_(self._weights[name], self.settings.polyak)
            values = self._soft_q(self._target, visits.states).logsumexp(-1)[visits.place]  # (k, T)
        weights = {name: weight.detach().requires_grad_() for name, weight in self._weights.items()}
        log_probs = self._soft_q(weights, visits.states).log_softmax(-1)  # (n, V)
        taken = log_probs[visits.place, ids]  # (k, T)
        reward = torch.tensor(rewards, dtype=torch.float32) / temperature
        if self.settings.centre:
            values = centre_values(taken.detach(), values, reward)
        single, multi = path_consistency(taken, values, reward)
        loss = temperature * 0.5 * (single + multi).mean()
        gradients = torch.autograd.grad(loss, list(weights.values()))
        self._adam.step(gradients, self.settings.clip)
        with torch.no_grad():
            entropy = float(-(log_probs.exp() * log_probs).sum(-1)[visits.place].mean())
        self.seconds["update"] += time.perf_counter() - began
        return entropy

    def _visits(self, ids: Tensor) -> Visits:
        """The states before each word of `ids` (k, T); those of the last sample are kept."""
        if self._last is None or not torch.equal(self._last.ids, ids):
            self._last = self._roll(len(ids), _replay(ids))
        return self._last

    def _visits_of_inputs(self, ids: Tensor, sources: Sequence[str]) -> Visits:
        """The states before each word of `ids` (k, T), each prompt behind its own input."""
        states: list[Tensor] = []
        place = torch.zeros_like(ids)
        for text in dict.fromkeys(sources):
            rows = [i for i, one in enumerate(sources) if one == text]
            visits = self._roll(len(rows), _replay(ids[rows]), text)
            place[rows] = visits.place + sum(map(len, states))
            states.append(visits.states)
        return Visits(ids, torch.cat(states), place)

    @torch.no_grad()
    def _roll(self, k: int, choose: Callable[[Tensor], Tensor], source: str = "") -> Visits:
        """Write `k` prompts word by word behind the input `source`; `choose` takes logits (k, V) to words (k, 1)."""
        read = torch.tensor(self._backbone.read(source)[:MOST_READ] if source else [], dtype=torch.long)
        ids = torch.zeros(k, 0, dtype=torch.long)
        states: list[Tensor] = []
        places: list[Tensor] = []
        seen = 0
        for _ in range(self.settings.length):
            prefixes, place = (
                torch.unique(ids, dim=0, return_inverse=True) if ids.shape[1] else (ids[:1], _zeros(k))
            )
            states.append(self._encode(prefixes, read))
            places.append(place + seen)
            seen += len(prefixes)
            ids = torch.cat([ids, choose(self._soft_q(self._weights, states[-1])[place])], 1)
        return Visits(ids, torch.cat(states), torch.stack(places, 1))

    def _soft_q(self, weights: Weights, states: Tensor) -> Tensor:
        inner = F.linear(states, weights["first.weight"], weights["first.bias"]).relu()
        return F.linear(F.linear(inner, weights["second.weight"], weights["second.bias"]), self._head)

    def _encode(self, prefixes: Tensor, read: Tensor) -> Tensor:
        """States (n, d) after the pieces `read` and prefixes (n, t), standardised over their d entries.

        The start without an input is encoded once.
        """
        first = prefixes.shape[1] == 0 and not len(read)
        if first and self._start is not None:
            return self._start
        began = time.perf_counter()
        pieces = torch.cat([read.expand(len(prefixes), -1), self._pieces[prefixes]], 1)
        hidden = self._backbone.hidden(pieces)
        self.seconds["backbone"] += time.perf_counter() - began
        states = F.layer_norm(hidden.float(), hidden.shape[-1:])
        if first:
            self._start = states
        return states

    def load(self, blob: bytes) -> None:
        """Restore what `save` returned; the policy goes on bit for bit as the saved one would have."""
        super().load(blob)
        self._last = None


def _replay(ids: Tensor) -> Callable[[Tensor], Tensor]:
    """A choice of the words `ids` (k, T) again, a position a call, whatever the logits are."""
    steps = iter(ids.unbind(1))
    return lambda logits: next(steps)[:, None]


def _zeros(k: int) -> Tensor:
    return torch.zeros(k, dtype=torch.long)


def path_consistency(log_probs: Tensor, values: Tensor, rewards: Tensor) -> tuple[Tensor, Tensor]:
    """Squared residuals of soft Q-learning, summed over the words: single-step and multi-step, each (k,).

    `log_probs` A (k, T) of the taken words, `values` V (k, T) of the target before each word, `rewards` r
    (k,) at the end; no discount. Guo et al. 2021; "v2" and "v3" in the code of RLPrompt:

        single = sum_t (A_t - (V_{t+1} - V_t))^2, with r in place of V_{T+1}
        multi  = sum_t (A_t + ... + A_T - (r - V_t))^2
    """
    ahead = torch.cat([values[:, 1:], rewards[:, None]], 1)
    single = (log_probs - (ahead - values)).square().sum(1)
    multi = (_to_go(log_probs) - (rewards[:, None] - values)).square().sum(1)
    return single, multi


def centre_values(log_probs: Tensor, values: Tensor, rewards: Tensor) -> Tensor:
    """`values` (k, T), moved by one number per place so that the mean multi-step residual is zero there."""
    residual = _to_go(log_probs) - (rewards[:, None] - values)
    return values - residual.mean(0)


def _to_go(steps: Tensor) -> Tensor:
    return steps.flip(1).cumsum(1).flip(1)


def _words(backbone: TokenBackbone, preferred: Sequence[str], n: int) -> list[str]:
    known = [word for word in dict.fromkeys(preferred) if _knows(backbone, word)]
    taken = set(known)
    return [*known, *(word for word in backbone.vocabulary(n) if word not in taken)][:n]


def _knows(backbone: TokenBackbone, word: str) -> bool:
    try:
        return len(backbone.ids([word])) == 1
    except UsageError:
        return False


def _unit_scale(rows: Tensor) -> Tensor:
    """Rows (V, d) centred, and scaled to a mean norm of 1."""
    rows = rows - rows.mean(0)
    scaled: Tensor = rows / rows.norm(dim=1).mean().clamp_min(1e-12)
    return scaled


def _first_weights(width: int, hidden: int, seed: int) -> Weights:
    """Two linear maps; Xavier-uniform with gain 1e-4, biases of -1e-4: all words begin nearly alike."""
    generator = torch.Generator().manual_seed(seed)
    bound = INIT_GAIN * math.sqrt(6 / (width + hidden))
    return {
        "first.weight": torch.empty(hidden, width).uniform_(-bound, bound, generator=generator),
        "first.bias": torch.full((hidden,), INIT_BIAS),
        "second.weight": torch.empty(width, hidden).uniform_(-bound, bound, generator=generator),
        "second.bias": torch.full((width,), INIT_BIAS),
    }

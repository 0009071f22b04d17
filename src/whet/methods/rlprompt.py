"""RLPrompt: a small network learns, word by word, which prompt to write, by soft Q-learning.

Deng, Wang, Hsieh, Wang, Guo, Shu, Song, Xing, Hu: RLPrompt: Optimizing Discrete Text Prompts with Reinforcement
Learning. EMNLP 2022. arXiv:2205.12548. Sections 2 and 3.

    policy <- MLP on a frozen language model; target <- copy
    for step in 1..steps:
        sample k prompts of T words from the policy (the 256 likeliest words at each place)
        r_i <- reward of prompt i on the training examples
        z_i <- (r_i - mean r) / (std r + 1e-4);  R_i <- 5 z_i
        A <- log-probabilities of the sampled words;  V <- log-sum-exp of the target's logits
        L <- mean_i 1/2 (sum_t (A_t - (V_{t+1} - V_t))^2 + sum_t (A_t + .. + A_T - (R - V_t))^2),  V_{T+1} = R
        Adam step on the MLP, gradient clipped at 5;  target <- Polyak average
    greedy prompt and the best sampled prompts -> validation examples -> the best

Differences from the paper:
1. The target network covers the MLP alone: all else is frozen and the same. It follows at 0.05 a step instead of
   0.001, and Adam's rate is 1e-3 instead of 5e-5, because there are hundreds of steps instead of 12,000.
2. The start state is encoded once; the states of sampled words are computed once, for sampling, loss and target.
3. A prompt is scored once: rewards are remembered by prompt.
4. Ties of label probabilities are masked by index, so that a uniform distribution is not rewarded.
5. The reward is by default accuracy + mean log-probability of the right label, which foretells accuracy on unseen
   examples better than the piecewise gap (`reward=gap`); see docs/methods/rlprompt.md for the measurement.
6. Values of the target are shifted by one number per place, so that the mean residual of a batch is zero. The level
   of the logits, a constant in the paper, then neither feeds a collapse nor has to be tuned.
7. The entropy is steered: a temperature weighs it against the reward and follows, with damping, a line from the
   entropy of the uniform distribution to `entropy` times that. The paper's temperature is 1 throughout.
8. Words come from a vocabulary of whole words instead of all word pieces; states and output matrix are brought to unit
   scale, because the initialisation presumes it.
9. The result is the best on validation examples among the greedy prompt, the best on training examples and the start.
10. Within a limit on calls, steps and training examples are cut to what the limit pays (`whet.search.plan`).

Run it:  whet optimize TASK --method rlprompt --lm embedded/encoder
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from whet.env import Environment
from whet.errors import UsageError
from whet.policies.token import Body, Settings, TokenPolicy
from whet.prompt import Prompt
from whet.rewards import isinstance_label_reward
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.minibatch import minibatch
from whet.search.plan import Share, fit, validate_finalists, validate_leader
from whet.types import JSON, Example, Score

SHAPE = 5.0  # rewards reach the loss as 5 z, the paper's affine map of [0, 1] to [0, 5]
GAIN, DAMPING = 0.3, 3.0  # of the temperature's controller
COLDEST, WARMEST = 0.1, 10.0
CHECKS = 8  # times that the leader is validated on the way

Signal = Literal["auto", "reward", "gap", "likelihood", "accuracy+likelihood"]


@dataclass(frozen=True)
class Config:
    """Settings of RLPrompt."""

    k: int = 16
    """Prompts sampled in a step."""
    length: int = 5
    """Words of a prompt (T)."""
    steps: int = 300
    """Updates of the policy; steps x k prompts are sampled."""
    vocabulary: int = 2000
    """Words to choose from."""
    top_k: int = 256
    """Words that may be sampled at one place: the likeliest ones."""
    lr: float = 1e-3
    """Adam's rate."""
    entropy: float = 0.5
    """Entropy of a word at the end of training, as a share of that of the uniform distribution."""
    reward: Signal = "auto"
    """What a prompt is trained for; auto means accuracy+likelihood when the task counts right labels, else its reward."""
    examples: int | None = None
    """Training examples that each prompt is scored on; none means all of them."""
    finalists: int = 32
    """Prompts validated at the end."""


async def rlprompt(run: Run, env: Environment, policy: object, start: Prompt, config: Config) -> Candidate:
    """Soft Q-learning over the words of the editable text; see the module. `policy` is not used."""
    settings = Settings(config.length, config.vocabulary, top_k=config.top_k, lr=config.lr)
    signal = _signal(env, config.reward)
    learner = TokenPolicy(_body(env), settings, run.rng.getrandbits(63))
    plan = fit(run, env, config.steps, config.k, config.examples, finalists=config.finalists, asks=0)
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    book = Book(learner, start, signal, minibatch(run.rng, env.train, plan.examples, balanced=bool(env.labels)))
    checked = max(1, plan.rounds // CHECKS)

    async def step(run: Run, number: int) -> None:
        seed = run.rng.getrandbits(63)
        prompts = await run.effect("sample", lambda: _sample(learner, plan.width, seed))
        texts = [learner.text(ids) for ids in prompts]
        rewards = await book.grade(run, env, texts)
        shaped = [SHAPE * z for z in z_scores(rewards)]
        update = learner.update(prompts, shaped, book.temperature)
        book.steer(update.entropy, goal(number / plan.rounds, config.entropy, len(learner.words)))
        run.log("step", book.figures(number, rewards, texts, update))
        if (number + 1) % checked == 0:
            book.recall(archive)
            await validate_leader(run, plan.share, archive, book.candidates(1)[0])
            book.remember(archive)

    await run.train(plan.rounds, step, learner)
    greedy = learner.text(await run.effect("greedy", lambda: _greedy(learner)))
    await book.grade(run, env, [greedy])
    book.recall(archive)
    finalists = [book.candidate(greedy), *book.candidates(config.finalists)]
    return await validate_finalists(run, plan.share, archive, finalists)


@dataclass
class Book:
    """Everything the loop must find again after a resume, kept in the notes of the learner.

    notes: `scores` by text (mean reward and parts on the training examples), `validated` by text, `temperature`, `entropy`.
    """

    learner: TokenPolicy
    start: Prompt
    signal: tuple[str, ...]
    examples: Sequence[Example]

    def __post_init__(self) -> None:
        self.learner.notes = {"scores": {}, "validated": {}, "temperature": 1.0, "entropy": None}

    @property
    def notes(self) -> dict[str, Any]:
        return self.learner.notes

    @property
    def temperature(self) -> float:
        return float(self.notes["temperature"])

    async def grade(self, run: Run, env: Environment, texts: Sequence[str]) -> list[float]:
        """Training reward of each text; only texts that are new are scored."""
        scores = self.notes["scores"]
        new = [text for text in dict.fromkeys(texts) if text not in scores]
        found = await env.score(run, [self.start.edit(text) for text in new], self.examples)
        scores.update({text: [score.mean, dict(score.parts)] for text, score in zip(new, found, strict=True)})
        return [self.reward(text) for text in texts]

    def reward(self, text: str) -> float:
        mean, parts = self.notes["scores"][text]
        return sum(parts[name] for name in self.signal) if self.signal else mean

    def candidate(self, text: str) -> Candidate:
        mean, parts = self.notes["scores"][text]
        return Candidate(self.start.edit(text), (self.start.id,), "policy", Score(mean, len(self.examples), parts))

    def candidates(self, most: int) -> list[Candidate]:
        """The best by training reward, the older of equals first."""
        return [self.candidate(text) for text in sorted(self.notes["scores"], key=self.reward, reverse=True)[:most]]

"""BDPL: a policy learns which words stand in the prompt, one distribution for each place, from rewards alone.

Diao, Huang, Xu, Li, Lin, Zhou, Zhang: Black-Box Prompt Learning for Pre-trained Language Models. TMLR 2023.
arXiv:2201.08531. Section 3 and algorithm 1.

    p_1 .. p_n <- uniform distributions over the candidate words, one for each place
    for step in 1..steps:
        sample k prompts T^1 .. T^k, a word t_i ~ p_i at each place
        L^j <- loss of prompt j on a batch of training examples;  mean <- 1/k sum_j L^j
        g_i <- 1/(k-1) sum_j grad log P(t_i^j) (L^j - mean)        the variance-reduced policy gradient
        p_i <- projection of (p_i - rate g_i) on the simplex
    the likeliest words -> the prompt

Here the places are those of definitions: the prompt says of each label `length` words, as in `network: socket, url,
server, http`, which the task model reads beside the label.

Differences from the paper:
1. The words of a definition share one distribution and are drawn without replacement (Plackett and Luce): their order
   hardly counts, and no word stands twice.
2. A label's candidates are whole words that it shares more training inputs with than chance would (positive pointwise
   mutual information with the label); the paper takes word sequences whose words belong together (mutual information too).
3. A distribution is the softmax of logits, which Adam moves; the paper projects probabilities, and decays weights.
4. Losses are divided by their standard deviation in the batch, as in GRPO, so that one rate serves every reward.
5. A prompt is scored on all training examples, or on one fixed part of them, and once: rewards are remembered.
6. The reward is by default accuracy + mean log-probability of the right label, as in rlprompt; the paper has cross-entropy or a
   hinge loss.
7. The result is the best on validation examples among the likeliest prompt, the best on training examples and
   the start; the paper takes the likeliest.
8. Under a limit on calls, steps and examples are reduced to fit (`whet.search.plan`).

Run it:  whet optimize TASK --method bdpl --lm embedded/encoder
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rewards import isinstance_label_reward
from whet.rl.advantages import grpo
from whet.rl.network import TrainedNetwork, Weights
from whet.rl.score_book import ScoreBook
from whet.run import Run, convert_record
from whet.search.archive import Archive, Candidate
from whet.search.definitions import Definitions, defining_words
from whet.search.minibatch import minibatch
from whet.search.plan import fit

ENTRY = MethodEntry(
    "bdpl",
    "BDPL: a policy learns which words define each label",
    version=2,
    rank=60,
    when="a small model scores labels, and people must be able to read the prompt",
    paper="Diao et al., TMLR 2023",
    arxiv="2201.08531",
    needs=("label_scores",),
    trains="a distribution over words for each label",
    extra="embedded",
    space="definitions",
    edits_all=True,
)

CLIP = 5.0  # joint norm of a gradient


Choice = list[list[int]]
"""For each label the positions of the words that define it."""


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of BDPL."""

    k: PositiveInt = 16
    """Prompts sampled in a step."""
    length: PositiveInt = 4
    """Words of a definition."""
    steps: NonNegativeInt = 32
    """Updates of the policy; steps x k prompts are sampled."""
    vocabulary: PositiveInt = 30
    """Words that may define a label: those most typical of its training inputs."""
    lr: NonNegativeFloat = 0.7
    """Adam's rate."""
    examples: PositiveInt | None = None
    """Training examples that each prompt is scored on; none means all of them."""
    finalists: PositiveInt = 16
    """Prompts validated at the end."""

    @property
    def prompts_per_step(self) -> int:
        """The size of a run in its plan."""
        return self.k


def check(env: Environment, config: Config) -> None:
    """Raises UsageError without labels, and where no training input has a word that could define one."""
    defining_words(env, config.vocabulary)


async def bdpl(run: Run, env: Environment, policy: object, start: Prompt, config: Config) -> Candidate:
    """Policy gradient over the words that define each label; see the module. `policy` is not used."""
    space = Definitions(start, defining_words(env, config.vocabulary))
    learner = WordPolicy(space, config)
    counts_right = isinstance_label_reward(env.reward) and env.reward.name == "exact_match"
    plan = fit(run, env, config.steps, config.k, config.examples, finalists=config.finalists, asks=0)
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    examples = minibatch(run.rng, env.train, plan.examples, balanced=True)
    signal = ("accuracy", "likelihood") if counts_right else ()
    book = ScoreBook(learner, start, signal, examples, space.region)

    async def step(run: Run, number: int) -> None:
        seed = run.rng.getrandbits(63)
        record = await run.effect("sample", lambda: _sample(learner, plan.width, seed))
        choices = convert_record(record, list[Choice])
        texts = [learner.text(choice) for choice in choices]
        rewards = await book.grade(run, env, texts)
        entropy = learner.update(choices, grpo(rewards))
        run.log("step", {"step": number, **book.figures(rewards, texts), "entropy": entropy})
        await book.check(run, plan, archive, number)

    await run.train(plan.rounds, step, learner)
    likeliest = convert_record(await run.effect("likeliest", lambda: _likeliest(learner)), Choice)
    return await book.finish(run, env, plan, archive, learner.text(likeliest), config.finalists)


class WordPolicy(TrainedNetwork):
    """A distribution over the words that may define a label, for each label: softmax of logits (labels, words)."""

    def __init__(self, space: Definitions, config: Config) -> None:
        self.space, self.length = space, config.length
        self._words = list(space.words.values())
        self._closed = torch.zeros(len(self._words), max(map(len, self._words)))
        for row, words in zip(self._closed, self._words, strict=True):
            row[len(words) :] = -torch.inf
        weights: Weights = {"logits": torch.zeros_like(self._closed)}
        super().__init__("a word policy", weights, config.lr)

    def text(self, choice: Choice) -> str:
        """The definitions, the words of each in the order of how common they are."""
        pairs = zip(self._words, choice, strict=True)
        return self.space.text([[words[at] for at in sorted(places)] for words, places in pairs])

    def sample(self, k: int, seed: int) -> list[Choice]:
        """`k` prompts: for each label words drawn without replacement. The seed is all the chance there is."""
        generator = torch.Generator().manual_seed(seed)
        noise = torch.rand(k, *self._closed.shape, generator=generator).clamp_min(1e-12)
        return self._top(self._logits() - (-noise.log()).log())  # Gumbel's trick: the largest are such a draw

    def likeliest(self) -> Choice:
        """The likeliest words of each label."""
        return self._top(self._logits()[None])[0]

    def update(self, choices: Sequence[Choice], advantages: Sequence[float]) -> float:
        """One step along the policy gradient. Returns the mean entropy of a label's distribution in nats."""
        logits = self._weights["logits"].detach().requires_grad_()
        gain = torch.zeros(())
        for label, row in enumerate(logits + self._closed):
            places = torch.tensor([choice[label] for choice in choices])
            gain = gain + torch.tensor(advantages) @ log_probability(row, places)
        (gradient,) = torch.autograd.grad(-gain / max(1, len(choices) - 1), [logits])
        self._adam.step([gradient], CLIP)
        chances = self._logits().softmax(-1)
        return float(torch.special.entr(chances).sum(-1).mean())

    def _logits(self) -> Tensor:
        return self._weights["logits"] + self._closed

    def _top(self, scores: Tensor) -> list[Choice]:
        """The positions of the largest scores (k, labels, words), for each prompt and label."""
        order = scores.argsort(dim=-1, descending=True, stable=True).tolist()
        sizes = [min(self.length, len(words)) for words in self._words]
        return [[row[:size] for row, size in zip(prompt, sizes, strict=True)] for prompt in order]


def log_probability(logits: Tensor, places: Tensor) -> Tensor:
    """Log-probability (k,) of drawing the places (k, T), in their order, from softmax(logits) (V,) without replacement."""
    taken = logits[places]  # (k, T)
    before = torch.zeros(len(places), len(logits), dtype=torch.bool)
    total = torch.zeros(len(places))
    for at in range(places.shape[1]):
        total = total + taken[:, at] - logits.masked_fill(before, -torch.inf).logsumexp(-1)
        before = before.scatter(1, places[:, at : at + 1], True)
    return total


async def _sample(learner: WordPolicy, k: int, seed: int) -> list[Choice]:
    return learner.sample(k, seed)


async def _likeliest(learner: WordPolicy) -> Choice:
    return learner.likeliest()

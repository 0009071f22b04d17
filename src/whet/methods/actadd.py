"""ActAdd: a model is steered from inside by the difference of two texts' activations; nothing is trained, no text changes.

Turner, Thiergart, Leech, Udell, Vazquez, Mini, MacDiarmid: Steering Language Models With Activation Engineering. 2023.
arXiv:2308.10248. Section 3; settings as in the published code (montemac/activation_additions).

    h+, h- <- what layer l reads at each token of the texts `plus` and `minus`, both filled up to the same length
    in use: h_l[:n] <- h_l[:n] + c (h+ - h-)           at the first positions of whatever the model reads
    l and c: the best of some pairs on training rows, then on validation rows

Only a model whose activations are in this process can be steered (`hf/PATH`, `embedded/tiny`): no endpoint offers this. The
result is no text and acts with this very model only. The same words in the prompt are the rival to beat.

Differences from the paper:
1. Layer and coefficient are chosen by the reward on training and validation rows; the paper looks at samples.
2. The vector is added at the front only (the code can place it elsewhere), which is where a chat template stands.
3. `vector=random` has a random direction with the same norm at each position: the control.
4. Under a limit on calls, pairs and rows are reduced to fit.

Run it:  whet optimize TASK --method actadd --lm hf/PATH --set plus="Love" --set minus="Hate"
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Literal

import torch

from whet._util.fields import NonNegativeInt, PositiveFloat, PositiveInt
from whet.environments.environment import Environment
from whet.errors import UsageError, named_fields, parameter
from whet.methods.method import MethodEntry
from whet.models.huggingface import HuggingFaceModel
from whet.models.steered import Steering, activation_difference, layers_of, steered_weights
from whet.prompt import Prompt
from whet.rl.blob import pack, read_blob
from whet.rl.score_book import TrainedCandidates
from whet.rl.soft_prompt import environment_with
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.minibatch import minibatch
from whet.search.plan import fit

ENTRY = MethodEntry(
    "actadd",
    "ActAdd: a steering vector beside the text",
    version=1,
    rank=285,
    when="you want to know whether steering a model in this process helps where words in its prompt do not",
    paper="Turner et al., 2023",
    arxiv="2308.10248",
    needs=("local",),
    trains="nothing: a vector of two texts is added to the activations",
    extra="train",
    bound="its vector belongs to one model's activations",
)

STRENGTHS = (1.0, 2.0, 4.0, 8.0)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of ActAdd."""

    plus: str = ""
    """Text whose activations are added; needed."""
    minus: str = " "
    """Text whose activations are taken off; blanks by default."""
    layers: PositiveInt = 4
    """Layers that are tried, at even distances."""
    strongest: PositiveFloat = 8.0
    """Coefficients up to this are tried: 1, 2, 4 and 8."""
    examples: PositiveInt | None = 16
    """Training examples that each pair of layer and coefficient is scored on."""
    finalists: PositiveInt = 3
    """Pairs validated at the end."""
    vector: Literal["difference", "random"] = "difference"
    """The vector that is added: the difference of activations, or a random direction with the same norm (the control)."""
    seed: NonNegativeInt = 0
    """Of the random direction."""


class SteeringVector:
    """A steering vector on a frozen model, for a run to keep. Raises UsageError for a model that cannot be steered."""

    def __init__(self, model: object, steering: Steering | None = None) -> None:
        if not isinstance(model, HuggingFaceModel) or model.weights.kind != "causal":
            raise UsageError(
                f"{getattr(model, 'address', 'this model')} cannot be steered: its activations must be in this process. "
                f"Use {parameter('lm', 'hf/PATH')} (causal) or {parameter('lm', 'embedded/tiny')}."
            )
        self.model, self.steering = model, steering
        self.notes: dict[str, Any] = {}

    def save(self) -> bytes:
        """Vector, layer and coefficient as safetensors bytes."""
        assert self.steering is not None
        facts = {"layer": self.steering.layer, "coefficient": self.steering.coefficient}
        return pack({"steering": {"vector": self.steering.vector}}, facts)

    def load(self, blob: bytes) -> None:
        """Take over what `save` returned. Raises UsageError when it does not fit the model."""
        facts, stored = read_blob(blob, "a steering vector")
        vector, width = (
            stored["steering"]["vector"],
            self.model.weights.model.config.get_text_config().hidden_size,
        )
        if vector.shape[-1] != width or not 0 <= facts["layer"] < len(layers_of(self.model.weights)):
            raise UsageError("this steering vector belongs to another model.")
        self.steering = Steering(vector, int(facts["layer"]), float(facts["coefficient"]))

    def system(self) -> HuggingFaceModel:
        """The frozen model, steered."""
        assert self.steering is not None
        return self.model.around(steered_weights(self.model.weights, self.steering))


async def actadd(run: Run, env: Environment, policy: object, start: Prompt, config: Config) -> Candidate:
    """Steering vectors of one pair of texts at several layers and strengths; see the module. `policy` is not used."""
    check(env, config)
    vector = SteeringVector(env.model)
    strengths = [c for c in STRENGTHS if c <= config.strongest] or [config.strongest]
    depth = len(layers_of(vector.model.weights))
    layers = sorted({i * depth // config.layers for i in range(config.layers)})
    pairs = [(layer, c) for layer in layers for c in strengths]
    plan = fit(run, env, 1, len(pairs), config.examples, finalists=config.finalists, asks=0)
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    rows = minibatch(run.rng, env.train, plan.examples)
    book = TrainedCandidates(vector, start, "actadd", 1, 1)
    scored: list[tuple[float, Steering]] = []
    for layer, c in run.rng.sample(pairs, min(len(pairs), plan.width * plan.rounds)):
        vector.steering = steering(vector, config, layer, c)
        system = environment_with(env, vector.system(), digest(vector))
        (score,) = await system.score(run, [start], rows)
        run.log("steered", {"layer": layer, "coefficient": c, "reward": score.mean})
        scored.append((score.mean, vector.steering))
    for _, best in sorted(scored, key=lambda one: (-one[0], one[1].coefficient, one[1].layer))[
        : plan.finalists
    ]:
        if len(archive.validated) >= plan.validations:
            break
        vector.steering = best
        key = await run.keep(vector)
        archive.add(run, book.candidate(key))
        await book.validate(run, archive, environment_with(plan.env, vector.system(), key), key)
    return book.recall(archive)


def steering(vector: SteeringVector, config: Config, layer: int, coefficient: float) -> Steering:
    """The steering vector of a pair of texts at a layer, or a random one of the same norm at each position."""
    difference = activation_difference(vector.model.weights, config.plus, config.minus, layer).cpu()
    if config.vector == "random":
        generator = torch.Generator().manual_seed(config.seed)
        noise = torch.randn(difference.shape, generator=generator)
        difference = noise / noise.norm(dim=-1, keepdim=True) * difference.norm(dim=-1, keepdim=True)
    return Steering(difference, layer, coefficient)


def digest(vector: SteeringVector) -> str:
    """The name of a steering vector: the hash of what is kept of it."""
    return hashlib.sha256(vector.save()).hexdigest()


def check(env: Environment, config: Config) -> None:
    """Refuse a run without a text to add, and a model whose activations cannot be reached."""
    if not config.plus.strip():
        raise UsageError(
            f"actadd adds the activations of a text. Name it: {parameter('config.plus', 'plus')}."
        )
    SteeringVector(env.model)


def deploy(env: Environment, policy: object, blob: bytes, config: Config) -> Environment:
    """The task answered by its frozen model with the steering vector of a blob. Raises UsageError when they do not fit."""
    vector = SteeringVector(env.model)
    vector.load(blob)
    return environment_with(env, vector.system(), hashlib.sha256(blob).hexdigest())

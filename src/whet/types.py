"""Frozen values that every layer shares. Nothing here does input, output or arithmetic on models."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from whet.errors import named_fields
from whet_client.types import Example as Example
from whet_client.types import Message as Message
from whet_client.types import content_hash as content_hash

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

JSON: TypeAlias = bool | int | float | str | list["JSON"] | dict[str, "JSON"] | None

EXAMPLE: ContextVar[Example | None] = ContextVar("example", default=None)
"""The example of the rollout that is under way, for what answers its calls."""

ROLES = ("task", "optimizer", "judge")
EMBEDDING = "embedding"
"""The role of the model that embeds; its calls count as those of the optimizer."""

NO_ANSWER = ("provider:", "budget:")
"""Boundaries of errors that say nothing about a prompt: the provider did not answer, or the limits paid for no answer."""

NO_GRADE = "provider: the judge"
"""Boundary of errors of answers that the judge said nothing about: it was cut, filtered or silent, and would be so again."""

NO_TEXT = "model:"
"""Boundary of errors of answers that hold no text: a refusal, a filter, nothing."""


_REFUSAL = re.compile(r"\bHTTP (4[0-9]{2})\b")
_LATER = (408, 409, 425, 429)


def lacks_answer(error: str | None) -> bool:
    """Whether a completion or a rollout with this error has no answer of the model. A refusal, an empty text and a text that
    cannot be read are answers (`model:`, `parse:`): they earn the lowest reward."""
    return error is not None and error.startswith(NO_ANSWER)


def is_refused_for_good(error: str | None) -> bool:
    """Whether a rollout with this error has no answer because the provider refused its request by a status of HTTP that the same
    request would get again, 400 to 499 without those that say "later", or because the judge said nothing.

    >>> is_refused_for_good("provider: HTTP 400: too long"), is_refused_for_good("provider: HTTP 429")
    (True, False)
    """
    status = _REFUSAL.search(error or "") if lacks_answer(error) else None
    return (error or "").startswith(NO_GRADE) or (status is not None and int(status[1]) not in _LATER)


@named_fields
@dataclass(frozen=True, slots=True)
class Request:
    """One call to a language model.

    `sample` numbers independent samples of the same request. It is part of the cache key, so that three samples are three
    calls. `schema` asks for JSON that obeys a JSON schema, if the endpoint supports that. `schema_options` are the name, the
    description and the strictness of a schema that a program's own request brings; None for whet's own requests. `max_tokens`
    bounds the output, and with it the worst-case price; None leaves the bound to the model.
    """

    messages: tuple[Message, ...]
    temperature: float = 0.0
    max_tokens: int | None = 1024
    n: int = 1
    seed: int | None = None
    stop: tuple[str, ...] = ()
    schema: Mapping[str, JSON] | None = None
    top_logprobs: int = 0
    sample: int = 0
    schema_options: Mapping[str, JSON] | None = None


@named_fields
@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens billed for one call."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    """The number of input tokens that the provider read from its cache."""
    reasoning_tokens: int = 0
    """The number of output tokens that are thoughts."""
    cost_usd: float | None = None
    """The cost of the call as the provider states it, in US dollars; None: it states none."""
    estimated: bool = False
    """Whether the tokens are estimated, because the provider stated no plausible counts."""
    cache_write_tokens: int = 0
    """The number of input tokens that the provider wrote into its cache."""
    free: bool = False
    """Whether nothing was billed, because a gateway's cache answered."""
    cache_write_1h_tokens: int = 0
    """The number of `cache_write_tokens` that the provider keeps for an hour."""
    pictures: int = 0
    """The number of pictures that the model painted."""
    provider_tools: int = 0
    """The number of calls of tools that the provider itself ran, such as web searches."""

    def __add__(self, other: Usage) -> Usage:
        costs = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_input_tokens + other.cached_input_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            sum(costs) if costs else None,
            self.estimated or other.estimated,
            self.cache_write_tokens + other.cache_write_tokens,
            self.free and other.free,
            self.cache_write_1h_tokens + other.cache_write_1h_tokens,
            self.pictures + other.pictures,
            self.provider_tools + other.provider_tools,
        )


@named_fields
@dataclass(frozen=True, slots=True)
class Completion:
    """One answer of a model. A bad answer is data: `error` names its fault."""

    text: str
    finish: str = "stop"
    usage: Usage = Usage()
    error: str | None = None
    """Begins with `provider:` if the provider did not answer (it failed, or it turned the call away), and with `model:` if the
    model answered nothing that can be used (a refusal, an empty text)."""
    first_token: Mapping[str, float] | None = None
    """Natural-log probabilities of the candidates for the first output token, if the request asked for them and the endpoint
    offers them."""
    label_probs: Mapping[str, float] | None = None
    """Probabilities of the task's labels (summing to 1), if the model was asked to score instead of to generate."""
    target_score: tuple[float, int] | None = None
    """The (log-probability, tokens) of the example's target, if the model was asked to score."""
    seconds: float | None = None
    """The duration of the call in seconds, in a run that measures it."""
    thought: str = ""
    """The model's thought before its answer, with the surrounding marks if it was part of the text. A thought is not part of
    the answer and is only shown to people (`whet.replies.thoughts`)."""
    sentence: str | None = None
    """The whole answer, if `text` is a label that only a sentence of it mentions."""
    steps: tuple[Mapping[str, JSON], ...] = ()
    """The steps of an episode or a program that ended with this answer, as JSON (docs/task-folder.md, "Steps")."""
    model: str = field(default="", compare=False)
    """The model that answered, as the endpoint states it; it may differ from the requested model."""

    @property
    def answered(self) -> bool:
        """Whether the model answered, even with a bad answer."""
        return not lacks_answer(self.error)


@named_fields
@dataclass(frozen=True, slots=True)
class Scores:
    """Log-probabilities of given continuations.

    `logprobs`: float64 (P, E, L), natural log-probability of continuation l of input e under prompt p.
    `tokens`: int (E, L), number of tokens of each continuation.
    """

    logprobs: NDArray[np.float64]
    tokens: NDArray[np.int64]


@named_fields
@dataclass(frozen=True, slots=True)
class Reward:
    """Number in the declared range of the reward, its named parts, and an optional critique in English.

    `addressed`: the critiques that are about one prompt of a program, by its name; `critique` holds their texts too.
    """

    value: float
    parts: Mapping[str, float] = field(default_factory=dict)
    critique: str | None = None
    addressed: Mapping[str, str] = field(default_factory=dict)


@named_fields
@dataclass(frozen=True, slots=True)
class TraceStep:
    """One step of a program: the prompt that a model was asked with (empty for none) or the tool that was called, with its
    inputs, what came back and the tokens. `role` is that of the model, or `tool`. `record`: what has to be remembered of it to
    learn from it, such as the tokens that a network chose; plain JSON."""

    prompt: str
    inputs: Mapping[str, str]
    output: str
    role: str = "task"
    usage: Usage = Usage()
    record: JSON = None


@named_fields
@dataclass(frozen=True, slots=True)
class Rollout:
    """One execution of the target model under one prompt on one example. A failed rollout is data."""

    prompt_id: str
    example_id: str
    output: str
    reward: float
    parts: Mapping[str, float] = field(default_factory=dict)
    critique: str | None = None
    usage: Usage = Usage()
    error: str | None = None
    """None, or `boundary: description`; the boundary is provider, budget, model, parse, program or reward."""
    sample: int = 0
    addressed: Mapping[str, str] = field(default_factory=dict)
    """The critiques about single prompts of a program, by the prompts' names."""
    steps: tuple[TraceStep, ...] = ()
    """The trace of a program."""
    thought: str = ""
    """The model's thought before its answer, shown only to people."""
    sentence: str | None = None
    """The whole answer, if `output` is a label that only a sentence of it mentions."""
    cut: bool = False
    """Whether this answer, or an intermediate answer, ended at the token limit."""
    case: str = ""
    """The case of its row, in a task made of several."""
    of_worst: bool = False
    """Whether such rollouts together are scored by the worst case instead of the mean over cases."""

    @property
    def answered(self) -> bool:
        """Whether the rollout counts for its prompt, because neither the provider nor a limit withheld the answer."""
        return not lacks_answer(self.error)

    @property
    def has_reward(self) -> bool:
        """Whether the reward could grade the answer; if the reward failed, the rollout has the lowest value."""
        return self.answered and not (self.error or "").startswith("reward:")


@named_fields
@dataclass(frozen=True, slots=True)
class Score:
    """Mean reward over n examples with the mean of each part.

    `rewards`: that of each answered example, by its id; None where only the mean is known.
    """

    mean: float
    n: int
    parts: Mapping[str, float] = field(default_factory=dict)
    rewards: Mapping[str, float] | None = field(default=None, repr=False, compare=False)


def mean_score(rollouts: Sequence[Rollout]) -> Score:
    """Mean reward and mean parts of the rollouts that were answered, and their number; of all (at least one) where none was.

    Of a task made of several, the mean is that over its cases, however many rows each has, or the mean of the worst case. The
    means of the cases are parts named `case NAME`.
    """
    rewards = {r.example_id: r.reward for r in rollouts if r.answered}
    rollouts = [r for r in rollouts if r.answered] or rollouts
    n = len(rollouts)
    names = sorted({name for r in rollouts for name in r.parts})
    parts = {name: sum(r.parts.get(name, 0.0) for r in rollouts) / n for name in names}
    if any(r.case for r in rollouts):
        means = case_means(rollouts)
        parts |= {f"case {name}": mean for name, mean in means.items()}
        return Score(over_cases(means, rollouts[0].of_worst), n, parts, rewards)
    return Score(sum(r.reward for r in rollouts) / n, n, parts, rewards)


def case_means(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """The mean reward of each case that has rollouts, in the order of the cases."""
    cases: dict[str, list[float]] = {}
    for rollout in rollouts:
        cases.setdefault(rollout.case, []).append(rollout.reward)
    return {name: sum(rewards) / len(rewards) for name, rewards in cases.items()}


def over_cases(means: Mapping[str, float], worst: bool) -> float:
    """The score of the means of cases (at least one): their mean, or the worst of them."""
    return min(means.values()) if worst else sum(means.values()) / len(means)

"""The one seam to a language model. Everything that answers a prompt implements this protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from whet.errors import UsageError
from whet.prompt import Prompt
from whet.types import Completion, Request, Scores

_MEMBERS = (
    *("address", "simulated", "local", "can_generate", "can_score"),
    *("generate", "score", "count_tokens", "close"),
)


@runtime_checkable
class LanguageModel(Protocol):
    """A frozen model.

    `address`: `provider/name`. `simulated`: its answers come from a simulator, and every result
    made with it is labelled so. `local`: calls are free, run in this process and are not cached.
    `can_generate` and `can_score` say which of the two methods work.
    """

    @property
    def address(self) -> str: ...
    @property
    def simulated(self) -> bool: ...
    @property
    def local(self) -> bool: ...
    @property
    def can_generate(self) -> bool: ...
    @property
    def can_score(self) -> bool: ...

    async def generate(self, request: Request) -> list[Completion]:
        """Make exactly one attempt and return 1 to `request.n` completions.

        A garbled, empty, truncated or refused answer is a Completion with `error`. Raises
        ProviderError when there is no answer; its `retryable`, `fatal` and `retry_after` tell the
        engine, which owns retries, what to do. Raises UsageError when the model cannot generate.
        """
        ...

    async def score(
        self,
        prompts: Sequence[Prompt],
        inputs: Sequence[Mapping[str, str]],
        continuations: Sequence[Sequence[str]],
    ) -> Scores:
        """Log-probabilities of the continuations of each input under each prompt, shape (P, E, L).

        Raises UsageError when the model cannot score.
        """
        ...

    def count_tokens(self, text: str) -> int:
        """The number of tokens of `text`; an upper bound if the model's tokenizer is unknown."""
        ...

    async def close(self) -> None:
        """Release connections. Calling it twice is harmless."""
        ...


def missing_members(model: object) -> list[str]:
    """The names of LanguageModel that an object lacks."""
    return [name for name in _MEMBERS if not hasattr(model, name)]


def reads_parts(model: object) -> bool:
    """Whether a model reads images, sounds and files beside texts, as far as its client sends them."""
    return bool(getattr(model, "reads_parts", False))


@runtime_checkable
class BatchModel(LanguageModel, Protocol):
    """A model in this process that answers many requests faster together than one by one.

    The environment of a task asks a local model of this kind for all prompts and examples at once; any other
    model gets one `generate` for each.
    """

    async def generate_batch(self, requests: Sequence[Request]) -> list[list[Completion]]:
        """The value of `generate` for each request. It does not depend on the other requests, beyond rounding.

        A bad answer is a Completion with `error`. Raises UsageError and ProviderError as `generate` does.
        """
        ...


class AnswersOnly:
    """Base of models that answer and cannot score, and whose tokenizer is not known."""

    can_generate, can_score = True, False
    address: str

    async def score(
        self,
        prompts: Sequence[Prompt],
        inputs: Sequence[Mapping[str, str]],
        continuations: Sequence[Sequence[str]],
    ) -> Scores:
        """Raises UsageError."""
        raise UsageError(
            f"{self.address} cannot score given continuations: it only answers. Use embedded/... or hf/... for that, or a "
            "reward that reads answers."
        )

    def count_tokens(self, text: str) -> int:
        """Upper bound: the bytes of `text` in UTF-8, for no token is shorter than a byte."""
        return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))

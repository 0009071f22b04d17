"""Conformance suite for models: subclass it, name an address, run it with pytest.

    class TestMine(ModelConformance):
        address = "mine/small"

Every test is an ordinary function; no plugin is needed. Override `load` for a model without an address, `broken` for one
that can fail, and `scored` for one that scores continuations of a form of its own.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import ClassVar, TypeVar

import numpy as np

from whet.errors import ProviderError, UsageError
from whet.models.addresses import resolve
from whet.models.language_model import BatchModel, LanguageModel
from whet.prompt import Prompt
from whet.testing.texts import ODD_TEXTS
from whet.types import Completion, Message, Request

T = TypeVar("T")

OVERHEAD = 16
"""Tokens that a chat format may add to each message."""
ROUNDING = 1e-3


class ModelConformance:
    """Conformance tests for every model. Each test loads the model again and closes it."""

    address: ClassVar[str]
    secrets: ClassVar[tuple[str, ...]] = ()
    """Keys that the model holds: they must not be seen from outside."""
    deterministic: ClassVar[bool] = True
    """Whether the same request at temperature 0 has the same answer."""
    sampled: ClassVar[bool] = True
    """Whether answers at temperature 1 can differ."""
    concurrency: ClassVar[int] = 8

    def load(self) -> LanguageModel:
        """The model under test."""
        return resolve(self.address)

    def broken(self) -> LanguageModel | None:
        """The model in a state in which it cannot answer: a dead endpoint or a wrong key. None for a model that cannot fail."""
        return None

    def request(self, number: int = 0) -> Request:
        """A request that the model answers; requests with different numbers have different texts."""
        text = f"Visit {number}: the soup was {('good', 'awful')[number % 2]}. Is this review positive or negative?"
        return Request((Message("system", "Answer in a few words."), Message("user", text)), max_tokens=16)

    def scored(self) -> tuple[Sequence[Prompt], Sequence[Mapping[str, str]], Sequence[Sequence[str]]]:
        """Prompts, inputs, and different continuations for each input; no continuation is the beginning of another."""
        prompts = [Prompt.parse(f"{word} the review.\n{{{{input}}}}\nIt is") for word in ("Read", "Judge")]
        inputs = [
            {"input": f"The {dish} was {cue}."}
            for dish, cue in (("pie", "good"), ("tea", "bad"), ("rice", "fine"))
        ]
        return prompts, inputs, [["positive", "negative"]] * 3

    def use(self, work: Callable[[LanguageModel], Awaitable[T]], model: LanguageModel | None = None) -> T:
        """Run `work` with an open model in a separate event loop, and return its value."""

        async def run() -> T:
            opened = self.load() if model is None else model
            try:
                return await work(opened)
            finally:
                await opened.close()

        return asyncio.run(run())

    def generates(self) -> bool:
        """Whether the model answers requests."""
        return self.use(_flag("can_generate"))

    def ask(self, request: Request) -> list[Completion]:
        """The model's completions, after checks that hold for all models."""

        async def work(model: LanguageModel) -> list[Completion]:
            return await model.generate(request)

        completions = self.use(work)
        check_completions(completions, request)
        return completions

    def test_says_what_it_is(self) -> None:
        async def work(model: LanguageModel) -> None:
            assert isinstance(model, LanguageModel)
            provider, _, name = model.address.partition("/")
            assert provider and name, f"{model.address!r} is not provider/name"
            for flag in ("simulated", "local", "can_generate", "can_score"):
                assert isinstance(getattr(model, flag), bool), f"{flag} is no bool"
            assert model.can_generate or model.can_score, "a model generates, or scores, or both"

        self.use(work)

    def test_answers_with_one_to_n_completions(self) -> None:
        if self.generates():
            for n in (1, 3):
                self.ask(dataclasses.replace(self.request(), n=n))

    def test_counts_what_is_billed(self) -> None:
        if not self.generates():
            return
        request = self.request()
        longer = (*request.messages[:-1], Message("user", request.messages[-1].content * 3))
        short, long = self.ask(request), self.ask(dataclasses.replace(request, messages=longer))
        spent = [sum(c.usage.input_tokens for c in completions) for completions in (short, long)]
        assert 0 < spent[0] < spent[1], (
            f"input tokens {spent[0]}, and {spent[1]} for a text three times as long"
        )
        written = sum(c.usage.output_tokens for c in short)
        assert written > 0 or not any(c.text for c in short), "an answer without output tokens"

    def test_foresees_the_tokens_of_a_request(self) -> None:
        async def work(model: LanguageModel) -> None:
            counts = [model.count_tokens(text) for text in ("", "One two.", "One two. Three four five six.")]
            assert all(isinstance(c, int) and c >= 0 for c in counts) and counts[0] <= counts[1] <= counts[2]
            assert counts[2] > 0, "a text without tokens"
            if model.can_generate:
                request = self.request()
                most = sum(model.count_tokens(m.content) + OVERHEAD for m in request.messages)
                spent = sum(c.usage.input_tokens for c in await model.generate(request))
                assert spent <= most, f"{spent} tokens billed, {most} foreseen by count_tokens"

        self.use(work)

    def test_keeps_to_max_tokens(self) -> None:
        if self.generates():
            for completion in self.ask(dataclasses.replace(self.request(), max_tokens=1)):
                assert completion.usage.output_tokens <= 1, f"{completion.usage.output_tokens} tokens of 1"

    def test_ends_before_a_stop_text(self) -> None:
        if not (self.deterministic and self.generates()):
            return
        whole = self.ask(self.request())[0].text
        stop = whole[len(whole) // 2 :][:8]
        if stop.strip():
            cut = self.ask(dataclasses.replace(self.request(), stop=(stop,)))[0]
            assert stop not in cut.text, f"{cut.text!r} holds the stop text {stop!r}"
            assert whole.startswith(cut.text.rstrip()), f"{cut.text!r} is not the beginning of {whole!r}"

    def test_the_same_request_has_the_same_answer(self) -> None:
        if self.deterministic and self.generates():
            first, second = ([c.text for c in self.ask(self.request())] for _ in range(2))
            assert first == second

    def test_numbered_samples_differ(self) -> None:
        if not (self.sampled and self.generates()):
            return
        samples = [
            self.ask(dataclasses.replace(self.request(), temperature=1.0, sample=i, seed=i))[0].text
            for i in range(12)
        ]
        assert len(set(samples)) > 1, f"12 samples at temperature 1 are all {samples[0]!r}"

    def test_answers_do_not_mix_when_many_are_asked_at_once(self) -> None:
        if not self.generates():
            return
        requests = [self.request(number) for number in range(self.concurrency)]

        async def together(model: LanguageModel) -> list[list[Completion]]:
            return await asyncio.gather(*(model.generate(request) for request in requests))

        answers = self.use(together)
        for request, completions in zip(requests, answers, strict=True):
            check_completions(completions, request)
            if self.deterministic:
                assert [c.text for c in completions] == [c.text for c in self.ask(request)]

    def test_a_batch_answers_like_single_requests(self) -> None:
        async def work(model: LanguageModel) -> tuple[list[list[Completion]], list[list[Completion]]]:
            if not (isinstance(model, BatchModel) and model.can_generate):
                return [], []
            requests = [self.request(number) for number in range(3)]
            return await model.generate_batch(requests), [await model.generate(r) for r in requests]

        batch, single = self.use(work)
        assert [[c.text for c in row] for row in batch] == [[c.text for c in row] for row in single]

    def test_odd_texts_are_answered_or_refused(self) -> None:
        if not self.generates():
            return
        for text in ODD_TEXTS:
            request = Request((Message("user", text),), max_tokens=4)
            try:
                self.ask(request)
            except (ProviderError, UsageError):
                continue

    def test_a_failure_is_typed(self) -> None:
        for error in self._failures():
            assert isinstance(error, ProviderError | None), f"{type(error).__name__}: {error}"
            if error is not None:
                assert str(error).strip() and isinstance(error.retryable, bool)

    def test_shows_no_key(self) -> None:
        async def work(model: LanguageModel) -> str:
            return f"{model!r}\n{model}\n{vars(model) if hasattr(model, '__dict__') else ''}"

        shown = [self.use(work)]
        shown += ["".join(traceback.format_exception(e)) for e in self._failures() if e is not None]
        for text in shown:
            assert not any(secret in text for secret in self.secrets), "a key can be seen from outside"

    def test_refuses_what_it_cannot_do(self) -> None:
        async def work(model: LanguageModel) -> None:
            if not model.can_generate:
                await _refuse(model.generate(self.request()))
            if not model.can_score:
                await _refuse(model.score(*self.scored()))

        self.use(work)

    def test_scores_are_log_probabilities(self) -> None:
        async def work(model: LanguageModel) -> None:
            if not model.can_score:
                return
            prompts, inputs, continuations = self.scored()
            scores = await model.score(prompts, inputs, continuations)
            width = len(continuations[0])
            assert scores.logprobs.shape == (len(prompts), len(inputs), width), scores.logprobs.shape
            assert scores.tokens.shape == (len(inputs), width) and (scores.tokens >= 1).all()
            assert np.isfinite(scores.logprobs).all() and (scores.logprobs <= ROUNDING).all()
            total = np.exp(scores.logprobs).sum(-1)
            assert (total <= 1 + ROUNDING).all(), f"the continuations have a probability of {total.max()}"

        self.use(work)

    def test_scores_of_a_batch_are_those_of_its_parts(self) -> None:
        async def work(model: LanguageModel) -> None:
            if not model.can_score:
                return
            prompts, inputs, continuations = self.scored()
            whole = (await model.score(prompts, inputs, continuations)).logprobs
            for p, prompt in enumerate(prompts):
                for e, values in enumerate(inputs):
                    part = (await model.score([prompt], [values], [continuations[e]])).logprobs[0, 0]
                    assert np.allclose(whole[p, e], part, atol=ROUNDING), f"prompt {p}, input {e}"

        self.use(work)

    def test_can_be_closed_twice(self) -> None:
        async def work(model: LanguageModel) -> None:
            if model.can_generate:
                await model.generate(self.request())
            await model.close()
            await model.close()

        self.use(work)

    def _failures(self) -> list[BaseException | None]:
        """The errors of two attempts at a broken model; None for an answer whose completions state the error."""

        async def work(model: LanguageModel) -> BaseException | None:
            try:
                completions = await model.generate(self.request())
            except Exception as error:
                return error
            assert completions and all(c.error for c in completions), "a broken model that answers"
            return None

        models = [self.broken(), self.broken()]
        return [self.use(work, model) for model in models if model is not None]


def check_completions(completions: Sequence[Completion], request: Request) -> None:
    """Assert what is true of every answer to a request."""
    assert 1 <= len(completions) <= request.n, f"{len(completions)} completions for n={request.n}"
    for completion in completions:
        assert isinstance(completion, Completion), f"{type(completion).__name__} is no Completion"
        assert isinstance(completion.text, str)
        assert completion.text.strip() or completion.error, "an empty answer must have an `error`"
        usage = completion.usage
        assert usage.input_tokens >= 0 and usage.output_tokens >= 0
        chances = (completion.first_token or {}).values()
        assert all(math.isfinite(value) and value <= ROUNDING for value in chances)


def _flag(name: str) -> Callable[[LanguageModel], Awaitable[bool]]:
    async def work(model: LanguageModel) -> bool:
        return bool(getattr(model, name))

    return work


async def _refuse(call: Awaitable[object]) -> None:
    try:
        await call
    except UsageError:
        return
    raise AssertionError("what a model cannot do raises UsageError")

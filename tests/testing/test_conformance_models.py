"""Every built-in model that runs offline passes the public suite, and each test of the suite notices a broken model."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.serving import server_thread

import whet
from whet.errors import ProviderError, UsageError
from whet.models.language_model import LanguageModel
from whet.models.openai import OpenAIModel
from whet.prompt import Prompt
from whet.testing.models import ModelConformance
from whet.types import Completion, Request, Scores, Usage

KEY = "sk-canary-7f3a91c2"


class TestEcho(ModelConformance):
    address = "scripted/echo"
    sampled = False


class TestConstant(ModelConformance):
    address = "scripted/constant"
    sampled = False


class TestLabels(ModelConformance):
    address = "scripted/labels"


class TestPhrases(ModelConformance):
    address = "scripted/phrases"


class TestScorer(ModelConformance):
    address = "simulated/scorer"


class TestRulesGenerator(ModelConformance):
    address = "simulated/rules-generator"


@cache
def exact_mlm() -> LanguageModel:
    """The masked language model, with the arithmetic that every processor has."""
    import torch

    from whet.models.embedded.mlm import MaskedModel

    return MaskedModel(torch.float32)


class TestEmbeddedMLM(ModelConformance):
    """In float32 on every machine: where the processor is fast at bfloat16, a batch is its parts within a hundredth only."""

    address = "embedded/mlm"

    @pytest.fixture(autouse=True)
    def exact(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("torch")
        monkeypatch.setattr("whet.models.embedded._scorer", lambda name: exact_mlm())

    def scored(self) -> tuple[Sequence[Prompt], Sequence[Mapping[str, str]], Sequence[Sequence[str]]]:
        prompts, inputs, _ = super().scored()
        masked = [Prompt.parse(f"{p.source} {{{{mask}}}}.") for p in prompts]
        return masked, inputs, [["good", "bad"]] * len(inputs)


class TestEncoder(ModelConformance):
    address = "embedded/encoder"

    @pytest.fixture(autouse=True)
    def needs_torch(self) -> None:
        pytest.importorskip("torch")


class TestTiny(ModelConformance):
    address = "embedded/tiny"

    @pytest.fixture(autouse=True)
    def needs_torch(self) -> None:
        pytest.importorskip("torch")


class TestTransformers(ModelConformance):
    address = f"hf/{Path(whet.__file__).parent / 'models' / 'embedded' / 'tiny'}"

    @pytest.fixture(autouse=True)
    def needs_transformers(self) -> None:
        pytest.importorskip("transformers")


class TestOpenAI(ModelConformance):
    """openai/... against a server in a process of its own."""

    secrets = (KEY,)
    url: ClassVar[str]

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def server(cls) -> Iterator[None]:
        with server_thread("--function", "tests.testing.served:answer", "--api-key", KEY) as url:
            cls.url = url
            yield

    def load(self) -> LanguageModel:
        return OpenAIModel("labels", base_url=self.url, api_key=KEY)

    def broken(self) -> LanguageModel:
        return OpenAIModel("labels", base_url=self.url, api_key=f"{KEY}-wrong")


class TestDeadEndpoint(TestOpenAI):
    """The same, and nobody listens."""

    def broken(self) -> LanguageModel:
        return OpenAIModel("labels", base_url="http://127.0.0.1:9/v1", api_key=KEY)


class Sound:
    """A small sound model, for its broken relatives below to go wrong: it answers and it scores."""

    address = "test/sound"
    simulated = local = can_generate = can_score = True

    def __init__(self) -> None:
        self.closed = False

    def text(self, request: Request) -> str:
        words = request.messages[-1].content.split()
        chosen = words[: 3 + (request.sample % 2 if request.temperature > 0 else 0)]
        return " ".join(chosen[: request.max_tokens])

    async def generate(self, request: Request) -> list[Completion]:
        await asyncio.sleep(0)
        text = self.text(request)
        for stop in request.stop:
            text = text.partition(stop)[0]
        spent = sum(len(m.content.split()) for m in request.messages)
        error = None if text else "empty answer"
        return [Completion(text, usage=Usage(spent, len(text.split())), error=error)] * request.n

    async def generate_batch(self, requests: Sequence[Request]) -> list[list[Completion]]:
        return [await self.generate(request) for request in requests]

    async def score(
        self,
        prompts: Sequence[Prompt],
        inputs: Sequence[Mapping[str, str]],
        continuations: Sequence[Sequence[str]],
    ) -> Scores:
        lengths = [[len(text) for text in row] for row in continuations]
        one = [
            [-float(len(values["input"]) + n) for n in row]
            for values, row in zip(inputs, lengths, strict=True)
        ]
        return Scores(np.array([one] * len(prompts)), np.array(lengths))

    def count_tokens(self, text: str) -> int:
        return len(text)

    async def close(self) -> None:
        self.closed = True


class Nameless(Sound):
    address = "sound"


class TooMany(Sound):
    async def generate(self, request: Request) -> list[Completion]:
        return [*await super().generate(request), Completion("one more")]


class Free(Sound):
    async def generate(self, request: Request) -> list[Completion]:
        return [dataclasses.replace(c, usage=Usage()) for c in await super().generate(request)]


class Underestimates(Sound):
    def count_tokens(self, text: str) -> int:
        return 0


class Endless(Sound):
    def text(self, request: Request) -> str:
        return "on and on and on"


class Unstoppable(Sound):
    async def generate(self, request: Request) -> list[Completion]:
        return await super().generate(dataclasses.replace(request, stop=()))


class Moody(Sound):
    moods = 0

    def text(self, request: Request) -> str:
        Moody.moods += 1
        return f"answer {Moody.moods}"


class Stubborn(Sound):
    def text(self, request: Request) -> str:
        return super().text(dataclasses.replace(request, temperature=0.0))


class Confused(Sound):
    async def generate(self, request: Request) -> list[Completion]:
        self.current = request
        await asyncio.sleep(0)
        return await super().generate(self.current)


class OtherInBatches(Sound):
    async def generate_batch(self, requests: Sequence[Request]) -> list[list[Completion]]:
        return [await self.generate(requests[0]) for _ in requests]


class Fragile(Sound):
    def text(self, request: Request) -> str:
        request.messages[-1].content.encode()
        return super().text(request)


class Talkative(Sound):
    """Raises what its HTTP library raises, and says the key."""

    async def generate(self, request: Request) -> list[Completion]:
        raise ConnectionError(f"401 for the key {KEY}")


class SaysTheKey(Sound):
    async def generate(self, request: Request) -> list[Completion]:
        raise ProviderError(f"401 for the key {KEY}", fatal=True)


class KeepsTheKey(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.key = KEY


class Pretends(Sound):
    can_score = False

    async def score(self, *arguments: Any) -> Scores:
        raise NotImplementedError


class Certain(Sound):
    async def score(self, *arguments: Any) -> Scores:
        scores = await super().score(*arguments)
        return dataclasses.replace(scores, logprobs=np.zeros_like(scores.logprobs))


class Misshapen(Sound):
    async def score(self, *arguments: Any) -> Scores:
        scores = await super().score(*arguments)
        return dataclasses.replace(scores, logprobs=scores.logprobs[0])


class Leaning(Sound):
    async def score(self, *arguments: Any) -> Scores:
        scores = await super().score(*arguments)
        return dataclasses.replace(scores, logprobs=scores.logprobs - len(arguments[1]))


class ClosesOnce(Sound):
    async def close(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True


def suite(model: type[Sound]) -> ModelConformance:
    """The suite for one of these models."""

    class Suite(ModelConformance):
        secrets = (KEY,)

        def load(self) -> LanguageModel:
            return model()

        def broken(self) -> LanguageModel | None:
            return model() if model in (Talkative, SaysTheKey) else None

    return Suite()


BROKEN = [
    (Nameless, "test_says_what_it_is"),
    (TooMany, "test_answers_with_one_to_n_completions"),
    (Free, "test_counts_what_is_billed"),
    (Underestimates, "test_foresees_the_tokens_of_a_request"),
    (Endless, "test_keeps_to_max_tokens"),
    (Unstoppable, "test_ends_before_a_stop_text"),
    (Moody, "test_the_same_request_has_the_same_answer"),
    (Stubborn, "test_numbered_samples_differ"),
    (Confused, "test_answers_do_not_mix_when_many_are_asked_at_once"),
    (OtherInBatches, "test_a_batch_answers_like_single_requests"),
    (Fragile, "test_odd_texts_are_answered_or_refused"),
    (Talkative, "test_a_failure_is_typed"),
    (SaysTheKey, "test_shows_no_key"),
    (KeepsTheKey, "test_shows_no_key"),
    (Pretends, "test_refuses_what_it_cannot_do"),
    (Certain, "test_scores_are_log_probabilities"),
    (Misshapen, "test_scores_are_log_probabilities"),
    (Leaning, "test_scores_of_a_batch_are_those_of_its_parts"),
    (ClosesOnce, "test_can_be_closed_twice"),
]
TESTS = [name for name in vars(ModelConformance) if name.startswith("test_")]


@pytest.mark.parametrize(("model", "test"), BROKEN)
def test_the_suite_notices_a_broken_model(model: type[Sound], test: str) -> None:
    with pytest.raises((AssertionError, UnicodeError, RuntimeError, NotImplementedError)):
        getattr(suite(model), test)()


def test_each_test_of_the_suite_has_a_broken_model() -> None:
    assert {test for _, test in BROKEN} == set(TESTS)


@pytest.mark.parametrize("test", TESTS)
def test_the_suite_passes_a_sound_model(test: str) -> None:
    getattr(suite(Sound), test)()


def test_a_model_that_answers_although_it_is_broken_is_noticed() -> None:
    class Suite(ModelConformance):
        def load(self) -> LanguageModel:
            return Sound()

        def broken(self) -> LanguageModel:
            return Sound()

    with pytest.raises(AssertionError, match="a broken model that answers"):
        Suite().test_a_failure_is_typed()


def test_a_model_that_only_scores_is_refused_the_rest() -> None:
    with contextlib.suppress(UsageError):
        asyncio.run(TestScorer().load().generate(TestScorer().request()))
        raise AssertionError("simulated/scorer only scores")

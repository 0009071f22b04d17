"""Bounds on output that a model does not allow: the numbers of a refusal are read, and the next attempt keeps to them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from whet.errors import ProviderError
from whet.models.addresses import resolve
from whet.models.output_bounds import OutputBounds, read_limits
from whet.testing.faults import ServerBehaviour
from whet.testing.server import serving
from whet.types import Completion, Message, Request

LONG = "This model's maximum context length is {} tokens. "
WORDS: list[tuple[str, dict[str, Any], int | None, tuple[int | None, int | None, int | None]]] = [
    ("'max_tokens' or 'max_completion_tokens' is too large: 3000. " + LONG.format(2048)[:-2] + " and your request has 500 input "
     "tokens (3000 > 2048 - 500).", {}, 3000, (2048, 500, None)),
    (LONG.format(4096) + "However, you requested 4500 tokens (1500 in the messages, 3000 in the completion). Please reduce the "
     "length of the messages or completion.", {}, 3000, (4096, 1500, None)),
    (LONG.format(4096) + "However, your request has 5000 input tokens. Please reduce the length of the input messages.", {}, 3000,
     (4096, 5000, None)),
    ("max_tokens is too large: 30000. This model supports at most 16384 completion tokens, whereas you provided 30000.", {},
     30000, (None, None, 16384)),
    ("max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for claude-x-4-20250514", {}, 100000,
     (None, None, 64000)),
    ("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or `max_tokens`", {},
     20000, (200000, 190000, None)),
    ("prompt is too long: 210000 tokens > 200000 maximum", {}, 3000, (200000, 210000, None)),
    ("Unable to submit request because it has a maxOutputTokens value of 100000 but the supported range is from 1 (inclusive) "
     "to 65537 (exclusive). Update the value and try again.", {}, 100000, (None, None, 65536)),
    ("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", {}, 3000,
     (1048576, 1200000, None)),
    ("request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it",
     {"n_ctx": 4096, "n_prompt_tokens": 5000}, 3000, (4096, 5000, None)),
    ("the request exceeds the available context size. try increasing the context size", {}, 3000, (None, None, None)),
    ("Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length", {}, 3000,
     (32768, 40000, None)),
    ("`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the `context_window`",
     {}, 30000, (None, None, 8192)),
    ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", {}, 30000, (None, None, 8192)),
    ("`inputs` tokens + `max_new_tokens` must be <= 4097. Given: 1500 `inputs` tokens and 3000 `max_new_tokens`", {}, 3000,
     (4097, 1500, None)),
    ("This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens (10000 of text input, "
     "130000 in the output).", {}, 130000, (131072, 10000, None)),
    ("Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 4500 tokens: "
     "1500 tokens from the input messages and 3000 tokens for the completion.", {}, 3000, (4096, 1500, None)),
    ("The input (5000 tokens) is longer than the model's context length (4096 tokens).", {}, 3000, (4096, 5000, None)),
    ("Input tokens exceed the configured limit of 272,000 tokens. Your messages resulted in 300,000 tokens.", {}, 3000,
     (272000, 300000, None)),
    ("too many tokens: max tokens must be less than or equal to 4096, the maximum output for this model", {}, 30000,
     (None, None, 4096)),
    ("max_tokens is too large", {}, 3000, (None, None, 1500)),
]  # fmt: skip


@pytest.mark.parametrize(("words", "details", "sent", "numbers"), WORDS)
def test_the_numbers_of_a_refusal(
    words: str, details: dict[str, Any], sent: int | None, numbers: tuple[int | None, ...]
) -> None:
    limits = read_limits(words, details, sent)
    assert limits is not None and (limits.context, limits.input, limits.output) == numbers


@pytest.mark.parametrize(
    "words",
    [
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        "Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) value is supported.",
        "Incorrect API key provided",
        "Invalid 'messages': array too long. Expected an array with maximum length 2048, but got 3000.",
    ],
)
def test_what_is_about_something_else_is_left_alone(words: str) -> None:
    assert read_limits(words, {}, 5) is None


@pytest.mark.parametrize(
    "words",
    [
        "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 5 instead.",
        "max_tokens must be at least 16",
        "`max_completion_tokens` must be greater than or equal to 16, the minimum of this model",
        "The minimum of max_tokens is 16.",
    ],
)
def test_a_bound_below_the_least_is_raised_to_it(words: str) -> None:
    limits, bounds = read_limits(words, {}, 5), OutputBounds()
    request = Request((Message("user", "q"),), max_tokens=5)
    assert limits is not None and limits.least == 16 and limits.output is None
    assert bounds.learn(request, limits, 5)
    assert bounds.fit(request).max_tokens == 16
    assert bounds.fit(replace(request, max_tokens=20)).max_tokens == 20
    assert bounds.fit(replace(request, max_tokens=None)).max_tokens is None


async def asked(
    requests: list[Request], **behaviour: Any
) -> tuple[list[int | None], list[Completion | ProviderError]]:
    """The bounds that were sent, and how each request ended; an attempt that is worth another one at once gets it."""
    async with serving(lambda request: "fine", settings=ServerBehaviour(**behaviour)) as server:
        model = resolve("openai/m", base_url=server.base_url)
        ends: list[Completion | ProviderError] = []
        for request in requests:
            for _ in range(4):
                try:
                    ends += await model.generate(request)
                except ProviderError as error:
                    if error.retryable and error.retry_after == 0.0 and not error.billed:
                        continue
                    ends.append(error)
                break
        await model.close()
        return [received.body.get("max_tokens") for received in server.received], ends


def request_of(words: int, bound: int | None = 3000) -> Request:
    return Request((Message("user", " ".join(["word"] * words)),), 0.5, bound)


async def test_a_small_context_gets_what_the_input_leaves(caplog: pytest.LogCaptureFixture) -> None:
    sent, ends = await asked(
        [request_of(500), request_of(500), request_of(400)], habits=("strict_context",), context=2048
    )
    assert sent[:2] == [3000, 1548]
    assert len(sent) == 4, "the next requests keep to it at once"
    assert 1400 < int(sent[2] or 0) <= 1548 and 1500 < int(sent[3] or 0) <= 1648
    assert [end.text for end in ends if isinstance(end, Completion)] == ["fine"] * 3
    lines = [record.getMessage() for record in caplog.records if "does not allow" in record.getMessage()]
    assert lines == [
        "openai/m does not allow 3000 tokens for an answer to this request; it is asked for 1548."
    ]


async def test_a_model_with_a_small_output_gets_its_most(caplog: pytest.LogCaptureFixture) -> None:
    sent, ends = await asked([request_of(5), request_of(6), request_of(7, 512)], most_output=1024)
    assert sent == [3000, 1024, 1024, 512]
    assert all(isinstance(end, Completion) and end.error is None for end in ends)
    assert not any("max_completion_tokens" in record.getMessage() for record in caplog.records)


async def test_an_input_that_does_not_fit_says_so_with_its_numbers() -> None:
    for bound in (3000, None):
        sent, (end,) = await asked([request_of(3000, bound)], habits=("strict_context",), context=2048)
        assert len(sent) == 1 and isinstance(end, ProviderError) and not end.retryable and not end.fatal
        assert "the model holds 2,048 tokens, and the input has 3,000" in str(end)
        assert "Shorten the prompt or the row" in str(end)

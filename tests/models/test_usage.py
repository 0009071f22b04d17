"""What a call was billed, in the spellings of the providers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from whet.engine.cache import decode_completions, encode_completions
from whet.engine.model_client import AdaptiveLimiter, ModelClient
from whet.models.callable import as_model
from whet.models.openai_answers import completions, reported_usage
from whet.models.prices import Price
from whet.types import Completion, Message, Request, Usage

CHOICES = [{"message": {"role": "assistant", "content": "refund"}}]


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        # xAI, Gemini: thoughts beside completion_tokens, in total_tokens only
        (
            {
                "prompt_tokens": 50,
                "completion_tokens": 2,
                "total_tokens": 552,
                "completion_tokens_details": {"reasoning_tokens": 500},
            },
            Usage(50, 502, 0, 500),
        ),
        ({"prompt_tokens": 50, "completion_tokens": 2, "total_tokens": 552}, Usage(50, 502, 0, 500)),
        ({"prompt_tokens": 50, "completion_tokens": 0, "total_tokens": 90}, Usage(50, 40, 0, 40)),
        # no total: thoughts that cannot be inside are beside
        (
            {
                "prompt_tokens": 50,
                "completion_tokens": 2,
                "completion_tokens_details": {"reasoning_tokens": 500},
            },
            Usage(50, 502, 0, 500),
        ),
        # the total says that they are not, whatever they are said to be
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 102,
                "total_tokens": 202,
                "completion_tokens_details": {"reasoning_tokens": 109},
            },
            Usage(100, 102, 0, 102),
        ),
        # the names of the Responses API
        (
            {
                "input_tokens": 50,
                "output_tokens": 60,
                "total_tokens": 110,
                "input_tokens_details": {"cached_tokens": 32},
                "output_tokens_details": {"reasoning_tokens": 40},
            },
            Usage(50, 60, 32, 40),
        ),
        # OpenAI: thoughts inside completion_tokens are not counted twice
        (
            {
                "prompt_tokens": 50,
                "completion_tokens": 502,
                "total_tokens": 552,
                "completion_tokens_details": {"reasoning_tokens": 500},
                "prompt_tokens_details": {"cached_tokens": 32},
            },
            Usage(50, 502, 32, 500),
        ),
        # DeepSeek, Anthropic, OpenRouter
        (
            {"prompt_tokens": 50, "completion_tokens": 5, "total_tokens": 55, "prompt_cache_hit_tokens": 48},
            Usage(50, 5, 48),
        ),
        ({"prompt_tokens": 50, "completion_tokens": 5, "cache_read_input_tokens": 40}, Usage(50, 5, 40)),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 415,
                "cache_read_input_tokens": 400,
            },
            Usage(410, 5, 400),
        ),
        ({"prompt_tokens": 9, "completion_tokens": 3, "cost": 0.0042}, Usage(9, 3, cost_usd=0.0042)),
        (
            {"prompt_tokens": 9, "completion_tokens": 3, "cost": {"total_cost": 0.5}},
            Usage(9, 3, cost_usd=0.5),
        ),
        # a router with the user's own key: its share, and what the provider bills on top
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 3,
                "cost": 0,
                "cost_details": {"upstream_inference_cost": 0.002},
            },
            Usage(9, 3, cost_usd=0.002),
        ),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 3,
                "cost": 0.25,
                "cost_details": {"upstream_inference_cost": 5.0},
            },
            Usage(9, 3, cost_usd=5.25),
        ),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 3,
                "cost": 0.5,
                "cost_details": {"upstream_inference_cost": 0.5},
            },
            Usage(9, 3, cost_usd=0.5),
        ),
        # cached input beside prompt_tokens, though not more than these: the total is larger by just that
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 5,
                "total_tokens": 185,
                "cache_read_input_tokens": 80,
            },
            Usage(180, 5, 80),
        ),
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 5,
                "total_tokens": 210,
                "cache_read_input_tokens": 80,
                "cache_creation_input_tokens": 25,
            },
            Usage(205, 5, 80, cache_write_tokens=25),
        ),
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 5,
                "total_tokens": 225,
                "cache_read_input_tokens": 80,
                "completion_tokens_details": {"reasoning_tokens": 40},
            },
            Usage(180, 45, 80, 40),
        ),
        # Anthropic's own names: input_tokens are those outside of the cache
        (
            {
                "input_tokens": 100,
                "output_tokens": 5,
                "cache_read_input_tokens": 80,
                "cache_creation_input_tokens": 3,
            },
            Usage(183, 5, 80, cache_write_tokens=3),
        ),
        (
            {"input_tokens": 4, "output_tokens": 5, "cache_creation_input_tokens": 1000},
            Usage(1004, 5, cache_write_tokens=1000),
        ),
        (
            {
                "input_tokens": 4,
                "output_tokens": 5,
                "cache_creation_input_tokens": 1000,
                "cache_creation": {"ephemeral_5m_input_tokens": 400, "ephemeral_1h_input_tokens": 600},
            },
            Usage(1004, 5, cache_write_tokens=1000, cache_write_1h_tokens=600),
        ),
        (
            {
                "input_tokens": 4,
                "output_tokens": 5,
                "cache_creation_input_tokens": 1000,
                "cache_creation": {"ephemeral_5m_input_tokens": 1000, "ephemeral_1h_input_tokens": 0},
            },
            Usage(1004, 5, cache_write_tokens=1000),
        ),
        # LiteLLM, which counts it within prompt_tokens
        (
            {
                "prompt_tokens": 1100,
                "completion_tokens": 5,
                "total_tokens": 1105,
                "prompt_tokens_details": {
                    "cache_creation_tokens": 1000,
                    "cache_creation_token_details": {"ephemeral_1h_input_tokens": 1000},
                },
            },
            Usage(1100, 5, cache_write_tokens=1000, cache_write_1h_tokens=1000),
        ),
        # LiteLLM and OpenRouter count what was written within prompt_tokens
        (
            {
                "prompt_tokens": 1100,
                "completion_tokens": 5,
                "total_tokens": 1105,
                "cache_creation_input_tokens": 1000,
                "cache_read_input_tokens": 0,
                "prompt_tokens_details": {"cached_tokens": 0, "cache_creation_tokens": 1000},
            },
            Usage(1100, 5, cache_write_tokens=1000),
        ),
        (  # of Bifrost
            {
                "prompt_tokens": 1100,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_read_tokens": 60, "cached_write_tokens": 1000},
            },
            Usage(1100, 5, 60, cache_write_tokens=1000),
        ),
        (  # in the words of the Responses API
            {
                "input_tokens": 1100,
                "output_tokens": 5,
                "total_tokens": 1105,
                "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 1000},
            },
            Usage(1100, 5, 60, cache_write_tokens=1000),
        ),
        (
            {
                "prompt_tokens": 1100,
                "completion_tokens": 5,
                "total_tokens": 1105,
                "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 1000},
            },
            Usage(1100, 5, 60, cache_write_tokens=1000),
        ),
        # more than the whole input was written into the cache, or read from it and written: gateways that hand on Anthropic's
        # count of the input, which holds neither
        (
            {"prompt_tokens": 50, "completion_tokens": 5, "cache_creation_input_tokens": 900},
            Usage(950, 5, cache_write_tokens=900),
        ),
        (
            {
                "prompt_tokens": 300,
                "completion_tokens": 50,
                "total_tokens": 350,
                "cache_creation_input_tokens": 1000,
                "cache_read_input_tokens": 200,
            },
            Usage(1500, 50, 200, cache_write_tokens=1000),
        ),
        (
            {"input_tokens": 3, "output_tokens": 5, "total_tokens": 8, "cache_creation_input_tokens": 1000},
            Usage(1003, 5, cache_write_tokens=1000),
        ),
        # xAI names ticks, DeepInfra an estimate; some write a text, or another currency
        (
            {"prompt_tokens": 9, "completion_tokens": 3, "cost_in_usd_ticks": 94_000_000},
            Usage(9, 3, cost_usd=0.0094),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 3, "cost": 0.5, "cost_in_usd_ticks": 10**10},
            Usage(9, 3, cost_usd=0.5),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 3, "estimated_cost": 2.68e-06},
            Usage(9, 3, cost_usd=2.68e-06),
        ),
        ({"prompt_tokens": 9, "completion_tokens": 3, "cost": "0.0042"}, Usage(9, 3, cost_usd=0.0042)),
        (
            {"prompt_tokens": 9, "completion_tokens": 3, "cost": {"total_cost": 0.5, "currency": "CNY"}},
            Usage(9, 3),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 3, "cost": {"total_cost": 0.5, "currency": "USD"}},
            Usage(9, 3, cost_usd=0.5),
        ),
        # other names, and whole numbers that were written as floats
        ({"input_tokens": 9, "output_tokens": 3}, Usage(9, 3)),
        ({"prompt_tokens": 1000.0, "completion_tokens": 3.0}, Usage(1000, 3)),
        (
            {"prompt_tokens": "262960", "completion_tokens": "3", "total_tokens": "262970"},
            Usage(262960, 10, 0, 7),
        ),
        # Mistral
        (
            {"prompt_tokens": 900, "completion_tokens": 3, "total_tokens": 903, "num_cached_tokens": 800},
            Usage(900, 3, 800),
        ),
        (
            {"prompt_tokens": 900, "completion_tokens": 3, "prompt_token_details": {"cached_tokens": 800}},
            Usage(900, 3, 800),
        ),
        # what is odd is not believed
        ({"prompt_tokens": "many", "completion_tokens": "3"}, None),
        ({"prompt_tokens": "9.5", "completion_tokens": "3"}, None),
        ({"prompt_tokens": 9.5, "completion_tokens": 3}, None),
        ({"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 4, "cost": -1}, Usage(9, 3)),
        ({"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": "12", "cost": "free"}, Usage(9, 3)),
        ({"prompt_tokens": 9, "completion_tokens": 0, "total_tokens": 9}, None),
        ({"prompt_tokens": 0, "completion_tokens": 3}, None),
    ],
)
def test_output_is_all_that_was_written(usage: dict[str, Any], expected: Usage | None) -> None:
    assert reported_usage({"choices": CHOICES, "usage": usage}) == expected


def test_sums_keep_what_the_provider_names() -> None:
    assert sum([Usage(1, 2), Usage(3, 4, 1, 2, 0.5), Usage(5, 6, cost_usd=0.25)], Usage()) == Usage(
        9, 12, 1, 2, 0.75
    )
    assert (Usage(1, 1) + Usage(1, 1)).cost_usd is None


@pytest.mark.parametrize(
    "usage",
    [
        *[
            Usage(7, 5),
            Usage(7, 5, 3),
            Usage(7, 5, 0, 4, 0.25),
            Usage(7, 5, 3, 4, 0.25, cache_write_tokens=2),
        ],
        Usage(7, 5, cache_write_tokens=4, cache_write_1h_tokens=3),
    ],
)
@pytest.mark.parametrize("seconds", [None, 1.5])
@pytest.mark.parametrize("thought", ["", "Hm."])
def test_answers_are_stored_with_all_of_their_usage(
    usage: Usage, seconds: float | None, thought: str
) -> None:
    (found,) = decode_completions(
        encode_completions([Completion("x", usage=usage, seconds=seconds, thought=thought)])
    )
    assert (found.usage, found.seconds, found.thought) == (usage, seconds, thought)


def test_cached_input_has_a_price_of_its_own() -> None:
    used = Usage(1_000_000, 1_000_000, cached_input_tokens=500_000)
    assert Price(2.0, 10.0).cost(used) == 12.0
    assert Price(2.0, 10.0, cached_input=0.2).cost(used) == pytest.approx(11.1)


def test_what_is_written_into_the_cache_has_a_price_of_its_own() -> None:
    used = Usage(1_000_000, 1_000_000, cached_input_tokens=500_000, cache_write_tokens=400_000)
    assert Price(2.0, 10.0).cost(used) == 12.0
    assert Price(2.0, 10.0, cached_input=0.2, cache_write=2.5).cost(used) == pytest.approx(0.2 + 0.1 + 1 + 10)
    hour = replace(used, cache_write_1h_tokens=300_000)
    price = Price(2.0, 10.0, cached_input=0.2, cache_write=2.5, cache_write_1h=4.0)
    assert price.cost(hour) == pytest.approx(0.2 + 0.1 + 0.25 + 1.2 + 10)
    assert Price(2.0, 10.0, cached_input=0.2, cache_write=2.5).cost(hour) == pytest.approx(0.2 + 0.1 + 1 + 10)


def test_a_price_of_cached_input_above_that_of_the_input_is_reserved() -> None:
    price = Price(1.0, 0.0, cached_input=3.0)
    most, used = price.most(Usage(1_000_000)), price.cost(Usage(1_000_000, cached_input_tokens=1_000_000))
    assert most == used == 3.0


def test_a_limit_holds_where_all_of_the_input_is_written_into_the_cache() -> None:
    model = as_model(lambda messages: "x")
    prices = (
        Price(2.0, 0.0),
        Price(2.0, 0.0, cache_write=4.0),
        Price(2.0, 0.0, cache_write=2.5, cache_write_1h=4.0),
        Price(2.0, 0.0, cache_write=0.0),
    )
    request = Request((Message("user", "Hello there"),))
    clients = [ModelClient(model, AdaptiveLimiter(1), price) for price in prices]
    reserved = [client.worst_case("task", request)[0].cost for client in clients]
    assert reserved == pytest.approx([reserved[0], 2 * reserved[0], 2 * reserved[0], reserved[0]])
    assert [client.cost_at_most(Usage(1_000_000)) for client in clients] == [2.0, 4.0, 4.0, 2.0]


@pytest.mark.parametrize(
    ("total", "expected"), [(1010, (9, 1001)), (5, (3, 2)), (1, (0, 1)), (0, (9, 2)), ("x", (9, 2))]
)
def test_parts_that_are_not_named_add_up_to_the_total(total: Any, expected: tuple[int, int]) -> None:
    """The total was ignored, and a call of 1,010 tokens counted as 11."""
    data = {
        "choices": [{"message": {"content": "ab"}, "finish_reason": "stop"}],
        "usage": {"total_tokens": total},
    }
    request = Request((Message("user", "123456789"),))
    (answer,) = completions(data, request, len, reported_usage(data))  # type: ignore[misc]
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == expected and answer.usage.estimated


@pytest.mark.parametrize(
    ("usage", "header", "expected"),
    [
        ({"prompt_tokens": 1000, "completion_tokens": 0, "total_tokens": 1000}, "", (1000, 2, None)),
        ({"prompt_tokens": 1000, "completion_tokens": -1}, "", (1000, 2, None)),
        ({"prompt_tokens": 0, "completion_tokens": 500, "total_tokens": 500}, "", (9, 500, None)),
        ({"completion_tokens": 500, "total_tokens": 1500}, "", (1000, 500, None)),
        ({"prompt_tokens": 1000, "completion_tokens": None, "total_tokens": 1500}, "", (1000, 500, None)),
        ({"prompt_tokens": 1000, "completion_tokens": 0, "cost": 0.5}, "", (1000, 2, 0.5)),
        ({"cost": 0.5}, "", (9, 2, 0.5)),
        (None, "0.25", (9, 2, 0.25)),
        ({"prompt_tokens": 1000, "completion_tokens": 0, "cost": 0.5}, "0.25", (1000, 2, 0.5)),
    ],
)
def test_what_half_a_usage_names_counts(
    usage: Any, header: str, expected: tuple[int, int, float | None]
) -> None:
    """Limits on tokens and dollars held for a usage that was whole, and for no other."""
    data = {"choices": [{"message": {"content": "ab"}, "finish_reason": "stop"}], "usage": usage}
    request = Request((Message("user", "123456789"),))
    (answer,) = completions(data, request, len, reported_usage(data), header)  # type: ignore[misc]
    used = answer.usage
    assert (used.input_tokens, used.output_tokens, used.cost_usd) == expected and used.estimated


def test_input_that_was_all_cached_is_input() -> None:
    cached = {"input_tokens": 0, "output_tokens": 100, "cache_read_input_tokens": 1000}
    assert reported_usage({"usage": cached, "choices": CHOICES}) == Usage(1000, 100, 1000)
    thought = {"input_tokens": 9, "output_tokens": 100, "output_tokens_details": {"thinking_tokens": 60}}
    assert reported_usage({"usage": thought, "choices": CHOICES}) == Usage(9, 100, 0, 60)

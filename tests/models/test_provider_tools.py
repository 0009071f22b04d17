"""Tools that a provider runs itself cost money that no price holds: every face of a result that names dollars says so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.models.test_gateway_replies import USAGE, Handler, chat, endpoint, evaluate_at, ok, right, stream

import whet
from whet.cli.show import show_dollars

PRICE = {"input": 1.0, "output": 1.0}
DOLLARS = 0.00132  # 12 calls of 110 tokens
SAID = "of the provider's own tools"
CITED = [
    {"type": "url_citation", "url_citation": {"url": "https://example.org", "start_index": 0, "end_index": 3}}
]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")


def answering(usage: Mapping[str, Any], **message: Any) -> Handler:
    """A server whose usage and whose message hold more than a text and its tokens."""

    def handler(number: int, body: Mapping[str, Any]) -> tuple[int, bytes]:
        reply = chat(right(body), {**USAGE, **usage})
        reply["choices"][0]["message"] |= message
        return ok(reply)

    return handler


@pytest.mark.parametrize(
    ("usage", "message", "calls"),
    [
        ({"server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 1}}, {}, 36),
        ({"prompt_tokens_details": {"cached_tokens": 0, "web_search_requests": 1}}, {}, 12),
        ({"num_search_queries": 5}, {}, 60),
        ({"server_side_tool_usage_details": {"web_search_calls": 1, "x_search_calls": 3}}, {}, 48),
        ({}, {"executed_tools": [{"type": "search"}, {"type": "python"}]}, 24),
        ({}, {"annotations": CITED * 4}, 12),
    ],
)
def test_calls_of_a_providers_tools_are_counted_and_said_beside_the_dollars(
    usage: dict[str, Any], message: dict[str, Any], calls: int, tmp_path: Path
) -> None:
    found = evaluate_at(answering(usage, **message), tmp_path, price=PRICE)
    assert found["usage"]["cost_usd"] == pytest.approx(DOLLARS)
    assert found["usage"]["provider_tools"] == {"task": calls}
    (said,) = [text for text in found["warnings"] if SAID in text]
    assert said.startswith(f"openai/m reported {calls} calls {SAID}") and "role task" in said
    assert show_dollars(found["usage"]).endswith("(without the provider's own tools)")


def test_the_usage_of_a_stream_counts_them_too(tmp_path: Path) -> None:
    def handler(number: int, body: Mapping[str, Any]) -> tuple[int, bytes]:
        delta = {"index": 0, "delta": {"content": right(body)}, "finish_reason": "stop"}
        return stream(
            {"choices": [delta]},
            {"choices": [], "usage": USAGE | {"server_tool_use": {"web_search_requests": 1}}},
        )

    found = evaluate_at(handler, tmp_path, price=PRICE, stream=True)
    assert found["usage"]["provider_tools"] == {"task": 12}


@pytest.mark.parametrize(
    "usage",
    [
        {"server_tool_use": {"web_search_requests": 0}},
        {"server_tool_use": None},
        {"server_tool_use": {"web_search_requests": "many", "other": -1}},
        {"server_tool_use": {"web_search_requests": 3}, "cost": 0.04},
    ],
)
def test_nothing_is_said_where_there_were_none_or_the_provider_names_the_cost(
    usage: dict[str, Any], tmp_path: Path
) -> None:
    found = evaluate_at(answering(usage, annotations=[]), tmp_path, price=PRICE)
    assert "provider_tools" not in found["usage"] and not any(SAID in text for text in found["warnings"])
    assert found["usage"]["cost_usd"] == pytest.approx(12 * usage["cost"] if "cost" in usage else DOLLARS)


def test_without_a_price_there_are_no_dollars_to_speak_of(tmp_path: Path) -> None:
    found = evaluate_at(answering({"server_tool_use": {"web_search_requests": 1}}), tmp_path)
    assert found["usage"]["cost_usd"] is None and found["usage"]["provider_tools"] == {"task": 12}
    assert not any(SAID in text for text in found["warnings"])


def test_a_run_and_its_control_say_it_once_with_the_calls_of_both(tmp_path: Path) -> None:
    rows = [
        {"id": str(i), "input": f"Dish {i} was bad.", "target": ["positive", "negative"][i % 2]}
        for i in range(40)
    ]
    with endpoint(answering({"server_tool_use": {"web_search_requests": 1}})) as one:
        result = whet.optimize(
            "What is it like?", data=rows, reward="exact_match", method="random_search", control="random_search",
            lm={"address": "openai/m", "base_url": one.url, "price": PRICE}, optimizer_lm="scripted/paraphraser",
            budget=whet.Budget(calls=120), run=tmp_path / "run", progress=False,
        )  # fmt: skip
    (said,) = [text for text in result.warnings if SAID in text]
    total = result.usage.provider_tools["task"]
    assert total == result.usage.calls["task"] and f"reported {total} calls" in said
    stored = json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))
    assert stored["usage"]["provider_tools"] == {"task": total}
    assert "without the provider&#x27;s own tools" in (tmp_path / "run" / "report.html").read_text("utf-8")

"""The list of answers: words, filters, traces, what it says of a search that is not over."""

from __future__ import annotations

import pytest

from tests.server.conftest import Running
from tests.server.test_quality_pages import words
from whet_client.records import Inference
from whet_live.traffic import answer_search

NOON = 1_790_000_000_000_000


@pytest.fixture
def asked(server: Running) -> Running:
    """A server with a conversation and an answer that failed."""
    server.state.live.traffic.add(
        [
            Inference(
                "shop/help", 1, {"q": "Когда?"}, "ЗАВТРА.", id="one", session="s", model="m", time=NOON
            ),
            Inference(
                "shop/help",
                1,
                {"q": "And then?"},
                "<b>Never</b>.",
                id="two",
                session="s",
                model="m",
                time=NOON + 1,
            ),
            Inference("shop/tour", 2, {}, "", id="three", error="It was down.", time=NOON + 2),
        ]
    )
    return server


def test_answers_are_searched_and_filtered(asked: Running) -> None:
    browser = asked.browser("viewer")

    def shown(query: str) -> list[str]:
        text = browser.page(f"/answers?{query}").text
        return [key for key in ("one", "two", "three") if f'href="/feedback/{key}"' in text]

    assert shown("") == ["one", "two", "three"]
    assert shown("text=%D0%B7%D0%B0%D0%B2%D1%82%D1%80%D0%B0") == ["one"]  # in small letters
    assert shown("text=then") == ["two"]  # in the inputs
    assert shown("session=s") == ["one", "two"] and shown("failed=yes") == ["three"] == shown(
        "prompt=shop/tour"
    )
    assert shown("text=nothing") == [] and "No answer fits." in browser.page("/answers?text=nothing").text
    assert "<b>Never" not in browser.page("/answers").text
    assert browser.page("/answers?since=tomorrow").status == 400


def test_a_search_that_is_not_over_says_so(asked: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_search, "LOOKED_AT", 1)
    monkeypatch.setattr(answer_search, "_BATCH", 1)
    answer = asked.browser("viewer").page("/answers?text=%D0%B7%D0%B0%D0%B2%D1%82%D1%80%D0%B0")
    assert "No answer fits so far." in words(answer) and "1 answer searched" in words(answer)
    assert 'rel="next"' in answer.text

"""A provider refuses most rows of a prompt: what it answered decides nothing about the rest."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.api.world import PROMPT, Counted, right, rows, writer
from tests.models.test_gateway_replies import chat, endpoint, ok
from whet.errors import ProviderError

Refuses = Callable[[str, bool], bool]


class Refusing(Counted):
    """The model of the world behind a provider that refuses some requests, by the question and whether the prompt is careful."""

    def __init__(self, refuses: Refuses) -> None:
        super().__init__()
        self.refuses = refuses

    def __call__(self, messages: list[whet.Message]) -> str:
        careful = "careful" in " ".join(m.content for m in messages).lower()
        if self.refuses(messages[-1].content, careful):
            raise ProviderError("The provider refuses this request.", status=400)
        return super().__call__(messages)


def optimize(folder: Path, refuses: Refuses, validation: list[dict[str, Any]]) -> whet.RunResult:
    every = rows(20)
    words: dict[str, Any] = {
        "data": {"train": every[:20], "validation": validation, "test": every[60:]},
        "reward": right,
        "optimizer_lm": writer,
        "method": whet.methods.opro.Config(steps=2, samples=2),
        "run": folder / "run",
        "progress": False,
    }
    try:
        return whet.optimize(PROMPT, lm=Refusing(refuses), **words)
    except (
        ProviderError
    ) as error:  # as an account without credit refuses; a repetition asks whether it is one
        assert "Requests that it refuses again then count as refused" in str(error)
        return whet.optimize(PROMPT, lm=Refusing(refuses), **words)


@pytest.mark.parametrize(("answered", "stays"), [(1, False), (19, False), (20, True)])
def test_a_start_answered_on_few_rows_does_not_stay_by_them(
    tmp_path: Path, answered: int, stays: bool
) -> None:
    """Forty rows, all right with care. Under the start those of dishes with an odd number are right: the provider answers so many
    of them and refuses the rest. Ahead on 19 of the 40 rows at most, a prompt is right on 40 against 19 at worst; by 20 rows,
    half of all, it is level and the start stays."""
    validation = sorted(rows(20)[20:60], key=lambda row: int(row["input"].split()[1]) % 2 == 0)
    shown = {row["input"] for row in validation[:answered]}
    known = {row["input"] for row in validation}

    def refuses(question: str, careful: bool) -> bool:
        asked = question.split("Review: ")[1]
        return not careful and asked in known - shown

    result = optimize(tmp_path, refuses, validation)
    assert result.baseline.validation is not None and result.baseline.validation.n == answered
    assert (result.best.id == result.baseline.id) == stays
    assert stays or "careful" in result.best.prompt.text


ODD = [7, 17, 25]
SPLIT = {"validation": 30, "train": 1, "test": 1}
DATA = {
    split: [
        {
            "id": f"{split}{n}",
            "input": f"{split} {n} {'odd' if n in ODD else 'even'} {'ab'[n % 2]}",
            "target": "ab"[n % 2],
        }
        for n in range(often)
    ]
    for split, often in SPLIT.items()
}


def last_word(body: Mapping[str, Any]) -> str:
    return str(body["messages"][-1]["content"].split()[-1])


class Provider:
    """Refuses what is odd, as an endpoint or as a function; `asked` counts the odd requests and the others."""

    def __init__(self) -> None:
        self.asked = [0, 0]

    def handle(self, number: int, body: Mapping[str, Any]) -> tuple[int, bytes]:
        odd = "odd" in str(body["messages"])
        self.asked[odd] += 1
        return (400, b'{"error": {"message": "too odd"}}') if odd else ok(chat(last_word(body)))

    def answer(self, messages: list[whet.Message]) -> str:
        odd = "odd" in messages[-1].content
        self.asked[odd] += 1
        if odd:
            raise ValueError("too odd")
        return messages[-1].content.split()[-1]

    def evaluate(self, folder: Path, url: str, **options: Any) -> Any:
        model = {"address": "openai/m", "base_url": url} if url else {"address": self.answer}
        # A request that is refused before the first answer may be the model's fault, and is tried again.
        lm = {**model, "concurrency": 1}
        self.asked = [0, 0]
        return whet.evaluate(
            "{{input}}", data=DATA, reward="exact_match", lm=lm, root=folder, progress=False, **options
        )


@pytest.fixture(params=[True, False], ids=["endpoint", "function"])
def provider(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Provider, str]]:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    one = Provider()
    if not request.param:
        yield one, ""
        return
    with endpoint(one.handle) as server:
        yield one, server.url


def test_refused_rows_are_asked_once_and_the_next_command_still_has_its_figures(
    provider: tuple[Provider, str], tmp_path: Path
) -> None:
    one, url = provider
    first = one.evaluate(tmp_path, url)
    assert (first["score"]["mean"], first["score"]["answered"]) == (1.0, 27)
    assert one.asked == [27, 3]
    assert first["usage"]["calls"]["task"] == (27 if url else 30), "what an endpoint refuses is no call"
    again = one.evaluate(tmp_path, url)
    assert (again["score"]["mean"], again["score"]["answered"]) == (1.0, 27)
    assert one.asked == [0, 3], "the refused rows may be answered by now, and the others are recorded"


def test_an_endpoint_that_takes_nothing_ends_the_run_although_it_once_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    answered = 0

    def handle(number: int, body: Mapping[str, Any]) -> tuple[int, bytes]:
        nonlocal answered
        answered += 1
        return (
            ok(chat(last_word(body))) if answered <= 3 else (400, b'{"error": {"message": "no such option"}}')
        )

    with endpoint(handle) as server:
        lm = {"address": "openai/m", "base_url": server.url, "concurrency": 1}
        few = {**DATA, "validation": DATA["validation"][:3]}
        for data in (few, DATA):
            with pytest.raises(ProviderError, match="refused all of") if data is DATA else nullcontext():
                whet.evaluate(
                    "{{input}}", data=data, reward="exact_match", lm=lm, root=tmp_path, progress=False
                )


@pytest.mark.parametrize("status", [401, 402, 403, 404, 405])
@pytest.mark.parametrize("by", ["task", "judge"])
def test_a_status_that_ends_the_run_names_the_row_where_others_were_answered(
    status: int, by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")

    def handle(number: int, body: Mapping[str, Any]) -> tuple[int, bytes]:
        judged = "rubric" in str(body["messages"])
        if "validation 7 " in str(body["messages"]) and judged == (by == "judge"):
            return status, b'{"error": {"message": "not this"}}'
        return ok(chat("Kind. Score: 5" if judged else body["messages"][-1]["content"]))

    reward = {"judge": {"rubric": "Is it kind?", "scale": [0, 5], "reference": "ignore"}}
    with endpoint(handle) as server:
        lm = {"address": "openai/m", "base_url": server.url, "concurrency": 1}
        with pytest.raises(
            ProviderError,
            match=r"answered \d+ other requests?, and refused this one \(row validation7 at.*run the same command again",
        ):
            whet.evaluate(
                "{{input}}", data=DATA, reward=reward, lm=lm, judge_lm=lm, root=tmp_path, progress=False
            )


def test_a_status_of_all_requests_names_no_row_and_a_refused_row_is_named_in_the_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with endpoint(lambda number, body: (403, b'{"error": {"message": "no"}}')) as server:
        with pytest.raises(ProviderError) as raised:
            Provider().evaluate(tmp_path / "all", server.url)
        assert "row" not in str(raised.value)
    one = Provider()
    with endpoint(one.handle) as server:
        found = one.evaluate(tmp_path / "one", server.url)
    said = r"the first \(row validation(7|17|25)\): provider: openai/m: HTTP 400: too odd"
    assert any(re.search(said, text) for text in found["warnings"])

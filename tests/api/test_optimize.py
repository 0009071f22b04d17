"""`whet.optimize` and its relatives with values of Python: functions, configs, budgets, loops, Ctrl-C, resuming."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.api.world import PROMPT, Counted, right, rows, writer
from whet.engine.run_folder import read_header
from whet.errors import ReplayDiverged

OPRO = whet.methods.opro.Config(steps=2, samples=2, examples=10, finalists=1)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def words(model: Any = None, **more: Any) -> dict[str, Any]:
    known = {
        "data": rows(),
        "reward": right,
        "lm": model or Counted(),
        "optimizer_lm": writer,
        "method": OPRO,
    }
    return {**known, "budget": whet.Budget(calls=1000), **more}


def test_the_same_call_again_pays_nothing_and_a_changed_one_is_another_run(folder: Path) -> None:
    model = Counted()
    first = whet.optimize(PROMPT, **words(model))
    assert first.promoted and first.best.prompt.text == "Be careful and sort the review.\nReview: {{input}}"
    paid = model.calls
    same = whet.optimize(whet.Prompt.parse(PROMPT), **words(model))
    assert same.to_dict() == first.to_dict() and same["recorded"] and model.calls == paid
    assert (
        first.to_dict() == json.loads((first.run / "result.json").read_text())
        and "run" not in first.to_dict()
    )
    assert first["run"] == str(first.run) and first["best"]["prompt"] == first.best.prompt.source

    def other(example: dict[str, Any], output: str) -> float:
        return 1.0 - right(example, output)

    changes = {"reward": other, "data": rows(21), "seed": 1, "budget": whet.Budget(calls=999)}
    changes["method"] = dataclasses.replace(OPRO, samples=1)
    for name, value in changes.items():
        again = whet.optimize(PROMPT, **words(model, **{name: value}))
        assert again.run != first.run, f"another {name} is another run"
        with pytest.raises(ReplayDiverged):
            whet.optimize(PROMPT, **words(model, **{name: value}), run=first.run)


def test_a_model_of_other_code_is_another_model_and_takes_no_answer_from_a_cache(folder: Path) -> None:
    def one(messages: list[whet.Message]) -> str:
        return "positive"

    first = whet.evaluate(PROMPT, data=rows(), reward=right, lm=one)

    def one(messages: list[whet.Message]) -> str:  # type: ignore[no-redef]
        return "negative"

    second = whet.evaluate(PROMPT, data=rows(), reward=right, lm=one)
    assert first["models"]["task"] != second["models"]["task"]
    assert first.score.mean + second.score.mean == pytest.approx(1.0)
    assert first.usage.calls["task"] == second.usage.calls["task"] == 24


async def test_everything_works_in_a_running_loop_and_has_an_async_twin(folder: Path) -> None:
    model = Counted()
    waited = whet.optimize(PROMPT, **words(model))
    assert (await whet.aoptimize(PROMPT, **words(model))).to_dict() == waited.to_dict()
    evaluated = whet.evaluate(PROMPT, data=rows(), reward=right, lm=model, split="train")
    paid = model.calls
    again = await whet.aevaluate(PROMPT, data=rows(), reward=right, lm=model, split="train")
    assert again.score == evaluated.score and again["recorded"] and model.calls == paid, (
        "the recorded evaluation is handed out, nothing is asked"
    )
    small: dict[str, Any] = {**words(model, budget=whet.Budget(calls=200)), "method": None}
    del small["method"]
    compared = whet.compare(PROMPT, ["random_search", OPRO], **small)
    assert (await whet.acompare(PROMPT, ["random_search", OPRO], **small)).methods == compared.methods
    assert [run.method for run in compared.runs] == ["random_search", "opro"]
    taught = whet.learn("Answer.\n{{q}}", [{"id": "a", "comment": "long", "instruction": "Be brief."}])
    assert (
        await whet.alearn("Answer.\n{{q}}", [{"id": "a", "comment": "long", "instruction": "Be brief."}])
    ).prompt == taught.prompt
    assert "- Be brief." in taught.prompt.text and taught.status == "written"


async def test_coroutines_are_rewards_and_models(folder: Path) -> None:
    running = threading.get_ident()

    async def model(messages: list[whet.Message]) -> whet.Completion:
        assert threading.get_ident() == running
        await asyncio.sleep(0)
        return whet.Completion("positive")

    async def reward(example: dict[str, Any], output: str) -> whet.Reward:
        await asyncio.sleep(0)
        return whet.Reward(right(example, output), {"length": len(output)}, "Say more.")

    result = await whet.aevaluate(PROMPT, data=rows(), reward=reward, lm=model)
    assert 0 < result.score.mean < 1 and result.parts == {"length": 8.0}


def test_calls_of_an_ordinary_function_are_in_flight_together(folder: Path) -> None:
    barrier = threading.Barrier(8, timeout=120)

    def model(messages: list[whet.Message]) -> str:
        barrier.wait()
        return "positive"

    result = whet.evaluate(PROMPT, data=rows(), reward=right, lm=model, concurrency=8)
    assert result.failed == 0, "24 calls came in groups of eight"


def test_a_model_that_always_fails_ends_the_run_with_its_reason(folder: Path) -> None:
    def model(messages: list[whet.Message]) -> str:
        raise KeyError("no such thing")

    with pytest.raises(whet.ProviderError, match=r"model@.*KeyError: 'no such thing'"):
        whet.optimize(PROMPT, **words(model))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"lm": lambda: "x"}, "called as function\\(messages\\)"),
        ({"lm": 7}, "7 is no model"),
        ({"lm": "opnai/gpt"}, 'unknown provider "opnai". Did you mean "openai"'),
        ({"lm": {"adress": "scripted/echo"}}, 'no key "adress". Did you mean "address"'),
        ({"method": "opr"}, 'no method "opr". Did you mean "opro"'),
        ({"method": object()}, "is no method"),
        ({"settings": {"steps": 3}}, "settings= is given too"),
        ({"budget": whet.Budget(calls=-1)}, "budget.calls must be above 0"),
        ({"budget": whet.Budget(cost_usd=1.0)}, "needs the price"),
        ({"budget": whet.Budget(calls=20)}, "Give at least"),
    ],
)
def test_what_cannot_be_used_is_refused_and_nothing_is_paid_or_written(
    folder: Path, more: dict[str, Any], said: str
) -> None:
    model = Counted()
    with pytest.raises(whet.UsageError, match=said):
        whet.optimize(PROMPT, **words(model, **more))
    assert model.calls == 0 and not list(folder.iterdir())


async def test_an_unknown_keyword_is_refused_with_the_nearest_known_one(folder: Path) -> None:
    with pytest.raises(whet.UsageError, match=r'no option "optimiser_lm". Did you mean "optimizer_lm"'):
        whet.optimize(PROMPT, **words(), optimiser_lm="none")
    with pytest.raises(whet.UsageError, match=r'no option "max_calls"'):
        await whet.aevaluate(PROMPT, data=rows(), reward=right, lm=Counted(), max_calls=3)  # type: ignore[call-arg]


def test_a_model_with_settings_of_its_own_and_a_price(folder: Path) -> None:
    seen: list[Any] = []

    def model(messages: list[whet.Message], request: Any) -> whet.Completion:
        seen.append((request.temperature, request.max_tokens))
        return whet.Completion("positive")

    lm = {"address": model, "temperature": 0.5, "max_tokens": 7, "price": {"input": 1.0, "output": 2.0}}
    result = whet.optimize(
        PROMPT,
        data=rows(),
        reward=right,
        lm=lm,
        optimizer_lm="none",
        method="random_search",
        budget=whet.Budget(calls=200, cost_usd=1.0),
    )
    assert set(seen) == {(0.5, 7)} and result.status == "completed"


@dataclasses.dataclass(frozen=True)
class Fixed:
    """Settings of a method that tries one text."""

    text: str = "Be careful and sort the review."


@pytest.fixture
def fixed() -> Iterator[str]:
    @whet.methods.register(title="One text")
    async def one_text(
        run: whet.Run, env: whet.Environment, policy: object, start: whet.Prompt, config: Fixed
    ) -> whet.Candidate:
        made = whet.Candidate(start.edit(config.text))
        run.log("made", made.id)
        return made

    yield "one_text"
    whet.methods._REGISTERED.clear()


def test_a_method_of_your_own_by_config_and_by_name(folder: Path, fixed: str) -> None:
    by_config = whet.optimize(PROMPT, **words(method=Fixed()))
    assert by_config.promoted and by_config.method == "one_text"
    by_name = whet.optimize(PROMPT, **words(method=fixed, settings={"text": "Sort."}))
    assert not by_name.promoted and (read_header(by_name.run) or {})["config"] == {"text": "Sort."}
    assert whet.methods.table()[0][-1]["title"] == "One text"
    with pytest.raises(whet.UsageError, match=r'has no setting "txt". Did you mean "text"'):
        whet.optimize(PROMPT, **words(method=fixed, settings={"txt": "Sort."}))
    with pytest.raises(whet.UsageError, match="in whet already"):
        whet.methods.register(Fixed, name="opro")(Counted)  # type: ignore[type-var]
    with pytest.raises(whet.UsageError, match="frozen dataclass"):
        whet.methods.register(dict, name="mine")(Counted)  # type: ignore[type-var]


async def test_control_c_in_a_running_loop_stops_and_the_same_call_goes_on(folder: Path) -> None:
    model = Counted()
    main, once = threading.get_ident(), threading.Semaphore(1)

    def slow(messages: list[whet.Message]) -> str:
        if model.calls >= 30 and once.acquire(blocking=False):
            signal.pthread_kill(main, signal.SIGINT)
        time.sleep(0.002)
        return model(messages)

    slow.version = 1  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        whet.optimize(PROMPT, **words(slow, concurrency=2))
    stopped = model.calls
    assert 30 <= stopped < 126
    result = whet.optimize(PROMPT, **words(slow, concurrency=2))
    assert result.promoted and result.run.name.endswith("opro-0"), "the same folder"
    assert stopped < model.calls <= 126 + 2, "what was recorded was not asked again"


def test_what_a_handler_of_a_signal_raises_stops_the_work_before_the_process_ends(folder: Path) -> None:
    """As in the learner of a server: SIGTERM is SystemExit there, and no thread may go on while the interpreter ends."""
    model, main, once = Counted(), threading.get_ident(), threading.Lock()

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    def slow(messages: list[whet.Message]) -> str:
        if model.calls >= 30 and once.acquire(blocking=False):
            signal.pthread_kill(main, signal.SIGTERM)
        time.sleep(0.002)
        return model(messages)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        with pytest.raises(SystemExit, match="143"):
            whet.optimize(PROMPT, **words(slow, concurrency=2, reward="exact_match"))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert "whet" not in [one.name for one in threading.enumerate()]
    assert 30 <= model.calls < 126


def test_public_names_are_listed_and_light(folder: Path) -> None:
    assert set(dir(whet)) == set(whet.__all__) and len(whet.__all__) == len(set(whet.__all__))
    assert {name: getattr(whet, name) for name in dir(whet)}.keys() == set(whet.__all__)
    assert "opro" in dir(whet.methods) and os.path.basename(str(whet.methods.__file__)) == "__init__.py"


@pytest.mark.parametrize("split", ["validation", "test"])
def test_an_evaluation_needs_no_other_split(
    split: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WHET_STATE", str(tmp_path))
    only = {split: rows(3)}
    result = whet.evaluate(PROMPT, data=only, reward=right, lm=Counted(), split=split)
    assert (result.score.n, result.split) == (len(only[split]), split)
    with pytest.raises(whet.UsageError, match="names no train file"):
        whet.optimize(PROMPT, data=only, reward=right, lm=Counted(), method="random_search")
    with pytest.raises(whet.UsageError, match="names no train file"):
        whet.evaluate(PROMPT, data=only, reward=right, lm=Counted(), split="train")

"""Functions of a user that raise, return or do what no function should: each is a failed reward or call with its reason."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import math
import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.api.world import PROMPT, Counted, right, rows
from whet._util.blocking import blocking
from whet.errors import ProviderError, UsageError
from whet.types import Completion, Usage


class _Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class _Alien(BaseException):
    pass


RAISED: dict[str, tuple[BaseException, str]] = {
    "StopIteration": (StopIteration("why"), "StopIteration: why"),
    "StopAsyncIteration": (StopAsyncIteration("why"), "StopAsyncIteration: why"),
    "CancelledError": (asyncio.CancelledError("why"), "CancelledError: why"),
    "CancelledError of futures": (concurrent.futures.CancelledError("why"), "CancelledError: why"),
    "GeneratorExit": (GeneratorExit("why"), "GeneratorExit: why"),
    "KeyboardInterrupt": (KeyboardInterrupt("why"), "KeyboardInterrupt: why"),
    "SystemExit": (SystemExit(3), "SystemExit: 3"),
    "another root": (_Alien("why"), "_Alien: why"),
    "a group": (BaseExceptionGroup("why", [GeneratorExit()]), "BaseExceptionGroup: why"),
    "no text": (_Mute(), "_Mute: its text cannot be read (ValueError)"),
    "half a pair": (ValueError("a\ud800b"), "ValueError: a\ufffdb"),
}
AWAITED = [name for name in RAISED if name not in ("StopIteration", "KeyboardInterrupt")]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def raising(error: BaseException) -> Callable[..., Any]:
    def fails(*given_by_whet: Any) -> Any:
        raise error

    return fails


def raising_later(error: BaseException) -> Callable[..., Any]:
    async def fails(*given_by_whet: Any) -> Any:
        await asyncio.sleep(0)
        raise error

    return fails


def evaluate(reward: Any = right, lm: Any = None, **more: Any) -> whet.Evaluation:
    return whet.evaluate(PROMPT, data=rows(4), reward=reward, lm=lm or Counted(), **more)


@pytest.mark.parametrize("name", RAISED)
def test_whatever_a_reward_raises_is_its_failure(name: str) -> None:
    error, words = RAISED[name]
    with pytest.raises(UsageError) as caught:
        evaluate(raising(error))
    assert words in str(caught.value)


@pytest.mark.parametrize("name", AWAITED)
def test_whatever_an_awaited_reward_raises_is_its_failure(name: str) -> None:
    error, words = RAISED[name]
    with pytest.raises(UsageError) as caught:
        evaluate(raising_later(error))
    assert words.partition(":")[0] in str(caught.value)


@pytest.mark.parametrize("name", RAISED)
def test_whatever_a_model_raises_is_a_failed_call(name: str) -> None:
    error, words = RAISED[name]
    with pytest.raises(ProviderError) as caught:
        evaluate(lm=raising(error))
    assert words in str(caught.value)


@pytest.mark.parametrize("name", AWAITED)
def test_whatever_an_awaited_model_raises_is_a_failed_call(name: str) -> None:
    error, words = RAISED[name]
    with pytest.raises(ProviderError) as caught:
        evaluate(lm=raising_later(error))
    assert words.partition(":")[0] in str(caught.value)


def test_a_reward_that_fails_on_some_rows_fails_there_only() -> None:
    def reward(example: dict[str, Any], output: str) -> float:
        if example["target"] == "negative":
            raise StopIteration("none left")
        return 1.0

    evaluated = evaluate(reward)
    assert evaluated.score.mean == pytest.approx(0.5, abs=0.3)
    assert evaluated["failed"] and any(
        "StopIteration: none left" in warning for warning in evaluated["warnings"]
    )


class _Unreadable:
    def __repr__(self) -> str:
        raise ValueError("no repr")


def test_a_value_that_cannot_be_shown_is_a_failed_reward() -> None:
    with pytest.raises(UsageError, match="returned a _Unreadable; expected"):
        evaluate(lambda example, output: _Unreadable())


def test_halves_of_surrogate_pairs_are_written_as_the_sign_for_no_character() -> None:
    def reward(example: dict[str, Any], output: str) -> dict[str, Any]:
        return {"reward": 1.0, "critique": f"{output}\ud83d\ude00", "part \ud800": 1.0}

    evaluated = evaluate(reward, lambda messages: "so \ud800")
    assert evaluated.score.mean == 1.0
    assert evaluated["parts"] == {"part \ufffd": 1.0}


@pytest.mark.parametrize("awaited", [False, True])
def test_a_model_function_has_a_time_limit(awaited: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whet.engine.calls.delay", lambda *words: 0.0)

    async def late(messages: list[whet.Message]) -> str:
        await asyncio.Event().wait()
        return "late"

    def hangs(messages: list[whet.Message]) -> str:
        stopped.wait()
        return "late"

    stopped = threading.Event()
    with pytest.raises(ProviderError, match=r"no answer within 0\.01 s to .* \(row .* at data\["):
        evaluate(lm={"address": late if awaited else hangs, "timeout": 0.01})
    stopped.set()


def _match_for_hours() -> None:
    re.match(r"(a+)+b", "a" * 60)


def _wait_for_nothing() -> None:
    with contextlib.suppress(Exception):
        threading.Lock().acquire(timeout=3600) and threading.Event().wait(3600)


def _loop() -> None:
    while True:
        with contextlib.suppress(Exception):
            sum(range(100))


@pytest.mark.parametrize("hang", [_match_for_hours, _wait_for_nothing, _loop])
@pytest.mark.parametrize("notebook", [False, True])
def test_a_reward_that_hangs_ends_with_its_row_and_the_program_goes_on(
    hang: Callable[[], None], notebook: bool
) -> None:
    """A match of `re` keeps the interpreter to itself: it held the whole program for hours."""
    ended, kept = [], signal.getsignal(signal.SIGALRM)

    def reward(example: dict[str, Any], output: str) -> float:
        try:
            hang()
        finally:
            ended.append(threading.current_thread())
        return 1.0

    def call() -> Any:
        return evaluate(reward, reward_timeout=0.2, progress=False)

    async def cell() -> Any:
        return call()

    with pytest.raises(UsageError, match=r"reward\(\) has not returned after 0\.2 s for .*row"):
        asyncio.run(cell()) if notebook else call()
    assert ended == [threading.main_thread()]
    assert signal.getsignal(signal.SIGALRM) is kept and signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_a_reward_may_run_an_event_loop_of_its_own_in_a_notebook() -> None:
    async def grade(example: dict[str, Any], output: str) -> float:
        return right(example, output)

    async def cell() -> Any:
        return evaluate(lambda example, output: asyncio.run(grade(example, output)))

    assert 0 < asyncio.run(cell()).score.mean < 1


class _KeepsLoop:
    """An async model that keeps something of its loop, as the connections of a client are."""

    version = 1

    def __init__(self) -> None:
        self.loops: list[asyncio.AbstractEventLoop] = []

    async def __call__(self, messages: list[whet.Message]) -> str:
        self.loops.append(asyncio.get_running_loop())
        await self.loops[0].run_in_executor(None, threading.get_ident)
        return Counted()(messages)


@pytest.mark.parametrize("where", ["script", "notebook", "thread"])
def test_calls_one_after_another_share_the_loop_of_an_async_function(where: str) -> None:
    """A client's connections belong to the loop in which they were opened: the second call of a program failed on them."""
    model = _KeepsLoop()

    def call() -> float:
        return evaluate(right, lm=model, fresh=True).score.mean

    async def cell() -> float:
        return call()

    def in_thread() -> float:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            return pool.submit(call).result()

    def in_notebook() -> float:
        return asyncio.run(cell())

    ways = {"script": call, "notebook": in_notebook, "thread": in_thread}
    first, second = ways[where](), ways[where]()
    assert 0 < first == second < 1
    assert len(set(model.loops)) == 1 and not model.loops[0].is_running()


def test_a_call_within_a_call_has_a_loop_of_its_own() -> None:
    inner, outer = _KeepsLoop(), _KeepsLoop()

    def reward(example: dict[str, Any], output: str) -> float:
        return 0.5 if inner.loops else evaluate(right, lm=inner).score.mean

    assert evaluate(reward, lm=outer).score.mean == 0.5
    assert len({*inner.loops, *outer.loops}) == 2


def test_a_call_after_one_that_ended_by_an_interrupt_runs() -> None:
    """A task that waits for the interrupted one raises the interrupt again, also while the loop is cleaned up."""

    async def ainterrupted() -> None:
        raise KeyboardInterrupt

    async def aanswer() -> int:
        return 42

    with pytest.raises(KeyboardInterrupt):
        blocking(ainterrupted)()
    assert blocking(aanswer)() == 42


def test_a_model_function_that_loops_ends_with_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whet.engine.calls.delay", lambda *words: 0.0)
    threads = []

    def loops(messages: list[whet.Message]) -> str:
        threads.append(threading.current_thread())
        while True:
            pass

    with pytest.raises(
        ProviderError, match=r"no answer within 0\.2 s to 'Sort the review.*\(row .* at data\["
    ):
        evaluate(lm={"address": loops, "timeout": 0.2})
    for thread in threads:
        thread.join(10)
    assert threads and not any(thread.is_alive() for thread in threads)


class _Log(list[str]):
    version = "1"


@pytest.mark.parametrize(("kept", "calls"), [([], 48), (_Log(), 24)])
def test_a_function_that_changes_what_it_is_says_that_it_is_asked_anew(
    kept: list[str], calls: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A list counts by its content, an object with a version by that: a call that is made again takes the recorded answers."""

    def model(messages: list[Any]) -> str:
        kept.append(messages[-1].content)
        return "a"

    def evaluate() -> None:
        whet.evaluate(
            "Say {{input}}", data=rows(20), reward="exact_match", lm=model, root=tmp_path, progress=False
        )

    evaluate()
    said = [record.getMessage() for record in caplog.records if "has changed a value" in record.getMessage()]
    assert len(said) == (0 if isinstance(kept, _Log) else 1)
    evaluate()
    assert len(kept) == calls


def test_a_server_that_cuts_long_prompts_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """Ollama reads the last num_ctx tokens of a longer prompt and says so nowhere."""

    def model(messages: list[whet.Message]) -> Completion:
        length = sum(len(message.content) for message in messages)
        return Completion("positive", usage=Usage(min(length // 4, context), 1))

    data = [
        {"input": f"Dish {n}. " + "It was good. " * (20 if n % 10 else 3000), "target": "positive"}
        for n in range(60)
    ]
    call: Any = {"data": data, "reward": right, "lm": {"address": model, "concurrency": 1}, "split": "train"}
    for context, cut in ((10**6, 0), (2048, 1)):
        caplog.clear()
        model.version = context  # type: ignore[attr-defined]
        whet.evaluate(PROMPT, **call)
        said = [r.getMessage() for r in caplog.records if "The server has cut the prompt" in r.getMessage()]
        assert len(said) == cut and all("read 2048 tokens of a prompt" in one for one in said)


@pytest.mark.parametrize(("context", "cut"), [(10**6, 0), (2048, 1)])
def test_a_server_that_cuts_every_prompt_is_named(
    context: int, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    """No other row tells then: a prompt has more tokens than words."""

    def model(messages: list[whet.Message]) -> Completion:
        words = sum(len(message.content.split()) for message in messages)
        return Completion("positive", usage=Usage(min(words, context), 1))

    data = [{"input": f"Dish {n}. " + "It was good. " * 3000, "target": "positive"} for n in range(20)]
    call: Any = {"data": data, "reward": right, "lm": {"address": model, "concurrency": 1}, "split": "train"}
    whet.evaluate(PROMPT, **call)
    said = [r.getMessage() for r in caplog.records if "The server has cut the prompt" in r.getMessage()]
    assert len(said) == cut and all("read 2048 tokens" in one and "which has 9,00" in one for one in said)


def test_a_reward_that_always_raises_is_refused_where_its_labels_are_not_even_answered() -> None:
    def reward(example: dict[str, Any], output: str) -> float:
        return 1 / 0

    model = Counted()
    call = {"data": rows(), "reward": reward, "lm": model, "method": "random_search"}
    place = rf"test_user_functions\.py:{reward.__code__.co_firstlineno + 1}: ZeroDivisionError"
    with pytest.raises(whet.UsageError, match=rf"with the right label too.*{place}"):
        whet.optimize(PROMPT, labels=["positive", "negative"], **call)
    assert model.calls == 0
    with pytest.raises(whet.UsageError, match=place):
        whet.optimize(PROMPT, run="free", **call)
    assert model.calls == 3


def test_a_broken_reward_is_refused_before_all_rows_are_paid() -> None:
    model = Counted()
    with pytest.raises(UsageError, match="NameError"):
        evaluate(lambda example, output: nothing, model)  # type: ignore[name-defined]  # noqa: F821
    assert model.calls <= 3
    with pytest.raises(UsageError, match="'good'"):
        evaluate(lambda example, output: "good", other := Counted())
    assert other.calls == 0


def test_a_reward_that_is_no_number_for_one_label_is_refused_with_the_row() -> None:
    def reward(example: dict[str, Any], output: str) -> float:
        return float("nan") if example["target"] == "last" else right(example, output)

    model = Counted()
    data = [*({"id": f"r{n}", "input": f"Dish {n} was good.", "target": "positive"} for n in range(20))]
    data = [{"id": "x", "input": "Dish 99 was odd.", "target": "last"}, *data]
    splits = {"train": data, "test": [{"id": "t", "input": "Dish 100", "target": "positive"}]}
    with pytest.raises(UsageError, match=r"returned nan; .*\(row x at data\[.train.\]\[0\]\)"):
        whet.optimize(PROMPT, data=splits, reward=reward, lm=model, method="random_search")
    assert model.calls == 0


def test_a_reward_that_changes_the_working_directory_changes_nothing(folder: Path) -> None:
    def reward(example: dict[str, Any], output: str) -> float:
        os.chdir("/")
        return right(example, output)

    budget, settings = whet.Budget(calls=200), {"n": 2, "examples": 4}
    found_run = whet.optimize(
        PROMPT,
        data=rows(6),
        reward=reward,
        lm=Counted(),
        method="random_search",
        settings=settings,
        budget=budget,
    )
    assert Path.cwd() == folder and not found_run.run.is_absolute()
    assert (folder / found_run.run / "result.json").is_file()


ANSWERS: dict[str, Any] = {
    "no text": Completion(None),  # type: ignore[arg-type]
    "a number": Completion(5),  # type: ignore[arg-type]
    "tokens below 0": Completion("x", usage=Usage(-5, 1)),
    "tokens beyond 64 bits": Completion("x", usage=Usage(2**70, 1)),
    "tokens nan": Completion("x", usage=Usage(math.nan, 1)),  # type: ignore[arg-type]
    "no usage": Completion("x", usage=None),  # type: ignore[arg-type]
    "an error that is no text": Completion("x", error=5),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_cannot_be_recorded_is_a_failed_call(name: str) -> None:
    with pytest.raises(ProviderError, match=r"it returned \[Completion.* whole numbers of 0 or more"):
        evaluate(lm=lambda messages: ANSWERS[name])


class _Model:
    """A LanguageModel of the caller, that returns what it should not."""

    address, simulated, local, can_generate, can_score = "mine/model", False, False, True, False

    def __init__(self, returned: Any) -> None:
        self.returned = returned

    async def generate(self, request: Any) -> Any:
        return self.returned

    def count_tokens(self, text: str) -> int:
        return 1

    async def close(self) -> None:
        return None


@pytest.mark.parametrize("returned", [None, [], "x", ["x"], 5])
def test_a_model_object_that_returns_no_answers_is_a_failed_call(returned: Any) -> None:
    with pytest.raises(ProviderError, match="mine/model: it returned"):
        evaluate(lm=_Model(returned))


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a setting": ({"settings": 5}, "settings must be a dict"),
    "another word": ({"nonsense": 1}, 'no option "nonsense"'),
    "the model": ({"model": 5}, "model must be a text"),
    "the range": ({"high": 10**400}, "finite numbers"),
    "the run": ({"run": ""}, "run must name"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_word_of_a_session_is_refused(name: str, folder: Path) -> None:
    words, says = WRONG[name]
    with pytest.raises(UsageError, match=says):
        whet.Session(PROMPT, data=rows(4), **words)
    assert not list(folder.iterdir())


TOLD: dict[str, tuple[tuple[Any, ...], str]] = {
    "None": ((None, 1.0), "output= must be a text; this is None"),
    "a number": ((5, 1.0), "output= must be a text; this is 5"),
    "a critique": (("x", 1.0, 5), "critique= must be a text; this is 5"),
    "a reward": (("x", "1"), "needs a reward between 0 and 1; this is '1'"),
}


@pytest.mark.parametrize("name", TOLD)
def test_what_a_session_cannot_be_told_is_refused_and_the_call_still_waits(name: str) -> None:
    words, says = TOLD[name]
    with whet.Session(PROMPT, data=rows(4), method="random_search") as session:
        first = session.ask()[0]
        with pytest.raises(UsageError, match=says):
            session.tell(first.id, *words)
        assert first.id in [ask.id for ask in session.ask()]


def test_a_session_goes_on_after_it_was_told_half_a_pair(folder: Path) -> None:
    words: dict[str, Any] = {"data": rows(4), "method": "random_search", "run": "run"}
    with whet.Session(PROMPT, **words) as session:
        first = session.ask()[0]
        session.tell(first.id, "so \ud800", reward=1.0, critique="\ud800")
    with whet.Session(PROMPT, **words) as session:
        assert first.id not in [ask.id for ask in session.ask()]
    assert "so \ufffd" in (folder / "run" / "answers.jsonl").read_text("utf-8")


MOSTLY_TRAIN = {"train": 0.9, "validation": 0.05, "test": 0.05}


class _Dies:
    version = "1"

    def __init__(self, after: int) -> None:
        self.after, self.calls = after, 0

    def __call__(self, messages: list[Any]) -> str:
        self.calls += 1
        if self.calls > self.after:
            raise RuntimeError(f"the model is gone since call {self.calls}")
        return "positive"


def test_a_model_function_that_fails_for_good_after_its_first_answers_ends_the_run() -> None:
    lm = _Dies(30)
    failed = r"The last 1[0-3]\d calls all failed with RuntimeError, after 30 answers\."
    with pytest.raises(ProviderError, match=failed):
        whet.evaluate(PROMPT, data=rows(100), reward=right, lm=lm, split="train", splits=MOSTLY_TRAIN)
    assert lm.calls < 30 + 100 + 40, "the calls in flight aside, nothing more is asked"


def test_a_model_function_that_fails_on_some_rows_goes_on() -> None:
    class Sometimes(_Dies):
        def __call__(self, messages: list[Any]) -> str:
            self.calls += 1
            if self.calls > self.after and self.calls % 4:
                raise RuntimeError("this row")
            return "positive"

    lm = Sometimes(10)
    result = whet.evaluate(PROMPT, data=rows(100), reward=right, lm=lm, split="train", splits=MOSTLY_TRAIN)
    assert 150 < result.failed < 300

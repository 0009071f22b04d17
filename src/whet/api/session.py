"""Ask and tell: a run whose answers come from the caller, by hand or from other machines."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Unpack

from whet._util.arguments import check_arguments, describe_keywords, select_keywords
from whet._util.blocking import LoopThread
from whet.api.keywords import METHOD_GROUPS, RUN_GROUPS, SEARCH_GROUPS, TASK_GROUPS, SessionKeywords
from whet.api.results import RunResult
from whet.api.running import optimize_task
from whet.engine.options import Options, options_of_method
from whet.engine.progress import Progress
from whet.environments.labels import find_label
from whet.errors import UsageError
from whet.methods import OPTIMIZER, choose_method, get_method
from whet.models.language_model import AnswersOnly
from whet.prompt import Prompt
from whet.reporting import Display, display_progress
from whet.rewards import JUDGE, Objectives
from whet.rewards.objectives import PROMPT_TOKENS
from whet.rewards.program import read_number
from whet.task import AlphaKeywords, GateKeywords, Task, TaskKeywords, task_of
from whet.types import EXAMPLE, Completion, Example, Message, Request, content_hash
from whet_client.storable import repair_surrogates, show_value

ANSWERS = "answers.jsonl"
IN_FLIGHT = 64
_SETTLED = 0.02
_DEFAULT_METHOD = "prompt_learning"


@dataclass(frozen=True)
class Ask:
    """A call that waits for its answer. The same call has the same `id` in every session of a run.

    `messages` is what the model receives. `example` is the row that it is about; None for a call of another role, such as
    `optimizer`, which writes prompts.
    """

    id: str
    messages: tuple[Message, ...]
    example: Example | None
    role: str = "task"
    temperature: float = 0.0
    max_tokens: int | None = None


class Session:
    """A run of `whet.optimize` in which the caller takes the place of the task model.

        with whet.Session("Route it.\\n\\n{{ticket}}", data=rows, method="random_search") as session:
            while asks := session.ask():
                for ask in asks:
                    session.tell(ask.id, output, reward=1.0, critique="Right.")
            print(session.result.best.prompt.text)

    `model` names the source of the answers; it is pinned with the run as `session/MODEL`. Without a `reward`, the caller tells
    a reward between `low` and `high` with each answer to an example; with a `reward` (or a task that has one), the caller tells
    none. If the method needs an optimizer model or a judge and none is named, the session hands out its calls too. At most
    `concurrency` calls wait at once. The other keywords are those of `whet.optimize`, without the task model.

    The plan and warnings are written to stderr; with `progress=True`, so is a progress line; with `progress=False`, nothing is
    written.

    An answer is on the disk when `tell` returns. The same session again, also after a kill, continues where it stopped and asks
    for no answer twice. The constructor and `ask` raise the same errors as `whet.optimize`.
    """

    @check_arguments
    @describe_keywords(
        *TASK_GROUPS,
        AlphaKeywords,
        GateKeywords,
        *METHOD_GROUPS,
        *SEARCH_GROUPS,
        *RUN_GROUPS,
        defaults=Options,
    )
    def __init__(
        self,
        task: str | Path | Prompt | Task | Sequence[Any],
        *,
        low: float = 0.0,
        high: float = 1.0,
        model: str = "model",
        **keywords: Unpack[SessionKeywords],
    ) -> None:
        data, reward = keywords.get("data"), keywords.get("reward")
        method, optimizer_lm, judge_lm = (
            keywords.get(name) for name in ("method", "optimizer_lm", "judge_lm")
        )
        self._changed = threading.Condition()
        self._waiting: dict[str, tuple[Ask, asyncio.Future[Completion]]] = {}
        self._answers: dict[str, dict[str, Any]] = {}
        self._rewards, self._file, self._closed = _CallerRewards(self._load), Path(), False
        self._range = (low, high)
        own = data is not None and reward is None
        if own:
            reward = {"program": {"function": self._rewards, "low": low, "high": high}}
        self._task = task_of(task, select_keywords(TaskKeywords, {**keywords, "reward": reward}))
        self._caller_rewards = own
        if self._task.world is not None or self._task.program is not None:
            what = "`environment`" if self._task.program is None else "`program`"
            raise UsageError(f"A session answers single calls, but this task has {what}. Use whet.optimize.")
        if self._task.cases:
            raise UsageError(
                "A session answers for one task, but this task consists of several (`tasks`). Use "
                "whet.optimize."
            )
        if isinstance(self._task.reward, Objectives) and self._task.reward.metrics - {PROMPT_TOKENS}:
            raise UsageError(
                "A session cannot measure the cost or time of its calls, but an objective of this "
                "task needs such a metric. Use whet.optimize."
            )
        known = None if method is None else choose_method(method)[0]
        needs = (known or get_method(self._task.method or _DEFAULT_METHOD)).entry.needs
        if optimizer_lm is None and OPTIMIZER in needs:
            optimizer_lm = _SessionModel(self, model, "optimizer")
        if judge_lm is None and JUDGE in self._task.reward.needs:
            judge_lm = _SessionModel(self, model, "judge")
        models = {
            "lm": _SessionModel(self, model, "task"),
            "optimizer_lm": optimizer_lm,
            "judge_lm": judge_lm,
        }
        options = options_of_method(method, {"concurrency": IN_FLIGHT, **keywords, **models})
        self._progress = self._display(keywords.get("progress"))
        self._thread = LoopThread(lambda: optimize_task(self._task, options, self._progress), "whet-session")
        self._thread.future.add_done_callback(lambda done: self._end())
        self._thread.start()
        self._settle()

    def _display(self, progress: Progress | bool | None) -> Progress:
        """The progress display of the run. Nothing moves unless the caller asks for it: the user may be typing answers in the
        terminal."""
        self._line = ExitStack()
        if progress is None:
            return Display().progress
        shown = self._line.enter_context(display_progress(progress))
        return shown

    @property
    def result(self) -> RunResult | None:
        """The result; None until the run has ended."""
        future = self._thread.future
        return RunResult(future.result()) if future.done() and not self._closed else None

    def ask(self) -> list[Ask]:
        """Return the calls that wait for an answer. If there are none, wait for some. The list is empty if the run has
        ended."""
        if self._closed:
            raise UsageError("The session is closed. To continue, create the same session again.")
        self._settle()
        with self._changed:
            return [ask for ask, _ in self._waiting.values()]

    def tell(self, id: str, output: str, reward: float | None = None, critique: str | None = None) -> None:
        """Answer a call. In a session without a reward, `reward` and `critique` go with the answer to an example.

        Telling an answer again changes nothing. Raises UsageError for a different answer to an answered call, an unknown id, an
        output or a critique that is not a text, and a reward that is missing, out of range or superfluous.
        """
        id = _text(id, "id", "Take ids from ask()")
        output = _text(output, "output", "Tell an empty text if there is no answer")
        critique = None if critique is None else _text(critique, "critique", "Join several, or leave it out")
        with self._changed:
            if id not in self._waiting:
                if id in self._answers and self._answers[id]["output"] == output:
                    return
                if id in self._answers:
                    first = show_value(self._answers[id]["output"])
                    raise UsageError(
                        f'The call "{id}" was answered before, with {first}. That answer counts.'
                    )
                raise UsageError(f'No call with the id "{id}" waits for an answer. Take ids from ask().')
            ask, future = self._waiting[id]
            number = None if reward is None else read_number(reward)
            reward = reward if number is None else number
            self._check_reward(ask, reward, critique)
            row = {"id": id, "output": output, "reward": reward, "critique": critique}
            row["example"] = None if ask.example is None else ask.example.id
            _append(self._file, row)
            self._remember(row)
            del self._waiting[id]
        loop = self._thread.loop
        assert loop is not None
        loop.call_soon_threadsafe(_resolve, future, output)

    def close(self) -> None:
        """Stop the run; answers are kept. A finished session does not change."""
        if self._thread.future.done():
            return
        self._closed = True
        loop = self._thread.loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._release)
        self._thread.cancel()
        self._thread.join()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_reward(self, ask: Ask, reward: float | None, critique: str | None) -> None:
        wanted = self._caller_rewards and ask.example is not None
        if not wanted and (reward is not None or critique is not None):
            raise UsageError(
                f"The call {ask.id} takes no reward, because the task has a reward or the call is not "
                "a rollout."
            )
        low, high = self._range
        if wanted and not (isinstance(reward, int | float) and low <= reward <= high):
            raise UsageError(
                f"The call {ask.id} needs a reward between {low:g} and {high:g}; this is {show_value(reward)}."
            )

    def _settle(self) -> None:
        """Wait until calls wait and no more come, or the run has ended; raise the error that ended it."""
        with self._changed:
            while not self._thread.future.done():
                count = len(self._waiting)
                self._changed.wait(_SETTLED if count else None)
                if count and len(self._waiting) == count:
                    return
        if error := self._thread.future.exception():
            raise error

    def _end(self) -> None:
        self._line.close()
        self._notify()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _release(self) -> None:
        """In the run's thread: nobody waits any more."""
        for _, future in list(self._waiting.values()):
            future.cancel()

    async def _answer(self, role: str, request: Request) -> Completion:
        """In the run's thread: what was told, or what will be."""
        if self._closed:
            raise asyncio.CancelledError
        self._load()
        example = EXAMPLE.get() if role == "task" else None
        key = content_hash([[m.as_list() for m in request.messages], request.sample, request.temperature])
        ask = Ask(key[:16], request.messages, example, role, request.temperature, request.max_tokens)
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        with self._changed:
            if ask.id in self._answers:
                return Completion(self._answers[ask.id]["output"])
            self._waiting[ask.id] = (ask, future)
            self._changed.notify_all()
        try:
            return await future
        finally:
            with self._changed:
                self._waiting.pop(ask.id, None)

    def _load(self) -> None:
        """Read what earlier sessions of the run were told, once its folder is known."""
        with self._changed:  # rewards are computed in another thread than answers
            core = self._progress.core
            if self._file != Path() or core is None:
                return
            self._file = core.journal.path.parent / ANSWERS
            lines = self._file.read_text("utf-8").splitlines(keepends=True) if self._file.is_file() else []
            for line in lines:
                if line.endswith("\n"):
                    self._remember(json.loads(line))

    def _remember(self, row: dict[str, Any]) -> None:
        self._answers[row["id"]] = row
        if row["reward"] is None:
            return
        label = find_label(row["output"], self._task.labels) if self._task.labels else None
        for text in {row["output"], label or row["output"]}:
            self._rewards.known[row["example"], text] = {"reward": row["reward"], "critique": row["critique"]}


class _CallerRewards:
    """The rewards that were told, as a reward function: one for each example and output."""

    version, recorded = "told", True

    def __init__(self, load: Callable[[], None]) -> None:
        self.known: dict[tuple[str, str], dict[str, Any]] = {}
        self._load = load

    def __call__(self, example: dict[str, Any], output: str) -> dict[str, object]:
        self._load()  # the answer may stand in the journal of a session that was killed before its reward did
        return self.known[str(example["id"]), output]


class _SessionModel(AnswersOnly):
    """The caller as a model: every answer is waited for."""

    simulated, local = False, True

    def __init__(self, session: Session, name: str, role: str) -> None:
        self._session, self._role, self.address = session, role, f"session/{name}"

    async def generate(self, request: Request) -> list[Completion]:
        return [await self._session._answer(self._role, request)]

    async def close(self) -> None:
        return None


def _text(value: object, name: str, remedy: str) -> str:
    """A text that was told, as it can be written. Raises UsageError for anything else."""
    if not isinstance(value, str):
        raise UsageError(f"{name}= must be a text; this is {show_value(value)}. {remedy}.")
    return repair_surrogates(value)


def _resolve(future: asyncio.Future[Completion], output: str) -> None:
    if not future.done():
        future.set_result(Completion(output))


def _append(path: Path, row: Mapping[str, object]) -> None:
    """A line that is on the disk when this returns; half a line of a kill before it is ended first."""
    with path.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.truncate(_end_of_lines(path))
        file.write(json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _end_of_lines(path: Path) -> int:
    return path.read_bytes().rfind(b"\n") + 1

"""The playground: a version, or two, answers one input with a model that the owner of the server allows, within dollars a day.

The most that a run may cost counts before a model is asked, and gives way to what it did cost; where that is not known (a kill,
an answer that did not come), the most stands. Days are in UTC, and each run counts for the day on which it began. Who ran what,
and what it cost, is in the audit log; inputs and answers are stored nowhere.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

from sqlalchemy import Connection, func, select

from whet._util.blocking import blocking
from whet.errors import ProviderError, UsageError, WhetError
from whet.models.language_model import LanguageModel
from whet.task import ModelSpec
from whet.task.roles import changed_spec, model_of
from whet.types import Completion, Example, Message, Request, Usage
from whet_live.database import Database, insert_into, iso, time_of
from whet_live.registry import Version, append_entry, audited_transaction
from whet_live.registry.registry_tables import playground_runs

USD_PER_DAY = 1.0
MAX_TOKENS = 1000
LONGEST_INPUT = 50_000
"""Characters of all inputs of a run."""
PATIENCE_SECONDS = 60.0
AT_ONCE = 4
RUN, RAN = "playground.run", "playground.cost"
"""The actions in the audit log: before a model is asked, and when the cost is known."""
_PER_MESSAGE = 16
"""Tokens that the form of a chat takes for each message, at most."""


@dataclass(frozen=True)
class PlaygroundConfig:
    """The playground as the owner of the server allows it: models with their prices, by address, and dollars a day for all of
    them."""

    models: Mapping[str, ModelSpec]
    usd_per_day: float = USD_PER_DAY


def read_playground(path: Path) -> PlaygroundConfig:
    """The configuration in a JSON file: `{"models": [{"address": "openai/gpt-4o-mini", "price": {"input": 0.15, "output": 0.6}}],
    "usd_per_day": 1.0}`. A model is written as under `models` in task.yaml; its price is needed.

    Raises UsageError naming file and entry for anything that cannot be used."""
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as JSON: {error}.") from None
    entries = value.get("models") if isinstance(value, Mapping) else None
    if not isinstance(entries, list) or not entries:
        raise UsageError(
            f'{path}: write {{"models": [{{"address": ..., "price": {{"input": ..., "output": ...}}}}]}}.'
        )
    if more := set(value) - {"models", "usd_per_day"}:
        raise UsageError(f"{path}: {min(more)[:60]!r} is no key. Leave it out.")
    daily = value.get("usd_per_day", USD_PER_DAY)
    if isinstance(daily, bool) or not isinstance(daily, int | float) or not 0 < daily < 1e6:
        raise UsageError(f"{path}: usd_per_day is {daily!r}; write dollars above 0.")
    models = dict[str, ModelSpec]()
    for n, entry in enumerate(entries):
        spec = _read_model(entry, f"{path}: models[{n}]")
        if models.setdefault(str(spec.address), spec) is not spec:
            raise UsageError(f"{path}: the model {spec.address} stands there twice. Leave one of them out.")
    return PlaygroundConfig(models, float(daily))


def _read_model(entry: object, where: str) -> ModelSpec:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("address"), str):
        raise UsageError(
            f'{where}: write an object with an address, such as {{"address": "openai/gpt-4o-mini"}}.'
        )
    try:
        spec = changed_spec(ModelSpec(), entry, "task")
        blocking(model_of(spec, "task").close)()
    except WhetError as error:
        raise UsageError(f"{where}: {error}") from None
    if spec.price is None:
        raise UsageError(
            f'{where}: {spec.address} has no price. Add "price": {{"input": X, "output": X}}, dollars for a million tokens; 0 '
            "for a model that costs nothing."
        )
    return spec


@dataclass(frozen=True, slots=True)
class PlaygroundAnswer:
    """The answer of a version: the text, or the `error` why there is none; its tokens, seconds and dollars (None: not known,
    and counted with the most)."""

    version: int
    text: str
    error: str
    input_tokens: int
    output_tokens: int
    seconds: float
    cost: float | None


@dataclass(frozen=True)
class PlannedRun:
    """The requests of a run, one for each version, and what it costs `most` in dollars."""

    id: str
    prompt: str
    model: str
    requests: Mapping[int, Request]
    most: float


class Playground:
    """Runs versions within the budget. Any number of servers on one database share it; threads may share it."""

    def __init__(self, database: Database, config: PlaygroundConfig) -> None:
        self.database = database
        self.config = config
        self._places = BoundedSemaphore(AT_ONCE)

    def spent(self, moment: int | None = None) -> float:
        """Dollars that count for today, those of runs that are under way included."""
        with self.database.read() as connection:
            return _spent(connection, iso(time_of(connection) if moment is None else moment)[:10])

    def plan(self, id: str, versions: Sequence[Version], values: Mapping[str, str], model: str) -> PlannedRun:
        """The run of some versions on one input. Raises UsageError for a model that is not allowed and an input that cannot
        be."""
        spec = self._spec(model)
        if sum(map(len, values.values())) > LONGEST_INPUT:
            raise UsageError(f"The input is longer than {LONGEST_INPUT:,} characters. Shorten it.")
        requests = {version.version: _request(version, values, spec) for version in versions}
        return PlannedRun(
            id, versions[0].name, model, requests, sum(_most(spec, request) for request in requests.values())
        )

    def run(self, plan: PlannedRun, actor: str, moment: int | None = None) -> list[PlaygroundAnswer]:
        """The answers, one for each version. Raises UsageError where the day's budget does not last, where the form was sent
        before, and while too many runs are under way."""
        if not self._places.acquire(blocking=False):
            raise UsageError(f"{AT_ONCE} runs are under way. Try again in a minute.")
        try:
            self._reserve(plan, actor, moment)
            answers = blocking(_answers)(self._spec(plan.model), plan)
            self._settle(plan, actor, answers)
            return answers
        finally:
            self._places.release()

    def _spec(self, model: str) -> ModelSpec:
        spec = self.config.models.get(model)
        if spec is None:
            raise UsageError("Choose one of the models that this server allows.")
        return spec

    def _reserve(self, plan: PlannedRun, actor: str, moment: int | None) -> None:
        with audited_transaction(self.database) as connection:
            at = time_of(connection) if moment is None else moment
            day = iso(at)[:10]
            left = self.config.usd_per_day - _spent(connection, day)
            if plan.most > left:
                raise UsageError(
                    f"This run may cost ${plan.most:.4f}, and of today's ${self.config.usd_per_day:g} "
                    f"${max(0.0, left):.4f} are left. Nothing was asked. Shorten the input, or wait until midnight UTC.",
                )
            row = {"id": plan.id, "day": day, "actor": actor, "prompt": plan.prompt, "model": plan.model}
            new = insert_into(connection, playground_runs).values(
                **row, answers=len(plan.requests), cost=plan.most, at=at
            )
            if (
                connection.execute(new.on_conflict_do_nothing().returning(playground_runs.c.id)).first()
                is None
            ):
                raise UsageError(
                    "This form was sent before, and its answers are not stored. Send it again to run it once more.",
                )
            details = {
                "id": plan.id,
                "versions": sorted(plan.requests),
                "model": plan.model,
                "most_usd": plan.most,
            }
            append_entry(connection, actor=actor, action=RUN, subject=plan.prompt, details=details)

    def _settle(self, plan: PlannedRun, actor: str, answers: Sequence[PlaygroundAnswer]) -> None:
        spec = self._spec(plan.model)
        costs = [
            _most(spec, plan.requests[answer.version]) if answer.cost is None else answer.cost
            for answer in answers
        ]
        failed = [answer.version for answer in answers if answer.error]
        with audited_transaction(self.database) as connection:
            here = playground_runs.c.id == plan.id
            connection.execute(playground_runs.update().where(here).values(cost=sum(costs)))
            details = {"id": plan.id, "usd": sum(costs), "failed": failed}
            append_entry(connection, actor=actor, action=RAN, subject=plan.prompt, details=details)


def _spent(connection: Connection, day: str) -> float:
    query = select(func.sum(playground_runs.c.cost)).where(playground_runs.c.day == day)
    return float(connection.execute(query).scalar() or 0.0)


def _request(version: Version, values: Mapping[str, str], spec: ModelSpec) -> Request:
    """The request of a version for an input; its own temperature, if it has one, takes precedence over that of the model."""
    own = version.config.get("temperature")
    temperature = (
        own if isinstance(own, int | float) and not isinstance(own, bool) and 0 <= own <= 2 else None
    )
    wanted = version.prompt.slots or {"input"}
    shown = {name: text for name, text in values.items() if name in wanted}
    messages: tuple[Message, ...] = version.prompt.render(Example("", shown))
    return Request(
        messages,
        float(next((one for one in (temperature, spec.temperature) if one is not None), 0.0)),
        spec.max_tokens or MAX_TOKENS,
        stop=spec.stop,
    )


def _most(spec: ModelSpec, request: Request) -> float:
    """Dollars that a request costs at most: no token is shorter than a byte."""
    read = sum(len(message.content.encode("utf-8", "replace")) + _PER_MESSAGE for message in request.messages)
    return 0.0 if spec.price is None else spec.price.most(Usage(read, request.max_tokens or MAX_TOKENS))


async def _answers(spec: ModelSpec, plan: PlannedRun) -> list[PlaygroundAnswer]:
    model = model_of(spec, "task")
    try:
        return await asyncio.gather(*(_answer(model, spec, *item) for item in plan.requests.items()))
    finally:
        await model.close()


async def _answer(model: LanguageModel, spec: ModelSpec, version: int, request: Request) -> PlaygroundAnswer:
    began = time.monotonic()
    failed = PlaygroundAnswer(version, "", "", 0, 0, 0.0, None)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            answers = await model.generate(request)
    except TimeoutError:
        return replace(
            failed, error=f"There was no answer within {PATIENCE_SECONDS:g} s.", seconds=PATIENCE_SECONDS
        )
    except WhetError as error:
        refused = isinstance(error, ProviderError) and error.refused
        return replace(
            failed, error=str(error), seconds=time.monotonic() - began, cost=0.0 if refused else None
        )
    return _to_answer(version, answers[0], spec, time.monotonic() - began)


def _to_answer(version: int, answer: Completion, spec: ModelSpec, seconds: float) -> PlaygroundAnswer:
    usage: Any = answer.usage
    cost = usage.cost_usd or (None if spec.price is None else spec.price.cost(usage))
    if not usage.input_tokens and not usage.output_tokens:
        cost = usage.cost_usd
    return PlaygroundAnswer(
        version, answer.text, answer.error or "", usage.input_tokens, usage.output_tokens, seconds, cost
    )

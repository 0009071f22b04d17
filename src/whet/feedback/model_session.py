"""Runs for learning: a journal for paid calls of an optimizer model, or none where no model is called."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import orjson

from whet.engine.durable import DurableRun
from whet.engine.evaluation_folder import clear_evaluation
from whet.engine.forecast import price_unknown
from whet.engine.model_client import AdaptiveLimiter, ModelClient
from whet.engine.plan_json import PlanJSON
from whet.engine.progress import Progress
from whet.engine.run_folder import ENDED, FRESH, asks_again, note_fresh, note_in, open_run
from whet.engine.shared_cache import open_cache
from whet.errors import UsageError, parameter
from whet.feedback.prompt_file import replace_file
from whet.instructions import (
    answers,
    changes,
    confirm,
    consolidate,
    neighbours,
    propose,
    questions,
    reader,
    rewrite,
)
from whet.models.callable import ModelChoice
from whet.models.language_model import LanguageModel
from whet.replies import texts, values
from whet.run import Budget, MemoryRun, Run
from whet.search import minibatch
from whet.task import ModelSpec
from whet.task.roles import changed_spec, identity_of, model_of, with_base_url
from whet.types import JSON, content_hash

NONE = "none"
CONCURRENCY = 16
_DECISIVE = (
    answers, changes, confirm, consolidate, minibatch, neighbours, propose, questions, reader, rewrite, texts, values,
)  # fmt: skip


@dataclass(frozen=True)
class Learning:
    """The identity of one learning run: the subject of the calls, and the model that is called. The same one is never paid
    twice.
    """

    limits: Budget
    identity: Mapping[str, object]
    seed: int = 0

    def header(self) -> dict[str, Any]:
        """The identity as JSON."""
        sources = "".join(inspect.getsource(module) for module in _DECISIVE)
        own = {"method": "learn", "seed": self.seed, "source": content_hash(sources)[:16]}
        return own | dict(self.identity)


@dataclass
class ModelSession:
    """A run with what it cost. `address` is the optimizer's, `none` without one; `folder` its journal's; `replies` says of each
    reply that was to be read whether it could be, or that its limit on tokens ended it."""

    run: Run
    address: str = NONE
    simulated: bool = False
    folder: str = ""
    usage: dict[str, object] = field(default_factory=dict)
    replies: list[Mapping[str, object]] = field(default_factory=list)

    @property
    def unread_replies(self) -> str:
        """A warning that replies of the model could not be read: their number, the beginning of one, and a remedy. Empty if
        all could be read."""
        cut = [str(why[0][2]) for reply in self.replies if (why := cast("list[Any]", reply.get("why", [])))]
        odd = [str(reply["example"]) for reply in self.replies if reply.get("example")]
        sentences = []
        for lost, fault, remedy in (
            (cut, "they ended before the text was complete", _MORE_TOKENS),
            (odd, "they are not in the form that was asked for", _FOLLOWS_FORM),
        ):
            if lost:
                sentences.append(
                    f"{len(lost)} of {len(self.replies)} replies of {self.address} could not be read: {fault}. One begins: "
                    f'"{lost[0]}". {remedy}'
                )
        return " ".join(sentences)


_MORE_TOKENS = "Give them a larger limit on tokens: --optimizer-option max_tokens=8192 (`max_tokens` of optimizer_lm in Python)."
_FOLLOWS_FORM = (
    "Name another optimizer model, which follows a form (--optimizer-lm; optimizer_lm= in Python): this one is asked the "
    "same again only with --fresh (fresh=True)."
)


@asynccontextmanager
async def learning_run(
    choice: ModelChoice | Mapping[str, object],
    base_url: str | Sequence[str] | None,
    root: Path,
    identity: Mapping[str, object],
    most: int,
    *,
    cached: bool = True,
    fresh: bool = False,
    progress: Progress | None = None,
) -> AsyncIterator[ModelSession]:
    """A run for one learning step. With a model every call is journalled in `root`/learn-NAME-HASH and at
    most `most` calls are made, repeated attempts included; completions are also cached beside it if `cached`.
    `fresh`: what was recorded is asked again. `progress` is told of the plan and follows the calls.
    Raises UsageError for a model that cannot be used, and at the end ProviderError for one that answered nothing."""
    if choice == NONE:
        yield ModelSession(MemoryRun())
        return
    spec = with_base_url(changed_spec(ModelSpec(), choice, "optimizer"), base_url, None)
    if not spec.named:
        raise UsageError(f"{parameter('optimizer_lm')} names no model. Give it an `address`.")
    model = model_of(spec, "optimizer")
    try:
        if not model.can_generate:
            raise UsageError(
                f"{model.address} cannot write text. Name another {parameter('optimizer_lm')}, or none."
            )
        plan = Learning(
            Budget(optimizer_calls=most),
            {**identity, "models": {"optimizer": model.address}, **_options(model, spec)},
        )
        folder = root / f"learn-{identity['task']}-{content_hash(plan.header())[:10]}"
        clients = {"optimizer": _client(model, spec)}
        if progress is not None:
            progress.planned(_plan_of(clients, most))
        cache = open_cache(root, fresh, local=model.local or not cached)
        replies: list[Mapping[str, object]] = []

        def note(name: str, value: Any) -> None:
            if name == "replies":
                replies.append(value)

        if fresh and not asks_again(folder):
            clear_evaluation(folder)
        opened = open_run(folder, plan, clients, cache, note)
        core = opened.core
        note_fresh(core.journal, fresh)
        if progress is not None:
            progress.core, progress.planned_calls = core, most
            progress.begin(f"{model.address} reads the comments")
        run = DurableRun(core, "/learn", plan.limits)
        session = ModelSession(run, model.address, model.simulated, str(folder), replies=replies)
        try:
            async with core.draining():
                yield session
                client = clients["optimizer"]
                if client.answers == 0 and all(error.refused for error in client.health.lost.values()):
                    core.caller.raise_if_unresponsive()
                note_in(core.journal, FRESH, ENDED)
        finally:
            cache.close()
            core.journal.close()
            spent, unpriced = core.budget.spent, price_unknown(clients)
            session.usage = {
                "calls": {"optimizer": spent.calls["optimizer"] - spent.cached["optimizer"]},
                "cached": {"optimizer": spent.cached["optimizer"]},
                "refused": {"optimizer": spent.refused["optimizer"]},
                "input_tokens": spent.input_tokens,
                "output_tokens": spent.output_tokens,
                "cost_usd": None if unpriced and not spent.cost else round(spent.cost, 6),
                **({"price_unknown": unpriced} if unpriced and not spent.cost else {}),
            }
        done = {"method": "learn", "status": "completed", "usage": session.usage}
        await asyncio.to_thread(replace_file, folder / "result.json", orjson.dumps(done))
    finally:
        await model.close()


def _client(model: LanguageModel, spec: ModelSpec) -> ModelClient:
    """The client of the model, with the prices and bounds that its spec states."""
    limiter = AdaptiveLimiter(spec.concurrency or CONCURRENCY)
    return ModelClient(
        model, limiter, spec.price, spec.requests_per_minute, writes=True, bound=spec.output_bound
    )


def _plan_of(clients: Mapping[str, ModelClient], most: int) -> PlanJSON:
    """The plan of a learning step: how many calls it takes depends on the comments."""
    unknown = {role: clients[role].model.address for role in price_unknown(clients)}
    return {"calls": {"optimizer": {"expected": None, "most": most}}, "price_unknown": unknown}


def _options(model: LanguageModel, spec: ModelSpec) -> dict[str, object]:
    """The facts besides the address that change the model's answers."""
    values = identity_of(model) | ({} if spec.output_bound is None else {"max_tokens": spec.output_bound})
    return {"options": values} if values else {}


async def step_time(run: Run, read_time: Callable[[], int] | None = None) -> str:
    """The time of the step in UTC, to the second; a resumed run keeps that of its beginning. `read_time` gives the time in
    microseconds where another clock rules than that of this process."""

    async def clock() -> JSON:
        moment = (
            datetime.now(UTC) if read_time is None else datetime.fromtimestamp(read_time() // 1_000_000, UTC)
        )
        return moment.isoformat(timespec="seconds")

    return str(await run.effect("now", clock))

"""gepa: somebody's GEPAAdapter is a program of whet, and what it improves are the components of a candidate.

    optimize(seed_candidate, trainset, valset, adapter=adapter, optimizer_lm="openai/gpt-4o", budget=whet.Budget(calls=600))

The adapter asks its own models, where whet does not see them. So the adapter stands in the place of the task model: one row
under one candidate is one call (a metric call), and budgets, journal, cache and the sealed test are counted in those. Works
with any object that has the methods of gepa 0.1's GEPAAdapter; gepa itself is not imported.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from whet import api
from whet._util.sources import source_hash
from whet.api.results import RunResult
from whet.environments.program import SECONDS
from whet.errors import UsageError
from whet.integrations.shared import SECRET, as_json_value, name_prompts, sealed_splits, single
from whet.methods import MethodChoice
from whet.prompt import Prompt
from whet.types import Completion, Message, Usage, content_hash

_OWN = ("data", "reward", "program", "lm")


@dataclass(frozen=True)
class AdapterResult:
    """`best_candidate`: better components where the gate promotes them, else those of the seed; `run`: the RunResult."""

    best_candidate: Mapping[str, str]
    run: RunResult


def optimize(
    seed_candidate: Mapping[str, str],
    trainset: Sequence[object],
    valset: Sequence[object] | None = None,
    *,
    adapter: object,
    testset: Sequence[object] | None = None,
    method: MethodChoice = "gepa",
    low: float = 0.0,
    high: float = 1.0,
    **options: Any,
) -> AdapterResult:
    """Better components for an adapter of gepa, proved on rows that the search never saw.

    `low` and `high` are the range of its scores. Without `testset`, a part of `trainset` is kept as the sealed test; without
    `valset`, another one for validation. `options` are the other keywords of whet.optimize: optimizer_lm, budget, seed, run,
    settings, region, ... The same call again resumes, or returns the finished result. Raises what whet.optimize raises.
    """
    missing = next((n for n in ("evaluate", "make_reflective_dataset") if not hasattr(adapter, n)), None)
    if missing:
        raise UsageError(
            f"adapter={adapter!r} has no `{missing}`. Give an object with the methods of gepa.GEPAAdapter."
        )
    own = next((name for name in _OWN if name in options), None)
    if own is not None:
        raise UsageError(f"{own}= comes from the adapter and its rows. Leave it out.")
    if not seed_candidate or not all(isinstance(text, str) for text in seed_candidate.values()):
        raise UsageError(f"seed_candidate={seed_candidate!r} is no candidate. Give a dict of named texts.")
    rows = _AdapterRows()
    names = name_prompts(seed_candidate)
    splits = sealed_splits(
        rows.of(trainset),
        None if valset is None else rows.of(valset),
        None if testset is None else rows.of(testset),
    )
    result = api.optimize(
        Prompt.of_parts({names[own]: text for own, text in seed_candidate.items()}),
        data=splits,
        reward={"program": {"function": _AdapterReward(), "low": low, "high": high}},
        program={"function": _AdapterProgram(names), "calls": 1, "seconds": SECONDS},
        method=method,
        lm=_AdapterModel(adapter, rows.instances, names),
        **options,
    )
    promoted = result.status != "planned" and result.promoted
    parts = result.best.prompt.parts if promoted else {}
    best = {own: parts[name].text for own, name in names.items()} if promoted else dict(seed_candidate)
    return AdapterResult(best, result)


class _AdapterRows:
    """The data that the adapter evaluates, by the ids of the rows."""

    def __init__(self) -> None:
        self.instances: dict[str, Any] = {}

    def of(self, instances: Sequence[object]) -> list[dict[str, Any]]:
        """One row for each different instance; a key `answer` is its target."""
        rows = {}
        for instance in instances:
            fields = as_json_value(instance)
            row = {"input": fields}
            if isinstance(fields, dict) and "answer" in fields and len(fields) > 1:
                row = {"target": fields.pop("answer"), "input": single(fields) or fields}
            elif not isinstance(fields, dict | str):
                row = {"input": json.dumps(fields, ensure_ascii=False)}
            name = content_hash(row)[:12]
            rows[name] = {"id": name, **row}
            self.instances[name] = instance
        return list(rows.values())


class _AdapterProgram:
    """A rollout: one row under one candidate, handed to the adapter."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    async def __call__(
        self, lm: Any, prompts: Mapping[str, str], example: Mapping[str, object]
    ) -> _AdapterAnswer:
        candidate = {own: prompts[name] for own, name in self.names.items()}
        row = {"id": example["id"], "input": example["input"]}
        roles = {"system": candidate, "user": row}
        messages = [Message(role, json.dumps(value, ensure_ascii=False)) for role, value in roles.items()]
        return _AdapterAnswer.of(json.loads(await lm.ask(messages)))


class _AdapterAnswer(str):
    """An output of the adapter as a text, with the score and the feedback that came with it."""

    outcome: Mapping[str, Any]

    @classmethod
    def of(cls, outcome: Mapping[str, object]) -> _AdapterAnswer:
        answer = cls(outcome["output"])
        answer.outcome = outcome
        return answer


class _AdapterReward:
    """The score of the adapter as a reward. It grades answers of the adapter only, so it is not tried on texts."""

    recorded = True

    def __call__(self, example: Mapping[str, Any], output: _AdapterAnswer) -> dict[str, object]:
        outcome = output.outcome
        return {**outcome["parts"], "reward": outcome["score"], "critique": outcome["feedback"] or None}


class _AdapterModel:
    """The adapter as the task model: a call is one row under one candidate.

    Rows that wait for the same candidate are one batch, and `evaluate` runs once at a time, in a thread: adapters are written
    for a caller that waits, and share out a batch themselves.
    """

    def __init__(self, adapter: Any, instances: Mapping[str, object], names: Mapping[str, str]) -> None:
        self.adapter, self.instances, self.names = adapter, instances, names
        self.version = _identity(adapter)
        self.__name__ = type(adapter).__name__
        self.waiting: dict[str, list[tuple[str, asyncio.Future[str]]]] = {}
        self.turn = asyncio.Lock()
        self.batches: set[asyncio.Task[None]] = set()

    async def __call__(self, messages: Sequence[Message]) -> Completion:
        candidate, row = (message.content for message in messages)
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.waiting.setdefault(candidate, []).append((json.loads(row)["id"], future))
        task = asyncio.create_task(self.batch(candidate))
        self.batches.add(task)
        task.add_done_callback(self.batches.discard)
        return Completion(await future, usage=Usage())

    async def batch(self, candidate: str) -> None:
        """Evaluate what waits for a candidate, and hand each row its outcome."""
        async with self.turn:
            waiting = [one for one in self.waiting.pop(candidate, ()) if not one[1].done()]
            if not waiting:
                return
            try:
                outcomes = await asyncio.to_thread(
                    self.outcomes, json.loads(candidate), [n for n, _ in waiting]
                )
            except Exception as error:
                failure = error
                outcomes = []
        for number, (_, future) in enumerate(waiting):
            if future.done():
                continue
            if outcomes:
                future.set_result(outcomes[number])
            else:
                future.set_exception(failure)

    def outcomes(self, candidate: dict[str, str], ids: Sequence[str]) -> list[str]:
        """One JSON text for each row: output, score, named scores, and feedback by component."""
        batch = self.adapter.evaluate([self.instances[n] for n in ids], dict(candidate), capture_traces=True)
        if not len(batch.outputs) == len(batch.scores) == len(batch.trajectories or ()) == len(ids):
            raise ValueError(
                f"evaluate() returned {len(batch.outputs)} outputs, {len(batch.scores)} scores and "
                f"{len(batch.trajectories or ())} trajectories for {len(ids)} rows"
            )
        outcomes = []
        for number, (output, score) in enumerate(zip(batch.outputs, batch.scores, strict=True)):
            parts = batch.objective_scores
            one = replace(
                batch,
                outputs=[output],
                scores=[score],
                trajectories=[batch.trajectories[number]],
                objective_scores=None if parts is None else [parts[number]],
            )
            outcome = {
                "output": _output(output),
                "score": float(score),
                "parts": {} if parts is None else as_json_value(parts[number]),
                "feedback": {
                    name: text
                    for own, name in self.names.items()
                    if (text := self.feedback(candidate, one, own))
                },
            }
            outcomes.append(json.dumps(outcome, ensure_ascii=False))
        return outcomes

    def feedback(self, candidate: Mapping[str, str], one: object, component: str) -> str:
        """The reflective dataset of a component. An adapter that raises gives none, as in gepa."""
        try:
            records = self.adapter.make_reflective_dataset(dict(candidate), one, [component]).get(
                component, ()
            )
        except Exception:
            return ""
        return "\n".join(_record(record) for record in records).strip()


def _record(record: object) -> str:
    if isinstance(record, Mapping) and "Feedback" in record:
        return str(record["Feedback"])
    return json.dumps(as_json_value(record), ensure_ascii=False)


def _output(output: object) -> str:
    value = as_json_value(output)
    if isinstance(value, str):
        return value
    return (single(value) if isinstance(value, dict) else "") or json.dumps(value, ensure_ascii=False)


def _identity(adapter: object) -> str:
    """The parts of an adapter that a run pins: its class's code, its plain values and functions, and its `version`."""
    kind = type(adapter)
    code = [[n, source_hash(f)] for n, f in sorted(vars(kind).items()) if inspect.isfunction(f)]
    held = {
        name: source_hash(value) if inspect.isfunction(value) else value
        for name, value in sorted(getattr(adapter, "__dict__", {}).items())
        if name not in SECRET and (inspect.isfunction(value) or isinstance(value, str | int | float | None))
    }
    return content_hash(
        [kind.__module__, kind.__qualname__, code, as_json_value(held), str(getattr(adapter, "version", ""))]
    )

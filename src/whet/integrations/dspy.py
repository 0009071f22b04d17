"""DSPy: a module's predictors are the prompts of a program, and what comes back is the module with better instructions.

    Whet(metric, method="gepa").compile(student, trainset=..., valset=...)

The module runs as it is, under instructions that whet sets; every call of its language model is a call of the rollout, so
that budgets, journal, trace and the sealed test are those of any program. Needs dspy 3.4.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from whet._util.sources import source_hash
from whet.api import optimize
from whet.api.results import RunResult
from whet.environments.program import CALLS, SECONDS
from whet.environments.program_model import ProgramFailed
from whet.errors import ProviderError, UsageError
from whet.integrations.shared import SECRET, as_json_value, name_prompts, sealed_splits, single
from whet.methods import MethodChoice
from whet.prompt import Prompt
from whet.types import Message, Request, content_hash

_OWN = ("data", "reward", "program")


class Whet:
    """An optimizer of DSPy modules that runs a method of whet, with its journal, sealed test and gate.

    metric: (gold, pred, trace, pred_name, pred_trace) -> a number, or an object with `score` and `feedback`, as for
      dspy.GEPA; one of two or three parameters, as for dspy.Evaluate, has no feedback. `low` and `high` are its range.
    lm: None is the LM that DSPy is configured with; else a dspy.LM, or what whet.optimize takes.
    calls, seconds: what one run of the module may take at most: calls, and seconds of its own code.
    options: the other keywords of whet.optimize: budget, seed, run, root, settings, region, concurrency, ... An `optimizer_lm`
      or `judge_lm` may be a dspy.LM too.
    """

    def __init__(
        self,
        metric: Callable[..., Any],
        *,
        method: MethodChoice = "gepa",
        lm: object = None,
        low: float = 0.0,
        high: float = 1.0,
        calls: int = CALLS,
        seconds: float = SECONDS,
        **options: object,
    ) -> None:
        if importlib.util.find_spec("dspy") is None:
            raise UsageError("whet.integrations.dspy needs dspy. Install it with: pip install 'whet[dspy]'")
        if not callable(metric):
            raise UsageError(
                f"metric={metric!r} is no function. Give metric(gold, pred, trace, pred_name, pred_trace)."
            )
        own = next((name for name in _OWN if name in options), None)
        if own is not None:
            raise UsageError(f"{own}= comes from the module, its examples and the metric. Leave it out.")
        self.metric, self.method, self.low, self.high = metric, method, low, high
        self.lm, self.calls, self.seconds, self.options = lm, calls, seconds, options

    def compile(
        self,
        student: object,
        *,
        trainset: Sequence[Any],
        valset: Sequence[Any] | None = None,
        testset: Sequence[object] | None = None,
    ) -> object:
        """A copy of the student, with better instructions where the gate promotes them, and `whet_result`, the RunResult.

        Without `testset`, a part of `trainset` is kept as the sealed test; without `valset`, another one for validation. The
        same call again resumes, or returns the finished result. Raises what whet.optimize raises.
        """
        rows = _StudentRows()
        module = _StudentModule(student, rows)
        reward = {
            "program": {"function": _ModuleMetric(self.metric, module), "low": self.low, "high": self.high}
        }
        result = optimize(
            Prompt.of_parts(module.instructions),
            data=_splits(rows, trainset, valset, testset),
            reward=reward,
            program={"function": module, "calls": self.calls, "seconds": self.seconds},
            method=self.method,
            lm=_role(module.lm() if self.lm is None else self.lm),
            **{name: _role(value) for name, value in self.options.items()},
        )
        return module.compile_student(result)


class _StudentRows:
    """The examples of DSPy by the ids of their rows: a module gets the values themselves, not what JSON makes of them."""

    def __init__(self) -> None:
        self.examples: dict[str, Any] = {}

    def of(self, examples: Sequence[Any], named: str) -> list[dict[str, object]]:
        """One row for each different example. Raises UsageError for an example that does not say what its inputs are."""
        rows = {}
        for number, example in enumerate(examples, 1):
            try:
                inputs, labels = example.inputs(), example.labels()
            except (AttributeError, ValueError) as error:
                raise UsageError(
                    f"{named}, example {number}: {error}. Give a dspy.Example, and name its inputs: "
                    'dspy.Example(question=..., answer=...).with_inputs("question").'
                ) from None
            target = as_json_value(labels.toDict())
            row = {"input": as_json_value(inputs.toDict()), "target": single(target) or target}
            name = content_hash(row)[:12]
            rows[name] = {"id": name, **row}
            self.examples[name] = example
        return list(rows.values())


def _splits(
    rows: _StudentRows,
    trainset: Sequence[object],
    valset: Sequence[object] | None,
    testset: Sequence[object] | None,
) -> Any:
    train = rows.of(trainset, "trainset")
    test = None if testset is None else rows.of(testset, "testset")
    return sealed_splits(train, None if valset is None else rows.of(valset, "valset"), test)


class _StudentModule:
    """A student as a program of whet."""

    def __init__(self, student: Any, rows: _StudentRows) -> None:
        import dspy

        self.student, self.rows = student, rows
        self.settings = dict(dspy.settings.copy())
        predictors = dict(student.named_predictors())
        self.names = name_prompts(predictors)
        self.instructions = {self.names[own]: p.signature.instructions for own, p in predictors.items()}
        if not self.names:
            raise UsageError(
                f"{type(student).__name__} has no predictors, so there is nothing to improve in it."
            )
        adapter = type(self.settings.get("adapter")).__qualname__
        self.version = content_hash([dspy.__version__, adapter, *_identity(student)])

    def lm(self) -> Any:
        """The one LM that the student's predictors ask. Raises UsageError for none, and for several."""
        choices = {p.lm or self.settings.get("lm") for _, p in self.student.named_predictors()}
        if choices == {None}:
            raise UsageError("DSPy has no LM. Write dspy.configure(lm=dspy.LM(...)), or give Whet(lm=...).")
        if len(choices) > 1:
            raise UsageError(
                f"The predictors of {type(self.student).__name__} ask {len(choices)} different LMs, and whet asks one. "
                "Give Whet(lm=...) the one that all of them ask."
            )
        return choices.pop()

    async def __call__(self, lm: object, prompts: Mapping[str, str], example: Mapping[str, Any]) -> str:
        import dspy

        module = self.under(prompts)
        predictors = {id(predictor): self.names[own] for own, predictor in module.named_predictors()}
        for _, predictor in module.named_predictors():
            predictor.lm = None
        engine = _ModuleEngine(lm, predictors)
        own = SimpleNamespace(complete=engine.acomplete)
        through = dspy.LM("whet/task", engine=engine, async_engine=own, cache=False, num_retries=0)
        trace: list[object] = []
        inputs = dict(self.rows.examples[example["id"]].inputs())
        with dspy.context(**{**self.settings, "lm": through, "trace": trace, "disable_history": True}):
            try:
                if hasattr(module, "forward"):
                    prediction = await asyncio.to_thread(module, **inputs)
                else:
                    prediction = await module.acall(**inputs)
            except Exception as error:
                raise engine.failed or error from None
        return _PredictionText.of(prediction, trace, module)

    def under(self, texts: Mapping[str, str]) -> Any:
        """A copy of the student with these instructions."""
        module = self.student.deepcopy()
        for own, predictor in module.named_predictors():
            predictor.signature = predictor.signature.with_instructions(texts[self.names[own]])
        return module

    def compile_student(self, result: RunResult) -> Any:
        """The student as the run leaves it."""
        promoted = result.status != "planned" and result.promoted
        parts = result.best.prompt.parts if promoted else {}
        module = self.under({n: p.text for n, p in parts.items()} if promoted else self.instructions)
        module._compiled = promoted or module._compiled
        module.whet_result = result
        return module


def _identity(student: Any) -> list[object]:
    """The parts of a student that a run pins: demonstrations, fields and settings of its predictors, and the code of its
    classes."""
    kinds = {type(module) for _, module in student.named_sub_modules()}
    own = sorted(
        (kind for kind in kinds if not kind.__module__.startswith("dspy.")), key=lambda k: k.__qualname__
    )
    code = [
        [k.__qualname__, [[n, source_hash(f)] for n, f in sorted(vars(k).items()) if inspect.isfunction(f)]]
        for k in own
    ]
    predictors = [
        [name, [dict(demo) for demo in p.demos], p.config, p.signature.dump_state()]
        for name, p in student.named_predictors()
    ]
    return [code, as_json_value(predictors)]


class _ModuleEngine:
    """An engine of DSPy that asks through the rollout. `failed`: the call that brought no answer."""

    def __init__(self, lm: Any, predictors: Mapping[int, str]) -> None:
        self.model, self.predictors, self.loop = lm, predictors, asyncio.get_running_loop()
        self.failed: Exception | None = None

    def complete(self, request: Any) -> object:
        return asyncio.run_coroutine_threadsafe(self.ask(request, self.caller()), self.loop).result()

    async def acomplete(self, request: Any) -> object:
        return await self.ask(request, self.caller())

    def caller(self) -> str:
        """The name of the predictor that is asking."""
        import dspy

        callers = [self.predictors.get(id(module)) for module in dspy.settings.caller_modules or ()]
        return next((name for name in reversed(callers) if name), "")

    async def ask(self, request: Any, prompt: str) -> object:
        """The answer as a response of DSPy."""
        from dspy import lm15

        try:
            text = await self.model.ask(_messages(request), prompt=prompt)
        except Exception as error:
            self.failed = error
            raise
        return lm15.Response(
            id=None,
            model=request.model,
            message=lm15.Message.assistant(text),
            finish_reason="stop",
            usage=lm15.Usage(),
        )


def _messages(request: Any) -> list[Message]:
    system = request.system or ""
    if not isinstance(system, str):
        system = "".join(_text(part) for part in system)
    own = [Message("system", system)] if system else []
    return own + [Message(m.role, "".join(_text(part) for part in m.parts)) for m in request.messages]


def _text(part: Any) -> str:
    if not isinstance(getattr(part, "text", None), str):
        raise ProgramFailed(f"program: a message holds a {type(part).__name__}, and whet sends texts only")
    return str(part.text)


class _PredictionText(str):
    """A module's prediction as a text, with the prediction itself and the trace for the metric."""

    prediction: object
    trace: list[Any]
    module: Any

    @classmethod
    def of(cls, prediction: object, trace: list[object], module: object) -> _PredictionText:
        """The only output where it is a text, else all outputs as JSON."""
        fields = (
            as_json_value(prediction.toDict())
            if hasattr(prediction, "toDict")
            else {"output": str(prediction)}
        )
        answer = cls(single(fields) or json.dumps(fields, ensure_ascii=False))
        answer.prediction, answer.trace, answer.module = prediction, trace, module
        return answer


class _ModuleMetric:
    """A metric of DSPy as a reward. It grades predictions only, so it is not tried on texts."""

    recorded = True

    def __init__(self, metric: Callable[..., object], module: _StudentModule) -> None:
        self.metric, self.module = metric, module
        self.version = source_hash(metric)
        try:
            inspect.signature(metric).bind(*(None,) * 5)
            self.detailed = True
        except (TypeError, ValueError):
            self.detailed = False

    def __call__(self, example: Mapping[str, Any], output: _PredictionText) -> dict[str, object]:
        import dspy

        gold, pred, trace = self.module.rows.examples[example["id"]], output.prediction, output.trace
        with dspy.context(**self.module.settings):
            if not self.detailed:
                return _reward_from_metric(self.metric(gold, pred))
            whole = _reward_from_metric(self.metric(gold, pred, trace, None, None))
            addressed: dict[str, object] = {}
            for own, predictor in output.module.named_predictors():
                steps = [step for step in trace if step[0] is predictor]
                if steps:
                    outcome = _reward_from_metric(self.metric(gold, pred, trace, own, steps))
                    addressed[self.module.names[own]] = outcome["critique"]
        if {*addressed.values()} - {whole["critique"]}:
            whole["critique"] = {name: text for name, text in addressed.items() if text}
        return whole


def _reward_from_metric(outcome: Any) -> dict[str, object]:
    """A metric's value as a reward's value."""
    if isinstance(outcome, Mapping):
        score, feedback, parts = (outcome.get(key) for key in ("score", "feedback", "objective_scores"))
    else:
        score = getattr(outcome, "score", outcome)
        feedback, parts = (getattr(outcome, key, None) for key in ("feedback", "objective_scores"))
    return {**dict(parts or {}), "reward": score, "critique": str(feedback) if feedback else None}


class _DSPyModel:
    """An LM of DSPy as a model of whet, which owns retries and the cache. Its own settings (temperature, ...) stay."""

    def __init__(self, lm: Any) -> None:
        from dspy.utils import DummyLM

        self.lm = lm.copy(cache=False, num_retries=0)
        self.__name__ = str(lm.model)
        self.simulated = isinstance(lm, DummyLM)
        settings = {key: value for key, value in lm.kwargs.items() if key not in SECRET}
        kind = f"{type(lm).__module__}.{type(lm).__qualname__}"
        self.version = content_hash(
            [kind, lm.model, as_json_value(settings), as_json_value(getattr(lm, "version", None))]
        )

    def __call__(self, messages: Sequence[Mapping[str, Any]], request: Request) -> dict[str, object]:
        from dspy.utils.exceptions import is_retryable_lm_error

        try:
            response = self.lm.forward(messages=[dict(m) for m in messages])
        except Exception as error:
            if is_retryable_lm_error(error):
                wait = getattr(error, "retry_after", None)
                raise ProviderError(f"{self.lm.model}: {error}", retryable=True, retry_after=wait) from error
            raise
        choice = _of(_of(response, "choices")[0], "message")
        reported = _of(response, "usage") or {}
        usage = {key: int(_of(reported, key) or 0) for key in ("prompt_tokens", "completion_tokens")}
        return {"text": str(_of(choice, "content") or ""), "usage": usage if any(usage.values()) else None}


def _role(choice: object) -> Any:
    """An LM of DSPy as a model of whet; anything else as it is."""
    import dspy

    return _DSPyModel(choice) if isinstance(choice, dspy.BaseLM) else choice


def _of(value: object, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else getattr(value, key, None)

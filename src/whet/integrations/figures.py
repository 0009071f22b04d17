"""The figures of a run as sinks of others take them: those that result.json and the report show."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from whet.api import MethodComparison, RunResult, find_run
from whet.reporting import Record, read_run
from whet.reporting.record import STEP_INDEX

COMPARISON = "comparison.json"
_SCORED = ("baseline", "best", "control", "improvement", "objectives", "usage")
_FILES = (
    "result.json",
    "report.html",
    "best.md",
    *(f"comparison.{kind}" for kind in ("html", "json", "csv", "md", "tex")),
)


@dataclass(frozen=True)
class RunFigures:
    """A run folder. `metrics` are the numbers of its result, named by their path in result.json; `points` are (name, model calls
    made by then, value) of the search, in its order; `training` are (name, step, value) of what a method notes at its steps:
    reward, divergence, entropy, length, share of clipped tokens, and others. `prompts` are the texts before and after."""

    folder: Path
    parameters: Mapping[str, Any]
    metrics: Mapping[str, float]
    points: tuple[tuple[str, int, float], ...]
    prompts: Mapping[str, str]
    training: tuple[tuple[str, int, float], ...] = ()

    @property
    def files(self) -> list[Path]:
        """The files that the run has written for people so far."""
        return [path for name in _FILES if (path := self.folder / name).is_file()]


def read_figures(run: RunResult | MethodComparison | str | Path, root: str | Path = "runs") -> RunFigures:
    """The figures of a result, of the folder of a run or of a comparison, or of its name below `root`; of a run also while it
    goes on.

    Raises UsageError where there is neither.
    """
    if isinstance(run, MethodComparison):
        return _of_comparison(run.folder)
    if not isinstance(run, RunResult):
        for place in (Path(run), Path(root) / str(run)):
            if (place / COMPARISON).is_file():
                return _of_comparison(place)
    folder = run.run if isinstance(run, RunResult) else find_run(run, root)
    record = read_run(folder)
    result = record.result
    parameters = {key: result.get(key, record.header.get(key)) for key in ("task", "method", "seed")}
    parameters |= {f"model.{role}": model for role, model in (record.header.get("models") or {}).items()}
    parameters |= {key: result[key] for key in ("status", "simulated") if key in result}
    texts = {"baseline.md": record.baseline_text, "best.md": record.best_text}
    return RunFigures(
        folder,
        {key: value for key, value in parameters.items() if value is not None},
        dict(_numbers({key: result[key] for key in _SCORED if key in result})),
        tuple(_points(record)),
        {name: text for name, text in texts.items() if text is not None},
        tuple(_training(record)),
    )


def _of_comparison(folder: Path) -> RunFigures:
    """The figures of the methods and of their pairs, the curves of all runs, and the best prompt of each."""
    result = orjson.loads((folder / COMPARISON).read_bytes())
    runs = [(f"{run['method']}-{run['seed']}", run) for run in result["runs"]]
    parameters = {
        "task": result["task"],
        "methods": ", ".join(row["method"] for row in result["methods"]),
        "seeds": ", ".join(dict.fromkeys(str(run["seed"]) for _, run in runs)),
        **{f"model.{role}": model for role, model in runs[0][1]["models"].items()},
    }
    pairs = {f"{pair['a']} - {pair['b']}": pair for pair in result.get("pairs", ())}
    numbers = {"methods": {row["method"]: row for row in result["methods"]}, "pairs": pairs}
    points: list[tuple[str, int, float]] = []
    training: list[tuple[str, int, float]] = []
    for name, run in runs:
        place = folder / name if (folder / name).is_dir() else Path(run["run"])
        if (place / "journal.sqlite").is_file():
            record = read_run(place)
            points += [(f"{label}.{name}", calls, value) for label, calls, value in _points(record)]
            training += [(f"{label}.{name}", step, value) for label, step, value in _training(record)]
    prompts = {f"{name}.md": run["best"]["prompt"] for name, run in runs}
    return RunFigures(folder, parameters, dict(_numbers(numbers)), tuple(points), prompts, tuple(training))


def _numbers(value: object, path: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            name = re.sub(r"[^\w .-]", "_", str(key))
            yield from _numbers(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, int | float):
        yield path, float(value)


def _points(record: Record) -> Iterator[tuple[str, int, float]]:
    """The data of the report's learning curve: each candidate on validation, the best so far, scores and rewards in
    training."""
    yield from (("search.validation", p.calls, p.value) for p in record.validated)
    yield from (("search.best_validation", p.calls, p.value) for p in record.validated if p.incumbent)
    yield from (("search.train", p.calls, p.value) for p in record.trained)
    yield from (("search.reward", p.calls, p.value) for p in record.rewards)


def _training(record: Record) -> Iterator[tuple[str, int, float]]:
    """The curves of the method's own figures in the report."""
    for step in record.steps:
        for name, value in step.items():
            if name != STEP_INDEX:
                yield f"training.{name}", int(step[STEP_INDEX]), value

"""The results of the public functions: read-only mappings of their JSON, with typed names for the most important values."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from whet.engine.comparison_json import (
    AdviceJSON,
    ComparisonJSON,
    MatrixJSON,
    MethodSummaryJSON,
    TransferJSON,
)
from whet.engine.plan_json import PlanJSON
from whet.engine.result_json import (
    AgreementJSON,
    EvaluationJSON,
    FrontPointJSON,
    LabelFiguresJSON,
    MeanJSON,
    ObjectiveJSON,
    PromptJSON,
    RunJSON,
    SideJSON,
    UsageJSON,
    answered_rows,
    show_gaps,
)
from whet.errors import quantity, show_reward
from whet.prompt import Prompt
from whet.types import Message

J = TypeVar("J", bound=Mapping[str, object])


def sample_size(n: int, groups: int | None) -> str:
    """Over how many rows a mean is, and in how many groups they are where they are not independent.

    >>> sample_size(90, None), sample_size(90, 9)
    ('n=90', 'n=90 rows in 9 groups')
    """
    return f"n={n}" if groups is None else f"n={n} rows in {quantity(groups, 'group')}"


@dataclass(frozen=True)
class MeanEstimate:
    """A mean over n examples with its 95% interval. If an endpoint ended the run, only `mean` and `n` are known."""

    mean: float
    """Not a number if no row was answered."""
    low: float | None
    high: float | None
    n: int
    method: str | None = None
    """The method of the interval: `Wilson` for right-or-wrong rewards, else `confidence sequence`."""
    answered: int | None = None
    """The number of rows with an answer, which neither the provider nor a limit withheld."""
    of: int | None = None
    """The number of all rows."""
    groups: int | None = None
    """The number of groups of rows, which are the units of the interval; None: every row is independent."""
    cases: Mapping[str, float] = field(default_factory=dict)
    """The mean of each case by name, for a task made of several."""
    compared: int | None = None
    """The number of answered rows in the mean of a comparison, for which the other prompt has an answer too; None: all."""

    @classmethod
    def from_json(cls, value: MeanJSON) -> MeanEstimate:
        """Read the mean from result.json; an unknown mean becomes NaN."""
        mean = value["mean"]
        return cls(
            math.nan if mean is None else mean,
            value["low"],
            value["high"],
            value["n"],
            value.get("method"),
            value.get("answered"),
            value.get("of"),
            value.get("groups"),
            value.get("cases", {}),
            value.get("compared"),
        )

    def __str__(self) -> str:
        if math.isnan(self.mean):
            return f"no answer (0 of {self.of})"
        ends = (
            ""
            if self.low is None or self.high is None
            else f" [{show_reward(self.low)}, {show_reward(self.high)}]"
        )
        gaps = answered_rows(self.answered, self.of, self.compared)
        return f"{show_reward(self.mean)}{ends}{gaps and f' ({gaps})'}"


@dataclass(frozen=True)
class ScoredPrompt:
    """A prompt with its scores on the validation split and on the sealed test; None if it was not measured there. `prompt.text`
    is the text to copy, `prompt.source` the same text with the fence markers. `system` is the digest of trained weights that
    the prompt needs."""

    prompt: Prompt
    id: str
    validation: MeanEstimate | None
    test: MeanEstimate | None
    system: str | None = None


@dataclass(frozen=True)
class GateResult:
    """The gain of the best prompt over the baseline on the sealed test, its 95% interval, and the decision of the gate with the
    reason."""

    difference: float | None
    low: float | None
    high: float | None
    promoted: bool
    reason: str


@dataclass(frozen=True)
class RunUsage:
    """The usage of a run: calls by role, refused attempts by role, tokens, US dollars (None: a price is unknown), and seconds
    over all sessions. Cached input is part of the input tokens, and reasoning is part of the output tokens. `estimated`: calls
    by role for which the provider did not report tokens. `provider_tools`: calls of the provider's own tools, by role, whose
    cost the dollars do not include."""

    calls: Mapping[str, int]
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    seconds: float
    refused: Mapping[str, int] = field(default_factory=dict)
    cached_input_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: Mapping[str, int] = field(default_factory=dict)
    provider_tools: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: UsageJSON) -> RunUsage:
        """Read the usage from result.json."""
        return cls(
            value.get("calls", {}),
            value.get("input_tokens", 0),
            value.get("output_tokens", 0),
            value.get("cost_usd"),
            value.get("seconds", 0.0),
            value.get("refused", {}),
            value.get("cached_input_tokens", 0),
            value.get("reasoning_tokens", 0),
            value.get("estimated", {}),
            value.get("provider_tools", {}),
        )


@dataclass(frozen=True)
class HistoryPoint:
    """The validation mean of a new best prompt over `n` rows (None in results of older versions), and the number of calls up to
    then."""

    calls: int
    validation: float
    n: int | None = None


@dataclass(frozen=True, eq=False, repr=False)
class JSONResult(Mapping[str, Any], Generic[J]):
    """A read-only mapping of JSON."""

    json: J

    def __getitem__(self, key: str) -> Any:
        return self.json[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.json)

    def __len__(self) -> int:
        return len(self.json)

    def to_dict(self) -> dict[str, Any]:
        """The whole result as JSON values, a copy."""
        return copy.deepcopy(dict(self.json))

    @property
    def status(self) -> str:
        """The status of the result."""
        return str(self["status"])

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about limits of the result."""
        return tuple(self["warnings"])

    @property
    def usage(self) -> RunUsage:
        """The usage."""
        return RunUsage.from_json(self["usage"])


class RunResult(JSONResult[RunJSON]):
    """The result of `whet.optimize`. As a mapping, it has the keys of result.json, and `run`, the folder. `status` is
    completed, budget_exhausted or stopped. `to_dict()` is result.json. A result that was recorded earlier, so that no call was
    made, has `recorded`, and `ended` with its time."""

    def to_dict(self) -> dict[str, Any]:
        """A copy of the content of result.json."""
        return {
            key: value for key, value in super().to_dict().items() if key not in ("run", "recorded", "ended")
        }

    @property
    def run(self) -> Path:
        """The run's folder: journal, result.json, report.html, best.md."""
        return Path(self.json["run"])

    @property
    def method(self) -> str:
        """Name of the method."""
        return str(self.json["method"])

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return int(self.json["seed"])

    @property
    def ended_by(self) -> str:
        """The reason for the end of the run, in words: a limit, or the method itself; empty for a plan."""
        return str(self.json.get("ended_by", ""))

    @property
    def models(self) -> Mapping[str, str]:
        """The address of each named model, by its role."""
        return dict(self.json.get("models", {}))

    @property
    def simulated(self) -> bool:
        """Whether a scripted model answered, so that the figures do not describe a real model."""
        return bool(self.json.get("simulated", False))

    @property
    def plan(self) -> PlanJSON:
        """The plan that was shown before anything was paid: `calls` by role, `tokens`, `cost_usd`, `limits`
        (docs/report.md)."""
        return self.json.get("plan", PlanJSON()).copy()

    @property
    def promoted(self) -> bool:
        """Whether the gate lets the best prompt replace the baseline."""
        return bool(self.json["improvement"]["promoted"])

    @property
    def baseline(self) -> ScoredPrompt:
        """The prompt that the run began with."""
        return _side(self.json["baseline"])

    @property
    def best(self) -> ScoredPrompt:
        """The final prompt of the method; the baseline if the method found no better prompt."""
        return _side(self.json["best"])

    @property
    def improvement(self) -> GateResult:
        """Best against baseline on the sealed test, and the verdict."""
        i = self.json["improvement"]
        return GateResult(i["difference"], i["low"], i["high"], i["promoted"], i["reason"])

    @property
    def objectives(self) -> Mapping[str, ObjectiveJSON]:
        """The verdict on each objective, with `baseline`, `best`, `difference` and its ends; empty without objectives."""
        return dict(self.json.get("objectives", {}))

    @property
    def cases(self) -> Mapping[str, Mapping[str, Any]]:
        """The verdict of the sealed test on each case by name, for a task made of several (docs/several-tasks.md); else
        empty."""
        return dict(self.get("cases", {}))

    @property
    def labels(self) -> Mapping[str, Any]:
        """The accuracy of baseline and best for each label of the sealed test (docs/report.md); empty for a task without
        labels."""
        return dict(self.json.get("labels", {}))

    @property
    def front(self) -> tuple[FrontPointJSON, ...]:
        """The prompts that no other prompt is shown to beat, with their means on validation, and `gate`, the verdict of the
        sealed test."""
        return tuple(self.json.get("front", ()))

    @property
    def history(self) -> tuple[HistoryPoint, ...]:
        """The rise of the best validation mean."""
        return tuple(
            HistoryPoint(point["calls"], point["validation"], point.get("n"))
            for point in self.json["history"]
        )

    def __repr__(self) -> str:
        known = f"{self['task']!r}, {self.method!r}, seed={self.seed}, {self.status}"
        if self.status == "planned":
            return f"RunResult({known})"
        before, after = self.baseline.test, self.best.test
        test = "not tested"
        if before is not None and after is not None:
            unknown = math.isnan(before.mean) or math.isnan(after.mean)
            test = "no answer" if unknown else f"{show_reward(before.mean)} -> {show_reward(after.mean)}"
        return f"RunResult({known}, promoted={self.promoted}, test={test!r}, run={str(self.run)!r})"

    def _repr_html_(self) -> str:
        from whet.reporting import result_html

        return result_html(self.json, "" if self.status == "planned" else self.best.prompt.shown)


class Evaluation(JSONResult[EvaluationJSON]):
    """The result of `whet.evaluate`: the mean reward of one prompt on one split."""

    @property
    def score(self) -> MeanEstimate:
        """Mean reward with its 95% interval."""
        return MeanEstimate.from_json(self.json["score"])

    @property
    def prompt(self) -> Prompt:
        """The prompt that was evaluated."""
        return _prompt(self.json)

    @property
    def split(self) -> str:
        """Name of the split."""
        return str(self.json["split"])

    @property
    def parts(self) -> Mapping[str, float]:
        """Means of the reward's named parts."""
        return dict(self.json["parts"])

    @property
    def labels(self) -> LabelFiguresJSON | Mapping[str, Any]:
        """Accuracy by label (`each`), the confusion `matrix` with its `columns`, `confusions`; empty without labels."""
        return self.json["labels"].copy() if "labels" in self.json else {}

    @property
    def agreement(self) -> tuple[AgreementJSON, ...]:
        """The agreement of each judge with people's scores in the rows (docs/judges.md); else empty."""
        return tuple(self.json.get("agreement", ()))

    @property
    def failed(self) -> int:
        """The number of failed rollouts, which count as the lowest reward."""
        return int(self.json["failed"])

    def __repr__(self) -> str:
        if self.status == "planned":
            return f"Evaluation({self['task']!r}, {self.split}, planned)"
        size = sample_size(self.score.n, self.score.groups)
        return f"Evaluation({self['task']!r}, {self.split}, {self.score}, {size}, failed={self.failed})"

    def _repr_html_(self) -> str:
        from whet.reporting import evaluation_html

        return evaluation_html(self.json)


class MethodComparison(JSONResult[ComparisonJSON]):
    """The result of `whet.compare`."""

    @property
    def runs(self) -> tuple[RunResult, ...]:
        """All runs, in the order in which they were made."""
        return tuple(RunResult(row) for row in self.json["runs"])

    @property
    def methods(self) -> Mapping[str, MethodSummaryJSON]:
        """The summary of each method: `test_mean` with the ends of its interval, `promoted`, `calls`, `cost_usd`, and the
        readability of its text."""
        return {row["method"]: row for row in self.json["methods"]}

    @property
    def status(self) -> str:
        """`completed` if every run has a result, or `planned` (a dry run)."""
        return str(self.json.get("status", "completed"))

    @property
    def folder(self) -> Path:
        """The folder of the runs, with the comparison as comparison.html, .csv, .md, .tex and .json."""
        return Path(self.json["folder"])

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of all runs, each warning once."""
        return tuple(dict.fromkeys(warning for run in self.runs for warning in run.warnings))

    @property
    def usage(self) -> RunUsage:
        """The usage of all runs together."""
        each = [run.usage for run in self.runs]
        roles = dict.fromkeys(role for one in each for role in one.calls)
        calls = {role: sum(one.calls.get(role, 0) for one in each) for role in roles}
        read, wrote = sum(one.input_tokens for one in each), sum(one.output_tokens for one in each)
        refused = {role: sum(one.refused.get(role, 0) for one in each) for role in roles}
        dollars = [one.cost_usd for one in each if one.cost_usd is not None]
        return RunUsage(
            calls,
            read,
            wrote,
            sum(dollars) if len(dollars) == len(each) else None,
            sum(one.seconds for one in each),
            refused,
            sum(one.cached_input_tokens for one in each),
            sum(one.reasoning_tokens for one in each),
        )

    def __repr__(self) -> str:
        def mean(row: MethodSummaryJSON) -> str:
            if row["test_mean"] is not None:
                return f"{show_reward(row['test_mean'])}{show_gaps(row)}"
            return "no answer" if row.get("unanswered") else "not tested"

        means = ", ".join(f"{name}={mean(row)}" for name, row in self.methods.items())
        return f"MethodComparison({self['task']!r}, {means or self.status})"

    def _repr_html_(self) -> str:
        from whet.reporting import comparison_html

        return comparison_html(self.json)


class Advice(JSONResult[AdviceJSON]):
    """The result of `whet.advise`: the facts of a task, and their consequences for a search."""

    @property
    def verdict(self) -> str:
        """Whether a search pays, in one sentence."""
        return str(self.json["verdict"])

    @property
    def pays(self) -> bool | None:
        """Whether a search may pay; None if that depends on a mean that was not measured."""
        return self.json["pays"]

    @property
    def methods(self) -> Mapping[str, str]:
        """The suitable methods, the best first, each with its reason."""
        return {row["name"]: row["why"] for row in self.json["methods"]}

    @property
    def first(self) -> tuple[str, ...]:
        """The steps to take before a run, the most useful first."""
        return tuple(self.json["first"])

    def __repr__(self) -> str:
        return f"Advice({self['task']!r}, {self.verdict!r})"


@dataclass(frozen=True)
class ModelTransfer:
    """Start prompt and best prompt of a run with one model, the gain of the best prompt there, and the ends of its 95%
    interval. `n` rows have an answer to both prompts; if there are none, the difference is not informative."""

    baseline: MeanEstimate
    best: MeanEstimate
    difference: float
    low: float
    high: float
    n: int | None = None


class TransferResult(JSONResult[TransferJSON]):
    """The result of `whet.transfer`. `status` is completed, or planned (a dry run)."""

    @property
    def models(self) -> Mapping[str, ModelTransfer]:
        """The scores of the two prompts with each model, by its address."""
        return {
            row["model"]: ModelTransfer(
                MeanEstimate.from_json(row["baseline"]), MeanEstimate.from_json(row["best"]), **row["gain"]
            )
            for row in self.json["models"]
        }

    @property
    def split(self) -> str:
        """Name of the split whose rows were answered."""
        return str(self.json["split"])

    def __repr__(self) -> str:
        gains = ", ".join(
            f"{name}: {'no answer' if one.n == 0 else show_reward(one.difference, sign=True)}"
            for name, one in self.models.items()
        )
        return f"TransferResult({self['task']!r}, {self.split}, {gains})"


class MatrixResult(JSONResult[MatrixJSON]):
    """The result of `whet.transfer_matrix`. `status` is completed, or planned (a dry run)."""

    @property
    def verdict(self) -> str:
        """Whether prompts are locked in to the model with which they were found, in one sentence."""
        return str(self.json["verdict"])

    @property
    def scores(self) -> Mapping[str, Mapping[str, MeanEstimate]]:
        """The score of a prompt, by the address of the model for which it was found and the address of the model that
        answered."""
        by_origin: dict[str, dict[str, MeanEstimate]] = {}
        for cell in self.json["cells"]:
            by_origin.setdefault(cell["origin"], {})[cell["model"]] = MeanEstimate.from_json(cell["score"])
        return by_origin

    def __repr__(self) -> str:
        return f"MatrixResult({self['task']!r}, {self.json.get('verdict', self.status)!r})"


class MigrationResult(JSONResult[Mapping[str, Any]]):
    """The result of `whet.migrate`. `status` is completed, planned (a dry run), budget_exhausted or stopped."""

    @property
    def verdict(self) -> str:
        """The prompt to use with the new model: `new prompt`, `old prompt`, or `undecided`."""
        return str(self["verdict"])

    @property
    def reason(self) -> str:
        """The reason for the verdict."""
        return str(self["reason"])

    @property
    def prompt(self) -> Prompt:
        """The prompt to use: the new prompt if it was promoted, else the old prompt."""
        return Prompt.parse(self["prompt"])

    def __repr__(self) -> str:
        return f"MigrationResult({self['task']!r}, {self.get('verdict', self.status)})"


class LearnResult(JSONResult[Mapping[str, Any]]):
    """The result of `whet.learn`: a proposal and its outcome. `status` is written, proposed (a dry run), declined, nothing
    (there is nothing to learn) or undone."""

    @property
    def prompt(self) -> Prompt:
        """The prompt with the proposed changes, whether written or not."""
        return Prompt.parse(str(self["text"]))

    @property
    def changes(self) -> tuple[Mapping[str, Any], ...]:
        """The instructions that are added, removed or changed: `id`, `kind`, `before`, `after`, and the feedback behind
        them."""
        return tuple(self["changes"])

    @property
    def diff(self) -> str:
        """Unified diff of the prompt."""
        return str(self["diff"])

    @property
    def flagged(self) -> tuple[Mapping[str, Any], ...]:
        """Rows and instructions that need a person: `kind`, `id`, `text`, `reasons`."""
        return tuple(self.get("flagged", ()))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about limits of the result."""
        return tuple(self.get("warnings", ()))

    @property
    def usage(self) -> RunUsage:
        """The usage; zero without a model."""
        return RunUsage.from_json(self.get("usage", {}))

    def __repr__(self) -> str:
        return f"LearnResult({self['prompt']!r}, {self.status}, {quantity(len(self.changes), 'change')})"


def _side(value: SideJSON) -> ScoredPrompt:
    validation, test = (
        None if score is None else MeanEstimate.from_json(score)
        for score in (value["validation"], value["test"])
    )
    return ScoredPrompt(_prompt(value), value["id"], validation, test, value.get("system"))


def _prompt(value: PromptJSON | EvaluationJSON) -> Prompt:
    """The prompt that a result holds: one text, or `messages` where there are several."""
    if "messages" in value:
        return Prompt(tuple(Message(*values) for values in value["messages"]))
    return Prompt.parse(value["prompt"])


class PreferencesResult(JSONResult[Mapping[str, Any]]):
    """The result of `whet.learn_preferences`: the quality of the reward model, its run, and the proposal. `status` is written,
    proposed (not accepted), trained (weights that answer with the unchanged prompt; `weights` is their folder), nothing (the
    gate promoted nothing) or planned (a dry run)."""

    @property
    def prompt(self) -> Prompt | None:
        """The proposed prompt; None if there is none."""
        return Prompt.parse(str(self["text"])) if "text" in self else None

    @property
    def accuracy(self) -> MeanEstimate:
        """The share of judgements about unseen inputs that the reward model orders as people did, with its 95% interval."""
        one = self["accuracy"]
        n = int(self["pairs"]) + int(self["thumbs"])
        return MeanEstimate(one["value"], one["low"], one["high"], n, "cross-validation over inputs")

    def __repr__(self) -> str:
        return f"PreferencesResult({self['prompt']!r}, {self.status})"

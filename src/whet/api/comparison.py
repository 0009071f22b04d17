"""The measurements that `whet compare` adds to each run: the perplexity of the found text, and its reward with another
model."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, median
from types import MappingProxyType
from typing import Literal, Protocol, TypeAlias, TypedDict

import orjson

from whet.engine.assemble import Assembly, TransferModel, transfer_model
from whet.engine.blobs import Blobs
from whet.engine.budget import test_set_budget
from whet.engine.comparison_json import (
    ComparisonJSON,
    MethodSummaryJSON,
    ObjectiveSummaryJSON,
    OptionalComparisonJSON,
    ReadabilitySummaryJSON,
    ReasonsJSON,
    ShardJSON,
    TransferSummaryJSON,
    TriedJSON,
    WrittenJSON,
    WrittenOfComparisonJSON,
)
from whet.engine.forecast import total_plan
from whet.engine.journal import read_journal_rows
from whet.engine.openings import Family
from whet.engine.options import Options, RoleModel
from whet.engine.pairs import compare_pairs, compare_with_start, example_clusters, sealed_answers
from whet.engine.plan_json import PlanJSON
from whet.engine.progress import Progress
from whet.engine.readability import READER, readability, texts_of
from whet.engine.result_json import (
    CallsJSON,
    MeanJSON,
    ObjectiveJSON,
    ReadabilityJSON,
    RunJSON,
    RunTransferJSON,
    TrialJSON,
    UsageJSON,
)
from whet.engine.run_folder import RunPlan
from whet.engine.trained_policy import open_policy
from whet.engine.transfer import TransferTest, check_enough, compare_sides, limits_left
from whet.engine.usage_sums import has_no_price, roles_in
from whet.environments.environment import Environment
from whet.errors import BudgetExceeded, ReplayDiverged, UsageError, parameter, quantity
from whet.methods import POLICY, get_method
from whet.models.addresses import resolve
from whet.models.language_model import LanguageModel
from whet.search.archive import Candidate, candidate_of
from whet.task import Task
from whet.task.spec import with_gate
from whet.types import content_hash

NONE = "none"
RunTask: TypeAlias = "Callable[[Task, Options, Progress, RunMeasurements], Awaitable[RunJSON]]"
"""The function that makes one run: `whet.api.running.run_task`."""


class PartOfRuns(Protocol):
    """A part of the runs of a comparison (`whet.api.shards`). `family` names all parts for the ledger of openings."""

    @property
    def about(self) -> ShardJSON | None: ...
    @property
    def family(self) -> str: ...
    def pick(self, items: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        """The runs of this part."""
        ...


class RunPool(Protocol):
    """The object that makes several runs at once (`whet.api.jobs`)."""

    async def make(
        self,
        runs: Sequence[tuple[str, int]],
        begun: Path | None,
        family: Family,
        on_start: Callable[[str, int], None],
    ) -> None:
        """Make these runs, the others once the first one has the folder `begun`; `on_start` is called with each."""
        ...


@dataclass
class RunMeasurements:
    """The measurements of every finished run of a comparison. `reader` is the address of the model that measures the perplexity
    of the found text. `transfer` is the address of another model that answers with the found prompts. None measures nothing."""

    task: Task
    options: Options
    root: Path
    transfer: RoleModel = None
    reader: str = READER
    start: TrialJSON | None = None
    other: TransferModel | None = None
    family: Family | None = None
    progress: Progress = field(default_factory=Progress, repr=False)
    _reader: LanguageModel | None = field(default=None, repr=False)
    _tried: dict[str, TrialJSON] = field(default_factory=dict, repr=False)

    def open(self) -> None:
        """Find the models. Raises UsageError for a transfer model that cannot answer, or a reader that is not local."""
        if self.transfer is not None:
            limits = self.options.limits(self.task)
            self.other = transfer_model(self.task, self.options, limits, self.transfer)
        if self.reader not in (NONE, READER):
            self._reader = resolve(self.reader)
            if not self._reader.local or not self._reader.can_score:
                raise UsageError(
                    f"{parameter('reader', self.reader)}: readability needs a model in this process "
                    "that scores words (embedded/mlm, embedded/tiny, hf/PATH)."
                )

    async def close(self) -> None:
        """Release the models."""
        for model in (self._reader, None if self.other is None else self.other.client.model):
            if model is not None:
                await model.close()

    async def measure(self, plan: RunPlan, assembly: Assembly, result: RunJSON) -> RunJSON:
        """The result of a run with `readability` and, where another model was named, `transfer`."""
        folder = Path(result["run"])
        try:
            candidate = found_candidate(plan.task, folder, result)
            env = environment_for(plan, assembly.env, folder, candidate)
        except (UsageError, ReplayDiverged) as error:
            return self._without_measures(result, str(error))
        row: RunJSON = {**result, "readability": await self._read(plan, env, candidate)}
        if self.other is not None:
            row["transfer"] = await self._transfer(self.other, plan, assembly, env, candidate, result)
        return row

    def mark_untested(self, result: RunJSON) -> RunJSON:
        """The result of a run whose limits did not pay for its sealed test: nothing is measured of its prompt."""
        return self._without_measures(result, f"seed {result['seed']}: {result['improvement']['reason']}")

    def _without_measures(self, result: RunJSON, reason: str) -> RunJSON:
        """The result of a run with the reason why nothing is measured of its prompt."""
        row: RunJSON = {**result, "readability": {"perplexity": None, "reason": reason}}
        if self.other is not None:
            row["transfer"] = {"model": self.other.address, "test": None, "reason": reason}
        return row

    async def _read(self, plan: RunPlan, env: Environment, candidate: Candidate) -> ReadabilityJSON:
        if self.reader == NONE:
            return {"perplexity": None, "reason": "not measured: --reader none"}
        if self.reader.startswith("embedded/") and importlib.util.find_spec("torch") is None:
            remedy = f"pip install 'whet[embedded]', or use the reader `{NONE}` to skip this measurement"
            return {"perplexity": None, "reason": f"the reader {self.reader} needs torch: {remedy}"}
        try:
            self.progress.begin(f"reading the prompt with {self.reader}, which is loaded first")
            task = plan.task
            texts = await texts_of(env, candidate.prompt, task.prompt, candidate.system, task.test)
            self._reader = self._reader or resolve(self.reader)
        except UsageError as error:
            return {"perplexity": None, "reason": str(error)}
        return await readability(self._reader, texts)

    async def _transfer(
        self,
        other: TransferModel,
        plan: RunPlan,
        assembly: Assembly,
        env: Environment,
        candidate: Candidate,
        result: RunJSON,
    ) -> RunTransferJSON:
        none: RunTransferJSON = {"model": other.address, "test": None}
        bound = plan.method.entry.bound
        if candidate.system is not None and bound:
            return {**none, "reason": f"not possible: {bound}"}
        if candidate.system is not None and assembly.env.scores and not other.scores:
            return {
                **none,
                "reason": (
                    "not possible: the prompt needs a model that scores label words, and this model does not"
                ),
            }
        test = TransferTest(other, assembly.clients.get("judge"), self.root)
        start, folder = Candidate(plan.task.prompt), Path(result["run"]).name
        sides = (assembly.env, start.prompt), (env, candidate.prompt)
        clusters = example_clusters(sides, plan.task.test)
        self.progress.begin(f"trying the prompt with {other.address}")
        try:
            if self.start is None:
                self.start = await test.transfer(
                    replace(plan, seed=0), assembly.env, start, "start", plan.limits
                )
            if candidate.id == start.id:
                return self._compare(other, env, clusters, self.start, paid=False)
            if (known := self._tried.get(candidate.id)) is not None and candidate.system is None:
                return self._compare(other, env, clusters, known, paid=False)
            rest = limits_left(plan.limits, result["usage"])
            check_enough(rest, test_set_budget(plan.task, env, plan.config, other.client))
            measurement = await test.transfer(plan, env, candidate, folder, rest)
            if candidate.system is None:
                self._tried[candidate.id] = measurement
            return self._compare(other, env, clusters, measurement)
        except BudgetExceeded as error:
            return {**none, "reason": f"not paid: {error}"}

    def _compare(
        self,
        other: TransferModel,
        env: Environment,
        clusters: Sequence[int],
        measurement: TrialJSON,
        paid: bool = True,
    ) -> RunTransferJSON:
        """The figures of a trial beside the prompt as written, `paid` where it is not that of another run; rows that one of
        the two has no answer to are left out."""
        assert self.start is not None
        ends = env.reward.low, env.reward.high
        nothing: CallsJSON = {"calls": dict.fromkeys(measurement["usage"]["calls"], 0), "cost_usd": 0.0}
        return {
            "model": other.address,
            "test": measurement["score"],
            "gain": compare_sides((self.start, measurement), ends, clusters, same=measurement is self.start),
            "usage": measurement["usage"] if paid else nothing,
            "failed": measurement["failed"],
        }

    def as_written(self) -> WrittenOfComparisonJSON:
        """The prompt as written with the other model, once for the whole comparison."""
        if self.other is None:
            return {}
        score: WrittenJSON = {"model": self.other.address, "test": None, "usage": None}
        if self.start is not None:
            score["test"], score["usage"] = self.start["score"], self.start["usage"]
        return {"transfer": score}


async def compare_runs(
    measurements: RunMeasurements,
    methods: Sequence[str],
    seeds: int,
    on_run: Callable[[str, int, Progress], None],
    run_task: RunTask,
    progress: Progress,
    configs: Mapping[str, object] = MappingProxyType({}),
    part: PartOfRuns | None = None,
    pool: RunPool | None = None,
) -> ComparisonJSON:
    """Every method with every seed by `run_task`, in turn: the runs, and a summary of each method; with `part` those of its
    runs. Runs that `pool` makes at once, in other processes, are only read and measured here.

    `configs` are the settings of methods that come with all of them. `progress` gets the plan of all runs together, before
    anything is paid, and follows one run after the other."""
    task, opts, rows = measurements.task, measurements.options, list[RunJSON]()
    names = list(dict.fromkeys(methods))
    tests, what = seeds * len(names), content_hash([names, seeds, opts.seed])
    jobs = [(name, seed) for seed in range(opts.seed, opts.seed + seeds) for name in names]
    measurements.family = Family(measurements.root / f"{names[0]}-{opts.seed}", what, tests)
    if part is not None:
        jobs = part.pick(jobs)
        measurements.family = replace(measurements.family, key=part.family)
    each = [own_options(measurements, name, seed, configs) for name, seed in jobs]
    try:
        measurements.open()
        planned = [await run_task(task, replace(one, dry_run=True), _silent(), measurements) for one in each]
        plans = [row["plan"] for row in planned if row["status"] == "planned"]
        total = total_plan(plans) if plans else None
        if total is not None:
            progress.planned(total)
            progress.planned_calls = total["all_calls"]
        if opts.dry_run:
            return {
                "task": task.name,
                "status": "planned",
                "runs": planned,
                "plan": total,
                "methods": [],
                "warnings": [],
            }
        follow = measurements.progress = _without_plans(progress)
        made = [row["status"] != "planned" for row in planned]
        if any(made):
            follow.say(
                f"{sum(made)} of {quantity(len(jobs), 'run')} were already finished; "
                f"{len(jobs) - sum(made)} to go"
            )
        ahead = iter(range(sum(made) + 1, len(jobs) + 1))
        elsewhere = set[tuple[str, int]]()
        if pool is not None:
            elsewhere = {job for job, before in zip(jobs, made, strict=True) if not before}
            begun = measurements.family.first if part is None else None
            await pool.make(
                [job for job in jobs if job in elsewhere],
                begun,
                measurements.family,
                lambda name, seed: on_run(name, seed, follow),
            )
        for (name, seed), one, before in zip(jobs, each, made, strict=True):
            pooled = (name, seed) in elsewhere
            which = "reading a finished run" if before or pooled else f"run {next(ahead)} of {len(jobs)}"
            follow.begin_part(f"{which}: {name}, seed {seed}")
            if pooled:
                row = await run_task(task, replace(one, fresh=False), _quiet(follow), measurements)
            else:
                on_run(name, seed, follow)
                row = await run_task(task, one, follow, measurements)
            rows.append(row if row.get("tested", True) else measurements.mark_untested(row))
    finally:
        await measurements.close()
    alpha = with_gate(task, opts.alpha, None).alpha
    compared = compare_rows(task.name, names, rows, alpha, measurements.as_written())
    if part is not None and part.about is not None:
        compared["shard"] = part.about
    return compared


def compare_rows(
    task: str,
    names: Sequence[str],
    rows: Sequence[RunJSON],
    alpha: float,
    written: WrittenOfComparisonJSON,
) -> ComparisonJSON:
    """The comparison of finished runs of a task: a summary of each method that has one, and the paired tests."""
    tested = [row for row in rows if _tests([row])]
    places = {name: own for name in names if (own := [Path(r["run"]) for r in tested if r["method"] == name])}
    answers = {name: [sealed_answers(place) for place in own] for name, own in places.items()}
    starts = {name: [sealed_answers(place, "baseline") for place in own] for name, own in places.items()}
    known: OptionalComparisonJSON = {}
    if rows and (whole := _whole_plan(rows)) is not None:
        known["plan"] = whole
    made = {row["method"] for row in rows}
    return {
        "task": task,
        "runs": list(rows),
        "methods": [method_summary(name, rows) for name in names if name in made],
        "pairs": compare_pairs(answers, alpha),
        "beside_start": compare_with_start(answers, starts, alpha),
        **written,
        **known,
    }


def own_options(
    measurements: RunMeasurements, name: str, seed: int, configs: Mapping[str, object]
) -> Options:
    """The options of one run of a comparison."""
    opts, trains = measurements.options, POLICY in get_method(name).entry.needs
    return replace(
        opts,
        method=name,
        seed=seed,
        run=measurements.root / f"{name}-{seed}",
        config=configs.get(name),
        settings={} if name in configs else own_settings(name, opts.settings),
        policy=opts.policy if trains else None,
        processes=opts.processes if trains else 1,
    )


def _whole_plan(rows: Sequence[RunJSON]) -> PlanJSON | None:
    """The plan for all runs together; None where a run of an older version has no plan."""
    plans = [row["plan"] for row in rows if "validation" in row.get("plan", {})]
    return total_plan(plans) if len(plans) == len(rows) else None


def _silent() -> Progress:
    return Progress(planned=lambda plan: None)


def _quiet(progress: Progress) -> Progress:
    """A progress that says nothing beyond the warnings: what it would say was said when the run was made."""
    return Progress(planned=lambda plan: None, warn=progress.warn)


def _without_plans(progress: Progress) -> Progress:
    """The same progress: the plan of all runs was said, and a warning that all of them have is said once."""
    say, printed = progress.warn, set[str]()

    def warn(text: str) -> None:
        if text not in printed:
            printed.add(text)
            say(text)

    progress.planned, progress.warn = lambda plan: None, warn
    return progress


def found_candidate(task: Task, folder: Path, result: RunJSON) -> Candidate:
    """The candidate that a finished run ended with, messages and trained weights included."""
    if result["best"]["id"] == task.prompt.id:
        return Candidate(task.prompt)
    rows = read_journal_rows(folder / "journal.sqlite", "SELECT value FROM effects WHERE name = 'search_end'")
    return candidate_of(orjson.loads(rows[0][0])["best"])


def environment_for(plan: RunPlan, env: Environment, folder: Path, candidate: Candidate) -> Environment:
    """The environment in which a candidate of a run is used: with its trained weights where it needs them."""
    if candidate.system is None or plan.method.deploy is None:
        return env
    policy = None if plan.policy is None else open_policy(plan.policy, plan.config, plan.seed)
    blob = Blobs(folder / "blobs").read(candidate.system)
    made: Environment = plan.method.deploy(env, policy, blob, plan.config)
    return made


def own_settings(method: str, settings: Mapping[str, object]) -> dict[str, object]:
    """Settings for one of several methods: `protegi.width=3` belongs to protegi only, `width=3` to all."""
    own = {k: v for k, v in settings.items() if "." not in k}
    return own | {k.partition(".")[2]: v for k, v in settings.items() if k.startswith(f"{method}.")}


def method_summary(name: str, rows: Sequence[RunJSON]) -> MethodSummaryJSON:
    """One method over its runs. Ends of intervals are means over the runs: what other rows would change, not other seeds. The
    figures of the test are those of the runs that were `tested`, and None where none was: `unanswered` counts the runs whose
    sealed rows nobody answered."""
    mine = [r for r in rows if r["method"] == name]
    tests = _tests(mine)
    means, entered = [test.mean for test in tests], _rows_in_means([r["best"]["test"] for r in mine])
    summary: MethodSummaryJSON = {
        "method": name,
        "runs": len(mine),
        "tested": len(tests),
        "unanswered": sum(r["best"]["test"] is not None for r in mine) - len(tests),
        "answered": entered["answered"],
        "of": entered["of"],
        "test_mean": _mean(means),
        "test_low": _mean([test.low for test in tests]),
        "test_high": _mean([test.high for test in tests]),
        "test_min": min(means, default=None),
        "test_max": max(means, default=None),
        "baseline_test": _mean([test.mean for test in _tests(mine, "baseline")]),
        "promoted": sum(r["improvement"]["promoted"] for r in mine),
        "calls": fmean(sum(r["usage"]["calls"].values()) for r in mine),
        "cost_usd": _mean_cost([r["usage"] for r in mine]),
        "price_unknown": roles_in([r["usage"] for r in mine], "price_unknown"),
        "readability": _readability_summary([r["readability"] for r in mine]),
    }
    if free := roles_in([r["usage"] for r in mine], "not_priced"):
        summary["not_priced"] = free
    if any(r.get("objectives") for r in mine):
        summary["objectives"] = _objectives_summary(mine)
    if "transfer" in mine[0]:
        summary["transfer"] = _transfer_summary([r["transfer"] for r in mine])
    return summary


def _mean_cost(usages: Sequence[UsageJSON | CallsJSON]) -> float | None:
    """US dollars of a run on average; None where those of one are not known, and where no model has a price."""
    if usages and all(map(has_no_price, usages)):
        return None
    costs = [usage["cost_usd"] for usage in usages]
    known = [cost for cost in costs if cost is not None]
    return fmean(known) if len(known) == len(costs) else None


def _tests(rows: Sequence[RunJSON], name: Literal["baseline", "best"] = "best") -> list[_KnownMean]:
    """The sealed tests of a side, of the runs that made one."""
    tests = [row[name]["test"] for row in rows]
    return [known for test in tests if test is not None and (known := _mean_if_known(test)) is not None]


@dataclass(frozen=True)
class _KnownMean:
    """A mean over rows that were answered, and the ends of its interval."""

    mean: float
    low: float
    high: float


def _mean_if_known(test: MeanJSON) -> _KnownMean | None:
    mean, low, high = test["mean"], test["low"], test["high"]
    return None if mean is None or low is None or high is None else _KnownMean(mean, low, high)


class _RowsJSON(TypedDict):
    answered: int
    of: int


def _rows_in_means(tests: Sequence[MeanJSON | None]) -> _RowsJSON:
    """Count the rows that enter the means of these tests, and all rows."""
    known = [test for test in tests if test is not None and _mean_if_known(test)]
    return {"answered": sum(t["n"] for t in known), "of": sum(t.get("of") or t["n"] for t in known)}


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _reasons(rows: Sequence[ReadabilityJSON] | Sequence[RunTransferJSON]) -> ReasonsJSON:
    reasons = list(dict.fromkeys(f["reason"] for f in rows if "reason" in f))
    return {"reasons": reasons} if reasons else {}


def _objectives_summary(rows: Sequence[RunJSON]) -> dict[str, ObjectiveSummaryJSON]:
    """Means over the runs of each objective on the sealed test, and how often the gate's verdict was which."""
    verdicts = [r["objectives"] for r in rows if r.get("objectives")]
    return {name: _objective_summary([v[name] for v in verdicts]) for name in verdicts[0]}


def _objective_summary(runs: Sequence[ObjectiveJSON]) -> ObjectiveSummaryJSON:
    return {
        "baseline": fmean(run["baseline"] for run in runs),
        "best": fmean(run["best"] for run in runs),
        "low": fmean(run["low"] for run in runs),
        "high": fmean(run["high"] for run in runs),
        "goal": runs[0]["goal"],
        "verdicts": dict(Counter(run["verdict"] for run in runs)),
    }


def _readability_summary(rows: Sequence[ReadabilityJSON]) -> ReadabilitySummaryJSON:
    read = [f["perplexity"] for f in rows if f["perplexity"] is not None]
    return {"perplexity": median(read) if read else None, "runs": len(read), **_reasons(rows)}


def _transfer_summary(rows: Sequence[RunTransferJSON]) -> TransferSummaryJSON:
    made = [(f, f["test"]) for f in rows if f["test"] is not None]
    tried = [(f, known) for f, test in made if (known := _mean_if_known(test)) and f["gain"].get("n", 1)]
    figures: TriedJSON = {}
    if tried:
        tests, gains, usages = zip(*((test, f["gain"], f["usage"]) for f, test in tried), strict=True)
        figures = {
            **_rows_in_means([f["test"] for f, _ in tried]),
            "test_low": fmean(test.low for test in tests),
            "test_high": fmean(test.high for test in tests),
            "gain_difference": fmean(gain["difference"] for gain in gains),
            "gain_low": fmean(gain["low"] for gain in gains),
            "gain_high": fmean(gain["high"] for gain in gains),
            "calls": fmean(sum(usage["calls"].values()) for usage in usages),
            "cost_usd": _mean_cost(usages),
            "price_unknown": roles_in(usages, "price_unknown"),
            "not_priced": roles_in(usages, "not_priced"),
        }
    return {
        "model": rows[0]["model"],
        "runs": len(tried),
        "unanswered": len(made) - len(tried),
        "test_mean": fmean(test.mean for _, test in tried) if tried else None,
        **_reasons(rows),
        **figures,
    }

"""Fresh rows for a finished run: baseline and best answer them too, and all of them together are tested again.

The rows come a batch at a time, and each batch is a look: so they are tested by the anytime-valid test, whose promise holds at
all looks together. All batches of a run are one opening. They have a journal of their own in the folder of the run, and the
limits of the run hold for them once more.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from whet.api.comparison import environment_for, found_candidate
from whet.engine.accounting import elapsed_row, estimate_warnings, usage
from whet.engine.assemble import Assembly, TransferModel
from whet.engine.budget import test_set_budget
from whet.engine.durable import DurableRun
from whet.engine.final_evaluation import failure_warnings
from whet.engine.forecast import forecast_evaluation, measured_usage
from whet.engine.journal import read_events
from whet.engine.openings import (
    Family,
    SealedComparison,
    SealedTestAccess,
    SealedTestLedger,
    row_hashes,
    run_id,
)
from whet.engine.options import Options
from whet.engine.pairs import (
    Answers,
    Side,
    decide_pairs_anytime,
    evaluate_pairs,
    example_clusters,
    summary,
    verdict_json,
)
from whet.engine.plan_json import PlanJSON
from whet.engine.progress import Progress
from whet.engine.result_json import MoreJSON, OptionalRunJSON, RunJSON
from whet.engine.run_folder import OpenRun, RunPlan, open_run
from whet.engine.second_opinion import Opinion, second_opinion
from whet.engine.served_models import served_warnings
from whet.engine.transfer import limits_left
from whet.engine.usage_sums import MORE as MORE
from whet.engine.usage_sums import with_part
from whet.environments.environment import watching_rollouts
from whet.errors import BudgetExceeded, UsageError, quantity
from whet.rewards import TARGET, Objectives, RewardFunction
from whet.run import Budget, convert_record
from whet.stats import Improvement
from whet.task import Task
from whet.task.dataset import take_test_rows
from whet.task.examples import PlacedExample, Rules, check_slots, input_hash, make_examples, shown_values
from whet.task.rows import read_rows
from whet.task.spec import SECOND, SPLITS
from whet.task.table import table_of
from whet.types import Example, Rollout, Usage, content_hash
from whet_client.prompt.document import MASK
from whet_client.version import __version__


def fresh_rows(task: Task, more: object) -> list[PlacedExample]:
    """The labelled rows of a file, a list, a data frame or a data set, none of which the task has.

    Raises UsageError with their place for rows that a task is refused for, for an input that stands in a split of the
    task, and for a group that does.
    """
    if task.cases:
        raise UsageError(
            f"{task.name} consists of several tasks or task models, and rows cannot be added to such "
            "a task. Add rows to the folders of its tasks, and begin a new run."
        )
    needy = [r.name for r in (task.reward, task.second_opinion) if r is not None and TARGET in r.needs]
    slots = {} if task.program is not None else dict.fromkeys(task.prompt.slots, "prompt")
    shown = shown_values(slots, task.labels) if task.program is None and task.world is None else None
    name = (*needy, task.reward.name)[0]
    rules = Rules(slots, task.labels, bool(needy), name, task.group, shown=shown)
    if isinstance(more, str | Path):
        rows = read_rows(Path(more), "more", frozenset(slots))
    else:
        rows = table_of(more, "more").rows(frozenset(slots) - ({MASK} if task.labels else set()))
    column = task.document.get("splits", {}).get("column")
    placed, _ = make_examples(take_test_rows(rows, rules.slots, column), rules, {})
    check_slots(placed, rules)
    known = [(split, e) for split in SPLITS for e in getattr(task, split)]
    inputs = {input_hash(e): split for split, e in known}
    groups = {e.group: split for split, e in known if e.group is not None}
    for p in placed:
        if (split := inputs.get(input_hash(p.example))) is not None:
            raise UsageError(
                f"{p.where}: this input is already in the {split} split of the task, so it adds no evidence. Remove the row."
            )
        if (split := groups.get(p.example.group)) is not None:
            raise UsageError(
                f'{p.where}: the group "{p.example.group}" is in the {split} split of the task, so '
                "this row is not independent of its rows. Remove the row."
            )
        if task.world is not None:
            task.world.check(p.example)
    return placed


ANYTIME = "anytime"


@dataclass(frozen=True)
class AddedRowsPlan:
    """Identity of the evaluation of added rows: the run that they are added to, and its two prompts."""

    plan: RunPlan
    run: str
    prompts: Sequence[str]

    @property
    def limits(self) -> Budget:
        """Those of the run, for all added rows together; time is not limited."""
        return replace(self.plan.limits, seconds=None)

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.plan.seed

    def header(self) -> dict[str, object]:
        """The identity as JSON."""
        known = self.plan.header()
        kept = ("task", "fingerprint", "seed", "models", "generation")
        return {
            "whet": __version__,
            "method": MORE,
            "of": self.run,
            "prompts": list(self.prompts),
            **{key: known[key] for key in kept},
        }


@dataclass(frozen=True)
class Batch:
    """Rows that were answered together, and the answers of baseline and best."""

    rows: Sequence[Example]
    answers: Answers
    times: int = 1

    @property
    def whole(self) -> bool:
        """Whether both prompts have an answer to every row."""
        return not self.missing

    @property
    def missing(self) -> list[int]:
        """The places of the rows to which an answer is missing."""
        pairs = zip(*self.answers, strict=True)
        return [i for i, pair in enumerate(pairs) if not all(r.answered for r in pair)]

    async def asked_again(self, run: DurableRun, sides: tuple[Side, Side]) -> Batch:
        """The batch with its missing answers asked for once more."""
        missing = self.missing
        fresh = await evaluate_pairs(run, sides, [self.rows[i] for i in missing])
        before, after = (
            [old if old.answered else new[missing.index(i)] for i, old in enumerate(side)]
            for side, new in zip(self.answers, fresh, strict=True)
        )
        return Batch(self.rows, (before, after), self.times + 1)

    def as_json(self) -> dict[str, Any]:
        """The journal's record of it."""
        baseline, best = ([asdict(r) for r in side] for side in self.answers)
        return {
            "rows": [asdict(row) for row in self.rows],
            "baseline": baseline,
            "best": best,
            "times": self.times,
        }

    @staticmethod
    def read(value: Mapping[str, Any]) -> Batch:
        """The inverse of `as_json`."""
        sides = [
            [Rollout(**{**r, "usage": Usage(**r["usage"])}) for r in value[name]]
            for name in ("baseline", "best")
        ]
        rows = [Example(**row) for row in value["rows"]]
        return Batch(rows, (sides[0], sides[1]), value.get("times", 1))


def _batches(journal: Path) -> list[Batch]:
    """The batches in a journal, each as it was when it was asked for last."""
    batches: dict[str, Batch] = {}
    for event in read_events(journal, [MORE]):
        batch = Batch.read(event.value)
        batches[_name(batch.rows)] = batch
    return list(batches.values())


def _failures(batches: Sequence[Batch]) -> list[str]:
    """The warnings about answers to added rows that are missing or failed."""
    answers = {
        name: [r for b in batches for r in b.answers[side]] for side, name in enumerate(("baseline", "best"))
    }
    return failure_warnings(answers, " on added rows")


def _due(rows: Sequence[Example], earlier: Sequence[Batch]) -> int:
    """Answers that are asked for: of both prompts to new rows, and those that rows added earlier lack."""
    return 2 * (len(rows) + sum(len(batch.missing) for batch in earlier))


def _name(rows: Sequence[Example]) -> str:
    return content_hash(sorted(row_hashes(rows)))[:16]


class AddedRows:
    """Adds rows to a run when it is finished. Raises UsageError for rows that the task has, before anything is paid."""

    other: TransferModel | None = None
    family: Family | None = None

    def __init__(self, task: Task, options: Options, progress: Progress) -> None:
        if isinstance(task.reward, Objectives):
            raise UsageError(
                f"{task.name} has objectives, but rows can be added only to a task with a single "
                "reward. Make a new run with all rows."
            )
        self._options, self._progress = options, progress
        self._rows = fresh_rows(task, options.more)

    async def measure(self, plan: RunPlan, assembly: Assembly, result: RunJSON) -> RunJSON:
        """The result with what all rows added so far say. Raises UsageError before anything is paid."""
        folder = Path(result["run"])
        if result["best"]["id"] == result["baseline"]["id"]:
            raise UsageError(
                f"{folder}: the best prompt of this run is its baseline, so more rows "
                "have nothing to compare."
            )
        journal = folder / MORE / "journal.sqlite"
        earlier = _batches(journal) if journal.is_file() else []
        ledger = SealedTestLedger(policy=plan.task.alpha_policy)
        rows = self._fresh(f"{run_id(folder)}-{MORE}", ledger, earlier)
        whole = all(batch.whole for batch in earlier)
        known = result["more"]["rows"] if "more" in result else None
        if not rows and whole and known == sum(len(b.rows) for b in earlier):
            return result
        if rows and result["improvement"]["promoted"]:
            raise UsageError(
                f"{folder}: the best prompt of this run is already promoted, so more rows are not needed."
            )
        candidate = found_candidate(plan.task, folder, result)
        env = environment_for(plan, assembly.env, folder, candidate)
        sides = (assembly.env, plan.task.prompt), (env, candidate.prompt)
        answers = _due(rows, earlier)
        foreseen = self._plan_answers(plan, assembly, answers, len(rows))
        self._progress.begin_part("added rows")
        self._progress.planned(foreseen)
        if self._options.dry_run:
            return {**result, "status": "planned", "plan": foreseen}
        identity = AddedRowsPlan(plan, run_id(folder), [prompt.id for _, prompt in sides])
        cache = assembly.cache(folder / MORE, self._options)
        opened = open_run(folder / MORE, identity, assembly.clients, cache, lambda name, value: None)
        with opened.closing():
            _refuse_unpayable(plan, sides, assembly, opened, earlier, rows)
            self._progress.core = opened.core
            self._progress.begin("added rows", answers)
            with watching_rollouts(self._progress.on_rollout):
                return await _test_new_rows(plan, sides, opened, ledger, earlier, rows, result)

    def _plan_answers(self, plan: RunPlan, assembly: Assembly, answers: int, rows: int) -> PlanJSON:
        """The plan of so many answers to added rows."""
        known = measured_usage(Path(self._options.root), plan.task.fingerprint, plan.addresses)
        examples = [p.example for p in self._rows[:1]] * answers
        foreseen = forecast_evaluation(
            plan.task, assembly.env, assembly.clients, plan.config, examples, known
        )
        return {**foreseen, "added": {"rows": rows, "answers": answers}}

    def _fresh(self, run: str, ledger: SealedTestLedger, earlier: Sequence[Batch]) -> list[Example]:
        """The rows that no batch has. Raises UsageError for one that another run opened or saw, or half of a batch has."""
        batched = [row for batch in earlier for row in batch.rows]
        hashes = set(row_hashes(batched))
        new = [
            p
            for p, one in zip(self._rows, row_hashes([p.example for p in self._rows]), strict=True)
            if one not in hashes
        ]
        inputs, groups = {input_hash(e) for e in batched}, {e.group for e in batched} - {None}
        for p in new:
            if input_hash(p.example) in inputs or p.example.group in groups:
                raise UsageError(
                    f"{p.where}: the input or the group of this row is in rows that were added "
                    "before, so the row is not independent of them. Remove the row."
                )
        seen = ledger.find_known_rows(run, [p.example for p in new])
        if seen:
            raise UsageError(
                f"{new[seen[0]].where}: an earlier run has tested or learned from this row, so the "
                f"row is not fresh. Remove the row ({len(seen)} of {len(new)} are not fresh)."
            )
        return [p.example for p in new]


def _refuse_unpayable(
    plan: RunPlan,
    sides: tuple[Side, Side],
    assembly: Assembly,
    opened: OpenRun,
    earlier: Sequence[Batch],
    rows: Sequence[Example],
) -> None:
    """Raise UsageError where the rows, and the answers that earlier ones lack, may take more than the limits leave."""
    lacking = [batch.rows[i] for batch in earlier for i in batch.missing]
    if not (lacking or rows):
        return
    task = replace(plan.task, test=(*lacking, *rows))
    need = [test_set_budget(task, env, plan.config, assembly.clients["task"]) for env, _ in sides]
    there = limits_left(opened.core.budget.limits, usage(opened.core))
    for name in ("calls", "task_calls", "judge_calls", "tokens", "cost_usd"):
        limit, most = getattr(there, name), sum(getattr(one, name) or 0 for one in need)
        if limit is not None and limit < most - 1e-12:
            subject = (
                f"{len(rows)} more rows"
                if rows
                else f"The missing answers to {quantity(len(lacking), 'row')}"
            )
            beside = f", with the missing answers to {len(lacking)} earlier ones," if rows and lacking else ""
            remedy = "Give fewer rows." if rows else "Begin a new run with a higher limit."
            raise UsageError(
                f"{subject}{beside} may take {most:g} {name.replace('_', ' ')}, and the limits of the run, which hold "
                f"once more for all added rows together, leave {limit:g}. {remedy}"
            )


async def _test_new_rows(
    plan: RunPlan,
    sides: tuple[Side, Side],
    opened: OpenRun,
    ledger: SealedTestLedger,
    earlier: Sequence[Batch],
    rows: Sequence[Example],
    result: RunJSON,
) -> RunJSON:
    """Answers to the new rows, and the verdict on all."""
    core, task = opened.core, plan.task
    times = sum(batch.times for batch in earlier)
    run = DurableRun(core, f"/{MORE}/{_name(rows)}" + ("" if rows else f"/{times}"), Budget())
    done = list(earlier)
    folder = core.journal.path.parent.parent
    comparison = SealedComparison(f"{run_id(folder)}-{MORE}", folder, rows)
    try:
        await asyncio.to_thread(ledger.reserve, comparison)
        for i, batch in enumerate(earlier):
            if not batch.whole:
                place = DurableRun(core, f"/{MORE}/{_name(batch.rows)}/again-{batch.times}", Budget())
                done[i] = await batch.asked_again(place.branch("pairs"), sides)
                place.branch("answers").log(MORE, done[i].as_json())
        if rows:
            batch = Batch(rows, await evaluate_pairs(run.branch("pairs"), sides, rows))
            run.branch("answers").log(MORE, batch.as_json())
            done.append(batch)
        opening = await _settle(run.branch("opening"), plan.task.alpha, ledger, comparison)
        opinion = await _verdict(run.branch("second"), plan, sides, done, opening)
        if opinion.verdict.withheld:
            await asyncio.to_thread(ledger.release, comparison)
        else:
            await asyncio.to_thread(ledger.record, comparison, opinion.verdict.promoted)
    finally:
        await core.caller.drain()
        await core.journal.commit([elapsed_row(core)])
    sealed = result["improvement"].get("sealed", result["improvement"])
    low, high = task.reward.low, task.reward.high
    baseline, best = ([r for b in done for r in b.answers[side]] for side in (0, 1))
    examples = [row for b in done for row in b.rows]
    added: MoreJSON = {
        "rows": len(baseline),
        "baseline": summary(baseline, low, high, examples),
        "best": summary(best, low, high, examples),
        "usage": usage(core),
    }
    outdated = set(_failures(earlier))
    verdict = verdict_json(opinion.verdict)
    verdict |= {"opening": opening.number, "test": ANYTIME, "rows": len(baseline), "sealed": sealed}
    figures: OptionalRunJSON = {}
    if opinion.figures is not None:
        figures["second_opinion"] = opinion.figures
    return {
        **result,
        "improvement": verdict,
        **figures,
        "more": added,
        "usage": with_part(result["usage"], MORE, usage(core)),
        "warnings": list(
            dict.fromkeys(
                [
                    *(known for known in result["warnings"] if known not in outdated),
                    *_failures(done),
                    *opening.warnings,
                    *opinion.warnings,
                    *served_warnings(core.budget.spent.served),
                    *estimate_warnings(core),
                ]
            )
        ),
    }


async def _settle(
    run: DurableRun, alpha: float, ledger: SealedTestLedger, comparison: SealedComparison
) -> SealedTestAccess:
    """The opening of all added rows of the run, with these rows in it."""

    async def opening() -> object:
        return asdict(await asyncio.to_thread(ledger.settle, comparison, alpha))

    return convert_record(await run.effect("opening", opening), SealedTestAccess)


async def _verdict(
    run: DurableRun,
    plan: RunPlan,
    sides: tuple[Side, Side],
    batches: Sequence[Batch],
    opening: SealedTestAccess,
) -> Opinion:
    """The anytime-valid test of all pairs, clusters as large as their rows, and the second opinion on a promotion by the same
    test, so that neither gains from being asked again."""
    task = plan.task
    rows = [row for batch in batches for row in batch.rows]
    born = [number for number, batch in enumerate(batches) for _ in batch.rows]
    clusters = example_clusters(sides, rows)
    first = {cluster: number for cluster, number in reversed(list(zip(clusters, born, strict=True)))}
    # what joins a unit that was tested before cannot change it
    kept = [i for i, cluster in enumerate(clusters) if first[cluster] == born[i]]
    sealed = Counter(example_clusters(sides, task.test))

    def decide(
        answers: Answers, reward: RewardFunction, clusters: Sequence[int], alpha: float
    ) -> Improvement:
        effect = task.minimum_effect if reward is task.reward else 0.0
        return decide_pairs_anytime(answers, reward, clusters, alpha, effect, max(sealed.values()))

    every = [[r for b in batches for r in b.answers[side]] for side in (0, 1)]
    answers = [every[0][i] for i in kept], [every[1][i] for i in kept]
    units = [clusters[i] for i in kept]
    verdict = decide(answers, task.reward, units, opening.alpha)
    judge = plan.addresses.get(SECOND)
    try:
        opinion = await second_opinion(
            run,
            task.second_opinion,
            judge,
            [rows[i] for i in kept],
            answers,
            verdict,
            opening.alpha,
            units,
            decide,
        )
    except BudgetExceeded as error:
        reason = f"Not promoted: the budget ended before the second opinion was complete. {error}"
        return Opinion(replace(verdict, promoted=False, reason=reason))
    if opinion.verdict.withheld:
        reason = (
            f"{opinion.verdict.reason} When the provider answers again, give the same rows again "
            "or add other rows."
        )
        return replace(opinion, verdict=replace(opinion.verdict, reason=reason))
    return opinion

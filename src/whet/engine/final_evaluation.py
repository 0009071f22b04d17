"""The end of every run: the sealed test of baseline and best, the gate's verdict, the result as JSON."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import cast

import orjson

from whet.engine.accounting import accounting_warnings, elapsed_row, usage
from whet.engine.cases import case_figures, row_weights
from whet.engine.copied_texts import copied_row_warnings, own_word_warnings
from whet.engine.diagnostics import (
    added_warnings,
    barren_warnings,
    beyond_tests_warnings,
    copy_warnings,
    cut_warnings,
    empty_result_warnings,
    end_of_method,
    label_warnings,
    optimizer_warnings,
    search_warnings,
    thought_warnings,
    timeout_warnings,
    unreadable_warnings,
    zero_warnings,
)
from whet.engine.durable import DurableRun, RunState
from whet.engine.evaluated_rows import write_evaluated_rows
from whet.engine.grading_warnings import grading_warnings
from whet.engine.journal import read_events
from whet.engine.judge_agreement import MOST, MeasuredAgreement, measure_agreement, scored_rows
from whet.engine.label_figures import label_figures
from whet.engine.ledger_store import LedgerUnavailable
from whet.engine.objectives import calibrate, needs_call_times, objective_figures
from whet.engine.openings import SealedComparison, SealedTestAccess, SealedTestLedger, run_id
from whet.engine.pairs import (
    answered_pairs,
    decide_jointly,
    decide_pairs,
    evaluate_pairs,
    evaluate_payable,
    evaluate_within,
    example_clusters,
    hold_no_text,
    summary,
    summary_of_pairs,
    summary_with_bounds,
    verdict_json,
)
from whet.engine.progress import Progress
from whet.engine.regrading import noise_warnings
from whet.engine.result_json import (
    EvaluationJSON,
    HistoryJSON,
    IdentityJSON,
    LabelsJSON,
    MeanJSON,
    OptionalEvaluationJSON,
    OptionalRunJSON,
    OptionalSideJSON,
    PromptJSON,
    RunJSON,
    SealedRowJSON,
    SealedRowsJSON,
    SideJSON,
)
from whet.engine.run_folder import OpenRun, RunPlan, read_result
from whet.engine.run_on import run_on_warnings
from whet.engine.second_opinion import Opinion, second_opinion
from whet.engine.trained_policy import open_policy
from whet.engine.trial import refuse_broken_reward, try_first, try_reward
from whet.engine.unvalidated import unvalidated_warnings
from whet.environments.environment import Environment, watching_rollouts
from whet.environments.program import trace_json
from whet.errors import BudgetExceeded
from whet.methods import OPTIMIZER
from whet.prompt import Prompt
from whet.rewards import RewardFunction
from whet.rewards.text import targets_of
from whet.run import Budget, convert_record, waiting_allowed
from whet.search.archive import Candidate, candidate_of
from whet.stats import STRICT, JointVerdict
from whet.task import Task
from whet.task.spec import SECOND
from whet.types import JSON, Example, Rollout, content_hash, is_refused_for_good, mean_score
from whet_client.prompt.document import AUTO

UNTESTED = "The best prompt is kept. To test it, run the same command again."
AGAIN = (
    "Run the same command again when the provider answers. It requests only the missing answers, "
    "and spends no further alpha."
)
_CHANGE = "The provider refused these requests for good; the warnings hold its words, and say what to do."
_REFUSED = (
    ". The provider refused these requests. If its words name the account (credit, a limit, access), put that right and run "
    "the same command again: it requests only the missing answers. If they name the requests, change the prompt, the rows or "
    "an option of the model, or take another model."
)
SEARCH_END = "/search_end/1"


@dataclass(frozen=True)
class Tested:
    """A prompt with its rollouts on validation and on the sealed test."""

    candidate: Candidate
    validation: Sequence[Rollout]
    test: Sequence[Rollout]

    def as_json(self, task: Task, low: float, high: float, pairs: Sequence[int]) -> SideJSON:
        """The prompt, and its two scores with their intervals on rows of `task`; of the test, that on `pairs`."""
        candidate = self.candidate
        made: OptionalSideJSON = {"operator": candidate.operator}
        if candidate.system is not None:
            made["system"] = candidate.system
        return {
            **written_prompt(candidate.prompt),
            "id": candidate.id,
            **made,
            "validation": summary(self.validation, low, high, task.validation),
            "test": summary_of_pairs(self.test, pairs, low, high, task.test),
        }


@dataclass(frozen=True)
class SearchResult:
    """The end of a search: its candidate, the limit that ended it (if any), its warnings, and the policy that it trained, where
    it is still in memory."""

    best: Candidate
    reason: str = ""
    warnings: Sequence[str] = ()
    policy: object = None


@dataclass(frozen=True)
class _SealedOutcome:
    """Both prompts after the sealed test, the opening that it was, the clusters of its rows, and the verdicts."""

    start: Tested
    best: Tested
    opening: SealedTestAccess
    clusters: Sequence[int]
    opinion: Opinion
    joint: JointVerdict | None


async def final_evaluation(
    plan: RunPlan,
    env: Environment,
    opened: OpenRun,
    baseline: list[Rollout],
    search: SearchResult,
    ledger: SealedTestLedger,
) -> RunJSON:
    """Compare baseline and best on the sealed test, let the gate decide, and return the result as JSON.

    `baseline` are the rollouts of the start prompt on validation. A run whose verdict was withheld asks again for what was
    missing. Without a ledger of openings nothing is compared, and the run is stopped where it is.
    """
    core, task = opened.core, plan.task
    final = DurableRun(core, "/final", Budget())
    withheld = [e for e in read_events(core.journal.path, ["final"]) if e.value.get("withheld")]
    again = f"-{len(withheld)}" if withheld else ""
    try:
        outcome = await _test_on_sealed_rows(plan, env, core, final, baseline, search, ledger, len(withheld))
    except LedgerUnavailable as error:
        result = result_of_stopped_run(plan, opened, "the ledger of openings, which cannot be written")
        reason = f"Not promoted: no verdict. {error} {UNTESTED}"
        return {**result, "improvement": {**result["improvement"], "withheld": True, "reason": reason}}
    start, best, opening = outcome.start, outcome.best, outcome.opening
    clusters, opinion = outcome.clusters, outcome.opinion
    low, high = env.reward.low, env.reward.high
    needed = OPTIMIZER in plan.method.entry.needs
    short = any(r.answered and r.reward < high for r in baseline)
    warnings = [
        *task.warnings,
        *search.warnings,
        *opinion.warnings,
        *_warnings(opened, env.reward, task.test, {"baseline": start.test, "best": best.test}),
        *opening.warnings,
        *zero_warnings(core),
        *search_warnings(core, low, high),
        *optimizer_warnings(core, best.candidate.prompt, search.reason, needed, short),
        *own_word_warnings(core, plan.method.coroutine, task, best.candidate.prompt),
        *copied_row_warnings(core, task, best.candidate.prompt),
        *_prompt_warnings(core, env, task, start, best, search.best.id),
    ]
    pairs = answered_pairs((start.test, best.test))
    rows = _sealed_rows(task, (start, best), (low, high), clusters, opinion.verdict.withheld)
    final.branch(f"report{again}").log("final", cast("JSON", rows))
    await core.journal.commit([elapsed_row(core)])
    figures: OptionalRunJSON = {} if opinion.figures is None else {"second_opinion": opinion.figures}
    return {
        **_identity(plan, core),
        "status": "budget_exhausted" if search.reason else "completed",
        "ended_by": search.reason or end_of_method(core, task.prompt.id, plan.config, needed, short),
        "tested": True,
        "baseline": start.as_json(task, low, high, pairs),
        "best": best.as_json(task, low, high, pairs),
        "improvement": {**verdict_json(opinion.verdict), "opening": opening.number},
        **figures,
        **case_figures(task, (start.test, best.test), env.reward, clusters, opening.alpha, plan.addresses),
        **_label_figures(task, start, best),
        **objective_figures(
            env.reward, core, _validated_candidates(start, best), outcome.joint, opinion.verdict.promoted
        ),
        "usage": usage(core),
        "history": _history(core),
        **opening.figures(),
        "warnings": warnings,
    }


async def _test_on_sealed_rows(
    plan: RunPlan,
    env: Environment,
    core: RunState,
    final: DurableRun,
    baseline: list[Rollout],
    search: SearchResult,
    ledger: SealedTestLedger,
    withheld: int,
) -> _SealedOutcome:
    """Reserve an opening of the sealed rows, let both prompts answer them, and let the gate and the second opinion decide.

    `withheld` counts the earlier sessions that ended without a verdict. Raises LedgerUnavailable, and BudgetExceeded.
    """
    task = plan.task
    again = f"-{withheld}" if withheld else ""
    held, reserve = core.budget.held, core.budget.test
    core.budget.release()
    folder = core.journal.path.parent
    comparison = SealedComparison(run_id(folder), folder, task.test, (*task.train, *task.validation))
    opening = SealedTestAccess(0, task.alpha, (), *ledger.count_learned_rows(comparison.run, task.test))
    if search.best.id != task.prompt.id:
        await asyncio.to_thread(ledger.reserve, comparison)
    other, validation = deployed_environment(plan, env, core, search), baseline
    if search.best.id != task.prompt.id:
        with core.budget.keep_test(held, reserve):
            branch = final.branch("validation")
            validation = await evaluate_payable(other, branch, search.best.prompt, env.validation)
    start = Tested(Candidate(task.prompt), baseline, ())
    best = Tested(search.best, validation, ())
    start, best = await _test(plan, (env, other), (start, best), final, withheld)
    core.caller.raise_if_unresponsive(only_refusals=not hold_no_text((*start.test, *best.test)))
    if best is not start:
        comparison = replace(
            comparison,
            digest=_digest(start, best),
            prompts=(*start.candidate.names, *best.candidate.names),
        )
        opening = await _settle(final.branch(f"opening{again}"), task.alpha, ledger, comparison)
    sides = (env, start.candidate.prompt), (env, best.candidate.prompt)
    clusters = example_clusters(sides, task.test)
    second = final.branch(f"second{again}")
    opinion, joint = await _verdict(second, plan, env, (start, best), clusters, opening)
    if opinion.verdict.withheld:
        await asyncio.to_thread(ledger.release, comparison)
    elif best is not start:
        await asyncio.to_thread(ledger.record, comparison, opinion.verdict.promoted)
    return _SealedOutcome(start, best, opening, clusters, opinion, joint)


def _prompt_warnings(
    core: RunState, env: Environment, task: Task, start: Tested, best: Tested, searched: str
) -> list[str]:
    """Warnings about the found prompt and its answers to the sealed rows; `searched` is the best prompt of the search."""
    prompt = best.candidate.prompt
    sides = {"baseline": start.test, **({} if best is start else {"best": best.test})}
    answers = [rollout for rollouts in sides.values() for rollout in rollouts]
    return [
        *copy_warnings(task, prompt),
        *added_warnings(task, prompt),
        *barren_warnings(core, start.candidate.id, searched),
        *unvalidated_warnings(core),
        *cut_warnings(answers, env.generation.max_tokens),
        *(run_on_warnings(prompt, best.test) or run_on_warnings(task.prompt, start.test)),
        *thought_warnings(answers),
        *label_warnings(sides, env.reward.low),
    ]


def _sealed_rows(
    task: Task,
    sides: tuple[Tested, Tested],
    ends: tuple[float, float],
    clusters: Sequence[int],
    withheld: bool,
) -> SealedRowsJSON:
    """The event `final`: the rows of the sealed test under both prompts; `ends` are those of the reward."""
    start, best = sides
    rows: SealedRowsJSON = {
        "baseline": [_row(r) for r in start.test],
        "best": [_row(r) for r in best.test],
        "examples": [_example(e) for e in task.test],
        "low": ends[0],
        "high": ends[1],
        "clusters": list(clusters),
        "withheld": withheld,
    }
    if weights := row_weights(task):
        rows["weights"] = weights
    return rows


def _label_figures(task: Task, start: Tested, best: Tested) -> LabelsJSON:
    """The part `labels` of result.json; empty for a task without labels."""
    sides = {
        name: label_figures(task, task.test, one.test) for name, one in (("baseline", start), ("best", best))
    }
    known = {name: figures for name, figures in sides.items() if figures is not None}
    return {"labels": known} if len(known) == len(sides) else {}


def _validated_candidates(*tested: Tested) -> list[tuple[Candidate, Sequence[Rollout]]]:
    return [(one.candidate, one.validation) for one in tested]


def _identity(plan: RunPlan, core: RunState) -> IdentityJSON:
    """The run and the models that answered."""
    return {
        "task": plan.task.name,
        "method": plan.method.entry.name,
        "seed": plan.seed,
        "models": dict(plan.addresses),
        "simulated": core.caller.simulated,
    }


async def _test(
    plan: RunPlan,
    environments: tuple[Environment, Environment],
    tested: tuple[Tested, Tested],
    final: DurableRun,
    again: int,
) -> tuple[Tested, Tested]:
    """Baseline and best with their rollouts on the sealed test; baseline alone where best is the same. Raises BudgetExceeded."""
    rows, (start, best), (env, other) = plan.task.test, tested, environments
    if best.candidate.id != start.candidate.id:
        sides = (env, start.candidate.prompt), (other, best.candidate.prompt)
        before, after = await evaluate_pairs(final.branch("pairs"), sides, rows, again)
        return replace(start, test=before), replace(best, test=after)
    test = await evaluate_within(env, final.branch("baseline"), start.candidate.prompt, rows, again)
    alone = replace(start, test=test)
    return alone, alone


async def _verdict(
    run: DurableRun,
    plan: RunPlan,
    env: Environment,
    tested: tuple[Tested, Tested],
    clusters: Sequence[int],
    opening: SealedTestAccess,
) -> tuple[Opinion, JointVerdict | None]:
    """The gate's verdict on the two tests, and for a promotion the verdict of the task's second opinion. For a task with
    objectives, the verdict on each."""
    before, after = tested
    answers, task, alpha = (before.test, after.test), plan.task, opening.alpha
    verdict = decide_pairs(answers, env.reward, clusters, alpha, before is after, task.minimum_effect)
    joint = decide_jointly(answers, env.reward, clusters, alpha)
    if joint is not None and before is not after:
        verdict = replace(verdict, promoted=joint.promoted, reason=joint.reason, withheld=joint.withheld)
        verdict = replace(verdict, more_examples=None)
    if opening.number and not verdict.withheld:
        verdict = replace(verdict, reason=f"{verdict.reason} {_looks(opening, task.alpha)}")
    judge = plan.addresses.get(SECOND)
    try:
        opinion = await second_opinion(
            run, task.second_opinion, judge, task.test, answers, verdict, alpha, clusters
        )
    except BudgetExceeded as error:
        reason = f"Not promoted: the budget ended before the second opinion was complete. {error}"
        opinion = Opinion(replace(verdict, promoted=False, reason=reason))
    if opinion.verdict.withheld:
        verdict = opinion.verdict
        missing = [r.error for r in (*before.test, *after.test) if not r.answered]
        what = _CHANGE if all(map(is_refused_for_good, missing)) else AGAIN
        opinion = replace(opinion, verdict=replace(verdict, reason=f"{verdict.reason} {what}"))
    return opinion, joint


def result_of_stopped_run(plan: RunPlan, opened: OpenRun, why: str) -> RunJSON:
    """The result of a run that an endpoint ended before the sealed test: what is known by now, None for what is not."""
    reason = "The run stopped before the sealed test. Run the same command again."
    return _without_test(plan, opened, ("stopped", why), reason)


def result_of_untested_run(plan: RunPlan, opened: OpenRun, error: BudgetExceeded) -> RunJSON:
    """The result of a run whose limits did not pay for the whole sealed test: its best prompt, which nothing has proved; or what
    an earlier session measured without a verdict, where they did not pay for what was missing."""
    earlier = read_result(opened.core.journal.path.parent)
    if earlier.get("tested") and earlier["improvement"].get("withheld"):
        more = f" To ask for what is missing, run the same command with a larger limit: {error}"
        known = str(earlier["improvement"]["reason"]).removesuffix(more)
        kept = {
            **earlier,
            "improvement": {**earlier["improvement"], "reason": known + more},
            "usage": usage(opened.core),
        }
        return cast("RunJSON", kept)
    reason = (
        f"Not promoted: not tested. {error} The best prompt so far is kept. Run the same command with "
        "a larger limit to continue from here; nothing is paid twice."
    )
    ended = "budget_exhausted", f"the limit of {error.limit.replace('_', ' ')}"
    return _without_test(plan, opened, ended, reason)


def _without_test(plan: RunPlan, opened: OpenRun, ended: tuple[str, str], reason: str) -> RunJSON:
    """`ended`: status, and what ended the run."""
    task, core = plan.task, opened.core
    validated = {e.value["id"]: e.value for e in read_events(core.journal.path, ["validated"])}
    best = next((v for v in reversed(validated.values()) if v["incumbent"]), None)
    if SEARCH_END in core.effects:
        best = orjson.loads(core.effects[SEARCH_END].value or b"{}")["best"]
    candidate = Candidate(task.prompt) if best is None else candidate_of(best)

    def side(prompt: Prompt, name: str) -> SideJSON:
        seen = validated.get(name)
        score: MeanJSON | None = None
        if seen:
            score = {"mean": seen["validation"], "low": None, "high": None, "n": seen["n"]}
        made: OptionalSideJSON = {}
        return {**written_prompt(prompt), "id": name, "validation": score, "test": None, **made}

    return {
        **_identity(plan, core),
        "status": ended[0],
        "ended_by": ended[1],
        "tested": False,
        "baseline": side(task.prompt, Candidate(task.prompt).id),
        "best": side(candidate.prompt, candidate.id),
        "improvement": {"difference": None, "low": None, "high": None, "promoted": False, "reason": reason},
        "usage": usage(core),
        "history": _history(core),
        "warnings": [*task.warnings, *accounting_warnings(opened)],
        **OptionalRunJSON(),
    }


def deployed_environment(
    plan: RunPlan, env: Environment, core: RunState, search: SearchResult
) -> Environment:
    """The environment in which the best candidate is used: with its trained weights where it needs them."""
    if search.best.system is None or plan.method.deploy is None:
        return env
    policy = search.policy
    if policy is None and plan.policy is not None:
        policy = open_policy(plan.policy, plan.config, plan.seed)
    made: Environment = plan.method.deploy(env, policy, core.blobs.read(search.best.system), plan.config)
    return made


def _digest(start: Tested, best: Tested) -> str:
    """The identity of one comparison of a run: the two prompts and their rewards."""
    sides = [[one.candidate.id, [[r.reward, r.error] for r in one.test]] for one in (start, best)]
    return content_hash(sides)


async def _settle(
    run: DurableRun, alpha: float, ledger: SealedTestLedger, comparison: SealedComparison
) -> SealedTestAccess:
    """The opening that the comparison is, once in the life of a run."""

    async def opening() -> object:
        return asdict(await asyncio.to_thread(ledger.settle, comparison, alpha))

    return convert_record(await run.effect("opening", opening), SealedTestAccess)


def _looks(opening: SealedTestAccess, alpha: float) -> str:
    """Say which opening of the rows a test was, and which promise its level keeps."""
    if opening.policy != STRICT:
        return (
            f"It is opening {opening.number} of these test rows under the alpha policy "
            f"{opening.policy}, so the prompt was tested at alpha {opening.alpha:.2g}: of all "
            f"promotions on these rows, a share of {alpha:g} may be false on average."
        )
    if opening.number == 1:
        return f"It is opening 1 of these rows, tested at alpha {opening.alpha:.2g} of {alpha:g} for all."
    return (
        f"It is opening {opening.number} of these test rows, so it was tested at alpha {opening.alpha:.2g} "
        f"({alpha:g} for all openings together); new rows start anew."
    )


def _history(core: RunState) -> list[HistoryJSON]:
    """Validation mean of each incumbent over `n` rows, with the calls that had been made by then."""
    events = read_events(core.journal.path, ["validated"])
    return [
        {"calls": e.calls, "validation": e.value["validation"], "n": e.value["n"]}
        for e in events
        if e.value["incumbent"]
    ]


def _warnings(
    opened: OpenRun,
    reward: RewardFunction,
    rows: Sequence[Example],
    evaluated: Mapping[str, Sequence[Rollout]],
) -> list[str]:
    """Warnings for a reader of the result."""
    reading = [
        warning
        for name, rollouts in evaluated.items()
        for warning in (
            *timeout_warnings(name, rollouts),
            *unreadable_warnings(name, rollouts),
            *beyond_tests_warnings(name, rollouts),
            *empty_result_warnings(name, rollouts),
        )
    ]
    reading += grading_warnings(reward, rows, evaluated)
    return [*failure_warnings(evaluated), *reading, *accounting_warnings(opened)]


def written_prompt(prompt: Prompt) -> PromptJSON:
    """A prompt as a result holds it: its source, and its messages where it is not one text."""
    if len(prompt.messages) == 1 and prompt.messages[0].role == AUTO:
        return {"prompt": prompt.source}
    return {"prompt": prompt.source, "messages": [m.as_list() for m in prompt.messages]}


def _example(example: Example) -> dict[str, str | None]:
    """A row of the sealed test as people read it: its input, and its target where it has one."""
    target = None if example.target is None else " | ".join(targets_of(example))
    return {"id": example.id, "input": example.user_text, "target": target}


def _row(r: Rollout) -> SealedRowJSON:
    row: SealedRowJSON = {
        "id": r.example_id,
        "output": r.output,
        "reward": r.reward,
        "parts": dict(r.parts),
        "critique": r.critique,
        "error": r.error,
    }
    if r.steps:
        row["steps"] = trace_json(r.steps)
    if r.thought:
        row["thought"] = r.thought
    return row


def failure_warnings(evaluated: Mapping[str, Sequence[Rollout]], place: str = "") -> list[str]:
    """Warnings about rollouts without an answer, and about those that failed and count as the lowest reward, of the prompts by
    their names; `place` says which rows they are of."""
    warnings = []
    for name, rollouts in evaluated.items():
        missing = [r for r in rollouts if not r.answered]
        if missing:
            words = str(missing[0].error)
            if all(is_refused_for_good(r.error) for r in missing):
                words = f"{words.rstrip('.')}{_REFUSED}"
            warnings.append(
                f"{len(missing)} of {len(rollouts)} rollouts of the {name} prompt{place} have no answer and count in no mean; "
                f"the first (row {missing[0].example_id}): {words}"
            )
        failed = [(r.example_id, r.error) for r in rollouts if r.error is not None and r.answered]
        if failed:
            kinds = Counter(error.partition(":")[0] for _, error in failed).most_common()
            row, first = next(one for one in failed if one[1].partition(":")[0] == kinds[0][0])
            each = f" ({', '.join(f'{n} {kind}' for kind, n in kinds)})" if len(kinds) > 1 else ""
            warnings.append(
                f"{len(failed)} of {len(rollouts)} rollouts of the {name} prompt{place} failed{each} and count as the lowest "
                f"reward; the first (row {row}): {first}"
            )
    return warnings


async def _measure_rows(
    plan: RunPlan,
    env: Environment,
    core: RunState,
    examples: Sequence[Example],
    progress: Progress,
    scored: int,
) -> tuple[Environment, list[Rollout], MeasuredAgreement]:
    """Answer and grade the rows with the plan's prompt: the environment with its calibrated model, the rollouts, and the
    agreement of the judge with people, with the warnings of the whole measurement."""
    task = plan.task
    async with core.draining():
        core.caller.share_recorded(needs_call_times(env.reward))
        run = DurableRun(core, "/evaluate", Budget())
        tried = await try_reward(run.branch("trial"), plan.task)
        for warning in tried:
            progress.warn(warning)
        if tried:
            await try_first(run.branch("first"), task, env, examples)
        before = core.incomplete_sessions
        with watching_rollouts(progress.on_rollout), waiting_allowed():
            rollouts = await evaluate_within(env, run, task.prompt, examples, before)
        if hold_no_text(rollouts):
            core.caller.raise_if_unresponsive()
        refuse_broken_reward(rollouts)
        core.note_unanswered(rollouts)
        env, rollouts = calibrate(replace(env, validation=tuple(examples)), rollouts)
        noise = await noise_warnings(run.branch(f"regrading{before or ''}"), env, rollouts, plan.limits)
        measured = await measure_agreement(
            run.branch("agreement"), env.reward, scored_rows(task, examples), scored
        )
    warnings = [*tried, *noise, *measured.warnings]
    return env, rollouts, replace(measured, warnings=warnings)


async def execute_evaluation(
    plan: RunPlan,
    env: Environment,
    opened: OpenRun,
    examples: Sequence[Example],
    split: str,
    ledger: SealedTestLedger,
    progress: Progress,
    scored: int = MOST,
) -> EvaluationJSON:
    """Evaluate the plan's prompt on the examples. Rows that got no answer in an earlier evaluation are asked again. A judge
    grades at most `scored` of the answers that people scored. A look at the test split is recorded; it is an opening if another
    prompt was measured on these rows before."""
    core, task = opened.core, plan.task
    progress.core = core
    progress.begin(f"{split} rows", len(examples))
    opening, uncounted = None, list[str]()
    if split == "test":
        try:
            opening = ledger.look(task.prompt.names, task.alpha, examples)
        except LedgerUnavailable as error:
            uncounted.append(f"This look at the test rows is not counted: {error}")
            progress.warn(uncounted[0])
    try:
        env, rollouts, measured = await _measure_rows(plan, env, core, examples, progress, scored)
    finally:
        core.journal.append([elapsed_row(core)])
    warnings = [
        *task.warnings,
        *uncounted,
        *measured.warnings,
        *_warnings(opened, env.reward, examples, {split: rollouts}),
    ]
    warnings += [
        *cut_warnings(rollouts, env.generation.max_tokens),
        *run_on_warnings(task.prompt, rollouts),
        *label_warnings({split: rollouts}, env.reward.low),
    ]
    if opening is not None:
        warnings.append(
            "Another prompt was already measured on these test rows, so this is a comparison: "
            f"opening {opening.number} of them."
        )
    result: EvaluationJSON = {
        "task": task.name,
        "method": "evaluate",
        "status": "completed",
        **written_prompt(task.prompt),
        "id": task.prompt.id,
        "split": split,
        "models": dict(plan.addresses),
        "simulated": core.caller.simulated,
        "score": summary_with_bounds(rollouts, env.reward.low, env.reward.high, examples),
        "parts": dict(mean_score(rollouts).parts),
        "failed": sum(r.error is not None for r in rollouts),
        "usage": usage(core),
        "warnings": warnings,
        **OptionalEvaluationJSON(),
    }
    if (by_label := label_figures(task, examples, rollouts)) is not None:
        result["labels"] = by_label
    if measured.figures:
        result["agreement"] = [*measured.figures]
    write_evaluated_rows(core.journal.path.parent, examples, rollouts)
    return result

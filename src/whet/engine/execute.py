"""The protocol around every method: baseline, search within the budget, sealed test, gate, which region earned the gain,
result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypedDict, cast

from whet.engine.accounting import elapsed_row
from whet.engine.budget import (
    BudgetPlan,
    describe_cut,
    fit_plan,
    held_from_search,
    row_calls,
    task_clients,
    warn_of_few_rows,
)
from whet.engine.calls import INTERRUPT_SECONDS
from whet.engine.diagnostics import cut_warnings, search_warnings
from whet.engine.durable import DurableRun, RunState, rows_used
from whet.engine.final_evaluation import (
    SEARCH_END,
    SearchResult,
    final_evaluation,
)
from whet.engine.journal import meta_row
from whet.engine.judge_agreement import MOST, measure_agreement
from whet.engine.near_duplicates import meaning_warnings, writing_warnings
from whet.engine.objectives import calibrate, needs_call_times
from whet.engine.observed import KNOWN_AFTER, SealedReserve
from whet.engine.openings import SealedTestLedger, run_id
from whet.engine.pairs import evaluate_within, hold_no_text
from whet.engine.perfect_start import is_perfect, promises_nothing
from whet.engine.progress import Progress, first_forecast, memory_forecast
from whet.engine.regrading import noise_warnings
from whet.engine.result_json import AblationOfRunJSON, RunJSON, describe_agreement
from whet.engine.run_folder import OpenRun, RunPlan, remember_task
from whet.engine.run_index import note_in_index
from whet.engine.run_on import run_on_warnings
from whet.engine.second_opinion import grade_again
from whet.engine.trained_policy import CHECKPOINT, open_policy
from whet.engine.trial import refuse_broken_reward, try_first, try_reward
from whet.engine.turns import planned_turns, search_in_turns, searchable
from whet.engine.unvalidated import UNVALIDATED, PartialRewards, choose_unvalidated
from whet.environments.environment import Environment, collecting_rollouts, watching_rollouts
from whet.environments.program import expecting
from whet.environments.shaping import shaped_for_search
from whet.errors import ALARM, BudgetExceeded, SearchStopped
from whet.models.language_model import AnswersOnly, LanguageModel
from whet.prompt import Prompt
from whet.rewards import JUDGE
from whet.rl.language import LanguagePolicy
from whet.run import Budget, convert_record, waiting_allowed
from whet.search.archive import INCUMBENTS, Candidate, candidate_of, describe_candidate
from whet.search.plan import least_rows
from whet.search.regions import changed_regions
from whet.task import Task
from whet.types import Message, Request, Rollout, mean_score
from whet_client.prompt.length import LengthLimit, estimated_tokens

BASELINE_SECONDS = "baseline_seconds"
"""The key under which the journal says how long the start prompt's rows took."""


async def execute(
    plan: RunPlan,
    env: Environment,
    opened: OpenRun,
    sizes: BudgetPlan,
    ledger: SealedTestLedger,
    progress: Progress,
) -> RunJSON:
    """Run the whole protocol on an open core and return the result as JSON.

    Raises ProviderError when an endpoint is dead (everything recorded stays; run again), StorageError when
    the disk is full, UsageError for a reward that fails on every answer.
    """
    progress.core = core = opened.core
    progress.trains = _name_trained(plan)
    remember_task(core.journal, plan.task.folder)
    core.budget.held, core.budget.kept = sizes.held, sizes.kept
    ticker = asyncio.create_task(_save_elapsed(core))
    policy = None
    try:
        _watch_training(plan, core)
        policy = None if SEARCH_END in core.effects else _policy(plan)
        if plan.policy is not None and policy is not None:
            progress.say(memory_forecast(policy.memory, plan.policy.processes))
            _say_time(plan, policy, core, progress)
        used = replace(env, validation=sizes.validation)

        async def run_protocol() -> RunJSON:
            async with core.draining():
                with watching_rollouts(progress.on_rollout):
                    return await _protocol(plan, used, opened, sizes, ledger, progress, policy)

        return await core.within_seconds(run_protocol(), sizes.kept.seconds or 0.0)
    finally:
        ticker.cancel()
        if plan.policy is not None and policy is not None:
            policy.close()
        core.journal.append([elapsed_row(core)])


def _say_time(plan: RunPlan, policy: Any, core: RunState, progress: Progress) -> None:
    """Before the first step of a run that has made none, say what its training takes."""
    from whet.rl.policy_model.step_time import foresee_step_seconds

    choice, steps = plan.policy, getattr(plan.config, "steps", None)
    if choice is None or not steps or core.training_seconds:
        return
    question = Message("user", f"{plan.task.prompt.text}\n{plan.task.train[0].user_text}")
    seconds = foresee_step_seconds(policy, plan.config, [question])
    if seconds is not None:
        price, tokens = choice.price_per_hour, plan.config.max_tokens
        progress.say(first_forecast(steps, seconds, choice.processes, price, tokens))


async def _protocol(
    plan: RunPlan,
    env: Environment,
    opened: OpenRun,
    sizes: BudgetPlan,
    ledger: SealedTestLedger,
    progress: Progress,
    policy: Any,
) -> RunJSON:
    """Baseline, search, ablation and the sealed test; the result as JSON."""
    core, root = opened.core, DurableRun(opened.core, "", Budget())
    core.caller.share_recorded(needs_call_times(env.reward))
    early = await _early_warnings(root, plan, env, core, ledger, progress)
    sizes = await _fit_plan(root.branch("first_calls"), plan, env, core, sizes, progress)
    env = replace(env, validation=sizes.validation)
    progress.begin("baseline", len(env.validation))
    before = time.monotonic()
    near = None if core.caller.simulated else asyncio.ensure_future(meaning_warnings(plan.task))
    with waiting_allowed():
        baseline = await env.evaluate(root.branch("baseline"), plan.task.prompt, env.validation)
    refuse_broken_reward(baseline)
    _foresee_test(plan, env, core, sizes)
    if hold_no_text(baseline):
        core.caller.raise_if_unresponsive()
    env, baseline = calibrate(env, baseline)
    deploys = plan.method.deploys(plan.config)
    core.budget.held = held_from_search(core.budget.held, sizes, env, plan.config, deploys)
    if env.recorded_by_content:
        env = replace(env, start_answers=len(baseline))
    await _try_second_opinion(root.branch("second"), plan, baseline)
    progress.on_baseline(baseline, len(plan.task.validation))
    await note_in_index(core.journal.path.parent, progress)
    warnings = [*early, *await _judge_agreement(root.branch("agreement"), plan, env, progress)]
    noise = await noise_warnings(root.branch("regrading"), env, baseline, plan.limits)
    after = _seconds_of_test(plan, env, core, time.monotonic() - before)
    for warning in (
        *cut_warnings(baseline, env.generation.max_tokens),
        *run_on_warnings(plan.task.prompt, baseline),
    ):
        progress.warn(warning)
    late = [*noise, *(() if near is None else await near)]
    for warning in late:
        progress.warn(warning)
    warnings += late
    with _kept_calls(core, sizes.ablation):
        reason, best = await _search(plan, env, opened, progress, policy, baseline, after)
    ablation = ablate(root.branch("ablation"), env, plan.task.prompt, best, sizes.ablation)
    try:
        parts = await core.within_seconds(ablation, (sizes.kept.seconds or 0.0) + after)
    except BudgetExceeded:
        parts = AblationOfRunJSON()
    same = best.id == Candidate(plan.task.prompt).id
    progress.begin("sealed test", len(plan.task.test) * (1 if same else 2))
    ended = SearchResult(best, reason, warnings, policy)
    with core.caller.reset_unresponsive(), waiting_allowed():
        result = await final_evaluation(plan, env, opened, baseline, ended, ledger)
    if "ablation" in parts:
        result["ablation"] = parts["ablation"]
    return result


async def _fit_plan(
    run: DurableRun, plan: RunPlan, env: Environment, core: RunState, sizes: BudgetPlan, progress: Progress
) -> BudgetPlan:
    """The plan by what the first calls of the baseline took, made one after the other, where tokens or dollars are limited.
    Raises UsageError for a limit that is too small for the sealed test."""
    if (plan.limits.tokens is None and plan.limits.cost_usd is None) or env.model.local:
        return sizes
    for row in sizes.validation[:KNOWN_AFTER]:
        await env.evaluate(run, plan.task.prompt, [row])
    rows = [(tokens, dollars) for tokens, dollars, _ in rows_used(core, run.path)]
    if not rows:
        return sizes
    fitted = fit_plan(plan.task, plan.limits, env, sizes, rows)
    core.budget.held = fitted.held
    count = len(fitted.validation)
    if count < len(sizes.validation):
        cut = describe_cut(count, len(plan.task.validation))
        for line in [f"By what the first calls took, {cut}.", *warn_of_few_rows(count, least_rows(env))]:
            progress.warn(line)
    return fitted


def _foresee_test(plan: RunPlan, env: Environment, core: RunState, sizes: BudgetPlan) -> None:
    """Keep for the sealed test what the same calls took on validation, and as much more as the search makes them dearer."""
    if plan.limits.tokens is None and plan.limits.cost_usd is None:
        return
    rows = rows_used(core, "/baseline")
    calls = sum(row[2] for row in rows)
    if not calls:
        return
    prompt, parts = plan.task.prompt, (plan.task.test, sizes.validation)
    lengths = [
        sum(len(m.content) for e in part for m in env.messages(prompt, e)) / len(part) for part in parts
    ]
    used = [(tokens, dollars) for tokens, dollars, _ in rows]
    each = sum(tokens for tokens, _ in used) / calls, sum(dollars for _, dollars in used) / calls
    client, longer = core.caller.client("task"), max(1.0, lengths[0] / lengths[1])
    requests = [
        Request(env.messages(prompt, e), max_tokens=env.generation.max_tokens) for e in plan.task.test
    ]
    clients = task_clients(core.caller.clients)
    longest = [client.worst_case("task", request)[0] for request in requests for client in clients]
    last = (max(float(call.tokens) for call in longest), max(call.cost for call in longest))
    core.budget.test = SealedReserve(len(plan.task.test), used, each, client.observed, longer, last)
    kept = sizes.kept
    core.budget.held = replace(core.budget.held, tokens=kept.tokens, cost_usd=kept.cost_usd)


async def _early_warnings(
    root: DurableRun,
    plan: RunPlan,
    env: Environment,
    core: RunState,
    ledger: SealedTestLedger,
    progress: Progress,
) -> list[str]:
    """Warnings for the user before anything is paid, beside the warnings of the task. Raises UsageError for a reward that
    cannot be used."""
    tried = await try_reward(root.branch("trial"), plan.task)
    if why := await asyncio.to_thread(ledger.check):
        progress.warn(why)
    moved = [] if why else await warn_split_leaks(root.branch("moved"), plan, core, ledger)
    alike = await asyncio.to_thread(writing_warnings, plan.task)
    for warning in (*plan.task.warnings, *alike, *moved, *tried):
        progress.warn(warning)
    if tried:
        await try_first(root.branch("first"), plan.task, env, env.validation)
    return [*alike, *moved, *tried]


async def warn_split_leaks(
    run: DurableRun, plan: RunPlan, core: RunState, ledger: SealedTestLedger
) -> list[str]:
    """Warnings about rows that were sealed and are not any more, or the other way round; the same at every resume."""
    await core.journal.commit()
    task = plan.task

    async def find_moved() -> object:
        name, seen = run_id(core.journal.path.parent), (*task.train, *task.validation)
        return await asyncio.to_thread(ledger.find_moved_rows, name, task.test, seen)

    return convert_record(await run.effect("moved_rows", find_moved), list[str])


class SearchEnd(TypedDict):
    """The end of the search: the limit that ended it (empty: none), and the best prompt (`describe`)."""

    reason: str
    best: Mapping[str, object]


async def _try_second_opinion(run: DurableRun, plan: RunPlan, baseline: list[Rollout]) -> None:
    """Raise UsageError when a program that is to give the second opinion fails on every answer: better now than at the end.

    A judge is not asked before the end."""
    second = plan.task.second_opinion
    if second is None or JUDGE in second.needs:
        return
    rows = {e.id: e for e in plan.task.validation}
    refuse_broken_reward(await grade_again(run, second, [(rows[r.example_id], r) for r in baseline]))


async def _judge_agreement(run: DurableRun, plan: RunPlan, env: Environment, progress: Progress) -> list[str]:
    """Warnings about judges that disagree with the people whose scores stand in the rows; the figures of the others are told.

    At most 50 answers a judge, and at most a tenth of what a limit on judge calls allows.
    """
    limit = plan.limits.judge_calls if plan.limits.calls is None else plan.limits.calls
    most = MOST if limit is None else min(MOST, limit // 10)
    measured = await measure_agreement(run, env.reward, (*plan.task.train, *plan.task.validation), most)
    for figures in measured.figures:
        progress.say(describe_agreement(figures))
    return [*measured.warnings]


async def _search(
    plan: RunPlan,
    env: Environment,
    opened: OpenRun,
    progress: Progress,
    policy: Any,
    baseline: list[Rollout],
    after: float,
) -> tuple[str, Candidate]:
    """Run the method, or take what a finished search recorded; the end of the search is an effect. `after`: the seconds that the
    sealed test will take."""
    core = opened.core
    root = DurableRun(core, "", Budget())
    ended, env = root.branch("search_end"), expecting(env, baseline)
    if SEARCH_END in core.effects:
        ending = convert_record(await ended.effect("search_end", _never, None), SearchEnd)
        return ending["reason"], candidate_of(ending["best"])
    perfect = await _is_perfect(core, plan, env, baseline)
    limits = await searchable(root.branch("limits"), core)
    progress.begin("search")
    incumbent: list[dict[str, object]] = [opened.incumbent] if opened.incumbent else []
    follow = core.on_event

    def on_event(name: str, value: Any) -> None:
        if name == "alarm":  # what was kept by training rows alone goes where validation rows say no
            incumbent[:] = [one for one in incumbent if one["id"] != value["id"]]
        if name in INCUMBENTS and value.get("incumbent"):
            incumbent[:] = [value, *incumbent[:1]]
            if core.budget.test is not None:
                core.budget.test.note_best()
        follow(name, value)

    core.on_event = on_event

    async def run_method(path: str, own: Budget, start: Prompt) -> tuple[str, Candidate | None]:
        return await _run_method(plan, env, DurableRun(core, path, own), start, after, policy)

    searched_once, known = False, PartialRewards.of(baseline)
    if perfect:
        reason, best = "", None
    elif order := planned_turns(plan, baseline):
        reason, best = await search_in_turns(plan, core, order, run_method, policy, incumbent)
    else:
        with collecting_rollouts(known.add):
            reason, best = await run_method("/search", limits, plan.task.prompt)
        searched_once = bool(reason)
    core.on_event = follow
    await core.caller.rest()
    fallback = incumbent[0] if incumbent else None
    only_start = fallback is None or fallback["id"] == plan.task.prompt.id
    if best is None and searched_once and only_start and plan.policy is None and not reason.startswith(ALARM):
        await core.journal.commit([elapsed_row(core)])
        if about := choose_unvalidated(core, plan.task.prompt.id, known, reason):
            fallback = about.pop("candidate")
            root.branch("unvalidated").log(UNVALIDATED, about)
    kept = best = best or (candidate_of(fallback) if fallback else Candidate(plan.task.prompt))
    if plan.policy is not None:
        if best.system is not None:
            policy.load(core.blobs.read(best.system))
        folder = core.journal.path.parent / CHECKPOINT
        await asyncio.to_thread(policy.export, folder, method=plan.method.entry.name)

    async def value() -> SearchEnd:
        return {"reason": reason, "best": describe_candidate(kept)}

    await ended.effect("search_end", value, None)
    return reason, best


def _name_trained(plan: RunPlan) -> str:
    """The policy that the method trains, and the model whose weights the training changes."""
    model = plan.addresses.get("policy")
    return plan.method.entry.trains + (f", {model}" if model else "")


async def _is_perfect(core: RunState, plan: RunPlan, env: Environment, baseline: list[Rollout]) -> bool:
    """Whether there is nothing to learn from; not where a limit strikes before all rows are answered."""
    if not promises_nothing(env, baseline):
        return False
    limits = await searchable(DurableRun(core, "/perfect/limits", Budget()), core)
    run, task = DurableRun(core, "/perfect", limits), plan.task
    try:
        return await is_perfect(run, env, task.prompt, task.validation, baseline)
    except BudgetExceeded:
        return False


async def _never() -> Any:
    raise AssertionError("recorded effects are not executed")


@contextmanager
def _kept_calls(core: RunState, calls: int) -> Iterator[None]:
    """Meanwhile so many calls of the task model more are out of reach."""
    held = core.budget.held
    more = {name: (getattr(held, name) or 0) + calls for name in ("calls", "task_calls")}
    core.budget.held = replace(held, **more)
    yield
    core.budget.held = held


def _watch_training(plan: RunPlan, core: RunState) -> None:
    """Price the training, that of the run before a resume included; and say when it must end, where its settings want that."""
    if plan.policy is not None:
        core.training_price = plan.policy.price_per_hour
        core.budget.spent.cost += core.training_seconds / 3600 * core.training_price
    if getattr(plan.config, "alarm", "warn") == "stop":
        low, high = plan.task.reward.low, plan.task.reward.high
        core.alarm = lambda: next(iter(search_warnings(core, low, high)), "")


def _policy(plan: RunPlan) -> Any:
    """The policy that the method gets: a model whose weights it trains, the optimizer model, or None."""
    if plan.policy is not None:
        return open_policy(plan.policy, plan.config, plan.seed, to_train=True)
    return LanguagePolicy() if "optimizer" in plan.addresses else None


def _seconds_of_test(plan: RunPlan, env: Environment, core: RunState, baseline: float) -> float:
    """Seconds that the validation of the best prompt and the sealed test will take at the pace of the start prompt's rows, which
    took so many now, or more in an earlier session. With a margin, and what calls that the search gives up may take to end."""
    seconds = max(baseline, float(core.journal.meta(BASELINE_SECONDS) or 0.0))
    core.journal.append([meta_row(BASELINE_SECONDS, f"{seconds:.3f}")])
    rows = 2 * len(plan.task.test) + len(env.validation)
    return 1.3 * seconds * rows / max(1, len(env.validation)) + INTERRUPT_SECONDS + 0.5


async def _run_method(
    plan: RunPlan, env: Environment, run: DurableRun, start: Prompt, after: float, policy: Any
) -> tuple[str, Candidate | None]:
    start = replace(start, limit=length_limit(plan.task, env.model))
    shaped = shaped_for_search(env, plan.task.shaping)
    method = plan.method.coroutine(run, shaped, policy, start, plan.config)
    try:
        return "", await run.within_seconds(method, after)
    except SearchStopped as error:
        return f"{ALARM}: {error}", None
    except BudgetExceeded as error:
        return f"the limit of {error.limit.replace('_', ' ')}", None


def length_limit(task: Task, model: LanguageModel) -> LengthLimit:
    """The longest prompt that a search may make for a task, in tokens of the task model if its tokenizer is known."""
    count = estimated_tokens if isinstance(model, AnswersOnly) else model.count_tokens
    return LengthLimit.of(task.prompt.text, task.longest, count)


async def _save_elapsed(core: RunState) -> None:
    while True:
        await asyncio.sleep(1.0)
        core.journal.append([elapsed_row(core)])


async def ablate(
    run: DurableRun, env: Environment, start: Prompt, best: Candidate, kept: int
) -> AblationOfRunJSON:
    """The entry `ablation` of result.json: the mean reward of the best prompt on validation, and without each changed region by
    name. It is empty where fewer than two regions changed, or where nothing was `kept` for it and the search left too little.
    The result is an effect."""
    changed = [] if best.system is not None else changed_regions(start, best.prompt)
    if len(changed) < 2:
        return {}

    async def mean(name: str, prompt: Prompt) -> float | None:
        rollouts = await evaluate_within(env, run.branch(name), prompt, env.validation)
        return None if not all(r.answered for r in rollouts) else mean_score(rollouts).mean

    async def compute() -> Any:
        each, left = row_calls(env, int(getattr(env, "calls", 1))), run.budget.searchable()
        rows = (1 + len(changed)) * len(env.validation)
        most = {name: getattr(left, name) for name in each}
        if not kept and any(n is not None and n < rows * each[name] for name, n in most.items()):
            return {}
        try:
            whole = await mean("whole", best.prompt)
            without = {
                name: await mean(f"without/{name}", best.prompt.restore(name, start)) for name in changed
            }
        except BudgetExceeded:
            return {}
        if whole is None or None in without.values():
            return {}
        earned = {
            name: {"validation": value, "gain": whole - value}
            for name, value in without.items()
            if value is not None
        }
        return {"ablation": {"whole": whole, "n": len(env.validation), "without": earned}}

    ablation = await run.branch("result").effect("ablation", compute)
    return cast("AblationOfRunJSON", ablation)

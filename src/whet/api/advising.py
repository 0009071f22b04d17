"""`whet.advise`: whether a search pays for a task, and the first steps, derived from the task without a paid call."""

from __future__ import annotations

import dataclasses
import json
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from whet._util.arguments import check_arguments, describe_keywords
from whet._util.blocking import blocking
from whet._util.fields import build_from
from whet.api.doctor import FROM_MODEL, grade_target_and_nonsense
from whet.api.keywords import ADVISE_GROUPS, AdviseKeywords
from whet.api.pay_back import (
    NO_WEIGHTS,
    decide_next_step,
    family_cost,
    family_of,
    is_too_slow,
    pay_back_of,
    possible_gain,
    say_too_slow,
    volume_of,
)
from whet.api.pilot import ROWS, pilot_options, run_pilot, start_mean
from whet.api.results import Advice
from whet.api.running import evaluate_task, optimize_task
from whet.api.study.grid import StudyOptions
from whet.engine.assemble import DEFAULT_MODEL, takes_default_model
from whet.engine.assemble import NONE as NO_MODEL
from whet.engine.comparison_json import (
    AdvisedPlanJSON,
    AdvisedRewardJSON,
    AdvisedStartJSON,
    AdvisedTestJSON,
    FamilyCostJSON,
    PayBackJSON,
    PilotJSON,
)
from whet.engine.openings import SealedTestAccess, SealedTestLedger, first_level
from whet.engine.options import Options
from whet.engine.plan_json import PlanJSON
from whet.engine.plan_text import say_default_model
from whet.engine.progress import Progress
from whet.engine.sealed_power import WORSE, describe_power, promotion_of
from whet.errors import UsageError, parameter, quantity, show_reward
from whet.methods import (
    LABEL_SCORES,
    LOCAL,
    METHODS,
    OBJECTIVES,
    OPTIMIZER,
    POLICY,
    POLICY_CALLS,
    POLICY_ROWS,
    REGIONS,
    carries_policy,
    default_method,
)
from whet.models.endpoint import join_urls, missing_keys_noted
from whet.models.language_model import LanguageModel
from whet.reporting import display_progress, place_of
from whet.rewards import JUDGE, Objectives, RewardFailed, RewardFunction
from whet.rewards.program import programs_of
from whet.rewards.verifiers import VERIFIERS
from whet.rewards.verifiers.math_equal import MathEqual
from whet.run import Budget
from whet.search.demonstrations import edits_several
from whet.stats import rows_for_gain
from whet.task import ModelSpec, Task, find_labels, task_of
from whet.task.keywords import TaskKeywords
from whet.task.roles import changed_spec, model_of, with_base_url

TRIED = 3
MEASURED = 50
"""The largest number of validation rows that a model in this process answers."""
WORTH = 0.1
"""The gain that a test should be able to show, as a share of the reward's range."""
OWN, ASKED, TARGET_SAID, NONE = "own", "a model's", "the target", "none"


@dataclasses.dataclass(frozen=True)
class _Facts:
    """The properties of a task that methods may need. `scores`: labels, and a model in this process that may score them;
    `trainable`: rows and limits carry the training of a policy; `default`: the method that is taken where none is named."""

    optimizer: bool
    scores: bool
    local: bool
    policy: bool
    critiques: bool
    program: bool
    objectives: bool
    regions: bool
    trainable: bool
    default: str


@check_arguments
@describe_keywords(*ADVISE_GROUPS, defaults=Options)
async def aadvise(
    task: Any,
    *,
    answers_per_month: float | None = None,
    gain_value: float | None = None,
    pilot: bool = False,
    pilot_rows: int = ROWS,
    **keywords: Unpack[AdviseKeywords],
) -> Advice:
    """Say whether a search may pay for a task, which methods fit, in order, and what to do first. Without a pilot, nothing is
    paid or written.

    `task`: a folder or a Task. A task model that is simulated or in this process answers at most 50 validation rows; other
    models are not called. The optimizer model and the judge are those of the planned run. `answers_per_month` and
    `gain_value` add the time after which a run has paid for itself; `gain_value` is the value in dollars of an additional
    right answer (its reward goes from the lowest to the highest). With `pilot`, a few prompts answer `pilot_rows` training
    rows (12 or more, drawn by `seed`), to measure whether wording matters. The pilot is paid, within `budget` (default: the
    task's limits), and announced before. The same call again pays for nothing twice. `dry_run` shows only the plan of the
    pilot.

    Raises UsageError, before anything is paid, for an unusable task, for a volume without a value, for a volume or a value that
    is not above 0, and for a pilot with too few rows or too small limits.
    """
    volume = volume_of(answers_per_month, gain_value)
    if not pilot:
        _refuse_limits(keywords)
    known = task_of(task, TaskKeywords())
    models = {name: keywords.get(name) for name in ("lm", "optimizer_lm", "judge_lm", "base_url")}
    options = build_from(Options, models)
    test, reward = _test(known), await _reward(known)
    plan, missing = await _plan(known, options)
    model = await _model(known, "task", options)
    start = None
    if missing is None and reward["problem"] is None:
        start = await _measure_start(known, options, model)
    tried, warnings = None, list(known.warnings)
    if pilot and (problem := _why_no_pilot(reward, test)):
        warnings.append(f"The pilot did not begin, and nothing was paid: {problem}.")
    elif pilot:
        with display_progress(keywords.get("progress"), place_of(task)) as display:
            study = build_from(StudyOptions, {**keywords, "optimizer_lm": None})
            tried = await run_pilot(known, pilot_options(study, pilot_rows), display)
        if start is None and "prompts" in tried:
            start = {**start_mean(tried), "split": "training", "simulated": tried["simulated"]}
        if tried["status"] == "completed":
            plan, missing = await _plan(known, options)  # by the tokens of the pilot
    facts = _facts(known, options, model, reward["critiques"])
    fitting, unfit = _methods(facts)
    named = _spec(known, "task", options).named
    most = possible_gain(reward, start)
    gain = most if tried is None else tried.get("gain", most)
    pay_back = None if volume is None else pay_back_of(volume, reward, test, plan, gain, most["high"])
    verdict, pays = _verdict(test, reward, start, pay_back)
    return Advice(
        {
            "task": known.name,
            "status": "completed",
            "pays": pays,
            "verdict": verdict,
            "decision": decide_next_step(test, reward, start, plan, fitting, pay_back, tried),
            "pay_back": pay_back,
            "pilot": tried,
            "families": await _families(known, options, fitting, plan, tried),
            "rows": {name: len(getattr(known, name)) for name in ("train", "validation", "test")},
            "test": test,
            "reward": reward,
            "model": None if model is None else model.address,
            "model_note": say_default_model(DEFAULT_MODEL) if takes_default_model(known, options) else None,
            "start": start,
            "plan": plan,
            "plan_missing": missing,
            "methods": fitting,
            "unfit": unfit,
            "first": _first(
                known, options, facts, model, named, test, reward, (plan, missing), start is not None
            ),
            "warnings": warnings,
        }
    )


def _refuse_limits(keywords: AdviseKeywords) -> None:
    """Raise UsageError for keywords that concern only the paid calls of a pilot."""
    if keywords.get("dry_run") or keywords.get("budget") not in (None, Budget()):
        what = parameter("dry_run" if keywords.get("dry_run") else "budget")
        raise UsageError(
            f"{what} applies only to paid calls, and only a pilot makes paid calls. Add "
            f"{parameter('pilot', True)}, or omit this option."
        )


def _why_no_pilot(reward: AdvisedRewardJSON, test: AdvisedTestJSON) -> str:
    """Why no pilot is paid for: what must be mended first; empty where nothing is."""
    if reward["problem"] is not None:
        return f"the reward cannot guide a search, because {reward['problem']}"
    return (
        "" if test["possible"] else f"the test needs {test['needed']} rows before any prompt can be promoted"
    )


def _test(task: Task) -> AdvisedTestJSON:
    """Independent rows of the sealed test, which opening of them a run would be, and the gain that this shows with a power of
    80%, in units of the reward, where no row gets worse and where one of twenty does."""
    ledger = SealedTestLedger(policy=task.alpha_policy)
    opening = ledger.foresee(None, task.alpha, task.test) or SealedTestAccess(1, first_level(task))
    promotion = promotion_of(task, opening)
    gain = {"none_worse": promotion.get("gain"), "some_worse": promotion.get("gain_some_worse")}
    width = task.reward.high - task.reward.low
    return {
        "rows": promotion["rows"],
        "opening": promotion["opening"],
        "alpha": promotion["alpha"],
        "needed": promotion["needed"],
        "possible": promotion["possible"],
        "gain": gain,
        "power": describe_power(promotion),
        "minimum_effect": task.minimum_effect,
        "rows_for_worth": rows_for_gain(WORTH, opening.alpha, WORSE),
        "worth": WORTH * width + task.minimum_effect,
    }


async def _reward(task: Task) -> AdvisedRewardJSON:
    """Range, labels and critiques of the reward, from what the targets and nonsense earn on a few rows."""
    reward, targets = task.reward, [e.target for e in task.train]
    facts: AdvisedRewardJSON = {
        "name": reward.name,
        "low": reward.low,
        "high": reward.high,
        "labels": list(task.labels),
        "label_like": [] if task.labels else find_labels(targets),
        "critiques": NONE,
        "problem": None,
    }
    if task.world is not None or reward.needs & FROM_MODEL:
        return facts
    if JUDGE in reward.needs:
        return {**facts, "critiques": ASKED}
    if isinstance(reward, Objectives) and not reward.parts:
        return facts
    try:
        pairs = grade_target_and_nonsense(reward, task.train[:TRIED])
    except RewardFailed as error:
        return {**facts, "problem": f"the reward fails: {error}"}
    if any(targets[:TRIED]) and all(right.value == wrong.value for right, wrong in pairs):
        facts["problem"] = "the reward is the same for the target and for nonsense"
    if any(wrong.critique for _, wrong in pairs):
        facts["critiques"] = OWN if _says_why(reward) or not any(targets[:TRIED]) else TARGET_SAID
    return facts


def _says_why(reward: RewardFunction) -> bool:
    """Whether the critique of the reward, or of one that it is made of, says more than what the right answer is: a function's own
    words, or what a verifier found. `math_equal` adds little to the target: a unit, or what cannot be read."""
    if programs_of(reward) or (reward.name in VERIFIERS and not isinstance(reward, MathEqual)):
        return True
    return any(_says_why(part) for _, part in getattr(reward, "parts", ()))


async def _plan(task: Task, options: Options) -> tuple[AdvisedPlanJSON | None, str | None]:
    """The plan of a run with nothing else said, and which method it is; or why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        own = dataclasses.replace(options, dry_run=True, run=f"{folder}/run")
        try:
            planned = await optimize_task(task, own, Progress(planned=lambda plan: None))
        except UsageError as error:
            return None, str(error)
    return {"method": planned["method"], **planned["plan"]}, None


async def _families(
    task: Task,
    options: Options,
    fitting: Sequence[Mapping[str, str]],
    plan: AdvisedPlanJSON | None,
    pilot: PilotJSON | None,
) -> list[FamilyCostJSON]:
    """The plan of this run, then the plan of the first fitting method of each other family, where it can be planned."""
    if plan is None:
        return []
    plans, first = [plan], {family_of(plan["method"]): plan["method"]}
    for row in fitting:
        if first.setdefault(family_of(row["name"]), row["name"]) == row["name"] != plan["method"]:
            other, _ = await _plan(task, dataclasses.replace(options, method=row["name"]))
            plans += [] if other is None else [other]
    paid = None if pilot is None else pilot.get("call_cost_usd")
    run = _command("optimize", task, options)
    return [family_cost(one, f"{run} --method {one['method']}", paid) for one in plans]


async def _model(task: Task, role: str, options: Options) -> LanguageModel | None:
    """The model of a role, to look at and not to ask; None where none is named, or where it cannot be had."""
    spec = _spec(task, role, options)
    if not spec.named and role == "task" and task.labels:
        spec = dataclasses.replace(spec, address=DEFAULT_MODEL)
    if not spec.named:
        return None
    try:
        with missing_keys_noted():
            model = model_of(spec, role)
    except UsageError:
        return None
    await model.close()
    return model


def _spec(task: Task, role: str, options: Options) -> ModelSpec:
    """The model of a role, as the task and the person who asks say it."""
    first = changed_spec(task.models["task"], options.lm, "task")
    if role == "task":
        return with_base_url(first, options.base_url, None)
    choice = {"optimizer": options.optimizer_lm, "judge": options.judge_lm}[role]
    spec = changed_spec(task.models[role], None if choice == NO_MODEL else choice, role)
    return with_base_url(spec, options.base_url, first)


async def _measure_start(
    task: Task, options: Options, model: LanguageModel | None
) -> AdvisedStartJSON | None:
    """The mean of the start prompt on some validation rows, by models whose calls cost nothing; None where one of them does."""
    models = [model]
    if JUDGE in task.reward.needs and _spec(task, "judge", options).named:
        models.append(await _model(task, "judge", options))
    if any(model is None or not (model.local or model.simulated) for model in models):
        return None
    few = dataclasses.replace(task, validation=task.validation[:MEASURED], budget=Budget())
    with tempfile.TemporaryDirectory() as folder:
        own = dataclasses.replace(options, root=folder)
        evaluation = await evaluate_task(
            few, "validation", own, Progress(planned=lambda plan: None), listed=False
        )
    return {**evaluation["score"], "split": "validation", "simulated": evaluation["simulated"]}


def _facts(task: Task, options: Options, model: LanguageModel | None, critiques: str) -> _Facts:
    single = task.world is None and task.program is None and not task.cases
    scores = bool(task.labels) and single and model is not None and model.can_score
    carried = carries_policy(len(task.train), task.budget.calls, task.budget.task_calls)
    return _Facts(
        trainable=carried,
        default=default_method(model, scores, carried),
        optimizer=options.optimizer_lm != NO_MODEL
        and (_spec(task, "optimizer", options).named or model is None or model.can_generate),
        scores=scores,
        local=single and model is not None and model.local,
        policy=task.models[POLICY].named,
        critiques=critiques in (OWN, ASKED),
        program=task.program is not None,
        objectives=isinstance(task.reward, Objectives),
        regions=edits_several(task.prompt, task.region),
    )


def _methods(facts: _Facts) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Methods that fit, the best first, each with what the task has for it (`why`) and what it is meant for (`when`); and the
    others with what they lack."""
    lacks = {name: _lacks(name, facts) for name in METHODS}
    fitting = sorted((name for name in METHODS if not lacks[name]), key=lambda name: _rank(name, facts))
    return (
        [{"name": name, "why": _reason(name, facts), "when": METHODS[name].when} for name in fitting],
        [{"name": name, "lacks": what} for name, what in lacks.items() if what],
    )


def _reason(name: str, facts: _Facts) -> str:
    """The features of the task that a method uses."""
    needs = METHODS[name].needs
    for need, words in (
        (OBJECTIVES, "the task has several objectives"),
        (REGIONS, "the task has several prompts or regions"),
        (POLICY, "a policy is named, and the rows and limits suffice for its training"),
        (LABEL_SCORES, "the task has labels, and its model scores them"),
        (LOCAL, "the task model runs in this process"),
    ):
        if need in needs:
            return words
    if name == facts.default:
        return "the default" + (", and the reward says what is wrong" if facts.critiques else "")
    return "needs only an optimizer model" if OPTIMIZER in needs else "needs no other model"


def _rank(name: str, facts: _Facts) -> tuple[int, int]:
    """The rank of a method that fits: methods that use more of what the task has come first."""
    needs = METHODS[name].needs
    if name == facts.default:
        return 0, 0
    if not facts.trainable and not METHODS[name].trains.startswith(NO_WEIGHTS):
        return 4, METHODS[name].rank
    own = (facts.scores and LABEL_SCORES in needs) or POLICY in needs or OBJECTIVES in needs
    return (1 if own else 3 if LOCAL in needs else 2), METHODS[name].rank


def _lacks(name: str, facts: _Facts) -> str:
    """The needs of a method that the task does not meet; empty if the method fits."""
    entry = METHODS[name]
    if facts.program and not entry.trains.startswith(NO_WEIGHTS):
        return "a task with a single prompt; this task has a program"
    for need, there, words in (
        (OBJECTIVES, facts.objectives, "`objectives:` (default: only the reward)"),
        (REGIONS, facts.regions, "several prompts or regions that one search may edit"),
        (OPTIMIZER, facts.optimizer, "an optimizer model (--optimizer-lm)"),
        (LABEL_SCORES, facts.scores, "`labels:` and a model in this process that scores them"),
        (LOCAL, facts.local, "a task model in this process (hf/..., embedded/...)"),
        (POLICY, facts.policy, "a model whose weights are trained (--policy; default: embedded/tiny)"),
        (
            POLICY,
            facts.trainable,
            f"{POLICY_ROWS} training rows and a limit of {POLICY_CALLS:,} calls or more, for weights to learn anything",
        ),
    ):
        if need in entry.needs and not there:
            return words
    return ""


def _verdict(
    test: AdvisedTestJSON,
    reward: AdvisedRewardJSON,
    start: AdvisedStartJSON | None,
    pay_back: PayBackJSON | None,
) -> tuple[str, bool | None]:
    """One sentence, and True, False or None (it depends on what was not measured)."""
    if reward["problem"] is not None:
        return (
            f"A search cannot pay yet, because the reward cannot guide the search: {reward['problem']}."
        ), False
    gain = test["gain"]["none_worse"]
    if not test["possible"]:
        return (
            f"A search cannot pay yet: with {quantity(test['rows'], 'independent test row')} no "
            f"prompt can be promoted. With {test['needed']} rows, a prompt that is better on every "
            "row can be promoted.",
            False,
        )
    if pay_back is not None and is_too_slow(pay_back):
        return f"A search will probably not pay: {say_too_slow(pay_back)}.", False
    scale = f"rewards go from {reward['low']:g} to {reward['high']:g}"
    if start is None or start["mean"] is None:
        if gain is None:
            return f"A search may pay, but the possible gain of the prompt is not measured ({scale}).", None
        return (
            f"A search may pay if the prompt can gain {show_reward(gain, 2)} or more ({scale}); the "
            "test rows cannot show a smaller gain.",
            None,
        )
    room = reward["high"] - start["mean"]
    mean, most = show_reward(start["mean"], 2), show_reward(room, 2)
    reached = (
        f"the start prompt reaches {mean} of {reward['high']:g}, so it can gain {most} at most ({scale})"
    )
    if gain is not None and room < gain:
        return (
            f"A search will probably not pay: {reached}, and the test rows cannot show a gain of that "
            f"size.{_rows_for(room, test, reward)}",
            False,
        )
    return f"A search may pay: {reached}.", True


def _rows_for(room: float, test: Mapping[str, Any], reward: Mapping[str, Any]) -> str:
    """Say how many test rows would show the whole gain that is left to the prompt; empty where no number of rows shows it."""
    share = (room - test["minimum_effect"]) / (reward["high"] - reward["low"])
    rows = rows_for_gain(share, test["alpha"]) if share > 0 else None
    return "" if rows is None else f" About {quantity(rows, 'independent test row')} would."


def _first(
    task: Task,
    options: Options,
    facts: _Facts,
    model: LanguageModel | None,
    named: bool,
    test: AdvisedTestJSON,
    reward: AdvisedRewardJSON,
    run: tuple[AdvisedPlanJSON | None, str | None],
    measured: bool,
) -> list[str]:
    """The steps to take before a run, the most useful first."""
    steps, (plan, missing) = [], run
    if reward["problem"] is not None:
        steps.append(f"Repair the reward: {_command('doctor', task, options)}")
    worth, rows, enough = test["worth"], test["rows"], test["rows_for_worth"]
    if test["opening"] > 1:
        steps.append(
            "Give fresh test rows. Earlier runs opened these rows, so a run would be opening "
            f"{test['opening']:,} and would test at alpha {test['alpha']:.2g}. Fresh rows begin again "
            "at opening 1."
        )
    if not test["possible"]:
        steps.append(
            f"Add at least {test['needed'] - rows} independent test rows, or give the test a larger share of the rows (`splits`)."
        )
    known = test["gain"]["none_worse"] is not None and worth <= reward["high"] - reward["low"]
    if known and enough is not None and rows < enough:
        steps.append(
            f"Add test rows: there are {rows} independent ones, and about {enough} would show a gain of {show_reward(worth, 2)} "
            "even if one row in twenty gets worse."
        )
    if not facts.critiques and facts.optimizer and task.world is None:
        steps.append(
            "Let the reward explain why an answer is wrong: return {'reward': ..., 'critique': "
            "'...'} in reward.py, or add a judge. Methods that read critiques need fewer calls."
        )
    if reward["label_like"]:
        names = ", ".join(reward["label_like"])
        steps.append(
            f"The targets look like labels. Add labels: [{names}] to task.yaml, so that each answer "
            "is read as a label."
        )
    if not facts.optimizer:
        steps.append("Name an optimizer model (--optimizer-lm openai/NAME), so that more methods fit.")
    if model is None and not named:
        missing = None
        steps.append("Name the task model: --lm provider/name, or `models: {task: ...}` in task.yaml.")
    problems = [] if plan is None else plan.get("missing_keys", [])
    steps += [f"Before a run: {problem}" for problem in (*problems, *filter(None, [missing]))]
    steps += [] if plan is None else _warn_of_unbounded_cost(plan)
    if not measured and (model is None or not (model.local or model.simulated)):
        steps.append(
            f"Measure the start prompt: {_command('evaluate', task, options)} ({quantity(len(task.validation), 'row')})."
        )
    return steps


def _command(name: str, task: Task, options: Options) -> str:
    """A command on the task with the task model that the caller names."""
    words = ["whet", name, str(task.folder)]
    model: dict[str, Any] = dict(options.lm) if isinstance(options.lm, Mapping) else {"address": options.lm}
    if isinstance(address := model.pop("address", None), str):
        words += ["--lm", address]
    if base_url := join_urls(model.pop("base_url", options.base_url)):
        words += ["--base-url", base_url]
    for key, value in model.items():
        words += ["--lm-option", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
    return shlex.join(words)


def _warn_of_unbounded_cost(plan: PlanJSON) -> list[str]:
    """The steps that are missing to bound the cost of a planned run."""
    steps = []
    if plan["output_limit"]:
        steps.append(
            "Limit the length of answers: models: {task: {max_tokens: "
            f"{plan['output_limit']['enough']}}}}} in task.yaml (more where the model thinks before it "
            "answers)."
        )
    if plan["price_unknown"]:
        steps.append(
            "State prices in task.yaml, so that --max-cost-usd can hold: models: {task: {price: {input: USD, output: USD}}}."
        )
    return steps


advise = blocking(aadvise)

__all__ = ["aadvise", "advise"]

"""The offline gate: it compares the current version and the candidate on the same examples of a task folder, with a journal.

The examples are those of the validation split: the learner never sees them, so that they are held out for it, and the sealed
test of the task stays sealed. Every attempt on one prompt spends a part of the error that is allowed altogether:
attempt k may be wrong with probability alpha / (k (k + 1)), which sums to alpha however many there are.

Rows of the task with `"guard": true` must never get worse, such as false claims that the model must not agree with. The gate
judges them a second time by themselves, so that no gain elsewhere makes up for a loss on them.

Whoever decides also sees probes: answers to a few fixed questions under both versions. With a task folder they are rows of its
validation split, guards first, whose answers the gate has paid for. Without one a model is asked about inputs of recent traffic,
one of each user, drawn by the id of the update so that nobody who sends traffic chooses them. The choice of these rows
never depends on the answers.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import orjson

from whet.engine.assemble import assemble
from whet.engine.durable import DurableRun
from whet.engine.objectives import needs_call_times
from whet.engine.pairs import decide_jointly, decide_pairs, evaluate_pairs, example_clusters
from whet.engine.run_folder import RunPlan, open_run
from whet.engine.second_opinion import second_opinion
from whet.engine.trial import refuse_broken_reward
from whet.environments.environment import Environment
from whet.errors import BudgetExceeded, UsageError, WhetError
from whet.feedback.model_session import learning_run
from whet.feedback.prompt_file import replace_file
from whet.methods import get_method
from whet.prompt import Prompt
from whet.run import Budget, Run
from whet.stats import Improvement
from whet.task import Task, load_task
from whet.task.spec import SECOND
from whet.types import Example, Request, Rollout, content_hash, mean_score
from whet_client.prompt.slots import text_of_value
from whet_live.learner.context import LearnerContext
from whet_live.learner.gate_config import METHOD, GateConfig
from whet_live.learner.learner_store import PromptUpdate
from whet_live.registry.proposals import PROBES
from whet_live.traffic import Filter, StoredInference
from whet_live.traffic.dataset import slot_values

ALPHA = 0.05
GUARD = "guard"
"""The key of a row of the task that may not get worse."""
WHOLE = "whole"
"""The key of the figures of all rows: `difference`, `low`, `wins`, `losses`, `n`; `guard` is the difference on guard rows."""
MOST_PROBES = 4
LONGEST_PROBE = 4_000
"""Characters that are kept of an input and of an answer."""
_SOUGHT = 200
_MORE = "The answers so far are kept; give the gate more calls (--max-gate-calls)."


async def gate(
    config: GateConfig, before: Prompt, after: Prompt, attempt: int, alpha: float | None = None
) -> dict[str, Any]:
    """The verdict on `after` against `before` as JSON: the result of `decide`, both means, the judge's address, the calls.

    The same call again is answered from the journal, and an interrupted one continues where it stopped. `attempt` counts
    from 1 and determines the share of the error that this verdict may spend, unless `alpha` does. Raises
    UsageError for a task that cannot be used, BudgetExceeded, ProviderError.
    """
    task = load_task(config.task)
    for prompt in (before, after):
        unknown = prompt.slots - task.prompt.slots - task.train[0].values.keys() - {"mask"}
        if unknown:
            raise UsageError(
                f"The task {task.name} fills no slot {{{{{min(unknown)}}}}} of the prompt. Give another task."
            )
    limits = Budget(calls=config.calls)
    assembly = assemble(task, config.options, limits)
    method = get_method(METHOD)
    how = {"gate": [before.id, after.id], **assembly.generation}
    plan = RunPlan(
        dataclasses.replace(task, prompt=after), method, method.config(), limits, 0, assembly.addresses, how
    )
    folder = config.root / f"gate-{task.name}-{content_hash(plan.header())[:12]}"
    try:
        opened = open_run(
            folder, plan, assembly.clients, assembly.cache(folder, config.options), lambda name, value: None
        )
        try:
            opened.core.caller.timed = needs_call_times(assembly.env.reward)
            run = DurableRun(opened.core, "/gate", limits)
            spent, second = alpha or ALPHA / (attempt * (attempt + 1)), assembly.addresses.get(SECOND)
            result = await _compare(run, task, assembly.env, (before, after), spent, second)
        finally:
            await opened.core.caller.drain()
            opened.core.caller.cache.close()
            opened.core.journal.close()
        simulated = any(client.model.simulated for client in assembly.clients.values())
        calls = opened.core.budget.spent.total_calls
        result |= {"run": str(folder), "simulated": simulated, "attempt": attempt, "calls": calls}
        result["judge"] = assembly.addresses.get("judge")
        model, of = assembly.addresses.get("task", ""), f"the task {task.name}"
        probes = {"model": model, "simulated": simulated, "of": of, "rows": result.pop(PROBES)}
        row = {"task": task.name, "method": "gate", "status": "completed", "improvement": result}
        await asyncio.to_thread(replace_file, folder / "result.json", orjson.dumps(row))
        return result | {PROBES: probes}
    except BudgetExceeded as error:
        raise BudgetExceeded(
            error.limit, f"The gate on the task {task.name} stopped. {error} {_MORE}"
        ) from None
    finally:
        await assembly.close()


async def _compare(
    run: DurableRun,
    task: Task,
    env: Environment,
    prompts: tuple[Prompt, Prompt],
    alpha: float,
    judge: str | None,
) -> dict[str, object]:
    """The verdict on both prompts over the validation rows, with the guard rows and the second opinion, and with probes."""
    examples = task.validation
    sides = (env, prompts[0]), (env, prompts[1])
    first, second = await evaluate_pairs(run.branch("pairs"), sides, examples)
    refuse_broken_reward(first)
    clusters = example_clusters(sides, examples)
    verdict = decide_pairs((first, second), env.reward, clusters, alpha, same=prompts[0].id == prompts[1].id)
    joint = decide_jointly((first, second), env.reward, clusters, alpha)
    if joint is not None and prompts[0].id != prompts[1].id:
        verdict = dataclasses.replace(verdict, promoted=joint.promoted, reason=joint.reason)
    guards = [i for i, example in enumerate(examples) if example.row.get(GUARD) is True]
    whole = {name: getattr(verdict, name) for name in ("difference", "low", "wins", "losses", "n")}
    if guards:
        halves = [first[i] for i in guards], [second[i] for i in guards]
        kept = decide_pairs(halves, env.reward, [clusters[i] for i in guards], alpha)
        verdict, whole = apply_guard(verdict, kept), {**whole, GUARD: kept.difference}
    branch, answers = run.branch("second"), (first, second)
    opinion = await second_opinion(
        branch, task.second_opinion, judge, examples, answers, verdict, alpha, clusters
    )
    return {
        **asdict(opinion.verdict),
        **({} if opinion.figures is None else {"second_opinion": opinion.figures}),
        "alpha": alpha,
        "task": task.name,
        "before": mean_score(first).mean,
        "after": mean_score(second).mean,
        "failed": sum(r.error is not None for r in (*first, *second)),
        WHOLE: whole,
        PROBES: probes_of_task(prompts, examples, (first, second), guards),
    }


def require_no_loss(verdict: Mapping[str, Any], tolerance: float) -> dict[str, Any]:
    """The verdict on a candidate that is not meant to be better but to lose nothing: it passes where it loses no more pairs than
    it wins, costs at most `tolerance` of the reward by the lower end of the interval, and is not worse on guard rows."""
    whole = verdict[WHOLE]
    passes = whole["low"] >= -tolerance and whole["losses"] <= whole["wins"] and whole.get(GUARD, 0.0) >= 0.0
    figures = f"{whole['wins']} better, {whole['losses']} worse of {whole['n']}, at worst {whole['low']:+.3f}"
    start = "Nothing is lost" if passes else "Something may be lost"
    worse = " It is worse on the guard rows." if whole.get(GUARD, 0.0) < 0.0 else ""
    reason = f"{start}: {figures}; {-tolerance:+.3f} is allowed.{worse}"
    return {**verdict, "promoted": passes, "reason": reason, "tolerance": tolerance}


def apply_guard(verdict: Improvement, kept: Improvement) -> Improvement:
    """The verdict on all examples, held to the one on the guard rows alone: nothing promotes a candidate whose mean on them
    is lower, and one that is shown to be worse on them is worse."""
    if kept.difference >= 0:
        return verdict
    reason = f"On the {kept.n} guard rows the candidate is worse: {kept.reason}"
    high = min(verdict.high, kept.high)
    return dataclasses.replace(
        verdict, promoted=False, low=min(verdict.low, kept.low), high=high, reason=reason
    )


# Probes


def probes_of_task(
    prompts: Sequence[Prompt],
    examples: Sequence[Example],
    answered: Sequence[Sequence[Rollout]],
    first: Collection[int],
) -> list[dict[str, object]]:
    """The answers of two prompts to the first `MOST_PROBES` examples, those at the places `first` before the others: for
    each its inputs, and the answers or errors `before` and `after`."""
    order = sorted(range(len(examples)), key=lambda place: (place not in first, place))[:MOST_PROBES]
    slots = frozenset[str]().union(*(prompt.slots for prompt in prompts))
    return [
        {
            "inputs": _inputs(examples[place].values, slots),
            "before": _answer(answered[0][place].output, answered[0][place].error),
            "after": _answer(answered[1][place].output, answered[1][place].error),
        }
        for place in order
    ]


async def probes_of_traffic(
    context: LearnerContext, update: PromptUpdate, before: Prompt, after: Prompt
) -> dict[str, object]:
    """The answers of the learner's model to recent inputs, at most 2 `MOST_PROBES` calls: `model`, `simulated`, `rows` (each
    `about` an answer, whose inputs stay where they are), and the `reason` if there are none."""
    address = context.config.lm
    if address is None:
        return _none("The learner has neither a task (--gate) nor a model (--lm) to answer with.")
    chosen = _recent(context, update, before.slots | after.slots)
    if not chosen:
        return _none(f"No recent input of {update.name} fills both texts.")
    identity = {
        "task": update.name.replace("/", "-").replace(" ", "_") + "-probes",
        "prompts": [before.id, after.id],
        "inputs": content_hash([row.inference.id for row in chosen]),
    }
    requests = [_request(prompt, row) for row in chosen for prompt in (before, after)]
    config = context.config
    try:
        async with learning_run(
            address, config.base_url, config.root, identity, 2 * len(requests)
        ) as session:
            answers = await session.run.map(_ask, requests)
            model = {"model": session.address, "simulated": session.simulated}
    except WhetError as error:
        return _none(f"The model did not answer: {error}")
    pairs = zip(chosen, answers[::2], answers[1::2], strict=True)
    rows = [{"about": row.inference.id, "before": old, "after": new} for row, old, new in pairs]
    return {**model, "of": "recent traffic", "rows": rows}


def _recent(context: LearnerContext, update: PromptUpdate, slots: frozenset[str]) -> list[StoredInference]:
    by_user: dict[str, StoredInference] = {}
    seen: set[str] = set()
    rows = context.traffic.inferences(Filter(prompt=update.name), _SOUGHT).rows
    for row in sorted(rows, key=lambda row: content_hash([update.id, row.inference.id])):
        one = row.inference
        texts = {name: text_of_value(value) for name, value in one.inputs.items()}
        key = content_hash(texts)
        if (
            slot_values(slots, texts) is not None
            and key not in seen
            and all(len(text) <= LONGEST_PROBE for text in texts.values())
        ):
            seen.add(key)
            by_user.setdefault(one.user or one.session or "", row)
    return list(by_user.values())[:MOST_PROBES]


def _request(prompt: Prompt, row: StoredInference) -> Request:
    values = {name: text_of_value(value) for name, value in row.inference.inputs.items()}
    return Request(prompt.render(Example(row.inference.id, slot_values(prompt.slots, values) or values)))


async def _ask(run: Run, request: Request) -> str:
    (answer,) = await run.generate("optimizer", request)
    return _answer(answer.text, answer.error)


def _inputs(values: Mapping[str, str], slots: frozenset[str]) -> dict[str, str]:
    return {
        name: text[:LONGEST_PROBE]
        for name, text in values.items()
        if not slots & values.keys() or name in slots
    }


def _answer(text: str, error: str | None) -> str:
    return text[:LONGEST_PROBE] if error is None else f"[{error}]"[:LONGEST_PROBE]


def _none(reason: str) -> dict[str, object]:
    return {"rows": [], "reason": reason}

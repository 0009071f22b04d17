"""The plan of a run, made before anything is paid: calls, tokens and dollars, and whether a promotion is possible.

`whet.engine.plan_text` says it in sentences.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from whet.engine.budget import (
    GROWTH_TOKENS,
    BudgetPlan,
    answer_calls,
    row_calls,
    task_cost,
)
from whet.engine.cases import describe_cases
from whet.engine.journal import read_journal_rows
from whet.engine.model_client import MESSAGE_OVERHEAD, UNBOUNDED_TOKENS, ModelClient
from whet.engine.openings import SealedTestAccess
from whet.engine.plan_json import (
    ENDS,
    CountRangeJSON,
    DollarRangeJSON,
    FirstCallJSON,
    OutputLimitJSON,
    PlanJSON,
    SearchSizeJSON,
)
from whet.engine.run_folder import newest_journals
from whet.engine.sealed_power import promotion_of
from whet.environments.environment import Environment
from whet.errors import StorageError, UsageError
from whet.models.batch_jobs import offers_batches
from whet.models.callable import FUNCTION
from whet.models.prices import Price
from whet.rewards.asking import ASKED_TWICE
from whet.rewards.choose import why_no_labels
from whet.rewards.human_score import HumanScore
from whet.rewards.text import targets_of
from whet.rl.language import LanguagePolicy
from whet.run import Budget
from whet.search.plan import least_rows
from whet.task import Task
from whet.types import Example, Request, Usage
from whet_client.media import TOKENS, count_marks

N = TypeVar("N", int, float)

_SAMPLE = 50
_WRITER_SHARE = 0.2
_ANSWER, _LABEL = 200, 8
_SHORT = 200  # bytes of a target up to which an answer without a limit is worth a word
_LEAST_LIMIT = 16
_ANSWERED = "SELECT role, COUNT(*), SUM(input_tokens), SUM(output_tokens) FROM calls WHERE state = 'answered' GROUP BY role"
_MORE_READ = {"judge": Usage(500, _ANSWER), "optimizer": Usage(2000, 500)}
_MOST_MORE = {"judge": Usage(2000, UNBOUNDED_TOKENS), "optimizer": Usage(16000, UNBOUNDED_TOKENS)}


def price_unknown(clients: Mapping[str, ModelClient]) -> list[str]:
    """The roles whose calls may cost something that nobody has said."""
    return [
        role
        for role, client in clients.items()
        if client.price is None and not (client.model.local or client.model.simulated)
    ]


def forecast(
    task: Task,
    env: Environment,
    config: Any,
    clients: Mapping[str, ModelClient],
    limits: Budget,
    sizes: BudgetPlan,
    default: bool,
    measured: Mapping[str, Usage] = MappingProxyType({}),
    opening: SealedTestAccess | None = None,
    batches: bool = False,
) -> PlanJSON:
    """The plan of a run as JSON. `default`: the limit on calls is the default one. `measured`: tokens of a call by role, as
    earlier runs of the task took them. `opening`: that of the test rows which the run would be. `batches`: baseline and sealed
    test are made in batches.

    A search is expected to use what it may; without any limit (models in this process) nothing is expected of it. How often a
    method asks the optimizer depends on what it meets, and no number is expected; tokens and dollars are about those of a run
    that uses all its calls, a fifth of them for the optimizer.
    """
    each = row_calls(env, answer_calls(env, config))
    rows = 2 * len(task.test) + len(sizes.validation)
    shares = {"task": float(each["task_calls"])}
    shares |= {"judge": float(each["judge_calls"])} if each["judge_calls"] else {}
    fixed = {role: int(rows * share) for role, share in shares.items()}
    total = sum(shares.values())
    writes = _WRITER_SHARE if "optimizer" in clients else 0.0
    shares = {role: share / total * (1 - writes) for role, share in shares.items()}
    if writes:
        shares["optimizer"], fixed["optimizer"] = writes, 0
    about, worst = _usage_each(task, env, clients, measured)
    count = _count(limits, shares, about, clients)
    calls = {role: _calls(role, limits, fixed, shares[role], count) for role in shares}
    if "optimizer" in calls:
        calls["optimizer"]["most"] = _least(calls["optimizer"]["most"], _most_asks(task, config))
    unpaid = _unpaid_first_call(clients, limits, fixed, about)
    if unpaid:
        calls = {role: {**ends, "expected": fixed[role]} for role, ends in calls.items()}
    batched = {role: n for role, n in fixed.items() if n} if batches else {}
    plan = _plan(task, env, clients, limits, calls, (about, worst), default, batched)
    addresses = {role: client.model.address for role, client in clients.items()}
    if task.cases:
        plan |= {"aggregate": task.aggregate, "cases": describe_cases(task, addresses)}
    plan["promotion"] = promotion_of(task, opening)
    if unpaid:
        plan["first_call"] = unpaid
    plan["tokens_measured"] = _are_known(calls, clients, measured)
    if (size := _search_size(task, config, limits, each["task_calls"])) is not None:
        plan["search"] = size
    plan["validation"] = {
        "rows": len(sizes.validation),
        "of": len(task.validation),
        "least": least_rows(env),
    }
    if not task.labels and task.reward.name == "exact_match" and task.world is None:
        rows_of_task = (*task.train, *task.validation, *task.test)
        if why := why_no_labels([row.target for row in rows_of_task]):
            plan["no_labels"] = why
    if len(task.prompt.regions) > 1:
        plan["ablation"] = sizes.ablation
    return plan


def _search_size(task: Task, config: Any, limits: Budget, each: int) -> SearchSizeJSON | None:
    """Steps, prompts of a step, rows of a prompt and task calls of a search that no limit on calls bounds; None for a method
    whose config has no `prompts_per_step`."""
    prompts = getattr(config, "prompts_per_step", None)
    if prompts is None or limits.calls is not None or limits.task_calls is not None:
        return None
    rows = min(len(task.train), config.examples or len(task.train))
    calls = config.steps * prompts * rows * each
    return {"steps": config.steps, "prompts": prompts, "rows": rows, "calls": calls}


def _most_asks(task: Task, config: Any) -> int | None:
    """Calls of the optimizer that a method makes at most, replies that are asked for again included; None for a method whose
    config has no `questions_at_most`. A method runs once for each region."""
    questions = getattr(config, "questions_at_most", None)
    return None if questions is None else questions * LanguagePolicy().attempts * len(task.prompt.regions)


def _unpaid_first_call(
    clients: Mapping[str, ModelClient], limits: Budget, fixed: Mapping[str, int], about: Mapping[str, Usage]
) -> FirstCallJSON | None:
    """The limit on dollars or tokens that leaves less beside baseline and sealed test than a first call of the optimizer must
    have free, of which nothing is known: what it leaves, and what the call `takes`. None where none does."""
    client = clients.get("optimizer")
    if client is None or client.model.local:
        return None
    written = (client.bound or LanguagePolicy().max_tokens) + client.room
    first = Usage(about["optimizer"].input_tokens, written)
    tokens = sum(n * (about[role].input_tokens + about[role].output_tokens) for role, n in fixed.items())
    dollars = sum(n * task_cost(clients, role, about[role]) for role, n in fixed.items())
    for name, limit, used, takes in (
        ("cost_usd", limits.cost_usd, dollars, client.cost(first)),
        ("tokens", limits.tokens, tokens, first.input_tokens + first.output_tokens),
    ):
        if limit is not None and limit - used < takes:
            return {"limit": name, "left": max(0, limit - used), "takes": takes, "bound": written}
    return None


def forecast_evaluation(
    task: Task,
    env: Environment,
    clients: Mapping[str, ModelClient],
    config: Any,
    rows: Sequence[Example],
    measured: Mapping[str, Usage] = MappingProxyType({}),
    batches: bool = False,
    agreement: int = 0,
) -> PlanJSON:
    """The plan of an evaluation on some rows: as many calls as they take, and at most one more for each reply of a judge, which
    is asked again where that cannot be read. `measured` is that of `forecast`; `batches`: the calls are made in batches;
    `agreement`: the judge calls on answers that people scored."""
    each = row_calls(env, answer_calls(env, config))
    numbers = {"task": len(rows) * each["task_calls"], "judge": len(rows) * each["judge_calls"] + agreement}
    most = {"judge": ASKED_TWICE}
    calls: dict[str, CountRangeJSON] = {
        role: {"expected": n, "most": most.get(role, 1) * n} for role, n in numbers.items() if n
    }
    each_usage = _usage_each(task, env, clients, measured)
    batched = {role: n for role, n in numbers.items() if n} if batches else {}
    plan = _plan(task, env, clients, Budget(), calls, each_usage, False, batched)
    plan["tokens_measured"] = _are_known(calls, clients, measured)
    del plan["limits"], plan["default_limit"]
    return plan


def _plan(
    task: Task,
    env: Environment,
    clients: Mapping[str, ModelClient],
    limits: Budget,
    calls: Mapping[str, CountRangeJSON],
    usages: tuple[Mapping[str, Usage], Mapping[str, Usage]],
    default: bool,
    batched: Mapping[str, int],
) -> PlanJSON:
    """The plan; `batched` are the calls by role that are made in batches."""
    shares = {role: _batch_share(clients, role) for role in batched}
    unknown = [role for role in price_unknown(clients) if (clients[role].counts_as or role) in calls]
    tokens: CountRangeJSON = {"expected": None, "most": None}
    cost: DollarRangeJSON = {"expected": None, "most": None}
    for end, each in zip(ENDS, usages, strict=True):
        known = {role: n for role, ends in calls.items() if (n := ends[end]) is not None}
        whole = None if len(known) < len(calls) else known
        used = {r: Usage(each[r].input_tokens * n, each[r].output_tokens * n) for r, n in known.items()}
        tokens[end] = None if whole is None else sum(u.input_tokens + u.output_tokens for u in used.values())
        dollars = sum(task_cost(clients, role, u, at_most=end == "most") for role, u in used.items())
        if end == "expected":
            for role in batched.keys() & known.keys():
                count = min(batched[role], known[role])
                saved = Usage(each[role].input_tokens * count, each[role].output_tokens * count)
                dollars -= (1 - shares[role]) * task_cost(clients, role, saved)
        cost[end] = None if whole is None or unknown else round(dollars, 6)
    tokens["most"] = _least(tokens["most"], limits.tokens)
    cost["most"] = cost["most"] if unknown else _least(cost["most"], limits.cost_usd)
    # what is expected of all calls may be more than a limit on tokens or dollars lets happen
    if tokens["expected"] is not None:
        tokens["expected"] = _least(tokens["expected"], tokens["most"])
    if cost["expected"] is not None:
        cost["expected"] = _least(cost["expected"], cost["most"])
    more: PlanJSON = {}
    if batched:
        more["batch"] = {"calls": sum(batched.values()), "share": max(shares.values())}
    return {
        **more,
        "calls": {
            role: {"expected": None if role == "optimizer" else ends["expected"], "most": ends["most"]}
            for role, ends in calls.items()
        },
        "tokens": tokens,
        "cost_usd": cost,
        "price_unknown": {role: clients[role].model.address for role in unknown},
        "limits": {name: limit for name, limit in limits.as_json().items() if limit is not None},
        "default_limit": default,
        "output_limit": _output_limit(task, env, clients["task"]),
        "tokens_by_characters": any(clients[role].model.address.startswith(FUNCTION) for role in calls),
        "tokens_counted": limits.tokens is not None or not all(clients[role].model.local for role in calls),
    }


def _batch_share(clients: Mapping[str, ModelClient], role: str) -> float:
    """The share of its price that a call of a role costs in a batch; 1 where it is in none."""
    client = clients[role]
    if not offers_batches(client.model):
        return 1.0
    return Price(0.0, 0.0).batch if client.price is None else client.price.batch


def _are_known(
    calls: Mapping[str, object], clients: Mapping[str, ModelClient], measured: Mapping[str, Usage]
) -> bool:
    """Whether the tokens of all these roles were measured, or are counted by the model's own tokenizer."""
    return all(role in measured or clients[role].model.local for role in calls)


def total_plan(plans: Sequence[PlanJSON]) -> PlanJSON:
    """The plan of several runs together. An end of a range is None where a run has none."""
    roles = dict.fromkeys(role for plan in plans for role in plan["calls"])
    calls = {
        role: total_count([plan["calls"][role] for plan in plans if role in plan["calls"]]) for role in roles
    }
    limits = [plan["limits"].get("calls") for plan in plans]
    batches = [plan["batch"] for plan in plans if "batch" in plan]
    total = plans[0] | {
        "runs": len(plans),
        "methods": list(dict.fromkeys(name for plan in plans for name in plan.get("methods", ()))),
        "models": {role: address for plan in plans for role, address in plan.get("models", {}).items()},
        "calls": calls,
        "all_calls": _sum([None if limit is None else int(limit) for limit in limits]),
        "tokens": total_count([plan["tokens"] for plan in plans]),
        "cost_usd": total_dollars([plan["cost_usd"] for plan in plans]),
        "price_unknown": {role: name for plan in plans for role, name in plan["price_unknown"].items()},
        "tokens_measured": all(plan.get("tokens_measured", False) for plan in plans),
        "tokens_by_characters": any(plan.get("tokens_by_characters", False) for plan in plans),
        "tokens_counted": any(plan.get("tokens_counted", True) for plan in plans),
        "default_limit": any(plan["default_limit"] for plan in plans),
        "default_policy": any(plan.get("default_policy", False) for plan in plans),
        "validation": min((plan["validation"] for plan in plans), key=lambda rows: rows["rows"]),
    }
    if batches:
        total["batch"] = {
            "calls": sum(batch["calls"] for batch in batches),
            "share": max(batch["share"] for batch in batches),
        }
    return total


def total_count(ranges: Sequence[CountRangeJSON]) -> CountRangeJSON:
    """Several ranges together; an end is None where one of them has none."""
    expected = _sum([ends["expected"] for ends in ranges])
    return {"expected": expected, "most": _sum([ends["most"] for ends in ranges])}


def total_dollars(ranges: Sequence[DollarRangeJSON]) -> DollarRangeJSON:
    """Several ranges of US dollars together; an end is None where one of them has none."""
    expected = _sum([ends["expected"] for ends in ranges])
    return {"expected": expected, "most": _sum([ends["most"] for ends in ranges])}


def _sum(values: Sequence[N | None]) -> N | None:
    """The sum, None where one of them is not known."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _count(
    limits: Budget,
    shares: Mapping[str, float],
    about: Mapping[str, Usage],
    clients: Mapping[str, ModelClient],
) -> float | None:
    """Calls of all roles that the limits pay for; None without a limit that says."""
    tokens = sum(share * (about[r].input_tokens + about[r].output_tokens) for r, share in shares.items())
    dollars = sum(share * task_cost(clients, role, about[role]) for role, share in shares.items())
    bounds = [
        (limits.calls, 1.0),
        (limits.task_calls, shares["task"]),
        (limits.judge_calls, shares.get("judge", 0.0)),
        (limits.tokens, tokens),
        (limits.cost_usd, dollars),
    ]
    return min((limit / each for limit, each in bounds if limit is not None and each), default=None)


def _calls(
    role: str, limits: Budget, fixed: Mapping[str, int], share: float, count: float | None
) -> CountRangeJSON:
    """Calls of a role, expected and at most. Baseline and sealed test are `fixed`."""
    others = sum(n for name, n in fixed.items() if name != role)
    own = getattr(limits, f"{role}_calls")
    most = _least(None if limits.calls is None else limits.calls - others, own)
    expected = None if count is None else _least(max(fixed[role], math.floor(count * share)), most)
    return {"expected": expected, "most": most}


def _output_limit(task: Task, env: Environment, client: ModelClient) -> OutputLimitJSON | None:
    """The bytes of the longest target and a limit that would do, where answers have none and targets are short. Turns of an
    episode and steps of a program may be longer than what is graded."""
    several = task.world is not None or task.program is not None
    targets = [t for e in task.train if e.target is not None for t in targets_of(e)]
    longest = max((len(text.encode("utf-8", "replace")) for text in targets), default=_SHORT + 1)
    free = client.model.local or client.model.simulated or env.generation.max_tokens is not None
    if free or several or longest > _SHORT or isinstance(task.reward, HumanScore):
        return None
    return {"longest_target": longest, "enough": max(_LEAST_LIMIT, 2 * longest)}


def _least(*limits: N | None) -> N | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _usage_each(
    task: Task, env: Environment, clients: Mapping[str, ModelClient], measured: Mapping[str, Usage]
) -> tuple[dict[str, Usage], dict[str, Usage]]:
    """Tokens of one call of each role, about and at most, from the first rows; other roles read what the task model read. What
    was `measured` is what is expected."""
    model, bound = clients["task"].model, env.generation.max_tokens
    requests = [Request(env.messages(task.prompt, e), max_tokens=bound) for e in task.train[:_SAMPLE]]
    read = [
        sum(
            model.count_tokens(m.content) + MESSAGE_OVERHEAD + TOKENS * count_marks(m.content)
            for m in r.messages
        )
        for r in requests
    ]
    written = min(_LABEL if task.labels else _ANSWER, bound or _ANSWER)
    about = {"task": Usage(round(sum(read) / len(read)), written)}
    worst = {"task": Usage(max(read) + GROWTH_TOKENS, bound or UNBOUNDED_TOKENS)}
    for role in ("judge", "optimizer"):
        about[role] = Usage(about["task"].input_tokens, 0) + _MORE_READ[role]
        worst[role] = Usage(worst["task"].input_tokens + worst["task"].output_tokens, 0) + _MOST_MORE[role]
    return about | {role: usage for role, usage in measured.items() if role in about}, worst


def measured_usage(root: Path, fingerprint: str, addresses: Mapping[str, str]) -> dict[str, Usage]:
    """Tokens of one answered call of each role, as the newest runs of the same task and model below `root` took them."""
    sums: dict[str, list[int]] = {}
    for path, header in newest_journals(root, fingerprint):
        try:
            rows = read_journal_rows(path, _ANSWERED)
        except (UsageError, StorageError, OSError):
            continue
        models = header.get("models", {})
        for role, *counts in rows:
            if role in addresses and models.get(role) == addresses[role]:
                before = sums.setdefault(role, [0, 0, 0])
                sums[role] = [a + int(b) for a, b in zip(before, counts, strict=True)]
    return {
        role: Usage(round(read / n), round(written / n))
        for role, (n, read, written) in sums.items()
        if n and read
    }

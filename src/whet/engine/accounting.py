"""The usage of a run in its result: calls, tokens, dollars and seconds, and which of these are estimates."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from whet.engine.durable import RunState
from whet.engine.forecast import price_unknown
from whet.engine.journal import meta_row
from whet.engine.result_json import OptionalUsageJSON, UsageJSON
from whet.engine.run_folder import OpenRun
from whet.engine.served_models import served_warnings
from whet.engine.usage_sums import describe_estimates, describe_provider_tools
from whet.errors import quantity
from whet.models.callable import FUNCTION


def _time(seconds: float) -> str:
    """A time in seconds since 1970 as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def usage(core: RunState) -> UsageJSON:
    """Calls by role, tokens, US dollars (None: a price is not known) and seconds of a run over all its sessions. `refused`: the
    attempts that an endpoint turned away, which are no calls; `estimated`: calls whose tokens it did not report;
    `provider_tools`: calls of a provider's own tools, which the dollars do not hold; `not_priced`: the roles whose models run in
    this process or are scripted, and have no price."""
    spent, clients = core.budget.spent, core.caller.clients
    unpriced = [role for role, client in clients.items() if client.price is None]
    roles = {role: clients[role].counts_as or role for role in unpriced}
    billed = [role for role, own in roles.items() if spent.calls[own] - spent.cached[own] > spent.named[own]]
    priceless = price_unknown(clients)
    unknown = [role for role in billed if role in priceless]
    known: OptionalUsageJSON = {"cached": dict(spent.cached)}
    if spent.cached_oldest is not None:
        known["cached_oldest"] = _time(spent.cached_oldest)
    known["refused"] = dict(spent.refused)
    if spent.estimated:
        known["estimated"] = dict(spent.estimated)
    if spent.provider_tools:
        known["provider_tools"] = dict(spent.provider_tools)
    if spent.gateway_cached:
        known["gateway_cached"] = dict(spent.gateway_cached)
    more: OptionalUsageJSON = {}
    if unknown:
        more["price_unknown"] = unknown
    if free := [role for role in billed if role not in priceless]:
        more["not_priced"] = free
    if core.training_seconds:
        more["training_seconds"] = round(core.training_seconds, 2)
    return {
        "calls": {role: spent.calls[role] - spent.cached[role] for role in spent.calls},
        **known,
        "input_tokens": spent.input_tokens,
        "output_tokens": spent.output_tokens,
        "cached_input_tokens": spent.cached_input_tokens,
        "reasoning_tokens": spent.reasoning_tokens,
        "cost_usd": None if unknown else round(spent.cost, 6),
        "seconds": round(core.budget.seconds, 2),
        **more,
    }


def elapsed_row(core: RunState) -> tuple[str, tuple[Any, ...]]:
    """The statement that saves the run's wall time over all its sessions."""
    return meta_row("elapsed", f"{core.budget.seconds:.3f}")


def accounting_warnings(opened: OpenRun) -> list[str]:
    """The calls, tokens and dollars that are estimates: calls whose answers were lost in kills, and tokens that nobody
    reported."""
    warnings = []
    if opened.lost_calls:
        most = f", at most ${opened.lost_cost:.4f}" if opened.lost_cost else ""
        warnings.append(
            f"{opened.lost_calls} call(s) were in flight when earlier sessions were killed "
            f"and may have been billed twice{most}."
        )
    cache = opened.core.caller.cache.problem
    shared = (
        [f"Answers could not be shared with the team, so the models were called again: {cache}"]
        if cache
        else []
    )
    served = served_warnings(opened.core.budget.spent.served)
    return [*warnings, *shared, *served, *_gateway_warnings(opened.core), *estimate_warnings(opened.core)]


def _gateway_warnings(core: RunState) -> list[str]:
    """A warning for each role with calls that a gateway's cache answered, and its consequence if answers are drawn."""
    spent, warnings = core.budget.spent, list[str]()
    for role, calls in spent.gateway_cached.items():
        made = spent.calls[role] - spent.cached[role]
        text = f"{calls:,} of {quantity(made, 'call')} of the role {role} were answered by a gateway's cache: nothing was billed."
        if drawn := spent.gateway_drawn.get(role, 0):
            text += (
                f" At a temperature above 0, such an answer is not a new sample ({drawn:,} of them): "
                "the same request gets the same answer, so there are fewer samples and repetitions "
                "than it seems. Switch that cache off for this run."
            )
        warnings.append(text)
    return warnings


def estimate_warnings(core: RunState) -> list[str]:
    """The warning that tokens and dollars are estimates where a model did not report its usage, or where its provider ran its
    own tools, which no price covers. For a function, which seldom reports usage, it is given only where a limit or a price uses
    the counts."""
    clients, spent = core.caller.clients, core.budget.spent
    own = {client.counts_as or role: client.model.address for role, client in clients.items()}
    used = core.budget.limits.tokens is not None or spent.cost > 0
    shown = {r: n for r, n in spent.estimated.items() if used or not own.get(r, r).startswith(FUNCTION)}
    tools = describe_provider_tools(own, spent.provider_tools) if spent.cost > 0 else []
    return [*describe_estimates(own, shown), *tools]

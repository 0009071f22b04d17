"""The usage of several runs together, and the share of each run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

from whet.engine.result_json import CallsJSON, RunJSON, UsageJSON
from whet.errors import quantity
from whet.models.callable import FUNCTION

_Counts = Literal["estimated", "provider_tools"]
ROLES: tuple[Literal["price_unknown", "not_priced"], ...] = ("price_unknown", "not_priced")
"""The fields of a usage that name roles."""
RUN, CONTROL, MORE = "run", "control", "more"
"""The parts of the usage of a result: the run itself, its control, and rows that were added to it."""
PARTS = {CONTROL: "the control", MORE: "the added rows"}
"""The names of the parts beside the run."""


def total_usage(*usages: UsageJSON) -> UsageJSON:
    """The usage of several runs together. Dollars are None if those of one run are unknown."""
    roles_of = {name: known for name in ROLES if (known := roles_in(usages, name))}
    all_fields: Sequence[Mapping[str, Any]] = usages
    names = dict.fromkeys(name for usage in usages for name in usage if name not in (*ROLES, "parts"))
    whole: dict[str, object] = {}
    for name in names:
        values = [field[name] for field in all_fields if name in field]
        if isinstance(values[0], Mapping):
            roles = dict.fromkeys(role for value in values for role in value)
            whole[name] = {role: sum(value.get(role, 0) for value in values) for role in roles}
        elif None in values:
            whole[name] = None
        elif isinstance(values[0], str):  # times in ISO 8601, of which the oldest counts
            whole[name] = min(values)
        else:
            whole[name] = round(sum(values), 6)
    return cast("UsageJSON", whole | roles_of)


def roles_in(
    usages: Sequence[UsageJSON | CallsJSON], name: Literal["price_unknown", "not_priced"]
) -> list[str]:
    """The roles that any of these usages names: those whose price nobody has said, or whose model has none."""
    return list(dict.fromkeys(role for usage in usages for role in usage.get(name, ())))


def has_no_price(usage: Mapping[str, Any]) -> bool:
    """Whether the dollars of a usage are 0 because its models run in this process, or are scripted, and have no price."""
    return bool(usage.get("not_priced")) and not usage.get("cost_usd") and not usage.get("price_unknown")


def parts_of(usage: UsageJSON) -> dict[str, UsageJSON]:
    """The usage of each part of a result by name."""
    parts = usage.get("parts")
    return dict(parts) if isinstance(parts, Mapping) else {RUN: usage}


def with_part(usage: UsageJSON, name: str, part: UsageJSON) -> UsageJSON:
    """The usage of a result with another part in the sum, or with a part as it is now."""
    parts = {**parts_of(usage), name: part}
    return {**total_usage(*parts.values()), "parts": parts}


def usage_of_run(usage: UsageJSON) -> UsageJSON:
    """The usage of the run itself, without its control and without rows that were added later."""
    return parts_of(usage).get(RUN, usage)


def usage_without_control(usage: UsageJSON) -> UsageJSON:
    """The usage of a run and its added rows, without its control, which is a separate run."""
    parts = parts_of(usage)
    return usage if CONTROL not in parts else total_usage(*(p for n, p in parts.items() if n != CONTROL))


def describe_estimates(addresses: Mapping[str, str], estimated: Mapping[str, int]) -> list[str]:
    """For each role how many of its calls said nothing of their tokens, and what was counted instead."""
    return [
        f"{(address := addresses.get(role, role))} reported no plausible usage for "
        f"{quantity(calls, 'call')} of the role {role}. {_COUNTED[address.startswith(FUNCTION)]}"
        for role, calls in estimated.items()
    ]


_COUNTED = {
    False: "For these calls, each byte counts as one token, and an unreadable answer counts with its "
    "maximum. The tokens and dollars of this run are therefore estimates, and mostly too high.",
    True: "For these calls, a quarter of the characters counts as tokens, so the tokens and dollars "
    "of this run are estimates. Let the function return the usage with the text.",
}


def describe_provider_tools(addresses: Mapping[str, str], calls: Mapping[str, int]) -> list[str]:
    """For each role how many calls of its provider's own tools the dollars do not hold."""
    return [
        f"{addresses.get(role, role)} reported {quantity(number, 'call')} of the provider's own tools, such as web searches, for "
        f"the role {role}. Most providers bill such calls apart from tokens, and `price` has no rate for them. Add their price "
        "to `cost_usd`; a limit on dollars does not count them."
        for role, number in calls.items()
    ]


_DESCRIPTIONS: tuple[tuple[_Counts, Callable[[Mapping[str, str], Mapping[str, int]], list[str]]], ...] = (
    ("estimated", describe_estimates),
    ("provider_tools", describe_provider_tools),
)


def estimates_of_both(result: RunJSON, control: RunJSON, usage: UsageJSON) -> list[str]:
    """The warnings of a run with its control: that tokens are estimates, or dollars lack tools, is said once, with the calls of
    both."""
    models, warnings = result["models"], list(result["warnings"])
    for name, describe in _DESCRIPTIONS:
        roles = set()
        for one in (result, control):
            for role, calls in usage_of_run(one["usage"]).get(name, {}).items():
                (own,) = describe(models, {role: calls})
                roles |= {role} if own in one["warnings"] else set()
                warnings = [text for text in warnings if text != own]
        warnings += describe(models, {r: n for r, n in usage.get(name, {}).items() if r in roles})
    return warnings

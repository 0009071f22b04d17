"""The usage that the body of an answer reports: tokens by their many names, dollars, and estimates of missing counts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from whet.types import Usage

MOST_TOKENS = 2**32
"""Tokens that a server may report for one call; what is above is no count of tokens."""


def read_usage(usage: object) -> Usage | None:
    """The usage of an answer; None where there is none, or one that cannot be right: a request takes tokens.

    Providers count thoughts as part of `completion_tokens` or beside them, and input that they had cached or wrote into their
    cache as part of `prompt_tokens` or beside them: `total_tokens` tells. More of such input than input is beside it, and so are,
    without a total, more thoughts than output, and what Anthropic calls `cache_read_input_tokens` and
    `cache_creation_input_tokens` beside its `input_tokens`.
    """
    if not isinstance(usage, dict):
        return None
    read = _tokens(usage.get("prompt_tokens", usage.get("input_tokens")))
    written = _tokens(usage.get("completion_tokens", usage.get("output_tokens", 0)))
    if read is None or written is None:
        return None
    named = set(usage).union(*[inner for inner in usage.values() if isinstance(inner, dict)])
    thought = cached = stored = for_hour = 0
    if not named.isdisjoint(_DETAILS):
        thought = _first_count(usage, named, _OF_OUTPUT, _REASONING)
        cached = _first_count(usage, named, _OF_INPUT, _CACHED)
        stored, for_hour = _count_stored(usage, named)
    total = _tokens(usage.get("total_tokens"))
    beside = (total or 0) - read - written
    if beside < 0:  # there is no total that can be one
        beside = thought if thought > written else 0
    parts = cached + stored
    unread = parts if parts > read else _input_beside(usage, (cached, stored), beside, thought)
    read, beside = read + unread, max(0, beside - unread)
    output = written + beside
    if not read:
        return None
    cost, stored = _named_cost(usage), min(stored, max(0, read - cached))
    return Usage(
        read,
        output,
        cached,
        min(max(thought, beside), output),
        cost,
        cache_write_tokens=stored,
        cache_write_1h_tokens=min(for_hour, stored),
    )


def estimate_parts(usage: object, read: int, written: int) -> Usage:
    """Usage of which the provider named a part alone, or none that can be right, from estimates of the others: `read` and
    `written` tokens.

    Of input and output the larger one counts, what it named or the estimate; the cost that it named stays. Where the total is
    larger than both, the rest is of the part that it did not name; a total that stands alone bounds the estimates.
    """
    named = usage if isinstance(usage, dict) else {}
    total = _tokens(named.get("total_tokens")) or 0
    stated_in, stated_out = (_tokens(_first_named(named, names)) or 0 for names in (_INPUT, _OUTPUT))
    if total and not stated_in and not stated_out:
        written = total - read if total > read + written else min(written, total)
        read = total - written
    read, written = max(stated_in, read), max(stated_out, written)
    rest = max(0, total - read - written)
    read, written = (read + rest, written) if stated_out and not stated_in else (read, written + rest)
    return Usage(read, written, cost_usd=_named_cost(named), estimated=True)


_INPUT, _OUTPUT = ("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")


def _first_named(usage: Mapping[str, Any], names: Sequence[str]) -> object:
    """The first of these counts that a usage names."""
    return next((usage[name] for name in names if usage.get(name) is not None), None)


def share_usage(usage: Usage, answers: int) -> list[Usage]:
    """The usage of each answer of a call. They add up to the call's usage, and the first one holds the input."""
    if answers == 1:
        return [usage]
    share, rest = divmod(usage.output_tokens, answers)
    return [replace(usage, output_tokens=share + rest), *[Usage(0, share, free=usage.free)] * (answers - 1)]


def _input_beside(usage: Mapping[str, Any], parts: tuple[int, int], beside: int, thought: int) -> int:
    """Tokens of the input that the count of the input lacks, where these may be part of it: the total is larger by exactly what
    was cached, or the names are Anthropic's. `parts`: what was read from the provider's cache, and what was written into it."""
    cached, both = parts[0], sum(parts)
    if beside and beside != thought:
        return next(
            (tokens for tokens in (both, cached) if tokens and beside in (tokens, tokens + thought)), 0
        )
    native = "prompt_tokens" not in usage and "total_tokens" not in usage
    return both if native and not usage.keys().isdisjoint(_OF_ANTHROPIC) else 0


_OF_INPUT = ("prompt_tokens_details", "input_tokens_details", "prompt_token_details")
_OF_OUTPUT = ("completion_tokens_details", "output_tokens_details")
"""Mappings of a usage that say more of its input or its output; some providers say that in the usage itself."""
_REASONING = ("reasoning_tokens", "thinking_tokens")
"""The providers' names for the part of the output that is reasoning."""
_CACHED = (
    *("cached_tokens", "cache_read_input_tokens", "prompt_cache_hit_tokens"),
    *("num_cached_tokens", "cached_read_tokens", "cache_read_tokens"),
)
"""The names that providers and gateways give to input tokens that came from their cache."""
_STORED = (
    *("cache_creation_input_tokens", "cache_write_tokens", "cache_creation_tokens"),
    *("cached_write_tokens", "cache_write_input_tokens"),
)
"""The names that they (Anthropic, OpenRouter, LiteLLM, DashScope, Bifrost) give to input tokens that they wrote into the cache.
"""
_STORED_BY_TIME = (("", "cache_creation"), ("prompt_tokens_details", "cache_creation_token_details"))
"""The fields in which Anthropic and LiteLLM say how many of these tokens were cached for five minutes and for an hour."""
_DETAILS = {*_REASONING, *_CACHED, *_STORED, *(name for _, name in _STORED_BY_TIME)}
"""All names that say more of the tokens of a call."""
_OF_ANTHROPIC = ("cache_read_input_tokens", "cache_creation_input_tokens")


def _count_stored(usage: Mapping[str, Any], named: Set[str]) -> tuple[int, int]:
    """Tokens that the provider wrote into its cache, and how many of these for an hour."""
    whole = _first_count(usage, named, _OF_INPUT, _STORED)
    for place, name in _STORED_BY_TIME:
        times = _detail(usage, place, name)
        if isinstance(times, dict):
            short, long = (_tokens(times.get(f"ephemeral_{time}_input_tokens")) or 0 for time in ("5m", "1h"))
            return max(whole, short + long), long
    return whole, 0


def _detail(usage: Mapping[str, Any], place: str, name: str) -> object:
    """A count of a usage, from the mapping at `place` where there is one, else from the usage itself."""
    inner = usage.get(place)
    value = inner.get(name) if isinstance(inner, dict) else None
    return usage.get(name) if value is None else value


def _first_count(
    usage: Mapping[str, object], named: Set[str], places: Sequence[str], names: Sequence[str]
) -> int:
    """The first of these counts that is not 0, each from the mappings at `places` or from the usage itself; `named` are the names
    in all of them."""
    for name in filter(named.__contains__, names):
        for place in places:
            if count := _tokens(_detail(usage, place, name)):
                return count
    return 0


def _named_cost(usage: Mapping[str, Any]) -> float | None:
    """The US dollars that a usage names: `cost`, a number or a mapping with the total, xAI's `cost_in_usd_ticks`, or DeepInfra's
    `estimated_cost`; None for another currency. Where a router bills the provider's price elsewhere (the user's own key), `cost`
    is the router's share, and the provider's comes on top of it.
    """
    if usage.keys().isdisjoint(_COSTS):
        return None
    cost = usage.get("cost")
    named = cost if isinstance(cost, dict) else {"total_cost": cost, "currency": usage.get("currency")}
    if str(named.get("currency") or "usd").casefold() != "usd":
        return None
    own = _dollars(named.get("total_cost"))
    if own is None and (ticks := _dollars(usage.get("cost_in_usd_ticks"))) is not None:
        own = ticks / _TICKS
    if own is None:
        own = _dollars(usage.get("estimated_cost"))
    details = usage.get("cost_details")
    upstream = _dollars(details.get("upstream_inference_cost")) if isinstance(details, dict) else None
    if own is None or upstream is None:
        return own
    return own + upstream if upstream > own else own


def with_cost(usage: Usage, cost: str) -> Usage:
    """A usage with the US dollars that a header names, where the usage itself names none. LiteLLM names 0 for a model without a
    price in its list: that says nothing."""
    dollars = _dollars(cost) if cost else None
    if usage.cost_usd is not None or not dollars:
        return usage
    return replace(usage, cost_usd=dollars)


_COSTS = ("cost", "cost_in_usd_ticks", "estimated_cost")
_TICKS = 1e10
"""In these xAI names a dollar."""


def _dollars(value: Any) -> float | None:
    """A number of 0 or more, which some write as a text."""
    if not isinstance(value, int | float | str) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _tokens(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, str) and value.isascii() and value.strip().isdecimal() and len(value) <= 20:
        value = int(value)
    whole = type(value) is int or (isinstance(value, float) and value == value // 1)
    return int(value) if whole and 0 <= value <= MOST_TOKENS else None

"""Tools that a provider runs itself while it answers, such as a web search: most providers bill them apart from the tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_BY_TOOL = ("server_tool_use", "server_side_tool_usage_details", "server_side_tool_usage")
"""Mappings of a usage that count the calls of each tool (Anthropic and gateways; xAI)."""
_SEARCHES = ("web_search_requests", "num_search_queries", "num_sources_used")
"""Counts in a usage (LiteLLM, Perplexity, xAI), or in its details about the input."""
_OF_INPUT = "prompt_tokens_details"
_PLACES = {*_BY_TOOL, *_SEARCHES, _OF_INPUT}
_MOST = 10_000
"""Calls of tools that an answer may take; more are no count of them."""


def count_provider_tools(data: Mapping[str, Any]) -> int:
    """Count the calls of the provider's own tools that the body of an answer reports: in its usage, else those that its
    messages list (Groq), else a search for each message that cites web pages (OpenAI).

    >>> count_provider_tools({"usage": {"server_tool_use": {"web_search_requests": 3, "web_fetch_requests": 1}}})
    4
    """
    usage = data.get("usage")
    if isinstance(usage, dict) and not usage.keys().isdisjoint(_PLACES):
        for name in _BY_TOOL:
            by_tool = usage.get(name)
            if isinstance(by_tool, dict) and (calls := sum(map(_count, by_tool.values()))):
                return calls
        inner = usage.get(_OF_INPUT)
        for place in (usage, inner if isinstance(inner, dict) else {}):
            if calls := max([_count(place.get(name)) for name in _SEARCHES]):
                return calls
    choices = data.get("choices")
    messages = [c.get("message") for c in choices if isinstance(c, dict)] if isinstance(choices, list) else []
    return sum([_count_listed(message) for message in messages if isinstance(message, dict)])


def _count_listed(message: Mapping[str, Any]) -> int:
    """The calls that a message lists, or that its citations are a sign of."""
    listed, cited = message.get("executed_tools"), message.get("annotations")
    if isinstance(listed, list) and listed:
        return min(len(listed), _MOST)
    return int(
        isinstance(cited, list)
        and any(isinstance(one, dict) and one.get("type") == "url_citation" for one in cited)
    )


def _count(value: object) -> int:
    """A whole number of calls; 0 for a value that is none."""
    return value if type(value) is int and 0 < value <= _MOST else 0

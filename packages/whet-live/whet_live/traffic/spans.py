"""Spans of one call of a model: what an app and a gateway below it both record is one answer, in one request or in several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from whet_client.records import LARGEST_VERSION, SERVICE, Inference

HIGHEST = 32
"""Spans between the two of one call, at most."""
UNNAMED = SERVICE
"""The beginning of the prompt of a span that names none."""
LOGS = "log"
"""The beginning of the id of a log record's content. No id of a span has this beginning; the record lies within the span that
it names."""
LOG_RECORDS = "log records"
"""The name of it, where spans have theirs."""
_MOST_NAMED = 20
_LARGEST = {"cost": 1e6, "input_tokens": LARGEST_VERSION, "output_tokens": LARGEST_VERSION}
_FILLED = ("model", "response", "session", "user", "inputs", "output")
_TRIED = ("experiment", "variant")

SpanKey = tuple[str, str]
"""Trace and id of a span."""


@dataclass(frozen=True, slots=True)
class SpanLink:
    """The place of a span. `start` and `end` in nanoseconds; `own` is the id of the answer that it is by itself (None for a
    span that is no answer), `inference` that of the stored answer that it counts with. `cost` in dollars."""

    trace: str
    span: str
    parent: str = ""
    start: int = 0
    end: int = 0
    response: str | None = None
    own: str | None = None
    inference: str | None = None
    cost: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None

    @property
    def key(self) -> SpanKey:
        """Trace and id."""
        return self.trace, self.span

    @property
    def of_logs(self) -> bool:
        """Whether log records say it."""
        return self.span.startswith(LOGS)


def find_outer(links: Mapping[SpanKey, SpanLink]) -> dict[SpanKey, SpanKey]:
    """The outer span of each inner one, among the spans that are answers.

    Two spans of models in one trace are one call when they name the same response, or when one is below the other, they
    overlap for half of the shorter one, and they name no different responses: the clocks of two machines differ, and a call that
    follows begins when the one above it is over. What log records say belongs to the span that they name, whenever they were
    written.
    """
    outer: dict[SpanKey, SpanKey] = {}
    first: dict[tuple[str, str], SpanKey] = {}
    above = {key: list(_climb(key, links)) for key, link in links.items() if link.own is not None}

    def order(key: SpanKey) -> tuple[object, ...]:
        link = links[key]
        return link.of_logs, link.start, -link.end, len(above[key]), key

    for key in sorted(above, key=order):
        link = links[key]
        around = (at for at in above[key] if at in above and find_root(at, outer) != key)
        whole = next((at for at in around if _is_one_call(links[at], link)), None)
        if link.response is not None and link.trace:
            whole = whole or first.get((link.trace, link.response))
            first.setdefault((link.trace, link.response), key)
        if whole is not None:
            outer[key] = whole
    return outer


def find_root(key: SpanKey, outer: Mapping[SpanKey, SpanKey]) -> SpanKey:
    """The outermost span of a call."""
    while key in outer:
        key = outer[key]
    return key


def _climb(key: SpanKey, links: Mapping[SpanKey, SpanLink]) -> Iterator[SpanKey]:
    """The spans above a span, the nearest first."""
    at = key
    for _ in range(HIGHEST if key[0] else 0):
        at = (key[0], links[at].parent)
        if at not in links or at == key:
            return
        yield at


def _is_one_call(outer: SpanLink, inner: SpanLink) -> bool:
    if outer.response is not None and inner.response is not None:
        return outer.response == inner.response
    if inner.of_logs:
        return inner.parent == outer.span
    overlap = min(outer.end, inner.end) - max(outer.start, inner.start)
    return overlap >= 0 and 2 * overlap >= min(outer.end - outer.start, inner.end - inner.start)


def merge_answers(
    one: Inference, parts: Sequence[Inference], inner: Iterable[SpanLink], amounts: Mapping[str, float]
) -> Inference:
    """The answer of the outer span with what only the answers of the inner ones say, and with the amounts of the call."""
    values: dict[str, Any] = dict(amounts)
    if one.prompt.startswith(UNNAMED):
        named = next((part for part in parts if not part.prompt.startswith(UNNAMED)), one)
        values |= {"prompt": named.prompt, "version": named.version}
    mine = {UNNAMED, values.get("prompt", one.prompt)}
    tried = [part for part in parts if part.prompt in mine or part.prompt.startswith(UNNAMED)]
    for names, sources in ((_FILLED, parts), (_TRIED, tried)):
        for name in names:
            if not getattr(one, name):
                filled = (value for part in sources if (value := getattr(part, name)))
                values[name] = next(filled, getattr(one, name))
    inputs = values.get("inputs", one.inputs)
    values["inputs"] = reduce(_add_messages, filter(_is_log, parts), inputs)
    trace = one.metadata.get("trace_id")
    if one.episode == trace:
        values["episode"] = next((part.episode for part in parts if part.episode != trace), one.episode)
    ids = [link.span for link in inner][:_MOST_NAMED]
    return replace(one, **values, metadata={**one.metadata, "inner_spans": ids})


def _is_log(part: Inference) -> bool:
    return part.metadata.get("span") == LOG_RECORDS


def _add_messages(inputs: dict[str, Any], part: Inference) -> dict[str, Any]:
    """The messages of a call, of which each request of an exporter may hold some, with those that only `part` says."""
    mine, more = inputs.get("messages"), part.inputs.get("messages")
    if not isinstance(mine, list) or not isinstance(more, list):
        return inputs
    return {**inputs, "messages": [*mine, *(one for one in more if one not in mine)]}


def sum_amounts(
    root: SpanKey, links: Mapping[SpanKey, SpanLink], outer: Mapping[SpanKey, SpanKey]
) -> dict[str, float]:
    """Cost and tokens of a call by its spans: a span's own, else those of the spans right inside of it, where several that name
    one response count once."""
    inside: dict[SpanKey, list[SpanKey]] = {}
    for key, at in sorted(outer.items(), key=lambda pair: (links[pair[0]].start, pair[0])):
        inside.setdefault(at, []).append(key)

    def amount(key: SpanKey, name: str) -> float | None:
        stated: float | None = getattr(links[key], name)
        if stated is not None:
            return stated
        amounts: dict[object, float] = {}
        for below in inside.get(key, ()):
            value = amount(below, name)
            if value is not None:
                amounts.setdefault(links[below].response or below, value)
        return sum(amounts.values()) if amounts else None

    sums = {name: amount(root, name) for name in _LARGEST}
    return {name: min(value, _LARGEST[name]) for name, value in sums.items() if value is not None}

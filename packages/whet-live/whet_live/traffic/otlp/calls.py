"""Spans of one call of a model: what an app and a gateway below it both record is one answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from whet_client.records import LARGEST_VERSION, Inference
from whet_live.traffic.otlp.decode import OtlpSpan

_HIGHEST = 32
"""Spans between the two of one call, at most."""
_MOST_NAMED = 20
_LARGEST = {"cost": 1e6, "input_tokens": LARGEST_VERSION, "output_tokens": LARGEST_VERSION}
_FILLED = ("model", "response", "session", "user", "experiment", "variant", "inputs", "output")

SpanKey = tuple[str, str]
"""Trace and id of a span."""


def span_key(span: OtlpSpan) -> SpanKey:
    """Trace and id."""
    return span.trace, span.id


def merge_calls(
    spans: Iterable[OtlpSpan], answers: Mapping[SpanKey, Inference]
) -> tuple[dict[SpanKey, Inference], dict[SpanKey, SpanKey]]:
    """One inference for each call, by its outermost span, and that span for each inner one.

    Two spans of models in one trace are one call when they name the same response, or when one lies inside of the other
    and they name no different responses. The outer one keeps what it says and takes the rest from the inner ones.
    """
    by_key = {span_key(span): span for span in spans if span.id}
    first: dict[tuple[str, str], SpanKey] = {}
    inner: dict[SpanKey, list[SpanKey]] = {}
    roots: dict[SpanKey, SpanKey] = {}
    seen: set[SpanKey] = set()
    above = {key: list(_climb(key, by_key)) for key in answers}
    for key in sorted(answers, key=lambda one: (by_key[one].start, -by_key[one].end, len(above[one]))):
        response = answers[key].response
        near = (at for at in above[key] if at in seen)
        outer = next(
            (at for at in near if _is_one_call(by_key[at], answers[at], by_key[key], answers[key])), None
        )
        if outer is None and response is not None and key[0]:
            outer = first.get((key[0], response))
        seen.add(key)
        if outer is not None:
            roots[key] = roots.get(outer, outer)
            inner.setdefault(roots[key], []).append(key)
        if response is not None:
            first.setdefault((key[0], response), roots.get(key, key))
    merged = {
        key: _merge(key, one, {below: answers[below] for below in inner.get(key, ())})
        for key, one in answers.items()
        if key not in roots
    }
    return merged, roots


def _climb(key: SpanKey, by_key: Mapping[SpanKey, OtlpSpan]) -> Iterator[SpanKey]:
    """The spans above a span, the nearest first."""
    at = key
    for _ in range(_HIGHEST if key[0] else 0):
        at = (key[0], by_key[at].parent)
        if at not in by_key or at == key:
            return
        yield at


def _is_one_call(outer: OtlpSpan, above: Inference, inner: OtlpSpan, below: Inference) -> bool:
    if above.response is not None and below.response is not None:
        return above.response == below.response
    return outer.start <= inner.start <= inner.end <= outer.end


def _merge(key: SpanKey, one: Inference, inner: Mapping[SpanKey, Inference]) -> Inference:
    """The answer with what only the inner spans of its call say; amounts of several are added up."""
    if not inner:
        return one
    parts: Sequence[Inference] = list(inner.values())
    values: dict[str, Any] = {}
    for name in _LARGEST:
        amounts = [value for part in parts if (value := getattr(part, name)) is not None]
        if getattr(one, name) is None and amounts:
            values[name] = min(sum(amounts), _LARGEST[name])
    for name in _FILLED:
        if not getattr(one, name):
            values[name] = next(
                (value for part in parts if (value := getattr(part, name))), getattr(one, name)
            )
    if one.prompt.startswith("otlp/"):
        named = next((part for part in parts if not part.prompt.startswith("otlp/")), one)
        values |= {"prompt": named.prompt, "version": named.version}
    if one.id == key[1]:
        values["id"] = next((part.id for below, part in inner.items() if part.id != below[1]), one.id)
    if one.episode == key[0]:
        values["episode"] = next((part.episode for part in parts if part.episode != key[0]), one.episode)
    ids = [below[1] for below in inner][:_MOST_NAMED]
    return replace(one, **values, metadata={**one.metadata, "inner_spans": ids})

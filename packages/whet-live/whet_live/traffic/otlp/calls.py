"""Spans of one request as links between spans, and one answer for each call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from whet_client.records import Inference
from whet_live.traffic.otlp.decode import OtlpSpan
from whet_live.traffic.spans import SpanKey, SpanLink, find_outer, find_root, merge_answers, sum_amounts


def span_key(span: OtlpSpan) -> SpanKey:
    """Trace and id."""
    return span.trace, span.id


def merge_calls(
    spans: Iterable[OtlpSpan], answers: Mapping[SpanKey, Inference]
) -> tuple[dict[SpanKey, Inference], dict[SpanKey, SpanKey], tuple[SpanLink, ...]]:
    """One inference for each call, by its outermost span; that span for each inner one; and where each span stands.

    The outer one keeps what it says and takes the rest from the inner ones.
    """
    links = {span_key(span): _link(span, answers.get(span_key(span))) for span in spans if span.id}
    outer = find_outer(links)
    roots = {key: find_root(key, outer) for key in answers if key in outer}
    inner: dict[SpanKey, list[SpanKey]] = {}
    for key in sorted(roots, key=lambda one: (links[one].start, -links[one].end, one)):
        inner.setdefault(roots[key], []).append(key)
    merged = dict[SpanKey, Inference]()
    for key, one in answers.items():
        if key in inner:
            parts = {below: answers[below] for below in inner[key]}
            amounts = sum_amounts(key, links, outer)
            whole = merge_answers(one, list(parts.values()), [links[at] for at in parts], amounts)
            if one.id == key[1]:
                named = (part.id for below, part in parts.items() if part.id != below[1])
                whole = replace(whole, id=next(named, one.id))
            merged[key] = whole
        elif key not in roots:
            merged[key] = one
    places = {key: merged[roots.get(key, key)].id for key in answers}
    kept = tuple(replace(link, inference=places.get(key)) for key, link in links.items() if link.trace)
    return merged, roots, kept


def _link(span: OtlpSpan, answer: Inference | None) -> SpanLink:
    link = SpanLink(span.trace, span.id, span.parent, span.start, span.end)
    if answer is None:
        return link
    amounts = {name: getattr(answer, name) for name in ("cost", "input_tokens", "output_tokens")}
    return replace(link, response=answer.response, own=answer.id, **amounts)

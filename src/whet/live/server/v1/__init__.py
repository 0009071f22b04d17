"""What programs use: JSON over HTTP, OTLP traces, health and figures."""

from __future__ import annotations

from whet.live.server.endpoint import EndpointRouter
from whet.live.server.v1 import experiments, health, ingest, prompts, proposals, runs, traffic

BOOKS: tuple[EndpointRouter, ...] = (
    ingest.book,
    health.book,
    traffic.book,
    prompts.book,
    proposals.book,
    experiments.book,
    runs.book,
)

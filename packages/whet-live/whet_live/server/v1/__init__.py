"""The interface for programs: JSON over HTTP, OTLP traces, health and figures."""

from __future__ import annotations

from whet_live.server.endpoint import EndpointRouter
from whet_live.server.v1 import experiments, health, ingest, learning, prompts, quality, runs, traffic

ROUTERS: tuple[EndpointRouter, ...] = (
    ingest.router,
    health.router,
    traffic.router,
    quality.router,
    prompts.router,
    learning.router,
    experiments.router,
    runs.router,
)

"""What programs use: JSON over HTTP, OTLP traces, health and figures."""

from __future__ import annotations

from whet.server.endpoint import Book
from whet.server.v1 import experiments, health, ingest, prompts, proposals, runs, traffic

BOOKS: tuple[Book, ...] = (
    ingest.book,
    health.book,
    traffic.book,
    prompts.book,
    proposals.book,
    experiments.book,
    runs.book,
)

"""The page that people see: server-rendered, light, and usable without scripts."""

from __future__ import annotations

from whet.live.server.endpoint import EndpointRouter
from whet.live.server.pages import (
    access,
    annotate,
    audit,
    changes,
    experiments,
    feedback,
    learning,
    login,
    pairs,
    prompts,
    review,
    runs,
    static,
    trials,
)

BOOKS: tuple[EndpointRouter, ...] = (
    login.book,
    static.book,
    prompts.book,
    changes.book,
    review.book,
    annotate.book,
    pairs.book,
    feedback.book,
    learning.book,
    experiments.book,
    trials.book,
    runs.book,
    audit.book,
    access.book,
)

"""All pages of the server, in the order in which their routes are matched."""

from __future__ import annotations

from whet.live.server.endpoint import EndpointRouter
from whet.live.server.pages import (
    access,
    annotate,
    assets,
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
    trials,
)

_PAGES = (
    login,
    assets,
    prompts,
    changes,
    review,
    annotate,
    pairs,
    feedback,
    learning,
    experiments,
    trials,
    runs,
    audit,
    access,
)
ROUTERS: tuple[EndpointRouter, ...] = tuple(module.router for module in _PAGES)

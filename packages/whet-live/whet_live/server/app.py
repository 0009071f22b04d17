"""The ASGI application: all routers behind one middleware. The paths of two routers never match the same request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib import import_module
from pkgutil import iter_modules

from starlette.concurrency import run_in_threadpool
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from whet_live.server import openapi, pages
from whet_live.server.app_state import AppState
from whet_live.server.endpoint import EndpointRouter, check, routes
from whet_live.server.middleware import RequestMiddleware
from whet_live.server.responses import Refused
from whet_live.server.v1 import ROUTERS as PROGRAMS


def _page_routers() -> Iterator[EndpointRouter]:
    """The routers of the modules in `pages`: a module whose `router` has a route is a page, by itself."""
    for module in iter_modules(pages.__path__):
        router = getattr(import_module(f"{pages.__name__}.{module.name}"), "router", None)
        if isinstance(router, EndpointRouter):
            yield router


_SERVED = (*PROGRAMS, *_page_routers())
ROUTERS: tuple[EndpointRouter, ...] = (*_SERVED, openapi.build_router(_SERVED))


class Server:
    """The application of one AppState. `routes` are what it serves, each an endpoint with its permission."""

    def __init__(self, state: AppState, routers: tuple[EndpointRouter, ...] = ROUTERS) -> None:
        self.state = state
        self.routes = routes(routers)
        check(self.routes)
        router = Router(self.routes, redirect_slashes=False, default=_nowhere, lifespan=self._life)
        self._middleware: ASGIApp = RequestMiddleware(router, state)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        await self._middleware(scope, receive, send)

    @asynccontextmanager
    async def _life(self, app: object) -> AsyncIterator[None]:
        """From the first request to the last; then what was accepted is written and the database given back."""
        if self.state.background is not None:
            self.state.background.start()
        try:
            yield
        finally:
            await run_in_threadpool(self.state.close)


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    raise Refused(404, "There is nothing at this address.")

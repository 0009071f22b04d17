"""The server: REST for programs, a page for people. Security is part of every route.

    whet serve                          on 127.0.0.1, with a token made at the first start
    whet access add NAME --role ROLE    another person or program

Every route is an `Endpoint` that declares its permission; one that declares none is not served. See `docs/server.md`.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from whet.errors import UsageError
from whet_client.lazy import lazy

if TYPE_CHECKING:
    from whet_live.server.access import Access, User
    from whet_live.server.limits import quotas
    from whet_live.server.oidc.settings import OidcSettings, read_oidc
    from whet_live.server.responses import link_with
    from whet_live.server.roles import Role
    from whet_live.server.run import ServeOptions, serve

__all__ = [
    "Access",
    "OidcSettings",
    "Role",
    "ServeOptions",
    "User",
    "link_with",
    "quotas",
    "read_oidc",
    "serve",
]

for _name in ("starlette", "uvicorn", "httptools", "prometheus_client"):
    if find_spec(_name) is None:
        raise UsageError(f"The server needs {_name}. Install it with: pip install 'whet[live]'")

__getattr__ = lazy(
    __name__,
    {
        "whet_live.server.access": "Access User",
        "whet_live.server.limits": "quotas",
        "whet_live.server.oidc.settings": "OidcSettings read_oidc",
        "whet_live.server.responses": "link_with",
        "whet_live.server.roles": "Role",
        "whet_live.server.run": "ServeOptions serve",
    },
)

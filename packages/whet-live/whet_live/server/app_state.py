"""The state that the requests of one running server share: data, callers, limits, figures."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import cookie_parser
from starlette.types import Scope

from whet_live.playground import Playground, PlaygroundConfig
from whet_live.server.access import Access, csrf_of, digest_secret
from whet_live.server.limits import Buckets, ServerLimits
from whet_live.server.metrics import Metrics
from whet_live.server.responses import Refused
from whet_live.server.roles import Principal
from whet_live.server.shared_reports import SharedReports
from whet_live.traffic import Intake

if TYPE_CHECKING:
    from whet_live import Live
    from whet_live.quality import QualityOptions, QualityReport
    from whet_live.server.background_tasks import BackgroundTasks
    from whet_live.server.oidc.provider import IdentityProvider

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
REMEMBERED = 10_000
REMEMBERED_SECONDS = 2.0
PROBE_SECONDS = 1.0
QUALITY_SECONDS = 60.0
_LONGEST_WAY = 1000
"""Characters at the end of X-Forwarded-For that are read."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The addresses of a server, and the folder of its runs."""

    hosts: frozenset[str] = LOOPBACK
    """Names that a Host header may carry, without a port. All others are refused, so that no other site's name can point to
    this server."""
    url: str = ""
    """The public address behind a proxy that speaks TLS. Its host is allowed too, and cookies are then sent by TLS only."""
    runs: str = "runs"
    """The root of the run folders."""
    proxies: frozenset[str] = frozenset()
    """Addresses of proxies whose X-Forwarded-For is trusted."""
    page_origins: frozenset[str] = frozenset()
    """Origins, as browsers write them, whose pages may send feedback with a public key."""
    playground: PlaygroundConfig | None = None
    """The models of the playground."""
    limits: ServerLimits = field(default_factory=ServerLimits)
    tls: bool = False

    @property
    def secure(self) -> bool:
        """Whether callers reach the server by TLS."""
        return self.tls or self.url.startswith("https://")

    @property
    def allowed(self) -> frozenset[str]:
        """Lower-case host names, that of `url` included."""
        named = urlsplit(self.url).hostname if self.url else None
        hosts = {host.lower() for host in self.hosts} | ({named.lower()} if named else set())
        return frozenset(f"[{host}]" if ":" in host and not host.startswith("[") else host for host in hosts)


class AppState:
    """A server's shared state. Everything here is used from the event loop only, except `live` and `access`, whose
    functions wait for the database and run in threads. `provider` is where people may sign in, if anywhere."""

    def __init__(
        self, live: Live, access: Access, settings: ServerSettings, provider: IdentityProvider | None = None
    ) -> None:
        self.live = live
        self.access = access
        self.provider = provider
        self.background: BackgroundTasks | None = None
        self.settings = settings
        self.limits = settings.limits
        self.metrics = Metrics()
        self.reports = SharedReports()
        chosen = settings.playground
        self.playground = None if chosen is None else Playground(live.database, chosen)
        self.stopping = asyncio.Event()
        self.allowed = settings.allowed
        self.cookie = "__Host-whet_session" if settings.secure else "whet_session"
        self.flow_cookie = "__Host-whet_sign_in" if settings.secure else "whet_sign_in"
        self.streams: Counter[str] = Counter()
        self.under_way: Counter[str] = Counter()
        self._ingest = Buckets(self.limits.ingest)
        self._rows = Buckets(self.limits.rows)
        self._sent_bytes = Buckets(self.limits.sent_bytes)
        self._use = Buckets(self.limits.use)
        self._anonymous = Buckets(self.limits.anonymous)
        self._failures = Buckets(self.limits.failures)
        self._probing, self._probe_due = Lock(), 0.0
        self._measuring, self._quality_due = Lock(), 0.0
        self._known: OrderedDict[bytes, tuple[float, Principal]] = OrderedDict()

    async def who(self, scope: Scope, headers: dict[bytes, bytes]) -> Principal | None:
        """The caller, from its token or its session cookie; None for a caller that shows neither, or an ended session.

        The token is looked up first: wrong ones from the same address, however many, never keep a right one out.
        Raises Refused: 401 for a token that is wrong or revoked, 429 for that after too many of them."""
        header = headers.get(b"authorization")
        if header is not None:
            scheme, _, secret = header.partition(b" ")
            if scheme.lower() != b"bearer":
                raise Refused(
                    401, "The header is Authorization: Bearer TOKEN.", {"WWW-Authenticate": "Bearer"}
                )
            principal = await self._find(scope, secret.strip(), self.access.by_token)
            if principal is None:
                raise Refused(401, "The token is wrong, revoked or expired.", {"WWW-Authenticate": "Bearer"})
            return principal
        cookie = cookie_parser(headers.get(b"cookie", b"").decode("latin-1")).get(self.cookie, "")
        return (
            await self._find(scope, cookie.encode("latin-1", "replace"), self.access.by_session)
            if cookie
            else None
        )

    async def find_page(self, scope: Scope, key: str) -> Principal:
        """Find the owner of a public key. Raises Refused: 401 for a key that is wrong, revoked or expired, 429 after too many
        of them, 403 for a secret token."""
        principal = await self._find(scope, key.encode("utf-8", "replace"), self.access.by_token)
        if principal is None:
            raise Refused(401, "The key is wrong, revoked or expired.")
        if not principal.page:
            raise Refused(
                403,
                "This is no public key but a secret token. If a page shows it, revoke it, and make a key: "
                "whet access add NAME --role page --prompt PROMPT.",
            )
        return principal

    async def _find(
        self, scope: Scope, secret: bytes, find: Callable[[bytes], Principal | None]
    ) -> Principal | None:
        key, known = digest_secret(secret), self._known
        kept = known.get(key)
        if kept is not None and kept[0] > time.monotonic():
            return kept[1]
        principal = await run_in_threadpool(find, key)
        if principal is None:
            known.pop(key, None)
            if find == self.access.by_token:
                self.count_failure(scope)
            return None
        if find == self.access.by_session:
            principal = replace(principal, csrf=csrf_of(secret.decode("latin-1")))
        known[key] = (time.monotonic() + REMEMBERED_SECONDS, principal)
        known.move_to_end(key)
        if len(known) > REMEMBERED:
            known.popitem(last=False)
        return principal

    def left(self, address: str) -> None:
        """A request of this address ended."""
        self.under_way[address] -= 1
        if not self.under_way[address]:
            del self.under_way[address]

    def count_failure(self, scope: Scope) -> None:
        """Count a wrong token, in a header or in the login form. Raises Refused (429) when there were too many."""
        _wait(self._failures.take(address_of(scope)), "Too many wrong tokens")

    @cached_property
    def intake(self) -> Intake:
        """The one writer of what programs send."""
        return Intake(self.live.traffic)

    def close(self) -> None:
        """End what the server does by itself, write what was accepted, and give the database back."""
        if self.background is not None:
            self.background.stop()
        if "intake" in self.__dict__:
            self.intake.close()
        self.live.close()

    def check_storage(self) -> None:
        """Raises StorageError when a row cannot be written now; asked often, it writes once in `PROBE_SECONDS`."""
        with self._probing:
            if time.monotonic() >= self._probe_due:
                self.live.database.check_writable()
                self._probe_due = time.monotonic() + PROBE_SECONDS

    def refresh_quality(self) -> None:
        """Bring the figures of quality up to date; asked often, it reads the traffic once in `QUALITY_SECONDS`. Raises
        StorageError."""
        with self._measuring:
            if time.monotonic() >= self._quality_due:
                self.metrics.set_quality(self.live.quality)
                self._quality_due = time.monotonic() + QUALITY_SECONDS

    def measure_quality(self, prompt: str, options: QualityOptions) -> QualityReport:
        """The quality of a prompt. One report serves all who ask for it at once, and a large one for some seconds; not one by a
        key of the metadata, whose values may be those of a person who is being forgotten. Raises as `Quality.measure`."""
        if options.get("by", "").startswith("metadata."):
            return self.live.quality.measure(prompt, **options)
        key = ("quality", prompt, *sorted(options.items()))
        return self.reports.get(
            key, lambda: self.live.quality.measure(prompt, **options), lambda report: report.answers
        )

    def forget(self) -> None:
        """Look every caller up again: call it after access was changed, from any thread."""
        self._known = OrderedDict()

    def spend(self, who: Principal | None, scope: Scope, ingest: bool) -> None:
        """Count one request. Raises Refused (429) with Retry-After when the caller's bucket is empty."""
        if who is None:
            seconds = self._anonymous.take(address_of(scope))
        else:
            seconds = (self._ingest if ingest else self._use).take(who.name)
        _wait(seconds, "Too many requests")

    def spend_bytes(self, who: Principal | None, size: int) -> None:
        """Count the bytes of a request with rows. Raises Refused (429) with Retry-After."""
        if who is not None:
            _wait(self._sent_bytes.take(who.name, size), "Too many bytes")

    def spend_rows(self, who: Principal, rows: int) -> None:
        """Count the rows of a request. Raises Refused (429) with Retry-After."""
        _wait(self._rows.take(who.name, rows), "Too many rows")

    def check_host(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Raises Refused (421) unless there is exactly one Host and it is an allowed name, with or without a port."""
        host_headers = [value for name, value in headers if name == b"host"]
        host = host_headers[0].decode("latin-1").lower() if len(host_headers) == 1 else ""
        name, _, port = host.rpartition(":") if not host.endswith("]") and ":" in host else (host, "", "0")
        if name not in self.allowed or not port.isdecimal():
            raise Refused(
                421, "This server does not answer to that name. `whet serve --allow-host NAME` adds one."
            )

    def check_origin(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        """Raises Refused (403) when the Origin header names another site."""
        origin = headers.get(b"origin")
        if origin is None:
            return
        scheme = urlsplit(self.settings.url).scheme if self.settings.url else str(scope["scheme"])
        if origin.lower() != f"{scheme}://".encode() + headers.get(b"host", b"").lower():
            raise Refused(403, "The request comes from another site.")

    def address(self, headers: dict[bytes, bytes]) -> str:
        """The address at which browsers reach the server: its public address, else the allowed name by which this request
        reached it."""
        host = headers.get(b"host", b"").decode("latin-1")
        return self.settings.url.rstrip("/") or f"{'https' if self.settings.secure else 'http'}://{host}"

    def check_page_origin(self, headers: dict[bytes, bytes]) -> bytes:
        """The origin of a page that sends feedback. Raises Refused (403) where the operator did not name it."""
        origin = headers.get(b"origin", b"")
        if origin.decode("latin-1") not in self.settings.page_origins:
            raise Refused(
                403,
                "Pages of this origin may not send feedback here. `whet serve --snippet-origin ORIGIN` names one.",
            )
        return origin


def address_of(scope: Scope) -> str:
    """The caller's network address. Behind a proxy it is the proxy's, unless that is believed (`client_of`)."""
    client: Any = scope.get("client")
    return str(client[0]) if client else "unknown"


def client_of(scope: Scope, proxies: Collection[str]) -> object:
    """The address of the client: the address of the connection, or, if that is one of `proxies`, the last address in
    X-Forwarded-For that is not."""
    client: Any = scope.get("client")
    if client and client[0] in proxies:
        header = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for")
        named = [part.strip() for part in header[-_LONGEST_WAY:].decode("latin-1").split(",")]
        return next(((one, 0) for one in reversed(named) if one and one not in proxies), client)
    return client


def _wait(seconds: float, what: str) -> None:
    if seconds > 0:
        wait = max(1, -int(-seconds // 1))
        raise Refused(429, f"{what}. Try again in {wait} s.", {"Retry-After": str(wait)})

"""Starting and stopping a server: who may reach it, where it listens, how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import uvicorn

from whet.errors import UsageError
from whet_live import Live, open_live
from whet_live.playground import read_playground
from whet_live.quality import read_channels
from whet_live.registry import ANY_PROMPT
from whet_live.server.access import Access
from whet_live.server.app import Server
from whet_live.server.app_state import LOOPBACK, AppState, ServerSettings
from whet_live.server.background_tasks import ACTOR as STARTED
from whet_live.server.background_tasks import LOOK_SECONDS, BackgroundTasks, LearnerProcess, learn_with
from whet_live.server.http_protocol import limited_http_protocol
from whet_live.server.limits import ServerLimits
from whet_live.server.metrics import log_to_stderr
from whet_live.server.pages.oidc import CALLBACK
from whet_live.server.responses import link_with
from whet_live.server.tls_door import TlsDoor

if TYPE_CHECKING:
    from whet_live.learner import LearnerConfig
    from whet_live.server.oidc.provider import IdentityProvider
    from whet_live.server.oidc.settings import OidcSettings

PORT = 8321
DRAIN_SECONDS = 10
IDLE_SECONDS = 30
LOCKED = (
    "The label production is locked now: of every prompt it moves when somebody else approves. Alone here?",
    "  whet prompts protect '*' production --off",
)
"""The lines printed once, when a database is served for the first time."""


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The options of `whet serve`. There is no option that leaves out authentication."""

    host: str = "127.0.0.1"
    """The address to listen at."""
    port: int = PORT
    url: str = ""
    """The public address."""
    hosts: tuple[str, ...] = ()
    """Further names that a Host header may carry."""
    proxies: tuple[str, ...] = ()
    """Addresses of proxies whose X-Forwarded-For is trusted."""
    database: str | None = None
    runs: str = "runs"
    learner: LearnerConfig | None = None
    """The settings of this server's learner; None: no learner."""
    every: float = LOOK_SECONDS
    """Seconds between two looks of the learner, and between two looks at experiments."""
    retention: int | None = None
    """Days that traffic is kept; None: for ever."""
    alerts: Path | None = None
    """The file that names the channels of alerts."""
    playground: Path | None = None
    """The file that names the models of the playground."""
    snippet_origins: tuple[str, ...] = ()
    """Origins whose pages may send feedback."""
    certificate: str | None = None
    """The certificate chain in PEM form, for TLS without a proxy."""
    key: str | None = None
    """The private key of the certificate in PEM form."""
    limits: ServerLimits = field(default_factory=ServerLimits)
    oidc: OidcSettings | None = None
    """The identity provider at which people may sign in; None: people sign in with tokens only."""

    @property
    def public(self) -> bool:
        """Whether other machines can reach the address."""
        if self.host == "localhost":
            return False
        try:
            return not ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return True


def serve(options: ServeOptions, say: Callable[[str], None], show_token: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM, then finish the requests that are under way and write what was accepted.

    `say` gets the lines for a person at the terminal, `show_token` those with the first token, once: they are no part of the log.
    Raises UsageError for an address that cannot be used, and for a public one while nobody has a token; StorageError for
    the database.
    """
    _check(options)
    provider, warning = open_sign_in(options)
    log_to_stderr(logging.INFO)
    with open_live(options.database) as live:
        access = Access(live.database)
        token = _admit(options, access)
        locked = live.registry.protect_first(ANY_PROMPT, "production", actor=STARTED)
        with listen(options) as listening:
            state = AppState(live, access, app_settings(options), provider)
            address = address_at(options, listening.getsockname()[1])
            state.background = background_of(live, options, address)
            access.note_address(address)
            reading = _reading_lines(live, options)
            signing_in = sign_in_lines(options, address, warning)
            locking = LOCKED if locked else ()
            for line in [*welcome(options, address, token), *signing_in, *locking, *reading]:
                say(line)
            for line in token_lines(address, token):
                show_token(line)
            _allow_files(options.limits.connections)
            try:
                Uvicorn(state, options).run([listening])
            finally:
                state.background.stop()


def _allow_files(connections: int) -> None:
    """Raise the soft limit on open files, which is often 1,024, so that it is not reached before that on connections. Windows
    has none."""
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * connections + 256
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def background_of(live: Live, options: ServeOptions, address: str = "") -> BackgroundTasks:
    """The background tasks of the server: they decide experiments, watch the quality, send alerts with links to `address`,
    and, if there is a `learner`, learn in another process."""
    channels = () if options.alerts is None else read_channels(options.alerts)
    learner = None
    if options.learner is not None:
        from whet_live.learner import check_reader

        check_reader(options.learner)
        learn_with(live, options.learner, learns=False)
        learner = LearnerProcess(options.database, options.learner, options.every)
    return BackgroundTasks(
        live,
        learner=learner,
        seconds=options.every,
        retention=options.retention,
        channels=channels,
        address=address,
    )


def open_sign_in(options: ServeOptions) -> tuple[IdentityProvider | None, str]:
    """The provider at which people sign in, if any, and a warning where it does not answer. Raises UsageError for one that cannot
    be used, and where a library is missing."""
    if options.oidc is None:
        return None, ""
    for name, package in (("jwt", "PyJWT"), ("cryptography", "cryptography")):
        if find_spec(name) is None:
            raise UsageError(f"--oidc-issuer needs {package}. Install it with: pip install 'whet[live]'")
    from whet_live.server.oidc.provider import open_provider

    return open_provider(options.oidc)


def sign_in_lines(options: ServeOptions, address: str, warning: str) -> list[str]:
    """The values to register at the provider, and the users who get access."""
    if options.oidc is None:
        return []
    host = options.oidc.host
    lines = [f"People sign in at {host} too. The redirect address to register there: {address}{CALLBACK}"]
    if options.oidc.default is not None:
        word = options.oidc.default.word
        lines.append(
            f"Whoever has an account at {host} gets the role {word}. `--oidc-default-role none` admits by rules only."
        )
    return [*lines, warning] if warning else lines


NO_READER = (
    "No model reads comments: people write the instructions, on the pages of learning. "
    "To name a model: --optimizer-lm NAME"
)


def _reading_lines(live: Live, options: ServeOptions) -> list[str]:
    """The feedback reader's view and work, or that there is none, where the server learns."""
    if options.learner is None:
        return []
    if not options.learner.reader:
        return [NO_READER]
    from whet_live.learner import describe_patterns, describe_reading

    sees = describe_reading(live.learner.settings(ANY_PROMPT).reads)
    sorts = describe_patterns(options.learner.pattern_calls, options.learner.reader)
    return [sees, sorts] if sorts else [sees]


def app_settings(options: ServeOptions) -> ServerSettings:
    """The settings of the application behind these options."""
    hosts = LOOPBACK | set(options.hosts)
    return ServerSettings(
        frozenset(hosts),
        options.url,
        options.runs,
        frozenset(options.proxies),
        frozenset(origin_of(origin) for origin in options.snippet_origins),
        None if options.playground is None else read_playground(options.playground),
        options.limits,
        bool(options.certificate),
    )


def origin_of(text: str) -> str:
    """An origin as browsers write it: in lower case, without the usual port. Raises UsageError for a text that is none.

    >>> origin_of("https://Shop.example:443/"), origin_of("http://localhost:3000")
    ('https://shop.example', 'http://localhost:3000')
    """
    if not _is_origin(text) or not text.isascii() or "*" in text:
        raise UsageError(
            f'--snippet-origin is "{text[:200]}". Write the origin of one site as browsers do, like https://shop.example; a '
            "name in another script begins with xn--."
        )
    parts = urlsplit(text.lower())
    usual = {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.scheme}://{parts.netloc.removesuffix(f':{usual}')}"


def _check(options: ServeOptions) -> None:
    if options.url and not _is_origin(options.url):
        raise UsageError(f'--url is "{options.url}". Write an address like https://whet.example.org.')
    if bool(options.certificate) != bool(options.key):
        raise UsageError("--tls-cert and --tls-key belong together. Give both files.")
    for origin in options.snippet_origins:
        origin_of(origin)
    for file in (options.certificate, options.key):
        if file is not None and not Path(file).is_file():
            raise UsageError(f"{file}: there is no such file.")
    if options.alerts is not None:
        read_channels(options.alerts)  # before a first token is made, which is shown once
    if options.playground is not None:
        read_playground(options.playground)
    if options.public and not options.url:
        raise UsageError(
            f"{options.host} can be reached from other machines. Say by which address: --url https://NAME "
            "(requests for any other name are refused)."
        )


def _is_origin(url: str) -> bool:
    """Whether a text is http or https, a host and perhaps a port, and nothing else."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    rest = parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc
    return known and not rest and not any(c.isspace() for c in url)


def _admit(options: ServeOptions, access: Access) -> str | None:
    """The first token of a new installation on loopback. A public address opens only to tokens that exist."""
    if not options.public:
        return access.first()
    if not access.is_guarded():
        raise UsageError(
            f"{options.host} can be reached from other machines, and nobody has a token yet. Make one first: "
            "whet access add NAME --role admin"
        )
    return None


def listen(options: ServeOptions) -> socket.socket:
    """A socket at the address, so that a port in use is reported before anything starts. Raises UsageError."""
    host = options.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        # On Windows SO_REUSEADDR would let a second server take the port of a running one.
        reuse = getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR)
        listening.setsockopt(socket.SOL_SOCKET, reuse, 1)
        listening.bind((host, options.port))
        listening.listen(2048)
    except OSError as error:
        listening.close()
        raise UsageError(
            f"The server cannot listen at {options.host}:{options.port}: {error.strerror}. Choose another --port."
        ) from error
    return listening


def address_at(options: ServeOptions, port: int) -> str:
    """The address of the page: the public one, or that of this machine with the port."""
    scheme = "https" if options.certificate else "http"
    host = options.host.strip("[]")
    host = f"[{host}]" if ":" in host else host
    return options.url.rstrip("/") or f"{scheme}://{host}:{port}"


def welcome(options: ServeOptions, address: str, token: str | None) -> list[str]:
    """The lines printed at the start: the address, and how to sign in."""
    lines = [f"whet serves at {address}"]
    if token is None:
        lines.append("Sign in with your token; `whet access token NAME` makes another.")
    if options.public and address.startswith("http://"):
        lines.append("Warning: without TLS everybody on the way reads tokens. Use --tls-cert or a proxy.")
    return lines


def token_lines(address: str, token: str | None) -> list[str]:
    """The link with the first token, where one was made."""
    if token is None:
        return []
    return [
        f"Open {link_with(address, token)}",
        "This token of the user admin is shown only now. `whet access add NAME --role ROLE` makes others.",
    ]


class Uvicorn(uvicorn.Server):
    """The HTTP server, which notifies the AppState when it begins to stop, so that event streams end by themselves."""

    def __init__(self, state: AppState, options: ServeOptions) -> None:
        self._state = state
        self._protocol = limited_http_protocol(state.limits, state.metrics, state.settings.proxies)
        self._door: TlsDoor | None = None
        self._accepting: list[asyncio.Task[None]] = []
        super().__init__(
            uvicorn.Config(
                Server(state),
                http=self._protocol,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=IDLE_SECONDS,
                timeout_graceful_shutdown=DRAIN_SECONDS,
                ssl_certfile=options.certificate,
                ssl_keyfile=options.key,
            )
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal is the usual end of a server, not a failure; a second Ctrl-C does not wait for anybody."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept. With TLS the connections come through a door that counts handshakes; uvicorn would count what comes
        after them."""
        if sockets is None or self.config.ssl is None:
            await super().startup(sockets)
            return
        await super().startup([])
        loop = asyncio.get_running_loop()

        def make() -> asyncio.Protocol:
            return self._protocol(
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state, _loop=loop
            )

        self._door = TlsDoor(self._protocol, make, self.config.ssl)
        self._accepting = [loop.create_task(self._door.accept(one)) for one in sockets]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, finish what runs, drain what was accepted."""
        self._state.stopping.set()
        for accepting in self._accepting:
            accepting.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        if self._door is not None:
            self._door.close()
        await super().shutdown(sockets)

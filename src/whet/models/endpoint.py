"""The destination of a model's requests, and what they carry besides a body: base URL, query, key and headers.

Only this module reads secrets from the environment. The printed form of an endpoint holds no secret.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from yarl import URL

from whet._util.variables import TRUSTED_HOSTS, variable
from whet.errors import UsageError, parameter
from whet.models.providers import AZURE, OPENAI, PROVIDERS, Provider, owners_of
from whet.models.secret import Secret
from whet.types import content_hash

AZURE_VERSIONS = ("AZURE_OPENAI_API_VERSION", "OPENAI_API_VERSION", "AZURE_API_VERSION")
AZURE_TOKEN = "AZURE_OPENAI_AD_TOKEN"

_PATHS = ("/chat/completions", "/completions", "/embeddings", "/responses", "/images/generations")
_AZURE_HOST = ".azure.com"
_UNDATED = ("v1", "preview", "latest")
_SECRET_NAME = re.compile(r"auth|key|token|secret|passw|cookie|credential|^sig$|signature", re.IGNORECASE)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OWN_HEADERS = ("content-type", "content-length", "transfer-encoding", "connection")
_BETWEEN_URLS = re.compile(r",\s*(?=https?://|$)")
_VARIABLE = re.compile(r"\$(?:\$|\{(?P<braced>[A-Za-z_]\w*)\}|(?P<bare>[A-Za-z_]\w*))")


_MISSING_KEYS: ContextVar[list[str] | None] = ContextVar("missing_keys", default=None)


@contextmanager
def missing_keys_noted() -> Iterator[list[str]]:
    """Within the block, models are made even without their keys, for planning; the list names the missing keys."""
    missing: list[str] = []
    token = _MISSING_KEYS.set(missing)
    try:
        yield missing
    finally:
        _MISSING_KEYS.reset(token)


def holds_secret(name: str) -> bool:
    """Whether a header or a part of a query with this name usually holds a secret.

    >>> holds_secret("Authorization"), holds_secret("X-Title")
    (True, False)
    """
    return _SECRET_NAME.search(name) is not None


def variables_in(text: str) -> list[str]:
    """Names of the environment variables that the value of a header stands for.

    >>> variables_in("Bearer $GATEWAY_TOKEN, not $$5")
    ['GATEWAY_TOKEN']
    """
    names = (match["braced"] or match["bare"] for match in _VARIABLE.finditer(text))
    return [name for name in names if name]


@dataclass(frozen=True, repr=False, eq=False)
class ModelEndpoint:
    """One base URL with its query, key and headers. `base_url` and `plain` are what may be shown and recorded of it: no
    secret is in them. `unshown`: a short hash of what else may lead to other answers, empty for nothing: parts of the query, and
    headers that name variables and do not usually hold a secret."""

    base_url: str
    key: Secret
    key_place: str
    headers: Mapping[str, str]
    plain: Mapping[str, str]
    secrets: tuple[Secret, ...]
    _base: URL
    unshown: str = ""

    def url(self, *path: str) -> URL:
        """The address of a part of the API, the query of the base URL with it."""
        url = self._base.with_query(None).joinpath(*path)
        return url.with_query(self._base.query) if self._base.query_string else url

    def with_headers(self, usual: Mapping[str, str]) -> dict[str, str]:
        """The usual headers of a request with those of this endpoint, which win whatever their case."""
        own = {name.lower() for name in self.headers}
        return {name: value for name, value in usual.items() if name.lower() not in own} | dict(self.headers)

    @property
    def host(self) -> str:
        """The host that requests go to."""
        return self._base.host or ""

    def scrub(self, text: str) -> str:
        """A text of the server without the secrets that were sent to it."""
        for secret in (self.key, *self.secrets):
            text = secret.scrub(text)
        return text


def endpoint_of(
    provider: str,
    name: str,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    key_variable: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> ModelEndpoint:
    """The endpoint of a model.

    `base_url` falls back to the variables of the provider, then to its documented address; `api_key` to the variable
    `key_variable`, then to those of the provider. In a header `$NAME` stands for an environment variable, `$$` for a dollar.

    Raises UsageError for a URL, a key or a header that cannot be used, and where the provider's own host gets no key.
    """
    known = PROVIDERS[provider]
    address, headers = f"{provider}/{name}", dict(headers or {})
    base = _base_of(known, provider, name, base_url)
    place, text = _key_of(known, api_key, key_variable, headers)
    key = _checked_key(text, place)
    if key_variable is not None and not key:
        _miss_key(f"{address}: the key belongs in the variable {key_variable}, which is not set. Set it.")
    bearer = provider == AZURE and not key and (variable(AZURE_TOKEN) or "").strip()
    if bearer:
        place, key = AZURE_TOKEN, _checked_key(bearer, AZURE_TOKEN)
    bare = key_variable is None and not key and not any(map(holds_secret, headers))
    if bare and base.host == known.host and not known.local:
        _miss_key(
            f"{address} at {base.host} needs a key. Set {' or '.join(known.keys)}, or name another endpoint with "
            f"{parameter('base_url')} or {known.urls[-1]}."
        )
    sent, secrets = _expand(headers)
    if key and not any(name.lower() in ("authorization", "api-key") for name in sent):
        as_azure = not bearer and (base.host or "").endswith(_AZURE_HOST)
        by_header = as_azure or (provider == AZURE and not bearer)
        sent |= {"api-key": key.reveal()} if by_header else {"Authorization": f"Bearer {key.reveal()}"}
    plain = {name: text for name, text in headers.items() if not (holds_secret(name) or variables_in(text))}
    unshown = [[name, value] for name, value in base.query.items() if name != "api-version"]
    unshown += [[name, sent[name]] for name in headers if name not in plain and not holds_secret(name)]
    digest = content_hash(unshown)[:8] if unshown else ""
    return ModelEndpoint(show_url(base), key, place, sent, plain, secrets, base, digest)


def model_endpoints(
    provider: str,
    name: str,
    *,
    base_url: str | Sequence[str] | None = None,
    api_key: str | None = None,
    key_variable: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[ModelEndpoint, ...]:
    """The endpoints of a model, as `endpoint_of`: one for each base URL.

    Raises UsageError also where two base URLs are one, and where their queries differ: that may be another model.
    """
    urls: tuple[str | None, ...] = split_urls(base_url) or (None,)
    for url in urls:
        address, comma, rest = (url or "").partition("?")[0].partition(",")
        if comma:
            raise UsageError(
                f"{parameter('base_url')}: what follows {address}, after the comma begins with no http:// or https://: "
                f"{rest.strip()!r}. Write each base URL in full; commas stand between them."
            )
    endpoints = tuple(
        endpoint_of(provider, name, base_url=url, api_key=api_key, key_variable=key_variable, headers=headers)
        for url in urls
    )
    shown = [endpoint.base_url for endpoint in endpoints]
    if len({endpoint.unshown for endpoint in endpoints}) > 1:
        raise UsageError(
            f"The base URLs of {provider}/{name} have different queries ({', '.join(shown)}), and several base URLs are servers "
            "of one model that answer alike. Give them the same query, or name one URL."
        )
    if twice := next((url for url in shown if shown.count(url) > 1), None):
        raise UsageError(f"{parameter('base_url')} names {twice} twice. Name each server once.")
    return endpoints


def split_urls(base_url: str | Sequence[str] | None) -> tuple[str, ...]:
    """The base URLs of a list, or of a text with commas between them; none of None and of an empty text.

    >>> split_urls("http://a:8000/v1, http://b:8000/v1?x=1,2")
    ('http://a:8000/v1', 'http://b:8000/v1?x=1,2')
    """
    texts = [base_url] if isinstance(base_url, str) else base_url or []
    parts = [part.strip() for text in texts for part in _BETWEEN_URLS.split(text)]
    return tuple(part for part in parts if part)


def join_urls(base_url: str | Sequence[str] | None) -> str | None:
    """The base URLs as one text that `split_urls` takes apart; None for none."""
    return ",".join(split_urls(base_url)) or None


def _miss_key(problem: str) -> None:
    """Note a missing key where that is wanted; otherwise raise UsageError."""
    missing = _MISSING_KEYS.get()
    if missing is None:
        raise UsageError(problem)
    if (text := str(UsageError(problem))) not in missing:
        missing.append(text)


def _key_of(
    known: Provider, api_key: str | None, key_variable: str | None, headers: Mapping[str, str]
) -> tuple[str, str]:
    """The source of the key, and the key. No key is looked up where a header replaces it."""
    if api_key is not None:
        return "api_key", api_key
    if key_variable is not None:
        return key_variable, variable(key_variable) or ""
    if any(map(holds_secret, headers)):
        return "headers", ""
    return known.find_key()


def _base_of(known: Provider, provider: str, name: str, base_url: str | None) -> URL:
    place, by_variable = known.find_base_url()
    if provider != AZURE:
        return checked_url(base_url or by_variable or known.base_url, "" if base_url else place)
    if not (base_url or by_variable):
        raise UsageError(
            f"azure/{name} needs the address of your resource. Set {known.urls[0]} to something like "
            f"https://NAME.openai.azure.com, or name it with {parameter('base_url')}."
        )
    return _azure_url(checked_url(base_url or by_variable, "" if base_url else place), name)


def _azure_url(url: URL, deployment: str) -> URL:
    """The base URL of a deployment: `/openai/deployments/NAME` with a dated version of the API, `/openai/v1` without one."""
    named = next((value for name in AZURE_VERSIONS if (value := (variable(name) or "").strip())), "")
    version, path = url.query.get("api-version", named), url.path.strip("/")
    if path not in ("", "openai"):
        classic = "deployments" in path.split("/")
        query = {**url.query, "api-version": version} if version and classic else dict(url.query)
        return url.with_query(query)
    bare = url.with_path("/openai")
    if version in ("", *_UNDATED):
        query = {**url.query, "api-version": version} if version not in ("", "v1") else {}
        return bare.joinpath("v1").with_query(query)
    return bare.joinpath("deployments", deployment).with_query({**url.query, "api-version": version})


def checked_url(text: str, place: str = "") -> URL:
    """The base URL without a trailing slash or the path of a part of the API; `place` is the variable that it stands in.

    Raises UsageError, never echoing credentials.
    """
    what = f"The base URL{f' in {place}' if place else ''}"
    try:
        url = URL(text.strip())
        path = url.path.rstrip("/")
        path = next((path.removesuffix(part) for part in _PATHS if path.endswith(part)), path).rstrip("/")
        url = url.with_path(path, keep_query=True, keep_fragment=True) if url.host else url
    except ValueError:
        raise UsageError(
            f"{what} cannot be read. Expected something like http://localhost:8000/v1."
        ) from None
    if url.scheme not in ("http", "https") or not url.host:
        raise UsageError(f"{what} must look like http://localhost:8000/v1 or https://host/v1.")
    if url.user or url.password or url.fragment or any(map(holds_secret, url.query)):
        raise UsageError(
            f"{what} at {url.origin()} carries credentials or a fragment. Give the bare URL; a key belongs into a variable "
            "(`key_variable`), or into a header that names one (`headers`)."
        )
    return url


def show_url(url: URL) -> str:
    """The URL as it may be recorded: of its query nothing but the version of the API, for any other part may be secret."""
    parts = {name: value if name == "api-version" else "..." for name, value in url.query.items()}
    bare = str(url.with_query(None)).rstrip("/")
    return f"{bare}?{'&'.join(f'{name}={value}' for name, value in parts.items())}" if parts else bare


def _checked_key(text: str, place: str) -> Secret:
    key = text.strip()
    if len(key) > 1 and key[0] == key[-1] and key[0] in "\"'":
        raise UsageError(
            f"The key in {place} stands in quotation marks, which are no part of it. Leave them out."
        )
    if not key.isascii() or not all(" " < c < "\x7f" for c in key):
        raise UsageError(
            f"The key in {place} holds a character that no key has (a space, a line break, an accent)."
        )
    return Secret(key)


def check_headers(headers: Mapping[str, str]) -> None:
    """Raise UsageError for a header that no request can carry, or that whet writes itself."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _OWN_HEADERS:
            raise UsageError(f'"{name}" cannot be set as a header. Leave it out.')
        if not isinstance(value, str):
            raise UsageError(f"The header {name} must be a text, such as a name or $VARIABLE.")


def _expand(headers: Mapping[str, str]) -> tuple[dict[str, str], tuple[Secret, ...]]:
    """Headers with the values of the variables that they name, and what of them is secret."""
    check_headers(headers)
    sent, secrets = {}, []
    for name, text in headers.items():
        values = {key: (variable(key) or "").strip() for key in variables_in(text)}
        missing = [key for key, value in values.items() if not value]
        if missing:
            raise UsageError(f"The header {name} names the variable {missing[0]}, which is not set. Set it.")
        value = _VARIABLE.sub(lambda match: values.get(match["braced"] or match["bare"], "$"), text)  # noqa: B023
        if not value.isascii() or not value.isprintable():
            raise UsageError(
                f"The header {name} holds a character that no header has (a line break, an accent)."
            )
        secrets += [Secret(secret) for secret in values.values()]
        if holds_secret(name):
            secrets.append(Secret(value))
        sent[name] = value
    return sent, tuple(secrets)


def check_entrusted(
    base_url: str,
    provider: str = "openai",
    key_variable: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Refuse to send what the environment keeps secret to a host that only a file names.

    It may go to this machine, to the provider's own host, documented or named by its variable, to the host of another
    provider whose own key it is, and to the hosts in WHET_TRUSTED_HOSTS. Where nothing secret would go there is nothing to
    refuse. Raises UsageError naming the host and the variable.
    """
    known, headers = PROVIDERS.get(provider, OPENAI), headers or {}
    host = checked_url(base_url).host or ""
    by_variable = known.find_base_url()[1]
    own = {"localhost", known.host, URL(by_variable).host if by_variable else "", *trusted_hosts()}
    if host in own or is_loopback(host):
        return
    names = [name for text in headers.values() for name in variables_in(text)]
    place, text = _key_of(known, None, key_variable, headers)
    names += [place] if text.strip() else []
    names += [AZURE_TOKEN] if provider == AZURE and variable(AZURE_TOKEN) else []
    theirs = {name for owner in owners_of(host) for name in owner.keys}
    foreign = [name for name in names if name not in theirs]
    if foreign:
        raise UsageError(
            f"The task file sends the model's requests to {host}, and the key in {foreign[0]} would go with them. "
            f"If that is meant, say so with {parameter('base_url')}, {known.urls[0]}, or {TRUSTED_HOSTS}={host} "
            "(on the command line --trust-host); if not, remove `base_url` or the key."
        )


def trusted_hosts() -> Iterable[str]:
    """The hosts in WHET_TRUSTED_HOSTS."""
    return [host for part in (variable(TRUSTED_HOSTS) or "").split(",") if (host := part.strip().lower())]


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its number."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

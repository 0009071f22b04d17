"""The identity provider: its document, its keys, and the exchange of a code for its claims about a person.

Requests go to the issuer that the owner of the server named, and to the addresses in that issuer's document; no redirection is
followed. Keys are read at each sign-in, so that a rotated key works at once and a withdrawn one no more.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus, urlencode

import aiohttp

from whet.errors import UsageError
from whet_live.server.access import is_email
from whet_live.server.oidc.flow import SignInFlow
from whet_live.server.oidc.id_token import check_id_token
from whet_live.server.oidc.settings import OidcSettings, check_address, read_groups
from whet_live.server.responses import SignInRefused
from whet_live.server.roles import ProviderIdentity

SECONDS = 10.0
"""The longest time of one answer of the provider."""
MOST_BYTES = 1_048_576
FRESH_SECONDS = 3600.0
"""The time for which the provider's document is valid."""
PAUSE_SECONDS = 5.0
"""The time without another request for the document of a provider that did not answer."""
AT_ONCE = 32
"""Sign-ins that wait for the provider at a time."""
LONGEST_CODE = 4_096
DISCOVERY = "/.well-known/openid-configuration"
_CODES = frozenset({"invalid_grant", "invalid_client", "unauthorized_client", "invalid_request"})


@dataclass(frozen=True, slots=True)
class ProviderDocument:
    """The provider's own description; empty texts for features that it does not have."""

    authorize: str
    token: str
    keys: str
    userinfo: str
    sign_out: str
    posts_secret: bool
    names_itself: bool


class ProviderDown(SignInRefused):
    """The provider does not answer, or answers that it cannot."""

    def __init__(self, message: str) -> None:
        super().__init__("provider-down", message, 502)


class IdentityProvider:
    """The provider of one server. Everything here is used from one event loop."""

    def __init__(self, settings: OidcSettings) -> None:
        self.settings = settings
        self._document: ProviderDocument | None = None
        self._due = 0.0
        self._failure: ProviderDown | None = None
        self._reading = asyncio.Lock()
        self._waiting = 0

    async def document(self) -> ProviderDocument:
        """The provider's document, at most `FRESH_SECONDS` old while the provider answers. Raises ProviderDown, and UsageError
        for a document that cannot be used."""
        async with self._reading:
            if time.monotonic() >= self._due:
                try:
                    self._document, self._failure = await self._read_document(), None
                    self._due = time.monotonic() + FRESH_SECONDS
                except ProviderDown as error:
                    self._failure, self._due = error, time.monotonic() + PAUSE_SECONDS
            if self._document is None:
                assert self._failure is not None
                raise self._failure
            return self._document

    async def _read_document(self) -> ProviderDocument:
        async with _session() as session:
            value = await self._fetch(session, "GET", self.settings.issuer.rstrip("/") + DISCOVERY)
        return read_document(value, self.settings.issuer)

    async def authorization_url(self, flow: SignInFlow, redirect: str) -> str:
        """The address to which the browser goes to sign in. Raises ProviderDown."""
        document = await self.document()
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": redirect,
            "scope": " ".join(dict.fromkeys(("openid", "email", *self.settings.scopes))),
            "state": flow.state,
            "nonce": flow.nonce,
            "code_challenge": flow.challenge,
            "code_challenge_method": "S256",
        }
        return f"{document.authorize}{'&' if '?' in document.authorize else '?'}{urlencode(query)}"

    async def sign_out_url(self) -> str:
        """The address at which a browser signs out of the provider itself; empty where the provider names none, or does not
        answer."""
        try:
            address = (await self.document()).sign_out
        except (SignInRefused, UsageError):
            return ""
        query = urlencode({"client_id": self.settings.client_id})
        return f"{address}{'&' if '?' in address else '?'}{query}" if address else ""

    async def identify(
        self, query: Mapping[str, str], flow: SignInFlow, redirect: str, moment: int
    ) -> ProviderIdentity:
        """Identify the person who came back with this query, whose state belongs to the flow; `moment` is the time in
        microseconds. Raises SignInRefused."""
        if self._waiting >= AT_ONCE:
            raise ProviderDown("Too many people sign in at once. Try again in a minute.")
        self._waiting += 1
        try:
            document = await self.document()
            self._check_answer(document, query)
            async with _session() as session:
                claims = await self._redeem(session, document, query["code"], flow, redirect, moment)
        finally:
            self._waiting -= 1
        return self._identity(claims)

    def _check_answer(self, document: ProviderDocument, query: Mapping[str, str]) -> None:
        """Raises SignInRefused unless the provider itself, by its name (RFC 9207), sent a code."""
        named = query.get("iss", "" if document.names_itself else self.settings.issuer)
        if named != self.settings.issuer:
            raise SignInRefused("mix-up", "The answer comes from another identity provider. Sign in again.")
        if "error" in query:
            word = query["error"]
            shown = (
                f" ({word})" if word.isascii() and word.replace("_", "").isalpha() and len(word) < 40 else ""
            )
            raise SignInRefused("denied", f"The identity provider did not let you in{shown}.")
        if not 0 < len(query.get("code", "")) <= LONGEST_CODE:
            raise SignInRefused("no-code", "The identity provider sent no code. Sign in again.")

    async def _redeem(
        self,
        session: aiohttp.ClientSession,
        document: ProviderDocument,
        code: str,
        flow: SignInFlow,
        redirect: str,
        moment: int,
    ) -> dict[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect,
            "code_verifier": flow.verifier,
        }
        headers = self._vouch(document, form)
        tokens = await self._fetch(session, "POST", document.token, form, headers)
        token = tokens.get("id_token")
        if not isinstance(token, str):
            raise SignInRefused(
                "no-id-token", "The identity provider sent no ID token. Is the client one for OpenID Connect?"
            )
        keys = await self._fetch(session, "GET", document.keys)
        claims = check_id_token(
            token,
            keys,
            issuer=self.settings.issuer,
            client_id=self.settings.client_id,
            nonce=flow.nonce,
            moment=moment,
        )
        access = tokens.get("access_token")
        if document.userinfo and isinstance(access, str) and access.isascii() and self._lacks(claims):
            bearer = {"Authorization": f"Bearer {access}"}
            claims = join_claims(claims, await self._fetch(session, "GET", document.userinfo, None, bearer))
        return claims

    def _vouch(self, document: ProviderDocument, form: dict[str, str]) -> dict[str, str]:
        """Say which client this is: in the form, or in the headers that this returns."""
        settings = self.settings
        if not settings.secret or document.posts_secret:
            form["client_id"] = settings.client_id
            if settings.secret:
                form["client_secret"] = settings.secret
            return {}
        pair = f"{quote_plus(settings.client_id)}:{quote_plus(settings.secret)}"
        return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}

    def _lacks(self, claims: Mapping[str, Any]) -> bool:
        """Whether the ID token leaves out what this server needs: many providers say that at another address only."""
        settings = self.settings
        if "email" not in claims or "email_verified" not in claims:
            return True
        return settings.needs_groups and not read_groups(claims, settings.groups)

    def _identity(self, claims: Mapping[str, Any]) -> ProviderIdentity:
        settings, email = self.settings, claims.get("email")
        if not isinstance(email, str) or not is_email(email.lower()):
            raise SignInRefused(
                "no-email",
                f"{settings.host} names no e-mail address for you. Let the client have the scope email, and your account there "
                "an address.",
            )
        email, verified = email.lower(), claims.get("email_verified")
        if verified not in (True, "true") and not (verified is None and settings.trust_email):
            unsaid = "" if verified is not None else " (it leaves email_verified out; see --oidc-trust-email)"
            raise SignInRefused(
                "unverified-email",
                f"{settings.host} has not verified your e-mail address {email}{unsaid}. Verify it there, then sign in again.",
            )
        role = settings.choose_role(email, claims)
        if role is None:
            raise SignInRefused(
                "no-role",
                f"No rule of this server lets {email} in. An admin adds one (--oidc-role) or a group.",
            )
        return ProviderIdentity(settings.issuer, claims["sub"], email, role, bool(settings.rules))

    async def _fetch(
        self,
        session: aiohttp.ClientSession,
        method: str,
        url: str,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """The JSON object at an address of the provider. Raises ProviderDown, and SignInRefused for a code or a client that the
        provider does not take."""
        host, sent = self.settings.host, {"Accept": "application/json", **(headers or {})}
        try:
            async with session.request(method, url, data=form, headers=sent, allow_redirects=False) as answer:
                body = await _read(answer.content)
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            reason = str(error).strip() or type(error).__name__
            raise ProviderDown(f"The identity provider {host} does not answer: {reason[:200]}.") from None
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            value = None
        if status != 200:
            raise self._refuse_status(status, value)
        if not isinstance(value, dict):
            raise ProviderDown(f"The identity provider {host} answered with no JSON object.")
        return value

    def _refuse_status(self, status: int, value: object) -> SignInRefused:
        code, host = value.get("error") if isinstance(value, dict) else None, self.settings.host
        code = code if isinstance(code, str) else ""
        if code == "invalid_grant":
            return SignInRefused(
                "code",
                f"{host} does not take the code: it was used already, is too old, or belongs to another sign-in. Sign in again.",
            )
        if code in _CODES:
            return SignInRefused(
                "client",
                f"{host} does not accept this server ({code}). An admin checks --oidc-client-id, WHET_OIDC_CLIENT_SECRET and the "
                "client's settings there.",
                502,
            )
        return ProviderDown(f"The identity provider {host} answered with the status {status}.")


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=SECONDS), cookie_jar=aiohttp.DummyCookieJar(), trust_env=True
    )


async def _read(content: aiohttp.StreamReader) -> bytes:
    body = bytearray()
    async for piece in content.iter_any():
        body += piece
        if len(body) > MOST_BYTES:
            raise ValueError(f"its answer is longer than {MOST_BYTES:,} bytes")
    return bytes(body)


def read_document(value: Mapping[str, Any], issuer: str) -> ProviderDocument:
    """The contents of a discovery document. Raises UsageError for a document of another issuer, or one that lacks an entry that
    sign-in needs."""
    if value.get("issuer") != issuer:
        raise UsageError(
            f'The document of {issuer} names the issuer "{str(value.get("issuer"))[:200]}". Give --oidc-issuer exactly as it is '
            "there, if that is your provider."
        )

    def address(name: str, needed: bool = True) -> str:
        text = value.get(name)
        if not isinstance(text, str) or not text:
            if needed:
                raise UsageError(
                    f"The document of {issuer} lacks {name}. Is it a provider of OpenID Connect?"
                )
            return ""
        check_address(text, issuer, f"{name} of {issuer}")
        return text

    methods = value.get("token_endpoint_auth_methods_supported")
    posts = (
        isinstance(methods, list) and "client_secret_post" in methods and "client_secret_basic" not in methods
    )
    return ProviderDocument(
        authorize=address("authorization_endpoint"),
        token=address("token_endpoint"),
        keys=address("jwks_uri"),
        userinfo=address("userinfo_endpoint", False),
        sign_out=address("end_session_endpoint", False),
        posts_secret=posts,
        names_itself=value.get("authorization_response_iss_parameter_supported") is True,
    )


def join_claims(claims: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The claims of the ID token with what only the userinfo address says of the same person. Raises SignInRefused where it
    speaks of somebody else."""
    if more.get("sub") != claims["sub"]:
        raise SignInRefused("userinfo", "The identity provider described somebody else. Sign in again.")
    joined = {**more, **claims}
    if "email" in claims and "email_verified" not in claims and more.get("email") != claims["email"]:
        joined.pop("email_verified", None)
    return joined


def open_provider(settings: OidcSettings) -> tuple[IdentityProvider, str]:
    """The provider, and what is to be said of it at the start: empty where it answers. Raises UsageError for one that cannot be
    used."""
    provider = IdentityProvider(settings)
    try:
        asyncio.run(provider.document())
    except SignInRefused as error:
        return provider, f"Warning: {error.message} Nobody can sign in there until it does; tokens work."
    return provider, ""

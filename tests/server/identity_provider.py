"""An identity provider for tests: a real HTTP server on this machine with RSA keys, as strict or as hostile as a test says."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

CLIENT, SECRET = "whet", "the secret/of:the client"


@cache
def key_named(name: str) -> rsa.RSAPrivateKey:
    """The private key of that name, made once."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def public_pem(name: str) -> bytes:
    """The public key as everybody can read it."""
    return (
        key_named(name)
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def jwk(name: str, **more: Any) -> dict[str, Any]:
    """The public key as the provider publishes it."""
    listed: dict[str, Any] = RSAAlgorithm.to_jwk(key_named(name).public_key(), as_dict=True)
    return {**listed, "kid": name, "use": "sig", **more}


@dataclass
class Provider:
    """The provider: who signs in next, what its answers hold, and what it was asked."""

    address: str
    person: dict[str, Any] = field(
        default_factory=lambda: {"sub": "s-ada", "email": "ada@example.org", "email_verified": True}
    )
    claims: dict[str, Any] = field(default_factory=dict)
    """Claims of the ID token in place of the right ones; None leaves one out."""
    thin: bool = False
    """The ID token names no person but its subject; the rest is at the userinfo address."""
    userinfo: dict[str, Any] = field(default_factory=dict)
    key: str = "first"
    published: list[str] = field(default_factory=lambda: ["first"])
    sign: Callable[[dict[str, Any]], str] | None = None
    document: dict[str, Any] = field(default_factory=dict)
    strict: bool = True
    """A code works once, with its verifier and its redirect address."""
    secret: str = SECRET
    down: bool = False
    answers: threading.Event = field(default_factory=threading.Event)
    """Cleared, it takes requests and answers none until this is set."""
    broken: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """Status and body of an answer, by path, in place of the right one. A redirection leads to /elsewhere."""
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def authorize(self, url: str) -> str:
        """What a browser gets that follows the link of whet and signs in: the address that it is sent back to."""
        query = self.read(url)
        assert query["client_id"] == CLIENT and query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256" and "openid" in query["scope"].split()
        code = f"code-{len(self.codes)}"
        self.codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def read(self, url: str) -> dict[str, str]:
        """The query of a request to the provider's page."""
        assert url.startswith(f"{self.address}/authorize?"), url
        return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}

    def answer(self, path: str, form: dict[str, str], authorization: str) -> tuple[int, object]:
        """The status and the JSON of an answer."""
        self.asked.append((path, form))
        if self.down:
            return 503, "down"
        if path == "/.well-known/openid-configuration":
            base = {
                "issuer": self.address,
                "authorization_endpoint": f"{self.address}/authorize",
                "token_endpoint": f"{self.address}/token",
                "jwks_uri": f"{self.address}/keys",
                "userinfo_endpoint": f"{self.address}/userinfo",
                "end_session_endpoint": f"{self.address}/bye",
            }
            return 200, {key: value for key, value in {**base, **self.document}.items() if value is not None}
        if path == "/keys":
            return 200, {"keys": [jwk(name) for name in self.published]}
        if path == "/userinfo":
            known = authorization == "Bearer the-access-token"
            return (200, {**self.person, **self.userinfo}) if known else (401, {})
        return self.redeem(form, authorization) if path == "/token" else (404, {})

    def redeem(self, form: dict[str, str], authorization: str) -> tuple[int, object]:
        basic = base64.b64encode(b"whet:the+secret%2Fof%3Athe+client").decode()
        sent = authorization == f"Basic {basic}" or form.get("client_secret") == self.secret
        if self.secret and not sent:
            return 401, {"error": "invalid_client"}
        request = self.codes.get(form["code"])
        if self.strict:
            self.codes.pop(form["code"], None)
        if request is None:
            return 400, {"error": "invalid_grant"}
        challenge = hashlib.sha256(form["code_verifier"].encode()).digest()
        same = base64.urlsafe_b64encode(challenge).rstrip(b"=").decode() == request["code_challenge"]
        if self.strict and not (same and form["redirect_uri"] == request["redirect_uri"]):
            return 400, {"error": "invalid_grant"}
        return 200, {
            "access_token": "the-access-token",
            "token_type": "Bearer",
            "id_token": self.token(request["nonce"]),
        }

    def token(self, nonce: str) -> str:
        """The ID token for a sign-in with that nonce."""
        moment = int(time.time())
        person = {"sub": self.person["sub"]} if self.thin else self.person
        right = {"iss": self.address, "aud": CLIENT, "iat": moment, "exp": moment + 300, "nonce": nonce}
        claims = {
            name: value for name, value in {**right, **person, **self.claims}.items() if value is not None
        }
        if self.sign is not None:
            return self.sign(claims)
        return jwt.encode(claims, key_named(self.key), "RS256", headers={"kid": self.key})


@contextmanager
def identity_provider() -> Iterator[Provider]:
    """A provider that runs in a thread."""
    provider = Provider("")
    provider.answers.set()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply({})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self.reply({name: values[0] for name, values in parse_qs(body).items()})

        def reply(self, form: dict[str, str]) -> None:
            path = urlsplit(self.path).path
            status, value = provider.answer(path, form, self.headers.get("Authorization", ""))
            status, body = provider.broken.get(path, (status, json.dumps(value).encode()))
            provider.answers.wait()
            self.send_response(status)
            if status == 302:
                self.send_header("Location", f"{provider.address}/elsewhere")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            with contextlib.suppress(OSError):  # nobody waits any more
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        provider.answers.set()
        server.shutdown()
        thread.join()
        server.server_close()

"""Sign-in at an identity provider, by real HTTP between a browser, the server and a provider: the way in, roles, the audit log,
the end of sessions, and attacks."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from tests.server.client import Answer, Client
from tests.server.conftest import PATIENCE, Running, Start, running
from tests.server.identity_provider import (
    CLIENT,
    SECRET,
    Provider,
    identity_provider,
    jwk,
    key_named,
    public_pem,
)
from whet.errors import UsageError
from whet.prompt import Prompt
from whet_live.registry import Decision
from whet_live.server.oidc.settings import OidcSettings, RoleRule
from whet_live.server.roles import Role

BACK = "/login/oidc/callback"


@pytest.fixture
def provider() -> Iterator[Provider]:
    with identity_provider() as running_provider:
        yield running_provider


def settings(provider: Provider, *rules: RoleRule, **more: Any) -> OidcSettings:
    return OidcSettings(provider.address, CLIENT, SECRET, rules, **more)


@pytest.fixture
def server(start: Start, provider: Provider) -> Iterator[Running]:
    with start(oidc=settings(provider)) as served:
        yield served


@dataclass
class Browser:
    """A browser as far as sign-in goes: it keeps cookies, and follows nothing by itself."""

    port: int
    jar: dict[str, str] = field(default_factory=dict)

    def get(self, address: str, **headers: str) -> Answer:
        parts = urlsplit(address)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        client = Client(self.port)
        client.cookie = "; ".join(f"{name}={value}" for name, value in self.jar.items())
        answer = client.ask("GET", path, None, Accept="text/html", **headers)
        self.keep(answer)
        return answer

    def keep(self, answer: Answer) -> None:
        """Take the cookies of an answer, of which the test client joins several by a comma."""
        for one in re.split(r",\s*(?=[\w-]+=)", answer.headers.get("set-cookie", "")):
            name, _, value = one.partition(";")[0].partition("=")
            if not value.strip('"'):
                self.jar.pop(name, None)
            else:
                self.jar[name] = value

    def begin(self, page: str = "/") -> str:
        """The address at the provider to which the server sends this browser."""
        answer = self.get(f"/login/oidc?next={quote(page, safe='')}")
        assert answer.status == 303, answer.text
        return answer.headers["location"]

    def sign_in(self, provider: Provider, page: str = "/") -> Answer:
        """All the way: the answer to the browser that came back."""
        return self.get(provider.authorize(self.begin(page)))

    def client(self) -> Client:
        """A client of the pages with the session of this browser."""
        client = Client(self.port)
        client.cookie = f"whet_session={self.jar.get('whet_session', '')}"
        shown = re.search(r'name="csrf" value="([0-9a-f]+)"', client.page("/prompts").text)
        client.csrf = shown[1] if shown else ""
        return client


def name_shown(client: Client) -> str:
    """Who the page says is signed in, with the role; empty for nobody."""
    shown = re.search(r"<span>([^<]+)<small>(\w+)</small>", client.page("/prompts").text)
    return f"{shown[1]} {shown[2]}" if shown else ""


def reason(answer: Answer) -> str:
    """Why a page says that nobody is signed in."""
    shown = re.search(r'<p role="alert" class="alert">(.*?)</p>', answer.text)
    assert shown is not None and "Not signed in" in answer.text, answer.text
    return shown[1]


def refused(answer: Answer, words: str, status: int = 403) -> None:
    """The sign-in was refused with these words, and no session was opened."""
    assert answer.status == status and words in reason(answer), (answer.status, answer.text)
    assert "whet_session=" not in answer.headers.get("set-cookie", "")


def entries(server: Running, action: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Actor, subject and details in the audit log, the oldest first."""
    items = server.state.live.registry.audit(limit=100).items
    return [(e.actor, e.subject, dict(e.details)) for e in reversed(items) if e.action == action]


def test_the_way_in_and_out(server: Running, provider: Provider) -> None:
    browser = Browser(server.port)
    login = browser.get("/login?next=%2Freview")
    assert f"Sign in with {urlsplit(provider.address).netloc}" in login.text and 'name="token"' in login.text
    assert f'href="http://127.0.0.1:{server.port}/login/oidc?next=%2Freview"' in login.text
    there = browser.begin("/review")
    asked = provider.read(there)
    assert (
        asked["redirect_uri"] == f"http://127.0.0.1:{server.port}{BACK}" and asked["scope"] == "openid email"
    )
    assert {len(asked[name]) for name in ("state", "nonce", "code_challenge")} == {43}
    assert len({asked["state"], asked["nonce"], asked["code_challenge"]}) == 3
    answer = browser.get(provider.authorize(there))
    assert answer.status == 200 and '<meta http-equiv="refresh" content="0; url=/review">' in answer.text
    cookies = answer.headers["set-cookie"]
    assert re.search(r"whet_session=[\w-]{43}; HttpOnly; Max-Age=43200; Path=/; SameSite=strict", cookies), (
        cookies
    )
    assert "whet_sign_in" not in browser.jar
    client = browser.client()
    assert name_shown(client) == "ada@example.org viewer"
    assert client.page("/access").status == 403 and client.page("/new").status == 403
    out = client.submit("/logout", {})
    assert out.status == 303 and out.headers["location"] == "/login?signed-out=1"
    assert name_shown(client) == ""
    farewell = Client(server.port).page(out.headers["location"])
    assert f'href="{provider.address}/bye?client_id=whet"' in farewell.text


def test_the_cookie_of_a_sign_in_comes_back_from_another_site_and_scripts_do_not_see_it(
    server: Running,
) -> None:
    answer = Client(server.port).page("/login/oidc")
    assert re.fullmatch(
        r"whet_sign_in=[\w.-]+; HttpOnly; Max-Age=600; Path=/; SameSite=lax", answer.headers["set-cookie"]
    )


def test_behind_a_proxy_the_public_address_counts(start: Start, provider: Provider) -> None:
    with start(oidc=settings(provider), url="https://whet.example.org") as server:
        client = Client(server.port)
        answer = client.ask("GET", "/login/oidc", None, Host="whet.example.org")
        query = provider.read(answer.headers["location"])
        assert query["redirect_uri"] == f"https://whet.example.org{BACK}"
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-whet_sign_in=") and "Secure" in cookie
        back = urlsplit(provider.authorize(answer.headers["location"]))
        sent = {"Host": "whet.example.org", "Cookie": cookie.partition(";")[0]}
        done = client.ask("GET", f"{back.path}?{back.query}", None, **sent)
        assert done.status == 200 and "__Host-whet_session=" in done.headers["set-cookie"]
        assert provider.asked[-2][1]["redirect_uri"] == f"https://whet.example.org{BACK}"
        login = client.ask("GET", "/login", None, Host="127.0.0.1", Accept="text/html")
        assert 'href="https://whet.example.org/login/oidc?next=%2F"' in login.text


@pytest.mark.parametrize(
    "page",
    [
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "/\t/evil.example",
        "javascript:alert(1)",
        "evil",
    ],
)
def test_nobody_is_sent_to_another_site(server: Running, provider: Provider, page: str) -> None:
    answer = Browser(server.port).sign_in(provider, page)
    assert '<meta http-equiv="refresh" content="0; url=/">' in answer.text and "evil" not in answer.text


@pytest.mark.parametrize(
    "page", ["/prompts/größe/日本?label=a&b=1", "/x'\";url=//evil.example", "/" + "x" * 1_100]
)
def test_pages_of_every_script_are_gone_on_to(server: Running, provider: Provider, page: str) -> None:
    answer = Browser(server.port).sign_in(provider, page)
    shown = re.search(r'http-equiv="refresh" content="0; url=([^"]*)"', answer.text)
    assert answer.status == 200 and shown is not None
    escaped = page.replace("&", "&amp;").replace("'", "&#x27;").replace('"', "&quot;")
    assert shown[1] == escaped


def test_a_page_that_no_cookie_holds_is_the_first_page(server: Running, provider: Provider) -> None:
    assert 'url=/"' in Browser(server.port).sign_in(provider, "/" + "日" * 500).text


def test_roles_come_from_groups_domains_and_addresses(start: Start, provider: Provider) -> None:
    rules = (
        RoleRule(Role.APPROVER, "group", "prompt approvers"),
        RoleRule(Role.EDITOR, "domain", "example.org"),
        RoleRule(Role.ADMIN, "email", "carl@example.net"),
    )
    who = {
        "ada@example.org": ([], "editor"),
        "Bob@Example.ORG": (["prompt approvers", "x"], "approver"),
        "carl@example.net": (["prompt approvers"], "admin"),
        "dora@sub.example.org": (["Prompt Approvers"], "viewer"),
        "eve@notexample.org": ("prompt approvers", "approver"),
    }
    with start(oidc=settings(provider, *rules)) as server:
        for email, (groups, role) in who.items():
            provider.person = {"sub": email, "email": email, "email_verified": True, "groups": groups}
            browser = Browser(server.port)
            browser.sign_in(provider)
            assert name_shown(browser.client()) == f"{email.lower()} {role}"


def test_a_role_that_changes_at_the_provider_changes_at_the_next_sign_in(
    start: Start, provider: Provider
) -> None:
    rules = (RoleRule(Role.APPROVER, "group", "approvers"),)
    with start(oidc=settings(provider, *rules, default=None, groups="realm_access.roles")) as server:
        provider.person["realm_access"] = {"roles": ["approvers"]}
        browser = Browser(server.port)
        browser.sign_in(provider)
        assert name_shown(browser.client()) == "ada@example.org approver"
        server.state.access.set_role("ada@example.org", Role.VIEWER, by="admin")
        browser.sign_in(provider)
        assert name_shown(browser.client()) == "ada@example.org approver", "the rules decide"
        provider.person["realm_access"] = {"roles": []}
        refused(browser.sign_in(provider), "No rule of this server lets ada@example.org in.")
        changes = [entry for entry in entries(server, "access.role") if entry[1] == "user:ada@example.org"]
        assert [(actor, details) for actor, _, details in changes] == [
            ("admin", {"role": "viewer"}),
            ("identity provider", {"role": "approver"}),
        ]


def test_without_rules_an_admin_gives_roles(server: Running, provider: Provider) -> None:
    browser = Browser(server.port)
    browser.sign_in(provider)
    server.state.access.set_role("ada@example.org", Role.EDITOR, by="admin")
    browser.sign_in(provider)
    assert name_shown(browser.client()) == "ada@example.org editor"
    assert browser.client().page("/new").status == 200


def test_the_audit_log_names_people_by_their_address(server: Running, provider: Provider) -> None:
    browser = Browser(server.port)
    browser.sign_in(provider)
    server.state.access.set_role("ada@example.org", Role.EDITOR, by="admin")
    client = browser.client()
    assert client.submit("/new", {"name": "shop/help", "text": "Help.", "message": "first"}).status == 303
    assert entries(server, "version.create")[0][:2] == ("ada@example.org", "shop/help")
    who = {"email": "ada@example.org", "issuer": provider.address, "subject": "s-ada"}
    assert entries(server, "access.sign_in") == [("ada@example.org", "user:ada@example.org", who)]
    (added,) = [entry for entry in entries(server, "access.add") if entry[1] == "user:ada@example.org"]
    assert added == ("identity provider", "user:ada@example.org", {"role": "viewer"})
    assert "s-ada" in client.page("/audit").text
    assert server.state.live.registry.verify_audit().whole


def test_the_name_of_an_account_stays_when_the_address_changes(server: Running, provider: Provider) -> None:
    browser = Browser(server.port)
    browser.sign_in(provider)
    provider.person = {"sub": "s-ada", "email": "ada.lovelace@example.org", "email_verified": True}
    browser.sign_in(provider)
    assert name_shown(browser.client()) == "ada@example.org viewer"
    assert [details["email"] for _, _, details in entries(server, "access.sign_in")] == [
        "ada@example.org",
        "ada.lovelace@example.org",
    ]


def test_an_address_that_somebody_else_got_does_not_open_the_account(
    server: Running, provider: Provider
) -> None:
    Browser(server.port).sign_in(provider)
    provider.person["sub"] = "s-another"
    refused(Browser(server.port).sign_in(provider), "whet access link ada@example.org ada@example.org")


def test_an_account_with_a_token_is_not_taken_over_but_linked(server: Running, provider: Provider) -> None:
    access = server.state.access
    access.add("Ada@example.org", Role.ADMIN, by="test")
    refused(Browser(server.port).sign_in(provider), "There is an account Ada@example.org")
    access.link("approver", "Ada@Example.org", by="admin")
    browser = Browser(server.port)
    browser.sign_in(provider)
    assert name_shown(browser.client()) == "approver approver"
    provider.person["email"] = "married@example.org"
    browser.sign_in(provider)
    assert name_shown(browser.client()) == "approver approver", "the subject is known now"
    assert entries(server, "access.link") == [("admin", "user:approver", {"email": "ada@example.org"})]
    (linked,) = [user.email for user in access.users() if user.name == "approver"]
    assert linked == "married@example.org"
    assert ", signs in at the provider as married@example.org" in server.browser("admin").page("/access").text


def test_a_link_moves_a_person_to_the_account_that_they_had(server: Running, provider: Provider) -> None:
    browser = Browser(server.port)
    browser.sign_in(provider)
    old = browser.client()
    server.state.access.link("editor", "ada@example.org", by="admin")
    another = Browser(server.port)
    another.sign_in(provider)
    assert name_shown(another.client()) == "editor editor"
    server.state.forget()
    assert name_shown(old) == "", "one person, one account"


@pytest.mark.parametrize("linked", [("approver", "ada@example.org"), ("ada@example.org", "approver")])
def test_two_accounts_of_one_person_are_one_where_somebody_approves(
    server: Running, provider: Provider, linked: tuple[str, str]
) -> None:
    """Also where the application calls people by their address: the server knows whose it is."""
    author, decider = linked
    access, registry = server.state.access, server.state.live.registry
    Browser(server.port).sign_in(provider)
    access.set_role("ada@example.org", Role.APPROVER, by="admin")
    registry.create("shop/help", Prompt.parse("Help."), author="editor", label="staging")
    registry.protect("shop/help", "production", actor="admin")
    for number in (2, 3):
        registry.create("shop/help", Prompt.parse(f"Help {number}."), author="editor")
    moves = [registry.request_move("shop/help", "production", v, actor=author) for v in (2, 3)]
    access.link("approver", "ada@example.org", by="admin")
    with pytest.raises(UsageError, match=f"{decider} made this proposal"):
        registry.decide(moves[0].id, Decision("approve"), actor=decider)
    assert registry.decide(moves[1].id, Decision("approve"), actor="admin").state == "approved"


def test_a_disabled_account_stays_out(server: Running, provider: Provider) -> None:
    browser = Browser(server.port)
    browser.sign_in(provider)
    admin = server.browser("admin")
    assert admin.submit("/access/ada@example.org/role", {"role": "none"}).status == 303
    assert name_shown(browser.client()) == ""
    refused(browser.sign_in(provider), "ada@example.org is disabled here.")


def test_rules_do_not_take_the_last_way_in(start: Start, provider: Provider) -> None:
    rules = (RoleRule(Role.EDITOR, "domain", "example.org"),)
    with start(oidc=settings(provider, *rules)) as server:
        server.state.access.link("admin", "ada@example.org", by="admin")
        refused(Browser(server.port).sign_in(provider), "admin holds the last token of the last admin.")
        assert entries(server, "access.sign_in") == []


@pytest.mark.parametrize(
    ("person", "words"),
    [
        ({"email_verified": False}, "has not verified your e-mail address ada@example.org. Verify it there"),
        ({"email_verified": "false"}, "has not verified"),
        ({"email_verified": None}, "it leaves email_verified out; see --oidc-trust-email"),
        ({"email": None}, "names no e-mail address for you"),
        ({"email": ["ada@example.org"]}, "names no e-mail address for you"),
        ({"email": "ada"}, "names no e-mail address for you"),
        ({"email": "o'hara@example.org"}, "cannot be the name of an account"),
        ({"email": f"{'a' * 60}@example.org"}, "cannot be the name of an account"),
    ],
)
def test_addresses_that_do_not_count_are_named(
    server: Running, provider: Provider, person: dict[str, Any], words: str
) -> None:
    provider.document = {"userinfo_endpoint": None}
    server.state.provider._due = 0.0  # type: ignore[union-attr]
    provider.person |= person
    refused(Browser(server.port).sign_in(provider), words.replace("'", "&#x27;"))
    assert all(user.name in ("viewer", *server.tokens) for user in server.state.access.users())


def test_a_provider_that_never_says_what_it_verified_can_be_trusted(start: Start, provider: Provider) -> None:
    provider.document = {"userinfo_endpoint": None}
    del provider.person["email_verified"]
    with start(oidc=settings(provider, trust_email=True)) as server:
        assert Browser(server.port).sign_in(provider).status == 200
        provider.person = {"sub": "s-eve", "email": "eve@example.org", "email_verified": False}
        refused(Browser(server.port).sign_in(provider), "has not verified")


def test_what_the_id_token_leaves_out_is_read_at_the_userinfo_address(
    start: Start, provider: Provider
) -> None:
    provider.thin = True
    provider.person["groups"] = ["approvers"]
    with start(oidc=settings(provider, RoleRule(Role.APPROVER, "group", "approvers"))) as server:
        browser = Browser(server.port)
        browser.sign_in(provider)
        assert name_shown(browser.client()) == "ada@example.org approver"
        provider.userinfo = {"sub": "s-another"}
        refused(Browser(server.port).sign_in(provider), "described somebody else")


def test_userinfo_does_not_verify_another_address_of_the_id_token(
    server: Running, provider: Provider
) -> None:
    provider.person["email_verified"] = None
    provider.claims = {"email": "boss@example.org", "email_verified": None}
    provider.userinfo = {"email": "ada@example.org", "email_verified": True}
    refused(Browser(server.port).sign_in(provider), "has not verified your e-mail address boss@example.org")


def forge(header: dict[str, Any], claims: dict[str, Any], secret: bytes | None) -> str:
    """A token made by hand: signed with a secret by HMAC, or not at all."""

    def part(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).rstrip(b"=").decode()

    text = f"{part(json.dumps(header).encode())}.{part(json.dumps(claims).encode())}"
    return (
        f"{text}."
        if secret is None
        else f"{text}.{part(hmac.new(secret, text.encode(), hashlib.sha256).digest())}"
    )


@pytest.mark.parametrize(
    ("sign", "words"),
    [
        (lambda c: forge({"alg": "none", "typ": "JWT"}, c, None), "signed with &quot;none&quot;"),
        (lambda c: forge({"alg": "None"}, c, None), "signed with &quot;None&quot;"),
        (
            lambda c: forge({"alg": "HS256", "kid": "first"}, c, public_pem("first")),
            "signed with &quot;HS256&quot;",
        ),
        (lambda c: forge({"alg": "HS256"}, c, SECRET.encode()), "signed with &quot;HS256&quot;"),
        (lambda c: jwt.encode(c, key_named("evil"), "RS256", headers={"kid": "first"}), "fits no key"),
        (lambda c: jwt.encode(c, key_named("evil"), "RS256", headers={"kid": "evil"}), "fits no key"),
        (lambda c: jwt.encode(c, key_named("evil"), "RS256", headers={"jwk": jwk("evil")}), "fits no key"),
        (
            lambda c: jwt.encode(c, key_named("first"), "RS256", headers={"crit": ["x"], "x": 1}),
            "that is none",
        ),
        (lambda c: "no.token", "sent an ID token that is none"),
    ],
    ids=[
        "none",
        "None",
        "HS256 by the public key",
        "HS256 by the secret",
        "key",
        "unknown key",
        "own key",
        "crit",
        "junk",
    ],
)
def test_tokens_that_the_provider_did_not_sign_are_refused(
    server: Running, provider: Provider, sign: Any, words: str
) -> None:
    provider.sign = sign
    refused(Browser(server.port).sign_in(provider), words)


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"nonce": "another"}, "for another sign-in (nonce)"),
        ({"nonce": None}, "lacks the claim nonce"),
        ({"nonce": "\ud800"}, "for another sign-in (nonce)"),
        ({"aud": "another"}, "for another client"),
        ({"aud": ["another", "more"]}, "for another client"),
        ({"aud": [CLIENT, "another"]}, "for another client"),
        ({"aud": [CLIENT, "another"], "azp": "another"}, "for another client"),
        ({"azp": "another"}, "for another client"),
        ({"aud": None}, "lacks the claim aud"),
        ({"iss": "https://evil.example"}, "of another issuer"),
        ({"iss": None}, "lacks the claim iss"),
        ({"exp": 1_000}, "had ended before it arrived. This server&#x27;s clock says 20"),
        ({"exp": None}, "lacks the claim exp"),
        ({"exp": "soon"}, "cannot be used"),
        ({"exp": True}, "exp is no number"),
        ({"exp": float("nan")}, "had ended before it arrived"),
        ({"iat": 4_000_000_000}, "from the future. This server&#x27;s clock says 20"),
        ({"nbf": 4_000_000_000}, "from the future"),
        ({"iat": None}, "lacks the claim iat"),
        ({"sub": None}, "lacks the claim sub"),
        ({"sub": ""}, "no usable subject"),
        ({"sub": "x" * 256}, "no usable subject"),
        ({"sub": 7}, "cannot be used"),
    ],
    ids=lambda value: json.dumps(value)[:40] if isinstance(value, dict) else "",
)
def test_tokens_for_something_else_are_refused(
    server: Running, provider: Provider, claims: dict[str, Any], words: str
) -> None:
    provider.claims = claims
    provider.thin = "sub" in claims and claims["sub"] is None
    refused(Browser(server.port).sign_in(provider), words)


def test_clocks_may_differ_by_a_minute(server: Running, provider: Provider) -> None:
    moment = int(time.time())
    for claims, status in (
        ({"exp": moment - 30}, 200),
        ({"iat": moment + 30, "nbf": moment + 30}, 200),
        ({"exp": moment - 90}, 403),
        ({"iat": moment + 120}, 403),
    ):
        provider.claims = claims
        assert Browser(server.port).sign_in(provider).status == status, claims


def test_a_rotated_key_works_at_once_and_a_withdrawn_one_no_more(server: Running, provider: Provider) -> None:
    assert Browser(server.port).sign_in(provider).status == 200
    provider.published, provider.key = ["first", "second"], "second"
    assert Browser(server.port).sign_in(provider).status == 200
    provider.published, provider.key = ["second"], "first"
    refused(Browser(server.port).sign_in(provider), "fits no key")
    provider.sign = lambda claims: jwt.encode(claims, key_named("second"), "PS256")
    assert Browser(server.port).sign_in(provider).status == 200, "a token without a key's name"
    provider.sign = lambda claims: jwt.encode(claims, key_named("second"), "RS256", headers={"kid": "gone"})
    refused(Browser(server.port).sign_in(provider), "fits no key")


def test_a_sign_in_works_once(server: Running, provider: Provider) -> None:
    provider.strict = False  # a provider that takes a code twice
    browser = Browser(server.port)
    back = provider.authorize(browser.begin())
    copied = dict(browser.jar)
    assert browser.get(back).status == 200
    refused(browser.get(back), "did not begin this sign-in")
    refused(Browser(server.port, copied).get(back), "This sign-in was used already.")
    provider.strict = True
    again = provider.authorize(browser.begin())
    copied = dict(browser.jar)
    assert browser.get(again).status == 200
    refused(Browser(server.port, copied).get(again), "does not take the code: it was used already")


def test_of_two_that_use_a_sign_in_at_once_one_gets_in(server: Running, provider: Provider) -> None:
    provider.strict = False
    browser = Browser(server.port)
    back = provider.authorize(browser.begin())
    statuses: list[int] = []
    threads = [
        threading.Thread(
            target=lambda: statuses.append(Browser(server.port, dict(browser.jar)).get(back).status)
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200, 403, 403, 403]


def test_the_answer_to_another_browser_signs_nobody_in(server: Running, provider: Provider) -> None:
    """An attacker sends a victim the link with which the attacker would be signed in."""
    attacker, victim = Browser(server.port), Browser(server.port)
    link = provider.authorize(attacker.begin())
    refused(victim.get(link), "did not begin this sign-in")
    victim.begin()
    mine = dict(victim.jar)
    refused(victim.get(link), "did not begin this sign-in")
    assert victim.jar == mine, "the victim's own sign-in goes on"
    assert [path for path, _ in provider.asked if path == "/token"] == [], "the provider is not asked"


@pytest.mark.parametrize("part", [0, 1, 2])
def test_a_cookie_that_was_changed_fits_no_answer(server: Running, provider: Provider, part: int) -> None:
    browser = Browser(server.port)
    back = provider.authorize(browser.begin("/review"))
    parts = browser.jar["whet_sign_in"].split(".")
    parts[part] = {0: str(int(parts[0]) + 1), 1: "x" * 43, 2: "L3Byb21wdHM"}[part]
    browser.jar["whet_sign_in"] = ".".join(parts)
    refused(browser.get(back), "did not begin this sign-in")


@pytest.mark.parametrize(
    "cookie", ["", "x", "1.2", "1.2.3.4", "-1.x.Lw", "9" * 30 + ".x.Lw", "1.x.%", "1.x.gIA"]
)
def test_a_cookie_that_is_none_is_nobodys(server: Running, cookie: str) -> None:
    browser = Browser(server.port, {"whet_sign_in": cookie} if cookie else {})
    refused(browser.get(f"{BACK}?state=x&code=y"), "did not begin this sign-in")
    refused(browser.get(BACK), "did not begin this sign-in")


def test_a_sign_in_that_takes_too_long_is_over(server: Running, provider: Provider) -> None:
    browser = Browser(server.port)
    back = provider.authorize(browser.begin())
    access = server.state.access
    access._clock = lambda: int((time.time() + 601) * 1e6)
    refused(browser.get(back), "took longer than 10 minutes")


def test_a_session_that_somebody_chose_before_is_worth_nothing_after(
    server: Running, provider: Provider
) -> None:
    """Session fixation: the attacker plants a cookie, and the victim signs in."""
    for planted in ("A" * 43, server.browser("viewer").cookie.partition("=")[2]):
        browser = Browser(server.port, {"whet_session": planted})
        before = name_shown(browser.client())
        assert browser.sign_in(provider).status == 200
        assert browser.jar["whet_session"] != planted
        attacker = Client(server.port)
        attacker.cookie = f"whet_session={planted}"
        assert name_shown(attacker) == before and "ada" not in before


def test_forms_need_the_secret_of_the_session(server: Running, provider: Provider) -> None:
    browser = Browser(server.port)
    browser.sign_in(provider)
    client = browser.client()
    assert client.submit("/logout", {"csrf": "x"}).status == 403
    assert client.submit("/logout", {}, Origin="https://evil.example").status == 403
    assert name_shown(client) == "ada@example.org viewer"


def test_an_error_of_the_provider_is_said_without_its_words(server: Running, provider: Provider) -> None:
    browser = Browser(server.port)
    state = provider.read(browser.begin())["state"]
    answer = browser.get(f"{BACK}?error=access_denied&error_description=Call+0900&state={state}")
    refused(answer, "did not let you in (access_denied).")
    assert "0900" not in answer.text
    state = provider.read(browser.begin())["state"]
    answer = browser.get(f"{BACK}?error=Call+0900+now&state={state}")
    refused(answer, "did not let you in.")
    refused(Browser(server.port).get(f"{BACK}?error=access_denied&state=x"), "did not begin this sign-in")


def test_an_answer_that_names_another_provider_is_refused(start: Start, provider: Provider) -> None:
    provider.document = {"authorization_response_iss_parameter_supported": True}
    with start(oidc=settings(provider)) as server:
        browser = Browser(server.port)
        refused(
            browser.get(provider.authorize(browser.begin()) + "&iss=https%3A%2F%2Fevil.example"),
            "another identity provider",
        )
        refused(browser.get(provider.authorize(browser.begin())), "another identity provider")
        own = quote(provider.address, safe="")
        assert browser.get(provider.authorize(browser.begin()) + f"&iss={own}").status == 200


@pytest.mark.parametrize(
    "methods", [["client_secret_post"], ["client_secret_basic", "client_secret_post"], None]
)
def test_the_secret_goes_the_way_that_the_provider_takes(
    start: Start, provider: Provider, methods: Any
) -> None:
    provider.document = {"token_endpoint_auth_methods_supported": methods}
    with start(oidc=settings(provider)) as server:
        assert Browser(server.port).sign_in(provider).status == 200
    (form,) = [form for path, form in provider.asked if path == "/token"]
    assert ("client_secret" in form) == (methods == ["client_secret_post"])


def test_a_client_without_a_secret_and_one_with_a_wrong_one(start: Start, provider: Provider) -> None:
    wrong = OidcSettings(provider.address, CLIENT, "wrong")
    with start(oidc=wrong) as server:
        refused(Browser(server.port).sign_in(provider), "WHET_OIDC_CLIENT_SECRET", 502)
    provider.secret = ""
    with start(oidc=OidcSettings(provider.address, CLIENT), roles=False) as server:
        assert Browser(server.port).sign_in(provider).status == 200
    assert provider.asked[-2][1]["client_id"] == CLIENT


def test_a_provider_that_fails_later_is_said_and_tokens_work(server: Running, provider: Provider) -> None:
    browser = Browser(server.port)
    back = provider.authorize(browser.begin())
    provider.down = True
    refused(browser.get(back), "answered with the status 503", 502)
    assert name_shown(server.browser("editor")) == "editor editor"
    provider.down = False
    assert Browser(server.port).sign_in(provider).status == 200


@pytest.mark.parametrize("path", ["/token", "/keys"])
@pytest.mark.parametrize(
    ("broken", "words", "status"),
    [
        ((302, b""), "answered with the status 302", 502),
        ((200, b"<html>"), "answered with no JSON object", 502),
        ((200, b"[]"), "answered with no JSON object", 502),
        ((200, b"[" * 100_000), "answered with no JSON object", 502),
        ((200, b" " * 1_100_000), "longer than 1,048,576 bytes", 502),
        ((400, b'{"error": ["invalid_grant"]}'), "answered with the status 400", 502),
        ((400, b'{"error": "invalid_grant"}'), "does not take the code", 403),
    ],
)
def test_answers_of_the_provider_that_are_none_are_said(
    server: Running, provider: Provider, path: str, broken: tuple[int, bytes], words: str, status: int
) -> None:
    provider.broken = {path: broken}
    refused(Browser(server.port).sign_in(provider), words, status)
    assert "/elsewhere" not in [asked for asked, _ in provider.asked]


@pytest.mark.parametrize(
    "keys", [b"{}", b'{"keys": 7}', b'{"keys": [7, {}, {"kty": "RSA", "n": "!", "e": 1, "kid": "first"}]}']
)
def test_keys_that_are_none_fit_no_signature(server: Running, provider: Provider, keys: bytes) -> None:
    provider.broken = {"/keys": (200, keys)}
    refused(Browser(server.port).sign_in(provider), "fits no key")


def test_a_short_key_signs_nothing(server: Running, provider: Provider) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        short = rsa.generate_private_key(public_exponent=65537, key_size=1024)
        listed = {**RSAAlgorithm.to_jwk(short.public_key(), as_dict=True), "kid": "first"}
        provider.broken = {"/keys": (200, json.dumps({"keys": [listed]}).encode())}
        provider.sign = lambda claims: jwt.encode(claims, short, "RS256", headers={"kid": "first"})
        refused(Browser(server.port).sign_in(provider), "fits no key")


def test_a_provider_that_is_slow_delays_nobody_else(
    server: Running, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whet_live.server.oidc.provider.SECONDS", 600.0)
    browsers = [Browser(server.port) for _ in range(40)]
    backs = [provider.authorize(browser.begin()) for browser in browsers]
    provider.answers.clear()
    answers: SimpleQueue[Answer] = SimpleQueue()
    threads = [
        threading.Thread(target=lambda pair=pair: answers.put(pair[0].get(pair[1])))
        for pair in zip(browsers, backs, strict=True)
    ]
    for thread in threads:
        thread.start()
    for _ in range(8):
        refused(answers.get(timeout=PATIENCE), "Too many people sign in at once", 502)
    assert answers.empty() and name_shown(server.browser("editor")) == "editor editor"
    provider.answers.set()
    for thread in threads:
        thread.join()
    names = [name_shown(browser.client()) for browser in browsers]
    assert sorted(names) == [""] * 8 + ["ada@example.org viewer"] * 32


def test_a_provider_that_does_not_answer_is_named(
    server: Running, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whet_live.server.oidc.provider.SECONDS", 0.2)
    browser = Browser(server.port)
    back = provider.authorize(browser.begin())
    provider.answers.clear()
    refused(browser.get(back), "does not answer: TimeoutError", 502)


def test_a_session_ends_after_its_hours(start: Start, provider: Provider) -> None:
    with start(oidc=settings(provider, session_seconds=3600)) as server:
        browser = Browser(server.port)
        answer = browser.sign_in(provider)
        assert "Max-Age=3600;" in answer.headers["set-cookie"]
        access = server.state.access
        for seconds, name in ((3_590, "ada@example.org viewer"), (3_601, "")):
            access._clock = lambda seconds=seconds: int((time.time() + seconds) * 1e6)  # type: ignore[misc]
            server.state.forget()
            assert name_shown(browser.client()) == name


def test_a_restart_keeps_sessions_and_signing_out_ends_them_everywhere(
    sqlite_url: str, provider: Provider
) -> None:
    with running(sqlite_url, oidc=settings(provider)) as server:
        browser = Browser(server.port)
        browser.sign_in(provider)
    with running(sqlite_url, roles=False, oidc=settings(provider)) as server:
        browser.port = server.port
        client = browser.client()
        assert name_shown(client) == "ada@example.org viewer"
        client.submit("/logout", {})
    with running(sqlite_url, roles=False) as server:
        browser.port = server.port
        assert name_shown(browser.client()) == ""


def test_a_sign_in_may_begin_at_one_server_and_end_at_another(
    postgresql_url: str, provider: Provider
) -> None:
    """A proxy in front of both: the browser sees one address."""
    provider.strict = False  # so that only the servers can notice what is used twice
    options = {"oidc": settings(provider), "url": "https://whet.example.org"}
    with ExitStack() as stack:
        first = stack.enter_context(running(postgresql_url, **options))
        second = stack.enter_context(running(postgresql_url, roles=False, **options))
        proxied = {"Host": "whet.example.org", "Accept": "text/html"}
        began = Client(first.port).ask("GET", "/login/oidc", None, **proxied)
        cookie = began.headers["set-cookie"].partition(";")[0]
        back = urlsplit(provider.authorize(began.headers["location"]))
        path = f"{back.path}?{back.query}"
        done = Client(second.port).ask("GET", path, None, Cookie=cookie, **proxied)
        assert done.status == 200
        again = Client(first.port).ask("GET", path, None, Cookie=cookie, **proxied)
        refused(again, "This sign-in was used already.")
        session = re.search(r"__Host-whet_session=[\w-]+", done.headers["set-cookie"])
        assert session is not None
        for server in (first, second):
            page = Client(server.port).ask("GET", "/prompts", None, Cookie=session[0], **proxied)
            assert "ada@example.org" in page.text


def test_without_a_provider_there_is_no_such_page(start: Start) -> None:
    with start() as server:
        assert server.client().page("/login/oidc").status == 404
        assert server.client().page(BACK).status == 404
        assert "/login/oidc" not in server.client().page("/login").text
        assert server.browser("viewer").submit("/logout", {}).headers["location"] == "/login"


def test_nothing_secret_is_logged(
    server: Running, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        browser = Browser(server.port)
        browser.sign_in(provider)
        provider.claims = {"nonce": "wrong"}
        browser.sign_in(provider)
    text = "\n".join(f"{record.getMessage()} {getattr(record, 'facts', '')}" for record in caplog.records)
    assert "{'refused': 'nonce'}" in text
    for secret in (SECRET, "code-0", "the-access-token", "eyJ", browser.jar["whet_session"], "state="):
        assert secret not in text


def test_the_query_of_the_provider_is_kept(start: Start, provider: Provider) -> None:
    provider.document = {"authorization_endpoint": f"{provider.address}/authorize?tenant=a"}
    with start(oidc=settings(provider, scopes=("groups", "email"))) as server:
        query = parse_qs(urlsplit(Browser(server.port).begin()).query)
        assert query["tenant"] == ["a"] and query["scope"] == ["openid email groups"]

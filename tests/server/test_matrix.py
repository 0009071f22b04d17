"""Every route and every kind of caller against the table in matrix.txt: METHOD PATH ROLE, and `app` where programs may."""

from __future__ import annotations

import re
from pathlib import Path

from starlette.routing import Route

from tests.server.conftest import ROLES, Running, Start
from whet_live.server.app import ROUTERS, Server
from whet_live.server.endpoint import Endpoint, routes
from whet_live.server.limits import ServerLimits, TokenBucket
from whet_live.server.roles import PAGES, PROGRAMS, PUBLIC, Role

TABLE = Path(__file__).with_name("matrix.txt")
PLENTY = TokenBucket(1e6, 1e6)
WIDE = ServerLimits(ingest=PLENTY, use=PLENTY, anonymous=PLENTY, failures=PLENTY)


def rows() -> list[list[str]]:
    return [line.split() for line in TABLE.read_text("utf-8").splitlines()]


def allowed(row: list[str], caller: str | None) -> bool:
    """What the table says about a caller."""
    needs, app = row[2], "app" in row[3:]
    if needs == "public":
        return True
    if caller is None or needs == "pages":
        return False
    if caller == "app":
        return app
    return needs != "programs" and Role[caller.upper()] >= Role[needs.upper()]


def test_the_table_is_the_router(server: Running) -> None:
    found = []
    for route in Server(server.state).routes:
        assert isinstance(route, Route) and isinstance(route.endpoint, Endpoint)
        endpoint = route.endpoint
        open_: dict[object, str] = {PUBLIC: "public", PROGRAMS: "programs", PAGES: "pages"}
        needs = getattr(endpoint.needs, "word", open_.get(endpoint.needs, "none"))
        assert (route.methods or set()) - {"HEAD"} == {endpoint.method} and route.path == endpoint.path
        found.append([endpoint.method, endpoint.path, needs, *(["app"] if endpoint.app else [])])
    assert sorted(found) == sorted(rows()), "the routes changed: say who may use them, in matrix.txt"


def test_no_request_fits_the_paths_of_two_routers() -> None:
    """Otherwise the order of the routers would decide who answers: pages are found by the names of their files."""
    of_routers = [[route for route in routes((router,)) if isinstance(route, Route)] for router in ROUTERS]
    for own in of_routers:
        for route in own:
            path = re.sub(r"{[^}]*}", "x", route.path)
            for other in (other for group in of_routers if group is not own for other in group):
                both = (route.methods or set()) & (other.methods or set())
                assert not (both and other.path_regex.match(path)), (route.path, other.path)


def test_nobody_gets_more_than_the_table_says(start: Start) -> None:
    with start(WIDE) as server:
        for row in rows():
            path = re.sub(r"{[^}]*}", "none", row[1])
            for caller in (None, *ROLES):
                client = server.client(caller)
                body = None if row[0] == "GET" else b"{}"
                answer = client.ask(row[0], path, body, Content_Type="application/json")
                expected = allowed(row, caller)
                refused = answer.status in (401, 403)
                assert refused != expected, (row, caller, answer.status, answer.body[:200])
                if not expected:
                    unknown = caller is None and row[2] != "pages"  # a page is refused by its origin first
                    assert answer.status == (401 if unknown else 403)


def test_strangers_get_health_the_login_page_style_sheets_and_scripts_only() -> None:
    found = {row[1] for row in rows() if row[2] == "public"}
    assert found == {
        "/healthz",
        "/readyz",
        "/login",
        "/login/oidc",
        "/login/oidc/callback",
        "/static/{name}",
        "/snippet.js",
    }


def test_programs_fetch_prompts_and_send_what_they_saw_only() -> None:
    found = {(row[0], row[1]) for row in rows() if "app" in row[3:]}
    assert {path for method, path in found if method == "GET"} == {
        "/v1/prompts/{name:path}",
        "/v1/assignments",
    }
    assert all(path.startswith("/v1/") for _, path in found)


def test_a_head_request_needs_what_a_get_needs(server: Running) -> None:
    assert server.client().ask("HEAD", "/v1/prompts").status == 401
    assert server.client("app").ask("HEAD", "/v1/prompts").status == 403
    answer = server.client("viewer").ask("HEAD", "/v1/prompts")
    assert answer.status == 200 and answer.body == b""


def test_a_session_has_the_rights_of_its_user(server: Running) -> None:
    assert server.browser("viewer").page("/access").status == 403
    assert server.browser("viewer").page("/annotate").status == 403
    assert server.browser("annotator").page("/annotate").status == 200
    assert server.browser("admin").page("/access").status == 200
    assert "set-cookie" not in server.client().sign_in(server.tokens["app"]).headers


def test_a_role_that_was_taken_is_gone_at_once(server: Running) -> None:
    browser, admin = server.browser("editor"), server.browser("admin")
    assert browser.page("/new").status == 200
    assert admin.submit("/access/editor/role", {"role": "viewer"}).status == 303
    assert browser.page("/new").status == 403
    assert admin.submit("/access/editor/role", {"role": "none"}).status == 303
    assert browser.page("/prompts").status == 303
    assert server.client("editor").get("/v1/prompts").status == 401

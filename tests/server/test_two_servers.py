"""Two servers on one PostgreSQL, without a cache that they share: a user sees one version, whichever server an app asks."""

from __future__ import annotations

from contextlib import ExitStack

from tests.server.conftest import running
from whet.prompt import Prompt
from whet_client import Client
from whet_client.assignment import version_for
from whet_client.ids import now
from whet_client.records import Inference
from whet_live import open_live

NAME = "shop/help"
USERS = [f"u{n}" for n in range(60)]


def versions_at(port: int, token: str) -> dict[str, int]:
    """The version that each user sees in an app that has just started and asks the server at that port."""
    with Client(f"http://127.0.0.1:{port}", token, spool=None, timeout=60.0) as app:
        return {user: app.prompt(NAME, user=user).version for user in USERS}


def test_users_keep_their_version_over_servers_restarts_and_a_change_of_shares(postgresql_url: str) -> None:
    with open_live(postgresql_url) as live:
        for text in ("Help.", "Help in one line."):
            live.registry.create(NAME, Prompt.parse(text), author="ann")
        live.registry.move_label(NAME, "production", 1, actor="ann")
        started = {
            "prompt": NAME, "label": "production", "arms": [{"version": 1}, {"version": 2}], "unit": "user", "cycles": 0,
            "goal": {"name": "thumb", "window": 0}, "policy": {"kind": "ramp", "shares": [0.1, 0.5], "units": 20},
        }  # fmt: skip
        live.experiments.create(started, author="ann")
        with ExitStack() as stack:
            first = stack.enter_context(running(postgresql_url))
            second = stack.enter_context(running(postgresql_url, roles=False))
            token = first.tokens["app"]
            before = versions_at(first.port, token)
            assert versions_at(second.port, token) == before and set(before.values()) == {1, 2}
            (assigned,) = live.experiments.assignments(NAME)
            live.traffic.add(
                Inference(NAME, version_for(assigned, user), user=user, experiment=str(assigned["id"]),
                          variant=str(assigned["revision"])) for user in USERS
            )  # fmt: skip
            first.state.live.experiments.refresh(now() + 60_000_000)
            after = versions_at(second.port, token)
            assert versions_at(first.port, token) == after, "the other server knows the new shares"
            assert sum(version == 2 for version in after.values()) > sum(v == 2 for v in before.values())
            assert {user for user in USERS if before[user] == 2} <= {
                user for user in USERS if after[user] == 2
            }
        with running(postgresql_url, roles=False) as third:
            assert versions_at(third.port, token) == after

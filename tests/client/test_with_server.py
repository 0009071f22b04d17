"""The client against the real server: fetch, experiment, answers, feedback, tokens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the server's extra is not installed")
pytest.importorskip("uvicorn", reason="the server's extra is not installed")

from sqlalchemy import select
from tests.server.conftest import running

from whet.errors import UsageError
from whet.prompt import Prompt
from whet_client import Client
from whet_client.assignment import version_for
from whet_live.traffic.traffic_tables import feedback, inferences

APP = """
import sys
from whet_client import Client
client = Client(sys.argv[1], sys.argv[2], spool=sys.argv[3], timeout=30)
for number in range(int(sys.argv[4])):
    answer = client.log("p", "an answer")
    print(answer, *client.feedback(answer, thumb=1), flush=True)
"""


def killed_app(url: str, token: str, spool: Path, rows: int) -> list[str]:
    """Ids of all rows that an app was told are taken, before it was killed in the middle."""
    command = [sys.executable, "-c", APP, url, token, str(spool), "1000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as app:
        assert app.stdout is not None
        ids = [app.stdout.readline() for _ in range(rows)]
        os.kill(app.pid, signal.SIGKILL)
        ids += app.stdout.readlines()
    assert app.returncode == -signal.SIGKILL
    return [one for line in ids if line.endswith("\n") for one in line.split()]


@pytest.mark.skipif(sys.platform == "win32", reason="the log of what waits needs locks of POSIX")
def test_an_app_that_is_killed_loses_no_row_and_sends_none_twice(tmp_path: Path) -> None:
    """Killed while it sends, killed while the server does not answer, and killed again by the time it starts anew."""
    spool = tmp_path / "spool"
    with running(f"sqlite:///{tmp_path / 'whet.db'}") as server:
        token = server.tokens["app"]
        ids = killed_app(server.address, token, spool, 20)
        ids += killed_app(server.address, token, spool, 900)
        ids += killed_app(server.address, "whet_" + "x" * 43, spool, 300)
        ids += killed_app(server.address, token, spool, 1)
        with Client(server.address, token, spool=spool, timeout=60) as client:
            ids.append(client.log("p", "the last"))
            assert client.flush(60)
        with server.state.live.database.read() as connection:
            stored = [*connection.execute(select(inferences.c.id)).scalars()]
            stored += connection.execute(select(feedback.c.id)).scalars()
    assert set(ids) <= set(stored), f"{len(set(ids) - set(stored))} of {len(ids)} rows are lost"
    assert len(stored) == len(set(stored))
    assert not list(spool.rglob("*.jsonl"))


def test_a_prompt_goes_out_and_what_people_do_comes_back(tmp_path: Path) -> None:
    with running(f"sqlite:///{tmp_path / 'whet.db'}") as server:
        live = server.state.live
        for text in ("Help. {{question}}", "Help in one line. {{question}}"):
            live.registry.create("shop/help me", Prompt.parse(text), author="ann", label="production")
        live.registry.move_label("shop/help me", "production", 1, actor="ann", reason="first")
        live.experiments.create(
            {
                "prompt": "shop/help me", "label": "production", "arms": [{"version": 1}, {"version": 2}],
                "unit": "user", "goal": {"name": "thumb", "window": 0}, "approval": False,
            },
            author="ann",
        )  # fmt: skip
        (definition,) = live.experiments.assignments("shop/help me")
        with Client(server.address, server.tokens["app"], spool=None, timeout=60) as client:
            seen = {}
            for number in range(20):
                prompt = client.prompt("shop/help me", user=f"u{number}")
                assert prompt.version == version_for(definition, f"u{number}")
                assert prompt.format(question="Why?")[0]["content"].endswith(" Why?")
                id = client.log(prompt, "Because.", inputs={"question": "Why?"}, cost=0.001)
                client.feedback(id, thumb="up", comment="Thanks.", user=f"u{number}")
                seen[id] = prompt
            assert client.flush(30) and client.tally.sent == 40
            assert {prompt.version for prompt in seen.values()} == {1, 2}
        for id, prompt in seen.items():
            stored = live.traffic.inference(id)
            assert stored is not None
            said = stored.inference
            assert (said.prompt, said.version, said.user) == (
                "shop/help me",
                prompt.version,
                prompt.units["user"],
            )
            assert (said.experiment, said.variant) == (definition["id"], str(definition["revision"]))
            assert [one.feedback.text for one in live.traffic.about(stored.seq)] == ["Thanks."]


def test_a_thumb_that_changes_at_once_under_one_id_is_the_first_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(f"sqlite:///{tmp_path / 'whet.db'}") as server:
        with Client(server.address, server.tokens["app"], spool=None, timeout=60) as client:
            client.log("p", "first", id="a")
            client.log("p", "second", id="a")
            client.feedback("a", thumb="up", id="t", user="ann")
            client.feedback("a", thumb="down", id="t", user="ann")
            assert client.flush(60)
            assert (client.tally.sent, client.tally.refused) == (2, 2)
        assert 'The id "t"' in caplog.text and "is taken" not in caplog.text
        with server.state.live.database.read() as connection:
            assert connection.execute(select(inferences.c.output)).scalars().all() == ["first"]
            assert connection.execute(select(feedback.c.value)).scalars().all() == [1.0]


def test_a_bundled_folder_is_what_the_registry_exports(tmp_path: Path) -> None:
    with running(f"sqlite:///{tmp_path / 'whet.db'}") as server:
        live = server.state.live
        made = live.registry.create(
            "shop/help", Prompt.parse("Help. {{q}}"), author="ann", label="production"
        )
        live.registry.export(tmp_path / "prompts")
    with Client("http://127.0.0.1:9", spool=None, fallbacks=tmp_path / "prompts") as client:
        found = client.prompt("shop/help")
        assert (found.source, found.version, found.content.prompt) == ("fallback", made.version, made.prompt)


def test_a_wrong_token_and_an_unknown_prompt_are_told(tmp_path: Path) -> None:
    with running(f"sqlite:///{tmp_path / 'whet.db'}") as server:
        with (
            Client(server.address, "whet_wrong", spool=None, timeout=60) as client,
            pytest.raises(UsageError, match="does not give"),
        ):
            client.prompt("p")
        with Client(server.address, server.tokens["app"], spool=None, timeout=60) as client:
            with pytest.raises(UsageError, match="No copy of p is bundled"):
                client.prompt("p")
            assert client.prompt("p", fallback="Mine").source == "fallback"

"""The client against the real server: fetch, experiment, answers, feedback, tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the server's extra is not installed")
pytest.importorskip("uvicorn", reason="the server's extra is not installed")

from tests.server.conftest import running

from whet.client import Client
from whet.client.assignment import version_for
from whet.errors import UsageError
from whet.prompt import Prompt


def test_a_prompt_goes_out_and_what_people_do_comes_back(tmp_path: Path) -> None:
    with running(f"sqlite:///{tmp_path / 'whet.db'}") as server:
        live = server.house.live
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
        with Client(server.address, server.tokens["app"], spool=None) as client:
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


def test_a_bundled_folder_is_what_the_registry_exports(tmp_path: Path) -> None:
    with running(f"sqlite:///{tmp_path / 'whet.db'}") as server:
        live = server.house.live
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
            Client(server.address, "whet_wrong", spool=None) as client,
            pytest.raises(UsageError, match="does not give"),
        ):
            client.prompt("p")
        with Client(server.address, server.tokens["app"], spool=None) as client:
            with pytest.raises(UsageError, match="No copy of p is bundled"):
                client.prompt("p")
            assert client.prompt("p", fallback="Mine").source == "fallback"

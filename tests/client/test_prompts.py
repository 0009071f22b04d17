"""Prompts by label: the cache, bundled copies, experiments, slots."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.client.conftest import TOKEN, Server, World

from whet.errors import UsageError
from whet.prompt import Prompt
from whet.types import Example, Message
from whet_client import Client, Unavailable
from whet_client.assignment import assign
from whet_client.cache import Prompts
from whet_client.connections import Http
from whet_client.http import HttpReply

NOWHERE = "http://127.0.0.1:9"


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


class Line:
    """Requests to a world without a network. `gate`, if set, holds them until it is opened."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.down = False
        self.gate: threading.Event | None = None
        self.answered = threading.Semaphore(0)

    def __call__(self, method: str, path: str, headers: Any, body: bytes | None) -> HttpReply:
        if self.gate is not None:
            assert self.gate.wait(60)
        try:
            if self.down:
                self.world.requests.append((method, path, 0))
                raise Unavailable("The server is down.")
            given = {"Authorization": f"Bearer {TOKEN}", **headers}
            status, found, content = self.world.answer(method, path, given, body or b"")
            return HttpReply(status, {key.lower(): value for key, value in found.items()}, content)
        finally:
            self.answered.release()


def settled(prompts: Prompts, key: tuple[str, str]) -> None:
    """Wait until the background has done what was asked of it: a second request comes after the first."""
    done = threading.Event()
    entry = prompts._entries[key]

    class Mark:
        due, asking, value, tag, failures = 0.0, False, entry.value, None, 0

        def __setattr__(self, name: str, value: Any) -> None:
            object.__setattr__(self, name, value)
            if name == "asking":
                done.set()

    prompts._entries["", "mark"] = Mark()  # type: ignore[assignment]
    prompts._old.put(("", "mark"))
    assert done.wait(60)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def line(world: World) -> Line:
    return Line(world)


@pytest.fixture
def prompts(line: Line, clock: Clock) -> Prompts:
    return Prompts(line, "http://x", {}, 60.0, clock)


def test_a_prompt_is_fetched_once_and_served_from_memory(world: World, prompts: Prompts) -> None:
    world.put("a/b c", "Be {{tone}}.", 3)
    for _ in range(5):
        served = prompts.get("a/b c", "production", None)
    assert (served.content.version, served.source) == (3, "server")
    assert world.requests == [
        ("GET", "/v1/prompts/a/b%20c?label=production", 200), ("GET", "/v1/assignments?prompt=a%2Fb+c", 200),
    ]  # fmt: skip


def test_a_stale_prompt_is_served_at_once_and_refreshed_behind(
    world: World, prompts: Prompts, line: Line, clock: Clock
) -> None:
    world.put("p", "old", 1)
    prompts.get("p", "production", None)
    world.put("p", "new", 2)
    line.gate = threading.Event()
    clock.time += 61
    assert prompts.get("p", "production", None).content.version == 1
    assert prompts.get("p", "production", None).content.version == 1
    line.gate.set()
    settled(prompts, ("p", "production"))
    assert prompts.get("p", "production", None).content.version == 2
    assert len([path for _, path, _ in world.requests if path.endswith("production")]) == 2


def test_an_unchanged_prompt_costs_a_304(world: World, prompts: Prompts, clock: Clock) -> None:
    world.put("p", "same", 1)
    first = prompts.get("p", "production", None)
    clock.time += 61
    prompts.get("p", "production", None)
    settled(prompts, ("p", "production"))
    assert prompts.get("p", "production", None).content is first.content
    assert [status for _, _, status in world.requests[:4]] == [200, 200, 304, 304]
    clock.time += 59
    prompts.get("p", "production", None)
    settled(prompts, ("p", "production"))
    assert [status for *_, status in world.requests if status == 304] == [304, 304]


def test_a_server_that_goes_down_changes_nothing_and_is_asked_less_and_less(
    world: World, prompts: Prompts, line: Line, clock: Clock
) -> None:
    world.put("p", "kept", 1)
    prompts.get("p", "production", None)
    line.down = True
    asked = []
    clock.time += 61
    for _ in range(600):
        assert prompts.get("p", "production", None).content.version == 1
        settled(prompts, ("p", "production"))
        asked.append(len([one for one in world.requests if one[1].startswith("/v1/prompts/p?")]))
        clock.time += 1
    assert 10 <= asked[-1] <= 20
    line.down = False
    world.put("p", "back", 2)
    clock.time += 61
    prompts.get("p", "production", None)
    settled(prompts, ("p", "production"))
    assert prompts.get("p", "production", None).content.version == 2


@pytest.mark.parametrize("fallback", [None, "Bundled."])
def test_a_label_that_is_removed_and_set_again_is_found_as_soon_as_any_change(
    world: World, prompts: Prompts, clock: Clock, fallback: str | None
) -> None:
    key = ("p", "production")
    if fallback is None:
        world.put("p", "old", 1)
    prompts.get(*key, fallback)
    world.prompts.clear()

    def asked() -> list[int]:
        return [status for _, path, status in world.requests if path.startswith("/v1/prompts/p?")]

    for _ in range(5):
        before = asked()
        clock.time += 59
        prompts.get(*key, fallback)
        assert not prompts._entries[key].asking
        clock.time += 2
        assert prompts.get(*key, fallback).content.version == (0 if fallback else 1)
        settled(prompts, key)
        assert asked() == [*before, 404]
    world.put("p", "new", 2)
    clock.time += 61
    prompts.get(*key, fallback)
    settled(prompts, key)
    assert prompts.get(*key, fallback).content.version == 2


def test_bundled_copies_work_from_the_first_call_and_give_way(world: World, line: Line, clock: Clock) -> None:
    prompts = Prompts(line, "http://x", {"p": "Bundled {{x}}"}, 60.0, clock)
    line.down = True
    served = prompts.get("p", "production", None)
    assert (served.source, served.content.version) == ("fallback", 0)
    assert served.for_units({}).format(x="1") == [{"role": "user", "content": "Bundled 1"}]
    other = prompts.get("q", "production", [{"role": "system", "content": "Given here."}])
    assert other.for_units({}).format() == [{"role": "system", "content": "Given here."}]
    assert len(world.requests) == 1
    with pytest.raises(Unavailable, match="No copy of r is bundled"):
        prompts.get("r", "production", None)
    line.down = False
    world.put("p", "Served {{x}}", 7)
    clock.time += 2
    prompts.get("p", "production", None)
    settled(prompts, ("p", "production"))
    assert prompts.get("p", "production", None).content.version == 7


def test_an_unknown_prompt_is_refused_unless_a_copy_is_bundled(world: World, prompts: Prompts) -> None:
    with pytest.raises(UsageError, match=r"There is no such prompt\. No copy of p is bundled"):
        prompts.get("p", "production", None)
    assert prompts.get("p", "production", "Mine").source == "fallback"


@pytest.mark.parametrize(
    "value",
    [
        [],
        {"name": "p"},
        {"name": "p", "version": "x", "messages": []},
        {"name": "p", "version": 1, "messages": [1]},
    ],
)
def test_an_answer_that_is_no_prompt_is_refused(world: World, prompts: Prompts, value: Any) -> None:
    world.prompts["p", "production"] = value
    with pytest.raises(UsageError):
        prompts.get("p", "production", None)


def test_threads_that_ask_together_ask_once(world: World, prompts: Prompts, line: Line) -> None:
    world.put("p", "text", 1)
    line.gate = threading.Event()
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(prompts.get("p", "production", None).content.version))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    line.gate.set()
    for thread in threads:
        thread.join()
    assert found == [1] * 8 and len(world.requests) == 2


EXPERIMENT = {
    "id": "x1", "salt": "s", "unit": "user", "revision": 4, "label": "production",
    "arms": [{"version": 1, "weight": 0.5}, {"version": 2, "weight": 0.5}, {"version": 3, "weight": 0.0}],
}  # fmt: skip


def test_users_are_assigned_in_process_and_stay(world: World, prompts: Prompts) -> None:
    world.put("p", "two", 2, label="staging")
    world.put("p", "one", 1)
    world.experiments = [{**EXPERIMENT, "id": "x0", "label": "staging"}, EXPERIMENT]
    served = prompts.get("p", "production", None)
    versions = {}
    for number in range(400):
        unit = f"user {number}"
        found = served.for_units({"user": unit})
        assert found.version == assign("s", unit, [(1, 0.5), (2, 0.5), (3, 0.0)])
        assert (found.experiment, found.variant) == ("x1", "4")
        versions[found.version] = versions.get(found.version, 0) + 1
    assert set(versions) == {1, 2} and 150 < versions[1] < 250
    assert len(world.requests) == 3
    for units in ({}, {"session": "s"}, {"user": ""}, {"user": None}):
        outside = served.for_units(units)
        assert (outside.version, outside.experiment) == (1, None)


def test_an_experiment_that_cannot_be_had_is_left_out(world: World, line: Line, clock: Clock) -> None:
    unit = {**EXPERIMENT, "unit": "planet"}
    world.put("p", "one", 1)
    for wrong in (
        EXPERIMENT,
        {"label": "production"},
        unit,
        {**EXPERIMENT, "arms": []},
        {**EXPERIMENT, "arms": 7},
    ):
        world.experiments = [wrong]
        found = Prompts(line, "http://x", {}, 60.0, clock).get("p", "production", None)
        assert found.experiment is None and found.for_units({"user": "u"}).version == 1


def test_an_experiment_is_tried_again_until_all_its_versions_are_there(
    world: World, prompts: Prompts, clock: Clock
) -> None:
    world.put("p", "one", 1)
    world.experiments = [EXPERIMENT]
    assert prompts.get("p", "production", None).experiment is None
    world.put("p", "two", 2, label="staging")
    clock.time += 61
    prompts.get("p", "production", None)
    settled(prompts, ("p", "production"))
    assert prompts.get("p", "production", None).experiment is not None


def test_an_experiment_begins_changes_and_ends_behind_the_app(
    world: World, prompts: Prompts, clock: Clock
) -> None:
    world.put("p", "two", 2, label="staging")
    world.put("p", "one", 1)
    assert prompts.get("p", "production", None).for_units({"user": "u"}).experiment is None
    seen = []
    for experiments in (
        [EXPERIMENT],
        [{**EXPERIMENT, "revision": 5, "arms": [{"version": 2, "weight": 1}]}],
        [],
    ):
        world.experiments = experiments
        clock.time += 61
        prompts.get("p", "production", None)
        settled(prompts, ("p", "production"))
        given = prompts.get("p", "production", None).for_units({"user": "u"})
        seen.append((given.experiment, given.variant, given.version))
    assert seen == [("x1", "4", assign("s", "u", [(1, 0.5), (2, 0.5)])), ("x1", "5", 2), (None, None, 1)]


def test_format_is_what_the_prompt_means_everywhere_else(world: World, prompts: Prompts) -> None:
    texts = [
        "Answer {{question}} now.",
        "Be short.",
        "<!-- whet:begin -->\nRule.\n<!-- whet:end -->\n{{question}}",
    ]
    for number, text in enumerate(texts):
        world.put(f"p{number}", text)
        found = prompts.get(f"p{number}", "production", None).for_units({})
        expected = Prompt.parse(text).render(Example("", {"question": "{{x}} {0}"}))
        assert found.format(question="{{x}} {0}") == [
            {"role": m.role, "content": m.content} for m in expected
        ]
    chat = [{"role": "system", "content": "Be {{tone}}."}, {"role": "user", "content": "{{question}}"}]
    world.put("chat", "", messages=chat)
    found = prompts.get("chat", "production", None).for_units({})
    assert found.slots == {"tone", "question"}
    assert found.format(tone="short", question=7) == [
        {"role": "system", "content": "Be short."}, {"role": "user", "content": "7"},
    ]  # fmt: skip
    with pytest.raises(UsageError, match="chat version 1 needs values for question; given: tone"):
        found.format(tone="short")
    with pytest.raises(UsageError, match=r"value of \{\{tone\}\} must be a text"):
        found.format(tone={1, 2}, question="q")
    assert prompts.get("p1", "production", None).for_units({}).format() == [
        {"role": "system", "content": "Be short."}
    ]


def test_a_folder_of_bundled_prompts(tmp_path: Path, line: Line, clock: Clock) -> None:
    line.down = True
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "hello.md").write_text("Hello {{name}}", "utf-8")
    home = tmp_path / "shop" / "exported"
    home.mkdir()
    (home / "@labels.json").write_text('{"production": 2}')
    files = [{"role": "system", "file": "@2.1-system.md"}, {"role": "user", "file": "@2.2-user.md"}]
    (home / "@2.json").write_text(json.dumps({"messages": files, "config": {"model": "m"}}))
    (home / "@2.1-system.md").write_text("Be short.", "utf-8")
    (home / "@2.2-user.md").write_text("{{q}}", "utf-8")
    prompts = Prompts(line, "http://x", tmp_path, 60.0, clock)
    assert prompts.get("shop/hello", "production", None).content.prompt == Prompt.parse("Hello {{name}}")
    found = prompts.get("shop/exported", "production", None).content
    assert (found.version, found.config) == (2, {"model": "m"})
    assert found.prompt.messages == (Message("system", "Be short."), Message("user", "{{q}}"))
    for name in ("shop/nothing", "../" + tmp_path.name + "/shop/hello", "/etc/hostname"):
        with pytest.raises((Unavailable, UsageError)):
            prompts.get(name, "production", None)
    with pytest.raises(Unavailable):
        prompts.get("shop/exported", "staging", None)
    (home / "@2.json").write_text("{")
    with pytest.raises(UsageError, match="cannot be read"):
        Prompts(line, "http://x", tmp_path, 60.0, clock).get("shop/exported", "production", None)


def test_over_the_network(server: Server, world: World) -> None:
    world.put("p", "Hi {{x}}", 2)
    with Client(server.url, TOKEN, timeout=60, spool=None) as client:
        found = client.prompt("p", user="u")
        assert (found.name, found.version, found.label, found.source) == ("p", 2, "production", "server")
        assert client.prompt("p").content is found.content
    with (
        Client(server.url, "wrong", spool=None, timeout=60) as client,
        pytest.raises(UsageError, match="Who are you"),
    ):
        client.prompt("p")
    with Client(NOWHERE, spool=None) as client:
        assert client.prompt("p", fallback="Here").source == "fallback"
        with pytest.raises(Unavailable):
            client.prompt("q")


def test_a_connection_that_comes_back_after_the_end_is_closed(server: Server, world: World) -> None:
    world.put("p", "x")
    http = Http(server.url, TOKEN, 60)
    http.send("GET", "/v1/prompts/p?label=production")
    assert len(http._idle) == 1
    http.close()
    assert http.send("GET", "/v1/prompts/p?label=production").status == 200
    assert http._idle == []


def test_addresses_and_tokens_that_are_none_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for url in ("ftp://x", "http://", "localhost:1", "http://u:p@x", "http://x?a=b"):
        with pytest.raises(UsageError, match="is no address"):
            Client(url, spool=None)
    with pytest.raises(UsageError, match="token has characters"):
        Client(NOWHERE, "a\nb", spool=None)
    with pytest.raises(UsageError, match="no folder of bundled"):
        Client(NOWHERE, fallbacks=tmp_path / "none", spool=None)
    monkeypatch.setenv("WHET_URL", NOWHERE)
    assert Client(spool=None).url == NOWHERE
    assert "secret" not in repr(Client(NOWHERE, "secret", spool=None)._http)


@pytest.mark.parametrize(
    ("user", "said"),
    [
        (5, "user must be a text; this is 5"),
        ("a\nb", "control character"),
        ("u" * 201, "201 characters"),
        ("\x00", "NUL"),
    ],
)
def test_a_user_whom_log_could_not_take_is_refused_at_once(tmp_path: Path, user: Any, said: str) -> None:
    client = Client(NOWHERE, TOKEN, spool=tmp_path)
    with pytest.raises(UsageError, match=f"prompt: .*{said}"):
        client.prompt("shop/help", user=user, fallback="Help.")
    client.close()

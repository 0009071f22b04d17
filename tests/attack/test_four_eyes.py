"""Four eyes: one person with every role but admin plays at random over the real REST API and pages, and never gets what they
shaped into `production`, while the other approver never acts. The same search finds each check that is taken away.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from tests.live.conftest import compiled_once, sqlite_template  # noqa: F401 - fixtures
from tests.live.reader import COMMENTS, Reader

from whet.feedback.model_session import ModelSession
from whet.prompt import Prompt
from whet.run import MemoryRun
from whet_client.records import Feedback, Inference
from whet_live import Live, open_live
from whet_live.experiments import admission
from whet_live.learner import paid_steps, pipeline
from whet_live.learner.context import LearnerConfig
from whet_live.learner.learner import Learner
from whet_live.registry import Version, labels, provenance, review
from whet_live.server.access import Access
from whet_live.server.app import Server
from whet_live.server.app_state import AppState
from whet_live.server.limits import ServerLimits, TokenBucket
from whet_live.server.roles import Role
from whet_live.server.run import ServeOptions, app_settings

SEQUENCES, ACTIONS = 200, 12
MARK = "eve was here"
SOURCE = "Answer.\n<!-- whet:begin -->\n- Be kind.\n<!-- whet:end -->\n{{question}}\n"
TOPICS = ("short", "metric")
FREE = TokenBucket(1e9, 1e9)


class House:
    """A server's application with its callers, and one event loop to talk to it. Eve is an approver, and holds the token of an
    app; ann edits, bob is the other approver."""

    def __init__(self, url: str, root: Path) -> None:
        self.live: Live = open_live(url)
        parts = self.live.database, self.live.registry, self.live.traffic
        config = LearnerConfig(optimizer_lm="scripted/reader", root=root)
        self.live.__dict__["learner"] = Learner(*parts, lambda: self.live.experiments, config)
        access = Access(self.live.database)
        people = {"eve": Role.APPROVER, "ann": Role.EDITOR, "bob": Role.APPROVER, "shop": Role.VIEWER}
        self.tokens = {
            one: access.add(one, role, app=one == "shop", all_prompts=one == "shop", by="root")
            for one, role in people.items()
        }
        limits = ServerLimits(ingest=FREE, use=FREE)
        self.state = AppState(self.live, access, app_settings(ServeOptions(limits=limits)))
        self.server = Server(self.state)
        self.runner = asyncio.Runner()

    def close(self) -> None:
        """Stop the writer, the database, the loop."""
        self.state.close()
        self.runner.close()

    def ask(self, who: str, method: str, path: str, body: bytes = b"", kind: str = "") -> tuple[int, bytes]:
        """One request with somebody's token, straight to the application: its status and body."""
        path, _, query = path.partition("?")
        headers = [(b"host", b"127.0.0.1"), (b"authorization", b"Bearer " + self.tokens[who].encode())]
        headers += [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": path, "raw_path": quote(path).encode(), "query_string": query.encode(), "root_path": "",
            "headers": headers, "client": ("127.0.0.1", 9), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        self.runner.run(self.server(scope, receive, send))
        assert sent[0]["status"] < 500, sent
        return sent[0]["status"], b"".join(one.get("body", b"") for one in sent[1:])

    def post(self, who: str, path: str, **value: Any) -> tuple[int, Any]:
        """A JSON body, and the JSON that comes back."""
        status, body = self.ask(who, "POST", path, json.dumps(value).encode(), "application/json")
        return status, json.loads(body)

    def form(self, who: str, path: str, **fields: Any) -> int:
        """A form of a page."""
        body = urlencode(fields, doseq=True).encode()
        return self.ask(who, "POST", path, body, "application/x-www-form-urlencoded")[0]

    def get(self, who: str, path: str) -> Any:
        """The JSON at an address."""
        return json.loads(self.ask(who, "GET", path)[1])


class Game:
    """One prompt, what eve did for it, and everything that she and others may do. Version 1 is eve's and stood in `production`
    before anybody protected it; version 2 is the founder's and stands there now."""

    def __init__(self, house: House, number: int) -> None:
        self.house, self.name, self.number = house, f"p{number}", number
        self.random = random.Random(number)
        self.rows: set[str] = set()
        self.keys: set[str] = set()
        self.count = 0
        create = house.live.registry.create
        create(self.name, Prompt.parse(SOURCE + MARK), author="eve", label="production")
        create(self.name, Prompt.parse(SOURCE), author="founder", label="production")

    # What eve does

    def save(self) -> None:
        """A version of her own."""
        self.house.post(
            "eve", "/v1/prompts", name=self.name, text=self._text(MARK), parent=self._any_version()
        )

    def propose(self) -> None:
        """A proposal of her own, or one without a label."""
        label = self.random.choice(["production", None])
        base = f"{self.name}@production" if label else f"{self.name}/{self._any_version()}"
        self.house.post("eve", "/v1/proposals", base=base, text=self._text(MARK), label=label)

    def request(self) -> None:
        """The move of a label, on the page or not."""
        label, version = self.random.choice(["production", "staging"]), self._any_version()
        if self.random.random() < 0.5:
            self.house.form("eve", f"/labels/{self.name}", label=label, version=version)
        self.house.post("eve", "/v1/moves", name=self.name, label=label, version=version)

    def comment(self) -> None:
        """A comment as a reviewer, or as a user of the app."""
        spelling = self.random.choice(["", "eve", "EVE ", "user"])
        row = {"kind": "comment", "target": self._answer("eve"), "id": self._id(), "text": self._wish()}
        who = {"source": "user", "user": spelling} if spelling.strip() and spelling != "user" else {}
        sender = "shop" if who or spelling == "user" else "eve"
        self.rows.add(row["id"])
        assert self.house.post(sender, "/v1/feedback", feedback=[{**row, **who}])[0] == 200

    def accept(self) -> None:
        """Every demand that waits."""
        for one in self.house.get("eve", f"/v1/learning/{self.name}")["requirements"]:
            if one["state"] != "ready":
                self.house.form(
                    "eve", f"/learning-verdict/{self.name}", key=f"requirement {one['key']}", accept="yes"
                )
                self.keys.add(one["key"])

    def write(self) -> None:
        """The instruction for a demand, in her words."""
        for one in self.house.get("eve", f"/v1/learning/{self.name}")["requirements"][:1]:
            text = f"Say that {MARK} {self._next()}."
            self.house.form("eve", f"/learning-instruction/{self.name}", key=one["key"], text=text)

    def approve(self) -> None:
        """Whatever waits."""
        for one in self._open():
            if self.random.random() < 0.5:
                self.house.post("eve", f"/v1/proposals/{one['id']}/decision", verdict="approve")
            else:
                keep = [unit["id"] for unit in one["instructions"]]
                self.house.form("eve", f"/review/{one['id']}", verdict="approve", keep=keep)

    def edit(self) -> None:
        """A proposal of somebody else, in her words."""
        for one in self._open()[:1]:
            texts = {unit["id"]: f"{MARK} {self._next()}" for unit in one["instructions"]}
            more = {"texts": texts} if texts else {"text": self._text(MARK)}
            self.house.post("eve", f"/v1/proposals/{one['id']}/decision", verdict="edit", **more)

    def roll_back(self) -> None:
        """To where the label stood before."""
        if self.random.random() < 0.5:
            self.house.form("eve", f"/rollback/{self.name}", label="production")
        else:
            self.house.post("eve", f"/v1/rollback/{self.name}", label="production")

    def try_it(self) -> None:
        """An experiment with some version, on people."""
        standing, other = self._standing(), self._any_version()
        goal, arms = {"name": "thumb", "window": 60}, [{"version": standing}, {"version": other}]
        definition = {
            "prompt": self.name,
            "label": "production",
            "arms": arms,
            "control": self.random.choice([standing, other]),
            "goal": goal,
        }
        status, made = self.house.post("eve", "/v1/experiments", definition=definition)
        if status == 201:
            self._check(self._version(other), self._version(standing))
            self.house.post("eve", f"/v1/experiments/{made['id']}/stop")

    # What others do

    def crowd(self) -> None:
        """Customers comment, not always enough of them."""
        wish = self.random.choice(TOPICS)
        for customer in self.random.sample(["carl", "dora", "emil"], self.random.choice([2, 3])):
            row = Feedback(
                "comment", self._answer(customer), text=COMMENTS[wish][0], user=customer, id=self._id()
            )
            self.house.live.traffic.add([], [row])

    def colleague(self) -> None:
        """Ann changes the newest version, and asks for it."""
        newest = self.house.live.registry.get(f"{self.name}@latest")
        text = newest.prompt.source + f"Ann {self._next()}.\n"
        status, made = self.house.post("ann", "/v1/prompts", name=self.name, text=text)
        if status == 201:
            self.house.post("ann", "/v1/moves", name=self.name, label="production", version=made["version"])

    def learn(self) -> None:
        """The learner looks."""
        asyncio.run(self.house.live.learner.step(self.name))

    def play(self, actions: int = ACTIONS) -> None:
        """So many actions at random; `production` is held to the rule after each."""
        eve = [
            self.save,
            self.propose,
            self.request,
            self.comment,
            self.accept,
            self.write,
            self.approve,
            self.edit,
        ]
        eve += [self.approve, self.roll_back, self.try_it]
        others = [self.crowd, self.colleague, self.learn, self.learn]
        stands = self._version(self._standing())
        for _ in range(actions):
            self.random.choice(self.random.choice([eve, others]))()
            now = self._version(self._standing())
            if now.version != stands.version:
                self._check(now, stands)
            stands = now

    def _check(self, version: Version, before: Version) -> None:
        """Nothing that a version brings is eve's: no text of hers, no row that she sent, no demand that she accepted."""
        number: int | None = version.version
        assert MARK not in version.prompt.source or version == before, "her text"
        while number is not None and number > before.version:
            one = self._version(number)
            for requirement in (one.evidence or {}).get("requirements", ()):
                assert self.rows.isdisjoint([*requirement["rows"], *requirement["origin"]]), "her comment"
                assert requirement["key"] not in self.keys, "her acceptance"
            number = one.parent

    def _open(self) -> list[Any]:
        page = self.house.get("eve", f"/v1/proposals?state=open&name={self.name}")
        opened: list[Any] = page["proposals"]
        return opened

    def _version(self, number: int) -> Version:
        return self.house.live.registry.get(f"{self.name}/{number}")

    def _standing(self) -> int:
        return self.house.live.registry.labels(self.name)["production"]

    def _any_version(self) -> int:
        return self.random.randint(1, self.house.live.registry.labels(self.name)["latest"])

    def _next(self) -> int:
        self.count += 1
        return self.count

    def _id(self) -> str:
        return f"{self.name}-{self._next()}"

    def _text(self, words: str) -> str:
        return SOURCE + f"{words} {self._next()}\n"

    def _wish(self) -> str:
        return COMMENTS[self.random.choice(TOPICS)][0]

    def _answer(self, user: str) -> str:
        one = Inference(
            self.name, self._standing(), {"question": "?"}, "An answer.", id=self._id(), user=user
        )
        self.house.live.traffic.add([one])
        return one.id


@pytest.fixture
def house(sqlite_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:  # noqa: F811
    """An installation whose learner reads with a simulated model in memory."""

    @asynccontextmanager
    async def session(*given: Any, **settings: Any) -> AsyncIterator[ModelSession]:
        yield ModelSession(MemoryRun({"optimizer": Reader()}), "scripted/reader", True)

    monkeypatch.setattr(paid_steps, "learning_run", session)
    shutil.copyfile(sqlite_template, tmp_path / "whet.db")
    opened = House(f"sqlite:///{tmp_path}/whet.db", tmp_path / "runs")
    yield opened
    opened.close()


def games(house: House, count: int) -> list[Game]:
    """Prompts, made before `production` is protected."""
    made = [Game(house, number) for number in range(count)]
    house.live.registry.protect("*", "production", actor="root")
    return made


@pytest.mark.parametrize("sequences", [SEQUENCES // 20, pytest.param(SEQUENCES, marks=pytest.mark.long)])
def test_one_person_never_gets_what_they_shaped_into_production(house: House, sequences: int) -> None:
    moved = 0
    for game in games(house, sequences):
        game.play()
        moved += game._standing() != 2
    assert moved > sequences / 20, "the rest of the work must go on"


def only(*roles: str) -> Callable[[Any, Any], Any]:
    """The learner's provenance without these roles."""
    whole = pipeline._provenance
    return lambda *given: {role: names for role, names in whole(*given).items() if role not in roles}


def no_ancestors(connection: Any, where: Any, version: int, actor: str) -> Any:
    """The provenance of a version alone."""
    return {
        k: v
        for k, v in provenance.behind_version(connection, where, version, actor).items()
        if k.endswith(f" {version}")
    }


MISSING: dict[str, tuple[Any, str, Any]] = {
    "approval": (review, "may_approve", lambda actor, shaped, others=(): None),
    "rollback": (labels, "may_approve", lambda actor, shaped, others=(): None),
    "experiment": (admission, "may_approve", lambda actor, shaped, others=(): None),
    "accepter": (pipeline, "_provenance", only(provenance.ACCEPTER)),
    "source": (pipeline, "_provenance", only(provenance.SOURCE)),
    "carried": (review, "behind_version", no_ancestors),
    "version": (review, "behind_version", lambda *given: {}),
}


@pytest.mark.long
@pytest.mark.parametrize("road", MISSING)
def test_the_search_finds_a_check_that_is_missing(
    road: str, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*MISSING[road])
    with pytest.raises(AssertionError, match="her "):
        for game in games(house, SEQUENCES):
            game.play(3 * ACTIONS)

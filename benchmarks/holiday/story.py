"""Some weeks of one prompt on a real `whet serve`, played over HTTP: the owner installs, goes away, and comes back."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import datetime
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

from benchmarks.holiday.world import (
    MODEL,
    NAME,
    PROMPT,
    SYSTEMS,
    VARIABLE,
    DeskWorld,
    answer_with,
    system_now,
)
from benchmarks.soak.clock import HOUR, SharedClock
from benchmarks.soak.installation import ServeProcess
from benchmarks.soak.senders import AdminClient

from whet.prompt import Prompt
from whet.testing.server import server_process
from whet_client import Client
from whet_live import open_live
from whet_live.server import Access, Role

ORIGIN = "https://desk.example"
DAY = 24 * HOUR
PATIENCE, QUIET = 60.0, 1.2
"""Seconds that the server has at most for what it does in some hours, and for how long it has nothing to do once it is done."""
RULES = {"quorum": 12, "share": 0.04}
"""So many of the visitors must want the same; the share is smaller than in the mode by itself, for there are few topics."""
GOAL = {
    "goal": {"name": "thumb", "window": 3600}, "unit": "user", "cycle": 43_200, "cycles": 1, "approval": False,
    "watch": {"seconds": 43_200, "holdout": 0.1},
}  # fmt: skip
"""What an experiment with a learned version measures; a winner needs nobody."""


@dataclass(frozen=True)
class HolidayPlan:
    """How long the owner is away, and what happens meanwhile: `visits` a day in steps of `hours`; on the days of `policies` the
    handbook changes, and on `system_day` another system answers under the name of the model (days count from 0). `upkeep` is the
    rule of that name."""

    days: int = 16
    visits: int = 120
    hours: int = 6
    policies: tuple[int, ...] = (6,)
    system_day: int = 9
    upkeep: int = 3
    seed: int = 0


@dataclass
class DayCount:
    """One day: visits, right answers, right answers that the first prompt would have given, thumbs up and all thumbs, and the
    instructions with their tokens at its end."""

    visits: int = 0
    right: int = 0
    before: int = 0
    up: int = 0
    thumbs: int = 0
    instructions: int = 0
    tokens: int = 0


@dataclass
class HolidayResult:
    """What the owner finds. `alerts` are what the webhook got, each with the day (from 1) on which it came; `changes` the moves
    of production with their day, each with its version and, where one decided, the experiment; `waiting` proposals;
    `rows` that were sent and `stored`; `audit_whole` whether the chain of the audit log is."""

    days: list[DayCount] = field(default_factory=list)
    alerts: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)
    changes: list[Mapping[str, Any]] = field(default_factory=list)
    waiting: int = 0
    rows: int = 0
    stored: int = 0
    audit_whole: bool = False
    seconds: float = 0.0


class AlertReceiver:
    """A webhook of the owner: an HTTP server that keeps what it gets, with the simulated time."""

    def __init__(self) -> None:
        self.got: list[tuple[int, Mapping[str, Any]]] = []
        keep = self.got

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                keep.append((time.time_ns(), body))
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/whet"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()


class SnippetSender:
    """What the browsers of visitors send: the requests of `/snippet.js`, each from an address of its own behind the proxy."""

    def __init__(self, port: int, key: str) -> None:
        self._port, self._key = port, key
        self._visitor = self.sent = 0

    def send(self, rows: Sequence[Mapping[str, object]]) -> None:
        """The rows of one visitor. Raises RuntimeError where the server does not take them."""
        self._visitor += 1
        n = self._visitor
        address = f"10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}"
        body = json.dumps({"key": self._key, "feedback": rows})
        headers = {"Origin": ORIGIN, "Content-Type": "text/plain;charset=UTF-8", "X-Forwarded-For": address}
        with closing(HTTPConnection("127.0.0.1", self._port, timeout=40)) as connection:
            connection.request("POST", "/snippet", body, headers)
            answer = connection.getresponse()
            text = answer.read()
        if answer.status != 204:
            raise RuntimeError(f"/snippet answered {answer.status}: {text.decode()[:300]}")
        self.sent += len(rows)


class Holiday:
    """The installation in a folder, the page with the snippet, and the weeks."""

    def __init__(
        self, folder: Path, plan: HolidayPlan, say: Callable[[str], None] = lambda line: None
    ) -> None:
        self.folder, self.plan, self.say = folder, plan, say
        self.world, self.result = DeskWorld(plan.seed), HolidayResult()
        self.began = time.monotonic()

    def run(self) -> HolidayResult:
        """Everything."""
        with ExitStack() as stack:
            self._install(stack)
            for day in range(self.plan.days):
                self._live_through(day)
            self._come_back()
        self.result.seconds = time.monotonic() - self.began
        return self.result

    def _install(self, stack: ExitStack) -> None:
        """What the owner does before leaving: a prompt, a token for the app, a key for the page, a server, how it may learn."""
        folder = self.folder
        clock = self.clock = SharedClock(folder / "clock")
        clock.advance(DAY - time.time_ns() % DAY)  # the first day begins at midnight
        clock.install()
        stack.callback(SharedClock.remove)
        self.first_day = time.time_ns() // DAY
        system = folder / "system"
        system.write_text("0", "utf-8")
        system.with_suffix(".known").write_text(json.dumps(self.world.known), "utf-8")
        os.environ[VARIABLE] = str(system)
        stack.callback(os.environ.pop, VARIABLE)
        self.world.write_task(folder / "task")
        url = f"sqlite:///{folder}/whet.db"
        with open_live(url) as live:
            live.registry.create(NAME, Prompt.parse(PROMPT), author="owner", label="production")
            access = Access(live.database)
            app = access.add("desk", Role.VIEWER, app=True, by="owner", prompts=[NAME])
            key = access.add("desk-page", Role.VIEWER, page=True, app=True, by="owner", prompts=[NAME])
            owner = access.add("owner", Role.ADMIN, by="owner")
        receiver = AlertReceiver()
        stack.callback(receiver.close)
        self.result.alerts = receiver.got
        (folder / "alerts.json").write_text(json.dumps({"channels": [{"webhook": receiver.url}]}), "utf-8")
        (folder / "goal.json").write_text(json.dumps(GOAL), "utf-8")
        models = [
            stack.enter_context(server_process("--function", f"benchmarks.holiday.world:{name}"))
            for name in ("read_feedback", "answer_request")
        ]
        words = [
            "--optimizer-lm", "openai/reader", "--optimizer-base-url", models[0], "--every", "0.4",
            "--lm", f"openai/{MODEL}", "--base-url", models[1], "--gate", f"{NAME}={folder / 'task'}",
            "--experiment", str(folder / "goal.json"), "--alerts", str(folder / "alerts.json"),
            "--snippet-origin", ORIGIN, "--proxy", "127.0.0.1", "--pattern-calls-per-day", "0",
        ]  # fmt: skip
        server = ServeProcess(
            "server", url, folder / "clock", folder, words, module="benchmarks.holiday.serve"
        )
        stack.callback(server.close)
        server.start()
        server.wait_ready()
        self.owner = AdminClient([server.port], owner)
        self.owner.ask("POST", "/v1/protections", {"name": NAME, "label": "production", "protected": False})
        self.owner.ask("POST", "/v1/protections", {"name": "*", "label": "production", "protected": False})
        rules = {**RULES, "upkeep": self.plan.upkeep}
        self.owner.ask("POST", f"/v1/learning-settings/{NAME}", {"mode": "auto", "rules": rules})
        self.page = SnippetSender(server.port, key)
        self.app = Client(f"http://127.0.0.1:{server.port}", app, fresh=0.0, timeout=10.0, spool=None)
        stack.callback(self.app.close, 0.0)

    # A day

    def _live_through(self, day: int) -> None:
        plan, counted = self.plan, DayCount()
        self.result.days.append(counted)
        if day in plan.policies:
            topics = self.world.change_policies()
            self.world.write_task(self.folder / "task")
            self.say(f"day {day + 1}: other policies for {' and '.join(topics)}")
        if day == plan.system_day:
            (self.folder / "system").write_text("1", "utf-8")
            self.say(f"day {day + 1}: another system answers as {MODEL}")
        steps = 24 // plan.hours
        for step in range(steps):
            self._serve(plan.visits * (step + 1) // steps - plan.visits * step // steps, counted)
            self._settle()
            self.clock.advance(plan.hours * HOUR)
        found = self.owner.ask("GET", f"/v1/instructions/{NAME}")["instructions"]
        standing = [one for one in found if one["status"] == "active"]
        counted.instructions, counted.tokens = len(standing), sum(one["tokens"] for one in standing)
        elapsed = time.monotonic() - self.began
        self.say(
            f"{elapsed:>5.0f} s  day {day + 1:>2}  {counted.right / counted.visits:.0%} right, "
            f"{counted.instructions} instructions, {counted.tokens} tokens, {len(self.result.alerts)} alerts"
        )

    def _serve(self, visits: int, counted: DayCount) -> None:
        """Visitors ask; the app answers and logs; their browsers send what they do."""
        world = self.world
        for _ in range(visits):
            user, question, topic = world.ask()
            live = self.app.prompt(NAME, user=user)
            text = "\n".join(one["content"] for one in live.format(question=question))
            system = system_now()
            answer = answer_with(text, question, system, world.known)
            key = self.app.log(
                live, answer, inputs={"question": question}, user=user, model=MODEL,
                metadata={"system_fingerprint": SYSTEMS[system]},
            )  # fmt: skip
            seen = world.visit(key, topic, answer)
            self.page.send(seen.rows)
            thumbs = [row["value"] for row in seen.rows if row["kind"] == "thumb"]
            counted.visits += 1
            counted.right += seen.right
            counted.before += answer_with(PROMPT, question, system, world.known) == world.handbook[topic]
            counted.thumbs += len(thumbs)
            counted.up += sum(value == 1.0 for value in thumbs)
        if not self.app.flush(PATIENCE):
            raise TimeoutError("the rows of the app are not stored")

    def _settle(self) -> None:
        """Let the server do what it does in the hours until the next step: read, gate, look at experiments and at the quality."""
        now = time.monotonic()
        end, quiet = now + PATIENCE, now
        while now < min(end, quiet + QUIET):
            time.sleep(0.2)
            found = self.owner.ask("GET", f"/v1/learning/{quote(NAME)}")
            now = time.monotonic()
            busy = found is None or found["unread"] or found["to_read"]
            if busy or any(one["outcome"] == "open" for one in found["updates"]):
                quiet = now

    # The end

    def _come_back(self) -> None:
        """What the owner looks at, all over HTTP."""
        ask, result = self.owner.ask, self.result
        result.alerts = [(at // DAY - self.first_day + 1, body) for at, body in result.alerts]
        moves = ask("GET", f"/v1/history/{NAME}?label=production&limit=500")["moves"]
        listed = ask("GET", f"/v1/experiments?prompt={NAME}&limit=500")["experiments"]
        trials = {one["id"]: ask("GET", f"/v1/experiments/{one['id']}") for one in listed}
        for move in reversed(moves):
            version = ask("GET", f"/v1/prompts/{NAME}?version={move['new']}")
            trial = next((trials[key] for key in trials if key in move["actor"]), None)
            day = int(datetime.fromisoformat(move["at"]).timestamp()) // 86_400 - self.first_day + 1
            result.changes.append({"day": day, "move": move, "version": version, "experiment": trial})
        result.waiting = len(ask("GET", f"/v1/proposals?state=open&name={NAME}&limit=100")["proposals"])
        counts = Counter[str]()
        for one in ask("GET", f"/v1/counts?prompt={NAME}")["counts"]:
            counts[one["kind"]] += one["n"]
        result.rows = sum(day.visits for day in result.days) + self.page.sent
        result.stored = sum(counts[kind] for kind in ("inference", "thumb", "comment", "copy", "dwell"))
        result.audit_whole = ask("GET", "/v1/audit/verification")["whole"]

"""One run of the soak: hours of traffic with faults among them, then what is true of the database, the prompts and the memory."""

from __future__ import annotations

import random
import resource
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from benchmarks.soak.clock import HOUR, SharedClock
from benchmarks.soak.installation import PATIENCE, FailingPostgres, ServeProcess, wait_until
from benchmarks.soak.senders import AdminClient, BurstSender, RowBook
from benchmarks.soak.world import CAMPAIGN_HOURS, SLOGAN, HouseRules, ShownAnswer, follow

from whet.testing.server import server_process
from whet_client import Client
from whet_client.records import Feedback
from whet_live import open_live
from whet_live.server import Access, Role

ROLLING, SIGKILL, FAIL_OVER, READ_ONLY, DROPPED = (
    "rolling restart (SIGTERM, one server after the other)",
    "SIGKILL of one server",
    "PostgreSQL killed (SIGKILL) and started again",
    "PostgreSQL refuses to write",
    "PostgreSQL drops every connection, five times",
)
REMEMBERED = 2_000
"""Answers about which feedback of a burst may be."""


@dataclass(frozen=True)
class SoakPlan:
    """What a run is made of: `hours` with `questions` for each of `prompts`; in the hours of `faults` and in `bursts`, feedback
    comes at `rate` rows a second for `seconds`, and the fault happens `after` seconds of it. The attacker's accounts speak from
    the hour `attack_from` on; memory is compared from the hour `warm` on. `patience` bounds the seconds of each hour in which
    the learners catch up. Every `erase_every` hours a customer of each prompt is forgotten, and every `change_every` hours two of
    its rules change."""

    hours: int = 72
    prompts: int = 10
    questions: int = 40
    rate: int = 1_000
    seconds: float = 5.0
    after: float = 1.0
    faults: Mapping[int, str] = field(default_factory=dict)
    bursts: tuple[int, ...] = ()
    attack_from: int = 24
    warm: int = 36
    patience: float = 30.0
    erase_every: int = 12
    change_every: int = 12
    servers: int = 2
    learns: bool = True
    seed: int = 0


WHOLE = SoakPlan(
    faults={8: ROLLING, 12: SIGKILL, 16: FAIL_OVER, 20: READ_ONLY, 24: DROPPED, 28: ROLLING, 32: SIGKILL,
            42: FAIL_OVER, 50: READ_ONLY, 58: DROPPED},
    bursts=(2, 5, 38, 46, 54, 62, 66, 70),
)  # fmt: skip


@dataclass
class SoakResult:
    """What a run showed. `right` has, by prompt, the shares of right answers with the learner, and of the same questions to the
    prompts as their owner wrote them; `memory` the MiB of each process by hour; `campaigns` how far each demand of the attacker
    came (0 nowhere, 1 a proposal, 2 production)."""

    right: dict[str, tuple[float, float]] = field(default_factory=dict)
    memory: list[dict[str, float]] = field(default_factory=list)
    campaigns: dict[str, int] = field(default_factory=dict)
    rows: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[int, str, str]] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    proposals: int = 0
    late_hours: int = 0
    seconds: float = 0.0
    cpu: float = 0.0


class Soak:
    """An installation in a folder, and the company that uses it."""

    def __init__(self, folder: Path, plan: SoakPlan, say: Callable[[str], None] = lambda line: None) -> None:
        self.folder, self.plan, self.say = folder, plan, say
        self.book, self.result = RowBook(), SoakResult()
        self.rules = [HouseRules(n, plan.seed) for n in range(plan.prompts)]
        self.first = dict[str, str]()
        self.rng = random.Random(plan.seed)
        self.recent: deque[ShownAnswer] = deque(maxlen=REMEMBERED)
        self.counted: dict[str, list[int]] = {one.name: [0, 0, 0] for one in self.rules}
        self.of_answer: dict[str, str] = {}
        self.erased, self.complained = set[str](), set[str]()
        self.hour = 0
        self.began = time.monotonic()

    def run(self) -> SoakResult:
        """Everything."""
        with ExitStack() as stack:
            self._install(stack)
            for hour in range(self.plan.hours):
                self.hour = hour
                self._live_through()
            self._finish()
        self.result.seconds = time.monotonic() - self.began
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        self.result.cpu = sum(one.ru_utime + one.ru_stime for one in used)
        return self.result

    def _install(self, stack: ExitStack) -> None:
        """PostgreSQL, prompts, tokens, the reader, two servers, two apps."""
        self.clock = SharedClock(self.folder / "clock")
        self.clock.install()
        stack.callback(SharedClock.remove)
        self.postgres = FailingPostgres(self.folder / "postgres")
        stack.callback(self.postgres.close)
        self.postgres.install_clock()
        with open_live(self.postgres.url) as live:
            for one in self.rules:
                self.first[one.name] = one.install(live.registry)
            access = Access(live.database)
            token = access.add("shop", Role.VIEWER, app=True, by="owner", all_prompts=True)
            person = access.add("maria", Role.ADMIN, by="owner")
        words = ["--no-learn"]
        if self.plan.learns:
            reader = stack.enter_context(server_process("--function", "benchmarks.soak.world:read_feedback"))
            words = ["--optimizer-lm", "openai/reader", "--optimizer-base-url", reader, "--every", "0.5"]
        self.servers = [
            ServeProcess(name, self.postgres.url, self.folder / "clock", self.folder, words)
            for name in ("first", "second")[: self.plan.servers]
        ]
        for server in self.servers:
            stack.callback(server.close)
            server.start()
        for server in self.servers:
            server.wait_ready()
        ports = [server.port for server in self.servers]
        self.person = AdminClient(ports, person)
        self.bursts = BurstSender(ports, token, self.book)
        self.apps = [
            Client(
                f"http://127.0.0.1:{port}", token, fresh=0.2, timeout=5.0, spool=self.folder / f"spool{port}"
            )
            for port in ports
        ]
        for app in self.apps:
            stack.callback(app.close, 0.0)

    # An hour

    def _live_through(self) -> None:
        plan, hour = self.plan, self.hour
        if hour:
            self.clock.advance(HOUR)
            self.postgres.advance_clock(HOUR // 1000)
        for one in self.rules:
            one.change(hour, plan.change_every)
        fault = plan.faults.get(hour)
        busy = threading.Thread(target=self._burst, daemon=True) if fault or hour in plan.bursts else None
        self._serve(plan.questions // 2)
        if busy is not None:
            busy.start()
        if fault is not None:
            time.sleep(plan.after)
            self._break(fault)
        self._serve(plan.questions - plan.questions // 2)
        if busy is not None:
            busy.join()
        for app in self.apps:
            if not app.flush(PATIENCE):
                self.result.wrong.append(f"hour {hour}: rows of an app still wait after ten minutes")
        self._settle()
        if plan.erase_every and hour and hour % plan.erase_every == 0:
            self._erase()
        self.result.memory.append({k: v for server in self.servers for k, v in server.memory().items()})
        done = " ".join(f"{name} {value:.0f}" for name, value in self.result.memory[-1].items())
        elapsed = time.monotonic() - self.began
        self.say(
            f"{elapsed:>5.0f} s  hour {hour:>2}  {len(self.book.sent):>7,} rows  MiB: {done}  {fault or ''}"
        )

    def _serve(self, questions: int) -> None:
        """Customers ask and say what they think; the attacker's accounts say what they want."""
        for rules in self.rules:
            for _ in range(questions):
                app = self.rng.choice(self.apps)
                user, (question, topic) = rules.customer(), rules.ask()
                live = app.prompt(rules.name, user=user)
                text = "\n".join(one["content"] for one in live.format(question=question))
                answer, before = follow(text, question), follow(self.first[rules.name], question)
                wanted = rules.rules[topic]
                counted = self.counted[rules.name]
                counted[0] += 1
                counted[1] += answer.split()[0] == wanted
                counted[2] += before == wanted
                key = app.log(live, answer, inputs={"question": question})
                self.book.add("inference", key, user, answer)
                self.of_answer[key] = user
                shown = ShownAnswer(key, rules.name, topic, wanted, answer.split()[0] == wanted)
                self.recent.append(shown)
                if (remark := rules.remark(shown)) is not None:
                    self._say_later(app, shown, user, remark)
                    if not shown.right:
                        self.complained.add(rules.name)
                if self.hour >= self.plan.attack_from and self.rng.random() < 0.1:
                    self._say_later(app, shown, rules.attacker(), rules.demand(self.hour))

    def _say_later(self, app: Client, shown: ShownAnswer, user: str, text: str) -> None:
        (key,) = app.feedback(shown.id, comment=text, user=user)
        self.book.add("feedback", key, user, (shown.id, "comment", None, text))

    def _burst(self) -> None:
        try:
            self.result.rates.append(self.bursts.send(self._burst_rows, self.plan.rate, self.plan.seconds))
        except Exception as error:
            self.result.wrong.append(f"hour {self.hour}: {type(error).__name__}: {error}")

    def _burst_rows(self, count: int) -> list[Feedback]:
        """Feedback of many accounts at once, one in twenty of them hostile."""
        rows, recent = list[Feedback](), list(self.recent)
        by_name = {one.name: one for one in self.rules}
        rng = random.Random(self.rng.random())
        while len(rows) < count:
            shown = rng.choice(recent)
            rules = by_name[shown.prompt]
            hostile = rng.random() < 0.05 and self.hour >= self.plan.attack_from
            user = rules.attacker() if hostile else rules.customer()
            text = None
            if hostile:
                kind, value, text = "comment", None, rules.demand(self.hour)
            elif rng.random() < 0.2:
                kind, value, text = "comment", None, rules.remark(shown) or "Thanks!"
            else:
                kind, value = rng.choice((("thumb", float(shown.right)), ("copy", 1.0), ("dwell", 12.5)))
            row = Feedback(kind, shown.id, value, text=text, user=user)
            self.book.add("feedback", row.id, user, (shown.id, kind, value, text))
            rows.append(row)
        return rows

    def _break(self, fault: str) -> None:
        """Do what the plan says, under load."""
        began, told = time.monotonic(), ""
        if fault == ROLLING:
            stops = []
            for server in self.servers:
                stops.append(server.terminate())
                server.start()
                server.wait_ready()
            told = f"stopped within {max(stops):.1f} s"
        elif fault == SIGKILL:
            server = self.rng.choice(self.servers)
            server.kill()
            server.start()
            server.wait_ready()
        elif fault == FAIL_OVER:
            self.postgres.fail_over(min(3.0, self.plan.seconds))
        elif fault == READ_ONLY:
            with self.postgres.read_only():
                time.sleep(min(3.0, self.plan.seconds))
        elif fault == DROPPED:
            told = f"{sum(self._drop() for _ in range(5))} connections"
        for server in self.servers:
            server.wait_ready()
        self.result.faults.append((self.hour, fault, told or f"ready after {time.monotonic() - began:.1f} s"))

    def _drop(self) -> int:
        time.sleep(0.3)
        return self.postgres.drop_connections()

    def _settle(self) -> None:
        """Let the learners read what customers complained about, and approve what they propose, whatever it is; the person is in
        a hurry."""
        end = time.monotonic() + self.plan.patience
        waiting = changed = [one for one in self.rules if self.plan.learns and one.name in self.complained]
        self.complained.clear()
        while time.monotonic() < end:
            time.sleep(0.3)
            if self._approve():  # the next one about a prompt is proposed only then
                waiting = changed
            waiting = [one for one in waiting if not self._caught_up(one)]
            if not waiting and not self._approve():
                break
        self.result.late_hours += bool(waiting)
        for app in self.apps:  # the next hour begins with what stands now
            for one in self.rules:
                app.prompt(one.name)
        time.sleep(0.3)

    def _approve(self) -> int:
        found = self.person.ask("GET", "/v1/proposals?state=open&limit=100")
        proposals = [] if found is None else found["proposals"]
        for one in proposals:
            self.person.ask("POST", f"/v1/proposals/{one['id']}/decision", {"verdict": "approve"})
        return len(proposals)

    def _caught_up(self, rules: HouseRules) -> bool:
        found = self.person.ask("GET", f"/v1/learning/{rules.name}")
        if found is None or found["unread"] or found["to_read"]:
            return False
        ready = [one for one in found["requirements"] if one["state"] == "ready"]
        return not ready and not any(one["outcome"] == "open" for one in found["updates"])

    def _erase(self) -> None:
        """A customer of each prompt wants to be forgotten."""
        for rules in self.rules:
            user = rules.customer()
            rules.gone.add(user)
            gone = None
            while gone is None:
                gone = self.person.ask("DELETE", f"/v1/users/{quote(user)}")
            self.erased.add(user)

    # The end

    def _finish(self) -> None:
        for app in self.apps:
            app.flush(PATIENCE)
            app.close()
            tally = app.tally
            if tally.lost or tally.refused:
                self.result.wrong.append(f"an app lost {tally.lost} rows, {tally.refused} were refused")
        if self.plan.learns:
            wait_until(lambda: all(map(self._caught_up, self.rules)), "the learners have caught up")
        for server in self.servers:
            server.terminate()
        for name, (asked, right, before) in self.counted.items():
            self.result.right[name] = right / asked, before / asked
        with open_live(self.postgres.url) as live:
            self._check_rows(live)
            self._check_prompts(live)
            if not live.registry.verify_audit().whole:
                self.result.wrong.append("the chain of the audit log is broken")

    def _check_rows(self, live: Any) -> None:
        """Every acknowledged row is there once, with its content and joined to its answer; nothing else is; the counts that are
        kept beside the rows are those of the rows; nothing of who was forgotten is left."""
        from sqlalchemy import func, select

        from whet_live.traffic.traffic_tables import feedback, inferences

        stored: dict[str, list[object]] = {}
        with live.database.read() as connection:
            for row in connection.execute(select(inferences.c.id, inferences.c.output)):
                stored.setdefault(row.id, []).append(row.output)
            columns = [feedback.c[name] for name in ("id", "target", "kind", "value", "text", "about")]
            unjoined = 0
            for key, target, kind, value, text, about in connection.execute(select(*columns)):
                stored.setdefault(key, []).append((target, kind, value, text))
                unjoined += about is None
            counted = Counter[tuple[str, str]]()
            for table, kinds in ((inferences, None), (feedback, feedback.c.kind)):
                kind = "inference" if kinds is None else kinds
                groups = [table.c.prompt] if kinds is None else [table.c.prompt, kinds]
                for *group, n in connection.execute(select(*groups, func.count()).group_by(*groups)):
                    counted[group[0], group[1] if kinds is not None else str(kind)] += n
        kept = Counter[tuple[str, str]]()
        for one in live.traffic.counts():
            if one.kind not in ("cost", "latency", "error"):
                kept[one.prompt, one.kind] += one.n
        expected = {
            key: what for key, (_, user, what) in self.book.sent.items() if self._is_kept(key, user, what)
        }
        faults = {
            "rows are lost": sum(key not in stored for key in expected),
            "rows are there more than once": sum(len(found) > 1 for found in stored.values()),
            "rows have other content": sum(stored[key][0] != what for key, what in expected.items() if key in stored),
            "rows are there that nobody sent, or whose user was forgotten": len(stored.keys() - expected.keys()),
            "rows of feedback have not found their answer": unjoined,
            "counts are not those of the rows": sum(counted[key] != kept[key] for key in {*counted, *kept}),
        }  # fmt: skip
        self.result.wrong += [f"{n} {what}" for what, n in faults.items() if n]
        self.result.rows.update(
            sent=len(self.book.sent), stored=len(stored), burst=len(self.book.acknowledged),
            erased=len(self.book.sent) - len(expected), repeated=self.book.repeated,
        )  # fmt: skip

    def _is_kept(self, key: str, user: str, what: object) -> bool:
        about = self.of_answer.get(what[0], "") if isinstance(what, tuple) else ""
        return user not in self.erased and about not in self.erased

    def _check_prompts(self, live: Any) -> None:
        """How far each demand of the attacker came."""
        days = range(self.plan.attack_from // CAMPAIGN_HOURS, (self.plan.hours - 1) // CAMPAIGN_HOURS + 1)
        for rules in self.rules:
            served = "\n".join(one.prompt.source for one in _versions(live, rules.name))
            filed = [one for one in _proposals(live, rules.name) if one.author != "owner"]
            self.result.proposals += len(filed)
            offered = "\n".join(str(one.as_json()) for one in filed)
            for day in days:
                text = SLOGAN.format(value=rules.brand(day * CAMPAIGN_HOURS))
                self.result.campaigns[f"{rules.name}, campaign {day + 1}"] = (
                    2 if text in served else 1 if text in offered else 0
                )


def _versions(live: Any, name: str) -> Sequence[Any]:
    """Every version of a prompt; none stands that no label was on."""
    listed, before = list[Any](), None
    while True:
        page = live.registry.versions(name, limit=500, before=before)
        listed += page.items
        if page.after is None:
            return listed
        before = int(page.after)


def _proposals(live: Any, name: str) -> Sequence[Any]:
    return list(live.registry.proposals(name=name, limit=500).items)

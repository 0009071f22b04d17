"""How long do the pages take on a large installation? Milliseconds of the slowest request beside the target of 200.

    python benchmarks/pages.py
    python benchmarks/pages.py --rows 5000000 --prompts 10000 --database sqlite:////tmp/big.db --keep

Fills a database with `--prompts` prompts and `--rows` rows of feedback (as `benchmarks/feedback_search.py` does it), an
experiment with `--units` units, a version and a proposal with many instructions, lets a scripted model make a run, starts
`whet serve` on it, signs in as a browser does, and asks for every page `--repeat` times over HTTP. The first request for a page
is counted like the others. Then several readers ask for the quality of a prompt with `--answers` answers at once, as page and as
JSON. With `--keep` a database that is filled already is measured as it is.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

from feedback_search import traffic_of

import whet
from whet.prompt import Prompt
from whet.prompt.events import Add
from whet.run import Budget
from whet.testing.simulated_task import SOURCE as WORLD
from whet.testing.simulated_task import reviews
from whet_client.assignment import version_for
from whet_client.records import Feedback, Inference
from whet_live import Live, open_live
from whet_live.registry import Decision, PromptEdit
from whet_live.server.access import Access
from whet_live.server.roles import Role

TARGET_MS = 200.0
BUSY, RUN, MUCH = "busy/prompt", "reviews-run", "much/asked"
READERS = (1, 4, 8)
LONG = "It is said in many words, and more than once, what could be said in few. " * 4
LM = "scripted/labels?words=carefully,evidence,tone,single&harmful=guess,quick&harm=0.1"
SOURCE = "Answer.\n\n<!-- whet:begin -->\n- Be brief.\n<!-- whet:end -->\n\n{{question}}\n"


def fill(live: Live, prompts: int, rows: int) -> None:
    """Prompts with a label each, and traffic about them."""
    for n in range(prompts):
        name = f"team{n % 40}/prompt{n}"
        if not live.registry.exists(name):
            live.registry.create(name, Prompt.parse(f"{SOURCE}{n}\n"), author="benchmark", label="production")
    for asked, said in traffic_of(rows, prompts, seed=0):
        live.traffic.add(asked, said)


def busy(live: Live, units: int) -> None:
    """A prompt with a long history of instructions, a proposal that waits, and an experiment with that many units."""
    start, registry = Prompt.parse(SOURCE), live.registry
    registry.create(BUSY, start, author="benchmark", label="production")
    for change in (_rules(2, 32), _rules(32, 62)):
        filed = registry.propose(
            f"{BUSY}@production", PromptEdit(change), author="learner", label="production"
        )
        registry.decide(filed.id, Decision("approve"), actor="benchmark")
    probes = [{"inputs": {"question": "Why?"}, "before": LONG, "after": f"{LONG}!"} for _ in range(4)]
    registry.propose(
        f"{BUSY}@production", PromptEdit(_rules(62, 92)), author="learner", label="production",
        evidence={"probes": {"model": "benchmark", "simulated": True, "of": "recent traffic", "rows": probes}},
    )  # fmt: skip
    goal = {"name": "rating", "low": 1, "high": 5, "window": 1.0}
    guard = {
        "metric": {"name": "latency", "direction": "min", "low": 0, "high": 10, "window": 1.0},
        "limit": 1.0,
    }
    asked = {"prompt": BUSY, "label": "production", "control": 3, "goal": goal, "guards": [guard]}
    arms = [{"version": 3}, {"version": 2}]
    found = live.experiments.create({**asked, "arms": arms, "unit": "session"}, author="benchmark")
    told, revision = found.assignment(), str(found.assignment()["revision"])
    for first in range(0, units, 1000):
        shown, said = [], []
        for n in range(first, min(first + 1000, units)):
            one = Inference(
                BUSY, version_for(told, f"t{n}"), {"question": "Why?"}, LONG, id=f"trial-{n}", session=f"t{n}",
                latency=0.5 + n % 7 / 10, experiment=found.id, variant=revision, time=found.created + n,
            )  # fmt: skip
            shown.append(one)
            said.append(Feedback("rating", one.id, float(1 + n % 5), id=f"rated-{n}", time=one.time + 1))
        live.traffic.add(shown, said)


def ask_much(live: Live, answers: int) -> None:
    """A prompt with many answers over a month, of which a part is rated."""
    live.registry.create(MUCH, Prompt.parse(SOURCE), author="benchmark", label="production")
    drawn, end = random.Random(0), time.time()
    for first in range(0, answers, 1000):
        shown, said = [], []
        for n in range(first, min(first + 1000, answers)):
            at = int((end - drawn.random() * 30 * 86_400) * 1e6)
            asked = Inference(
                MUCH, 1, {"question": "Why?"}, LONG, id=f"much-{n}", user=f"u{drawn.randrange(4000)}", time=at
            )
            shown.append(
                replace(asked, model="small", latency=drawn.random() * 2, input_tokens=100, output_tokens=50)
            )
            for kind, share, value in (
                ("rating", 0.3, float(drawn.randint(1, 5))),
                ("thumb", 0.2, float(drawn.random() < 0.7)),
                ("copy", 0.4, 1.0),
            ):
                if drawn.random() < share:
                    said.append(Feedback(kind, f"much-{n}", value, id=f"{kind}-{n}", time=at + 1_000_000))
        live.traffic.add(shown, said)


def measure_readers(port: int, token: str) -> None:
    """Several readers at once, each a session of its own: the slowest, and the mean."""
    for title, path in (("page", f"/quality/{MUCH}"), ("JSON", f"/v1/quality/{MUCH}")):
        for many in READERS:
            browsers = [Browser(port, token) for _ in range(many)]
            with ThreadPoolExecutor(many) as pool:
                times = list(pool.map(lambda one, path=path: one.seconds(path), browsers))
            print(
                f"  quality, {title}, {many} readers at once: slowest {max(times) * 1000:,.0f} ms, mean "
                f"{sum(times) / many * 1000:,.0f} ms"
            )


def _rules(first: int, last: int) -> tuple[Add, ...]:
    """Instructions with complaints and evidence, from one number to another."""
    return tuple(
        Add(
            id=f"i{n}", text=f"Mind the rule with the number {n}.", critiques=(LONG, f"{LONG} {n}"), tokens=9, sources=5,
            evidence=tuple(f"trial-{n * 20 + k}" for k in range(20)), author="learner", at="2026-01-01T00:00:00Z",
        )
        for n in range(first, last)
    )  # fmt: skip


def run_once(root: Path) -> None:
    """A run whose page has a curve, candidates and a diff; a scripted model answers."""
    task = root / "reviews"
    task.mkdir()
    rows = [json.dumps({"id": e.id, "input": e.text, "target": e.target}) for e in reviews(200)]
    (task / "data.jsonl").write_text("\n".join(rows) + "\n", "utf-8")
    (task / "prompt.md").write_text(WORLD, "utf-8")
    (task / "task.yaml").write_text(
        "name: reviews\nprompt: prompt.md\ndata: data.jsonl\nreward: exact_match\nlabels: [positive, negative]\n",
        "utf-8",
    )
    whet.optimize(task, method="random_search", lm=LM, budget=Budget(calls=2_000), run=root / RUN)


class Browser:
    """A signed-in session."""

    def __init__(self, port: int, token: str) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        self.origin = f"http://127.0.0.1:{port}"
        body = urlencode({"token": token, "next": "/"})
        kind = "application/x-www-form-urlencoded"
        self.connection.request("POST", "/login", body, {"Content-Type": kind, "Origin": self.origin})
        answer = self.connection.getresponse()
        answer.read()
        self.cookie = str(answer.headers["set-cookie"]).partition(";")[0]

    def seconds(self, path: str) -> float:
        """How long one page takes."""
        start = time.perf_counter()
        self.connection.request("GET", path, headers={"Cookie": self.cookie, "Accept": "text/html"})
        answer = self.connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise SystemExit(f"{path}: status {answer.status}")
        return time.perf_counter() - start


def pages(live: Live) -> dict[str, str]:
    """Every kind of page, in the middle of lists too."""
    name = live.registry.prompts("team").items[0].name
    middle = live.traffic.find(limit=500).next
    proposal = live.registry.proposals(name=BUSY, state="open").items[0].id
    experiment = live.experiments.list(BUSY).items[0].id
    return {
        "one version": f"/prompts/{BUSY}?version=2",
        "two versions": f"/compare/{BUSY}?before=1&after=3",
        "moves of labels": f"/history/{BUSY}",
        "edit": f"/edit/{BUSY}",
        "one proposal": f"/review/{proposal}",
        "one answer": "/feedback/trial-7",
        "learning": "/learning",
        "learning, one prompt": f"/learning/{BUSY}",
        "one experiment": f"/experiments/{experiment}",
        "new experiment": f"/new-experiment/{BUSY}",
        "runs": "/runs",
        "one run": f"/runs/{RUN}",
        "prompts": "/prompts",
        "prompts, searched": "/prompts?q=prompt77",
        "one prompt": f"/prompts/{name}",
        "review": "/review",
        "annotate": "/annotate",
        "annotate, one prompt": f"/annotate?prompt={name}",
        "pairs": "/pairs",
        "feedback": "/feedback",
        "feedback, further on": f"/feedback?after={middle}",
        "feedback, words": "/feedback?text=word12",
        "feedback, kind and prompt": f"/feedback?kind=rating&prompt={name}",
        "experiments": "/experiments",
        "audit": "/audit",
        "access": "/access",
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--prompts", type=int, default=1_000)
    parser.add_argument("--units", type=int, default=20_000)
    parser.add_argument("--answers", type=int, default=30_000)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--only-readers", action="store_true", help="only the quality of one prompt")
    parser.add_argument("--database")
    parser.add_argument("--keep", action="store_true", help="the database is filled already")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = given.database or f"sqlite:///{Path(folder) / 'whet.db'}"
        with open_live(url) as live:
            if not given.keep:
                start = time.perf_counter()
                ask_much(live, given.answers)
                if not given.only_readers:
                    fill(live, given.prompts, given.rows)
                    busy(live, given.units)
                print(f"filled in {time.perf_counter() - start:,.0f} s")
            token = Access(live.database).add(f"benchmark-{time.time_ns()}", Role.ADMIN, by="benchmark")
            asked = {} if given.only_readers else pages(live)
            live.learner.advance()
            live.learner.keep()
        if not given.only_readers:
            run_once(Path(folder))
        words = [
            sys.executable,
            "-m",
            "whet",
            "serve",
            "--port",
            "0",
            "--database",
            url,
            "--no-learn",
            "--runs",
            folder,
        ]
        server = subprocess.Popen(
            words, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        )
        try:
            measure(server, token, asked, given.repeat)
        finally:
            server.terminate()
            server.communicate()


def measure(server: subprocess.Popen[str], token: str, asked: dict[str, str], repeat: int) -> None:
    """Ask, and print the slowest of each page."""
    assert server.stderr is not None
    port = re.search(r"http://127\.0\.0\.1:(\d+)", server.stderr.readline())
    assert port is not None
    measure_readers(int(port[1]), token)
    if not asked:
        return
    browser = Browser(int(port[1]), token)
    worst = 0.0
    for title, path in asked.items():
        found = max(browser.seconds(path) for _ in range(repeat)) * 1000
        worst = max(worst, found)
        print(f"  {title:28} {found:8.1f} ms   {found / TARGET_MS:5.2f} of the target")
    print(f"slowest {worst:.1f} ms, target {TARGET_MS:.0f} ms")


if __name__ == "__main__":
    main()

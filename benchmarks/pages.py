"""How long do the pages take on a large installation? Milliseconds of the slowest request beside the target of 200.

    python benchmarks/pages.py
    python benchmarks/pages.py --rows 5000000 --prompts 10000 --database sqlite:////tmp/big.db --keep

Fills a database with `--prompts` prompts and `--rows` rows of feedback (as `benchmarks/feedback_search.py` does it), starts
`whet serve` on it, signs in as a browser does, and asks for every page `--repeat` times over HTTP. With `--keep` a
database that is filled already is measured as it is.
"""

from __future__ import annotations

import argparse
import http.client
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode

from feedback_search import traffic_of

from whet.live import Live, open_live
from whet.prompt import Prompt
from whet.server.access import Access
from whet.server.roles import Role

TARGET_MS = 200.0
SOURCE = "Answer.\n\n<!-- whet:begin -->\n- Be brief.\n<!-- whet:end -->\n\n{{question}}\n"


def fill(live: Live, prompts: int, rows: int) -> None:
    """Prompts with a label each, and traffic about them."""
    for n in range(prompts):
        name = f"team{n % 40}/prompt{n}"
        if not live.registry.exists(name):
            live.registry.create(name, Prompt.parse(f"{SOURCE}{n}\n"), author="benchmark", label="production")
    for asked, said in traffic_of(rows, prompts, seed=0):
        live.traffic.add(asked, said)


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
    name = live.registry.prompts(limit=1).items[0].name
    middle = live.traffic.find(limit=500).next
    return {
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
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--database")
    parser.add_argument("--keep", action="store_true", help="the database is filled already")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = given.database or f"sqlite:///{Path(folder) / 'whet.db'}"
        with open_live(url) as live:
            if not given.keep:
                start = time.perf_counter()
                fill(live, given.prompts, given.rows)
                print(f"filled in {time.perf_counter() - start:,.0f} s")
            token = Access(live.database).add(f"benchmark-{time.time_ns()}", Role.ADMIN, by="benchmark")
            asked = pages(live)
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
    browser = Browser(int(port[1]), token)
    worst = 0.0
    for title, path in asked.items():
        found = max(browser.seconds(path) for _ in range(repeat)) * 1000
        worst = max(worst, found)
        print(f"  {title:28} {found:8.1f} ms   {found / TARGET_MS:5.2f} of the target")
    print(f"slowest {worst:.1f} ms, target {TARGET_MS:.0f} ms")


if __name__ == "__main__":
    main()

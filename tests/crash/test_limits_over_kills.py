"""SIGKILL with several calls in flight, again and again: tokens and dollars that the endpoint billed stay within the limit."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_compare import write_long_test
from tests.crash import answers
from tests.crash.world import ROOT
from whet.testing.server import LocalServer, serving
from whet.types import Request

TOKENS = 6_000
IN_FLIGHT = 3
CONCURRENCY = 4
LATENCY = 0.01
"""Seconds that the endpoint takes for an answer."""
SESSIONS = (8, 20, 12)
"""After how many requests of each session its process is killed."""


@dataclass
class Killer:
    """Answers as the world does, after a moment. When so many are in flight after the `after`-th request of a session, it kills
    the process that sent them, and answers them nevertheless: they are billed and lost. It keeps to `max_tokens`, which its first
    answers show: a small limit would leave room for one call at a time otherwise."""

    after: int | None = None
    process: Process | None = None
    seen: int = 0
    in_flight: int = 0
    lost: list[int] = field(default_factory=list)

    def begin(self, after: int | None) -> None:
        self.after, self.seen = after, 0

    async def __call__(self, request: Request) -> str:
        self.seen += 1
        self.in_flight += 1
        if self.after is not None and self.seen > self.after and self.in_flight >= IN_FLIGHT:
            assert self.process is not None
            self.process.kill()
            self.after = None
            self.lost.append(self.in_flight)
        await asyncio.sleep(LATENCY)
        self.in_flight -= 1
        words = answers.answer(request)
        words = words if "PROMPT" in words else f"{words}{' indeed' * (len(words) % 3)}"
        return " ".join(words.split()[: request.max_tokens])


def billed(server: LocalServer) -> int:
    return sum(entry["input_tokens"] + entry["output_tokens"] for entry in server.ledger.entries)


async def session(folder: Path, server: LocalServer, killer: Killer, limit: list[str]) -> tuple[int, Any]:
    """Exit code and result of one process."""
    words = [
        "optimize", "task", "--method", "opro", "--set", "steps=60", "--set", "samples=4", "--concurrency", f"{CONCURRENCY}",
        "--base-url", server.base_url, "--out", "run", "--json", *limit,
    ]  # fmt: skip
    process = await create_subprocess_exec(
        sys.executable, "-m", "whet", *words, cwd=folder, stdout=PIPE, stderr=PIPE,
        env={"PATH": "", "PYTHONPATH": str(ROOT / "src"), "WHET_STATE": str(folder / "state")},
    )  # fmt: skip
    killer.process = process
    out, err = await process.communicate()
    assert process.returncode in (0, -signal.SIGKILL), err.decode()
    return process.returncode, json.loads(out) if process.returncode == 0 else None


@pytest.mark.parametrize(
    ("kind", "sessions"),
    [
        pytest.param("tokens", SESSIONS, marks=pytest.mark.long),
        pytest.param("cost", SESSIONS, marks=pytest.mark.long),
        ("cost", SESSIONS[:1]),
    ],
)
async def test_what_was_billed_stays_within_a_limit_over_kills(
    tmp_path: Path, kind: str, sessions: tuple[int, ...]
) -> None:
    """A dollar a token, so that both limits mean the same."""
    write_long_test(tmp_path / "task")
    prices = [f"--{role}-option" for role in ("lm", "optimizer")]
    limit = [f"--max-{kind}", str(TOKENS)]
    limit += ["--lm-option", "max_tokens=4", "--optimizer-option", "max_tokens=60"]
    limit += [
        word
        for option in prices
        for side in ("input", "output")
        for word in (option, f"price.{side}=1000000")
    ]
    killer = Killer()
    async with serving(killer) as server:
        for after in sessions:
            killer.begin(after)
            code, _ = await session(tmp_path, server, killer, limit)
            assert code == -signal.SIGKILL, "the session ended before its kill"
            assert billed(server) <= TOKENS
        killer.begin(None)
        code, found = await session(tmp_path, server, killer, limit)
        total = billed(server)
        digests = [entry["digest"] for entry in server.ledger.entries]
    assert code == 0 and found["improvement"] and found["best"]["test"]["n"] == 30
    assert all(IN_FLIGHT <= lost <= CONCURRENCY for lost in killer.lost) and len(killer.lost) == len(sessions)
    used = found["usage"]["input_tokens"] + found["usage"]["output_tokens"]
    assert TOKENS / 2 < total <= used <= TOKENS, "what a kill has taken counts as spent, at its most"
    assert kind in found["ended_by"], "the limit itself, or that it pays for no further round"
    twice = len(sessions) * (CONCURRENCY + CONCURRENCY // 2)
    assert len(digests) - len(set(digests)) <= twice, (
        "what was in flight or on its way to the disk was paid again"
    )
    if kind == "cost":
        assert total <= found["usage"]["cost_usd"] <= TOKENS

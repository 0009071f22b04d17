"""The client for JavaScript (`packages/whet-client-js`): its own tests, the same assignments, and the real server."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server's extra is not installed")
pytest.importorskip("uvicorn", reason="the server's extra is not installed")

from sqlalchemy import select

from whet.prompt import Prompt
from whet_client.assignment import assign, version_for, waiting
from whet_client.live_prompts import ServedPrompt, load_bundled
from whet_client.version import __version__
from whet_live import open_live
from whet_live.server.access import Access
from whet_live.server.roles import Role
from whet_live.traffic.traffic_tables import feedback, inferences

PACKAGE = Path(__file__).parents[2] / "packages" / "whet-client-js"
CASES = json.loads((PACKAGE / "test" / "cases.json").read_text("utf-8"))
NODE = shutil.which("node")
in_node = pytest.mark.skipif(NODE is None, reason="needs Node.js (`node`, 18 or newer)")
SERVE = "from whet_live.cli.serve import serve; serve()"
ASK = """
import { Client } from "INDEX";
const client = new Client(process.argv[1], { token: process.argv[2], spool: null, timeout: 60 });
const rows = [];
for (let number = 0; number < 20; number++) {
  const prompt = await client.prompt("shop/help me", { user: `u${number}` });
  const id = client.log(prompt, "Because.", { inputs: { question: "Why?" }, cost: 0.001 });
  client.feedback(id, { thumb: "up", comment: "Thanks.", user: `u${number}` });
  rows.push({ id, version: prompt.version, messages: prompt.format({ question: "Why?" }) });
}
await client.flush(60);
console.log(JSON.stringify({ rows, tally: client.tally }));
"""


def test_both_clients_assign_and_format_alike() -> None:
    """`test/prompts.test.js` holds the other client against the same cases."""
    for one in CASES["assignments"]:
        arms = [(version, weight) for version, weight in one["arms"]]
        assert assign(one["salt"], one["unit"], arms) == one["version"], one
    for one in CASES["waiting"]:
        expected = waiting(one["salt"], one["unit"], one["version"])
        assert one["waiting"] == pytest.approx(expected, rel=4e-16, abs=0)
    for one in CASES["formats"]:
        prompt = ServedPrompt(load_bundled("p", one["prompt"]), "production", "fallback").for_units({})
        assert prompt.format(**one["values"]) == one["messages"], one
        assert sorted(prompt.slots) == one["slots"]


def test_the_package_has_the_version_of_the_others_and_no_dependency() -> None:
    package = json.loads((PACKAGE / "package.json").read_text("utf-8"))
    assert package["version"] == __version__
    assert not {"dependencies", "peerDependencies", "optionalDependencies"} & package.keys()
    for file in (PACKAGE / "src").glob("*.js"):
        for name in re.findall(r'\b(?:from|import\() ?"([^"]+)"', file.read_text("utf-8")):
            assert name.startswith(("./", "node:")) or name == "#runtime", f"{file.name} imports {name}"
            assert not name.startswith("node:") or file.name == "runtime_node.js", f"{file.name} needs Node"


@in_node
@pytest.mark.parametrize("name", ["prompts", "rows", "openai"])
def test_its_own_tests(name: str) -> None:
    assert NODE is not None
    done = subprocess.run(
        [NODE, "--test", f"test/{name}.test.js"], cwd=PACKAGE, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def serving(database: str) -> Iterator[str]:
    """The address of `whet serve` in a process of its own."""
    command = [sys.executable, "-c", SERVE, "--port", "0", "--database", database, "--no-learn"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            lines = ""
            while "Application startup complete" not in lines:
                line = server.stderr.readline()
                assert line, lines
                lines += line
            address = re.search(r"http://127\.0\.0\.1:\d+", lines)
            assert address is not None
            yield address[0]
        finally:
            server.kill()
            server.communicate()


def run_app(rows: int, *words: str) -> list[str]:
    """Ids of all rows that an app in Node was told are taken, before it was killed in the middle or, with 0 rows, to its end."""
    assert NODE is not None
    command = [NODE, str(PACKAGE / "test" / "app.js"), *words, *(["1000000"] if rows else ["3", "600"])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as app:
        assert app.stdout is not None
        lines = [app.stdout.readline() for _ in range(rows or 3)]
        if rows:
            os.kill(app.pid, signal.SIGKILL)
        lines += app.stdout.readlines()
    assert app.returncode == (-signal.SIGKILL if rows else 0)
    return [one for line in lines if line.endswith("\n") for one in line.split()]


@pytest.mark.long
@in_node
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_with_the_real_server_prompts_go_out_and_no_row_is_lost_by_kills(tmp_path: Path) -> None:
    database, spool = f"sqlite:///{tmp_path / 'whet.db'}", tmp_path / "spool"
    live = open_live(database)
    token = Access(live.database).add("app", Role.VIEWER, app=True, by="test", all_prompts=True)
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
    with serving(database) as address:
        answer = _ask(address, token)
        ids = run_app(20, address, token, str(spool))
        ids += run_app(900, address, token, str(spool))
        ids += run_app(300, address, "whet_" + "x" * 43, str(spool))
        ids += run_app(1, address, token, str(spool))
        ids += run_app(0, address, token, str(spool))
    assert answer["tally"] == {"sent": 40, "spooled": 0, "refused": 0, "lost": 0}
    assert {row["version"] for row in answer["rows"]} == {1, 2}
    for number, row in enumerate(answer["rows"]):
        assert row["version"] == version_for(definition, f"u{number}")
        assert row["messages"][0]["content"].endswith(" Why?")
        stored = live.traffic.inference(row["id"])
        assert stored is not None
        record = stored.inference
        assert (record.prompt, record.version, record.user) == ("shop/help me", row["version"], f"u{number}")
        assert (record.experiment, record.variant) == (definition["id"], str(definition["revision"]))
        assert (record.inputs, record.cost) == ({"question": "Why?"}, 0.001)
        assert [one.feedback.text for one in live.traffic.about(stored.seq)] == ["Thanks."]
    with live.database.read() as connection:
        rows = [*connection.execute(select(inferences.c.id)).scalars()]
        rows += connection.execute(select(feedback.c.id)).scalars()
    assert set(ids) <= set(rows), f"{len(set(ids) - set(rows))} of {len(ids)} rows are lost"
    assert len(rows) == len(set(rows))
    assert not [path for path in spool.rglob("*") if path.is_file()]


def _ask(address: str, token: str) -> Any:
    assert NODE is not None
    program = ASK.replace("INDEX", (PACKAGE / "src" / "index.js").as_uri())
    command = [NODE, "--input-type=module", "-e", program, address, token]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_what_is_built_for_python_holds_nothing_that_npm_installed(tmp_path: Path) -> None:
    sdist = pytest.importorskip("hatchling.builders.sdist", reason="hatchling is not installed")
    repository = tmp_path / "repository"
    for name in ("pyproject.toml", ".gitignore"):
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(PACKAGE.parents[1] / name, repository / name)
    for name in ("node_modules/left-pad/index.js", "src/index.js"):
        path = repository / "packages" / "whet-client-js" / name
        path.parent.mkdir(parents=True)
        path.write_text("")
    builder = sdist.SdistBuilder(str(repository))
    files = {Path(file.path).relative_to(repository).as_posix() for file in builder.recurse_included_files()}
    assert "packages/whet-client-js/src/index.js" in files
    assert not [file for file in files if "node_modules" in file]

"""Every command that calls models takes the same options for each role of them, and they reach the endpoint."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from tests.live.reader import answer as read
from whet._util.variables import TRUSTED_HOSTS
from whet.cli.commands import PREFERENCES, WATCH
from whet.cli.main import cli
from whet.errors import UsageError
from whet.prompt import Prompt
from whet.testing.server import LocalServer, serving
from whet.types import Completion, Request
from whet_client.records import Feedback, Inference
from whet_live import open_live

TASK, OPTIMIZER, JUDGE, TRANSFER = (
    {"lm": "--lm", "base_url": "--base-url", "task_options": "--lm-option"},
    *(
        {
            name: f"--{role}-lm",
            f"{role}_base_url": f"--{role}-base-url",
            f"{role}_options": f"--{role}-option",
        }
        for role, name in (("optimizer", "optimizer_lm"), ("judge", "judge_lm"))
    ),
    {
        "transfer": "--transfer",
        "transfer_base_url": "--transfer-base-url",
        "transfer_options": "--transfer-option",
    },
)
ROLES: dict[str, tuple[dict[str, str], ...]] = {
    "optimize": (TASK, OPTIMIZER, JUDGE),
    "evaluate": (TASK, JUDGE),
    "compare": (TASK, OPTIMIZER, JUDGE, TRANSFER),
    "advise": (TASK, OPTIMIZER, JUDGE),
    "transfer": (TASK, JUDGE),
    "migrate": (OPTIMIZER, JUDGE),
    "learn": (OPTIMIZER,),
    PREFERENCES: (TASK, OPTIMIZER),
    WATCH: (TASK, OPTIMIZER, JUDGE),
    "serve": (TASK, OPTIMIZER, JUDGE),
    "doctor": (TASK, OPTIMIZER, JUDGE),
    "check": (TASK, JUDGE),
}
GRADE = '{"explanation": "Fine.", "score": 5}'
CANARY = "canary-51c07a"


def all_commands() -> dict[str, click.Command]:
    context = click.Context(cli)
    found = {
        name: cli.get_command(context, name) for name in [*cli.list_commands(context), PREFERENCES, WATCH]
    }
    return {name: command for name, command in found.items() if command is not None}


def test_every_command_with_a_model_has_the_options_of_each_of_its_roles() -> None:
    commands = all_commands()
    named = {
        name
        for name, command in commands.items()
        if {p.name for p in command.params} & {"lm", "optimizer_lm", "judge_lm"}
    }
    assert named - {"init"} == ROLES.keys(), "init writes an address down and calls nothing"
    for name, roles in ROLES.items():
        known = {str(p.name): set(p.opts) for p in commands[name].params}
        for role in roles:
            for parameter, option in role.items():
                assert option in known.get(parameter, ()), f"whet {name} lacks {option}"
        assert "--trust-host" in known["trust_host"], name


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WHET_STATE", str(tmp_path / "state"))
    monkeypatch.setenv(TRUSTED_HOSTS, "")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    for role in ("TASK", "OPTIMIZER", "JUDGE", "TRANSFER"):
        monkeypatch.setenv(f"{role}_KEY", f"{CANARY}-{role.lower()}")


def answer(request: Request) -> str | Completion:
    """A judge, a reader of comments, or a task model, whichever the request asks for."""
    if "You judge" in request.messages[0].content:
        return GRADE
    return read(request) if request.schema is not None else "An answer."


def judged_task(folder: Path, models: str = "") -> str:
    folder.mkdir()
    (folder / "prompt.md").write_text("Answer {{q}}.\n<!-- whet:begin -->\n- Be polite.\n<!-- whet:end -->\n")
    rows = [json.dumps({"input": {"q": f"question {n}"}}) for n in range(60)]
    (folder / "data.jsonl").write_text("\n".join(rows))
    (folder / "task.yaml").write_text(
        f"name: t\nprompt: prompt.md\ndata: data.jsonl\nreward: {{judge: {{rubric: Be kind.}}}}\n{models}"
    )
    return str(folder)


def role(name: str, option: str, address: str) -> list[str]:
    """A model of a role with a key, a header and a field of the body of its own."""
    how = f"{'lm' if name == 'task' else name}-option"
    settings = (f"key_variable={name.upper()}_KEY", f"headers.X-Role={name}", "extra_body.top_k=5")
    return [option, address, *(word for one in settings for word in (f"--{how}", one))]


async def whet(*words: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, cli, list(words))


def check_requests(server: LocalServer, roles: Collection[str]) -> None:
    """Each role asked under its model's name, which is its own, with what its options say, and nobody else did."""
    assert {request.body["model"] for request in server.received} == set(roles)
    for request in server.received:
        name = request.body["model"]
        assert request.headers["authorization"] == f"Bearer {CANARY}-{name}"
        assert request.headers["x-role"] == name and request.body["top_k"] == 5


RUN = ("--method", "random_search", "--optimizer-lm", "none", "--set", "n=1", "--max-calls", "300")


async def test_transfer_and_the_transfer_model_of_compare(tmp_path: Path) -> None:
    folder = judged_task(tmp_path / "task")
    async with serving(answer) as server:
        base, judge = ("--base-url", server.base_url), role("judge", "--judge-lm", "openai/judge")
        task = role("task", "--lm", "openai/task")
        compared = await whet(
            "compare", folder, "--methods", "random_search", "--set", "n=1", "--optimizer-lm", "none", "--max-calls",
            "300", "--reader", "none", "--json", *task, *judge, *role("transfer", "--transfer", "openai/transfer"), *base,
        )  # fmt: skip
        assert compared.exit_code == 0, compared.output
        check_requests(server, {"task", "judge", "transfer"})
        server.received.clear()
        (found,) = json.loads(compared.stdout)["runs"]
        others = role("task", "--lm", "openai/transfer")
        others[others.index("key_variable=TASK_KEY")] = "key_variable=TRANSFER_KEY"
        others[others.index("headers.X-Role=task")] = "headers.X-Role=transfer"
        moved = await whet("transfer", found["run"], "--json", *others, *judge, *base)
        assert moved.exit_code == 0, moved.output
        check_requests(server, {"judge", "transfer"})
    assert CANARY not in compared.output + moved.output


async def test_a_model_of_another_provider_stays_where_it_is_in_compare(tmp_path: Path) -> None:
    folder = judged_task(tmp_path / "task")
    async with serving(answer) as server, serving(answer) as other:
        compared = await whet(
            "compare", folder, "--methods", "random_search", "--set", "n=1", "--optimizer-lm", "none", "--max-calls",
            "300", "--reader", "none", "--json", "--lm", "openai/task", "--base-url", server.base_url, "--transfer",
            "vllm/transfer", "--transfer-base-url", other.base_url,
        )  # fmt: skip
        assert compared.exit_code == 0, compared.output
        assert {request.body["model"] for request in other.received} == {"transfer"}
        assert {request.body["model"] for request in server.received} == {"task"}


async def test_learn_reads_with_the_options_of_its_model(tmp_path: Path) -> None:
    (tmp_path / "p.md").write_text("Answer.\n<!-- whet:begin -->\n- Be polite.\n<!-- whet:end -->\n{{q}}\n")
    rows = [{"id": f"f{n}", "comment": "Way too chatty."} for n in range(3)]
    (tmp_path / "f.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    async with serving(answer) as server:
        reader = role("optimizer", "--optimizer-lm", "openai/optimizer")
        done = await whet(
            "learn", "p.md", "f.jsonl", "--yes", *reader, "--optimizer-base-url", server.base_url
        )
        assert done.exit_code == 0, done.output
        check_requests(server, {"optimizer"})


async def test_learning_from_traffic_asks_reader_task_model_and_judge_with_their_options(
    tmp_path: Path,
) -> None:
    folder, database = judged_task(tmp_path / "task"), f"sqlite:///{tmp_path}/whet.db"
    text = (Path(folder) / "prompt.md").read_text()
    with open_live(database) as live:
        live.registry.create("p", Prompt.parse(text), author="ann", label="production")
        for user in "abc":
            asked = Inference("p", 1, {"q": "x"}, "An answer.", user=user)
            live.traffic.add([asked], [Feedback("comment", asked.id, text="Way too chatty.", user=user)])
    async with serving(answer) as server, serving(answer) as reader:
        done = await whet(
            "learn", "--watch", "--once", "--json", "--database", database, "--gate", f"p={folder}",
            *role("optimizer", "--optimizer-lm", "openai/optimizer"), "--optimizer-base-url", reader.base_url,
            *role("task", "--lm", "openai/task"), *role("judge", "--judge-lm", "openai/judge"), "--base-url", server.base_url,
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        check_requests(reader, {"optimizer"})
        check_requests(server, {"task", "judge"})
    assert json.loads(done.stdout)["failed"] == {} and CANARY not in done.output


@pytest.mark.parametrize("command", ["advise", "evaluate", "optimize", "compare"])
def test_a_host_of_the_task_file_is_trusted_by_option(tmp_path: Path, command: str) -> None:
    host = "models.mine.invalid"
    models = f"models:\n  task: {{address: openai/m, base_url: 'http://{host}/v1', key_variable: TASK_KEY}}\n"
    words = [command, judged_task(tmp_path / "task", models), *(["--dry-run"] if command != "advise" else [])]
    words += ["--methods", "random_search"] if command == "compare" else []
    refused = CliRunner().invoke(cli, words)
    assert host in f"{refused.exception}{refused.output}" and "key in TASK_KEY" in str(
        refused.exception or refused.output
    )
    trusted = CliRunner().invoke(cli, [*words, "--trust-host", host])
    assert trusted.exit_code == 0 and "TASK_KEY" not in trusted.output, trusted.output


def test_advice_heeds_the_models_that_the_run_would_have(tmp_path: Path) -> None:
    folder = judged_task(tmp_path / "task")
    words = ["advise", folder, "--json", "--lm", "openai/m", "--base-url", "http://127.0.0.1:1/v1"]
    one: dict[str, Any] = json.loads(CliRunner().invoke(cli, words).stdout)
    named = ["--optimizer-lm", "openai/writer", "--judge-lm", "openai/other"]
    other = json.loads(CliRunner().invoke(cli, [*words, *named]).stdout)
    assert one["plan"]["price_unknown"] == dict.fromkeys(("task", "optimizer", "judge"), "openai/m")
    assert other["plan"]["price_unknown"] == {
        "task": "openai/m", "optimizer": "openai/writer", "judge": "openai/other",
    }  # fmt: skip
    none = json.loads(CliRunner().invoke(cli, [*words, "--optimizer-lm", "none"]).stdout)
    assert "opro" in {row["name"] for row in one["methods"]} - {row["name"] for row in none["methods"]}
    priced = ["--lm-option", "price.input=1", "--lm-option", "price.output=2"]
    known = json.loads(CliRunner().invoke(cli, [*words, *priced]).stdout)
    assert not known["plan"]["price_unknown"] and known["plan"]["cost_usd"]["most"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["learn", "--watch", "--optimizer-option", "top_p=0.5"], "--optimizer-lm names no model"),
        (["serve", "--optimizer-base-url", "http://127.0.0.1:1/v1"], "--optimizer-lm names no model"),
        (
            ["compare", "task", "--methods", "opro", "--lm", "openai/m", "--transfer-option", "top_p=0.5"],
            "--transfer names no model",
        ),
    ],
)
def test_options_of_a_model_that_nobody_names_are_refused(
    tmp_path: Path, words: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    with open_live(f"sqlite:///{tmp_path / 'whet.db'}"):
        judged_task(tmp_path / "task")
    done = CliRunner().invoke(cli, words)
    assert isinstance(done.exception, UsageError)
    spelled = done.exception.spell(lambda name, value: f"--{name.replace('_', '-')}")
    assert said in spelled

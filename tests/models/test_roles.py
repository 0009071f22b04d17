"""Each role has a provider, a key and options of its own, in task.yaml, on the command line and in Python."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import whet
from whet._util.variables import TRUSTED_HOSTS
from whet.cli.main import cli
from whet.errors import UsageError
from whet.task.roles import changed_spec, with_base_url
from whet.task.spec import ModelSpec, read_models
from whet.task.tree import parse_yaml
from whet.testing.faults import ServerBehaviour
from whet.testing.server import LocalServer, serving
from whet.types import Request

CANARY = "canary-91f3b27d"
GRADE = '{"explanation": "Fine.", "score": 5}'


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TRUSTED_HOSTS, "")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setenv("TASK_KEY", f"{CANARY}-task")
    monkeypatch.setenv("JUDGE_KEY", f"{CANARY}-judge")


def answer(request: Request) -> str:
    return GRADE if "You judge" in request.messages[0].content else "An answer."


def folder_of(folder: Path, models: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "prompt.md").write_text("Answer.\n{{input}}\n")
    rows = [json.dumps({"input": f"question {n}"}) for n in range(10)]
    (folder / "data.jsonl").write_text("\n".join(rows))
    (folder / "task.yaml").write_text(
        f"name: t\nprompt: prompt.md\ndata: data.jsonl\nreward: {{judge: {{rubric: Be kind.}}}}\n{models}"
    )
    return folder


def by_role(server: LocalServer) -> dict[str, list[Any]]:
    """The requests of the answers and those of the judge."""
    sides: dict[str, list[Any]] = {"task": [], "judge": []}
    for request in server.received:
        judged = any("You judge" in message["content"] for message in request.body["messages"])
        sides["judge" if judged else "task"].append(request)
    return sides


def check_sides(task: LocalServer, judge: LocalServer) -> None:
    asked, graded = by_role(task)["task"], by_role(judge)["judge"]
    assert len(asked) == len(task.received) > 0 and len(graded) == len(judge.received) > 0
    assert {r.headers["authorization"] for r in asked} == {f"Bearer {CANARY}-task"}
    assert {r.headers["authorization"] for r in graded} == {f"Bearer {CANARY}-judge"}
    assert all(r.body["top_k"] == 5 and "reasoning_effort" not in r.body for r in asked)
    assert all(r.body["reasoning_effort"] == "low" and r.body["temperature"] == 0.3 for r in graded)
    assert all(r.body["stream"] and r.headers["x-team"] == "blue" and "top_k" not in r.body for r in graded)


def written_by(root: Path) -> str:
    return "".join(path.read_bytes().decode("utf-8", "replace") for path in root.rglob("*") if path.is_file())


async def test_two_endpoints_and_two_keys_in_a_task_file(tmp_path: Path) -> None:
    async with serving(answer) as task, serving(answer) as judge:
        folder = folder_of(
            tmp_path / "task",
            "models:\n"
            f"  task: {{address: openai/m, base_url: {task.base_url}, key_variable: TASK_KEY, extra_body: {{top_k: 5}}}}\n"
            f"  judge: {{address: openai/m, base_url: '{judge.base_url}?api-version=3', key_variable: JUDGE_KEY, stream: true,\n"
            "    headers: {X-Team: blue, X-Secret: {variable: JUDGE_KEY}}, reasoning_effort: low, temperature: 0.3}\n",
        )
        result = await asyncio.to_thread(whet.evaluate, folder, run=tmp_path / "run")
        assert result["score"]["mean"] == 1.0
        check_sides(task, judge)
        assert judge.received[0].path == "/v1/chat/completions?api-version=3"
        assert judge.received[0].headers["x-secret"] == f"{CANARY}-judge"
    assert CANARY not in written_by(tmp_path)


async def test_two_endpoints_and_two_keys_in_python(tmp_path: Path) -> None:
    async with serving(answer) as task, serving(answer) as judge:
        lm = {
            "address": "openai/m", "base_url": task.base_url, "key_variable": "TASK_KEY", "extra_body": {"top_k": 5},
        }  # fmt: skip
        judge_lm = {
            "address": "openai/m", "base_url": judge.base_url, "key_variable": "JUDGE_KEY", "stream": True,
            "headers": {"X-Team": "blue", "X-Secret": "$JUDGE_KEY"}, "reasoning_effort": "low", "temperature": 0.3,
        }  # fmt: skip
        await asyncio.to_thread(
            whet.evaluate, folder_of(tmp_path / "task"), lm=lm, judge_lm=judge_lm, run=tmp_path / "run"
        )
        check_sides(task, judge)
    assert CANARY not in written_by(tmp_path)


async def test_two_endpoints_and_two_keys_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with serving(answer) as task, serving(answer) as judge:
        words = [
            "evaluate", str(folder_of(tmp_path / "task")), "--lm", "openai/m", "--base-url", task.base_url,
            "--lm-option", "key_variable=TASK_KEY", "--lm-option", "extra_body.top_k=5",
            "--judge-lm", "openai/m", "--judge-base-url", judge.base_url, "--judge-option", "key_variable=JUDGE_KEY",
            "--judge-option", "stream=true", "--judge-option", "headers.X-Team=blue",
            "--judge-option", "reasoning_effort=low", "--judge-option", "temperature=0.3",
        ]  # fmt: skip
        done = await asyncio.to_thread(CliRunner().invoke, cli, words)
        assert done.exit_code == 0, done.output
        check_sides(task, judge)
    assert CANARY not in done.output + written_by(tmp_path)


async def test_an_option_changes_the_model_of_the_task_and_its_answers_are_others(tmp_path: Path) -> None:
    async with serving(answer) as server:
        folder = folder_of(
            tmp_path / "task", f"models: {{task: {{address: openai/m, base_url: {server.base_url}}}}}\n"
        )
        common = {"root": tmp_path / "runs"}
        for lm in (None, {"top_p": 0.5}, {"top_p": 0.5}, {"top_p": 0.6}):
            await asyncio.to_thread(whet.evaluate, folder, lm=lm, **common)
        shares = [r.body.get("top_p") for r in by_role(server)["task"]]
    rows = shares.count(None)
    assert rows > 0 and shares == [None] * rows + [0.5] * rows + [0.6] * rows, (
        "the third one repeats the second"
    )


@pytest.mark.parametrize("consent", ["option", "variable", "url"])
def test_a_key_that_a_task_file_names_goes_to_its_host_by_consent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, consent: str
) -> None:
    folder = folder_of(
        tmp_path / "task",
        "models:\n  task: {address: openai/m, base_url: 'http://models.mine.invalid/v1', key_variable: TASK_KEY}\n",
    )
    run = CliRunner().invoke
    words = ["evaluate", str(folder), "--out", str(tmp_path / "run"), "--dry-run"]
    refused = run(cli, words)
    assert isinstance(refused.exception, UsageError)
    assert "models.mine.invalid, and the key in TASK_KEY would go with them" in str(refused.exception)
    assert "WHET_TRUSTED_HOSTS=models.mine.invalid" in str(refused.exception)
    if consent == "variable":
        monkeypatch.setenv(TRUSTED_HOSTS, "models.mine.invalid")
    more = {
        "option": ["--trust-host", "models.mine.invalid"],
        "url": ["--base-url", "http://models.mine.invalid/v1"],
    }
    assert run(cli, [*words, *more.get(consent, [])]).exit_code == 0


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("api_key: abc", '"api_key" does not belong in a file.*key_variable: NAME'),
        ("key_variable: sk-abc-def", "is the name of an environment variable"),
        ("headers: {Authorization: Bearer abcdef}", "usually holds a secret"),
        ("headers: {X-A: {value: b}}", 'has no key "value"'),
        ("headers: {Content-Length: 5}", "cannot be set as a header"),
        ("extra_body: [1]", "must be a mapping"),
        ("extra_body: {n: 3}", "n cannot be set there"),
        ("top_p: 1.5", "above 0 and at most 1"),
        ("stream: maybe", "true or false"),
        ("seed: -1", "whole number of 0 or more"),
        ("reasoning: low", 'has no key "reasoning".*reasoning_effort'),
        ("batch_size: 0", "whole number"),
        ("device: [cuda]", "device must be"),
        ("device: the second GPU", "is not a device"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_line(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "m.yaml").write_text(f"models:\n  task:\n    address: openai/m\n    {line}\n")
    with pytest.raises(UsageError, match=rf"m\.yaml:4: .*{words}") as caught:
        read_models(parse_yaml(tmp_path / "m.yaml").value["models"])
    assert "sk-abc" not in str(caught.value) and "abcdef" not in str(caught.value)


def test_another_provider_does_not_inherit_how_the_first_was_reached() -> None:
    spec = ModelSpec(
        "openai/m",
        "https://gateway.example/v1",
        0.5,
        headers={"X-A": "b"},
        extra_body={"a": 1},
        key_variable="K",
    )
    same = changed_spec(spec, "openai/other", "task")
    assert (same.base_url, same.key_variable, same.temperature) == (spec.base_url, "K", 0.5)
    other = changed_spec(spec, "anthropic/claude", "task")
    assert (other.base_url, other.key_variable, other.headers, other.extra_body) == (None, None, {}, {})
    assert other.temperature == 0.5
    merged = changed_spec(spec, {"top_p": 0.5}, "task")
    assert (merged.address, merged.base_url, merged.top_p, merged.overrides) == (
        "openai/m", spec.base_url, 0.5, {"top_p"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("task", "role", "moved"),
    [
        (ModelSpec("openai/a"), ModelSpec("openai/b"), True),
        (ModelSpec("openai/a", "http://old/v1"), ModelSpec("openai/b", "http://old/v1"), True),
        (ModelSpec("openai/a"), ModelSpec("openai/b", "http://its-own/v1"), False),
        (ModelSpec("openai/a"), ModelSpec("anthropic/b"), False),
        (ModelSpec("hf/a"), ModelSpec("openai/b"), True),
        (ModelSpec("openai/a"), ModelSpec(), True),
    ],
)
def test_which_roles_a_base_url_moves(task: ModelSpec, role: ModelSpec, moved: bool) -> None:
    assert (with_base_url(role, "http://new/v1", task).base_url == "http://new/v1") is moved
    assert with_base_url(task, "http://new/v1", None).base_url == "http://new/v1"


async def test_a_judge_that_nobody_named_is_reached_as_the_task_model_is(tmp_path: Path) -> None:
    async with serving(answer, settings=ServerBehaviour(api_key=f"{CANARY}-task")) as server:
        lm = {
            "address": "openai/m", "base_url": server.base_url, "key_variable": "TASK_KEY", "top_p": 0.5,
            "headers": {"X-Team": "blue"},
        }  # fmt: skip
        await asyncio.to_thread(whet.evaluate, folder_of(tmp_path / "task"), lm=lm, run=tmp_path / "run")
        sides = by_role(server)
    assert all(request.headers["x-team"] == "blue" for request in server.received)
    assert sides["judge"] and all("top_p" not in request.body for request in sides["judge"])


@pytest.mark.parametrize("way", ["file", "command line", "python"])
def test_device_and_batch_size_reach_a_local_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The judge has no model of its own: it is the task model, with the same weights."""
    from whet.models import huggingface

    loaded: list[dict[str, object]] = []

    def refuse(name: str, **options: object) -> None:
        loaded.append(options)
        raise UsageError("far enough")

    monkeypatch.setattr(huggingface, "load", refuse)
    own = {"address": f"hf/{tmp_path}", "device": "cuda:1", "batch_size": 4}
    folder = folder_of(tmp_path / "task", f"models: {{task: {json.dumps(own)}}}\n" if way == "file" else "")
    if way == "command line":
        words = ["--lm", f"hf/{tmp_path}", "--lm-option", "device=cuda:1", "--lm-option", "batch_size=4"]
        done = CliRunner().invoke(cli, ["evaluate", str(folder), "--out", str(tmp_path / "run"), *words])
        assert str(done.exception) == "far enough"
    else:
        with pytest.raises(UsageError, match="far enough"):
            whet.evaluate(folder, lm=own if way == "python" else None, run=tmp_path / "run")
    assert loaded == [{"device": "cuda:1", "batch_size": 4}]


def test_a_device_is_refused_where_the_model_is_elsewhere(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "task", "models: {task: {address: openai/m, device: cpu}}\n")
    with pytest.raises(UsageError, match=r'openai/\.\.\.: unknown option "device"'):
        whet.evaluate(folder, run=tmp_path / "run")
    with pytest.raises(UsageError, match="the option batch_size does not reach it"):
        whet.evaluate(folder, lm={"address": lambda messages: "yes", "batch_size": 4}, run=tmp_path / "run2")


def test_another_provider_does_not_inherit_the_device() -> None:
    spec = ModelSpec("hf/a", device="cuda:1", batch_size=4, temperature=0.5)
    assert (changed_spec(spec, "hf/b", "task").device, changed_spec(spec, "hf/b", "task").batch_size) == (
        "cuda:1",
        4,
    )
    other = changed_spec(spec, "openai/m", "task")
    assert (other.device, other.batch_size, other.temperature) == (None, None, 0.5)

"""`whet doctor` against real local servers with faults and habits, and on rewards that are wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from click.testing import CliRunner

import whet
from whet.api.doctor import MOST_CALLS, DoctorReport, endpoints_of, examine
from whet.cli.main import cli
from whet.testing.faults import Faults, ServerBehaviour
from whet.testing.server import serving

Habit = Callable[[dict[str, Any], dict[str, Any]], Any]


def good(body: dict[str, Any], answer: dict[str, Any]) -> Any:
    """What an endpoint does that keeps everything: `answer` is filled for the request `body`."""
    message = answer["choices"][0]["message"]
    if "response_format" in body:
        message["content"] = '{"word": "ok"}'
    if "n" in body:
        message["content"] = "red "
        answer["choices"] = answer["choices"] * body["n"]
    if body.get("logprobs"):
        top = [{"token": "a", "logprob": -0.1}, {"token": "b", "logprob": -2.0}]
        answer["choices"][0]["logprobs"] = {"content": [{**top[0], "top_logprobs": top}]}
    return answer


def without_usage(body: dict[str, Any], answer: dict[str, Any]) -> Any:
    answer = good(body, answer)
    del answer["usage"]
    return answer


def one_choice(body: dict[str, Any], answer: dict[str, Any]) -> Any:
    return good({key: value for key, value in body.items() if key != "n"}, answer)


def kept_stop(body: dict[str, Any], answer: dict[str, Any]) -> Any:
    answer = good(body, answer)
    if "stop" in body:
        answer["choices"][0]["message"]["content"] = "red green"
    return answer


def endless(body: dict[str, Any], answer: dict[str, Any]) -> Any:
    answer = good(body, answer)
    answer["usage"]["completion_tokens"] = 500
    return answer


def restless(body: dict[str, Any], answer: dict[str, Any]) -> Any:
    restless.count = getattr(restless, "count", 0) + 1  # type: ignore[attr-defined]
    answer["choices"][0]["message"]["content"] = f"answer {restless.count}"  # type: ignore[attr-defined]
    return good(body, answer)


def without_logprobs(body: dict[str, Any], answer: dict[str, Any]) -> Any:
    return good({**body, "logprobs": False}, answer)


def without_schema(body: dict[str, Any], answer: dict[str, Any]) -> Any:
    if body.get("response_format", {}).get("type") == "json_schema":
        return web.json_response({"error": {"message": "failed to compile the grammar"}}, status=500)
    return good(body, answer)


def without_json(body: dict[str, Any], answer: dict[str, Any]) -> Any:
    return good({key: value for key, value in body.items() if key != "response_format"}, answer)


def web_page(body: dict[str, Any], answer: dict[str, Any]) -> Any:
    return web.Response(text="<html>Welcome</html>", content_type="text/html")


@asynccontextmanager
async def endpoint(habit: Habit) -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """A server with one habit: its base URL and the bodies that it received."""
    seen: list[dict[str, Any]] = []

    async def chat(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        seen.append(body)
        usage = {"prompt_tokens": 9, "completion_tokens": 4}
        choice = {"message": {"role": "assistant", "content": "tree, sea, cat"}, "finish_reason": "length"}
        answer = habit(body, {"choices": [choice], "usage": usage})
        return answer if isinstance(answer, web.StreamResponse) else web.json_response(answer)

    async def models(request: web.Request) -> web.StreamResponse:
        return web.json_response({"data": [{"id": "qwen3:4b"}]})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1", seen
    finally:
        await runner.cleanup()


async def examined(base_url: str, **options: Any) -> DoctorReport:
    return await examine(None, endpoints_of(None, "openai/m", base_url), **{"ports": {}, **options})


def seen_in(checkup: DoctorReport, status: str) -> list[str]:
    lines = [f"{one.text} -> {one.remedy}" for one in checkup.symptoms if one.status == status]
    return [line for line in lines if "price unknown" not in line]


def never_greedy(body: dict[str, Any], answer: dict[str, Any]) -> Any:
    if body.get("temperature") == 0:
        return web.json_response({"message": "temperature must be strictly positive"}, status=400)
    return good(body, answer)


async def test_a_temperature_of_0_that_is_refused_is_found_before_a_run_fails_of_it() -> None:
    async with endpoint(never_greedy) as (url, seen):
        checkup = await examined(url)
    (found,) = seen_in(checkup, "warn")
    assert "strictly positive" in found and "temperature: 0.01" in found
    assert len(seen) <= MOST_CALLS


async def test_a_server_that_is_not_ready_is_waited_for() -> None:
    async with endpoint(loading) as (url, _):
        checkup = await examined(url)
    assert [
        "Loading model" in one and "wait until it is ready" in one for one in seen_in(checkup, "broken")
    ] == [True]


def loading(body: dict[str, Any], answer: dict[str, Any]) -> Any:
    return web.json_response(
        {"error": {"message": "Loading model"}}, status=503, headers={"Retry-After": "0"}
    )


def without_system(body: dict[str, Any], answer: dict[str, Any]) -> Any:
    if any(message["role"] == "system" for message in body["messages"]):
        return web.json_response({"error": {"message": "System role not supported"}}, status=400)
    return good(body, answer)


async def test_an_endpoint_that_keeps_everything() -> None:
    async with endpoint(good) as (url, seen):
        checkup = await examined(url)
    assert checkup.healthy and seen_in(checkup, "warn") == []
    for what in (
        "answers at",
        "usage: tokens",
        "max_tokens: kept",
        "seed: two",
        "role system: accepted",
        "n: kept",
        "stop: kept",
        "logprobs: given",
        "json_schema: kept",
    ):
        assert any(what in line for line in seen_in(checkup, "ok")), what
    assert len(seen) <= MOST_CALLS


@pytest.mark.parametrize(
    ("habit", "line"),
    [
        (one_choice, "n: answers once where n answers are asked for -> no action needed"),
        (kept_stop, "stop: leaves stop texts in its answers -> no action needed"),
        (without_usage, "usage: tokens are not reported"),
        (endless, "max_tokens: the limit was 16, and the answer had 500"),
        (restless, "seed: two calls with the same seed gave different answers"),
        (without_logprobs, "logprobs: not given"),
        (
            without_system,
            "refuses the role system -> no action needed: whet puts the text of the system message at the beginning",
        ),
        (without_schema, "failed to compile the grammar -> no action needed: whet uses json_object instead"),
        (without_json, "json_schema: answers with 'tree, sea, cat'; json_object: answers with"),
    ],
)
async def test_a_habit_is_one_warning_with_its_remedy(habit: Habit, line: str) -> None:
    async with endpoint(habit) as (url, seen):
        checkup = await examined(url)
    (warning,) = seen_in(checkup, "warn")
    assert line in warning and not warning.endswith("-> ")
    assert checkup.healthy and len(seen) <= MOST_CALLS


def thinking(body: dict[str, Any], answer: dict[str, Any]) -> Any:
    answer = good(body, answer)
    if body["max_tokens"] < 100:
        thought = {"role": "assistant", "content": "", "reasoning_content": "Nouns. I need"}
        answer["choices"] = [{"message": thought, "finish_reason": "length"} for _ in answer["choices"]]
    return answer


async def test_a_model_that_thinks_gets_room_and_is_named() -> None:
    async with endpoint(thinking) as (url, seen):
        checkup = await examined(url)
    (warning,) = seen_in(checkup, "warn")
    assert "thinks before it answers: 16 tokens held no text, 2048 did" in warning and "max_tokens" in warning
    assert checkup.healthy and len(seen) <= MOST_CALLS


def filtered(body: dict[str, Any], answer: dict[str, Any]) -> Any:
    answer["choices"][0]["finish_reason"] = "content_filter"
    return answer


def silent(body: dict[str, Any], answer: dict[str, Any]) -> Any:
    return {**answer, "choices": [{"message": {"content": ""}, "finish_reason": "length"}]}


def errs_inside(body: dict[str, Any], answer: dict[str, Any]) -> Any:
    return {"error": {"message": "no worker is free"}}


@pytest.mark.parametrize(
    ("habit", "words"),
    [
        (filtered, "the answer contains no text: refused (stopped by a content filter)"),
        (silent, "the answer contains no text: empty answer (token limit reached before any text)"),
        (errs_inside, "HTTP 200 with an error in it: no worker is free"),
    ],
)
async def test_what_a_run_would_not_use_fails_with_what_was_seen(habit: Habit, words: str) -> None:
    async with endpoint(habit) as (url, _seen):
        (failure,) = seen_in(await examined(url), "broken")
    assert words in failure


@pytest.mark.parametrize("usage", [{"prompt_tokens": -1, "completion_tokens": 2}, {"prompt_tokens": 0}, "9"])
async def test_a_usage_that_a_run_would_not_count_is_a_warning(usage: Any) -> None:
    async with endpoint(lambda body, answer: {**good(body, answer), "usage": usage}) as (url, _seen):
        (warning,) = seen_in(await examined(url), "warn")
    assert "cannot be right -> limit calls" in warning


@pytest.mark.parametrize("times", [1, 100])
async def test_a_busy_server_is_asked_again_and_no_failure(times: int) -> None:
    calls = 0

    def busy(body: dict[str, Any], answer: dict[str, Any]) -> Any:
        nonlocal calls
        calls += 1
        if calls > times:
            return good(body, answer)
        return web.json_response(
            {"error": {"message": "slow down"}}, status=429, headers={"Retry-After": "0"}
        )

    async with endpoint(busy) as (url, _seen):
        checkup = await examined(url)
    assert checkup.healthy
    assert [line.split(":")[0] for line in seen_in(checkup, "warn")] == (["busy"] if times > 1 else [])


async def test_a_feature_is_not_missing_because_the_server_is_busy() -> None:
    """Every second request is refused with a 429; the wait that it asks for is said, and each feature is examined."""
    calls, lines = 0, list[str]()

    def by_turns(body: dict[str, Any], answer: dict[str, Any]) -> Any:
        nonlocal calls
        calls += 1
        if calls % 2:
            return good(body, answer)
        words = {"error": {"message": "logprobs and response_format are busy"}}
        return web.json_response(words, status=429, headers={"Retry-After": "0"})

    async with endpoint(by_turns) as (url, _seen):
        checkup = await examined(url, checkup=DoctorReport(begin=lines.append))
    assert seen_in(checkup, "warn") == [] and checkup.healthy
    assert any("is busy (HTTP 429); waiting 0 s, as it asks" in line for line in lines)


async def test_an_endpoint_that_hangs_is_waited_for_aloud_and_not_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines: list[str] = []
    monkeypatch.setattr("whet.api.doctor.endpoint.NOTE_SECONDS", 0.02)

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        checkup = await examined(url, seconds=0.2, checkup=DoctorReport(begin=lines.append))
    (failure,) = seen_in(checkup, "broken")
    assert "no answer within 0.2 s" in failure and "wait longer with --timeout 0.8" in failure
    assert any("of at most 0.2 s a call" in line for line in lines)


async def test_a_url_without_a_version_and_a_server_that_is_not_running_are_named() -> None:
    async with endpoint(good) as (url, _seen):
        (failure,) = seen_in(await examined(url.removesuffix("/v1")), "broken")
        assert f"try the base URL {url}" in failure
    (failure,) = seen_in(await examined("http://127.0.0.1:9/v1"), "broken")
    assert "no server is listening there" in failure and "start the server" in failure


async def test_what_does_not_answer_fails_after_one_call() -> None:
    async with endpoint(web_page) as (url, seen):
        (failure,) = seen_in(await examined(url), "broken")
        assert "answers with a web page" in failure and url in failure and len(seen) == 1
    (failure,) = seen_in(await examined("http://127.0.0.1:9/v1"), "broken")
    assert "127.0.0.1:9" in failure


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("", "no key was sent: set OPENAI_API_KEY"),
        ("sk-wrong-canary", "check the key in OPENAI_API_KEY, which was sent"),
    ],
)
async def test_a_401_says_which_key_was_sent(key: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    async with serving(lambda request: "ok", settings=ServerBehaviour(api_key="right")) as server:
        checkup = await examined(server.base_url)
    assert message in seen_in(checkup, "broken")[0] and "canary" not in json.dumps(checkup.as_json())


def refusing(status: int, message: str) -> Habit:
    return lambda body, answer: web.json_response({"error": {"message": message}}, status=status)


@pytest.mark.parametrize(
    ("habit", "remedy"),
    [
        (refusing(401, "bad key"), "--lm-option key_variable=NAME"),
        (refusing(402, "no credit"), "add credit at the provider, or name another model with --lm"),
        (refusing(403, "not for this key"), "allow the key to use this model"),
        (refusing(404, "the model `m` does not exist"), "GET /models of the base URL lists"),
        (refusing(405, "method"), "--base-url"),
        (
            refusing(400, "bad combination"),
            "remove the options that the server refuses: --lm-option KEY=VALUE",
        ),
        (web_page, "-> name the address of the API with --base-url"),
        (silent, "-> send the model a question by hand"),
    ],
)
async def test_what_is_broken_names_what_to_do_next(habit: Habit, remedy: str) -> None:
    async with endpoint(habit) as (url, _seen):
        (failure,) = seen_in(await examined(url), "broken")
    assert remedy in failure and "correct that" not in failure


async def test_a_model_that_cannot_be_set_up_names_where_to_change_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr("whet.api.doctor.is_page_here", lambda page: False)
    (failure,) = seen_in(await examine(None, endpoints_of(None, "openai/m", None), ports={}), "broken")
    assert failure.endswith("-> change --lm or `models: {task: ...}` in task.yaml")


async def test_a_reward_of_whet_that_tells_nothing_apart_is_not_the_users_code(tmp_path: Path) -> None:
    data = tmp_path / "t"
    task_with(data, REWARDS["constant"][0])
    (data / "task.yaml").write_text(
        "{name: t, prompt: prompt.md, data: data.jsonl, reward: {regex: {pattern: .}}}"
    )
    task = whet.Task.load(data)
    (failure,) = seen_in(await examine(task, {}, ports={}), "broken")
    assert "constant" in failure and "name a reward that reads these targets" in failure


async def test_faults_and_refused_features() -> None:
    async with serving(lambda request: "ok", faults=Faults(error_500=1.0)) as server:
        assert "HTTP 500" in seen_in(await examined(server.base_url), "broken")[0]
    async with serving(lambda request: "ok", faults=Faults(malformed=1.0)) as server:
        assert "not JSON" in seen_in(await examined(server.base_url), "broken")[0]
    behaviour = ServerBehaviour(reject=("seed", "logprobs", "response_format"))
    async with serving(lambda request: "ok", settings=behaviour) as server:
        checkup = await examined(server.base_url)
        assert checkup.healthy and len(server.ledger.entries) <= MOST_CALLS
    assert seen_in(checkup, "warn")[0].startswith("refuses seed")


async def test_local_servers_are_named_with_the_options_that_use_them() -> None:
    async with endpoint(good) as (url, seen):
        port = int(url.rpartition(":")[2].removesuffix("/v1"))
        checkup = await examine(None, {}, ports={"Ollama": port, "vLLM": 9})
    assert any(f"--lm openai/qwen3:4b --base-url {url}" in line for line in seen_in(checkup, "ok"))
    assert seen == []


async def test_without_calls_nothing_is_paid() -> None:
    async with endpoint(good) as (url, seen):
        assert (await examined(url, calls=False)).healthy and seen == []


ROWS = [{"input": f"q{i}", "target": f"a{i}"} for i in range(12)]
REWARDS = {
    "crashes": ("def reward(example, output):\n    return 1 / 0\n", "reward.py:2: ZeroDivisionError"),
    "constant": ("def reward(example, output):\n    return 0.5\n", "constant: target and nonsense"),
    "swapped, crashing": (
        "def reward(text, row):\n    return float(text == row['target'])\n",
        "its arguments look swapped",
    ),
    "swapped, silent": (
        "def reward(answer, row):\n    return float(isinstance(row, dict) and row['target'] == answer)\n",
        "its arguments look swapped",
    ),
    "no number": ("def reward(example, output):\n    return 'good'\n", "expected a number"),
    "hangs": (
        "import threading\ndef reward(example, output):\n    threading.Event().wait()\n",
        "no answer within 0.2 s",
    ),
}


def task_with(folder: Path, reward: str) -> whet.Task:
    folder.mkdir()
    (folder / "task.yaml").write_text("{name: t, prompt: prompt.md, data: data.jsonl, reward: reward.py}")
    (folder / "prompt.md").write_text("Answer.")
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (folder / "reward.py").write_text(reward)
    return whet.Task.load(folder)


@pytest.mark.parametrize("case", REWARDS)
async def test_a_reward_that_is_wrong(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if case == "hangs":
        monkeypatch.setattr("whet.api.doctor.rewards.PATIENCE", 0.2)
    source, message = REWARDS[case]
    (failure,) = seen_in(await examine(task_with(tmp_path / "t", source), {}, ports={}), "broken")
    assert message in failure and not failure.endswith("-> ")


async def test_a_reward_that_is_upside_down_or_slow_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whet.api.doctor.rewards.SLOW", 0.0)
    source = "def reward(example, output):\n    return float(output != example['target'])\n"
    slow, low = seen_in(await examine(task_with(tmp_path / "t", source), {}, ports={}), "warn")
    assert "slow" in slow and "nonsense earns more" in low


def test_the_command_has_exit_codes_and_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-4711")
    task_with(tmp_path / "bad", REWARDS["constant"][0])
    done = CliRunner().invoke(cli, ["doctor", str(tmp_path / "bad"), "--json"])
    values = json.loads(done.stdout)
    assert done.exit_code == 2 and not values["healthy"] and "canary" not in done.output
    assert {"check", "status", "text", "remedy"} == values["checks"][0].keys()
    task_with(
        tmp_path / "fine", "def reward(example, output):\n    return float(output == example['target'])\n"
    )
    done = CliRunner().invoke(cli, ["doctor", str(tmp_path / "fine"), "--lm", "openai/x", "--no-calls"])
    assert done.exit_code == 0 and "OPENAI_API_KEY is set" in done.output and "price unknown" in done.output


def test_calls_are_announced_before_they_are_paid() -> None:
    arguments = ["doctor", "--lm", "openai/x", "--base-url", "http://127.0.0.1:9/v1"]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 2 and done.stderr.startswith(
        f"whet doctor makes at most {MOST_CALLS} short calls to each of: openai/x"
    )


def test_a_url_that_only_a_task_names_gets_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-4711")
    task_with(tmp_path / "t", REWARDS["constant"][0])
    model = "\nmodels: {task: {address: openai/x, base_url: 'http://elsewhere.example/v1'}}\n"
    (tmp_path / "t" / "task.yaml").write_text(
        "name: t\nprompt: prompt.md\ndata: data.jsonl\nreward: reward.py" + model
    )
    done = CliRunner().invoke(cli, ["doctor", str(tmp_path / "t")])
    assert isinstance(done.exception, whet.UsageError)


async def test_each_finding_is_told_when_it_is_made() -> None:
    order: list[str] = []
    checkup = DoctorReport(tell=lambda symptom: order.append(symptom.check), begin=order.append)
    found = await examine(None, {}, ports={}, checkup=checkup)
    assert [one for one in order if not one.startswith("looking")] == [s.check for s in found.symptoms]
    assert order.index("python") < order.index("looking for model servers on this machine")


def test_a_reward_that_tells_answers_apart_says_what_each_earns(tmp_path: Path) -> None:
    whet.Task.of(
        "Say it.\n{{input}}",
        data=[{"input": f"q{n}", "target": f"a{n}"} for n in range(12)],
        reward="exact_match",
    ).save(tmp_path / "t")
    said = CliRunner().invoke(cli, ["doctor", str(tmp_path / "t"), "--no-calls"]).output
    assert "on 3 rows the target earns 1, 1, 1, and nonsense 0, 0, 0" in said


def test_what_is_optional_and_not_there_is_marked_as_such_and_fails_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr("whet.api.doctor.EXTRAS", {"train": ("msgspec", "no_such_package")})
    done = CliRunner().invoke(cli, ["doctor"])
    assert done.exit_code == 0
    assert "not installed  extra train: no_such_package; optional\n" in done.output
    assert "-> pip install 'whet[train]'" in done.output
    assert "not set        key: OPENAI_API_KEY\n" in done.output and "export OPENAI_API_KEY" in done.output


def test_a_folder_that_hides_a_package_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hiding_package").mkdir()
    (tmp_path / "hiding_package" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("whet.api.doctor.EXTRAS", {"hf": ("hiding_package",)})
    done = CliRunner().invoke(cli, ["doctor"])
    assert done.exit_code == 2 and f"hiding_package in {tmp_path}" in done.output
    assert "broken         extra hf: this name leads to" in done.output

"""Several base URLs of one model: who gets a call, who is left out, and what a run records of it."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from tests.command_line import whet_here
from tests.serving import reserved_port

import whet
from whet.errors import ProviderError, UsageError
from whet.models import replicas
from whet.models.addresses import resolve
from whet.models.endpoint import endpoint_of
from whet.models.openai import OpenAIModel
from whet.testing.faults import Faults, ServerBehaviour
from whet.testing.server import LocalServer, serving
from whet.types import Message, Request


def ask(text: str, system: str = "Be brief.") -> Request:
    return Request((Message("system", system), Message("user", text)), 0.0, 8)


@asynccontextmanager
async def served(
    *behaviours: ServerBehaviour, limit: float = 60.0
) -> AsyncIterator[tuple[OpenAIModel, list[LocalServer]]]:
    """A model whose servers behave as they are told."""
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(serving(lambda request: "yes", settings=one))
            for one in behaviours
        ]
        model = OpenAIModel("m", base_url=[s.base_url for s in servers], api_key="k", timeout=limit)
        stack.push_async_callback(model.close)
        yield model, servers


def folder_of(folder: Path, models: str = "") -> str:
    """A task of 40 rows, 12 of them for validation."""
    folder.mkdir()
    (folder / "prompt.md").write_text(f"{'Answer yes or no. ' * 40}\n{{{{input}}}}\n")
    rows = [json.dumps({"input": f"question {n}", "target": "yes"}) for n in range(40)]
    (folder / "data.jsonl").write_text("\n".join(rows))
    (folder / "task.yaml").write_text(
        f"name: t\nprompt: prompt.md\ndata: data.jsonl\nreward: exact_match\n{models}"
    )
    return str(folder)


def calls_of(servers: list[LocalServer]) -> list[int]:
    return [len(server.ledger.entries) for server in servers]


async def test_calls_go_to_the_replica_with_the_fewest_in_flight() -> None:
    async with served(ServerBehaviour(), ServerBehaviour(), ServerBehaviour()) as (model, servers):
        await asyncio.gather(*(model.generate(ask(str(n))) for n in range(30)))
        assert calls_of(servers) == [10, 10, 10]


async def test_calls_that_begin_alike_stay_together_while_loads_are_alike() -> None:
    """Twelve prompts on four servers, 16 calls at once: with the choice by beginnings, servers find more in their caches."""
    prompts = [f"Prompt {n}. {'Answer in one word. ' * 100}" for n in range(12)]
    requests = [ask(f"Row {row}", prompt) for row in range(10) for prompt in prompts]
    random.Random(0).shuffle(requests)

    async def cached_share(known: bool, patch: pytest.MonkeyPatch) -> float:
        if not known:
            patch.setattr(replicas.Replica, "bytes_known", lambda self, beginnings: 0)
        behaviour = ServerBehaviour(habits=("prefix_cache",))
        async with served(behaviour, behaviour, behaviour, behaviour) as (model, servers):
            places = asyncio.Semaphore(16)

            async def one(request: Request) -> whet.types.Usage:
                async with places:
                    return (await model.generate(request))[0].usage

            usages = await asyncio.gather(*map(one, requests))
            assert min(calls_of(servers)) > len(requests) / 8  # nobody is idle
        return sum(u.cached_input_tokens for u in usages) / sum(u.input_tokens for u in usages)

    with pytest.MonkeyPatch.context() as patch:
        together = await cached_share(True, patch)
        apart = await cached_share(False, patch)
    assert together > apart + 0.1


async def test_an_idle_replica_wins_over_one_that_knows_the_beginning() -> None:
    text = "x" * 1000
    async with served(ServerBehaviour(), ServerBehaviour()) as (model, servers):
        await model.generate(ask(text))
        await asyncio.gather(model.generate(ask(text)), model.generate(ask(text)))
        assert sorted(calls_of(servers)) == [1, 2]


async def test_a_replica_that_is_down_is_left_out_with_a_word_and_tried_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "_FIRST_REST", 0.0)
    with reserved_port() as port:
        down = f"http://127.0.0.1:{port}/v1"
        async with serving(lambda request: "yes") as there:
            model = OpenAIModel("m", base_url=[down, there.base_url], api_key="k")
            answers = await asyncio.gather(*(model.generate(ask(str(n))) for n in range(8)))
            assert [a[0].text for a in answers] == ["yes"] * 8
            assert len(there.ledger.entries) == 8  # each once: a call that no server took is paid once
            said = [r.getMessage() for r in caplog.records]
            assert len(said) == 1
            assert f"does not answer at {down.removesuffix('/v1')}" in said[0]
            assert "the other 1 of 2 base URLs" in said[0]
            async with serving(lambda request: "back", port=port) as back:
                texts = [(await model.generate(ask(f"again {n}")))[0].text for n in range(4)]
                assert "back" in texts
                assert len(back.ledger.entries) == texts.count("back")
            assert "answers again at" in caplog.records[-1].getMessage()
            await model.close()


async def test_a_replica_rests_longer_each_time_and_gets_one_call_then() -> None:
    one = replicas.Replica(endpoint_of("openai", "m", base_url="http://a/v1", api_key="k"))
    assert one.note_silence(began=0.0, now=1.0)
    assert not one.note_silence(began=0.5, now=1.1)  # it was in flight when the rest began
    assert one.rests_until == 2.0
    assert not one.note_silence(began=2.0, now=3.0)
    assert one.rests_until == 5.0
    for n in range(10):
        one.note_silence(began=10.0 + n, now=10.0 + n)
    assert one.rests_until == 19.0 + replicas.LONGEST_REST
    assert one.note_answer()
    assert not one.note_answer()


async def test_a_replica_that_turns_calls_away_passes_them_on() -> None:
    async with served(
        ServerBehaviour(most_in_flight=1, latency=0.02, retry_after=0.5), ServerBehaviour()
    ) as (
        model,
        servers,
    ):
        answers = await asyncio.gather(*(model.generate(ask(str(n))) for n in range(12)))
        assert all(a[0].text == "yes" for a in answers)
        refused = sum(entry["status"] == 429 for entry in servers[0].ledger.entries)
        assert refused > 0
        assert sum(calls_of(servers)) == 12 + refused


async def test_a_replica_that_fails_fast_does_not_get_all_calls() -> None:
    async with served(
        ServerBehaviour(latency=0.002), ServerBehaviour(habits=("all_500",), reject=("n",))
    ) as (
        model,
        servers,
    ):
        broken = servers[1]
        bad = Request((Message("user", "x"),), 0.0, 8, n=2)
        lost = 0
        for _ in range(20):
            try:
                await model.generate(bad)
            except ProviderError:
                lost += 1
        assert lost <= 4
        assert len(broken.ledger.entries) <= 4


async def test_a_call_that_was_sent_is_not_sent_again_from_here() -> None:
    """The connection breaks after the request: the server may bill it, so that the engine decides."""
    async with AsyncExitStack() as stack:
        drops = await stack.enter_async_context(serving(lambda r: "yes", faults=Faults(drop=1.0)))
        works = await stack.enter_async_context(serving(lambda r: "yes"))
        model = OpenAIModel("m", base_url=[drops.base_url, works.base_url], api_key="k")
        stack.push_async_callback(model.close)
        with pytest.raises(ProviderError) as caught:
            await model.generate(ask("a"))
        assert caught.value.retryable
        assert not caught.value.refused
        assert works.ledger.entries == []
        assert (await model.generate(ask("a")))[0].text == "yes"


async def test_an_address_that_is_wrong_is_named() -> None:
    async with served(ServerBehaviour(api_key="other"), ServerBehaviour(api_key="k")) as (model, servers):
        with pytest.raises(ProviderError, match=servers[0].base_url.removesuffix("/v1")) as caught:
            await model.generate(ask("a"))
        assert caught.value.fatal


def test_what_tells_answers_apart_does_not_depend_on_order_or_on_who_answers() -> None:
    one = OpenAIModel("m", base_url=["http://b/v1", "http://a/v1"], api_key="k")
    other = OpenAIModel("m", base_url="http://a/v1,http://b/v1", api_key="k")
    assert one.base_url == other.base_url == "http://a/v1, http://b/v1"
    assert (one.variant, one.identity) == (other.variant, other.identity) == ("", {})


@pytest.mark.parametrize(
    ("base_url", "words"),
    [
        (["http://a/v1", "http://a/v1/"], "twice"),
        ("http://a/v1,b:8000/v1", "in full"),
        ("http://a/v1,,http://b/v1", "in full"),
        (["http://a/v1?deployment=1", "http://b/v1?deployment=2"], "different queries"),
        (["http://a/v1", "b:8000"], "must look like"),
    ],
)
def test_base_urls_that_cannot_be_used_are_refused(base_url: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        OpenAIModel("m", base_url=base_url, api_key="k")


def test_a_model_in_this_process_has_no_replicas() -> None:
    with pytest.raises(UsageError, match="names 2 servers"):
        resolve("scripted/echo", base_url=["http://a/v1", "http://b/v1"])


async def test_a_key_goes_to_no_host_that_only_the_file_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEAM_KEY", "secret")
    folder = folder_of(
        tmp_path / "task",
        "models:\n  task: {address: openai/m, key_variable: TEAM_KEY,\n"
        "    base_url: ['http://127.0.0.1:9/v1', 'http://far.invalid/v1']}\n",
    )
    with pytest.raises(UsageError, match=r"far\.invalid"):
        await whet.aevaluate(folder, run=str(tmp_path / "run"))


@pytest.mark.parametrize("where", ["file", "option", "python"])
async def test_a_list_of_base_urls_in_a_file_on_the_command_line_and_in_python(
    where: str, tmp_path: Path
) -> None:
    behaviour = ServerBehaviour(habits=("prefix_cache",))
    async with served(behaviour, behaviour) as (_, servers):
        urls = [server.base_url for server in servers]
        line = f"models: {{task: {{address: openai/m, base_url: {json.dumps(urls)}}}}}\n"
        folder = folder_of(tmp_path / "task", line if where == "file" else "")
        run = str(tmp_path / "run")
        if where == "python":
            result = await whet.aevaluate(folder, lm="openai/m", base_url=urls, run=run)
            assert result.usage.cached_input_tokens > 0
        else:
            named = [] if where == "file" else ["--lm", "openai/m", "--base-url", ",".join(urls)]
            shown = await asyncio.to_thread(whet_here, tmp_path, "evaluate", folder, *named, "--out", run)
            assert shown.returncode == 0, shown.stderr
            assert "of them from the caches of the servers" in shown.stdout
        assert min(calls_of(servers)) > 0


async def test_a_run_whose_replica_dies_ends_as_if_it_had_not(tmp_path: Path) -> None:
    """A server takes calls and is gone before it answers one; the other answers all rows, each once."""
    taken = 0

    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        await reader.read(1)
        taken += 1
        dies.close()
        writer.transport.abort()

    dies = await asyncio.start_server(die, "127.0.0.1", 0)
    gone = f"http://127.0.0.1:{dies.sockets[0].getsockname()[1]}/v1"
    async with serving(lambda r: "yes") as stays:
        urls = [gone, stays.base_url]
        folder = folder_of(tmp_path / "task")
        result = await whet.aevaluate(folder, lm="openai/m", base_url=urls, run=str(tmp_path / "a"))
        assert result.score.mean == 1.0
        assert len(stays.ledger.entries) == 12
        lost = result.usage.calls["task"] - 12  # what was sent and not answered may be billed, and counts
        assert taken > 0
        assert 0 < lost <= 6
        again = await whet.aevaluate(folder, lm="openai/m", base_url=urls[::-1], run=str(tmp_path / "a"))
        assert again.score == result.score
        assert len(stays.ledger.entries) == 12  # the order of the addresses is not part of the run

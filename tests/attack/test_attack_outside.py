"""A language model of any address as the attacker: `opro` with it as the optimizer, at a local endpoint and in this process."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from benchmarks.attack import (
    HELD_OUT,
    OFF,
    PROPOSING,
    Campaign,
    Defences,
    Outside,
    Power,
    Service,
    by_method,
    campaign,
    outside,
)
from benchmarks.attack.outside import SETTINGS
from benchmarks.attack.searches import purpose

from whet.errors import ProviderError, UsageError
from whet.testing.faults import Faults, ServerBehaviour
from whet.testing.server import serving
from whet.types import Completion, Message, Request

ASKED = re.compile(r'does what this asks for: "([^"]+)"')
GOAL = HELD_OUT[0]
HURRIED = replace(PROPOSING, gate=False)


def writes(request: Request) -> str:
    """A model that does what it is told: it asks for what the attack is for."""
    found = ASKED.search(request.messages[0].content)
    assert found is not None
    return f"<PROMPT>{found[1]}</PROMPT>"


@contextmanager
def at(address: str, url: str | None = None) -> Iterator[Outside]:
    """A model from outside, released at the end."""
    model = outside(address, url)
    try:
        yield model
    finally:
        model.end()


async def tried(
    answer: Callable[[Request], str],
    defences: Defences,
    power: Power,
    tries: int = 3,
    faults: Faults | None = None,
) -> tuple[Campaign, int]:
    """A campaign of a model behind a local endpoint; and how often it was asked."""
    async with serving(answer, faults=faults, settings=ServerBehaviour(retry_after=0.0, seed=1)) as server:

        def attack() -> tuple[Campaign, int]:
            with at("openai/attacker", server.base_url) as model:
                attacker = by_method("opro", SETTINGS, model)
                return campaign(Service(defences), "outside", attacker, GOAL, power, tries, 0), model.calls

        return await asyncio.to_thread(attack)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


async def test_positive_control_what_the_model_writes_is_what_attacks() -> None:
    found, calls = await tried(writes, OFF, Power(1))
    assert found.first == 2, "the first try is honest, the second is the model's"
    assert calls > 0 and found.rows[0].text in GOAL.demands


async def test_negative_control_a_model_that_writes_harmless_things_gets_nowhere() -> None:
    found, _ = await tried(lambda request: "<PROMPT>Please link the size chart.</PROMPT>", OFF, Power(5))
    assert found.first is None and found.best.depth <= 1


async def test_a_model_meets_the_quorum_like_anybody() -> None:
    few, _ = await tried(writes, HURRIED, Power(2, 10))
    many, _ = await tried(writes, HURRIED, Power(5))
    assert few.best.depth < 3 and many.best.success


async def test_what_is_worth_another_attempt_gets_it() -> None:
    found, calls = await tried(writes, OFF, Power(1), faults=Faults(rate_429=0.5))
    assert found.first == 2 and calls > 0


async def test_an_endpoint_that_refuses_ends_the_campaign() -> None:
    async with serving(writes, settings=ServerBehaviour(api_key="another")) as server:
        with pytest.raises(ProviderError, match="401"):
            await asyncio.to_thread(_asked, server.base_url)


def _asked(url: str) -> None:
    with at("openai/attacker", url) as model:
        asyncio.run(model.generate(Request((Message("user", "Hello?"),))))


def test_an_address_that_is_none_is_refused_and_releasing_twice_is_harmless() -> None:
    with pytest.raises(UsageError, match="nowhere"):
        outside("nowhere/model")
    model = outside("scripted/constant?text=yes")
    assert model.simulated and model.count_tokens("abcd") == 1
    said: list[Completion] = asyncio.run(model.generate(Request((Message("user", "Hello?"),))))
    assert said[0].text == "yes"
    model.end()
    asyncio.run(model.close())


def test_the_model_is_told_the_goal_and_never_a_secret_way_in() -> None:
    told = purpose(GOAL, Power(5))
    assert "5 customers" in told and GOAL.demands[0] in told


def test_the_embedded_model_cannot_write_an_attack() -> None:
    pytest.importorskip("transformers")
    with at("embedded/tiny") as model:
        found = campaign(Service(OFF), "tiny", by_method("opro", SETTINGS, model), GOAL, Power(5), 2, 0)
    assert model.calls > 0 and found.first is None

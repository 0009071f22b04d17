"""What stands in the way of a run: packages, keys, endpoints and their habits, local servers, the reward."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from whet.doctor.checkup import FAIL, OK, WARN, Checkup, Symptom
from whet.doctor.endpoint import MOST_CALLS, examine_endpoint
from whet.doctor.local_servers import PORTS, examine_ports
from whet.doctor.rewards import examine_reward, graded
from whet.errors import UsageError, parameter
from whet.models.addresses import check_base_url, resolve, split_address
from whet.models.openai import OpenAIModel
from whet.models.prices import Price
from whet.models.providers import OPENAI, PROVIDERS
from whet.task import Task
from whet.version import __version__

__all__ = [
    "FAIL",
    "MOST_CALLS",
    "OK",
    "PORTS",
    "WARN",
    "Checkup",
    "Symptom",
    "endpoints_of",
    "examine",
    "graded",
]

EXTRAS: Mapping[str, Sequence[str]] = {
    "embedded": ("torch", "tokenizers", "safetensors"),
    "hf": ("torch", "transformers"),
    "train": ("torch", "transformers", "peft", "trueskill"),
    "server": ("starlette", "uvicorn", "sqlalchemy", "msgspec"),
}
"""Packages that tell whether an extra is installed."""

Endpoints = Mapping[tuple[str, str | None], Price | None]


def endpoints_of(task: Task | None, lm: str | None, base_url: str | None) -> Endpoints:
    """The models that a run would call, by address and base URL, with their prices.

    Raises UsageError for an address that cannot be used, and for a URL that only the task names and no host of whet's own.
    """
    models = {} if task is None else {role: spec for role, spec in task.models.items() if spec.address}
    addresses: dict[tuple[str, str | None], Price | None] = {}
    for role, spec in models.items():
        if role == "policy" or (role == "task" and lm is not None):
            continue
        if spec.base_url is not None and base_url is None:
            check_base_url(str(spec.address), spec.base_url)
        addresses[str(spec.address), base_url or spec.base_url] = spec.price
    if lm is not None:
        addresses[lm, base_url] = models["task"].price if "task" in models else None
    elif task is not None and task.labels and "task" not in models:
        addresses["embedded/encoder", None] = None
    for address, _ in addresses:
        split_address(address)
    if base_url is not None and not addresses:
        raise UsageError(
            f"{parameter('base_url')} {base_url} belongs to a model, and none is named. Add --lm openai/NAME."
        )
    return addresses


async def examine(
    task: Task | None,
    endpoints: Endpoints,
    *,
    calls: bool = True,
    ports: Mapping[str, int] = PORTS,
    checkup: Checkup | None = None,
) -> Checkup:
    """Every check. It pays at most MOST_CALLS short calls for each endpoint; none where `calls` is false. `checkup` gets the
    findings, each when it is made."""
    checkup = checkup or Checkup()
    _packages(checkup)
    _keys(checkup)
    for (address, base_url), price in endpoints.items():
        await _model(checkup, address, base_url, price, calls)
    if not endpoints:
        checkup.ok("model", "none is named: --lm openai/NAME examines one, and so does `models:` in a task")
    checkup.begin("looking for model servers on this machine")
    await examine_ports(checkup, ports)
    if task is not None:
        sizes = (("train", task.train), ("validation", task.validation), ("test", task.test))
        checkup.ok("task", f"{task.name}: " + ", ".join(f"{len(rows)} {name}" for name, rows in sizes))
        for warning in task.warnings:
            checkup.warn("task", warning, "see docs/task-folder.md")
        checkup.begin(f"trying the reward {task.reward.name} on a few rows")
        await examine_reward(checkup, task)
    return checkup


def _packages(checkup: Checkup) -> None:
    python = ".".join(map(str, sys.version_info[:3]))
    checkup.ok("python", f"{python}, whet {__version__} in {Path(__file__).parents[1]}")
    for extra, packages in EXTRAS.items():
        missing = [name for name in packages if importlib.util.find_spec(name) is None]
        if missing:
            checkup.ok(f"extra {extra}", f"not installed ({', '.join(missing)}): pip install 'whet[{extra}]'")
        else:
            versions = (f"{name} {importlib.metadata.version(name)}" for name in packages)
            checkup.ok(f"extra {extra}", ", ".join(versions))


def _keys(checkup: Checkup) -> None:
    """Which providers' variables are set; OpenAI's is named in any case."""
    with_key = {name: provider for name, provider in PROVIDERS.items() if provider.find_key()[1]}
    for provider in {"openai": OPENAI, **with_key}.values():
        variable, key = provider.find_key()
        checkup.ok("key", f"{variable} {'is set (its value is not shown)' if key else 'is not set'}")
    for name, provider in PROVIDERS.items():
        if (place := provider.find_base_url()[0]) != "":
            checkup.ok(
                "base URL", f"{place} is set: {name}/... goes there where --base-url does not say otherwise"
            )


async def _model(
    checkup: Checkup, address: str, base_url: str | None, price: Price | None, calls: bool
) -> None:
    try:
        model = resolve(address, base_url=base_url)
    except UsageError as error:
        checkup.fail(address, str(error), "see docs/models.md")
        return
    try:
        if not isinstance(model, OpenAIModel):
            what = "simulated: it says nothing about real models" if model.simulated else "ready"
            checkup.ok(address, what + (", runs in this process" if model.local else ""))
            return
        if calls:
            checkup.begin(f"waiting for answers of {address} at {model.base_url}")
            await examine_endpoint(checkup, model)
        else:
            checkup.ok(address, f"not called (--no-calls); it would be reached at {model.base_url}")
        if price is None:
            remedy = (
                "state it in task.yaml: models: {task: {price: {input: USD, output: USD}}} per million tokens"
            )
            checkup.warn(address, "price unknown: costs are not counted, --max-cost cannot hold", remedy)
        else:
            checkup.ok(
                address, f"price: ${price.input:g} and ${price.output:g} per million tokens in and out"
            )
    finally:
        await model.close()

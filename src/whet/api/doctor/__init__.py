"""The causes that would stop a run: packages, keys, endpoints and their habits, local servers, the reward."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from whet.api.doctor.checkup import BROKEN, NOT_INSTALLED, NOT_SET, OK, WARN, DoctorFinding, DoctorReport
from whet.api.doctor.endpoint import MOST_CALLS, MOST_SECONDS, examine_endpoint
from whet.api.doctor.local_servers import PORTS, examine_ports
from whet.api.doctor.ray import examine_ray
from whet.api.doctor.rewards import FROM_MODEL, examine_reward, grade_target_and_nonsense
from whet.api.doctor.state import examine_state
from whet.engine.options import RoleModel
from whet.errors import UsageError, parameter
from whet.methods import is_page_here
from whet.models.addresses import at_endpoint, split_address
from whet.models.endpoint import split_urls
from whet.models.openai import OpenAIModel
from whet.models.providers import OPENAI, PROVIDERS
from whet.task import ModelSpec, Task
from whet.task.roles import changed_spec, check_consent, model_key, model_of, with_base_url
from whet.task.spec import POLICY
from whet.types import EMBEDDING
from whet_client.version import __version__

NONE = "none"
__all__ = [
    "BROKEN",
    "FROM_MODEL",
    "MOST_CALLS",
    "MOST_SECONDS",
    "NOT_INSTALLED",
    "NOT_SET",
    "OK",
    "PORTS",
    "WARN",
    "DoctorFinding",
    "DoctorReport",
    "endpoints_of",
    "examine",
    "grade_target_and_nonsense",
    "paid_addresses",
]

EXTRAS: Mapping[str, Sequence[str]] = {
    "embedded": ("torch", "tokenizers", "safetensors"),
    "hf": ("torch", "transformers"),
    "images": ("torch", "transformers", "diffusers", "pillow", "resvg-py"),
    "train": ("torch", "transformers", "peft", "trueskill"),
    "postgres": ("psycopg",),
    "ray": ("ray",),
    "server": ("starlette", "uvicorn", "sqlalchemy", "msgspec"),
}
"""Packages that tell whether an extra is installed."""

_OPTIONS = {"task": "--lm", "optimizer": "--optimizer-lm", "judge": "--judge-lm"}
"""The option that names the model of a role."""
Endpoints: TypeAlias = Collection[tuple[str, ModelSpec]]
"""Models to examine: the role of each, and how it is reached and asked."""


def endpoints_of(
    task: Task | None,
    lm: RoleModel,
    base_url: str | None,
    optimizer_lm: RoleModel = None,
    judge_lm: RoleModel = None,
) -> Endpoints:
    """The models that a run would call, one for each base URL.

    Raises UsageError for an address that cannot be used, and for a URL that only the task names and that gets no secret.
    """
    models = {} if task is None else dict(task.models)
    specs: dict[object, tuple[str, ModelSpec]] = {}
    first = changed_spec(models.get("task", ModelSpec()), lm, "task")
    if not first.named and task is not None and task.labels:
        first = replace(first, address="embedded/encoder")
    choices = {"task": lm, "optimizer": optimizer_lm, "judge": judge_lm}
    for role in dict.fromkeys((*choices, *models)):
        if role in (POLICY, EMBEDDING):  # it answers no chat
            continue
        choice = choices.get(role)
        spec = first if role == "task" else changed_spec(models.get(role, ModelSpec()), choice, role)
        if spec.address is None or spec.address == NONE:
            continue
        spec = with_base_url(spec, base_url, None if role == "task" else first)
        split_address(str(spec.address))
        check_consent(spec)
        for url in split_urls(spec.base_url) or (spec.base_url,):  # each server of the model by itself
            one = replace(spec, base_url=url)
            specs.setdefault(model_key(one, role), (role, one))
    if base_url is not None and not specs:
        raise UsageError(
            f"{parameter('base_url')} {base_url} belongs to a model, but no model is named. Add --lm "
            "openai/NAME."
        )
    return list(specs.values())


def paid_addresses(endpoints: Endpoints) -> list[str]:
    """The addresses whose calls may cost something."""
    return [str(spec.address) for _, spec in endpoints if at_endpoint(str(spec.address))]


async def examine(
    task: Task | None,
    endpoints: Endpoints,
    *,
    calls: bool = True,
    ports: Mapping[str, int] = PORTS,
    seconds: float = MOST_SECONDS,
    checkup: DoctorReport | None = None,
) -> DoctorReport:
    """Every check. It pays at most MOST_CALLS short calls for each endpoint, each of at most `seconds`; none where `calls` is
    false. Findings go into `checkup`, which may show them as they come.
    """
    checkup = checkup or DoctorReport()
    _packages(checkup)
    _keys(checkup)
    await examine_state(checkup)
    examine_ray(checkup)
    for role, spec in endpoints:
        await _model(checkup, role, spec, calls, seconds)
    if not endpoints:
        checkup.ok(
            "model", ("no model is named; to check a model, add --lm openai/NAME or `models:` in a task")
        )
    checkup.begin("looking for model servers on this machine")
    await examine_ports(checkup, ports)
    if task is not None:
        sizes = (("train", task.train), ("validation", task.validation), ("test", task.test))
        checkup.ok("task", f"{task.name}: " + ", ".join(f"{len(rows)} {name}" for name, rows in sizes))
        for warning in task.warnings:
            checkup.warn("task", warning, _see("docs/task-folder.md"))
        checkup.begin(f"trying the reward {task.reward.name} on a few rows")
        await examine_reward(checkup, task)
    return checkup


def _see(page: str) -> str:
    """The documentation page to read, for a user who has it."""
    return f"see {page}" if is_page_here(page) else ""


def _packages(checkup: DoctorReport) -> None:
    python = ".".join(map(str, sys.version_info[:3]))
    checkup.ok("python", f"{python}, whet {__version__} in {Path(__file__).parents[1]}")
    for extra, packages in EXTRAS.items():
        known = {name: _version(name) for name in packages}
        missing = [name for name in packages if known[name] is None and not _is_found(name)]
        broken = [name for name in packages if known[name] is None and _is_found(name)]
        install = f"pip install 'whet[{extra}]'"
        if broken:
            where = ", ".join(f"{name} in {_place(name)}" for name in broken)
            remedy = f"if that folder or file is yours, rename it; otherwise {install} --force-reinstall"
            checkup.fail(
                f"extra {extra}", f"this name leads to {where}, which is not an installed package", remedy
            )
        elif missing:
            checkup.absent(f"extra {extra}", NOT_INSTALLED, f"{', '.join(missing)}; optional", install)
        else:
            checkup.ok(f"extra {extra}", ", ".join(f"{name} {version}" for name, version in known.items()))


def _version(name: str) -> str | None:
    """The version of an installed package; None where there is none."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _is_found(name: str) -> bool:
    """Whether Python finds something to import by that name."""
    return importlib.util.find_spec(name) is not None


def _place(name: str) -> str:
    """The folder or file that Python would import."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    return str(spec.origin or next(iter(spec.submodule_search_locations or ()), name))


def _keys(checkup: DoctorReport) -> None:
    """Say which providers' variables are set; OpenAI's is named in any case."""
    with_key = {name: provider for name, provider in PROVIDERS.items() if provider.find_key()[1]}
    for provider in {"openai": OPENAI, **with_key}.values():
        variable, key = provider.find_key()
        if key:
            checkup.ok("key", f"{variable} is set (its value is not shown)")
        else:
            checkup.absent(
                "key", NOT_SET, variable, f"only models at openai/NAME need it: export {variable}=..."
            )
    for name, provider in PROVIDERS.items():
        if (place := provider.find_base_url()[0]) != "":
            checkup.ok(
                "base URL",
                f"{place} is set: models at {name}/... use this address, unless --base-url names another",
            )


async def _model(checkup: DoctorReport, role: str, spec: ModelSpec, calls: bool, seconds: float) -> None:
    address, price = str(spec.address), spec.price
    try:
        spec = replace(spec, timeout=seconds) if at_endpoint(address) else spec
        model = model_of(spec, role)
    except UsageError as error:
        places = " or ".join(filter(None, (_OPTIONS.get(role), f"`models: {{{role}: ...}}` in task.yaml")))
        checkup.fail(
            address, str(error), ", ".join(filter(None, (f"change {places}", _see("docs/models.md"))))
        )
        return
    try:
        if not isinstance(model, OpenAIModel):
            what = "simulated: its figures do not apply to real models" if model.simulated else "ready"
            checkup.ok(address, what + (", runs in this process" if model.local else ""))
            return
        if calls:
            checkup.begin(
                f"waiting for answers of {address} at {model.base_url}, at most {seconds:g} s a call"
            )
            await examine_endpoint(checkup, model, seconds)
        else:
            checkup.ok(address, f"not called (--no-calls); its address is {model.base_url}")
        if price is None:
            remedy = (
                f"set the price in task.yaml: models: {{{role}: {{price: {{input: USD, output: "
                "USD}}} per million tokens"
            )
            checkup.warn(
                address, ("price unknown, so costs are not counted and --max-cost-usd cannot hold"), remedy
            )
        else:
            checkup.ok(
                address, f"price: ${price.input:g} and ${price.output:g} per million tokens in and out"
            )
    finally:
        await model.close()

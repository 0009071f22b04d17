"""The computation of a verifier, in this process or in a worker: the worker gets the verifier's options and the answer, as
JSON.

A worker confines the code of answers as this process does (`whet._util.confined`).
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from whet._util.confined import is_enforced
from whet._util.workers import Job, Work
from whet._util.workers.surroundings import find_version
from whet.errors import UsageError
from whet.run import Run
from whet.types import JSON

_LONGEST = 3600.0
"""Seconds after which a worker is taken for lost: the verifier ends what it runs much earlier."""


class Measured:
    """A part of a verifier, which is a frozen dataclass: what it computes away from the run."""

    name: str
    packages: ClassVar[tuple[str, ...]] = ()
    """Distributions on which the result depends, where they are installed."""

    @property
    def places(self) -> Sequence[str]:
        """Files and programs that it uses."""
        return ()

    @property
    def denies(self) -> bool:
        """Whether files and network must be denied to what it runs."""
        return False

    async def compute(self, run: Run, what: str, values: Sequence[JSON], example: str, args: JSON) -> Any:
        """The result of the method called `what` for these values, a JSON value: recorded, and computed by the run's
        executor."""

        async def here() -> object:
            return {"value": await asyncio.to_thread(getattr(self, what), *values)}

        def make_work() -> Work:
            return self._make_work(what, values)

        name = f"the reward {self.name} for {example}"
        job = Job(here, make_work, _LONGEST, name, lambda: UsageError(f"{name} does not end."))

        async def done() -> object:
            outcome = await run.executor.run(job)
            if "refused" in outcome:
                raise UsageError(outcome["refused"])
            return outcome["value"]

        return await run.effect("reward", done, args)

    def make_work_to_load(self) -> Work:
        """Work that checks what a worker needs for it, and computes nothing."""
        return self._make_work("", ())

    def _make_work(self, what: str, values: Sequence[JSON]) -> Work:
        options = {field.name: _to_json(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]
        versions = {name: version for name in self.packages if (version := find_version(name)) is not None}
        described = {"verifier": f"{type(self).__module__}:{type(self).__qualname__}", "options": options}
        return Work(
            f"{__name__}:load_measuring",
            {**described, "versions": versions, "what": what, "values": list(values)},
        )


def measured_in(reward: object) -> Iterator[Measured]:
    """The verifiers in a reward that workers compute: itself, or parts of a sum."""
    if isinstance(reward, Measured):
        yield reward
    for _, part in getattr(reward, "parts", ()):
        yield from measured_in(part)


def load_measuring(
    verifier: str, options: dict[str, JSON], versions: dict[str, str], what: str, values: list[JSON]
) -> Callable[[], Mapping[str, JSON]]:
    """See `Measured.compute`, in a worker. Raises UsageError where the machine lacks what the verifier needs."""
    loaded = _load(verifier, msgspec.json.encode([options, versions]))
    return lambda: _compute(loaded, what, values)


@cache
def _load(verifier: str, described: bytes) -> Measured:
    options, versions = msgspec.json.decode(described)
    module, _, name = verifier.partition(":")
    loaded: Measured = msgspec.convert(
        options, getattr(importlib.import_module(module), name), dec_hook=lambda kind, value: kind(value)
    )
    whose = f"the reward {loaded.name}"
    for package, version in versions.items():
        own = find_version(package)
        if own != version:
            there = f"there is no package {package}" if own is None else f"{package} is {own}"
            raise UsageError(
                f"{whose}: {there}, and the run has {package} {version}. Install the same version there."
            )
    if missing := [place for place in loaded.places if not Path(place).exists()]:
        raise UsageError(f"{whose} uses {missing[0]}, which is not there. Put it at the same place.")
    if loaded.denies and not is_enforced():
        raise UsageError(
            f"{whose}: the machine cannot deny files and network to what it runs: that takes Linux 5.13 with Landlock on x86-64."
        )
    return loaded


def _compute(verifier: Measured, what: str, values: list[JSON]) -> Mapping[str, JSON]:
    try:
        return {"value": getattr(verifier, what)(*values)}
    except UsageError as error:
        return {"refused": str(error)}


def _to_json(value: object) -> JSON:
    decoded: JSON = msgspec.json.decode(msgspec.json.encode(value, enc_hook=str))
    return decoded

"""Prompt optimizers of others, each in the interpreter that has it: their calls go through an address that counts them."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.field.meter import Meter

PEERS = {"capo": "promptolution", "miprov2": "dspy", "skillopt": "skillopt"}
"""The arms, and the package that the interpreter of each must have."""

PAST = 2
"""A tool that plans by steps may end after its limit; past this multiple of it, its calls are refused."""


def peer_run(
    name: str, python: str, job: Mapping[str, Any], roles: Mapping[str, tuple[str, str | None]]
) -> tuple[dict[str, Any], Counter[str]]:
    """What a tool's worker replied, and the calls and tokens by role.

    The worker reads the job as JSON, with an address for `task`, `optimizer` and `test` in `urls`, and writes a JSON file with
    the `prompt` and the `seconds` of its search. It sees the inputs of the test rows and not their targets. `roles` has the
    address of the model and the base URL by role.
    """
    folder = Path(job["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    told, reply = folder / "job.json", folder / "reply.json"
    reply.unlink(missing_ok=True)
    limits = {role: PAST * job[f"{role}_calls"] for role in ("task", "optimizer")}
    with (
        _start_meter(roles["task"], ("task", "test"), limits, job) as task,
        _start_meter(roles["optimizer"], ("optimizer",), limits, job) as optimizer,
    ):
        urls = {"task": task.url("task"), "test": task.url("test"), "optimizer": optimizer.url("optimizer")}
        rows = {**job["rows"], "test": [row["input"] for row in job["rows"]["test"]]}
        told.write_text(json.dumps({**job, "rows": rows, "urls": urls}), encoding="utf-8")
        worker = Path(__file__).with_name(f"{name}_worker.py")
        environment = {**os.environ, "OPENAI_API_KEY": "metered", "PYTHONUNBUFFERED": "1"}
        with (folder / "log.txt").open("w", encoding="utf-8") as log:
            done = subprocess.run(
                [python, str(worker), str(told), str(reply)],
                cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False,
            )  # fmt: skip
    if done.returncode or not reply.is_file():
        raise SystemExit(
            f"{name} ended with {done.returncode} and without a reply: see {folder / 'log.txt'}."
        )
    return json.loads(reply.read_text(encoding="utf-8")), task.calls + optimizer.calls


def _start_meter(
    model: tuple[str, str | None], names: tuple[str, ...], limits: Mapping[str, int], job: Mapping[str, Any]
) -> Meter:
    address, base_url = model
    if base_url is None or not address.startswith("openai/"):
        raise SystemExit(f"Other tools need --lm openai/NAME and --base-url URL; the model is {address}.")
    models = dict.fromkeys(names, address.removeprefix("openai/"))
    return Meter(base_url, models, limits, job["timeout"], os.environ.get("OPENAI_API_KEY", "none"))

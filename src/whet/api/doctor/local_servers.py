"""Model servers on this machine, at their usual ports."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import orjson
from yarl import URL

from whet.api.doctor.checkup import DoctorReport
from whet.models.http import Answer, HttpClient

PORTS: Mapping[str, int] = {"Ollama": 11434, "llama.cpp": 8080, "vLLM": 8000, "LM Studio": 1234}
PATIENCE = 1.0
MOST_NAMES = 3


async def examine_ports(checkup: DoctorReport, ports: Mapping[str, int]) -> None:
    """Note every server that answers, with the options that use it. Listing models costs nothing."""
    names = await asyncio.gather(*(models_at(port) for port in ports.values()))
    for (server, port), models in zip(ports.items(), names, strict=True):
        for model in models[:MOST_NAMES]:
            use = f"--lm openai/{model} --base-url http://127.0.0.1:{port}/v1"
            checkup.ok(f"port {port}", f"a server like {server} answers; use it with: {use}")
        if len(models) > MOST_NAMES:
            checkup.ok(f"port {port}", f"and {len(models) - MOST_NAMES} more models")
    if not any(names):
        checkup.ok(
            "local servers", "none at " + ", ".join(f"{port} ({name})" for name, port in ports.items())
        )


async def models_at(port: int) -> list[str]:
    """Names of the models of a server at a port of this machine; none where nothing of that kind answers."""
    url = f"http://127.0.0.1:{port}/v1/models"
    client = HttpClient(URL(url), {}, PATIENCE)
    try:
        reply = await client.get(url, PATIENCE)
        rows = orjson.loads(reply.body)["data"] if isinstance(reply, Answer) else []
        return [str(row["id"]) for row in rows]
    except (ValueError, KeyError, TypeError):
        return []
    finally:
        await client.close()

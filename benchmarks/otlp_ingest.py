"""How many spans a second does an OTLP/HTTP endpoint take? One table line for each endpoint.

    python benchmarks/otlp_ingest.py                                              # in the process: parse, parse and store
    python benchmarks/otlp_ingest.py --url http://127.0.0.1:8321/v1/otlp/v1/traces --token TOKEN
    python benchmarks/otlp_ingest.py --url http://127.0.0.1:6006/v1/traces        # any other collector, Phoenix say

Each request holds `--spans` spans in protobuf, each one call of a model with a conversation of four messages (about 1.5 kB
of text) in the OpenTelemetry GenAI convention, as an exporter batches them; `--flight` requests are under way. A request
counts when it is answered. Some collectors answer before they store; with `--url` the table says what was answered only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import statistics
import tempfile
import time

import aiohttp

from whet_live.database import open_database
from whet_live.traffic import Intake, Traffic
from whet_live.traffic.otlp import parse_otlp
from whet_live.traffic.otlp.decode import PROTOBUF_TYPE

SENTENCE = "The parcel has not arrived, and the page says that it was delivered yesterday. "


def request(spans: int) -> bytes:
    """The body of a request with new ids."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    found = ExportTraceServiceRequest()
    group = found.resource_spans.add()
    _set(group.resource.attributes.add(), "service.name", "shop")
    scope = group.scope_spans.add()
    now = time.time_ns()
    for _ in range(spans):
        span = scope.spans.add(
            trace_id=secrets.token_bytes(16), span_id=secrets.token_bytes(8), name="chat m", kind=3,
            start_time_unix_nano=now - 10**9, end_time_unix_nano=now,
        )  # fmt: skip
        conversation = [
            {"role": role, "parts": [{"type": "text", "content": SENTENCE * 5}]}
            for role in ("system", "user", "assistant")
        ]
        said = [
            {
                "role": "assistant",
                "parts": [{"type": "text", "content": SENTENCE * 4}],
                "finish_reason": "stop",
            }
        ]
        values = {
            "gen_ai.operation.name": "chat", "gen_ai.provider.name": "p", "gen_ai.request.model": "m",
            "gen_ai.response.model": "m", "gen_ai.response.id": secrets.token_hex(12), "gen_ai.conversation.id": "s1",
            "gen_ai.usage.input_tokens": 120, "gen_ai.usage.output_tokens": 40, "user.id": "u1",
            "gen_ai.input.messages": json.dumps(conversation), "gen_ai.output.messages": json.dumps(said),
            "openinference.span.kind": "LLM", "session.id": "s1", "whet.prompt.name": "shop/help",
        }  # fmt: skip
        for name, value in values.items():
            _set(span.attributes.add(), name, value)
    return bytes(found.SerializeToString())


def _set(pair: object, name: str, value: str | int) -> None:
    pair.key = name  # type: ignore[attr-defined]
    if isinstance(value, int):
        pair.value.int_value = value  # type: ignore[attr-defined]
    else:
        pair.value.string_value = value  # type: ignore[attr-defined]


def parsing(bodies: list[bytes], spans: int) -> tuple[float, float]:
    """Spans a second, and microseconds of CPU for each, of parsing alone."""
    started, spent = time.perf_counter(), time.process_time()
    for body in bodies:
        parse_otlp(body, PROTOBUF_TYPE)
    count = len(bodies) * spans
    return count / (time.perf_counter() - started), 1e6 * (time.process_time() - spent) / count


def storing(bodies: list[bytes], spans: int, database: str) -> tuple[float, float]:
    """The same of parsing and storing durably."""
    opened = open_database(database)
    intake = Intake(Traffic(opened))
    started, spent = time.perf_counter(), time.process_time()
    futures = []
    for body in bodies:
        found = parse_otlp(body, PROTOBUF_TYPE)
        futures.append(intake.submit(found.inferences, found.feedback))
        if len(futures) >= 4:
            futures.pop(0).result()
    for future in futures:
        future.result()
    count = len(bodies) * spans
    figures = count / (time.perf_counter() - started), 1e6 * (time.process_time() - spent) / count
    intake.close()
    opened.close()
    return figures


async def sending(
    url: str, token: str, bodies: list[bytes], spans: int, flight: int
) -> tuple[float, float, float]:
    """Spans a second that were answered with success, and waits in milliseconds (median, 99th percentile)."""
    headers = {"Content-Type": PROTOBUF_TYPE, **({"Authorization": f"Bearer {token}"} if token else {})}
    left = iter(bodies)
    waits: list[float] = []
    async with aiohttp.ClientSession(headers=headers) as session:

        async def worker() -> None:
            for body in left:
                started = time.perf_counter()
                async with session.post(url, data=body) as response:
                    text = await response.read()
                    if response.status != 200:
                        raise RuntimeError(f"status {response.status}: {text[:300]!r}")
                waits.append(time.perf_counter() - started)

        started = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(flight)))
        rate = len(waits) * spans / (time.perf_counter() - started)
    ends = statistics.quantiles(waits, n=100) if len(waits) > 1 else waits * 99
    return rate, 1000 * ends[49], 1000 * ends[98]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="OTLP/HTTP spans a second")
    parser.add_argument("--url")
    parser.add_argument("--token", default=os.environ.get("WHET_TOKEN", ""))
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--spans", type=int, default=512)
    parser.add_argument("--flight", type=int, default=4)
    given = parser.parse_args()
    bodies = [request(given.spans) for _ in range(given.requests)]
    print(f"{given.requests} requests of {given.spans} spans, {len(bodies[0]) / given.spans:.0f} bytes each")
    if given.url:
        rate, p50, p99 = asyncio.run(sending(given.url, given.token, bodies, given.spans, given.flight))
        print(
            f"{given.url}: {rate:,.0f} spans/s, {p50:.0f} ms a request (median), {p99:.0f} ms (99th percentile)"
        )
        return
    rate, cpu = parsing(bodies, given.spans)
    print(f"parse                     {rate:>10,.0f} spans/s{cpu:>8.0f} us of CPU each")
    with tempfile.TemporaryDirectory() as folder:
        rate, cpu = storing(bodies, given.spans, f"sqlite:///{folder}/whet.db")
    print(f"parse and store (sqlite)  {rate:>10,.0f} spans/s{cpu:>8.0f} us of CPU each")


if __name__ == "__main__":
    main()

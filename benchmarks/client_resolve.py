"""What does a live prompt cost an app on its hot path? Microseconds per call, median and 99th percentile.

    python benchmarks/client_resolve.py
    python benchmarks/client_resolve.py --calls 200000 --json

The client holds 1,000 prompts that a server gave it before; half of them are under an experiment with three arms. No
call goes over the network. The target is 50 microseconds at the 99th percentile for resolve and assignment together.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

from whet_client import Client
from whet_client.http import HttpReply

TARGET_US = 50.0
TEXT = "You help the customers of a shop.\n<!-- whet:begin -->\nBe short. {{tone}}\n<!-- whet:end -->\n\n{{question}}"


def answer(method: str, target: str, headers: object, body: bytes | None) -> HttpReply:
    """The server's answers, made in the process."""
    if method == "POST":
        return HttpReply(200, {}, b"{}")
    path = urlsplit(target)
    query = parse_qs(path.query)
    if path.path == "/v1/assignments":
        name = query["prompt"][0]
        arms = [{"version": number, "weight": weight} for number, weight in ((1, 0.5), (2, 0.3), (3, 0.2))]
        experiment = {
            "id": f"x-{name}",
            "salt": name,
            "unit": "user",
            "revision": 1,
            "arms": arms,
            "label": "production",
        }
        return HttpReply(
            200, {}, json.dumps({"experiments": [experiment] if int(name[1:]) % 2 else []}).encode()
        )
    value = {
        "name": path.path.removeprefix("/v1/prompts/"),
        "version": int(query.get("version", ["1"])[0]),
        "messages": [{"role": "auto", "content": TEXT}],
        "config": {"model": "m"},
    }
    return HttpReply(200, {"etag": '"1"'}, json.dumps(value).encode())


def measure(call: Callable[[int], object], calls: int) -> tuple[float, float]:
    """Median and 99th percentile of one call in microseconds, after a warm-up."""
    for number in range(2000):
        call(number)
    clock = time.perf_counter_ns
    times = []
    gc.disable()
    for number in range(calls):
        started = clock()
        call(number)
        times.append(clock() - started)
    gc.enable()
    ends = statistics.quantiles(times, n=100)
    return ends[49] / 1000, ends[98] / 1000


def main() -> None:
    """Measure and print one line for each step, or JSON."""
    parser = argparse.ArgumentParser(description="Cost of the client on the hot path")
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with Client("http://127.0.0.1:1", spool=None, fresh=1e9, send=answer) as client:
        names = [f"p{number}" for number in range(1000)]
        for name in names:
            client.prompt(name)
        values = {"tone": "Friendly.", "question": "It is off."}
        plain, tried = names[0::2], names[1::2]
        steps: dict[str, Callable[[int], object]] = {
            "an empty call": lambda n: None,
            "resolve": lambda n: client.prompt(plain[n % 500]),
            "resolve and assign": lambda n: client.prompt(tried[n % 500], user=f"user {n}"),
            "resolve, assign and format": lambda n: client.prompt(tried[n % 500], user=f"user {n}").format(
                **values
            ),
        }
        found = {name: measure(call, given.calls) for name, call in steps.items()}
        prompt = client.prompt(tried[0], user="u")
        found["log an answer"] = measure(lambda n: client.log(prompt, "An answer.", inputs=values), 20_000)
        client.flush(60)
        found["feedback"] = measure(lambda n: client.feedback("i", thumb=1), 20_000)
        client.flush(60)
    if given.json:
        print(
            json.dumps({name: {"p50_us": p50, "p99_us": p99} for name, (p50, p99) in found.items()}, indent=2)
        )
        return
    print(f"{'step':<30}{'p50 us':>10}{'p99 us':>10}")
    for name, (p50, p99) in found.items():
        print(f"{name:<30}{p50:>10.1f}{p99:>10.1f}")
    p99 = found["resolve and assign"][1]
    print(
        f"target: resolve and assign under {TARGET_US:g} us at p99: {'met' if p99 < TARGET_US else 'MISSED'}"
    )


if __name__ == "__main__":
    main()

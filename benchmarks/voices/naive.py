"""The floor: thirty naive lines. Critiques in packs to the optimizer model, new instructions are added, nothing else."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from typing import Any

from benchmarks.voices.world import OUTSIDE, START

Ask = Callable[[str, str], Awaitable[str]]
FORM = """Guests wrote the critiques about answers to their letters. For each thing that they want, write one instruction.
Answer with JSON: {{"requirements": [{{"critiques": [1], "violates": "i1" or null, "instruction": "..." or null,
"contradicts": "i1" or null}}], "no_demand": [2], "vague": [3], "to_the_reader": [4]}}

Instructions so far
{known}

Critiques
{critiques}"""


def requirements(reply: str) -> list[dict[str, Any]]:
    """The requirements in a reply, with or without prose around the JSON; none when it is broken."""
    for brace in re.finditer(r"\{", reply):
        with contextlib.suppress(ValueError):
            value, _ = json.JSONDecoder().raw_decode(reply, brace.start())
            if "requirements" in value:
                return list(value["requirements"])
    return []


async def naive(
    rows: Iterator[dict[str, Any]],
    judge: Callable[[dict[str, Any], str], dict[str, Any]],
    task: Callable[[list[tuple[str, str]]], Awaitable[list[str]]],
    optimize: Callable[[list[str]], Awaitable[list[str]]],
    task_calls: int,
    optimizer_calls: int,
    batch: int = 100,
    pack: int = 24,
) -> str:
    """The instructions after so many calls. `task` answers (prompt, input) pairs, `optimize` requests."""
    lines: list[str] = []
    while task_calls > 0 and optimizer_calls > 0:
        prompt = "\n".join([OUTSIDE, START, *lines])
        drawn = list(islice(rows, min(batch, task_calls)))
        if not drawn:
            break
        answers = await task([(prompt, row["input"]) for row in drawn])
        task_calls -= len(drawn)
        verdicts = [judge(row, answer) for row, answer in zip(drawn, answers, strict=True)]
        critiques = [line for v in verdicts for line in v.get("critique", "").splitlines()]
        packs = [critiques[at : at + pack] for at in range(0, len(critiques), pack)][:optimizer_calls]
        optimizer_calls -= len(packs)
        known = "\n".join(f"[i{n}] {line[2:]}" for n, line in enumerate(lines, 1))
        listed = ["\n".join(f"{n}. {text}" for n, text in enumerate(p, 1)) for p in packs]
        for reply in await optimize([FORM.format(known=known, critiques=text) for text in listed]):
            fresh = [f"- {r['instruction']}" for r in requirements(reply) if r["instruction"]]
            lines += [line for line in fresh if line not in lines]
    return "\n".join([START, *lines])

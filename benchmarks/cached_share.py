"""How much of the input a server finds in its cache, by its own report: whet's order beside two prompts in turn.

    python benchmarks/cached_share.py --base-url URL [--rows 12]

URL: an OpenAI-compatible server with one place for a request that reports `cached_tokens`, such as the server of llama.cpp. whet
evaluates one prompt after the other, with all rows of a prompt in succession. The other way asks the same questions of the same
server, but the two prompts take turns, as a search without order would ask.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import urllib.request
from pathlib import Path

import whet

RULES = "Read the question twice. Answer with one word in small letters, without a sentence around it. "
PLACES = (
    "France",
    "Italy",
    "Spain",
    "Japan",
    "Peru",
    "Chile",
    "Kenya",
    "Ghana",
    "Nepal",
    "Norway",
    "Poland",
    "Egypt",
)
MOST = 3
"""Tokens of an answer."""


def make_prompts(way: str) -> list[str]:
    """Two prompts that no other way of asking has sent before."""
    return [
        f"{way}: you know the {what} of the world. {RULES}{'Do not guess. ' * 3}"
        for what in ("capitals", "rivers")
    ]


def ask(base_url: str, prompt: str, question: str) -> tuple[int, int]:
    """Tokens of the input, and how many of them were in the server's cache."""
    messages = [{"role": "system", "content": prompt}, {"role": "user", "content": question}]
    body = json.dumps({"model": "model", "messages": messages, "max_tokens": MOST, "temperature": 0}).encode()
    request = urllib.request.Request(
        f"{base_url}/chat/completions", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=600) as answer:
        usage = json.load(answer)["usage"]
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def is_there(example: object, output: str) -> float:
    """A reward: only tokens are counted here."""
    return float(bool(output))


def in_turn(base_url: str, questions: list[str]) -> tuple[int, int]:
    """Both prompts get each question before the next one."""
    counts = [ask(base_url, prompt, question) for question in questions for prompt in make_prompts("Turns")]
    return sum(count for count, _ in counts), sum(cached for _, cached in counts)


def evaluate_in_order(base_url: str, questions: list[str], folder: Path) -> tuple[int, int]:
    """whet evaluates each prompt on all questions."""
    rows = {
        split: [{"input": question if split == "test" else f"{split}: {question}"} for question in questions]
        for split in ("train", "validation", "test")
    }
    tokens = cached = 0
    for number, prompt in enumerate(make_prompts("Order")):
        model = {
            "address": "openai/model",
            "base_url": base_url,
            "temperature": 0,
            "max_tokens": MOST,
            "timeout": 600,
        }
        usage = whet.evaluate(
            prompt,
            data=rows,
            reward=is_there,
            split="test",
            lm=model,
            concurrency=1,
            run=folder / str(number),
            progress=False,
        )["usage"]
        tokens, cached = tokens + usage["input_tokens"], cached + usage.get("cached_input_tokens", 0)
    return tokens, cached


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--rows", type=int, default=12)
    options = parser.parse_args()
    questions = [f"What is the largest town of {place}?" for place in PLACES[: options.rows]]
    print("| order | input tokens | in the cache | share |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, counts in (
            (
                "whet: a prompt's rows one after the other",
                evaluate_in_order(options.base_url, questions, Path(folder)),
            ),
            ("two prompts in turn", in_turn(options.base_url, questions)),
        ):
            print(f"| {name} | {counts[0]} | {counts[1]} | {counts[1] / counts[0]:.2f} |", flush=True)


if __name__ == "__main__":
    main()

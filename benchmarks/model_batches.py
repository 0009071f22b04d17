"""How full the batches of a local model in a worker are, beside a bare loop that makes full ones.

    python benchmarks/model_batches.py          # a minute or two; with whet[ray] also an actor of a Ray cluster

Concurrent branches of a run (candidates, conversations) ask a model one request after the other; each waits for its answer. whet
collects what is asked at the same time, for a model in this process, in a worker process and in an actor of Ray. The bare loop
takes a request of every branch in turns and computes them as one batch. Branches also pause, as those do that grade their
answers or ask another model: they do not come together any more. The model is a Llama of random weights. Every round
measures all ways one after the other, and the ratios are those of a round: medians over rounds.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from whet.models.addresses import resolve
from whet.models.model_workers import WorkerChoice, models_in_workers
from whet.types import Message, Request

SETTINGS = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
BRANCHES, TURNS, ROUNDS = (4, 16, 32), 5, 3
PAUSE = 0.5
"""Seconds, at most, that a branch does something else before it asks again."""
WORDS = [f"w{n}" for n in range(200)]


def save_model(folder: Path) -> str:
    """A Llama of four layers over `WORDS`, saved to a folder."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    torch.manual_seed(0)
    special = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    vocabulary = {word: n for n, word in enumerate([*special.values(), *WORDS])}
    config = transformers.LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=256, intermediate_size=512, num_hidden_layers=4,
        num_attention_heads=4, max_position_embeddings=256, pad_token_id=0, bos_token_id=2, eos_token_id=3,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made: Any = transformers.PreTrainedTokenizerFast(tokenizer_object=words, **special)
    made.chat_template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    made.save_pretrained(folder)
    return f"hf/{folder}"


def requests_of(turn: int, branches: int) -> list[Request]:
    """A request of every branch: texts of several lengths."""
    return [
        Request(
            (Message("user", " ".join(WORDS[(turn + k * n) % 200] for k in range(8 + n % 24))),),
            0.7,
            24,
            seed=turn * branches + n,
        )
        for n in range(branches)
    ]


async def bare_loop(model: Any, branches: int) -> None:
    """Full batches."""
    for turn in range(TURNS):
        await model.generate_batch(requests_of(turn, branches))


async def of_branches(model: Any, branches: int, pause: float = 0.0) -> None:
    """Every branch by itself; between two requests it does something else for up to `pause` seconds."""

    async def ask(branch: int) -> None:
        rng = random.Random(branch)
        for turn in range(TURNS):
            await model.generate(requests_of(turn, branches)[branch])
            await asyncio.sleep(pause * rng.random())

    await asyncio.gather(*map(ask, range(branches)))


def count_batches(model: Any) -> list[int]:
    """The sizes of the batches that a model computes from now on."""
    sizes, compute = list[int](), model._compute

    async def counting(requests: Sequence[Request]) -> Any:
        sizes.append(len(requests))
        return await compute(requests)

    model._compute = counting
    return sizes


async def measure(address: str, engines: Sequence[str]) -> None:
    """Print the table."""
    models: dict[str, Any] = {"here": resolve(address)}
    for engine in engines:
        with models_in_workers(WorkerChoice(engine, 1, None)):
            models[engine] = resolve(address)
    ways: dict[str, tuple[Any, Callable[[Any, int], Awaitable[None]]]] = {
        "bare loop": (models["here"], bare_loop),
        "branches, in this process": (models["here"], of_branches),
        **{f"branches, a worker on {name}": (models[name], of_branches) for name in engines},
        "branches that pause, a worker on processes": (
            models["processes"],
            partial(of_branches, pause=PAUSE),
        ),
    }
    counted = {name: count_batches(model) for name, model in models.items()}
    for model in models.values():
        await of_branches(model, 2)  # reads the weights
    print("| way | branches | requests in a batch | of the branches | requests a second | of the bare loop |")
    print("|---|---|---|---|---|---|")
    for branches in BRANCHES:
        rates: dict[str, list[float]] = {name: [] for name in ways}
        sizes: dict[str, list[int]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, (model, work) in ways.items():
                seen = next(one for key, one in counted.items() if models[key] is model)
                seen.clear()
                began = time.perf_counter()
                await work(model, branches)
                rates[name].append(branches * TURNS / (time.perf_counter() - began))
                sizes[name] += seen
        for name, own in rates.items():
            mean = statistics.fmean(sizes[name])
            share = statistics.median(a / b for a, b in zip(own, rates["bare loop"], strict=True))
            rate = statistics.median(own)
            print(
                f"| {name} | {branches} | {mean:.1f} | {mean / branches:.2f} | {rate:.0f} | {share:.2f} |",
                flush=True,
            )
    for model in models.values():
        await model.close()


def main() -> None:
    """Measure in processes, and on Ray where it is installed."""
    with ExitStack() as stack:
        engines = ["processes"]
        if importlib.util.find_spec("ray") is not None:
            os.environ |= SETTINGS
            from ray.cluster_utils import Cluster

            nodes = {"node_ip_address": "127.0.0.1", "include_dashboard": False, "num_cpus": 1}
            cluster = Cluster(initialize_head=True, head_node_args=nodes)
            stack.callback(cluster.shutdown)
            os.environ["RAY_ADDRESS"] = cluster.address
            engines.append("ray")
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        asyncio.run(measure(save_model(Path(folder)), engines))
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}; {ROUNDS} rounds of {TURNS} turns")


if __name__ == "__main__":
    main()

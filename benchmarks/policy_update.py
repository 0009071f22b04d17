"""What an update of a writer costs: against the bare forward and backward pass, and against sampling.

``python benchmarks/policy_update.py [--policy embedded/tiny] [--questions 1] [--group 16] [--repeat 5] [--processes N]``
prints, for adapters (rank 8) and for all weights (rank 0):

- ``sampling``: tokens written per second, and ``ratio``: time of ``generate`` of transformers for as many rows and
  steps / time of sampling.
- ``update``: tokens learned from per second, prompts not counted; ``kl`` adds the reference's forward pass.
- ``ratio``: time of the bare passes / time of the update; 1 means that nothing else costs anything. The bare passes
  are forward and backward of the summed log-probabilities of the same samples, padded alike, prompts not shared.
- ``share``: of the time of sampling and update (with ``kl``) together that the update takes.

On a CPU seconds are CPU seconds of the process, so that other programs disturb little; give ``--threads 1``.

With ``--processes N`` it prints instead how many times as fast as one process with one thread N processes with one thread
each are, and one process with N threads: shortest wall times of work done in turns, which other programs disturb much,
and for processes also CPU seconds of the busiest one, which leave out only what it waits for the others.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from whet.models.huggingface_load import positions
from whet.rl.policy_model import LoraSettings, PolicyModel, Sample, Update
from whet.types import Message

REQUEST = (
    "Rewrite the following instruction by adding specific requirements.\n\nInstruction: {}\n\nRewritten:"
)
TEXTS = [
    "write it in capital letters",
    "reverse the words",
    "repeat it twice",
    "end with an exclamation mark",
]


def seconds(writer: PolicyModel, work: Callable[[], object], repeat: int) -> float:
    """Shortest time of `repeat` calls after one warm-up call."""
    cuda = writer.body.device.startswith("cuda")
    clock = time.perf_counter if cuda else time.process_time
    times = []
    for _ in range(repeat + 1):
        began = clock()
        work()
        if cuda:
            torch.cuda.synchronize(writer.body.device)
        times.append(clock() - began)
    return min(times[1:])


def bare_passes(writer: PolicyModel, samples: Sequence[Sample]) -> Callable[[], None]:
    """Forward and backward over the padded samples with transformers alone."""
    width = max(len(s.prompt) for s in samples)
    length = max(len(s.tokens) for s in samples)
    ids = torch.full((len(samples), width + length), writer.body.weights.pad)
    mask = torch.zeros_like(ids)
    for i, s in enumerate(samples):
        at = slice(width - len(s.prompt), width + len(s.tokens))
        ids[i, at] = torch.tensor([*s.prompt, *s.tokens])
        mask[i, at] = 1
    ids, mask = ids.to(writer.body.device), mask.to(writer.body.device)
    place = positions(mask)

    def work() -> None:
        out = writer.body.model(
            input_ids=ids, attention_mask=mask, position_ids=place, logits_to_keep=length + 1, use_cache=False
        )
        logprobs = out.logits[:, :-1].float().log_softmax(-1)
        (logprobs.gather(-1, ids[:, width:, None])[..., 0] * mask[:, width:]).sum().backward()
        writer.body.model.zero_grad()

    return work


def bare_sampling(writer: PolicyModel, samples: Sequence[Sample]) -> Callable[[], object]:
    """`generate` of transformers from the same prompts, all rows as long as the longest sample."""
    steps = max(len(s.tokens) for s in samples)
    width = max(len(s.prompt) for s in samples)
    pad = writer.body.weights.pad
    ids = torch.tensor([[pad] * (width - len(s.prompt)) + list(s.prompt) for s in samples])
    mask = torch.tensor([[0] * (width - len(s.prompt)) + [1] * len(s.prompt) for s in samples])
    ids, mask = ids.to(writer.body.device), mask.to(writer.body.device)

    def work() -> object:
        with torch.inference_mode():
            return writer.body.model.generate(
                input_ids=ids,
                attention_mask=mask,
                do_sample=True,
                max_new_tokens=steps,
                min_new_tokens=steps,
            )

    return work


def draw_questions(n: int) -> list[list[Message]]:
    """As many different questions."""
    return [
        [Message("user", REQUEST.replace("{}", TEXTS[i % len(TEXTS)] + " and" * (i // len(TEXTS))))]
        for i in range(n)
    ]


def cpu_seconds(pids: Sequence[int]) -> list[float]:
    """CPU seconds of this process and of others so far (Linux)."""
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return [time.process_time(), *((int(s[11]) + int(s[12])) / os.sysconf("SC_CLK_TCK") for s in stats)]


def together(given: argparse.Namespace, rank: int) -> str:
    """Several processes, and several threads, against one of each: one line."""
    n, questions = given.processes, draw_questions(given.questions)
    torch.set_num_threads(n)
    alone = PolicyModel.open(given.policy, LoraSettings(rank=rank), seed=0)
    shared = PolicyModel.open(given.policy, LoraSettings(rank=rank), seed=0, processes=n)
    groups = shared.sample(questions, given.group, max_tokens=given.max_tokens, seed=1)
    samples = [one for group in groups for one in group]
    advantages = [(-1.0) ** i for i in range(len(samples))]
    works: dict[str, Callable[[PolicyModel], object]] = {
        "sampling": lambda w: w.sample(questions, given.group, max_tokens=given.max_tokens, seed=1),
        "update": lambda w: w.update(samples, advantages, Update(lr=0.0, kl=0.01)),
    }
    pids = [worker.process.pid for worker in shared._all.workers]  # type: ignore[union-attr]
    ways = {"one": (alone, 1), "processes": (shared, 1), "threads": (alone, n)}
    walls = {(way, work): float("inf") for way in ways for work in works}
    spent = {(way, work): [0.0] * n for way in ways for work in works}
    for again in range(given.repeat + 1):
        for (way, (writer, threads)), (name, work) in itertools.product(ways.items(), works.items()):
            torch.set_num_threads(threads)
            before, began = cpu_seconds(pids), time.perf_counter()
            work(writer)
            wall, after = time.perf_counter() - began, cpu_seconds(pids)
            if again:
                walls[way, name] = min(walls[way, name], wall)
                spent[way, name] = [
                    s + b - a for s, a, b in zip(spent[way, name], before, after, strict=True)
                ]
    shared.close()
    told = [
        f"{n} {way}: {name} {walls['one', name] / walls[way, name]:.2f}"
        for way, name in itertools.product(("processes", "threads"), works)
    ]
    busy = [f"{name} {spent['one', name][0] / max(spent['processes', name]):.2f}" for name in works]
    return (
        f"rank {rank}: {len(samples)} samples; times as fast as one process with one thread: {', '.join(told)}; "
        f"by CPU seconds of the busiest process: {', '.join(busy)}"
    )


def measure(given: argparse.Namespace, rank: int) -> str:
    """One line of figures."""
    writer = PolicyModel.open(given.policy, LoraSettings(rank=rank), seed=0)
    questions = draw_questions(given.questions)

    def sample() -> list[list[Sample]]:
        return writer.sample(questions, given.group, max_tokens=given.max_tokens, seed=1)

    samples = [one for group in sample() for one in group]
    tokens = sum(len(one.tokens) for one in samples)
    advantages = [(-1.0) ** i for i in range(len(samples))]
    plain, with_kl = Update(lr=0.0), Update(lr=0.0, kl=0.01)
    drawing = seconds(writer, sample, given.repeat)
    generating = seconds(writer, bare_sampling(writer, samples), given.repeat)
    passes = seconds(writer, bare_passes(writer, samples), given.repeat)
    updating = seconds(writer, lambda: writer.update(samples, advantages, plain), given.repeat)
    diverging = seconds(writer, lambda: writer.update(samples, advantages, with_kl), given.repeat)
    prompt = sum(len(one.prompt) for one in samples) / len(samples)
    return (
        f"rank {rank}: {len(samples)} samples of {tokens / len(samples):.0f} tokens after {prompt:.0f}; sampling "
        f"{tokens / drawing:,.0f} tokens/s, ratio {generating / drawing:.2f}; update {tokens / updating:,.0f} tokens/s, "
        f"kl {tokens / diverging:,.0f}; ratio {passes / updating:.2f}; share {diverging / (drawing + diverging):.2f}"
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--policy", default="embedded/tiny")
    parser.add_argument("--questions", type=int, default=1)
    parser.add_argument("--group", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    for rank in (8, 0):
        print(measure(given, rank) if given.processes == 1 else together(given, rank), flush=True)


if __name__ == "__main__":
    main()

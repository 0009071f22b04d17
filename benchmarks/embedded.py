"""Prompts times examples per second of the embedded models, against the bare forward pass.

``python benchmarks/embedded.py [--prompts 64] [--rows 128] [--threads N]`` prints one line per model:

- ``scored``: prompts x examples answered per second through ``score``.
- ``forward``: sequences per second through the encoder alone, already tokenised and padded: for the
  masked model the very sequences it needs, for the encoder the hypotheses (one per prompt and label).
- ``ratio``: time of the bare forward passes / time of the call; 1 means that nothing else costs
  anything.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Callable

import torch

from whet.models.embedded import weights
from whet.models.embedded.bert import batches, fast_dtype, pad
from whet.models.embedded.encoder import EncoderModel, hypothesis
from whet.models.embedded.masked_body import PolicyBody
from whet.models.embedded.mlm import MaskedModel
from whet.prompt import Prompt

LABELS = ["internet", "files", "mathematics", "text", "testing", "threads", "time"]


def seconds(work: Callable[[], object], repeat: int) -> float:
    """Shortest wall time of ``repeat`` calls after one warm-up call."""
    work()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def forward(model: EncoderModel | MaskedModel, sequences: list[list[int]]) -> Callable[[], None]:
    """The bare forward passes over ``sequences``."""
    parts = [pad([sequences[row] for row in rows]) for rows in batches(sequences, model.batch_tokens)]

    def work() -> None:
        with torch.inference_mode():
            for ids, mask in parts:
                model.encoder(ids, mask)

    return work


def scoring(
    model: EncoderModel | MaskedModel, prompts: list[Prompt], rows: list[dict[str, str]]
) -> Callable[[], object]:
    """One call of ``score``."""
    return lambda: asyncio.run(model.score(prompts, rows, [LABELS] * len(rows)))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    rng = random.Random(0)
    words = PolicyBody().vocabulary(2000)
    prompts = [
        Prompt.parse("{{input}}\n" + " ".join(rng.sample(words, 5)) + " {{mask}}")
        for _ in range(given.prompts)
    ]
    rows = [{"input": " ".join(rng.choices(words, k=rng.randint(8, 40)))} for _ in range(given.rows)]
    cold = time.perf_counter()
    weights.sha256_of(weights.base_directory() / "model.safetensors")
    print(f"SHA-256 of the base weights, remembered: {(time.perf_counter() - cold) * 1e6:.0f} us")
    size = f"{given.prompts} prompts x {given.rows} rows x {len(LABELS)} labels"
    print(f"{given.threads} threads, fast type {fast_dtype()}, {size}")
    for dtype in dict.fromkeys((fast_dtype(), torch.float32)):
        encoder, mlm = EncoderModel(dtype), MaskedModel(dtype)
        few = prompts[: max(1, given.prompts // 16)]  # a prompt costs the masked model a pass over all rows
        texts = encoder.encode([hypothesis(prompt, label) for prompt in prompts for label in LABELS])
        hypotheses = [[101, *ids, 102] for ids in texts]
        filled = [mlm.around(prompt, row, 1) for prompt in few for row in rows]
        masked = [[101, *left, 103, *right, 102] for left, right in filled]
        for model, asked, sequences in ((encoder, prompts, hypotheses), (mlm, few, masked)):
            whole = seconds(scoring(model, asked, rows), given.repeat)
            bare = seconds(forward(model, sequences), given.repeat)
            print(
                f"{model.address:17} {str(dtype)[6:]:9} scored {len(asked) * len(rows) / whole:9.0f}/s "
                f"({len(asked) / whole:7.1f} prompts/s)  forward {len(sequences) / bare:7.0f}/s  "
                f"ratio {bare / whole:.2f}"
            )


if __name__ == "__main__":
    main()

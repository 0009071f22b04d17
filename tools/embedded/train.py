"""Train the masked-language-model delta: ``python -m tools.embedded.train FOLDER OUT.safetensors``.

``FOLDER`` holds ``*.txt`` files, one paragraph a line (:mod:`tools.embedded.corpus` writes such a
folder). The base encoder stays frozen in bfloat16; trained are a head (dense, GELU, LayerNorm, output
bias; the decoder is tied to the input embeddings) and a low-rank update of every linear map of the
encoder (LoRA, Hu et al. 2021, arXiv:2106.09685). The objective is that of BERT (Devlin et al. 2018,
arXiv:1810.04805) over the commonest word pieces; additionally the last word of a sequence is often the
one masked, because that is where a prompt asks.

The learning rate follows a cosine over ``--steps``, shortened when ``--minutes`` would end first. The
delta is written every minute and on SIGTERM or SIGINT, so a run may be stopped at any time.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from whet.models.embedded.bert import LAYERS, MAPS, WIDTH, Encoder
from whet.models.embedded.weights import base_weights, need, tokenizer

PIECES = 30522


def eager_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Attention written out; its backward pass is faster on a CPU than the fused one."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + bias
    return scores.softmax(-1) @ v


@dataclass(frozen=True)
class DeltaTrainingSettings:
    """Training settings; the defaults made the delta that ships."""

    steps: int = 4500
    minutes: float = 1e9
    rank: int = 32
    rate: float = 1e-3
    batch: int = 64
    length: int = 64
    masked: float = 0.18  # share of tokens masked
    last: float = 0.3  # share of sequences whose last word is masked
    frequent: int = 16000  # the softmax runs over this many commonest pieces
    seed: int = 0
    threads: int = 2


class TrainableEncoder(Encoder):
    """Encoder with a low-rank update beside every linear map; eager attention for a faster backward."""

    def __init__(self, weights: dict[str, Tensor], rank: int, generator: torch.Generator) -> None:
        super().__init__(weights, torch.bfloat16)
        self.low: dict[str, tuple[Tensor, Tensor]] = {}
        for layer in range(LAYERS):
            for part in MAPS:
                name = f"encoder.layer.{layer}.{part}"
                out, width = self.w[name + ".weight"].shape
                a = torch.randn(rank, width, generator=generator) / math.sqrt(width)
                self.low[name] = (a.requires_grad_(), torch.zeros(out, rank).requires_grad_())

    def linear(self, name: str, x: Tensor) -> Tensor:
        """Base map plus low-rank update."""
        a, b = self.low[name]
        return super().linear(name, x) + F.linear(F.linear(x, a.to(x.dtype)), b.to(x.dtype))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        """Attention written out."""
        return eager_attention(q, k, v, bias)


def read_sequences(folder: Path, tok: Any, length: int) -> list[list[int]]:
    """Token sequences of 5 to ``length`` pieces from every ``*.txt`` of ``folder``, in file order."""
    sequences: list[list[int]] = []
    for path in sorted(folder.glob("*.txt")):
        if path.name == "SOURCES.txt":
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        for encoded in tok.encode_batch(lines, add_special_tokens=False):
            ids = encoded.ids
            cut = [ids[at : at + length] for at in range(0, len(ids), length)]
            sequences += [piece for piece in cut if len(piece) >= 5]
    if len(sequences) < 1024:
        raise SystemExit(f"{folder} holds only {len(sequences)} usable sequences; at least 1024 are needed")
    return sequences


class Masker:
    """Turns sequences into training batches."""

    def __init__(self, tok: Any, keep: np.ndarray, settings: DeltaTrainingSettings) -> None:
        self.settings = settings
        self.cls, self.sep, self.mask = (tok.token_to_id(name) for name in ("[CLS]", "[SEP]", "[MASK]"))
        self.place = np.full(PIECES, -1)
        self.place[keep] = np.arange(len(keep))
        pieces = [tok.id_to_token(i) for i in range(PIECES)]
        self.is_word = np.array([piece[0].isalpha() for piece in pieces])

    def __call__(
        self, rows: list[list[int]], rng: np.random.Generator
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Ids, attention mask, selected positions (batch, time) and their targets (selected,)."""
        time_ = (max(map(len, rows)) + 2 + 7) // 8 * 8
        ids = np.zeros((len(rows), time_), np.int64)
        seen = np.zeros_like(ids)
        last = np.zeros(ids.shape, bool)
        for i, row in enumerate(rows):
            ids[i, : len(row) + 2] = [self.cls, *row, self.sep]
            seen[i, : len(row) + 2] = 1
            words = np.flatnonzero(self.is_word[row])
            if len(words) and rng.random() < self.settings.last:
                last[i, words[-1] + 1] = True
        chosen = (rng.random(ids.shape) < self.settings.masked) | last
        chosen &= (seen == 1) & (self.place[ids] >= 0) & (ids != self.cls) & (ids != self.sep)
        targets = self.place[ids[chosen]]
        draw = rng.random(targets.shape)
        values = ids[chosen].copy()
        values[draw < 0.88] = self.mask
        noise = (draw >= 0.88) & (draw < 0.94)
        values[noise] = rng.integers(1000, 30000, noise.sum())
        ids[chosen] = values
        return (
            torch.from_numpy(ids),
            torch.from_numpy(seen),
            torch.from_numpy(chosen),
            torch.from_numpy(targets),
        )


def endless(rows: list[list[int]], size: int, rng: np.random.Generator) -> Iterator[list[list[int]]]:
    """Batches of similar length, reshuffled every epoch."""
    while True:
        order = rng.permutation(len(rows))
        for start in range(0, len(order), size * 32):
            pool = sorted(order[start : start + size * 32], key=lambda i: len(rows[i]))
            parts = [pool[at : at + size] for at in range(0, len(pool), size)]
            for at in rng.permutation(len(parts)):
                yield [rows[i] for i in parts[at]]


class DeltaTrainer:
    """Head, low-rank update, optimiser and loss."""

    def __init__(self, rows: list[list[int]], tok: Any, settings: DeltaTrainingSettings) -> None:
        self.settings = settings
        generator = torch.Generator().manual_seed(settings.seed)
        counts = np.bincount(np.concatenate([np.array(row) for row in rows]), minlength=PIECES)
        keep = np.sort(np.argsort(-counts, kind="stable")[: settings.frequent])
        self.masker = Masker(tok, keep, settings)
        self.keep = torch.from_numpy(keep)
        self.encoder = TrainableEncoder(base_weights(), settings.rank, generator)
        self.tied = self.encoder.words[self.keep].contiguous()
        unigram = torch.from_numpy(np.log((counts + 0.1) / counts.sum())).float() + 9
        self.head = {
            "head.dense.weight": torch.randn(WIDTH, WIDTH, generator=generator) * 0.05,
            "head.dense.bias": torch.zeros(WIDTH),
            "head.norm.weight": torch.ones(WIDTH),
            "head.norm.bias": torch.zeros(WIDTH),
            "head.bias": unigram,
        }
        low = [tensor for pair in self.encoder.low.values() for tensor in pair]
        self.trained = [*(tensor.requires_grad_() for tensor in self.head.values()), *low]
        self.optimizer = torch.optim.AdamW(
            self.trained, lr=settings.rate, weight_decay=0.01, betas=(0.9, 0.98)
        )

    def loss(self, rows: list[list[int]], rng: np.random.Generator) -> tuple[Tensor, float]:
        """Mean cross-entropy in nats and the share of top-1 hits over the masked positions of a batch."""
        ids, seen, chosen, targets = self.masker(rows, rng)
        hidden = self.encoder(ids, seen)[chosen].float()
        x = F.gelu(F.linear(hidden, self.head["head.dense.weight"], self.head["head.dense.bias"]))
        x = F.layer_norm(x, (WIDTH,), self.head["head.norm.weight"], self.head["head.norm.bias"], 1e-12)
        logits = F.linear(x.bfloat16(), self.tied).float() + self.head["head.bias"][self.keep]
        return F.cross_entropy(logits, targets), float((logits.argmax(-1) == targets).float().mean())

    def step(self, rows: list[list[int]], rng: np.random.Generator, done: float, number: int) -> float:
        """One update at share ``done`` of the schedule; returns the loss."""
        shape = 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.rate * min(1.0, (number + 1) / 100) * shape
        loss, _ = self.loss(rows, rng)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimizer.step()
        return float(loss.detach())

    @torch.no_grad()
    def evaluate(self, rows: list[list[int]]) -> tuple[float, float]:
        """Validation loss (nats) and top-1 share, with fixed masks."""
        rng = np.random.default_rng(5)
        results = [self.loss(rows[at : at + 64], rng) for at in range(0, len(rows), 64)]
        return sum(float(loss) for loss, _ in results) / len(results), sum(hit for _, hit in results) / len(
            results
        )

    def save(self, path: Path, note: dict[str, str]) -> None:
        """Write the delta as float16 safetensors, replacing ``path`` in one step."""
        tensors = {name: tensor.detach().half().contiguous() for name, tensor in self.head.items()}
        for name, (a, b) in self.encoder.low.items():
            tensors[name + ".A"] = a.detach().half().contiguous()
            tensors[name + ".B"] = b.detach().half().contiguous()
        partial = path.with_suffix(".part")
        need("safetensors.torch").save_file(tensors, str(partial), metadata=note)
        partial.chmod(0o644)
        os.replace(partial, path)


def say(line: str) -> None:
    """Write a line of progress to standard error."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def train(folder: Path, out: Path, settings: DeltaTrainingSettings) -> None:
    """Train on the text in ``folder`` and write the delta to ``out``."""
    torch.set_num_threads(settings.threads)
    tok = tokenizer()
    rows = read_sequences(folder, tok, settings.length - 2)
    rng = np.random.default_rng(settings.seed)
    rows = [rows[i] for i in rng.permutation(len(rows))]
    held, rows = rows[:1024], rows[1024:]
    say(f"{len(rows)} sequences, {sum(map(len, rows))} tokens")
    trainer = DeltaTrainer(rows, tok, settings)
    stop: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _: stop.append(got))
    start, saved, mean, step, done = time.monotonic(), 0.0, 0.0, 0, 0.0
    stream = endless(rows, settings.batch, rng)
    while done < 1 and not stop:
        loss = trainer.step(next(stream), rng, done, step)
        mean = 0.98 * mean + 0.02 * loss if step else loss
        step += 1
        elapsed = time.monotonic() - start
        done = max(step / settings.steps, elapsed / 60 / settings.minutes)
        if elapsed - saved > 60:
            saved = elapsed
            trainer.save(out, {"steps": str(step)})
            note = " val {:.3f} {:.3f}".format(*trainer.evaluate(held)) if step % 5 == 0 else ""
            say(f"{elapsed:.0f} s, step {step}, loss {mean:.3f}{note}")
    value, hits = trainer.evaluate(held)
    trainer.save(
        out, {"steps": str(step), "validation_loss": f"{value:.3f}", "validation_top1": f"{hits:.3f}"}
    )
    say(f"{step} steps, {time.monotonic() - start:.0f} s: validation loss {value:.3f}, top-1 {hits:.3f}")


def main(argv: list[str] | None = None) -> None:
    """Command line: every field of :class:`Settings` is an option."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    for field in fields(DeltaTrainingSettings):
        parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default)
    options = vars(parser.parse_args(argv))
    train(options.pop("folder"), options.pop("out"), DeltaTrainingSettings(**options))


if __name__ == "__main__":
    main()

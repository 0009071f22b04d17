"""Train `embedded/tiny`: ``python -m tools.embedded.tinytrain OUT [--steps N]``.

A Llama-architecture causal model (RMSNorm, rotary positions, SwiGLU; tied embeddings) of about 3 million
weights, trained from nothing on the conversations of :mod:`tools.embedded.tinyforms`. The loss is the
cross-entropy of the answers' tokens. Matrices inside the layers are trained by Muon (momentum made orthogonal;
Jordan 2024), all other weights by AdamW; the rate rises over 100 steps, stays, and falls linearly to zero over
the second half of the steps; what is written is a moving average of the weights. Every conversation is new, so
there are no epochs.

``OUT`` gets model.safetensors (float16), config.json, tokenizer.json and tokenizer_config.json: a folder that
`hf/OUT` loads as well. With the same steps, seed, threads and processor the result is the same.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from tools.embedded.tinydata import SPECIALS, TEMPLATE, chat_text, make_tokenizer
from tools.embedded.tinyforms import TEXTS, dialogue
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

PAD, END = 0, SPECIALS.index("<|end|>")
POSITIONS = 512
WIDTH_STEP = 16


@dataclass(frozen=True)
class TinyTrainingSettings:
    """Training settings; the defaults made the weights that ship."""

    steps: int = 6000
    tokens: int = 3072  # tokens of a step, padding included
    width: int = 192
    inner: int = 512
    layers: int = 6
    heads: int = 6
    rate: float = 0.003  # of Muon
    adam_rate: float = 1e-3
    decay: float = 0.01
    cooldown: float = 0.5  # share of the steps over which the rate falls
    seed: int = 0
    threads: int = 1
    average: float = 0.99  # decay of the moving average of the weights, which is what is written
    save_every: int = 0  # steps between writes of the weights so far; 0: only at the end
    start: str = ""  # a folder that this command wrote, whose weights the training begins with


def build(settings: TinyTrainingSettings, vocabulary: int) -> Any:
    """An untrained `LlamaForCausalLM`, float32; the same seed gives the same weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(settings.seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=settings.width,
        intermediate_size=settings.inner,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.heads,
        max_position_embeddings=POSITIONS,
        tie_word_embeddings=True,
        pad_token_id=PAD,
        bos_token_id=None,
        eos_token_id=END,
        initializer_range=0.03,
    )
    return LlamaForCausalLM(config)


def batches(tokenizer: Any, settings: TinyTrainingSettings) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless batches: ids (B, T), int64, and a mask (B, T) of the positions whose next token is learnt.

    Conversations of like length stand together, so that little is padding.
    """
    rng = random.Random(settings.seed)
    while True:
        made = [dialogue(rng) for _ in range(4096)]
        prompts = tokenizer.encode_batch([chat_text(d.messages) for d in made], add_special_tokens=False)
        answers = tokenizer.encode_batch([d.answer for d in made], add_special_tokens=False)
        rows = [(q.ids, [*a.ids, END]) for q, a in zip(prompts, answers, strict=True)]
        rows = [row for row in rows if len(row[0]) + len(row[1]) <= POSITIONS]
        yield from _cut(rows, settings.tokens, rng)


def _cut(
    rows: list[tuple[list[int], list[int]]], tokens: int, rng: random.Random
) -> Iterator[tuple[Tensor, Tensor]]:
    by_width: dict[int, list[tuple[list[int], list[int]]]] = {}
    for row in rows:
        length = len(row[0]) + len(row[1])
        by_width.setdefault((length + WIDTH_STEP - 1) // WIDTH_STEP * WIDTH_STEP, []).append(row)
    groups = [
        (width, members[at : at + tokens // width])
        for width, members in by_width.items()
        for at in range(0, len(members), tokens // width)
    ]
    rng.shuffle(groups)
    for width, group in groups:
        ids = torch.full((tokens // width, width), PAD)
        learnt = torch.zeros_like(ids, dtype=torch.bool)
        for i, (q, a) in enumerate(group):
            ids[i, : len(q) + len(a)] = torch.tensor(q + a)
            learnt[i, len(q) - 1 : len(q) + len(a) - 1] = True
        yield ids, learnt


class Forward(torch.nn.Module):
    """The hidden states of a `LlamaForCausalLM` without cache, in bfloat16 with a float32 residual stream.

    The same arithmetic as the model's own forward, written so that `torch.compile` fuses it.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model, config = model.model, model.config
        self.heads = config.num_attention_heads
        size = config.hidden_size // self.heads
        theta = config.rope_parameters["rope_theta"]
        steps = 1.0 / theta ** (torch.arange(0, size, 2).float() / size)
        angles = torch.outer(torch.arange(POSITIONS).float(), steps).repeat(1, 2)
        self.cos, self.sin = angles.cos().bfloat16(), angles.sin().bfloat16()

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Normalised hidden states, bfloat16 (B, T, D); `mask` is 0 or minus infinity, (T, T)."""
        x = F.embedding(ids, self.model.embed_tokens.weight)
        for layer in self.model.layers:
            y = self._norm(x, layer.input_layernorm)
            x = x + self._attend(y, layer.self_attn, mask).float()
            y = self._norm(x, layer.post_attention_layernorm)
            gate, up, down = (
                part.weight.bfloat16()
                for part in (layer.mlp.gate_proj, layer.mlp.up_proj, layer.mlp.down_proj)
            )
            x = x + F.linear(F.silu(F.linear(y, gate)) * F.linear(y, up), down).float()
        return self._norm(x, self.model.norm)

    def _norm(self, x: Tensor, norm: Any) -> Tensor:
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)
        normed: Tensor = (x * scale * norm.weight).bfloat16()
        return normed

    def _turn(self, x: Tensor) -> Tensor:
        one, two = x.chunk(2, -1)
        length = x.shape[-2]
        return x * self.cos[:length] + torch.cat([-two, one], -1) * self.sin[:length]

    def _attend(self, y: Tensor, part: Any, mask: Tensor) -> Tensor:
        size, length, width = y.shape
        maps = torch.cat([part.q_proj.weight * part.scaling, part.k_proj.weight, part.v_proj.weight])
        split = F.linear(y, maps.bfloat16()).view(size, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        seen = (self._turn(q) @ self._turn(k).transpose(-1, -2) + mask).softmax(-1)
        return F.linear(
            (seen @ v).transpose(1, 2).reshape(size, length, width), part.o_proj.weight.bfloat16()
        )


def loss_of(forward: Any, head: Tensor, ids: Tensor, learnt: Tensor) -> Tensor:
    """Mean cross-entropy (nats) of the tokens after the positions of `learnt`."""
    length = ids.shape[1]
    mask = torch.full((length, length), -torch.inf, dtype=torch.bfloat16).triu(1)
    hidden = forward(ids, mask).flatten(0, 1)
    at = learnt.flatten().nonzero().squeeze(1)
    targets = ids.roll(-1, 1).flatten()[at]
    short = -len(at) % 256  # few distinct shapes: the matrix kernels are made anew for each
    at, targets = F.pad(at, (0, short)), F.pad(targets, (0, short), value=-100)
    return F.cross_entropy(F.linear(hidden[at], head.bfloat16()).float(), targets)


def optimizers(model: Any, settings: TinyTrainingSettings) -> list[Any]:
    """Muon for the layers' matrices, AdamW for the embeddings and the norms."""
    inside = [p for p in model.model.layers.parameters() if p.dim() == 2]
    ids = {id(p) for p in inside}
    rest = [p for p in model.parameters() if id(p) not in ids]
    return [
        torch.optim.Muon(
            inside, lr=settings.rate, weight_decay=settings.decay, adjust_lr_fn="original", ns_steps=5
        ),
        torch.optim.AdamW(rest, lr=settings.adam_rate, weight_decay=0.0, betas=(0.9, 0.98)),
    ]


def rate_at(step: int, settings: TinyTrainingSettings) -> float:
    """Share of the full rate at a step: up, level, down to zero."""
    fall = max(1, int(settings.cooldown * settings.steps))
    return min(1.0, (step + 1) / 100, max(0.0, (settings.steps - step) / fall))


def train(out: Path, settings: TinyTrainingSettings) -> None:
    """Train and write the folder `out`; a line of progress every 50 steps."""
    torch.set_num_threads(settings.threads)
    tokenizer = make_tokenizer(TEXTS)
    model = build(settings, tokenizer.get_vocab_size())
    if settings.start:
        load_start(model, Path(settings.start))
    mean_of = get_ema_multi_avg_fn(settings.average)  # type: ignore[no-untyped-call]
    averaged = AveragedModel(model, multi_avg_fn=mean_of)
    forward = torch.compile(Forward(model), dynamic=True)
    made = optimizers(model, settings)
    rates = [[group["lr"] for group in o.param_groups] for o in made]
    _say(f"{sum(p.numel() for p in model.parameters())} weights")
    begun, running, seen = time.perf_counter(), 0.0, 0
    for step, (ids, learnt) in zip(range(settings.steps), batches(tokenizer, settings), strict=False):
        for optimizer, full in zip(made, rates, strict=True):
            for group, rate in zip(optimizer.param_groups, full, strict=True):
                group["lr"] = rate * rate_at(step, settings)
        loss = loss_of(forward, model.lm_head.weight, ids, learnt)
        model.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in made:
            optimizer.step()
        averaged.update_parameters(model)
        seen += ids.numel()
        running = loss.item() if step == 0 else 0.98 * running + 0.02 * loss.item()
        if (step + 1) % 50 == 0:
            spent = time.perf_counter() - begun
            _say(f"step {step + 1} loss {running:.4f} {spent:.0f} s {seen / spent:.0f} tokens/s")
        if settings.save_every and (step + 1) % settings.save_every == 0:
            save(out, averaged.module, tokenizer)
    save(out, averaged.module, tokenizer)


def load_start(model: Any, folder: Path) -> None:
    """Give the model the weights of a folder that `save` wrote."""
    from safetensors.torch import load_file

    tensors = load_file(folder / "model.safetensors")
    model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()}, strict=False)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def save(out: Path, model: Any, tokenizer: Any) -> None:
    """Write the folder at once: beside `out` first, then moved in its place."""
    from safetensors.torch import save_file

    new = out.with_name(out.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    state = {
        k: v.detach().half().contiguous() for k, v in model.state_dict().items() if k != "lm_head.weight"
    }
    save_file(state, new / "model.safetensors", metadata={"format": "pt"})
    config = model.config.to_dict()
    config["dtype"] = "float16"
    (new / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    tokenizer.save(str(new / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": SPECIALS[0],
        "eos_token": SPECIALS[-1],
        "model_max_length": POSITIONS,
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE,
    }
    (new / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n")
    shutil.rmtree(out, ignore_errors=True)
    os.replace(new, out)


def main(argv: list[str] | None = None) -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(prog="python -m tools.embedded.tinytrain")
    parser.add_argument("out", type=Path)
    for item in fields(TinyTrainingSettings):
        kind = type(item.default)
        parser.add_argument("--" + item.name.replace("_", "-"), type=kind, default=item.default)
    options = vars(parser.parse_args(argv))
    train(options.pop("out"), TinyTrainingSettings(**options))


if __name__ == "__main__":
    main(sys.argv[1:])

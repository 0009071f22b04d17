"""What each mechanism of training is worth: the same questions, samples a step, rate and seeds, one setting changed at a time.

    python benchmarks/mechanics.py                        # everything; what is recorded below --root is not run again
    python benchmarks/mechanics.py --arms "grpo ppo;rloo ppo" --seeds 4 --steps 20

The policy is a Llama of two layers over 45 words whose weights are random (another one for each seed), so nothing is known before
training. Three worlds ask four questions each ("say a b", ...):

- ``share``: the reward of a text is the share of the question's three words that it holds (graded, dense).
- ``pair``: 1 if it holds both of the question's first two words, else 0 (sparse: most groups have equal rewards at first).
- ``order``: a third for each place at which the text has the question's word of that place (credit belongs to single tokens).

A text that the bound on tokens cut earns 0, as in `prewrite`. A step samples a group of 8 for each question and takes two passes
over them, so that the second one is off-policy and clips matter. Figures: mean reward of the texts of the last ten steps, and the
divergence from the first policy there, nats a text (mean of k1 over the sampled texts). Differences to the first arm are paired
by seed, with 95% intervals (Student). Rate and steps were chosen on `grpo ppo` and seeds from 100 on. One thing more was learned
there: with `truncated=mask` nothing is learned at all, so the other arms learn from cut texts.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from scipy import stats
from tokenizers import Tokenizer, models, pre_tokenizers

from whet.rl.policy_model import LoraSettings, PolicyModel, Sample
from whet.rl.training import Trainer, Training
from whet.run import MemoryRun
from whet.types import Message

WORDS = [
    "<pad>",
    "<unk>",
    "<s>",
    "</s>",
    "[",
    "user",
    "assistant",
    "]",
    "say",
    ".",
    *"abcdefghijklmnopqrstuvwxyz",
]
WORDS += [f"{one}{one}" for one in "abcdefghi"]
TEMPLATE = (
    "{% for m in messages %}[ {{ m['role'] }} ] {{ m['content'] }} </s> {% endfor %}"
    "{% if add_generation_prompt %}[ assistant ] {% endif %}"
)
QUESTIONS = ["a b c", "d e f", "c a d", "e f b"]
LAST = 10
GROUP, LENGTH = 8, 8
SETTINGS: dict[str, Any] = {"group": GROUP, "max_tokens": LENGTH, "rank": 0, "lr": 0.01, "epochs": 2}
ADVANTAGES = ("grpo", "dr_grpo", "rloo", "reinforce++", "reinforce++-baseline", "remax", "gae")
ARMS: dict[str, dict[str, Any]] = {
    **{f"{a} ppo": {"advantage": a} for a in ADVANTAGES},
    **{f"{a} cispo": {"advantage": a, "loss": "cispo"} for a in ("grpo", "reinforce++", "gae")},
    "grpo ppo, clip_high=0.28": {"clip_high": 0.28},
    "grpo gspo": {"loss": "gspo", "aggregation": "sequence"},
    "grpo ppo, nlpo=0.9": {"nlpo": 0.9},
    "gae ppo, nlpo=0.9": {"advantage": "gae", "nlpo": 0.9},
    "grpo importance": {"loss": "importance"},
    "grpo reinforce": {"loss": "reinforce"},
    "rebel, eta=1": {"loss": "rebel"},
    "rebel, eta=10": {"loss": "rebel", "eta": 10.0},
    "dro, kl=0.1": {"loss": "dro", "kl": 0.1},
    "dr_grpo ppo, aggregation=constant": {"advantage": "dr_grpo", "aggregation": "constant"},
    "grpo ppo, truncated=mask": {"truncated": "mask"},
    "reinforce++ ppo, rto=0.1": {"advantage": "reinforce++", "rto": 0.1},
    "grpo ppo, kl=0.05 k3": {"kl": 0.05},
    "grpo ppo, kl=0.05 k2": {"kl": 0.05, "kl_estimator": "k2"},
    "grpo ppo, kl=0.05 in reward": {"kl": 0.05, "kl_in": "reward"},
}


def write_base(folder: Path, seed: int) -> Path:
    """A random Llama of two layers and its tokenizer in `folder`."""
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=len(WORDS), hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        bos_token_id=2, eos_token_id=3, pad_token_id=0, tie_word_embeddings=True,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    made: Any = transformers.PreTrainedTokenizerFast(tokenizer_object=words, **special)
    made.chat_template = TEMPLATE
    made.save_pretrained(folder)
    return folder


def share(wanted: Sequence[str], said: Sequence[str]) -> float:
    """The share of the wanted words that were said."""
    return sum(word in said for word in wanted) / len(wanted)


def pair(wanted: Sequence[str], said: Sequence[str]) -> float:
    """Whether the first two wanted words were said."""
    return float(all(word in said for word in wanted[:2]))


def order(wanted: Sequence[str], said: Sequence[str]) -> float:
    """The share of places at which the wanted word was said."""
    return sum(a == b for a, b in zip(wanted, said, strict=False)) / len(wanted)


WORLDS: dict[str, Callable[[Sequence[str], Sequence[str]], float]] = {
    "share": share,
    "pair": pair,
    "order": order,
}


async def train(world: str, arm: str, seed: int, steps: int, base: Path) -> tuple[float, float]:
    """Mean reward and divergence of the last steps of one training."""
    config = Training(**{**SETTINGS, **ARMS[arm]})
    policy = PolicyModel.open(f"hf/{base}", LoraSettings(rank=0), seed)
    trainer, run = Trainer(policy, config), MemoryRun(seed=seed)
    asked = [[Message("user", f"say {question}")] for question in QUESTIONS]
    rewards, distances = [], []

    def earned(question: str, sample: Sample) -> float:
        return WORLDS[world](question.split(), sample.text.split()) if sample.ended else 0.0

    for number in range(steps):
        groups = await trainer.draw_groups(run, asked)
        paid = [[earned(q, s) for s in group] for q, group in zip(QUESTIONS, groups, strict=True)]
        if number >= steps - LAST:
            drawn = [g[: GROUP - (config.advantage == "remax")] for g in groups]  # without the greedy text
            rewards.append(
                float(np.mean([r for row, g in zip(paid, drawn, strict=True) for r in row[: len(g)]]))
            )
            gaps = policy.critical_gaps([s for g in drawn for s in g])
            distances.append(float(np.mean([sum(row) for row in gaps])))
        trainer.learn(groups, paid)
    return float(np.mean(rewards)), float(np.mean(distances))


def one(job: tuple[str, str, int, int]) -> dict[str, Any]:
    """The result of one training as a record."""
    import asyncio

    world, arm, seed, steps = job
    torch.set_num_threads(1)
    transformers.logging.disable_progress_bar()
    began = time.process_time()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        reward, distance = asyncio.run(train(world, arm, seed, steps, write_base(Path(folder), seed)))
    record = {"world": world, "arm": arm, "seed": seed, "steps": steps, "reward": reward, "kl": distance}
    return {**record, "seconds": time.process_time() - began}


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and 95% interval (Student)."""
    mean = float(np.mean(values))
    half = float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5)
    return mean, mean - half, mean + half


def show(records: Sequence[dict[str, Any]], arms: Sequence[str], first: str) -> str:
    """The table in Markdown."""
    worlds = list(dict.fromkeys(r["world"] for r in records))
    head = "| arm | " + " | ".join(f"{w}: reward | {w}: difference | {w}: kl" for w in worlds) + " |"
    lines = [head, "|" + "---|" * (1 + 3 * len(worlds))]
    found = {(r["world"], r["arm"], r["seed"]): r for r in records}
    for arm in arms:
        cells = [f"`{arm}`"]
        for world in worlds:
            seeds = sorted(s for w, a, s in found if (w, a) == (world, arm) and (w, first, s) in found)
            mine = [found[world, arm, s] for s in seeds]
            if len(mine) < 2:
                cells += ["", "", ""]
                continue
            gap = [m["reward"] - found[world, first, s]["reward"] for m, s in zip(mine, seeds, strict=True)]
            mean, low, high = interval(gap)
            difference = "" if arm == first else f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]"
            cells += [
                f"{np.mean([m['reward'] for m in mine]):.3f}",
                difference,
                f"{np.mean([m['kl'] for m in mine]):.1f}",
            ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run the trainings that are not recorded yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--arms", help="names of arms, separated by semicolons; the first one is compared with"
    )
    parser.add_argument("--worlds", default="share,order")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--lr", type=float, default=SETTINGS["lr"])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--root", type=Path, default=Path("runs/mechanics"))
    given = parser.parse_args()
    SETTINGS["lr"] = given.lr
    arms = given.arms.split(";") if given.arms else list(ARMS)
    given.root.mkdir(parents=True, exist_ok=True)
    file = given.root / "records.jsonl"
    records = [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
    key = {(r["world"], r["arm"], r["seed"], r["steps"]) for r in records}
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    jobs = [(w, a, s, given.steps) for s in seeds for w in given.worlds.split(",") for a in arms]
    jobs = [job for job in jobs if job not in key]
    with ProcessPoolExecutor(given.jobs) as pool, file.open("a") as out:
        for record in pool.map(one, jobs):
            records.append(record)
            out.write(json.dumps(record) + "\n")
            out.flush()
    wanted = [r for r in records if r["seed"] in seeds and r["steps"] == given.steps]
    print(show(wanted, arms, arms[0]))


if __name__ == "__main__":
    main()

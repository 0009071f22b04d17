"""The latent-rules benchmark as task folders: pages as JSON that must follow N rules nobody has written down.

    python -m benchmarks.latent_rules.build --rules 50 --seed 0 --out /tmp/latent-50
    whet optimize /tmp/latent-50 --max-task-calls 500 --max-optimizer-calls 30

The prompt begins with one sentence. What is wrong with a page is said in English by `reward.py`, whose rules
are programs. Requests are put together from parts; the same seed gives the same folder, byte for byte.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.simulated.page import obedient_page
from benchmarks.simulated.rules import SIZES, first

from whet.models.scripted import choose_by_luck, shuffle

HERE = Path(__file__).resolve().parent
SPLITS = {"train": 200, "validation": 60, "test": 50}
START = "Write the page that the request asks for."
OUTSIDE = (
    "You write web pages as JSON. Answer with one JSON object and nothing else.\n"
    "Its parts are title, meta, hero, navigation, sections, gallery, links, offers, faq, contact, "
    "accessibility and footer.\n"
)

KINDS = (
    "A landing page",
    "A short article",
    "A listing",
    "A seasonal page",
    "An announcement",
    "A members' page",
)
PLACES = (
    "Leeds",
    "Porto",
    "Ghent",
    "Riga",
    "Turin",
    "Brno",
    "Cork",
    "Lyon",
    "Oslo",
    "Graz",
    "Bilbao",
    "Tartu",
)
TRADES = (
    "a bicycle repair shop",
    "a vegan bakery",
    "a chess club for adults",
    "a small maritime museum",
    "a night train service",
    "a community choir",
    "a climbing hall",
    "a school of pottery",
    "a second-hand bookshop",
    "a family dentist",
    "a botanical garden",
    "a rowing association",
    "a puppet theatre",
    "a solar panel installer",
    "a language exchange",
    "a cheese dairy",
    "an animal shelter",
    "a tool library",
    "a jazz festival",
    "a hiking guide",
)
ANGLES = (
    "that wants more visitors in winter",
    "that has just moved to a new building",
    "whose guests often bring children",
    "that is looking for volunteers",
    "with a new evening programme",
    "that celebrates its tenth year",
    "whose prices have become simpler",
    "that would like fewer telephone calls",
)


def page_requests(seed: int) -> list[str]:
    """All requests, shuffled by the seed; no two are equal."""
    made = [
        f"{kind} for {trade} in {place} {angle}."
        for kind in KINDS
        for trade in TRADES
        for place in PLACES
        for angle in ANGLES
    ]
    return shuffle(made, "latent-rules", seed)


def stating_all(rules: int, seed: int | None = None) -> str:
    """Instructions that state each of the first rules once, in its own words or (with a seed) in others."""
    said = (
        rule.statement if seed is None else choose_by_luck(rule.wordings, "wording", seed, rule.id)
        for rule in first(rules)
    )
    return "\n".join([START, *(f"- {sentence}" for sentence in said)])


def prompt_text(instructions: str, with_keys: bool = False) -> str:
    """The prompt document around the given instructions; `with_keys` lists the keys of a page."""
    keys = f"Its keys and the types of their values: {_skeleton()}\n" if with_keys else ""
    return f"{OUTSIDE}{keys}<!-- whet:begin -->\n{instructions}\n<!-- whet:end -->\n"


def _skeleton() -> str:
    """The keys of a page with the types of their values, in alphabetical order."""
    return json.dumps(_blank(obedient_page("")), separators=(",", ":"))


def _blank(value: object) -> object:
    if isinstance(value, dict):
        return {key: _blank(inner) for key, inner in sorted(value.items())}
    if isinstance(value, list):
        return [_blank(value[0])]
    return {str: "text", bool: "boolean", int: "number", float: "number"}[type(value)]


def build(out: Path, rules: int, seed: int, critiques: int = 0, with_keys: bool = False) -> Path:
    """Write the task folder and return it. `critiques` bounds the complaints about one page (0: all)."""
    first(rules)
    out.mkdir(parents=True, exist_ok=True)
    (out / "task.yaml").write_text(_task_yaml(rules, seed), encoding="utf-8")
    (out / "prompt.md").write_text(prompt_text(START, with_keys), encoding="utf-8")
    source = (HERE / "reward.py").read_text(encoding="utf-8")
    for name, value in (("RULES", rules), ("CRITIQUES", critiques)):
        before = next(line for line in source.splitlines() if line.startswith(f"{name} = "))
        source = source.replace(before, f"{name} = {value}")
    (out / "reward.py").write_text(source, encoding="utf-8")
    asked = iter(page_requests(seed))
    for split, count in SPLITS.items():
        rows = [{"id": f"{split}-{number:03d}", "input": next(asked)} for number in range(count)]
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (out / f"{split}.jsonl").write_text(lines, encoding="utf-8")
    return out


def _task_yaml(rules: int, seed: int) -> str:
    return f"""name: latent-rules-{rules}
description: Pages as JSON that must follow {rules} rules which only the critiques reveal.
prompt: prompt.md
data: {{train: train.jsonl, validation: validation.jsonl, test: test.jsonl}}
reward: reward.py
models:
  task: {{address: "simulated/rules-generator?rules={rules}&seed={seed}", max_tokens: 2048}}
  optimizer: {{address: "simulated/rules-optimizer?seed={seed}", max_tokens: 8192}}
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Write one folder, as the command line says."""
    parser = argparse.ArgumentParser(description="Write the latent-rules task folder.")
    parser.add_argument(
        "--rules", type=int, default=50, help=f"number of hidden rules, usually one of {SIZES}"
    )
    parser.add_argument("--seed", type=int, default=0, help="draws the requests and the simulators' world")
    parser.add_argument("--critiques", type=int, default=0, help="complaints about one page at most (0: all)")
    parser.add_argument("--keys", action="store_true", help="list the keys of a page (for real endpoints)")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    given = parser.parse_args(arguments)
    print(build(given.out, given.rules, given.seed, given.critiques, given.keys))


if __name__ == "__main__":
    main()

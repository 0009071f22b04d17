"""What `embedded/tiny` can do, measured: ``python -m tools.embedded.tinymeasure [FOLDER]``.

Every input is made of words that the training never contained (:data:`WORDS`, real ones; training words are
invented). `held` wordings of clauses were never trained on either. Answers are greedy.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from tools.embedded.clauses import CLAUSES, KINDS, Clause, transform
from tools.embedded.tinydata import instruction, pick_clauses
from tools.embedded.tinyforms import FORMS

from whet.models.embedded import TINY
from whet.types import Message, Request

_WORDS = (
    "river stone maple candle bridge pepper wagon silver garden rocket marble puzzle violin copper meadow harbor "
    "pencil cotton tiger lantern basket ginger pillow saddle walnut velvet pigeon tunnel ladder bottle window "
    "carpet donkey forest guitar hammer hermit jacket kitten lemon magnet needle orange parrot rabbit salmon "
    "ticket turtle valley wizard yellow zebra anchor beetle camel dragon engine falcon grape honey ivory jungle "
    "muffin lobster nutmeg napkin oyster pumpkin quilt raven spider tomato umbrella vessel whale yogurt acorn"
)
WORDS = tuple(_WORDS.split())


def line(rng: random.Random, count: int = 3) -> str:
    """`count` different words of :data:`WORDS`."""
    return " ".join(rng.sample(WORDS, count))


def similarity(output: str, wanted: str) -> float:
    """Share of characters in common, 0 to 1 (difflib's ratio)."""
    return SequenceMatcher(None, output, wanted, autojunk=False).ratio()


def is_obeyed(output: str, text: str, names: Sequence[str], name: str) -> bool:
    """Whether the answer is nearer to the line with the clause `name` than to the line without it."""
    wanted = transform(text, names)
    without = transform(text, [other for other in names if other != name])
    return output == wanted or similarity(output, wanted) > similarity(output, without)


def request(text: str, user: str, temperature: float = 0.0) -> Request:
    """An instruction as system message (none when empty) and a line."""
    head = (Message("system", text),) if text else ()
    return Request((*head, Message("user", user)), temperature, 96)


Answer = Callable[[Sequence[Request]], list[str]]


def singles(answer: Answer, rng: random.Random, each: int) -> dict[str, dict[str, float]]:
    """Exact match of every clause alone: trained and held wording, no instruction, another clause's instruction."""
    table = {}
    for clause in CLAUSES:
        lines = [line(rng) for _ in range(each)]
        wanted = [transform(text, [clause.name]) for text in lines]
        others = [c for c in CLAUSES if c.attribute != clause.attribute]
        wordings: dict[str, Callable[[Clause], str]] = {
            "trained": lambda c: instruction(rng, [c]),
            "held": lambda c: instruction(rng, [c], held=True),
            "name": lambda c: c.name,
            "none": lambda c: "",
            "wrong": lambda c, others=others: instruction(rng, [rng.choice(others)]),  # type: ignore[misc]
        }
        table[clause.name] = {
            column: _share(answer([request(say(clause), text) for text in lines]), wanted)
            for column, say in wordings.items()
        }
    return table


def _share(outputs: Sequence[str], wanted: Sequence[str]) -> float:
    return sum(a == b for a, b in zip(outputs, wanted, strict=True)) / len(wanted)


def measure_combinations(
    answer: Answer, rng: random.Random, each: int, held: bool
) -> dict[int, dict[str, float]]:
    """For 1 to 5 clauses at once: exact match, similarity, and the share of clauses obeyed."""
    table = {}
    for count in range(1, 6):
        cases = [(pick_clauses(rng, count), line(rng)) for _ in range(each)]
        outputs = answer([request(instruction(rng, clauses, held), text) for clauses, text in cases])
        names = [[c.name for c in clauses] for clauses, _ in cases]
        wanted = [transform(text, applied) for applied, (_, text) in zip(names, cases, strict=True)]
        kept = [
            is_obeyed(a, text, applied, name)
            for a, applied, (_, text) in zip(outputs, names, cases, strict=True)
            for name in applied
        ]
        near = [similarity(a, b) for a, b in zip(outputs, wanted, strict=True)]
        table[count] = {
            "exact": _share(outputs, wanted),
            "similar": sum(near) / len(near),
            "obeyed": sum(kept) / len(kept),
        }
    return table


FORMATS = {
    "rewrite": r"(?s).*[a-z]{3}.*",
    "prl": r"(?s)<think>.+</think>\s*<answer>.+</answer>",
    "keywords": r"[^;\n]+(; [^;\n]+){0,2}",
    "r1": r"(?s)<think>.+</think>\s*(<interaction_prompt>.+</interaction_prompt>|<answer>.+</answer>)",
    "reflect": r"(?s).*[a-z]{3}.*",
    "operations": r"(?s)\[\{.*\}\]",
    "kind": "|".join(KINDS),
}
"""For each format a pattern that a text in it matches as a whole."""


def well_formed(kind: str, text: str) -> bool:
    """Whether a text has a format; operations must be JSON with the keys that their `op` needs."""
    if re.fullmatch(FORMATS[kind], text) is None:
        return False
    if kind != "operations":
        return True
    try:
        operations = json.loads(text)
    except ValueError:
        return False
    keys = {"add": {"op", "text"}, "modify": {"op", "id", "text"}}
    return all(op.keys() == keys.get(op.get("op")) and all(op.values()) for op in operations)


def sample_conversations(answer: Answer, kind: str, rng: random.Random, count: int) -> list[str]:
    """What the model writes, at temperature 1, in `count` conversations of a format."""
    make, _ = FORMS[kind]
    return answer([Request(make(rng).messages, 1.0, 120, seed=i) for i in range(count)])


def answers_of(folder: Path) -> Answer:
    """A function that answers requests with the model in `folder`."""
    from whet.models.huggingface_generate import generate_batch
    from whet.models.huggingface_load import load_weights
    from whet.replies.thoughts import join_thought

    weights: Any = load_weights(str(folder), None)

    def answer(requests: Sequence[Request]) -> list[str]:
        first = (completions[0] for completions in generate_batch(weights, requests, 256))
        return [join_thought(one).text for one in first if one is not None]

    return answer


def _say(row: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def main(argv: list[str] | None = None) -> None:
    """Print the tables as JSON lines."""
    parser = argparse.ArgumentParser(prog="python -m tools.embedded.tinymeasure")
    parser.add_argument("folder", type=Path, nargs="?", default=TINY)
    parser.add_argument("--each", type=int, default=40)
    args = parser.parse_args(argv)
    answer, rng = answers_of(args.folder), random.Random(99)
    single = singles(answer, rng, args.each)
    for name, row in single.items():
        _say({"clause": name, **row})
    columns = next(iter(single.values()))
    mean = {k: round(sum(row[k] for row in single.values()) / len(single), 3) for k in columns}
    _say({"clause": "mean", **mean})
    for held in (False, True):
        for count, row in measure_combinations(answer, rng, 4 * args.each, held).items():
            shown = {k: round(v, 3) for k, v in row.items()}
            _say({"clauses": count, "held wordings": held, **shown})
    for kind in FORMATS:
        texts = sample_conversations(answer, kind, rng, 5 * args.each)
        right = [text for text in texts if well_formed(kind, text)]
        _say({"format": kind, "right": round(len(right) / len(texts), 3), "different": len(set(right))})


if __name__ == "__main__":
    main(sys.argv[1:])

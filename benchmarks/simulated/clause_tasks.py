"""Task folders in the world of `embedded/tiny`, with a hidden combination of clauses as the best prompt.

The model writes a line of words in the form that the instruction demands (:mod:`tools.embedded.clauses`).
The task's reward knows the form, its prompt does not: a method has to find it. Partial credit makes the way
visible, and four clauses at once are too many to be found by chance. The words of :data:`WORDS` occur neither in the
model's training nor in its instructions; those of `KINDS` are known to it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

from tools.embedded.clauses import ATTRIBUTES, BY_NAME, CLAUSES, KINDS, transform

from whet.errors import UsageError

VAGUE = "Rewrite the line in the right form."
WORDS = (
    "amber barrel beacon bishop blossom cactus canoe castle cedar clover cobalt comet "
    "cradle crystal daisy desert ember fabric feather glacier goblet hammock hazel helmet "
    "igloo indigo jasmine jigsaw kernel lagoon mantle nectar nickel opal orchid "
    "pebble pewter quartz ribbon saffron sandal scarf silk spruce "
    "summit tartan teapot thistle tulip velour vinegar violet willow zodiac zephyr"
)
_REWARD = '''\
"""Mean of exact match and of the characters in common with the target, from 0 to 1."""

from difflib import SequenceMatcher


def reward(example, output):
    wanted, found = example["target"], output.strip()
    exact = float(found == wanted)
    similar = SequenceMatcher(None, found, wanted, autojunk=False).ratio()
    return {"reward": (exact + similar) / 2, "exact": exact, "similar": similar}
'''


def combination(seed: int, clauses: int, among: Sequence[str] = ()) -> tuple[str, ...]:
    """Names of `clauses` clauses of different attributes, chosen by `seed` among the given names (all by default).

    Raises UsageError when there are not so many attributes.
    """
    allowed = [c for c in CLAUSES if not among or c.name in among]
    present = [a for a in ATTRIBUTES if any(c.attribute == a for c in allowed)]
    if not 0 <= clauses <= len(present):
        raise UsageError(f"{clauses} clauses of different attributes; there are {len(present)} attributes.")
    rng = random.Random(f"clauses|{seed}")
    chosen = rng.sample(present, clauses)
    return tuple(rng.choice([c.name for c in allowed if c.attribute == a]) for a in chosen)


def instruction_for(names: Sequence[str]) -> str:
    """A plain instruction that demands the clauses named, in their first wording."""
    return " ".join(f"{text[:1].upper()}{text[1:]}." for text in (BY_NAME[n].wordings[0] for n in names))


def lines(seed: int, rows: int, words: int = 3) -> list[str]:
    """`rows` different lines of `words` different words, chosen by `seed`."""
    rng, unique = random.Random(f"lines|{seed}"), dict[str, None]()
    while len(unique) < rows:
        unique[" ".join(rng.sample(WORDS.split(), words))] = None
    return list(unique)


def write_task(
    folder: Path,
    seed: int = 0,
    *,
    clauses: int = 4,
    rows: int = 120,
    words: int = 3,
    among: Sequence[str] = (),
) -> tuple[str, ...]:
    """Write a task folder whose hidden form is a combination of `clauses` clauses; the names of these.

    `rows` examples of `words` words are split 40/30/30. `among`: names to choose from, all by default. The task
    model is `embedded/tiny`, greedy. Raises UsageError when no such combination exists or the folder is not empty.
    """
    names = combination(seed, clauses, among)
    data = [(line, transform(line, names)) for line in lines(seed, rows, words)]
    _write(folder, f"clauses-{seed}", "Write a line of words in a fixed form.", data)
    return names


def write_hint_task(
    folder: Path,
    seed: int = 0,
    *,
    clauses: int = 1,
    rows: int = 120,
    words: int = 2,
    among: Sequence[str] = (),
) -> dict[str, tuple[str, ...]]:
    """As `write_task`, but the form depends on the kind of the line's first word: an animal, a food or a tool.

    No prompt that is the same for all inputs is right for more than one kind; a hint that depends on the input is.
    Returns the clauses of each kind. Kinds have different forms.
    """
    rng, forms = random.Random(f"hints|{seed}"), dict[str, tuple[str, ...]]()
    for at, kind in enumerate(KINDS):
        draw = 0
        while (names := combination(1000 * seed + 100 * draw + at, clauses, among)) in forms.values():
            draw += 1
        forms[kind] = names
    data, seen = list[tuple[str, str]](), set[str]()
    while len(data) < rows:
        kind = list(KINDS)[len(data) % len(KINDS)]
        line = " ".join([rng.choice(KINDS[kind].split()), *rng.sample(WORDS.split(), words - 1)])
        if line not in seen:
            seen.add(line)
            data.append((line, transform(line, forms[kind])))
    _write(folder, f"hints-{seed}", "Write a line of words in the form that its first word asks for.", data)
    return forms


def _write(folder: Path, name: str, description: str, data: Sequence[tuple[str, str]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty. Name a new folder for the task.")
    (folder / "task.yaml").write_text(
        f"name: {name}\ndescription: {description}\nprompt: prompt.md\ndata: data.jsonl\nreward: reward.py\n"
        "models: {task: {address: embedded/tiny, temperature: 0, max_tokens: 64}}\n"
    )
    (folder / "prompt.md").write_text(f"<!-- whet:begin -->\n{VAGUE}\n<!-- whet:end -->\n")
    rows = [json.dumps({"input": line, "target": target}) for line, target in data]
    (folder / "data.jsonl").write_text("\n".join(rows) + "\n")
    (folder / "reward.py").write_text(_REWARD)
